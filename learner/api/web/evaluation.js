/* Shows how good a model is: figures with their intervals; of two classes also the threshold, and curves. */

import { ask, session } from "./api.js";
import { plane } from "./charts.js";
import { count, facts, few, field, h, heading, number, percent, section, table, isNarrow, writer } from "./dom.js";
import { STATISTICS } from "./statistics.js";

const AT_POINT = ["recall", "precision", "specificity", "f1", "accuracy", "balanced_accuracy"];
const AXES = ["recall", "specificity", "precision"];
const RULES = [["balanced", "the largest balanced accuracy"], ["f1", "the largest F1"], ["recall", "a recall of at least …"], ["cost", "the least cost of its errors"]];

/** What an evaluation found, of a model or, without one, in the words of its own document. */
export function evaluation(results, model, run, signal) {
  const isBinary = model.classes?.length === 2, points = (isBinary && results.points || []).toSorted((a, b) => a.score - b.score);
  const single = STATISTICS.filter(({ name }) => isFigure(results[name]) && !(points.length && AT_POINT.includes(name)));
  const unit = model.study.label.unit, unsaid = points.length ? [] : Object.entries(results.recall ?? {}).filter(([, recall]) => isUnsaid(recall)).map(([name]) => name);
  const figures = facts(single.map((each) => figure(heading(each.title), results[each.name], writer(each), each.name === "r_squared" ? "" : unit)));
  const isHidden = isBinary && results.points?.length === 0; // noise may hide a whole class
  const bins = results.calibration ?? [], curves = isBinary && !isHidden ? curvesOf(bins, points) : null, ofClass = isBinary ? {} : bins;
  const threshold = points.length ? new Threshold(points, model, run, curves, signal).element
    : isHidden ? h("p", { class: "warn" }, "Noise hides one of the two classes: there is no threshold to choose from, and no curve. A larger ε or more held-out rows would leave some.") : "";
  return [h("h2", {}, "How good it is"),
    h("p", {}, `On ${count(results.rows)} rows that ${results.contributors.length} ${results.contributors.length > 1 ? "owners" : "owner"} held out, at ε = ${number(results.epsilon, 3)}. An interval holds the true figure of these rows in ${percent(results.rate, 0)} of cases.`),
    unsaid.length ? h("p", { class: "warn" }, `The model predicts ${few(unsaid)} of nobody or almost nobody: train with class weights.`) : "", threshold, single.length ? h("div", { id: "evaluation" }, points.length ? h("h3", {}, "At any threshold") : "", figures) : "",
    points.length ? "" : byClass(results, model.classes), points.length || !results.confusion ? "" : confusion(results.confusion, model.classes, true),
    curves ? section("Curves", !isNarrow(), curves.element, curves.inFigures) : "",
    Object.keys(ofClass).length ? section("Curves", false, curvesByClass(ofClass)) : ""].filter((each) => each !== "");
}

/** Whether a recall says that hardly any row of a class is told its class, as the learner judges it. */
const isUnsaid = ({ estimate, low }) => estimate !== null && estimate <= .1 && (low ?? 0) <= .02;

const isFigure = (value) => typeof value?.estimate !== "undefined";

/** The curves of one class against all others; the user chooses the class. */
function curvesByClass(calibration) {
  const box = h("div", {}), draw = (name) => {
    const curves = curvesOf(calibration[name]);
    box.replaceChildren(...curves ? [curves.element, curves.inFigures] : [h("p", {}, "Noise leaves none.")]);
  };
  const choose = h("select", { id: "curves-of", onchange: () => draw(choose.value) }, Object.keys(calibration).map((name) => h("option", {}, name)));
  draw(choose.value);
  return [h("label", { for: "curves-of" }, "Of the class"), choose, box];
}

/** A figure as a name, an estimate, and the interval that noise leaves. */
function figure(name, { estimate, low, high }, write, unit) {
  const words = (value) => unit ? `${write(value)} ${unit}` : write(value);
  return [name, estimate === null ? "not known" : words(estimate), `${low === null ? "−∞" : write(low)} to ${words(high)}`];
}

/** A table of the figures that each class has for itself. */
function byClass(results, classes) {
  const columns = STATISTICS.filter(({ name }) => results[name] && !isFigure(results[name]));
  if (!columns.length || !classes) return "";
  const cell = (each, name) => {
    if (!results[each.name][name]) return "–";
    const found = results[each.name][name], [, estimate, between] = figure("", found, writer(each));
    return [estimate, found.estimate === null && found.low <= 0 && found.high >= 1 ? "" : h("p", { class: "hint" }, between)];
  };
  return table("Of each class", ["Class", ...columns.map(({ title }) => heading(title.replace(/ (?:of )?\{\}/, "")))],
    classes.map((name) => [name, ...columns.map((each) => cell(each, name))]), "by-class");
}

/** A count that noise has changed, as rows are counted. */
const rounded = (value) => count(Math.max(Math.round(value), 0));

/** A table of how many rows of each class are predicted to be of each; a large one is opened by the user. */
function confusion(counts, classes, mayFold = false) {
  const made = table("Rows by class, about", ["", ...classes.map((name) => `predicted ${name}`)],
    counts.map((row, index) => [`is ${classes[index]}`, ...row.map((value, at) => h("span", { class: at === index ? "good" : "bad" }, rounded(value)))]), "confusion");
  return mayFold && classes.length > 6 ? h("details", {}, h("summary", {}, "Confusion matrix"), made) : made;
}

/** The point that a rule chooses, as the learner does; of equals the one nearest to a score of 0. */
export function chosenPoint(points, rule, value) {
  const best = (worth) => points.reduce((one, other) => {
    const gain = worth(other) - worth(one);
    return gain > 0 || (gain === 0 && Math.abs(other.score) < Math.abs(one.score)) ? other : one;
  });
  const estimate = (name) => (point) => point[name].estimate ?? -Infinity;
  if (rule === "balanced") return best(estimate("balanced_accuracy"));
  if (rule === "f1") return best(estimate("f1"));
  if (rule === "recall") return points.findLast((point) => estimate("recall")(point) >= value) ?? null;
  return best(({ confusion: [[, falsePositive], [falseNegative]] }) => -(falsePositive + value * falseNegative));
}

const likelihood = (score) => 1 / (1 + Math.exp(-score));

/** The place of the point nearest to a score, by their probabilities. */
export function nearestPoint(points, score) {
  const away = (point) => Math.abs(likelihood(point.score) - likelihood(score));
  return points.reduce((best, point, index) => away(point) < away(points[best]) ? index : best, 0);
}

/** What scores have too much for probabilities, by class weights, as parley.common.data.class_weights.prior_offset has it. */
function offsetOf({ classes, class_weights: weights }) {
  const [negative, positive] = classes.map((name) => Math.log(weights?.[name] || 1));
  return positive - negative;
}

/** A slider over an evaluation's thresholds, with the figures at each, and the rule that the model's threshold follows. */
class Threshold {
  constructor(points, model, run, curves, signal) {
    Object.assign(this, { points, model, run, curves, signal, positive: model.classes[1], inUse: model.threshold ?? null });
    this.isLogistic = (model.study.loss?.kind ?? "logistic") === "logistic";
    this.offset = offsetOf(model);
    this.slider = h("input", { id: "threshold", type: "range", min: 0, max: points.length - 1, step: 1, oninput: () => this.draw() });
    this.figures = h("div", { id: "at-threshold" });
    this.matrix = h("div", {});
    this.words = h("p", { id: "says", "aria-live": "polite" });
    this.used = h("p", { id: "in-use", role: "status" });
    this.rule = h("select", { id: "rule", onchange: () => this.choose() }, RULES.map(([value, words]) => h("option", { value }, words)));
    this.value = h("input", { id: "rule-value", type: "number", step: "any", oninput: () => this.choose() });
    this.valueField = field("", this.value);
    this.refused = h("div", { class: "alert", role: "alert" });
    this.slider.value = nearestPoint(points, this.inUse?.score ?? 0);
    const [name, number = ""] = (this.inUse?.rule ?? "balanced").split("=");
    if (RULES.some(([each]) => each === name)) this.rule.value = name;
    this.setLimits(number.includes(":") ? Number(number.split(":")[1]) / Number(number.split(":")[0]) : Number(number));
    this.element = h("div", { class: "card", id: "threshold-card" }, h("div", { class: "halves" },
      h("div", {}, h("label", { for: "threshold" }, h("strong", {}, "Threshold")), this.slider, this.words, this.figures), h("div", {}, this.matrix)),
      this.used, this.mayKeep ? h("form", { id: "rules", class: "row", onsubmit: (event) => this.keep(event) }, field("Predict by", this.rule), this.valueField,
        h("button", {}, "Use this rule")) : "", this.refused);
    this.draw();
  }

  get mayKeep() {
    return this.run && (session.may("operator") || (session.may("submitter") && this.run.user === session.user.name));
  }

  get ruleText() {
    const { rule: { value: rule }, value: { valueAsNumber: value } } = this;
    return rule === "recall" ? `recall=${value}` : rule === "cost" ? `cost=1:${value}` : rule;
  }

  /** Shows the number that a rule needs, if it needs one. */
  setLimits(value) {
    const rule = this.rule.value;
    this.valueField.hidden = !["recall", "cost"].includes(rule);
    this.valueField.querySelector("label").textContent = rule === "cost" ? "A missed one costs, in false alarms" : "Recall, from 0 to 1";
    if (!this.valueField.hidden && this.shownRule !== rule) this.value.value = value || (rule === "cost" ? 10 : .9);
    this.shownRule = rule;
  }

  /** Moves the slider to the threshold that the rule chooses. */
  choose() {
    this.setLimits();
    const point = chosenPoint(this.points, this.rule.value, this.value.valueAsNumber);
    this.refused.replaceChildren(point ? "" : h("p", {}, "No threshold that was evaluated has such a recall."));
    if (!point) return;
    this.slider.value = this.points.indexOf(point);
    this.draw();
  }

  draw() {
    const point = this.points[this.slider.value], { score } = point, { classes } = this.model;
    const above = `score is above ${number(score, 3)}${this.isLogistic ? `, a probability of ${number(likelihood(score - this.offset), 2)}` : ""}`;
    this.slider.setAttribute("aria-valuetext", above);
    const isSilent = isUnsaid(point.recall);
    this.words.replaceChildren(`It says “${this.positive}” where the ${above}.`, isSilent ? h("span", { class: "warn" }, ` So it says “${this.positive}” to hardly anybody: choose another threshold, or train with class weights.`) : "");
    this.figures.replaceChildren(facts(AT_POINT.filter((name) => point[name]).map((name) => figure(titleOf(name, this.positive), point[name], writerOf(name)))));
    this.matrix.replaceChildren(confusion(point.confusion, classes));
    this.curves?.mark(point);
    if (!this.run) return; // an evaluation's own page: the rule is its model's
    const { inUse } = this, at = this.points[nearestPoint(this.points, inUse?.score ?? 0)] === point;
    this.used.replaceChildren(inUse ? `In use: the rule ${inUse.rule}, above ${number(inUse.score, 3)}.` : "In use: above 0, where no rule is set.",
      at ? "" : " The slider shows another.", inUse?.unmet ? h("span", { class: "warn" }, ` The rule chose none: ${inUse.unmet}.`) : "");
  }

  async keep(event) {
    event.preventDefault();
    this.refused.replaceChildren();
    try {
      const body = JSON.stringify({ rule: this.ruleText }), headers = { "Content-Type": "application/json" };
      this.inUse = await (await ask(`/v1/runs/${this.run.id}/threshold`, { method: "PUT", body, headers, signal: this.signal })).json();
      this.slider.value = nearestPoint(this.points, this.inUse?.score ?? 0);
      this.draw();
    } catch (error) {
      this.refused.replaceChildren(h("p", {}, error.message));
    }
  }
}

const writerOf = (name) => writer(STATISTICS.find((each) => each.name === name) ?? { shown: "percent" });

const TITLES = { f1: "F1" };
function titleOf(name, positive) {
  const title = STATISTICS.find((each) => each.name === name)?.title ?? TITLES[name] ?? heading(name.replaceAll("_", " "));
  return heading(title.replace("{}", () => positive));
}

const TELLING = .75; // a share whose interval is wider is left out: noise hides it

/** ROC, precision against recall, and calibration, from the counts of an evaluation's bins; null if noise leaves none.
 *  With points, which are estimated better, the first two go through these, and have their intervals. */
export function curvesOf(bins, points = []) {
  if (typeof bins[0]?.positives !== "number") return null; // an earlier Parley did not count them
  const counted = bins.map((bin) => ({ ...bin, positives: Math.max(bin.positives, 0), negatives: Math.max(bin.examples - bin.positives, 0) }));
  const sum = (name) => counted.reduce((total, bin) => total + bin[name], 0), positives = sum("positives"), negatives = sum("negatives");
  if (!(positives > 0 && negatives > 0)) return null;
  let found = 0, wrong = 0;
  const above = counted.toReversed().map((bin) => {
    found += bin.positives;
    wrong += bin.negatives;
    return { low: bin.low, recall: found / positives, fallOut: wrong / negatives, precision: found + wrong > 0 ? found / (found + wrong) : null };
  });
  const known = points.toReversed().filter((each) => AXES.every((name) => each[name].estimate !== null));
  const fallOut = ({ specificity }) => 1 - specificity.estimate;
  const roc = plane({ title: "ROC", x: "false positive rate", y: "recall", diagonal: true,
    line: known.length ? [[0, 0], ...known.map((each) => [fallOut(each), each.recall.estimate]), [1, 1]] : [[0, 0], ...above.map((each) => [each.fallOut, each.recall])],
    ranges: known.map((each) => [fallOut(each), each.recall.low, each.recall.high]) });
  const precision = plane({ title: "Precision and recall", x: "recall", y: "precision",
    line: known.length ? known.map((each) => [each.recall.estimate, each.precision.estimate])
      : above.filter((each) => each.precision !== null).map((each) => [each.recall, each.precision]),
    ranges: known.map((each) => [each.recall.estimate, each.precision.low, each.precision.high]) });
  const shares = counted.filter(({ positive, examples }) => positive.estimate !== null && examples >= 1 && positive.high - (positive.low ?? 0) < TELLING);
  const calibration = plane({ title: "Calibration", x: "probability that the model states", y: "share that is positive", diagonal: true,
    line: shares.map(({ low, high, positive }) => [(low + high) / 2, positive.estimate]),
    ranges: shares.map(({ low, high, positive }) => [(low + high) / 2, positive.low ?? 0, positive.high]) });
  const rows = counted.map(({ low, high, examples, positive }, index) => {
    const { recall, fallOut: wrongly, precision: share } = above.at(-1 - index);
    return [`${number(low, 2)} to ${number(high, 2)}`, rounded(examples), ...figure("", positive, percent).slice(1),
      percent(recall), percent(wrongly), share === null ? "–" : percent(share)];
  });
  return {
    element: h("div", { class: "charts" }, roc.element, precision.element, calibration.element),
    inFigures: h("details", {}, h("summary", {}, "In figures"), table("Rows by the probability that the model states, and what a threshold at its lower end finds",
      ["Probability", "Rows, about", "Positive", "Between", "Recall", "False positive rate", "Precision"], rows)),
    /** Marks a threshold's point on the curves. */
    mark({ recall, specificity, precision: share }) {
      roc.mark(specificity.estimate === null ? null : 1 - specificity.estimate, recall.estimate);
      precision.mark(recall.estimate, share.estimate);
    },
  };
}
