// Building elements. Names of files and people become text, never HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: h("button", { class: "plain", onclick }, "Undo"). Properties that are undefined or false are left out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("aria-") && typeof value === "boolean") element.setAttribute(name, String(value));
    if (value === undefined || typeof value === "boolean" && (!value || name.startsWith("aria-")) || value === null) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, said] of Object.entries(value)) element.style.setProperty(key, said);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const PATHS = {
  undo: "M9 7 4 12l5 5M4 12h11a5 5 0 0 1 0 10h-2",
  redo: "m15 7 5 5-5 5M20 12H9a5 5 0 0 0 0 10h2",
  help: "M9.2 9a3 3 0 1 1 4.6 2.5c-1 .7-1.8 1.2-1.8 2.5m0 3.4v.1M12 22a10 10 0 1 1 0-20 10 10 0 0 1 0 20",
  image: "M4 5h16v14H4zm0 11 5-5 4 4 2.5-2.5L20 17M15.5 9v.1",
  back: "m14 6-6 6 6 6",
  check: "m5 12 5 5 9-10",
  bin: "M5 7h14M10 7V4h4v3m3 0-1 13H8L7 7m3 4v5m4-5v5",
  move: "M4 12h15m-6-6 6 6-6 6",
  close: "m6 6 12 12M18 6 6 18",
  select: "M4 4h16v16H4zm4 8 3 3 5-6",
  lasso: "M12 4c5 0 9 2.200 9 5.500S17 15 12 15s-9-2.200-9-5.500S7 4 12 4M7 14c-1.500 1-1.500 3 0 3.500s1.500 2.500 0 3.500",
};

/** A drawn sign; what it means must be said beside it or in a label. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

const HIDDEN = /[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]|[\ud800-\udfff]/gu; // of surrogates, only lone ones

/** Text as it can be shown: what turns the direction of writing or breaks lines is written out. */
export function plain(text) {
  return text.replace(HIDDEN, (sign) => {
    const code = sign.codePointAt(0);
    const byte = code >= 0xdc80 && code <= 0xdcff ? code & 0xff : code;
    return byte < 0x100 ? `\\x${byte.toString(16).padStart(2, "0")}` : `\\u${byte.toString(16)}`;
  });
}

/** A name of any direction of writing, which does not turn what stands beside it. */
export function name(text, properties = {}) {
  return h("bdi", { title: plain(text), ...properties }, plain(text));
}

export const percent = (share) => `${Math.round(100 * share)} %`;
export const many = (count, what, plural = `${what}s`) => `${count.toLocaleString("en")} ${count === 1 ? what : plural}`;
export const fileName = (path) => path.split(/[\\/]/).pop() || path;

/** The colour of a category on the map and beside its name. */
export const hue = (id) => Math.round((id * 137.508) % 360);

/** A picture of an image, or a grey tile with its name if it is not there. */
export function picture(row, stamp, path, properties = {}) {
  const gone = () => h("span", { class: "gone", title: plain(path ?? "") }, name(path ? fileName(path) : "not found"));
  if (!stamp) return gone();
  const source = `/thumb/${row}.jpg?v=${encodeURIComponent(stamp)}`;
  const image = h("img", { src: source, alt: "", decoding: "async", draggable: "false", ...properties });
  image.addEventListener("error", () => image.replaceWith(gone()), { once: true });
  return image;
}

/** Whether keys are being typed into something. */
export const isTyping = (target) => target.closest?.("input:not([type=radio],[type=checkbox]), textarea, select") !== null;
