// A grid of images of which only those on the screen exist, so that thousands scroll smoothly; with selection by
// mouse, keyboard and touch.

import { fileName, h, many, percent, picture, plain } from "./dom.js";

const GAP = 8;
const CAPTION = 22; // px below a picture, for each line
const HEAD = 54; // px above a group
const ROWS_AHEAD = 3;
const LONG_PRESS = 450; // ms
const MARKS = { accepted: ["✓", "accepted"], moved: ["→", "moved by hand"], junk: ["✕", "junk"] };

export const DRAGGED = "application/x-newkinds-rows";

export class Grid {
  /** `open(index)`: show an image enlarged; `changed()`: another selection; `caption(image)`: text below it;
   * `second(image)`: a button below it, for where it may belong as well. */
  constructor({ label, open, changed = () => {}, caption = null, second = null }) {
    Object.assign(this, { open, changed, caption, second });
    this.images = [];
    this.heads = []; // of groups: { at: index of the first image, node }
    this.lines = []; // of images: { y, first, count }
    this.below = CAPTION;
    this.selected = new Set(); // rows
    this.focused = 0; // index
    this.anchor = 0; // where a range begins
    this.touchSelects = false;
    this.busy = Promise.resolve(); // until it shows what the server has
    this.tiles = new Map(); // index → element
    this.node = h("div", {
      class: "grid", role: "listbox", "aria-label": label, "aria-multiselectable": "true",
      onkeydown: (event) => this.key(event), onclick: (event) => this.click(event),
      ondblclick: (event) => this.isTile(event) && this.open(this.indexOf(event)),
      ondragstart: (event) => this.drag(event), ondragend: () => document.body.classList.remove("dragging"),
      onfocusin: (event) => this.isTile(event) && this.setFocus(this.indexOf(event)),
    });
    this.listenToTouch();
    this.paint = this.paint.bind(this);
    this.layout = this.layout.bind(this);
    this.observer = new ResizeObserver(this.layout);
    this.observer.observe(this.node);
    addEventListener("scroll", this.paint, { passive: true });
  }

  destroy() {
    this.observer.disconnect();
    removeEventListener("scroll", this.paint);
  }

  /** Other images, in groups if these have `heads`; the focus stays on its image, or goes to the next one if that has gone. */
  show(images, heads = []) {
    const held = this.node.contains(document.activeElement);
    const there = new Map(images.map((image, index) => [image.row, index]));
    const next = this.images.slice(this.focused).find((image) => there.has(image.row));
    this.focused = next ? there.get(next.row) : Math.max(0, Math.min(this.focused, images.length - 1));
    this.images = images;
    this.selected = new Set([...this.selected].filter((row) => there.has(row)));
    this.anchor = this.focused;
    for (const tile of this.tiles.values()) tile.remove();
    this.tiles.clear();
    for (const head of this.heads) head.node.remove();
    this.heads = heads;
    this.node.prepend(...heads.map((head) => head.node));
    this.below = CAPTION * (this.second && images.some((image) => image.second !== undefined) ? 2 : 1);
    this.node.style.setProperty("--caption", `${this.below}px`);
    this.layout();
    if (held && images.length) this.focus(this.focused, { scroll: false });
    this.changed();
  }

  layout() {
    const width = this.node.clientWidth;
    if (!width) return;
    const least = width < 560 ? 96 : 128;
    this.columns = Math.max(3, Math.floor((width + GAP) / (least + GAP)));
    this.side = (width - GAP * (this.columns - 1)) / this.columns;
    this.step = this.side + this.below + GAP;
    this.lines = [];
    let y = 0;
    const starts = this.heads.length ? this.heads : [{ at: 0 }];
    starts.forEach(({ at, node }, number) => {
      const end = starts[number + 1]?.at ?? this.images.length;
      if (node) {
        node.style.transform = `translateY(${y}px)`;
        y += HEAD;
      }
      for (let first = at; first < end; first += this.columns, y += this.step) this.lines.push({ y, first, count: Math.min(this.columns, end - first) });
    });
    this.node.style.height = `${Math.ceil(y)}px`;
    for (const [index, tile] of this.tiles) this.place(tile, index);
    this.paint();
  }

  /** The number of the line that an image is in. */
  lineOf(index) {
    let [low, high] = [0, this.lines.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.lines[middle].first <= index) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  paint() {
    if (!this.columns) return;
    const top = this.node.getBoundingClientRect().top;
    const ahead = ROWS_AHEAD * this.step;
    const near = this.lines.filter((line) => line.y + top > -ahead - this.step && line.y + top < innerHeight + ahead);
    const first = near[0]?.first ?? 0;
    const last = near.length ? near.at(-1).first + near.at(-1).count : 0;
    for (const [index, tile] of this.tiles) {
      if ((index < first || index >= last) && index !== this.focused) {
        tile.remove();
        this.tiles.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) this.tile(index);
    if (this.focused < this.images.length) this.tile(this.focused);
  }

  tile(index) {
    if (this.tiles.has(index)) return this.tiles.get(index);
    const image = this.images[index];
    const mark = MARKS[image.status];
    const said = this.caption ? this.caption(image) : percent(image.sure);
    const notes = [
      image.label !== undefined && h("b", { class: "labelled", title: `labelled ${plain(image.label)}` }, "label"),
      image.unlike && h("b", { class: "unlike", title: "unlike every category" }, "unlike"),
      mark && h("b", { class: `mark-${image.status}`, title: mark[1] }, mark[0]),
    ];
    const words = [
      fileName(image.path), `${percent(image.sure)} sure`, mark?.[1], image.unlike && "unlike every category",
      image.label !== undefined && `labelled ${image.label}`,
    ].filter(Boolean).map(plain).join(", ");
    const tile = h(
      "div",
      {
        class: "tile", role: "option", tabindex: index === this.focused ? 0 : -1, draggable: "true", title: plain(image.path),
        "aria-selected": this.selected.has(image.row), "aria-label": words, "aria-posinset": index + 1,
        "aria-setsize": this.images.length, dataset: { index },
      },
      picture(image.row, image.v, image.path),
      h("span", { class: "caption" }, h("span", {}, said), ...notes),
      image.second !== undefined && this.second?.(image),
    );
    this.place(tile, index);
    this.tiles.set(index, tile);
    this.node.append(tile);
    return tile;
  }

  place(tile, index) {
    const { y, first } = this.lines[this.lineOf(index)] ?? { y: 0, first: 0 }; // before it has a width there are none
    const x = (index - first) * (this.side + GAP);
    tile.style.transform = `translate(${x}px, ${y}px)`;
    tile.style.width = `${this.side}px`;
    tile.style.height = `${this.side + this.below}px`;
  }

  indexOf = (event) => Number(event.target.closest(".tile").dataset.index);
  isTile = (event) => event.target.closest?.(".tile") !== null && event.target.closest("button") === null;

  setFocus(index) {
    const before = this.tiles.get(this.focused);
    if (before) before.tabIndex = -1;
    this.focused = index;
    if (this.images.length) this.tile(index).tabIndex = 0;
  }

  focus(index, { scroll = true } = {}) {
    this.setFocus(index);
    const tile = this.tile(index);
    tile.focus({ preventScroll: true });
    if (!scroll) return;
    const box = tile.getBoundingClientRect();
    const below = innerHeight - 90;
    if (box.top < 130) scrollBy(0, box.top - 130);
    else if (box.bottom > below) scrollBy(0, box.bottom - below);
    this.paint();
  }

  select(rows, { keep = false } = {}) {
    this.selected = new Set(keep ? [...this.selected, ...rows] : rows);
    this.mark();
  }

  mark() {
    for (const [index, tile] of this.tiles) {
      tile.setAttribute("aria-selected", this.selected.has(this.images[index].row));
    }
    this.node.classList.toggle("selecting", this.selected.size > 0);
    if (!this.selected.size) this.touchSelects = false;
    this.changed();
  }

  toggle(index) {
    const { row } = this.images[index];
    if (!this.selected.delete(row)) this.selected.add(row);
    this.anchor = index;
    this.mark();
  }

  range(to) {
    const [low, high] = this.anchor < to ? [this.anchor, to] : [to, this.anchor];
    this.select(this.images.slice(low, high + 1).map((image) => image.row));
  }

  /** What a key or a button is about: the selected images, else the one under the focus. */
  targets() {
    if (this.selected.size) return this.images.filter((image) => this.selected.has(image.row)).map((image) => image.row);
    return this.images.length && this.node.contains(document.activeElement) ? [this.images[this.focused].row] : [];
  }

  click(event) {
    if (!this.isTile(event)) return;
    const index = this.indexOf(event);
    if (this.pressed) {
      this.pressed = false; // the end of a long press, which has selected it
    } else if (this.touch && !this.touchSelects) {
      this.open(index);
    } else if (event.shiftKey) {
      this.range(index);
    } else if (event.ctrlKey || event.metaKey || this.touchSelects) {
      this.toggle(index);
    } else {
      const only = this.selected.size === 1 && this.selected.has(this.images[index].row);
      this.select(only ? [] : [this.images[index].row]);
      this.anchor = index;
    }
    this.setFocus(index);
  }

  listenToTouch() {
    let timer;
    const stop = () => clearTimeout(timer);
    this.node.addEventListener("pointerdown", (event) => {
      this.touch = event.pointerType === "touch";
      this.pressed = false;
      if (!this.touch || !this.isTile(event)) return;
      const index = this.indexOf(event);
      timer = setTimeout(() => {
        this.pressed = true;
        this.touchSelects = true;
        this.toggle(index);
        navigator.vibrate?.(15);
      }, LONG_PRESS);
    });
    for (const kind of ["pointerup", "pointercancel", "pointermove"]) {
      this.node.addEventListener(kind, (event) => {
        if (kind !== "pointermove" || Math.abs(event.movementX) + Math.abs(event.movementY) > 4) stop();
      });
    }
    this.node.addEventListener("contextmenu", (event) => this.touch && event.preventDefault());
  }

  drag(event) {
    if (!this.isTile(event)) return;
    const { row } = this.images[this.indexOf(event)];
    if (!this.selected.has(row)) this.select([row]);
    const rows = this.targets();
    event.dataTransfer.setData(DRAGGED, JSON.stringify(rows));
    event.dataTransfer.effectAllowed = "move";
    const badge = h("div", { class: "badge-drag" }, many(rows.length, "image"));
    document.body.append(badge);
    event.dataTransfer.setDragImage(badge, 12, 12);
    setTimeout(() => badge.remove());
    document.body.classList.add("dragging");
  }

  /** The index so many lines below (or above) the focus. */
  across(by) {
    const here = this.lineOf(this.focused);
    const to = here + by;
    if (to < 0 || to >= this.lines.length) return Math.abs(by) > 1 ? by * Infinity : this.focused;
    return this.lines[to].first + Math.min(this.focused - this.lines[here].first, this.lines[to].count - 1);
  }

  key(event) {
    if (!this.images.length || event.altKey) return;
    const page = Math.max(1, Math.floor(innerHeight / this.step) - 1);
    const aside = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    const lines = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page };
    const control = event.ctrlKey || event.metaKey;
    if (event.key in aside || event.key in lines) {
      const wanted = event.key in lines ? this.across(lines[event.key]) : this.focused + aside[event.key];
      const index = Math.max(0, Math.min(this.images.length - 1, wanted));
      this.focus(index);
      if (event.shiftKey) this.range(index);
      else this.anchor = index;
    } else if (event.key === " ") {
      this.toggle(this.focused);
    } else if (event.key === "Enter") {
      this.open(this.focused);
    } else if (control && event.key.toLowerCase() === "a") {
      this.select(this.images.map((image) => image.row));
    } else if (event.key === "Escape" && this.selected.size) {
      this.select([]);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

/** A few pictures that do nothing, at `most` so many; the last place may say how many more there are. */
export function strip(images, places = 12, { count = true } = {}) {
  const most = count && images.length > places ? places - 1 : places;
  const more = count ? images.length - most : 0;
  return h("div", { class: "strip" }, images.slice(0, most).map((image) => {
    const tile = picture(image.row, image.v, image.path, { loading: "lazy" });
    tile.title = plain(image.path);
    return tile;
  }), more > 0 && h("span", { class: "more" }, `+${more.toLocaleString("en")}`));
}

/** Let images that are dragged onto an element be dropped there. */
export function dropTarget(element, dropped, kinds = [DRAGGED]) {
  let depth = 0;
  const takes = (event) => kinds.some((kind) => event.dataTransfer.types.includes(kind));
  const light = (on) => element.classList.toggle("over", on);
  element.addEventListener("dragenter", (event) => { if (takes(event)) { event.preventDefault(); depth += 1; light(true); } });
  element.addEventListener("dragover", (event) => { if (takes(event)) { event.preventDefault(); event.dataTransfer.dropEffect = "move"; } });
  element.addEventListener("dragleave", (event) => { if (takes(event) && --depth <= 0) { depth = 0; light(false); } });
  element.addEventListener("drop", (event) => {
    if (!takes(event)) return;
    event.preventDefault();
    event.stopPropagation();
    depth = 0;
    light(false);
    const kind = kinds.find((some) => event.dataTransfer.types.includes(some));
    dropped(JSON.parse(event.dataTransfer.getData(kind)), kind);
  });
  return element;
}
