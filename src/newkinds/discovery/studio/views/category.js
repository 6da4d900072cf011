// One category: all its images, least certain first, and beside them the categories that are most like it.

import { askMerge, askMove, askSplit, rename } from "./dialogs.js";
import { h, icon, many, name, percent, plain } from "./dom.js";
import { Grid, dropTarget } from "./grid.js";
import { JUNK, POOL, edit, get, placeName, store, toast } from "./store.js";
import { openViewer } from "./viewer.js";
import { actOn, badges, card, dot, inOrder } from "./wall.js";

// the places that are no categories: how they are called, what can be done there, and what is said if nothing is there
const PLACES = {
  [JUNK]: { title: "Junk", label: "Images that are junk", without: ["a", "x"],
    full: "These images belong to no category. Their files are untouched. Move one to take it back.",
    empty: "Nothing is junk. Press X on an image, and it comes here; its file stays." },
  [POOL]: { title: "Not placed yet", label: "Images that are not placed yet", without: ["a"],
    full: "These images are unlike every category, and too few are alike to be one of their own. Move some to a category, or make a new one of them (M, and a name that no category has).",
    empty: "Every image has a place. After an update, images that are unlike every category wait here." },
};
const ORDERS = {
  // what a person has decided about is certain
  unsure: ["Least certain first", (a, b) => Boolean(a.status) - Boolean(b.status) || a.sure - b.sure],
  sure: ["Most certain first", (a, b) => b.sure - a.sure],
  name: ["By name", (a, b) => a.path.localeCompare(b.path, undefined, { numeric: true })],
};
const ALIKE = ["Similar together", (a, b) => a.at - b.at]; // as the server has them
const chosen = { order: "unsure" };

/** Where a doubtful image may belong as well: pressed, it goes there. */
export const secondButton = (image) => h("button", { class: "second", tabindex: -1, title: `Move it to ${plain(placeName(image.second))} (B)`,
  onclick: () => edit({ edit: "move", rows: [image.row], to: image.second }) }, "→ ", name(placeName(image.second)));

/** Move images to where they may belong as well; whether all that was done. */
async function moveToSecond(images) {
  const groups = new Map();
  for (const image of images) if (image.second !== undefined) groups.set(image.second, [...(groups.get(image.second) ?? []), image.row]);
  if (!groups.size) toast("No other category is near.");
  let made = groups.size > 0;
  for (const [to, rows] of groups) made = (await edit({ edit: "move", rows, to })) && made;
  return made;
}

/** The bar that says how many images are selected, and what can be done with them.
 *
 * `without`: keys of what cannot be done here; `more`: another button.
 * `leave(rows)`: these are no longer here, before the server has said so: the next key is about the next image;
 * `accept(rows)`: these go to the end, if the least certain come first; `back()`: they are as before, for it has refused. */
export function selectionBar(grid, { without = [], more = null, leave = () => {}, accept = () => {}, back = () => {} } = {}) {
  const count = h("b");
  const act = (make) => async () => {
    const rows = grid.targets();
    if (rows.length && !(await make(rows))) back();
  };
  const gone = (rows) => { grid.select([]); leave(rows); };
  const actions = {
    m: act((rows) => askMove(rows, { leave: gone })),
    a: act((rows) => { grid.select([]); accept(rows); return edit({ edit: "accept", rows }); }),
    x: act((rows) => { gone(rows); return edit({ edit: "junk", rows }); }),
    b: act((rows) => moveToSecond((grid.images ?? []).filter((image) => rows.includes(image.row)))),
    l: () => { const [row] = grid.targets(); if (row !== undefined) location.hash = `#/like/${row}`; },
  };
  const button = (key, label, sign, more = {}) =>
    h("button", { onclick: actions[key], ...more }, sign && icon(sign), label, h("kbd", {}, key.toUpperCase()));
  const node = h("div", { class: "selection", role: "toolbar", "aria-label": "Selected images", hidden: true },
    count, button("m", "Move…", "move"), !without.includes("a") && button("a", "Accept", "check"),
    !without.includes("x") && button("x", "Junk", "bin"), button("l", "More like it", "image"), more,
    h("button", { class: "quiet", "aria-label": "Select nothing", onclick: () => grid.select([]) }, icon("close")));
  return {
    node,
    update: () => {
      node.hidden = !grid.selected.size;
      count.textContent = `${grid.selected.size.toLocaleString("en")} selected`;
    },
    key: (event) => {
      const key = event.key === "Delete" ? "x" : event.key;
      if (!(key in actions) || event.ctrlKey || event.metaKey || event.altKey || without.includes(key)) return false;
      actions[key]();
      return true;
    },
  };
}

export function category(id) {
  const place = PLACES[id]; // undefined: a category
  const head = h("div", { class: "head" });
  const beside = h("aside", { class: "beside", "aria-label": "Most like it" });
  const orders = id === POOL ? { alike: ALIKE, ...ORDERS } : ORDERS;
  const byOrder = () => orders[order.value][1];
  const order = h("select", { "aria-label": "Order of the images", onchange: () => { if (id !== POOL) chosen.order = order.value; sort(); } },
    Object.entries(orders).map(([key, [label]]) => h("option", { value: key, selected: key === (id === POOL ? "alike" : chosen.order) }, label)));
  let images = [];
  let besideSays = null; // what stands beside, as text
  let shownAt = null; // the revision that the images are of
  const grid = new Grid({
    label: place?.label ?? "Images of this category",
    open: (index) => openViewer(grid, index),
    changed: () => bar.update(),
    second: secondButton,
  });
  const bar = selectionBar(grid, {
    without: place?.without,
    leave,
    accept: (rows) => { if (order.value === "unsure") leave(rows); }, // and come back, at the end, with the answer
    back: () => { shownAt = null; refresh(); },
  });
  const tools = h("div", { class: "tools", hidden: true }, order, h("button", { class: "quiet", onclick: selectAll }, icon("select"), "Select all"));
  const node = h("section", { class: "category" }, head, h("div", { class: "columns" }, h("div", { class: "members" }, tools, grid.node), !place && beside), bar.node);

  function leave(rows) {
    images = images.filter((image) => !rows.includes(image.row));
    sort();
  }

  function selectAll() {
    grid.touchSelects = true;
    grid.select(grid.selected.size === grid.images.length ? [] : grid.images.map((image) => image.row));
  }

  function sort() {
    tools.hidden = !images.length;
    grid.show([...images].sort(byOrder()));
  }

  function renameHere() {
    const title = head.querySelector("h1");
    rename(id, title, () => {
      // the title may be a new one by now, and keys are meant for images: but not if the user has gone elsewhere
      if ([title, document.body].includes(document.activeElement) && grid.images.length) grid.focus(grid.focused, { scroll: false });
    });
  }

  function fillHead() {
    const it = store.byId.get(id);
    if (place) {
      const count = id === JUNK ? store.state.junk : store.state.pool;
      head.replaceChildren(h("h1", {}, place.title), h("p", { class: "hint" }, count ? place.full : place.empty));
      return;
    }
    if (!it) return;
    const title = h("h1", { tabindex: -1 }, dot(it), name(it.name));
    const button = (label, key, act, more = {}) => h("button", { onclick: act, ...more }, label, h("kbd", {}, key));
    head.replaceChildren(
      h("div", { class: "named" }, title, ...badges(it)),
      h("p", { class: "facts" }, h("span", {}, many(it.size, "image")), h("span", {}, `${percent(it.confidence)} sure on average`),
        h("span", {}, `${it.decided.toLocaleString("en")} accepted`),
        it.unlike > 0 && h("a", { href: `#/find/${encodeURIComponent(`#${id} unlike`)}` }, `${it.unlike} unlike every category`), h("span", {}, `#${id}`)),
      h("div", { class: "actions" },
        button("Rename", "R", renameHere),
        it.size > 0 && button("Accept all", "⇧A", () => edit({ edit: "accept", category: id })),
        it.size > 1 && button("Split…", "S", () => askSplit(id)),
        store.state.categories.length > 1 && button("Merge…", "⇧M", () => askMerge(id)),
        button("Junk", "⇧X", () => edit({ edit: "junk", category: id }))),
    );
  }

  async function fillBeside() {
    if (place) return;
    const heading = h("h2", {}, "Most like it");
    try {
      const { nearest } = await get(`/api/nearest/${id}`);
      const said = JSON.stringify(nearest.map((near) => [near, store.byId.get(near.id)]));
      if (said === besideSays) return; // what has not changed is not made again: something may be dragged over it
      besideSays = said;
      const cards = nearest.filter((near) => store.byId.has(near.id)).map((near) => {
        const merge = h("button", { class: "small", onclick: (event) => { event.preventDefault(); askMerge(id, near.id); } }, "Side by side");
        const likeness = h("span", { class: "likeness", title: "cosine of the two centres" }, near.cosine.toFixed(2));
        return h("div", { class: "near" }, card(store.byId.get(near.id), { draggable: false }), h("div", { class: "below" }, likeness, merge));
      });
      const fresh = dropTarget(h("div", { class: "drop" }, "Drop here for a new category"), (rows) => askMove(rows, { fresh: true }));
      const bin = dropTarget(h("div", { class: "drop" }, "Drop here for junk"), (rows) => edit({ edit: "junk", rows }));
      beside.replaceChildren(heading, h("div", { class: "drops" }, fresh, bin), h("div", { class: "nears" }, cards));
    } catch (error) {
      besideSays = null;
      beside.replaceChildren(heading, h("p", { class: "hint" }, error.message));
    }
  }

  function refresh() {
    grid.busy = ask();
    return grid.busy;
  }

  async function ask() {
    if (!place && !store.byId.has(id)) {
      if (!store.editing) toast("This category is no longer there: it was merged, junked or undone.");
      location.hash = "#/";
      return;
    }
    fillHead();
    try {
      const answer = await get(`/api/members/${id}`);
      if (store.pending) return; // it was asked before an edit of which the page shows more already: it is asked again after that
      const at = `${answer.revision} ${answer.prepared}`;
      if (shownAt !== at) {
        images = answer.images.map((image, place) => ({ ...image, at: place }));
        shownAt = at;
        sort();
      }
    } catch (error) {
      toast(error.message, { wrong: true });
    }
    await fillBeside();
  }

  function step(by) {
    const all = inOrder();
    const next = all[all.findIndex((other) => other.id === id) + by];
    if (next) location.hash = `#/c/${next.id}`;
  }

  function key(event) {
    if (bar.key(event)) return true;
    if (place) return false;
    if (event.key === "r") renameHere();
    else if (event.key === "n" || event.key === "p") step(event.key === "n" ? 1 : -1);
    else return actOn(id, event);
    return true;
  }

  const ready = refresh();
  return {
    title: place?.title ?? plain(store.byId.get(id)?.name ?? ""), node, refresh, key,
    destroy: () => grid.destroy(),
    focus: () => ready.then(() => grid.images.length && document.activeElement === document.getElementById("main") && grid.focus(0, { scroll: false })),
  };
}
