// What is asked before something happens: where to, which of two, into how many.

import { h, hue, many, name, percent, picture, plain } from "./dom.js";
import { strip } from "./grid.js";
import { edit, get, store, toast } from "./store.js";

/** A dialog that closes by Escape, by a click beside it, and by `close(answer)`; resolves to the answer or null. */
export function dialog(label, fill, kind = "") {
  return new Promise((resolve) => {
    const back = document.activeElement;
    const box = h("dialog", { class: kind, "aria-label": label });
    let isOpen = true;
    const close = (answer = null) => {
      if (!isOpen) return;
      isOpen = false;
      box.close();
      box.remove(); // at once, as the focus goes back: the next key is for the page
      if (back?.isConnected) back.focus({ preventScroll: true });
      resolve(answer);
    };
    box.addEventListener("click", (event) => event.target === box && close());
    box.addEventListener("cancel", (event) => { event.preventDefault(); close(); });
    box.addEventListener("close", () => close()); // by the browser itself
    document.body.append(box);
    box.append(...[fill(close, box)].flat());
    box.showModal();
    box.querySelector("[autofocus]")?.focus();
  });
}

/** Choose a category by typing a part of its name: resolves to { id } or { name } of one to make, or null. */
export function choose(title, { without = [], fresh = false, first = [] } = {}) {
  return dialog(title, (close) => {
    const list = h("ul", { role: "listbox", id: "choices", "aria-label": "Categories" });
    const input = h("input", {
      type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "choices", autocomplete: "off", spellcheck: "false",
      "aria-label": title, placeholder: fresh ? "Name of a category, or of a new one" : "Name of a category", autofocus: true,
      oninput: () => { place = 0; fill(); }, onkeydown: keys, maxlength: 255,
    });
    const rank = new Map(first.map((id, index) => [id, index]));
    let place = 0;
    let options = [];

    function fill() {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const typed = input.value.trim();
      const fits = store.state.categories
        .filter((c) => !without.includes(c.id) && words.every((word) => c.name.toLowerCase().includes(word)))
        .sort((a, b) => (rank.get(a.id) ?? 1e9) - (rank.get(b.id) ?? 1e9)
          || b.name.toLowerCase().startsWith(words[0] ?? "") - a.name.toLowerCase().startsWith(words[0] ?? "") || b.size - a.size);
      options = fits.slice(0, 60).map((c) => ({ id: c.id, category: c }));
      if (fresh && typed && !store.state.categories.some((c) => c.name === typed)) options.push({ name: typed });
      place = Math.max(0, Math.min(place, options.length - 1));
      const rows = options.map((option, index) => {
        const c = option.category;
        const inside = c
          ? [...c.faces.slice(0, 3).map(([row, v]) => picture(row, v, null)), h("i", { class: c.new ? "dot new" : "dot", style: { "--hue": hue(c.id) } }), name(c.name), h("small", {}, many(c.size, "image"))]
          : [h("span", { class: "plus" }, "+"), h("span", {}, "new category ", name(option.name))];
        return h("li", { role: "option", id: `choice-${index}`, "aria-selected": index === place, onclick: () => pick(index) }, inside);
      });
      list.replaceChildren(...(rows.length ? rows : [h("li", { class: "hint" }, "No category is called so.")]));
      input.setAttribute("aria-activedescendant", `choice-${place}`);
    }

    function pick(index) {
      const option = options[index];
      if (option) close(option.category ? { id: option.id } : { name: option.name });
    }

    function keys(event) {
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
      if (step) {
        place += step;
        fill();
        list.children[place]?.scrollIntoView({ block: "nearest" });
      } else if (event.key === "Enter") pick(place);
      else return;
      event.preventDefault();
    }

    fill();
    return [h("h2", {}, title), input, list];
  }, "palette");
}

/** Ask where images belong, and put them there; the number of the edit, or false. `near`: the category that they are like;
 * `say`: how it is told what was done. */
export async function askMove(rows, { fresh = false, near = null, say = undefined, leave = () => {} } = {}) {
  const here = Number(location.hash.match(/^#\/c\/(\d+)/)?.[1] ?? NaN);
  const like = near ?? here;
  let first = [];
  if (like >= 0) first = await get(`/api/nearest/${like}`).then((a) => [like, ...a.nearest.map((one) => one.id)], () => []);
  const title = fresh ? `New category for ${many(rows.length, "image")}` : `Move ${many(rows.length, "image")} to`;
  const to = await choose(title, { without: [here], fresh: true, first });
  if (!to) return false;
  leave(rows);
  return edit(to.name === undefined ? { edit: "move", rows, to: to.id } : { edit: "move", rows, name: to.name }, { say });
}

/** Rename a category where its name stands; `ended` is called when that is over, saved or not. */
export function rename(id, title, ended) {
  const it = store.byId.get(id);
  const input = h("input", { type: "text", class: "renaming", value: it.name, "aria-label": "Name of the category", maxlength: 255, spellcheck: "false" });
  let done = false;
  const end = async (save) => {
    if (done) return;
    done = true;
    const said = input.value.trim();
    input.replaceWith(title);
    title.focus({ preventScroll: true });
    if (save && said && said !== it.name) await edit({ edit: "rename", category: id, name: said });
    ended();
  };
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Enter") end(true);
    else if (event.key === "Escape") end(false);
  });
  input.addEventListener("blur", () => end(true));
  title.replaceWith(input);
  input.focus();
  input.select();
}

/** Rename a category in a dialog; the number of the edit, or false. */
export async function askRename(id, say = undefined) {
  const it = store.byId.get(id);
  const said = await dialog("Rename", (close) => {
    const input = h("input", { type: "text", value: it.name, "aria-label": "Name of the category", maxlength: 255, autofocus: true, spellcheck: "false",
      onkeydown: (event) => event.key === "Enter" && close(input.value.trim()) });
    queueMicrotask(() => input.select());
    return [h("h2", {}, "Rename ", name(it.name)), input, buttons(close, "Rename", () => close(input.value.trim()))];
  }, "narrow");
  return Boolean(said) && said !== it.name && edit({ edit: "rename", category: id, name: said }, { say });
}

const buttons = (close, label, act, more = {}) => h("div", { class: "buttons" },
  h("button", { onclick: () => close() }, "Cancel"), h("button", { class: "main", onclick: act, ...more }, label));

/** Show two categories side by side, and merge them if that is wanted. */
export async function askMerge(first, second = null) {
  let other = second;
  if (other === null) {
    const near = await get(`/api/nearest/${first}`).then((a) => a.nearest.map((one) => one.id), () => []);
    const to = await choose(`Merge ${plain(store.byId.get(first).name)} with`, { without: [first], first: near });
    if (!to) return;
    other = to.id;
  }
  let members;
  try {
    members = await Promise.all([first, other].map((id) => get(`/api/members/${id}`)));
  } catch (error) {
    toast(error.message, { wrong: true });
    return;
  }
  const pair = [first, other].map((id) => store.byId.get(id));
  if (pair.includes(undefined)) return;
  const [a, b] = pair;
  const keeps = a.new !== b.new ? (a.new ? b : a) : b.size > a.size ? b : a;
  const into = await dialog("Are these one?", (close) => {
    const sides = pair.map((it, index) => {
      const { images } = members[index];
      const input = h("input", { type: "radio", name: "keep", value: it.id, checked: it === keeps, autofocus: it === keeps });
      return h("div", { class: "side" },
        h("h3", {}, h("i", { class: it.new ? "dot new" : "dot", style: { "--hue": hue(it.id) } }), name(it.name)),
        h("p", { class: "facts" }, h("span", {}, many(it.size, "image")), h("span", {}, `${percent(it.confidence)} sure`), h("span", {}, it.new ? "new" : "known")),
        h("h4", {}, "Most certain"), strip([...images].reverse(), 12),
        h("h4", {}, "Least certain"), strip(images, 6, { count: false }),
        h("label", { class: "keep" }, input, "keep this name"));
    });
    const pick = () => close(Number(sides.flatMap((side) => [...side.querySelectorAll("input:checked")])[0].value));
    return [h("h2", {}, "Are these one?"), h("div", { class: "pair" }, sides), buttons(close, `Merge ${many(a.size + b.size, "image")}`, pick)];
  }, "wide");
  if (into === null) return;
  const gone = into === first ? other : first;
  const here = location.hash;
  if (await edit({ edit: "merge", categories: [gone], into }) && here === `#/c/${gone}`) location.hash = `#/c/${into}`;
}

/** Show how a category would be split, and split it exactly so if that is wanted. */
export async function askSplit(id) {
  const it = store.byId.get(id);
  let parts = null;
  const accepted = await dialog("Split", (close) => {
    const shown = h("div", { class: "parts", "aria-live": "polite" });
    const apply = h("button", { class: "main", disabled: true, onclick: () => close(true) }, "Split");
    const number = h("select", { "aria-label": "Into how many", autofocus: true, onchange: () => fill() },
      h("option", { value: "" }, "as many as it seems to be"), Array.from({ length: Math.min(19, Math.max(0, it.size - 1)) }, (_, i) => h("option", { value: i + 2 }, `${i + 2} parts`)));
    let asked = 0;

    async function fill() {
      const turn = (asked += 1);
      parts = null;
      apply.disabled = true;
      apply.textContent = "Split";
      shown.replaceChildren(h("p", { class: "hint" }, "Comparing the images…"));
      try {
        const answer = await get(`/api/parts/${id}?into=${number.value}`);
        if (turn !== asked) return;
        parts = answer.parts;
        shown.replaceChildren(...parts.map((part, index) => h("div", { class: "part" },
          h("h3", {}, index === 0 ? [name(it.name), " (keeps its name)"] : `Part ${index + 1}`, h("small", {}, many(part.length, "image"))),
          strip(part, 16))));
        apply.disabled = false;
        apply.textContent = `Split into ${parts.length}`;
      } catch (error) {
        if (turn === asked) shown.replaceChildren(h("p", { class: "hint" }, error.message));
      }
    }

    fill();
    return [h("h2", {}, "Split ", name(it.name)), h("p", { class: "tools" }, number), shown,
      h("div", { class: "buttons" }, h("button", { onclick: () => close() }, "Cancel"), apply)];
  }, "wide");
  if (accepted && parts) await edit({ edit: "split", category: id, parts: parts.map((part) => part.map((image) => image.row)) });
}
