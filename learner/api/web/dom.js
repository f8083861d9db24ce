/* Makes elements, figures and words. All that the API says becomes text, never markup. */

import { inFields } from "./fields.js";

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

/** An element: attributes by name, listeners as `onclick`, children as elements or text; null is left out. */
export const h = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);

/** The same of SVG. */
export const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

/** What a study counts, in the plural; it comes as its document, or in short. */
export const examplesOf = ({ person, unit }) => person || unit === "person" ? "persons" : "rows";

/** A table in a box that scrolls by itself: headings, then rows of cells; the first of a row names it. */
export function table(caption, headings, rows, id) {
  const body = rows.map((cells) => h("tr", {}, cells.map((cell, index) =>
    h(index ? "td" : "th", { scope: index ? null : "row", "data-label": headings[index] }, cell))));
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { id, class: headings.length > 2 && !["comparison", "confusion"].includes(id) && "stack" }, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, headings.map((each) => h("th", { scope: "col" }, each)))), h("tbody", {}, body)));
}

/** Pairs of name and value as a list; a third, if there is one, stands below in small. */
export const facts = (pairs) => h("ul", { class: "facts" }, pairs.map(([name, value, hint]) =>
  h("li", {}, h("span", {}, name, " "), h("strong", {}, value), hint && h("small", {}, ` ${hint}`))));

/** A part of the page that the user opens and closes, below a heading. */
export const section = (title, open, ...children) => h("details", { class: "section", open }, h("summary", {}, h("h2", {}, title)), children);

/** Whether there is little room, as on a telephone. */
export const isNarrow = () => matchMedia("(max-width: 44rem)").matches;

/** A field with its label and, where there is one, what it means. */
export function field(label, input, hint) {
  const id = input.id || `field-${Math.random().toString(36).slice(2)}`;
  input.id = id;
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: id }, label), input, hint && h("p", { id: `${id}-hint`, class: "hint" }, hint));
}

/** Says something in the live region, for eyes and screen readers. */
export function showNotice(words) {
  if ($("notice").textContent !== words) $("notice").textContent = words;
}

/** Shows an error, except for a request that was cancelled on purpose. */
export function showError(error) {
  if (error?.name !== "AbortError") showNotice(error?.message ?? String(error));
}

/** A figure in so many digits; of the smallest, as 1e−5. */
export function number(value, digits = 4) {
  if (value === null || value === undefined) return "not known";
  const rounded = Number(value.toPrecision(digits)), isSmall = value !== 0 && Math.abs(value) < 1e-3;
  return (isSmall ? rounded.toExponential() : rounded.toString()).replaceAll("-", "−");
}
/** A bound in so many digits, rounded up: what is shown promises no more than what is proven. */
export function bound(value, digits = 3) {
  const unit = 10 ** (Math.floor(Math.log10(value)) + 1 - digits);
  return number(value > 0 && value <= 1e300 ? Math.ceil(value * (1 - 1e-9) / unit) * unit : value, digits);
}
export const count = (value) => value.toLocaleString("en");
/** A clause of the learner's as a sentence. */
export const heading = (words) => `${words[0].toUpperCase()}${words.slice(1)}`;
export const sentence = (words) => `${heading(inFields(words))}.`;
export const percent = (value, digits = 1) => `${(100 * value).toFixed(digits)} %`;
/** How a statistic's values are written. */
export const writer = ({ shown }) => (value) => shown === "percent" ? percent(value) : number(value, 3);
export const when = (text) => new Date(text).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });

/** A time in a list: without seconds, and without the year if it is this one. */
export function whenInShort(text) {
  const time = new Date(text), year = time.getFullYear() === new Date().getFullYear() ? undefined : "numeric";
  return time.toLocaleString([], { year, month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
}

/** A time for people: about 8 s, 3 min, 2 h. */
export function duration(seconds) {
  if (seconds < 1) return "less than 1 s";
  if (seconds < 100) return `about ${Math.round(seconds)} s`;
  return seconds < 6000 ? `about ${Math.round(seconds / 60)} min` : `about ${Math.round(seconds / 3600)} h`;
}

/** A few names, and how many more. */
export function few(names, most = 5) {
  return names.slice(0, most).join(", ") + (names.length > most ? ` and ${names.length - most} more` : "");
}

/** The mark of a state. */
export const badge = (state) => h("span", { class: `badge ${state}` }, state);

/** The first sentence or clause of what may be long. */
export function firstWords(text, most = 160) {
  const first = inFields(text).split(/(?<=[.;])\s/)[0].replace(/[.;]$/, "");
  return first.length > most ? `${first.slice(0, most - 1)}…` : first;
}

export const ENDS = ["completed", "failed", "cancelled"];

/** Calls `change` when it has not been called for so many milliseconds. */
export function debounced(change, milliseconds) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(change, milliseconds);
  };
}
