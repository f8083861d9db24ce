/* Shows the weights of a model by feature, in the study's units. */

import { signedBar } from "./charts.js";
import { count, field, h, number } from "./dom.js";

const FIRST = 10, MOST = 300;

/** The largest weights in a table with bars; of several classes, one class at a time. */
export function weights(model, divisor) {
  if (!["linear", "softmax"].includes(model.kind)) return [];
  const box = h("div", { id: "weights" }), draw = (row, name) => box.replaceChildren(...drawn(model, row, name, divisor));
  if (model.kind === "linear") {
    const row = Array.isArray(model.weights) ? model.weights : spread(model.weights);
    draw(row, model.classes ? model.classes[1] : model.study.label.name);
    return [box];
  }
  const choose = h("select", { id: "class", onchange: () => draw(model.weights[choose.value], model.classes[choose.value]) },
    model.classes.map((name, index) => h("option", { value: index }, name)));
  draw(model.weights[0], model.classes[0]);
  return [field("Class", choose), box];
}

/** Weights from their entries that are not zero: { length, index, value }. */
function spread({ length, index, value }) {
  const row = new Array(length).fill(0);
  index.forEach((place, nth) => { row[place] = value[nth]; });
  return row;
}

function drawn({ study, column_names: names }, row, towards, divisor) {
  const { label } = study, isMapped = study.projection || study.random_features, isReal = !label.values;
  const features = new Map(isMapped ? [] : study.features.map((each) => [each.name, each]));
  const scale = isMapped ? 1 : (isReal ? (label.upper - label.lower) / 2 : 1) / (divisor ?? 1);
  const columns = row.length - (study.intercept ? 1 : 0);
  const name = (place) => names[place] ?? (place === columns ? "intercept" : `column ${place + study.features[0].first}`);
  const all = row.slice(0, isReal ? columns : row.length).map((weight, place) => line(weight * scale, name(place), features));
  const largest = all.toSorted((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, MOST), most = Math.abs(largest[0]?.value ?? 0);
  const moved = isReal ? `the prediction of ${towards}${label.unit ? `, in ${label.unit},` : ""} moves` : `the score of ${towards} moves`;
  const sparse = study.features.find((each) => each.columns), isLogistic = !isReal && label.values.length === 2 && (study.loss?.kind ?? "logistic") === "logistic";
  const when = sparse ? `where the number of a column is ${number(sparse.bound)} and not 0`
    : "as a number goes from its lower to its upper bound, or as a category takes a value";
  const divided = study.row_norm === "own" ? " A row is then divided by its own length, which makes a step of one row smaller or larger than that of another." : "";
  const step = sparse || isMapped ? "" : ` A step is a round number of the column's units${isLogistic && !divided ? "; the odds change by the factor that is given" : ""}.`;
  const words = isMapped ? "The study maps its columns, so weights are those of what they are mapped to." : `How far ${moved} ${when}.${step}${divided}`;
  const note = all.length > largest.length ? ` The ${largest.length} largest of ${count(all.length)} are shown.` : "";
  const rows = largest.map((each) => rowOf(each, most, isLogistic && !divided)), body = h("tbody", {}, rows.slice(0, FIRST));
  const more = h("button", { type: "button", id: "all-weights", onclick: () => {
    body.append(...rows.slice(FIRST));
    more.remove();
  } }, `Show all ${largest.length}`);
  return [h("p", { class: "hint" }, words + note),
    h("table", { class: "weights" }, h("caption", { class: "unseen" }, `Weights towards ${towards}, the largest first`),
      h("thead", {}, h("tr", {}, ["Feature", "Effect", "Moves it by", "Per step"].map((each) => h("th", { scope: "col" }, each)))), body),
    rows.length > FIRST ? more : ""];
}

/** A row of the table: the feature and its range, a bar, the value, and what a step of it does. */
function rowOf({ name, range, value, unit, step }, most, hasOdds) {
  const odds = hasOdds && step !== undefined ? `, odds × ${number(Math.exp(step), 3)}` : "";
  return h("tr", {}, h("th", { scope: "row" }, name, range && h("span", { class: "hint" }, ` ${range}`)), h("td", {}, signedBar(value, most)),
    h("td", {}, number(value, 3)), h("td", {}, unit + odds));
}

function line(weight, name, features) {
  const feature = features.get(name);
  if (feature?.lower === undefined) return { name, range: "", value: weight, unit: "" };
  const { lower, upper } = feature, unit = feature.unit ? ` ${feature.unit}` : "", value = 2 * weight;
  const size = 10 ** Math.floor(Math.log10((upper - lower) / 2)), step = value / (upper - lower) * size;
  return { name, range: `${number(lower)} to ${number(upper)}${unit}`, value, step, unit: `${number(step, 3)} per ${number(size)}${unit}` };
}
