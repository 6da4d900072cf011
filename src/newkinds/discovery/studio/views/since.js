// New since last time: the images that came with the last update, by category.

import { secondButton, selectionBar } from "./category.js";
import { h, many, name } from "./dom.js";
import { Grid } from "./grid.js";
import { edit, get, placeAddress, placeName, store } from "./store.js";
import { openViewer } from "./viewer.js";

export function since() {
  const says = h("p", { class: "hint", role: "status" });
  const grid = new Grid({ label: "New images", open: (index) => openViewer(grid, index), changed: () => bar.update(), second: secondButton });
  const bar = selectionBar(grid);
  const node = h("section", {}, h("h1", {}, "New since last time"), says, grid.node, bar.node);

  /** What the last update did, in a sentence or two. */
  function told(total) {
    const { update } = store.state;
    if (!update) return "Nothing came since the run was made. When there are new photos in its folder, update it (Jobs): they are shown here.";
    const others = [
      update.opened.length && `${many(update.opened.length, "category", "categories")} opened`, update.copies && `${many(update.copies, "copy", "copies")} left out`,
      update.gone && `${many(update.gone, "image")} gone`, update.changed && `${update.changed} changed`, update.skipped && `${update.skipped} that cannot be read`,
    ].filter(Boolean).join(", ");
    const here = total === update.came ? "" : ` ${many(total, "image")} of them are still there.`;
    return `Update ${update.number}, ${new Date(update.at).toLocaleString()}: ${many(update.came, "image")} came${others && `; ${others}`}.${here}`;
  }

  /** What stands above a group. */
  function head(group) {
    const rows = group.images.map((image) => image.row);
    const open = group.images.filter((image) => !image.status).map((image) => image.row);
    const opened = store.state.update.opened.includes(group.id);
    return h("div", { class: "group-head", role: "presentation" },
      h("a", { href: placeAddress(group.id) }, name(placeName(group.id))), h("small", {}, many(group.total, "new image")),
      opened && h("span", { class: "badge new" }, "opened by this update"),
      h("button", { class: "small", onclick: () => { grid.touchSelects = true; grid.select(rows, { keep: true }); } }, "Select"),
      group.id >= 0 && open.length > 0 && h("button", { class: "small", onclick: () => edit({ edit: "accept", rows: open }) }, "Accept"));
  }

  function refresh() {
    grid.busy = fill();
    return grid.busy;
  }

  async function fill() {
    try {
      const answer = await get("/api/new");
      if (store.pending) return; // as in a category
      says.textContent = told(answer.total);
      let at = 0;
      const heads = answer.groups.map((group) => {
        const made = { at, node: head(group) };
        at += group.images.length;
        return made;
      });
      grid.show(answer.groups.flatMap((group) => group.images), heads);
    } catch (error) {
      says.textContent = error.message;
    }
  }

  const ready = refresh();
  return {
    title: "New since last time", node, refresh, key: bar.key, destroy: () => grid.destroy(),
    focus: () => ready.then(() => grid.images.length && document.activeElement === document.getElementById("main") && grid.focus(0, { scroll: false })),
  };
}
