// The studio: its bar, its views by address (#/ is the wall, #/c/7 a category …), its keys.

import { category } from "./category.js";
import { choose } from "./dialogs.js";
import { h, icon, isTyping, many, name, plain } from "./dom.js";
import { find, like, look, lookAt, picked } from "./found.js";
import { help } from "./help.js";
import { jobs, jobSign } from "./jobs.js";
import { map } from "./map.js";
import { next } from "./queue.js";
import { since } from "./since.js";
import { JUNK, POOL, banner, edit, get, onState, poll, refresh, store, toast, undoLastToast } from "./store.js";
import { wall } from "./wall.js";

const main = document.getElementById("main");
const veil = document.getElementById("veil");
const SEARCH_AFTER = 180; // ms without another letter
// address, name, what is counted beside it; one that counts, but for junk, is only named if there is something
const PAGES = [["#/", "Wall"], ["#/next", "Next"], ["#/new", "New", "fresh"], ["#/pool", "Not placed", "pool"], ["#/map", "Map"], ["#/junk", "Junk", "junk"], ["#/log", "Log"], ["#/jobs", "Jobs"]];
const scrolled = new Map(); // address → where it was left
let view = null;
let address = null;

function log() {
  const list = h("ol", { class: "log" });
  const node = h("section", {}, h("h1", {}, "Log"), h("p", { class: "hint" }, "Every correction ever made, the last one first. Nothing is ever deleted from it."), list);
  async function fill() {
    const { edits } = await get("/api/log");
    list.replaceChildren(...edits.map((one) => h("li", { class: one.in_force ? "" : "undone" }, h("small", {}, `${one.n}`),
      h("time", { datetime: one.at }, new Date(one.at).toLocaleString()), h("span", {}, plain(one.says)), !one.in_force && h("span", { class: "badge" }, "undone"))));
    if (!edits.length) list.replaceChildren(h("li", { class: "hint" }, "Nothing was corrected yet."));
  }
  fill().catch(() => {});
  return { title: "Log", node, refresh: () => fill().catch(() => {}) };
}

function made(hash) {
  const number = (pattern) => hash.match(pattern)?.[1];
  if (number(/^#\/c\/(\d+)$/)) {
    const id = Number(number(/^#\/c\/(\d+)$/));
    if (store.byId.has(id)) return category(id);
    toast("There is no such category any more.");
    history.replaceState(null, "", "#/");
    return wall();
  }
  if (hash === "#/junk") return category(JUNK);
  if (hash === "#/pool") return category(POOL);
  if (hash === "#/jobs") return jobs();
  if (hash === "#/next") return next();
  if (hash === "#/new") return since();
  if (hash === "#/picked") return picked();
  if (hash === "#/map") return map();
  if (hash === "#/log") return log();
  if (hash === "#/look") return look();
  if (number(/^#\/like\/(\d+)$/)) return like(Number(number(/^#\/like\/(\d+)$/)));
  if (hash.startsWith("#/find/")) return find(decoded(hash.slice(7)));
  return wall();
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function route() {
  if (address !== null) scrolled.set(address, scrollY);
  view?.destroy?.();
  address = location.hash || "#/";
  view = made(address);
  main.replaceChildren(view.node);
  document.title = `${plain(view.title)} · newkinds studio`;
  scrollTo(0, address === "#/" ? scrolled.get("#/") ?? 0 : 0);
  fillBar();
  nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (!isTyping(document.activeElement)) {
    main.focus({ preventScroll: true });
    view.focus?.();
  }
}

const search = h("input", { type: "search", placeholder: "Search: a name, #31, unlike", "aria-label": "Search by a part of a file's or a category's name, by #id, or unlike", autocomplete: "off", spellcheck: "false" });
let typing = 0;
function showSearch() {
  clearTimeout(typing);
  const text = search.value.trim();
  const to = text ? `#/find/${encodeURIComponent(text)}` : "#/";
  if (location.hash === to) return;
  if (location.hash.startsWith("#/find/")) {
    history.replaceState(null, "", to);
    route();
  } else location.hash = to;
}
search.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(showSearch, SEARCH_AFTER);
});
search.addEventListener("keydown", (event) => {
  // at once: while it waited, whatever fills the bar again would take the words from the address
  if (event.key === "Escape") { search.value = ""; showSearch(); search.blur(); event.stopPropagation(); }
  if (event.key === "Enter" || event.key === "ArrowDown") { main.querySelector(".card, .tile")?.focus(); event.preventDefault(); }
});

const file = h("input", { type: "file", accept: "image/*", hidden: true, onchange: () => { if (file.files[0]) lookAt(file.files[0]); file.value = ""; } });
const undo = h("button", { class: "quiet", onclick: () => edit({ edit: "undo" }) }, icon("undo"), h("span", { class: "wide-only" }, "Undo"));
const redo = h("button", { class: "quiet", "aria-label": "Redo", onclick: () => edit({ edit: "redo" }) }, icon("redo"));
const nav = h("nav", { "aria-label": "Pages" });
const run = h("a", { class: "run", href: "#/" });

function fillBar() {
  const { state } = store;
  const here = PAGES.some(([to]) => to === address) ? address : "#/";
  run.replaceChildren(name(state.run), h("small", {}, many(state.images, "image")));
  run.title = plain(state.folder);
  nav.replaceChildren(...PAGES.map(([to, label, counts], index) => (!counts || counts === "junk" || state[counts] > 0 || to === here) &&
    h("a", { href: to, "aria-current": to === here ? "page" : undefined, title: `${label} (${index + 1})` }, label, state[counts] > 0 && h("b", {}, state[counts].toLocaleString("en")))).filter(Boolean));
  undo.disabled = !state.undo;
  undo.title = state.undo ? `Undo: ${plain(state.undo)}` : "Nothing to undo";
  undo.setAttribute("aria-label", undo.title);
  redo.disabled = !state.redo;
  redo.title = state.redo ? `Redo: ${plain(state.redo)}` : "Nothing to redo";
  byImage.hidden = !state.model;
  if (!address.startsWith("#/find/") && document.activeElement !== search) search.value = "";
  if (address.startsWith("#/find/") && document.activeElement !== search) search.value = decoded(address.slice(7));
}

const byImage = h("button", { class: "quiet", "aria-label": "Find by image", title: "Find what is like an image of yours", onclick: () => file.click() }, icon("image"));
document.getElementById("bar").append(run, nav, search, file, h("div", { class: "right" }, jobSign(), byImage, undo, redo,
  h("button", { class: "quiet", "aria-label": "Keys and help", title: "Keys (?)", onclick: () => help() }, icon("help"))));

async function goTo() {
  const to = await choose("Go to");
  if (to) location.hash = `#/c/${to.id}`;
}

addEventListener("keydown", (event) => {
  const control = event.ctrlKey || event.metaKey;
  if (!store.state || document.querySelector("dialog[open]") || event.defaultPrevented) return;
  const typed = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (control && (typed === "z" || typed === "y") && !isTyping(event.target)) {
    edit({ edit: typed === "y" || event.shiftKey ? "redo" : "undo" });
    event.preventDefault();
    return;
  }
  if (isTyping(event.target) || event.altKey) return;
  if (view?.key?.(event)) {
    event.preventDefault();
    return;
  }
  const keys = { u: undoLastToast, "/": () => { search.focus(); search.select(); }, "?": help, g: goTo, Escape: () => { if (location.hash !== "#/") location.hash = "#/"; } };
  const page = PAGES[Number(event.key) - 1];
  if (!control && page) location.hash = page[0];
  else if (!control && event.key in keys) keys[event.key]();
  else return;
  event.preventDefault();
});

const hasFiles = (event) => event.dataTransfer?.types.includes("Files") && store.state?.model;
addEventListener("dragenter", (event) => { if (hasFiles(event)) { event.preventDefault(); veil.hidden = false; } });
addEventListener("dragover", (event) => { if (event.dataTransfer?.types.includes("Files")) event.preventDefault(); });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) veil.hidden = true; });
addEventListener("drop", (event) => {
  if (!event.dataTransfer?.files.length) return;
  event.preventDefault(); // else the browser would leave the studio and show the file
  veil.hidden = true;
  if (hasFiles(event)) lookAt(event.dataTransfer.files[0]);
  else toast("This run has no model: it cannot look at other images.", { wrong: true });
});
addEventListener("paste", (event) => { if (event.clipboardData?.files.length && store.state?.model) lookAt(event.clipboardData.files[0]); });

addEventListener("hashchange", route);
let started = false;
onState(() => {
  banner();
  if (started) {
    fillBar();
    view?.refresh?.();
  }
});
try {
  await refresh();
  started = true;
  route();
  poll();
} catch (error) {
  main.replaceChildren(h("p", { class: "hint" }, error.message));
}
