// What to look at next: one image at a time, with the reason, and answers of one key.

import { askMove, askRename } from "./dialogs.js";
import { fileName, h, icon, many, name, plain } from "./dom.js";
import { strip } from "./grid.js";
import { edit, get, placeAddress, placeName, store } from "./store.js";

/** The questions, which of them is asked, and what was done about those before: an edit's number, or null if it was skipped. */
const queue = { questions: null, place: 0, done: [] };

/** The address of an image, large. */
const large = (image) => `/image/${image.row}.jpg?v=${encodeURIComponent(image.v)}`;

export function next() {
  const stage = h("div", { class: "asked-images" });
  const about = h("div", { class: "asked-about", "aria-live": "polite" });
  const meter = h("progress", { max: 1, "aria-label": "Progress" });
  const count = h("b", {});
  const told = h("span", { class: "did", role: "status" }); // what the last answer did
  const node = h("section", { class: "queue" }, h("div", { class: "so-far" }, count, meter, told), h("div", { class: "asking" }, stage, about));
  let answering = Promise.resolve(); // one answer after the other
  let turn = 0; // of what is being shown

  const say = (text) => {
    const named = queue.questions?.flatMap((question) => question.images).find((image) => text.includes(image.path));
    told.textContent = plain(named ? text.replace(named.path, () => fileName(named.path)) : text);
  };
  const now = () => queue.questions?.[queue.place];
  const rows = () => now().images.map((image) => image.row);

  /** Where an image of this question goes by "yes". */
  function yes() {
    const question = now();
    if (question.kind === "merge") {
      const pair = [question.of, question.other].map((id) => store.byId.get(id));
      const [stays, goes] = pair[0].new !== pair[1].new ? (pair[0].new ? [pair[1], pair[0]] : pair) : pair[1].size > pair[0].size ? [pair[1], pair[0]] : pair;
      return { edit: "merge", categories: [goes.id], into: stays.id };
    }
    if (question.of < 0) return question.other === undefined ? null : { edit: "move", rows: rows(), to: question.other };
    return { edit: "accept", rows: rows() };
  }

  const second = () => (now().kind !== "merge" && now().other !== undefined && now().other !== now().of ? { edit: "move", rows: rows(), to: now().other } : null);

  /** What can be answered: label, keys, what is done (null: not now). */
  function answers() {
    const question = now();
    const isPair = question.kind === "merge";
    const here = question.of >= 0 ? placeName(question.of) : question.other === undefined ? "" : placeName(question.other);
    return [
      question.kind === "name" && { label: "Give it a name", keys: ["r", "Enter"], act: rename, main: true },
      yes() && { label: isPair ? "Yes, merge them" : question.kind === "name" ? "It belongs here" : ["Yes, ", name(here)], keys: question.kind === "name" ? ["y"] : ["y", "Enter"], act: () => reply(yes()), main: question.kind !== "name" },
      isPair && { label: "No, two kinds", keys: ["n"], act: () => reply({ edit: "accept", rows: rows() }) },
      second() && question.of >= 0 && { label: [name(placeName(question.other))], keys: ["2", "b"], act: () => reply(second()) },
      !isPair && { label: "Another…", keys: ["m"], act: move },
      !isPair && question.kind !== "name" && question.of >= 0 && { label: "Rename the category…", keys: ["r"], act: rename },
      !isPair && { label: "Junk", keys: ["x", "Delete"], act: () => reply({ edit: "junk", rows: rows() }) },
      { label: "Skip", keys: ["s", "ArrowRight"], act: () => step(null) },
      queue.done.length > 0 && { label: "Back, undo", keys: ["u", "ArrowLeft"], act: back },
    ].filter(Boolean);
  }

  /** Answer at once: the next question is there before the server has said that this one is answered. */
  function reply(wanted) {
    const place = queue.place;
    const answer = { n: null };
    step(answer);
    answering = answering.then(async () => {
      answer.n = await edit(wanted, { say });
      if (answer.n) return;
      queue.place = place; // it was refused, and that was said
      queue.done.length = place;
      show();
    });
  }

  async function move() {
    const asked = now();
    const made = await askMove(rows(), { near: asked.other ?? asked.of, say });
    if (made && now() === asked) step({ n: made });
  }

  async function rename() {
    const asked = now();
    const made = await askRename(asked.of, say);
    if (made && now() === asked) step({ n: made });
  }

  function step(answer) {
    queue.done.push(answer);
    queue.place += 1;
    show();
  }

  /** Take the last answer back, and ask again. */
  async function back() {
    await answering;
    if (!queue.done.length) return;
    const last = queue.done.at(-1);
    if (last?.n && !(await edit({ edit: "undo", of: last.n }, { say }))) return; // why, was said
    queue.done.pop();
    queue.place = queue.done.length;
    show();
  }

  async function show() {
    const mine = (turn += 1);
    const { questions } = queue;
    if (!questions) return;
    count.textContent = questions.length ? `${Math.min(queue.place + 1, questions.length)} of ${questions.length}` : "";
    meter.value = questions.length ? queue.place / questions.length : 1;
    meter.hidden = !questions.length;
    const question = now();
    if (!question) return end();
    draw();
    try {
      const fresh = await Promise.all(question.images.map((image) => get(`/api/image/${image.row}`)));
      if (mine !== turn) return;
      question.images = fresh;
      if (isSettled(question)) { queue.done.push(null); queue.place += 1; show(); } // by others, or by an answer before
    } catch {
      // said in the banner
    }
    const coming = questions[queue.place + 1];
    for (const image of coming?.images ?? []) if (image.v) new Image().src = large(image);
  }

  const isSettled = (question) => (question.of >= 0 && !store.byId.has(question.of)) || (question.other >= 0 && !store.byId.has(question.other))
    || question.images.some((image, index) => image.status || image.of !== (index ? question.other : question.of));

  function draw() {
    const question = now();
    stage.replaceChildren(...question.images.map((image) => h("figure", {},
      image.v ? h("img", { src: large(image), alt: fileName(image.path) }) : h("span", { class: "gone" }, name(fileName(image.path)), " is not where it was."),
      h("figcaption", {}, name(fileName(image.path), { title: plain(image.path) })))));
    const button = ({ label, keys, act, main }) => h("button", { class: main ? "main" : "", onclick: act }, label, h("kbd", {}, keys[0] === "Enter" ? "↵" : keys[0].toUpperCase().replace("ARROWRIGHT", "→")));
    about.replaceChildren(h("h1", { tabindex: -1 }, plain(question.asks)), h("p", { class: "told" }, plain(question.reason)),
      h("div", { class: "actions" }, answers().map(button)),
      ...[...new Set([question.of, question.other])].filter((id) => store.byId.has(id)).map(category));
  }

  function category(id) {
    const it = store.byId.get(id);
    return h("div", { class: "choice" }, h("h2", {}, h("a", { href: placeAddress(id) }, name(it.name)), h("small", {}, many(it.size, "image"))),
      strip(it.faces.map(([row, v]) => ({ row, v, path: "" })), 6, { count: false }));
  }

  function end() {
    const answered = queue.done.filter(Boolean).length;
    stage.replaceChildren();
    const nothing = !queue.questions.length;
    about.replaceChildren(
      h("h1", { tabindex: -1 }, nothing ? "Nothing to ask" : "That is all for now"),
      h("p", { class: "hint" }, nothing ? "There is no image about which nobody has said anything." : `${many(answered, "answer")}. A run that is refined learns from them (Jobs).`),
      h("div", { class: "actions" }, !nothing && h("button", { class: "main", onclick: ask, autofocus: true }, icon("move"), "More", h("kbd", {}, "↵")),
        queue.done.length > 0 && h("button", { onclick: back }, "Back, undo", h("kbd", {}, "U"))));
  }

  async function ask() {
    queue.questions = null;
    stage.replaceChildren();
    about.replaceChildren(h("p", { class: "hint", role: "status" }, "Looking for what helps most…"));
    count.textContent = "";
    meter.hidden = true;
    try {
      await answering;
      const { questions } = await get("/api/next");
      Object.assign(queue, { questions, place: 0, done: [], found: store.state.found });
      show();
    } catch (error) {
      about.replaceChildren(h("p", { class: "hint" }, error.message), h("button", { onclick: ask }, "Try again"));
    }
  }

  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !queue.questions) return false;
    if (event.target.closest?.("button, a") && (event.key === "Enter" || event.key === " ")) return false; // that is pressed
    if (!now()) {
      if (event.key === "Enter" && queue.questions.length) ask();
      else if ((event.key === "u" || event.key === "ArrowLeft") && queue.done.length) back();
      else return false;
      return true;
    }
    const answer = answers().find(({ keys }) => keys.includes(event.key));
    answer?.act();
    return Boolean(answer);
  }

  /** Categories may have other names or be gone; what is asked stays, unless that was found again. */
  function refresh() {
    if (queue.found !== store.state.found && queue.questions) ask();
    else if (now() && !document.querySelector("dialog[open]")) show();
  }

  if (queue.questions && queue.found === store.state.found) show();
  else ask();
  return { title: "Next", node, refresh, key, focus: () => {} };
}
