// The wall: all categories as cards.

import { h, hue, many, name, percent, picture, plain } from "./dom.js";
import { askMerge, askRename, askSplit } from "./dialogs.js";
import { DRAGGED, dropTarget } from "./grid.js";
import { edit, store } from "./store.js";

export const CARD = "application/x-newkinds-category";
const MEANINGS = {
  mixed: "its images differ much more from each other than in other categories, or labelled ones disagree",
  small: "it has few images",
  unsure: "its mean confidence is far below that of the others",
};
const isAccepted = (category) => category.size > 0 && category.decided === category.size;
const ORDERS = {
  new: ["New ones first", (a, b) => b.new - a.new || b.size - a.size],
  look: ["What needs a look first", (a, b) => b.marks.length - a.marks.length || a.confidence - b.confidence],
  size: ["Largest first", (a, b) => b.size - a.size],
  small: ["Smallest first", (a, b) => a.size - b.size],
  unsure: ["Least certain first", (a, b) => isAccepted(a) - isAccepted(b) || a.confidence - b.confidence],
  name: ["By name", (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true })],
  similar: ["Similar together", null], // by the tree, in groups
};
const FILTERS = {
  all: ["All", (c) => c.size > 0],
  new: ["New", (c) => c.new && c.size > 0],
  known: ["Known", (c) => !c.new && c.size > 0],
  mixed: ["Mixed", (c) => c.marks.includes("mixed")],
  small: ["Small", (c) => c.marks.includes("small")],
  unsure: ["Unsure", (c) => c.marks.includes("unsure")],
  unlike: ["With unlike", (c) => c.unlike > 0],
  open: ["Not accepted", (c) => c.decided < c.size],
  empty: ["Empty", (c) => c.size === 0],
};
const chosen = { order: "new", filter: "all", focused: null };

/** The categories in the order and filter that the wall has. */
export function inOrder() {
  return inGroups().flatMap(([, categories]) => categories);
}

/** The same as [heading, categories]; a heading is there only if similar ones stand together. */
function inGroups() {
  const shown = store.state.categories.filter(FILTERS[chosen.filter][1]);
  if (chosen.order !== "similar") return [["", shown.sort(ORDERS[chosen.order][1])]];
  const left = new Map(shown.map((category) => [category.id, category]));
  const groups = store.state.groups.map((ids) => ids.filter((id) => left.has(id)).map((id) => {
    const category = left.get(id);
    left.delete(id);
    return category;
  }));
  const made = groups.filter((group) => group.length).map((group) => [many(group.length, "category", "similar categories"), group]);
  return left.size ? [...made, ["not compared yet", [...left.values()]]] : made;
}

export const dot = (category) =>
  h("i", { class: category.new ? "dot new" : "dot", style: { "--hue": hue(category.id) } });

export function badges(category) {
  return [
    h("span", { class: category.new ? "badge new" : "badge" }, category.new ? "new" : "known"),
    ...category.marks.map((mark) => h("span", { class: "badge mark", title: MEANINGS[mark] }, mark)),
    isAccepted(category) && h("span", { class: "badge done", title: "all images accepted" }, "✓"),
  ];
}

/** A card that links to its category; images and other cards may be dropped on it. */
export function card(category, { tab = 0, extra = null, draggable = true } = {}) {
  const faces = category.faces.map(([row, stamp]) => picture(row, stamp, null, { loading: "lazy" }));
  while (faces.length < 6) faces.push(h("span", { class: "none" }));
  const accepted = category.size ? category.decided / category.size : 0;
  const words = [
    category.name, many(category.size, "image"), `${percent(category.confidence)} sure`, category.new ? "new" : "known",
    ...category.marks,
  ].map(plain).join(", ");
  const made = h(
    "a",
    { class: "card", href: `#/c/${category.id}`, tabindex: tab, draggable: draggable ? "true" : "false", "aria-label": words,
      dataset: { id: category.id },
      ondragstart: (event) => {
        event.dataTransfer.setData(CARD, String(category.id));
        event.dataTransfer.effectAllowed = "move";
        document.body.classList.add("dragging");
      },
      ondragend: () => document.body.classList.remove("dragging") },
    h("span", { class: "faces" }, faces),
    h("span", { class: "title" }, dot(category), name(category.name)),
    h("span", { class: "facts" }, h("span", {}, h("b", {}, category.size.toLocaleString("en")), category.size === 1 ? " image" : " images"),
      h("span", { title: "mean confidence" }, percent(category.confidence)), ...badges(category)),
    h("span", { class: "meter", title: `${category.decided} of ${category.size} accepted` },
      h("span", { style: { width: `${100 * accepted}%` } })),
    extra,
  );
  return dropTarget(made, (dropped, kind) => {
    if (kind === DRAGGED) edit({ edit: "move", rows: dropped, to: category.id });
    else if (dropped !== category.id) askMerge(dropped, category.id);
  }, [DRAGGED, CARD]);
}

export function wall() {
  const list = h("div", { class: "wall", role: "list", "aria-label": "Categories", onkeydown: keys, onfocusin: focused });
  const chips = h("fieldset", { class: "chips" }, h("legend", { class: "sr" }, "Show"));
  const order = h("select", { "aria-label": "Order", onchange: () => { chosen.order = order.value; fill(); } },
    Object.entries(ORDERS).map(([key, [label]]) => h("option", { value: key, selected: key === chosen.order }, label)));
  const hint = h("p", { class: "hint" });
  const cards = new Map(); // of each category: what it shows, as text and as an element
  const tools = h("div", { class: "tools" }, chips, order);
  const node = h("section", { "aria-label": "Wall" }, tools, list, hint);

  function fill() {
    const { categories } = store.state;
    tools.hidden = !categories.length;
    chips.replaceChildren(chips.firstChild, ...Object.entries(FILTERS).map(([key, [label, keeps]]) => {
      const count = categories.filter(keeps).length;
      const input = h("input", { type: "radio", name: "show", value: key, checked: key === chosen.filter,
        disabled: !count && key !== chosen.filter, onchange: () => { chosen.filter = key; fill(); chips.querySelector(":checked").focus(); } });
      return (count || key === chosen.filter || key === "all") && h("label", { class: "chip" }, input, h("span", {}, `${label} `, h("b", {}, count.toLocaleString("en"))));
    }).filter(Boolean));
    const groups = inGroups();
    const shown = groups.flatMap(([, some]) => some);
    const held = list.contains(document.activeElement);
    if (!shown.some((category) => category.id === chosen.focused)) chosen.focused = shown[0]?.id ?? null;
    const item = (category) => {
      const said = JSON.stringify(category);
      if (cards.get(category.id)?.said !== said) cards.set(category.id, { said, node: h("div", { role: "listitem" }, card(category, { tab: -1 })) });
      const { node: made } = cards.get(category.id); // what has not changed is not made again
      made.firstChild.tabIndex = category.id === chosen.focused ? 0 : -1;
      return made;
    };
    list.replaceChildren(...groups.flatMap(([heading, some]) =>
      [...(heading ? [h("p", { role: "listitem", class: "group" }, heading)] : []), ...some.map(item)]));
    hint.replaceChildren(...(shown.length ? [] : nothing()));
    if (held) at(chosen.focused)?.focus();
  }

  /** What is said instead of cards, and how to go on. */
  function nothing() {
    const { images, junk, pool, categories } = store.state;
    if (!images) return ["This run has no images."];
    if (categories.some((c) => c.size)) return ["There is no such category. ", h("button", { class: "small", onclick: () => { chosen.filter = "all"; fill(); } }, "Show all")];
    return ["No category has images: ", ...[
      junk > 0 && h("a", { href: "#/junk" }, `${many(junk, "image is", "images are")} junk`),
      junk > 0 && pool > 0 && ", ",
      pool > 0 && h("a", { href: "#/pool" }, `${many(pool, "image is", "images are")} not placed yet`),
    ].filter(Boolean), ". Move some to a category, or undo what was done last."];
  }

  const at = (id) => list.querySelector(`.card[data-id="${id}"]`);

  function focused(event) {
    const id = Number(event.target.closest(".card")?.dataset.id);
    if (Number.isNaN(id) || id === chosen.focused) return;
    const before = at(chosen.focused);
    if (before) before.tabIndex = -1;
    chosen.focused = id;
    at(id).tabIndex = 0;
  }

  function keys(event) {
    const all = [...list.querySelectorAll(".card")];
    const place = all.indexOf(event.target.closest(".card"));
    if (place < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = { ArrowUp: -1, ArrowDown: 1 };
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    const id = Number(all[place].dataset.id);
    if (event.key in rows || event.key in steps) {
      const to = event.key in rows
        ? nextRow(all, all[place], rows[event.key])
        : all[Math.max(0, Math.min(all.length - 1, place + steps[event.key]))];
      to.focus({ preventScroll: true });
      to.scrollIntoView({ block: "nearest" });
    } else if (!actOn(id, event)) {
      return;
    }
    event.preventDefault();
  }

  /** The card above (-1) or below (1) one, by where they are: a group begins a row of its own. */
  function nextRow(all, from, way) {
    const here = from.getBoundingClientRect();
    let best = all.at(way > 0 ? -1 : 0);
    let least = [Infinity, Infinity];
    for (const other of all) {
      const box = other.getBoundingClientRect();
      const apart = [way * (box.top - here.top), Math.abs(box.left - here.left)];
      if (apart[0] > 1 && (apart[0] < least[0] - 1 || (apart[0] < least[0] + 1 && apart[1] < least[1]))) [best, least] = [other, apart];
    }
    return best;
  }

  fill();
  return { title: store.state.run, node, refresh: fill, focus: () => at(chosen.focused)?.focus({ preventScroll: true }) };
}

/** The keys that are about a whole category; whether this was one. */
export function actOn(id, event) {
  const actions = {
    r: () => askRename(id), s: () => askSplit(id), M: () => askMerge(id), A: () => edit({ edit: "accept", category: id }),
    X: () => edit({ edit: "junk", category: id }),
  };
  if (!(event.key in actions) || event.ctrlKey || event.metaKey || event.altKey) return false;
  actions[event.key]();
  return true;
}
