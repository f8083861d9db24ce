/* Shows how good a model is: figures with their intervals; of two classes also the threshold, and curves. */

import { ask, session } from "./api.js";
import { plane } from "./charts.js";
import { count, examplesOf, facts, few, field, h, heading, number, percent, section, sentence, table, isNarrow, writer } from "./dom.js";
import { RuleFields, hasThreshold, isLogistic, publicScore, rulesFor } from "./rules.js";
import { STATISTICS, WEIGHED } from "./statistics.js";

const AT_POINT = ["recall", "precision", "specificity", "f1", "accuracy", "balanced_accuracy"];
const BY_CLASS = ["recall", "precision", "f1"];
const AXES = ["recall", "specificity", "precision"];

/** How rows, or persons, of a study count by weights: a sentence, or nothing if each counts once. */
export const weighed = (study) => study.row_weights ? ` ${sentence(WEIGHED[examplesOf(study)].replace("{}", () => study.row_weights.column))}` : "";

/** What an evaluation found, of a model or, without one, in the words of its own document. */
export function evaluation(results, model, run, signal) {
  const examples = examplesOf(model.study), isBinary = model.classes?.length === 2, points = (isBinary && results.points || []).toSorted((a, b) => a.score - b.score);
  const single = STATISTICS.filter(({ name }) => isFigure(results[name]) && !(points.length && AT_POINT.includes(name)));
  const unit = model.study.label.unit, unsaid = points.length ? [] : Object.entries(results.recall ?? {}).filter(([, recall]) => isUnsaid(recall)).map(([name]) => name);
  const figures = facts(single.map((each) => figure(heading(each.title), results[each.name], writer(each), each.name === "r_squared" ? "" : unit)));
  const isHidden = isBinary && results.points?.length === 0; // noise may hide a whole class
  const bins = results.calibration ?? [], curves = isBinary && !isHidden ? curvesOf(bins, points) : null, ofClass = isBinary ? {} : bins;
  const threshold = points.length ? new Threshold(points, results, model, run, curves, signal).element
    : isHidden ? h("p", { class: "warn" }, `Noise hides one of the two classes: there is no threshold to choose from, and no curve. A larger ε or more held-out ${examples} would leave some.`) : "", unseen = points.length || !run ? "" : plainThreshold(model, run, signal);
  return [h("h2", {}, "How good it is"),
    h("p", {}, `On ${count(results.rows)} ${examples} that ${results.contributors.length} ${results.contributors.length > 1 ? "owners" : "owner"} held out, at ε = ${number(results.epsilon, 3)}. An interval holds the true figure of these ${examples} in ${percent(results.rate, 0)} of cases.${weighed(model.study)}`),
    unsaid.length ? h("p", { class: "warn" }, `The model predicts ${few(unsaid)} of nobody or almost nobody: train with class weights.`) : "", threshold, single.length ? h("div", { id: "evaluation" }, points.length ? h("h3", {}, "At any threshold") : "", figures) : "",
    points.length ? "" : byClass(results, model.classes), points.length || !results.confusion ? "" : confusion(results.confusion, model.classes, true), unseen,
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
  return [field("Of the class", choose), box];
}

/** A figure as a name, an estimate, and the interval that noise leaves; nothing in its place if that leaves all of 0 to 1. */
function figure(name, { estimate, low, high }, write, unit) {
  const words = (value) => unit ? `${write(value)} ${unit}` : write(value), isOpen = estimate === null && low <= 0 && high >= 1;
  return [name, estimate === null ? "not known" : words(estimate), isOpen ? "" : `${low === null ? "−∞" : write(low)} to ${words(high)}`];
}

/** A table of the figures that each class has for itself. */
function byClass(results, classes) {
  const columns = STATISTICS.filter(({ name }) => results[name] && !isFigure(results[name]));
  if (!columns.length || !classes) return "";
  const cell = (each, name) => {
    if (!results[each.name][name]) return "–";
    const [, estimate, between] = figure("", results[each.name][name], writer(each));
    return [estimate, between && h("p", { class: "hint" }, between)];
  };
  return table("Of each class", ["Class", ...columns.map(({ title }) => heading(title.replace(/ (?:of )?\{\}/, "")))],
    classes.map((name) => [name, ...columns.map((each) => cell(each, name))]), "by-class");
}

/** A count that noise has changed, as examples are counted. */
const rounded = (value) => count(Math.max(Math.round(value), 0));

/** A table of how many examples of each class are predicted to be of each; a large one is opened by the user. */
function confusion(counts, classes, mayFold = false) {
  const made = table("Counts by class, about", ["", ...classes.map((name) => `predicted ${name}`)],
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

/** The figures at a point, as parley.common.learning.threshold.at_threshold has them: at a score of 0 those that were counted
 *  there, which assume nothing of the data; rules choose by the points' own. */
export function figuresAt(point, results, positive) {
  if (point.score !== 0) return point;
  const counted = (name) => BY_CLASS.includes(name) ? results[name]?.[positive] : results[name];
  return { ...point, ...Object.fromEntries([...AT_POINT, "confusion"].map((name) => [name, counted(name) ?? point[name]])) };
}

/** What scores have too much for probabilities, by class weights, as parley.common.data.class_weights.prior_offset has it. */
function offsetOf({ classes, class_weights: weights }) {
  const [negative, positive] = classes.map((name) => Math.log(weights?.[name] || 1));
  return positive - negative;
}

/** The rule that a model's threshold follows, in words, and the form that changes it; `onchoose` hears of each choice. */
export class KeptRule {
  constructor(model, run, signal, byEvaluation, onchoose = () => {}) {
    Object.assign(this, { run, signal, onchoose, inUse: model.threshold ?? null });
    this.rule = new RuleFields(rulesFor(model.study, byEvaluation), this.inUse?.rule, { first: "a score of 0", label: "Predict by", onchange: () => this.choose() });
    this.words = h("p", { id: "in-use", role: "status" });
    this.refused = h("div", { class: "alert", role: "alert" });
    this.form = this.mayKeep ? h("form", { id: "rules", class: "row", onsubmit: (event) => this.keep(event) }, this.rule.elements, h("button", {}, "Use this rule")) : "";
    this.say();
  }

  get mayKeep() {
    return session.may("operator") || (session.may("submitter") && this.run.user === session.user.name);
  }

  get score() {
    return this.inUse?.score ?? 0;
  }

  say(more = "") {
    const { inUse } = this;
    this.words.replaceChildren(inUse ? `In use: the rule ${inUse.rule}, above ${number(inUse.score, 3)}.` : "In use: above 0, where no rule is set.", more,
      inUse?.unmet ? h("span", { class: "warn" }, ` The rule chose none: ${inUse.unmet}.`) : "");
  }

  choose() {
    this.refused.replaceChildren();
    this.onchoose(this.rule);
  }

  async keep(event) {
    event.preventDefault();
    this.refused.replaceChildren();
    try {
      const body = JSON.stringify({ rule: this.rule.text || "none" }), headers = { "Content-Type": "application/json" };
      this.inUse = await (await ask(`/v1/runs/${this.run.id}/threshold`, { method: "PUT", body, headers, signal: this.signal })).json();
      this.say();
      this.onchoose(null);
    } catch (error) {
      this.refused.replaceChildren(h("p", {}, error.message));
    }
  }
}

/** A slider over an evaluation's thresholds, with the figures at each, and the rule that the model's threshold follows. */
class Threshold {
  constructor(points, results, model, run, curves, signal) {
    Object.assign(this, { points, results, model, curves, positive: model.classes[1], offset: offsetOf(model) });
    this.slider = h("input", { id: "threshold", type: "range", min: 0, max: points.length - 1, step: 1, oninput: () => this.draw() });
    this.figures = h("div", { id: "at-threshold" });
    this.matrix = h("div", {});
    this.words = h("p", { id: "says", "aria-live": "polite" });
    this.modelRule = run ? new KeptRule(model, run, signal, true, (rule) => this.choose(rule)) : null; // none on an evaluation's own page
    this.slider.value = nearestPoint(this.points, model.threshold?.score ?? 0);
    this.element = h("div", { class: "card halves", id: "threshold-card" },
      h("div", {}, h("label", { for: "threshold" }, h("strong", {}, "Threshold")), this.slider, this.words, this.figures),
      h("div", {}, this.matrix, this.modelRule ? [this.modelRule.words, this.modelRule.form, this.modelRule.refused] : ""));
    this.draw();
  }

  /** Moves the slider to the threshold that a rule chooses, or to the one in use. */
  choose(rule) {
    const score = rule?.name ? publicScore(rule.name, rule.value, this.model.study, this.offset) : rule ? 0 : this.modelRule.score;
    const point = score === null ? chosenPoint(this.points, rule.name, rule.value) : this.points[nearestPoint(this.points, score)];
    if (!point) this.modelRule.refused.replaceChildren(h("p", {}, "No threshold that was evaluated has such a recall."));
    else this.slider.value = this.points.indexOf(point);
    this.draw();
  }

  draw() {
    const point = this.points[this.slider.value], { classes, study } = this.model;
    const atScore = figuresAt(point, this.results, this.positive), above = aboveInWords(point.score, study, this.offset);
    this.slider.setAttribute("aria-valuetext", above);
    const isSilent = isUnsaid(atScore.recall);
    this.words.replaceChildren(`It says “${this.positive}” where the ${above}.`, isSilent ? h("span", { class: "warn" }, ` So it says “${this.positive}” to hardly anybody: choose another threshold, or train with class weights.`) : "");
    this.figures.replaceChildren(facts(AT_POINT.filter((name) => atScore[name]).map((name) => figure(titleOf(name, this.positive), atScore[name], writerOf(name)))));
    this.matrix.replaceChildren(confusion(atScore.confusion, classes));
    this.curves?.mark(point);
    this.modelRule?.say(this.points[nearestPoint(this.points, this.modelRule.score)] === point ? "" : " The slider shows another.");
  }
}

/** A score that has to be exceeded, in words, with the probability that it is of. */
const aboveInWords = (score, study, offset) => `score is above ${number(score, 3)}${isLogistic(study) ? `, a probability of ${number(likelihood(score - offset), 2)}` : ""}`;

/** The threshold of a model that no evaluation has figures for; nothing where models of its study have none. */
export function plainThreshold(model, run, signal) {
  if (model.kind !== "linear" || !hasThreshold(model.study)) return "";
  const modelRule = new KeptRule(model, run, signal, false), hasRules = Object.keys(rulesFor(model.study, false)).length > 0;
  return h("div", { id: "threshold-card" }, modelRule.words, hasRules && modelRule.form ? h("details", {}, h("summary", {}, "Change its threshold"), modelRule.form, modelRule.refused) : "");
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
  const calibration = plane({ title: "Calibration", x: "probability by the model", y: "share that is positive", diagonal: true,
    line: shares.map(({ low, high, positive }) => [(low + high) / 2, positive.estimate]),
    ranges: shares.map(({ low, high, positive }) => [(low + high) / 2, positive.low ?? 0, positive.high]) });
  const rows = counted.map(({ low, high, examples, positive }, index) => {
    const { recall, fallOut: wrongly, precision: share } = above.at(-1 - index);
    return [`${number(low, 2)} to ${number(high, 2)}`, rounded(examples), ...figure("", positive, percent).slice(1),
      percent(recall), percent(wrongly), share === null ? "–" : percent(share)];
  });
  return {
    element: h("div", { class: "charts" }, roc.element, precision.element, calibration.element),
    inFigures: h("details", {}, h("summary", {}, "In figures"), table("Counts by the probability that the model states, and what a threshold at its lower end finds",
      ["Probability", "Count, about", "Positive", "Between", "Recall", "False positive rate", "Precision"], rows)),
    /** Marks a threshold's point on the curves. */
    mark({ recall, specificity, precision: share }) {
      roc.mark(specificity.estimate === null ? null : 1 - specificity.estimate, recall.estimate);
      precision.mark(recall.estimate, share.estimate);
    },
  };
}
