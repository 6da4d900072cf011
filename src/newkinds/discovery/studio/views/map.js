// The map: every image is a dot, near those that it resembles. Corrections change colours, never places.

import { selectionBar } from "./category.js";
import { h, hue, icon, many, name, picture, plain } from "./dom.js";
import { showPicked } from "./found.js";
import { strip } from "./grid.js";
import { Lasso, Picked } from "./lasso.js";
import { get, placeAddress, placeName, store } from "./store.js";

const UNIT = 4000; // the server's places are whole numbers up to this
const CELLS = 80; // of the grid by which the dot under the pointer is found
const NEAR = 14; // px

export function map() {
  const canvas = h("canvas", { tabindex: 0, role: "application",
    "aria-label": "Map of all images. Arrows move it, plus and minus zoom, N and P go from category to category, Enter opens one, Space selects its images, E all that is in the frame." });
  const card = h("div", { class: "hover", hidden: true });
  const says = h("p", { class: "hint", role: "status" }, "Placing the images…");
  const show = h("select", { "aria-label": "Show", onchange: () => draw() },
    [["all", "All images"], ["new", "New categories"], ["known", "Known categories"]].map(([value, label]) => h("option", { value }, label)));
  const draws = h("button", { "aria-pressed": false, title: "Draw around images to select them (S, or ⇧ and drag)", onclick: () => drawing(!isDrawing) }, icon("lasso"), "Select", h("kbd", {}, "S"));
  const lookAtThem = () => picked.selected.size && showPicked(picked.targets());
  const picked = new Picked(() => { bar.update(); preview(); draw(); });
  const bar = selectionBar(picked, { more: h("button", { onclick: lookAtThem }, "Look at them", h("kbd", {}, "V")) });
  const seen = h("div", { class: "picked", hidden: true });
  const zoomBy = (factor) => () => zoom(factor, canvas.clientWidth / 2, canvas.clientHeight / 2);
  const node = h("section", { class: "map" }, h("div", { class: "tools" }, show,
    h("button", { onclick: zoomBy(1.5), "aria-label": "Zoom in" }, "+"), h("button", { onclick: zoomBy(1 / 1.5), "aria-label": "Zoom out" }, "−"),
    h("button", { onclick: () => { view = { scale: 1, x: 0, y: 0 }; draw(); } }, "Whole map"), draws, says), h("div", { class: "frame" }, canvas, seen, card), bar.node);
  let places = null;
  let of = [];
  let stamps = [];
  let buckets = new Map();
  let centres = new Map();
  let view = { scale: 1, x: 0, y: 0 };
  let lit = null; // the category under the pointer
  let frame = 0;
  let lasso = null; // the line that is being drawn
  let isDrawing = false; // whether a finger or the mouse draws one, and does not move the map

  const side = () => [canvas.clientWidth - 40, canvas.clientHeight - 40];
  const toScreen = (x, y) => [20 + (x / UNIT * side()[0] + view.x) * view.scale, 20 + (y / UNIT * side()[1] + view.y) * view.scale];
  const toPlace = (sx, sy) => [((sx - 20) / view.scale - view.x) / side()[0] * UNIT, ((sy - 20) / view.scale - view.y) / side()[1] * UNIT];

  async function refresh() {
    try {
      const answer = await get("/api/map");
      ({ places, of, v: stamps } = answer);
      prepare();
      says.textContent = of.length ? `${many(of.length, "image")}; zoom with the wheel or two fingers` : "This run has no images.";
      node.classList.toggle("empty", !of.length);
      draw();
    } catch (error) {
      says.textContent = error.message;
    }
  }

  function prepare() {
    buckets = new Map();
    const sums = new Map();
    for (let row = 0; row < of.length; row += 1) {
      const [x, y] = [places[2 * row], places[2 * row + 1]];
      const key = Math.floor(x / UNIT * CELLS) * 1000 + Math.floor(y / UNIT * CELLS);
      if (!buckets.has(key)) buckets.set(key, []);
      buckets.get(key).push(row);
      if (of[row] < 0) continue;
      const sum = sums.get(of[row]) ?? [0, 0, 0];
      sums.set(of[row], [sum[0] + x, sum[1] + y, sum[2] + 1]);
    }
    centres = new Map([...sums].map(([id, [x, y, count]]) => [id, [x / count, y / count, 0]]));
    for (let row = 0; row < of.length; row += 1) { // how far a category's dots lie from its middle, on average
      const centre = centres.get(of[row]);
      if (centre) centre[2] += Math.abs(places[2 * row + 1] - centre[1]) / sums.get(of[row])[2];
    }
  }

  function draw() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(paint);
  }

  function paint() {
    if (!places || !canvas.clientWidth) return;
    const ratio = devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const colour = (key) => style.getPropertyValue(key).trim();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const size = Math.min(9, Math.max(2.4, 260 / Math.sqrt(of.length)) * Math.sqrt(view.scale));
    const rows = new Map();
    for (let row = 0; row < of.length; row += 1) {
      if (!rows.has(of[row])) rows.set(of[row], []);
      rows.get(of[row]).push(row);
    }
    const ids = [...rows.keys()].sort((a, b) => (store.byId.get(a)?.new ?? -1) - (store.byId.get(b)?.new ?? -1));
    const shows = (it) => show.value === "all" || (it && (show.value === "new") === it.new);
    for (const id of ids) {
      const it = store.byId.get(id);
      if (!shows(it)) continue;
      pen.fillStyle = !it ? colour("--line") : it.new ? `hsl(${hue(id)} 62% ${colour("--dot")})` : colour("--known");
      pen.globalAlpha = lit !== null && lit !== id ? 0.14 : it?.new ? 0.8 : 0.45;
      pen.beginPath();
      for (const row of rows.get(id)) {
        const [x, y] = toScreen(places[2 * row], places[2 * row + 1]);
        if (x < -9 || y < -9 || x > canvas.clientWidth + 9 || y > canvas.clientHeight + 9) continue;
        pen.moveTo(x + size / 2, y);
        pen.arc(x, y, size / 2, 0, 7);
      }
      pen.fill();
    }
    label(pen, colour, shows);
    pen.globalAlpha = 1;
    pen.lineWidth = 1.6;
    pen.strokeStyle = colour("--ink");
    pen.beginPath();
    for (const row of picked.selected) {
      const [x, y] = toScreen(places[2 * row], places[2 * row + 1]);
      pen.moveTo(x + size / 2 + 1.5, y);
      pen.arc(x, y, size / 2 + 1.5, 0, 7);
    }
    pen.stroke();
    lasso?.paint(pen, colour("--new"));
  }

  const isShown = (row) => show.value === "all" || (show.value === "new") === store.byId.get(of[row])?.new;

  /** The images whose dots are shown and lie where `holds(x, y)` says. */
  function dots(holds) {
    const rows = [];
    for (let row = 0; row < of.length; row += 1) {
      if (isShown(row) && holds(...toScreen(places[2 * row], places[2 * row + 1]))) rows.push(row);
    }
    return rows;
  }

  function drawing(on) {
    isDrawing = on;
    draws.setAttribute("aria-pressed", String(on));
    canvas.classList.toggle("drawing", on);
    says.textContent = on ? "Draw around images with the mouse or a finger; a click selects one." : `${many(of.length, "image")}`;
  }

  /** Some of what is selected. */
  function preview() {
    const rows = picked.targets();
    seen.hidden = !rows.length;
    seen.replaceChildren(strip(rows.map((row) => ({ row, v: stamps[row], path: "" })), innerWidth < 700 ? 6 : 12));
  }

  /** Names where there is room, those of the largest categories first. */
  function label(pen, colour, shows) {
    const taken = [];
    pen.globalAlpha = 1;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineWidth = 4;
    pen.lineJoin = "round";
    pen.strokeStyle = colour("--card");
    const all = [...centres].map(([id, place]) => [store.byId.get(id), place]).filter(([it]) => it && shows(it));
    all.sort((a, b) => (b[0].id === lit) - (a[0].id === lit) || b[0].new - a[0].new || b[0].size - a[0].size);
    for (const [it, place] of all) {
      if (lit !== null && lit !== it.id) continue;
      const [x, middle] = toScreen(place[0], place[1]);
      const y = middle - 13 - 1.6 * place[2] / UNIT * side()[1] * view.scale; // above the dots
      pen.font = `${it.new ? 600 : 400} 12.5px ${getComputedStyle(document.body).fontFamily}`;
      const text = plain(it.name).slice(0, 32);
      const half = pen.measureText(text).width / 2 + 4;
      const box = [x - half, y - 10, x + half, y + 10];
      if (box[0] < 0 || box[1] < 0 || box[2] > canvas.clientWidth || box[3] > canvas.clientHeight) continue;
      if (taken.some((t) => box[0] < t[2] && box[2] > t[0] && box[1] < t[3] && box[3] > t[1])) continue;
      taken.push(box);
      pen.fillStyle = it.new ? colour("--ink") : colour("--soft");
      pen.strokeText(text, x, y);
      pen.fillText(text, x, y);
    }
  }

  function under(sx, sy) {
    const [x, y] = toPlace(sx, sy);
    const [column, line] = [Math.floor(x / UNIT * CELLS), Math.floor(y / UNIT * CELLS)];
    let best = null;
    let nearest = NEAR;
    for (let i = column - 1; i <= column + 1; i += 1) {
      for (let j = line - 1; j <= line + 1; j += 1) {
        for (const row of buckets.get(i * 1000 + j) ?? []) {
          const [px, py] = toScreen(places[2 * row], places[2 * row + 1]);
          const far = Math.hypot(px - sx, py - sy);
          if (far < nearest) [nearest, best] = [far, row];
        }
      }
    }
    return best;
  }

  function zoom(factor, x, y) {
    const scale = Math.max(1, Math.min(40, view.scale * factor));
    const change = 1 / scale - 1 / view.scale;
    view = { scale, x: view.x + (x - 20) * change, y: view.y + (y - 20) * change };
    if (scale === 1) view = { scale, x: 0, y: 0 };
    draw();
  }

  function hover(row, x, y) {
    const id = row === null ? null : of[row];
    const it = store.byId.get(id);
    canvas.classList.toggle("pointing", row !== null);
    card.hidden = row === null;
    if (row !== null && card.dataset.row !== String(row)) {
      card.dataset.row = row;
      card.replaceChildren(picture(row, stamps[row], null), h("b", {}, name(placeName(id))), it && h("small", {}, many(it.size, "image")));
    }
    if (row !== null) {
      const right = x > canvas.clientWidth / 2;
      card.style.transform = `translate(${right ? x - 166 : x + 16}px, ${Math.max(4, Math.min(canvas.clientHeight - 210, y - 80))}px)`;
    }
    if (lit !== (it ? id : null)) { lit = it ? id : null; draw(); }
  }

  const pointers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event);
    moved = 0;
    lasso = pointers.size === 1 && places && (isDrawing || event.shiftKey) ? new Lasso() : null;
    lasso?.add(event.offsetX, event.offsetY);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!places) return;
    const before = pointers.get(event.pointerId);
    if (!before) return hover(under(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
    if (pointers.size === 2) {
      const [other] = [...pointers.values()].filter((p) => p.pointerId !== event.pointerId);
      const far = (p) => Math.hypot(p.offsetX - other.offsetX, p.offsetY - other.offsetY) || 1;
      zoom(far(event) / far(before), (event.offsetX + other.offsetX) / 2, (event.offsetY + other.offsetY) / 2);
    } else if (lasso) {
      lasso.add(event.offsetX, event.offsetY);
      draw();
    } else {
      view = { ...view, x: view.x + (event.offsetX - before.offsetX) / view.scale, y: view.y + (event.offsetY - before.offsetY) / view.scale };
      draw();
    }
    moved += Math.abs(event.offsetX - before.offsetX) + Math.abs(event.offsetY - before.offsetY);
    pointers.set(event.pointerId, event);
    hover(null);
  });
  for (const kind of ["pointerup", "pointercancel", "pointerleave"]) {
    canvas.addEventListener(kind, (event) => {
      const pressed = pointers.delete(event.pointerId);
      if (kind === "pointerleave") hover(null);
      if (!pressed) return;
      const drawn = lasso;
      lasso = null;
      if (kind !== "pointerup" || !places) return draw();
      if (drawn?.isDrawn && moved > 6) return picked.select(dots((x, y) => drawn.holds(x, y)), { keep: event.shiftKey });
      if (moved > 6) return undefined;
      const row = under(event.offsetX, event.offsetY);
      if (row === null) return draw();
      if (drawn) return picked.toggle([row]);
      location.hash = placeAddress(of[row]);
      return undefined;
    });
  }
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
  }, { passive: false });

  function step(by) {
    const ids = [...centres.keys()].filter((id) => store.byId.has(id)).sort((a, b) => a - b);
    lit = ids[(ids.indexOf(lit) + by + ids.length) % ids.length];
    const it = store.byId.get(lit);
    says.textContent = `${plain(it.name)}, ${many(it.size, "image")}`;
    draw();
  }

  function key(event) {
    if (picked.selected.size && bar.key(event)) return true;
    const pan = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    if (pan && document.activeElement === canvas) view = { ...view, x: view.x + pan[0] / view.scale, y: view.y + pan[1] / view.scale };
    else if (event.key === "+" || event.key === "=") zoomBy(1.4)();
    else if (event.key === "-") zoomBy(1 / 1.4)();
    else if ((event.key === "n" || event.key === "p") && centres.size) step(event.key === "n" ? 1 : -1);
    else if (event.key === "Enter" && lit !== null && document.activeElement === canvas) location.hash = `#/c/${lit}`;
    else if (event.key === "s") drawing(!isDrawing);
    else if (event.key === "e" && places) picked.select(dots((x, y) => x >= 0 && y >= 0 && x <= canvas.clientWidth && y <= canvas.clientHeight));
    else if (event.key === "v" && picked.selected.size) lookAtThem();
    else if (event.key === " " && lit !== null && document.activeElement === canvas) picked.toggle([...of.keys()].filter((row) => of[row] === lit));
    else if (event.key === "Escape" && picked.selected.size) picked.select([]);
    else if (event.key === "Escape" && isDrawing) drawing(false);
    else return false;
    draw();
    return true;
  }

  const observer = new ResizeObserver(draw);
  observer.observe(canvas);
  refresh();
  return { title: "Map", node, refresh, key, destroy: () => observer.disconnect(), focus: () => canvas.focus() };
}
