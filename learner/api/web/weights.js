/* Shows the weights of a model by feature, in the study's units. */

import { signedBars } from "./charts.js";
import { count, h, number, table } from "./dom.js";

const MOST = 25;

/** The largest weights as bars and as a table; of several classes, one class at a time. */
export function weights(model, divisor) {
  if (!["linear", "softmax"].includes(model.kind)) return [];
  const box = h("div", { id: "weights" }), draw = (row, name) => box.replaceChildren(...drawn(model, row, name, divisor));
  if (model.kind === "linear") {
    const row = Array.isArray(model.weights) ? model.weights : spread(model.weights);
    draw(row, model.classes ? model.classes[1] : model.study.label.name);
    return [h("h2", {}, "What it learnt"), box];
  }
  const choose = h("select", { id: "class", onchange: () => draw(model.weights[choose.value], model.classes[choose.value]) },
    model.classes.map((name, index) => h("option", { value: index }, name)));
  draw(model.weights[0], model.classes[0]);
  return [h("h2", {}, "What it learnt"), h("label", { for: "class" }, "Class"), choose, box];
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
  const largest = all.toSorted((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, MOST);
  const moved = isReal ? `the prediction of ${towards}${label.unit ? `, in ${label.unit},` : ""} moves` : `the score of ${towards} moves`;
  const sparse = study.features.find((each) => each.columns);
  const when = sparse ? `where the number of a column is ${number(sparse.bound)} and not 0`
    : "as a number goes from its lower to its upper bound, or as a category takes a value";
  const divided = study.row_norm === "own" ? " A row is then divided by its own length." : "";
  const words = isMapped ? "The study maps its columns, so weights are those of what they are mapped to." : `How far ${moved} ${when}.${divided}`;
  const note = all.length > largest.length ? ` The ${largest.length} largest of ${count(all.length)} are shown.` : "";
  return [h("p", { class: "hint" }, words + note), signedBars(largest, `Weights towards ${towards}, the largest first`),
    h("details", {}, h("summary", {}, "In figures"), table("Weights by feature", ["Feature", "Range", "Moves it by", "Per unit"],
      largest.map(({ name: of, range, value, unit }) => [of, range, number(value, 3), unit])))];
}

function line(weight, name, features) {
  const feature = features.get(name);
  if (feature?.lower === undefined) return { name, range: "", value: weight, unit: "", words: number(weight, 3) };
  const { lower, upper, unit = "" } = feature, value = 2 * weight;
  const range = `${number(lower)} to ${number(upper)}${unit ? ` ${unit}` : ""}`;
  return { name, range, value, unit: `${number(value / (upper - lower), 3)}${unit ? ` a ${unit}` : ""}`, words: `${number(value, 3)} from ${range}` };
}
