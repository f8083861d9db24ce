/* Draws charts in SVG. Each has its figures in words too, for users who do not see it. */

import { h, number, svg } from "./dom.js";

const LETTER = 7.2;

/** The width of a drawing: its letters then have their right size, on a telephone too. */
const width = () => Math.min(600, document.documentElement.clientWidth - 40);

/** A box with the drawing of a function for the page's width, drawn again when the width changes. */
function fitted(draw) {
  const box = h("div", { class: "drawing" });
  box.fit = () => box.replaceChildren(draw(width()));
  box.fit();
  return box;
}

window.addEventListener("resize", () => requestAnimationFrame(() => document.querySelectorAll(".drawing").forEach((box) => box.fit())));

/** A budget as a bar: spent, reserved for approved runs, what a further run would take, and left. */
export function budgetBar(budget, next = 0) {
  const limit = budget.epsilon_limit || 1;
  const spent = Math.min(budget.epsilon_spent, limit), reserved = Math.min(budget.epsilon_reserved, limit - spent);
  const taken = Math.min(next, Math.max(limit - spent - reserved, 0));
  const parts = [["spent", 0, spent], ["reserved", spent, reserved], ["next", spent + reserved, taken]];
  const words = `ε: ${number(budget.epsilon_spent, 3)} spent, ${number(budget.epsilon_reserved, 3)} reserved, of ${number(limit)}`;
  return svg("svg", { class: "bar", viewBox: "0 0 200 14", role: "img", "aria-label": words },
    svg("rect", { class: "track", x: .5, y: .5, width: 199, height: 13, rx: 3 }),
    parts.filter(([, , size]) => size > 0).map(([kind, from, size]) =>
      svg("rect", { class: kind, x: 1 + 198 * from / limit, y: 1, width: 198 * size / limit, height: 12, rx: 2 })));
}

/** A line of values by round; of many it draws some. */
export const curve = (values, label) => fitted((width) => line(values, label, width));

function line(values, label, WIDTH) {
  const step = Math.ceil(values.length / WIDTH);
  const points = values.map((value, index) => [index, value]).filter(([index]) => index % step === 0 || index === values.length - 1);
  const low = Math.min(...points.map(([, value]) => value)), high = Math.max(...points.map(([, value]) => value));
  const x = (index) => 60 + (WIDTH - 70) * index / Math.max(values.length - 1, 1);
  const y = (value) => 130 - 115 * (value - low) / (high - low || 1);
  return svg("svg", { viewBox: `0 0 ${WIDTH} 160`, role: "img", "aria-label": `${label}: from ${number(values[0])} to ${number(values.at(-1))}` },
    svg("line", { class: "axis", x1: 60, x2: WIDTH - 10, y1: 138, y2: 138 }),
    svg("text", { class: "soft", x: 54, y: 19, "text-anchor": "end" }, number(high, 3)),
    svg("text", { class: "soft", x: 54, y: 134, "text-anchor": "end" }, number(low, 3)),
    svg("text", { class: "soft", x: 60, y: 154 }, "round 1"),
    svg("text", { class: "soft", x: WIDTH - 10, y: 154, "text-anchor": "end" }, `round ${values.length}`),
    svg("polyline", { class: "curve", points: points.map(([index, value]) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }));
}

/** Values on both sides of zero, one line each: { name, value, words }. */
export const signedBars = (rows, label) => fitted((width) => bars(rows, label, width));

function bars(rows, label, WIDTH) {
  const most = Math.max(...rows.map((row) => Math.abs(row.value))) || 1, line = 22;
  const NAMED = Math.min(.42 * WIDTH, 16 + LETTER * Math.max(...rows.map((row) => row.name.length)));
  const zero = NAMED + (WIDTH - NAMED) / 2, reach = (WIDTH - NAMED) / 2 - 52;
  const drawn = rows.map(({ name, value, words }, index) => {
    const size = reach * Math.abs(value) / most, top = index * line + 4, isUp = value >= 0;
    return svg("g", {}, svg("title", {}, `${name}: ${words}`),
      svg("text", { x: NAMED - 8, y: top + 13, "text-anchor": "end" }, clipped(name, (NAMED - 8) / LETTER)),
      svg("rect", { class: isUp ? "positive" : "negative", x: isUp ? zero : zero - size, y: top, width: Math.max(size, .5), height: line - 6 }),
      svg("text", { class: "soft", x: isUp ? zero + size + 4 : zero - size - 4, y: top + 13, "text-anchor": isUp ? "start" : "end" }, number(value, 3)));
  });
  const height = rows.length * line + 6;
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label },
    svg("line", { class: "axis", x1: zero, x2: zero, y1: 0, y2: height }), drawn);
}

/** A histogram: { name, share: { value, low, high } } each, with the interval that noise leaves. */
export const histogram = (bins, label) => fitted((width) => columns(bins, label, width));

function columns(bins, label, WIDTH) {
  const most = Math.max(...bins.map((bin) => bin.share.high), 1e-9), columnWidth = (WIDTH - 60) / bins.length;
  const y = (share) => 130 - 115 * Math.max(share, 0) / most;
  const drawn = bins.map(({ name, share }, index) => {
    const left = 50 + index * columnWidth, middle = left + columnWidth / 2;
    return svg("g", {}, svg("title", {}, `${name}: ${number(share.value, 3)}, between ${number(share.low, 3)} and ${number(share.high, 3)}`),
      svg("rect", { class: "positive", x: left + 1, y: y(share.value), width: Math.max(columnWidth - 2, 1), height: 130 - y(share.value) }),
      svg("line", { class: "range", x1: middle, x2: middle, y1: y(share.low), y2: y(share.high) }));
  });
  return svg("svg", { viewBox: `0 0 ${WIDTH} 155`, role: "img", "aria-label": label },
    svg("line", { class: "axis", x1: 50, x2: WIDTH - 10, y1: 130, y2: 130 }),
    svg("text", { class: "soft", x: 44, y: 19, "text-anchor": "end" }, number(most, 2)),
    named(bins, columnWidth).map(([index, text]) => svg("text", { class: "soft", x: 50 + (index + .5) * columnWidth, y: 148, "text-anchor": "middle" }, text)), drawn);
}

/** The bins that are named below a histogram, as [index, words]: all, or as many as there is room for, evenly. */
function named(bins, columnWidth) {
  const longest = Math.min(Math.max(...bins.map(({ name }) => name.length)), 14);
  const step = Math.ceil(LETTER * (longest + 1) / columnWidth);
  return bins.map(({ name }, index) => [index, clipped(name, Math.max(longest, columnWidth / LETTER - 1))]).filter(([index]) => index % step === 0);
}

const clipped = (text, most) => text.length > most ? `${text.slice(0, Math.max(Math.floor(most) - 1, 1))}…` : text;
