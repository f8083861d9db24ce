/* Chooses the rule for the threshold of a model of two classes: a list of rules, and the number that some of them need. */

import { FIELDS } from "./fields.js";
import { field, h } from "./dom.js";

const BY_EVALUATION = { balanced: "the best balanced accuracy", f1: "the best F1", recall: "a recall of at least …", cost: "the least cost of errors …" };
const BY_PROBABILITY = { probability: "a probability above …", prevalence: "a probability above its share" };
const NUMBERS = { recall: ["Recall, from 0 to 1", .9], cost: ["A missed one costs, in false alarms", 10], probability: ["Probability, from 0 to 1", .1] };

/** Whether models of a study have a threshold: of two classes, with one score. */
export const hasThreshold = ({ label, loss }) => label.values?.length === 2 && loss?.kind !== "softmax";

/** Whether a study's loss fits probabilities. */
export const isLogistic = ({ loss }) => (loss?.kind ?? "logistic") === "logistic";

/** The rules for models of a study as { name: words }: those that choose `byEvaluation` too, or the public ones alone. */
export function rulesFor(study, byEvaluation) {
  const { prevalence, ...probability } = BY_PROBABILITY, byShare = study.label.shares ? { prevalence } : {};
  return { ...byEvaluation ? BY_EVALUATION : {}, ...isLogistic(study) ? { ...probability, ...byShare } : {} };
}

/** The score above which a public rule says yes, where scores have `offset` too much for probabilities; null of others. */
export function publicScore(rule, value, study, offset) {
  const share = rule === "probability" ? value : rule === "prevalence" ? study.label.shares[1] / (study.label.shares[0] + study.label.shares[1]) : null;
  return share === null ? null : Math.log(share / (1 - share)) + offset;
}

/** The two fields of a rule; `first` is the word for no rule, if that may be chosen. */
export class RuleFields {
  constructor(rules, stated, { first = null, label = FIELDS.threshold, id = "rule", onchange = () => {} } = {}) {
    this.select = h("select", { id, onchange: () => { this.showNumber(); onchange(); } },
      first === null ? "" : h("option", { value: "" }, first), Object.entries(rules).map(([value, words]) => h("option", { value }, words)));
    this.number = h("input", { id: `${id}-value`, type: "number", step: "any", oninput: onchange });
    this.numberField = field("", this.number);
    this.elements = [field(label, this.select), this.numberField];
    const [name, text = ""] = (stated ?? "").split("=");
    if (name in rules) this.select.value = name;
    const [one, other] = text.split(":").map(Number);
    this.showNumber(other === undefined ? one : other / one);
  }

  get name() {
    return this.select.value;
  }

  get value() {
    return this.number.valueAsNumber;
  }

  /** The rule as the learner reads it; empty for none. */
  get text() {
    const { name, value } = this;
    return name === "cost" ? `cost=1:${value}` : name in NUMBERS ? `${name}=${value}` : name;
  }

  /** Shows the number that the rule needs, if it needs one. */
  showNumber(value) {
    const { name } = this;
    this.numberField.hidden = !(name in NUMBERS);
    if (this.numberField.hidden || this.ruleOfNumber === name) return;
    this.ruleOfNumber = name;
    const [words, usual] = NUMBERS[name];
    this.numberField.querySelector("label").textContent = words;
    this.number.value = value || usual;
  }
}
