// One image, enlarged, with what is known about it.

import { askMove, dialog } from "./dialogs.js";
import { fileName, h, icon, name, percent } from "./dom.js";
import { JUNK, edit, get, store, toast } from "./store.js";

const ASK_MODEL = 700; // ms between two questions whether the model is loaded

/** Say what the model does while something waits for it. */
export function watchModel(say) {
  const timer = setInterval(async () => {
    const model = await get("/api/model").catch(() => null);
    if (model) say(model.state === "loading" ? "Loading the model (this takes a while the first time)…" : "Looking at the image…");
  }, ASK_MODEL);
  say("Looking at the image…");
  return () => clearInterval(timer);
}

/** Show an image of a grid; arrows go on to the others. */
export function openViewer(grid, start) {
  let index = start;
  return dialog("Image", (close, box) => {
    const stage = h("div", { class: "stage" });
    const about = h("div", { class: "about" });
    const now = () => grid.images[index];

    function show() {
      const image = now();
      if (!image) return close();
      const stamp = encodeURIComponent(image.v);
      if (image.v) {
        const large = h("img", { class: "large", alt: fileName(image.path), src: `/image/${image.row}.jpg?v=${stamp}`,
          style: { "background-image": `url("/thumb/${image.row}.jpg?v=${stamp}")` } });
        large.addEventListener("load", () => large.style.removeProperty("background-image"), { once: true });
        large.addEventListener("error", () => large.replaceWith(h("span", { class: "gone" }, "This file cannot be read now.")), { once: true });
        stage.replaceChildren(large);
      } else {
        stage.replaceChildren(h("span", { class: "gone" }, name(fileName(image.path)), h("br"), "is not where it was."));
      }
      const it = store.byId.get(image.of);
      const facts = [
        it && ["Category", h("a", { href: `#/c/${it.id}`, onclick: () => close() }, name(it.name))],
        ["Confidence", percent(image.sure)],
        image.label !== undefined && ["Its label", name(image.label)],
        image.status && ["By hand", { accepted: "accepted", moved: "moved here", junk: "junk" }[image.status]],
        image.unlike && ["Note", `unlike every category (${image.unlike.toFixed(2)})`],
        ["Image", `${index + 1} of ${grid.images.length.toLocaleString("en")}`],
      ].filter(Boolean);
      const button = (label, key, act) => h("button", { onclick: act }, label, h("kbd", {}, key));
      about.replaceChildren(
        h("h2", { class: "path" }, name(image.path)),
        h("dl", { class: "table" }, facts.map(([what, said]) => h("div", {}, h("dt", {}, what), h("dd", {}, said)))),
        h("div", { class: "actions" },
          image.second !== undefined && store.byId.has(image.second) && button(["Move to ", name(store.byId.get(image.second).name)], "B", keys.b),
          button("Move…", "M", keys.m), image.of >= 0 && button("Accept", "A", keys.a), image.of !== JUNK && button("Junk", "X", keys.x),
          button("More like it", "L", keys.l), store.state.fields && button("Primitive fields", "F", keys.f)),
        h("div", { class: "fields" }),
      );
    }

    function step(by) {
      index = Math.max(0, Math.min(grid.images.length - 1, index + by));
      show();
    }

    /** After an edit the image may have left the grid: the next one is at its place. */
    async function change(wanted) {
      const { row } = now();
      if (!(await wanted)) return;
      await grid.busy; // it asks for its images again
      const still = grid.images.findIndex((image) => image.row === row);
      if (still !== index) index = Math.min(index, grid.images.length - 1); // gone, or accepted and at the end: the next one
      show();
    }

    async function fields() {
      const place = about.querySelector(".fields");
      const { row } = now();
      const stop = watchModel((said) => place.replaceChildren(h("p", { class: "hint" }, said)));
      try {
        const drawn = await get(`/api/fields/${row}`);
        stop();
        if (now()?.row !== row) return;
        place.replaceChildren(
          h("p", { class: "hint" }, drawn.says),
          h("div", { class: "overlays" }, drawn.titles.map((title, number) =>
            h("figure", {}, h("img", { src: `/field/${row}/${number}.png`, alt: title }), h("figcaption", {}, title)))),
          h("div", { class: "key" }, drawn.key.map((primitive) =>
            h("span", {}, h("i", { class: "swatch", style: { background: primitive.colour } }), `${primitive.index} · ${percent(primitive.won)}`))),
        );
      } catch (error) {
        stop();
        place.replaceChildren(h("p", { class: "hint" }, error.message));
      }
    }

    const keys = {
      ArrowLeft: () => step(-1),
      ArrowRight: () => step(1),
      m: () => change(askMove([now().row])),
      a: () => now().of >= 0 && change(edit({ edit: "accept", rows: [now().row] })),
      b: () => now().second !== undefined && change(edit({ edit: "move", rows: [now().row], to: now().second })),
      x: () => now().of !== JUNK && change(edit({ edit: "junk", rows: [now().row] })),
      l: () => { const { row } = now(); close(); location.hash = `#/like/${row}`; },
      f: () => store.state.fields ? fields() : toast("This run's model has no primitive fields."),
    };
    keys.Delete = keys.x;
    box.addEventListener("keydown", (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input")) return;
      event.preventDefault();
      keys[event.key]();
    });
    let x = null;
    stage.addEventListener("touchstart", (event) => { x = event.touches[0].clientX; }, { passive: true });
    stage.addEventListener("touchend", (event) => {
      const far = event.changedTouches[0].clientX - (x ?? 0);
      if (x !== null && Math.abs(far) > 50) step(far > 0 ? -1 : 1);
      x = null;
    });
    show();
    return [stage, about, h("button", { class: "quiet shut", "aria-label": "Close", autofocus: true, onclick: () => close() }, icon("close"))];
  }, "viewer").then(() => { if (grid.images.length) grid.focus(Math.min(index, grid.images.length - 1)); });
}
