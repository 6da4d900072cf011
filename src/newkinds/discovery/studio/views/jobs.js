// Long work on the run, which the studio starts as a command of its own: how far it is, how to stop it, what it said.

import { h, many, name, percent, plain } from "./dom.js";
import { edit, get, onState, send, store, toast } from "./store.js";

const ASK = 700; // ms between two questions how far it is
const MOST_LINES = 2000;
const COUNTS = { "1m": "1 minute", "10m": "10 minutes", "1h": "1 hour", "4h": "4 hours" };
const FIELDS = {
  time: (options) => choice("time", "How long it may take", options.times.map((time) => [time, COUNTS[time] ?? time]), "10m"),
  to: (options) => choice("to", "Format", options.formats.map((format) => [format, format]), "folders"),
  words: () => typed("words", "Words", "file with words to propose (default: everyday words)"),
  clip: () => typed("clip", "CLIP model", "ViT-B-32, a weight file, a folder (default: one that is on this machine)"),
  weights: () => typed("weights", "Its weights", "file: .safetensors or .pth"),
};
// what can be started: as a heading, while it runs, what it does, what is chosen before
const JOBS = {
  update: { title: "Update", now: "Updating", fields: [], needsModel: true, then: ["#/new", "See what is new"],
    says: "New photos in the run's folder are put into the categories that there are. Names and corrections stay; what is like no category waits, or opens a new one." },
  "undo-update": { title: "Undo the last update", now: "Undoing the update", fields: [], needsModel: true, ifUpdated: true,
    says: "The run is as it was before the last update. Photos stay where they are." },
  refine: { title: "Refine", now: "Refining", fields: ["time"], needsModel: true,
    says: "The model learns from what you accepted, moved, merged and split. The result is a run of its own; this one stays." },
  names: { title: "Suggest names", now: "Looking for names", fields: ["words", "clip", "weights"],
    says: "A CLIP model compares typical images of each new category with words. Nothing is renamed until you choose." },
  report: { title: "Report", now: "Writing the report", fields: [], says: "The page of the run, report.html, again, with all corrections." },
  export: { title: "Export", now: "Exporting", fields: ["to"], says: "What was found, with all corrections, in the format of another tool, or the model. It is written beside the run; nothing is replaced." },
};

/** The job that is running or was the last one, and what it said. */
const last = { status: null, lines: [] };
const watchers = new Set();
let following = false;

function choice(key, label, options, first) {
  return h("label", { class: "field" }, h("span", {}, label), h("select", { name: key },
    options.map(([value, text]) => h("option", { value, selected: value === first }, text))));
}

const typed = (key, label, hint) => h("label", { class: "field" }, h("span", {}, label),
  h("input", { type: "text", name: key, placeholder: hint, maxlength: 4096, autocomplete: "off", spellcheck: "false" }));

function take(status) {
  if (status.number !== last.status?.number) last.lines = [];
  last.lines = [...last.lines, ...status.lines].slice(-MOST_LINES);
  last.status = status;
  for (const watcher of [...watchers]) watcher();
}

const heard = () => (last.status ? last.status.count : 0);

/** Ask how far the job is until it has ended. */
async function follow() {
  if (following) return;
  following = true;
  try {
    for (;;) {
      const before = last.status;
      const status = await get(`/api/job?after=${heard()}`);
      if (status.number === undefined) break;
      if (before && status.number !== before.number) { last.status = null; continue; } // another one: all its lines
      take(status);
      if (status.state !== "running") {
        if (before?.state === "running") tell(status);
        break;
      }
      await new Promise((wake) => setTimeout(wake, ASK));
    }
  } catch {
    // said in the banner
  } finally {
    following = false;
  }
}

/** Say that it has ended, where its page is not open. */
function tell(status) {
  if (location.hash === "#/jobs") return;
  const look = ["Look", () => { location.hash = "#/jobs"; }];
  toast(`${JOBS[status.job].title}: ${plain(status.says)}`, { wrong: status.state === "failed", action: look });
}

async function start(job, form) {
  const chosen = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
  try {
    const status = await send("/api/job/start", JSON.stringify({ job, ...chosen }), "application/json");
    last.status = null;
    take(status);
    scrollTo(0, 0);
    follow();
  } catch (error) {
    toast(error.message, { wrong: true });
  }
}

const stop = () => send("/api/job/stop", "{}", "application/json").catch((error) => toast(error.message, { wrong: true }));

/** What stands in the bar while a job runs. */
export function jobSign() {
  const sign = h("a", { class: "working", href: "#/jobs", hidden: true });
  const fill = () => {
    const status = last.status;
    sign.hidden = status?.state !== "running";
    if (sign.hidden) return;
    const share = status.share === undefined ? "…" : ` ${percent(status.share)}`;
    sign.replaceChildren(h("i", { class: "spin" }), `${JOBS[status.job].now}${share}`);
  };
  watchers.add(fill);
  onState((state) => { if (state.job && state.job !== `${last.status?.number} ${last.status?.state}`) follow(); });
  return sign;
}

/** The proposals for names; a click gives one. */
function proposals({ suggestions, model, check }) {
  const rows = suggestions.filter((one) => store.byId.has(one.id)).map((one) => {
    const it = store.byId.get(one.id);
    const words = one.proposals.map((proposal) => {
      const taken = store.state.categories.some((c) => c.name === proposal.word);
      const has = it.name === proposal.word;
      return h("button", { disabled: taken, dataset: { key: `${one.id} ${proposal.word}` }, title: has ? "it is called so" : taken ? "another category is called so" : `${proposal.agree} of ${one.images} images agree`,
        onclick: () => edit({ edit: "rename", category: one.id, name: proposal.word }) }, has && "✓", plain(proposal.word), h("small", {}, `${proposal.agree}/${one.images}`));
    });
    return h("li", {}, h("a", { href: `#/c/${one.id}` }, name(it.name)), h("span", {}, words.length ? words : "none of its images can be read"));
  });
  const trust = check.in_list
    ? `Of ${many(check.in_list, "known class", "known classes")} with a name in the list, ${check.right} came out right: trust it no further than that.`
    : "None of the known classes has a name in the list, so nothing shows how far to trust this.";
  return [h("p", { class: "hint" }, `By ${plain(model)}. Beside each word: how many of the typical images agree. ${trust}`), h("ul", { class: "proposals" }, rows)];
}

export function jobs() {
  const panel = h("section", { class: "job", "aria-live": "polite", hidden: true });
  const list = h("div", { class: "jobs" });
  const node = h("section", {}, h("h1", {}, "Jobs"), h("p", { class: "hint" }, "What takes a while runs beside the studio: look on meanwhile. One at a time; it ends with the studio."), panel, list);
  const lines = h("pre", { tabindex: 0, "aria-label": "What it said" });
  const meter = h("progress", { max: 1, "aria-label": "Progress" });
  const title = h("h2", {});
  const says = h("p", { class: "told" });
  const stops = h("button", { onclick: stop }, "Stop");
  const result = h("div", {});
  let resultSays = ""; // what it shows, and after how many edits
  panel.append(h("div", { class: "named" }, title, stops), meter, says, result, lines);

  function fill() {
    const { status } = last;
    panel.hidden = !status;
    if (!status) return;
    const job = JOBS[status.job];
    const running = status.state === "running";
    title.textContent = running ? `${job.now}…` : `${job.title}: ${status.state}`;
    says.textContent = running ? status.progress || last.lines.findLast(Boolean) || "" : status.says;
    panel.classList.toggle("wrong", status.state === "failed");
    stops.hidden = meter.hidden = !running;
    if (status.share === undefined) meter.removeAttribute("value");
    else meter.value = status.share;
    const atEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 30;
    lines.hidden = last.lines.filter(Boolean).length < 2; // a single one is the sentence above
    lines.textContent = last.lines.map(plain).join("\n");
    if (atEnd) lines.scrollTop = lines.scrollHeight;
    fillResult(status);
    for (const button of list.querySelectorAll("button")) button.disabled = running;
  }

  /** Proposals for names; the focus stays, or goes to the next one that can be pressed. */
  function fillResult(status) {
    const said = `${status.number} ${status.state} ${store.state.revision}`;
    if (said === resultSays) return;
    resultSays = said;
    const keys = [...result.querySelectorAll("button")].map((button) => button.dataset.key);
    const held = keys.indexOf(result.contains(document.activeElement) ? document.activeElement.dataset.key : null);
    const { then } = JOBS[status.job];
    const link = status.state === "done" && then && h("a", { href: then[0] }, then[1]);
    result.replaceChildren(...(status.names ? proposals(status.names) : link ? [link] : []));
    if (held >= 0) [...result.querySelectorAll("button:not(:disabled)")].find((button) => keys.indexOf(button.dataset.key) >= held)?.focus();
  }

  async function offer() {
    const options = await get("/api/jobs");
    const { state } = store;
    list.replaceChildren(...Object.entries(JOBS).filter(([, job]) => (!job.needsModel || state.model) && (!job.ifUpdated || state.update)).map(([key, job]) => {
      const form = h("form", { class: "offer", onsubmit: (event) => { event.preventDefault(); start(key, form); } },
        h("h2", {}, job.title), h("p", { class: "hint" }, job.says), job.fields.map((field) => FIELDS[field](options)),
        h("button", { type: "submit", class: "main" }, job.title));
      return form;
    }));
    if (!state.model) list.append(h("p", { class: "hint" }, "This run has no model, so it cannot be updated or refined."));
    fill();
  }

  watchers.add(fill);
  offer().catch((error) => toast(error.message, { wrong: true }));
  follow();
  fill();
  return { title: "Jobs", node, refresh: fill, destroy: () => watchers.delete(fill), focus: () => {} };
}

