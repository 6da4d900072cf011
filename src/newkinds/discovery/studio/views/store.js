// What the server says, and the corrections that it is told. All windows look at the same log of edits.

import { h } from "./dom.js";

const POLL = 2000; // ms between two questions whether something has changed
const listeners = new Set();

export const JUNK = -1; // the place of images that belong to no category
export const POOL = -2; // of those that belong to none yet

/** The last state of the server, and its categories by their ids. */
export const store = { state: null, byId: new Map(), answers: true, editing: false, pending: 0 }; // pending: edits on their way

export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** What the place of an image is called. */
export const placeName = (id) => store.byId.get(id)?.name ?? (id === POOL ? "not placed yet" : "junk");

/** Where the images of a place are shown. */
export const placeAddress = (id) => (id === JUNK ? "#/junk" : id === POOL ? "#/pool" : `#/c/${id}`);

export function onState(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    answering(false);
    throw new Refused("The studio does not answer.", 0);
  }
  if (response.status === 403) {
    answering(false);
    throw new Refused(await response.text(), 403);
  }
  answering(true);
  const isJson = (response.headers.get("content-type") ?? "").startsWith("application/json");
  const answer = isJson ? await response.json() : { error: await response.text() };
  if (!response.ok) throw new Refused(answer.error ?? `error ${response.status}`, response.status);
  return answer;
}

export const get = (path, options) => ask(path, options);
export const send = (path, body, type) => ask(path, { method: "POST", body, headers: { "Content-Type": type } });

function take(state) {
  store.state = state;
  store.byId = new Map(state.categories.map((category) => [category.id, category]));
  for (const listener of [...listeners]) listener(state);
}

export async function refresh() {
  take(await get("/api/state"));
}

let editing = Promise.resolve();

/** Make an edit; its number if it was made, else false. Edits are made one after another, in the order in which they were asked for.
 * `say(text)`: how it is told what was done; what is refused is a message in any case. */
export function edit(wanted, { say = toast } = {}) {
  store.pending += 1;
  editing = editing.then(() => make(wanted, say));
  return editing;
}

async function make(wanted, say) {
  const { revision: seen, found } = store.state;
  try {
    const answer = await send("/api/edit", JSON.stringify({ ...wanted, seen, found }), "application/json").finally(() => { store.pending -= 1; });
    store.editing = true; // what its views find changed, they were told
    try {
      take(answer.state);
    } finally {
      store.editing = false;
    }
    const undoable = wanted.edit !== "undo" && wanted.edit !== "redo";
    const action = undoable ? ["Undo", () => edit({ edit: "undo", of: answer.n })] : null; // that one, whatever came since
    say(capital(answer.says), { action });
    return answer.n;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    const unknown = " Whether this correction was saved shows when it is started again.";
    toast(error.status === 0 ? error.message + unknown : capital(error.message), { wrong: true });
    if (error.status === 409 || error.status === 400) await refresh().catch(() => {});
    return false;
  }
}

/** Ask again and again whether others have changed something. */
export async function poll() {
  for (;;) {
    await new Promise((wake) => setTimeout(wake, POLL));
    if (document.hidden || !store.state) continue;
    const before = store.state;
    try {
      const now = await get("/api/version");
      await editing;
      if (store.state !== before || ["found", "revision", "prepared", "job"].every((key) => now[key] === before[key])) continue;
      await refresh();
      if (now.found !== before.found) toast("The categories were found again: these are the new ones.");
      else if (now.revision !== before.revision) toast("Changed in another window or on the command line.");
    } catch {
      // said in the banner
    }
  }
}

function answering(does) {
  if (store.answers === does) return;
  store.answers = does;
  banner();
}

/** What must not be overlooked. */
export function banner() {
  const bar = document.getElementById("banner");
  const stopped = "The studio has stopped, or was started again. Nothing is lost: every correction is in the run. " +
    "Start it with newkinds studio, and open the address that it prints.";
  const said = store.answers ? store.state?.problem ?? "" : stopped;
  if (bar.textContent !== said) bar.textContent = said;
  bar.hidden = !said;
  bar.classList.toggle("stopped", !store.answers);
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** A short message, which is also read out. */
export function toast(text, { action = null, wrong = false } = {}) {
  const place = document.getElementById("toasts");
  const button = action && h("button", { onclick: () => { message.remove(); action[1](); } }, action[0], action[0] === "Undo" && h("kbd", {}, "U"));
  const message = h("div", { class: wrong ? "toast wrong" : "toast" }, h("span", {}, text), button);
  while (place.children.length > 2) place.firstChild.remove();
  place.append(message);
  const leave = () => (message.matches(":hover, :focus-within") ? setTimeout(leave, 1000) : message.remove()); // it is being read
  setTimeout(leave, wrong ? 9000 : action ? 7000 : 5000);
}

/** Undo what the last message that can be undone names; whether there was one. */
export function undoLastToast() {
  const button = [...document.querySelectorAll("#toasts .toast button")].filter((one) => one.textContent.startsWith("Undo")).pop();
  button?.click();
  return Boolean(button);
}
