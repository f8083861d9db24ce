/* Draws charts in SVG. Each has its figures in words too, for users who do not see it. */

import { h, number, svg } from "./dom.js";

const LETTER = 7.2;

/** A box with a drawing that is as wide as the box, at most so wide, and is drawn again when the width changes. */
function fitted(draw, most = 600) {
  const box = h("div", { class: "drawing" });
  let drawn = 0;
  box.fit = () => {
    const width = Math.min(most, box.clientWidth || document.documentElement.clientWidth - 40);
    if (width !== drawn) box.replaceChildren(draw(drawn = width));
  };
  box.redraw = () => {
    drawn = 0;
    box.fit();
  };
  box.fit();
  new ResizeObserver(box.fit).observe(box);
  return box;
}

/** What is spent of a budget, whenever it is read and if no question had depended on an answer; what is reserved, and the limit. */
export function budgetInWords({ epsilon_spent: spent, epsilon_nonadaptive: nonadaptive, epsilon_reserved: reserved, epsilon_limit: limit }) {
  const holds = spent === null ? "more than allowed" : number(spent, 3);
  const beside = spent === nonadaptive ? "" : ` (nonadaptive ${number(nonadaptive, 3)})`;
  return `${holds} spent${beside}, ${number(reserved, 3)} reserved, of ${number(limit)}`;
}

/** A budget as a bar: spent (as the filter counts it, which ends at the limit), reserved for approved runs, what a further run would take, and left. */
export function budgetBar(budget, next = 0) {
  const limit = budget.epsilon_limit || 1;
  const spent = Math.min(budget.epsilon_nonadaptive, limit), reserved = Math.min(budget.epsilon_reserved, limit - spent);
  const taken = Math.min(next, Math.max(limit - spent - reserved, 0));
  const parts = [["spent", 0, spent], ["reserved", spent, reserved], ["next", spent + reserved, taken]];
  return svg("svg", { class: "bar", viewBox: "0 0 200 14", role: "img", "aria-label": `ε: ${budgetInWords(budget)}` },
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

/** A value on one side of zero as a bar; `most` is the largest of all values that are compared. */
export function signedBar(value, most) {
  const size = Math.max(Math.abs(value) / (most || 1), .004);
  return svg("svg", { class: "signed", viewBox: "-1 0 2 1", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: value >= 0 ? "positive" : "negative", x: value >= 0 ? 0 : -size, y: .1, width: size, height: .8 }),
    svg("line", { class: "axis", x1: 0, x2: 0, y1: 0, y2: 1 }));
}

const MANY = 20;

/** A line in the unit square, with ranges [x, low, high], a band if there are many, and a mark that moves: { element, mark(x, y) }. */
export function plane({ title, x: across, y: upwards, line: points, ranges = [], diagonal = false }) {
  let marked = null;
  const summary = `${title}: ${upwards} against ${across}, ${points.length} points, from ${words(points[0])} to ${words(points.at(-1))}`;
  const box = fitted((width) => square({ across, upwards, points, ranges, diagonal, marked, summary }, width));
  return {
    element: h("figure", {}, h("figcaption", {}, title), box),
    mark(x, y) {
      marked = x === null || y === null ? null : [x, y];
      box.redraw();
    },
  };
}

const words = (point) => point ? `(${number(point[0], 2)}, ${number(point[1], 2)})` : "nothing";

function square({ across, upwards, points, ranges, diagonal, marked, summary }, WIDTH) {
  const HEIGHT = Math.min(WIDTH, 340), x = (value) => 40 + (WIDTH - 50) * value, y = (value) => HEIGHT - 36 - (HEIGHT - 60) * Math.min(Math.max(value, 0), 1);
  const at = ([one, other]) => `${x(one).toFixed(1)},${y(other).toFixed(1)}`;
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": summary + (marked ? `; the threshold is at ${words(marked)}` : "") },
    [0, .5, 1].map((value) => [svg("line", { class: "grid", x1: x(0), x2: x(1), y1: y(value), y2: y(value) }), svg("line", { class: "grid", x1: x(value), x2: x(value), y1: y(0), y2: y(1) }),
      svg("text", { class: "soft", x: 34, y: y(value) + 4, "text-anchor": "end" }, String(value)),
      svg("text", { class: "soft", x: x(value), y: HEIGHT - 20, "text-anchor": value === 1 ? "end" : "middle" }, String(value))]),
    svg("text", { class: "soft", x: x(.5), y: HEIGHT - 4, "text-anchor": "middle" }, across), svg("text", { class: "soft", x: 10, y: 14 }, upwards),
    diagonal ? svg("line", { class: "reference", x1: x(0), x2: x(1), y1: y(0), y2: y(1) }) : null,
    ranges.length > MANY ? svg("polygon", { class: "band", points: [...ranges.map(([where, low]) => [where, low]), ...ranges.map(([where, , high]) => [where, high]).toReversed()].map(at).join(" ") })
      : ranges.map(([where, low, high]) => svg("line", { class: "range", x1: x(where), x2: x(where), y1: y(low), y2: y(high) })),
    svg("polyline", { class: "curve", points: points.map(at).join(" ") }),
    ranges.length && ranges.length <= MANY ? points.map(([one, other]) => svg("circle", { class: "positive", cx: x(one), cy: y(other), r: 3 })) : null,
    marked ? svg("circle", { class: "mark", cx: x(marked[0]), cy: y(marked[1]), r: 6 }) : null);
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
