// What was searched: by name, by likeness to an image of the run, by likeness to a dropped one.

import { secondButton, selectionBar } from "./category.js";
import { h, many, name, percent } from "./dom.js";
import { Grid } from "./grid.js";
import { get, placeName, send, store, toast } from "./store.js";
import { openViewer, watchModel } from "./viewer.js";
import { card } from "./wall.js";

const MOST_CARDS = 60;

/** A view with a heading, cards and a grid of images, which `ask()` fills: { says, images, categories }. */
function results(title, ask, { before = null, caption = (image) => placeName(image.of) } = {}) {
  const says = h("p", { class: "hint", role: "status" });
  const some = h("div", { class: "wall", role: "list" });
  const grid = new Grid({ label: "Images found", open: (index) => openViewer(grid, index), changed: () => bar.update(), caption, second: secondButton });
  const bar = selectionBar(grid);
  const node = h("section", {}, h("h1", {}, title), before, says, some, grid.node, bar.node);

  function refresh() {
    grid.busy = fill();
    return grid.busy;
  }

  async function fill() {
    try {
      const answer = await ask((said) => { says.textContent = said; });
      says.textContent = answer.says;
      const cards = (answer.categories ?? []).map((id) => store.byId.get(id)).filter(Boolean).slice(0, MOST_CARDS);
      some.replaceChildren(...cards.map((it) => h("div", { role: "listitem" }, card(it))));
      grid.show(answer.images);
    } catch (error) {
      says.textContent = error.message;
    }
  }

  const ready = refresh();
  return { title: typeof title === "string" ? title : "newkinds studio", node, refresh, key: bar.key, destroy: () => grid.destroy(), grid, ready };
}

const shown = (answer) => (answer.images.length < answer.total ? `, the first ${answer.images.length} are shown` : "");

export function find(text) {
  const view = results(`“${text}”`, async () => {
    const answer = await get(`/api/search?q=${encodeURIComponent(text)}`);
    const nothing = !answer.total && !answer.categories.length;
    const counts = `${many(answer.categories.length, "category", "categories")}, ${many(answer.total, "image")}${shown(answer)}`;
    return { ...answer, says: nothing ? "Nothing is called so. Type a part of a file's or a category's name, #31 for the category with that id, unlike for images that are like no category." : counts };
  });
  return { ...view, title: `“${text}”`, focus: null };
}

let rows = []; // what was selected on the map

/** Show some images as a grid. */
export function showPicked(some) {
  rows = some;
  location.hash = "#/picked";
}

export function picked() {
  return results("Selected images", async () => {
    const answer = await send("/api/images", JSON.stringify({ rows }), "application/json");
    return { ...answer, says: answer.total ? `${many(answer.total, "image")}${shown(answer)}` : "Nothing is selected: draw around images on the map." };
  });
}

const cosine = (image) => `${image.score.toFixed(2)} · ${placeName(image.of)}`;

export function like(row) {
  return results("More like it", async () => {
    const answer = await get(`/api/similar/${row}`);
    return { ...answer, says: "The images of this run that are nearest to the first one, with their cosine." };
  }, { caption: cosine });
}

let dropped = null; // { file, answer }: what was looked at last

/** Look at a file of the user's. */
export function lookAt(file) {
  dropped = { file, answer: null };
  if (location.hash === "#/look") dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = "#/look";
}

export function look() {
  const canvas = h("canvas", { class: "dropped", role: "img", "aria-label": "The image that is looked for" });
  const told = h("p", { class: "told" });
  const add = h("button", { hidden: true, onclick: () => addToRun(file, add) }, "Add to the run");
  if (!dropped) return { title: "Find by image", node: h("section", {}, h("h1", {}, "Find by image"), h("p", { class: "hint" }, "Drop an image onto this page, paste one, or choose a file.")), refresh() {} };
  const { file } = dropped;
  createImageBitmap(file).then((bitmap) => {
    const scale = Math.min(1, 320 / Math.max(bitmap.width, bitmap.height));
    canvas.width = Math.max(1, bitmap.width * scale);
    canvas.height = Math.max(1, bitmap.height * scale);
    canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  }).catch(() => canvas.remove());
  return results(h("span", {}, "Like ", name(file.name)), async (say) => {
    if (!dropped.answer || dropped.answer.revision !== store.state.revision) {
      const stop = watchModel(say);
      try {
        dropped.answer = await send("/api/look", file, file.type || "application/octet-stream");
      } finally {
        stop();
      }
    }
    const { answer } = dropped;
    const it = store.byId.get(answer.category);
    told.replaceChildren("The model says: ", it ? h("a", { href: `#/c/${it.id}` }, name(it.name)) : name(answer.name), `, ${percent(answer.sure)} sure`,
      answer.unlike ? `, but it is unlike every category (${answer.unlike.toFixed(2)}).` : ".");
    add.hidden = !store.state.growable;
    return { ...answer, says: "The images of this run that are nearest to it, with their cosine." };
  }, { before: h("div", { class: "asked" }, canvas, told, add), caption: cosine });
}

/** Keep a copy of the file with the run's images, and let an update put it where it belongs. */
async function addToRun(file, button) {
  button.disabled = true;
  try {
    const { file: kept } = await send(`/api/add?name=${encodeURIComponent(file.name)}`, file, file.type || "application/octet-stream");
    toast(`A copy is kept: ${kept}`);
    location.hash = "#/jobs";
  } catch (error) {
    button.disabled = false;
    toast(error.message, { wrong: true });
  }
}
