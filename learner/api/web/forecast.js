/* Shows the forecast of a run from public facts: what it would achieve, and what it costs and gains each owner. */

import { budgetBar } from "./charts.js";
import { count, duration, examplesOf, facts, h, heading, number, percent, sentence, table } from "./dom.js";
import { inFields } from "./fields.js";
import { OWN_VIEW } from "./studies.js";

export class ForecastPane {
  words = "";
  stillRefused = [];
  warning = "";
  summary = h("div", { id: "expected", "aria-live": "polite" });
  noted = h("p", { class: "warn" });
  details = h("div", {});
  element = h("section", { id: "forecast", "aria-label": "Forecast", class: "card" }, h("h2", {}, "What to expect"), this.noted, this.summary, this.details);

  /** Says what is known without a forecast; nothing if there are no words. */
  note(words) {
    this.noted.replaceChildren(words);
  }

  /** Shows the reason for having no forecast. */
  none(reason) {
    this.words = this.warning = "";
    this.stillRefused = [];
    this.element.removeAttribute("aria-busy");
    this.summary.replaceChildren(h("p", {}, reason));
    this.details.replaceChildren();
  }

  wait() {
    this.stillRefused = [];
    this.warning = "";
    this.element.setAttribute("aria-busy", "true");
    if (!this.summary.childElementCount) this.summary.replaceChildren(h("p", {}, "Working it out …"));
  }

  /** Shows a forecast for a study, whose label gives units, among its owners. */
  take(answer, study, owners) {
    this.element.removeAttribute("aria-busy");
    const unused = answer.unused_file ? [`the study's file has changed and is not used: ${answer.unused_file}`] : [];
    const hindrances = [...unused, ...answer.key_holders].map((reason) => h("p", { class: "warn" }, sentence(reason)));
    this.summary.replaceChildren(h("div", {}, hindrances, this.expected(answer, study)));
    const open = [...this.details.querySelectorAll("details")].map((each) => each.open);
    const chosen = Object.entries(answer.chosen);
    const budgets = new Map(owners.map(({ name, budget }) => [name, budget]));
    this.details.replaceChildren(
      facts([["Algorithm", answer.algorithm], ["Rounds", count(answer.rounds)],
        ["Time", answer.run_time.seconds === null ? "not known" : duration(answer.run_time.seconds)],
        ["Afterwards", Number.isInteger(answer.more_runs) ? `${count(answer.more_runs)} more like this` : "not known"]]),
      ...[answer.instead, answer.delta_buys].filter(Boolean).map((words) => h("p", { class: "hint" }, sentence(words))),
      table("Price and gain of each owner", ["Owner", "Price", "Left for a run after it", "Gain"], answer.owners.map((owner) => this.owner(owner, budgets.get(owner.name), answer.outcome))),
      h("p", { class: "hint" }, OWN_VIEW),
      ...[answer.shared, answer.evaluation].filter(Boolean).map((words) => h("p", { class: "hint" }, sentence(words))),
      chosen.length ? h("details", {}, h("summary", {}, "What was chosen, and why"),
        table("Parameters that were chosen", ["Parameter", "Value", "Why"], chosen.map(([name, why]) => [name, String(name === "algorithm" ? answer.algorithm : answer.parameters[name]), why]))) : "",
      answer.outcome ? h("details", {}, h("summary", {}, "What has to hold for this"), h("ul", {}, answer.outcome.assumptions.map((each) => h("li", {}, each)))) : "");
    this.details.querySelectorAll("details").forEach((each, index) => { each.open = open[index] ?? false; });
  }

  expected({ outcome, no_forecast, majority }, study) {
    this.words = "";
    this.warning = outcome?.warning ?? "";
    if (!outcome) return [h("p", {}, `There is no forecast: ${inFields(no_forecast)}.`)];
    const { excess, rate, warning } = outcome, figures = figuresOf(outcome, study);
    this.words = `excess loss ${number(excess.estimate, 2)}, between ${number(excess.low, 2)} and ${number(excess.high, 2)}`;
    return [!figures && h("p", {}, ...lead(outcome, study)),
      warning && h("p", { class: "warn" }, sentence(warning)), figures,
      h("p", { class: figures && "hint" }, `Expected ${this.words}, in ${percent(rate, 0)} of such runs.`),
      outcome.likely && outcome.likely.excess < outcome.likely.at_zero && h("p", { class: "hint" }, `In ${percent(outcome.likely.chance, 0)} of draws of the noise at most ${number(outcome.likely.excess, 2)} more than the best regularised risk on the owners' own examples, if the model is the exact minimiser.`),
      outcome.unstated && h("p", { class: "hint" }, sentence(outcome.unstated)),
      !figures && majority !== null && h("p", { class: "hint" }, `Always naming the commonest class is right in ${percent(majority)}.`)];
  }

  owner(owner, budget, outcome) {
    const price = owner.epsilon === null ? "no noise, no limit" : `ε\u00a0${number(owner.epsilon, 3)}, δ\u00a0${number(owner.delta, 2)}`;
    const budgetLeft = [budget ? budgetBar(budget, owner.epsilon_left === null ? 0 : owner.epsilon_now - owner.epsilon_left) : "",
      owner.fits === false ? h("span", { class: "bad" }, "does not fit")
        : owner.epsilon_left === null ? "not known" : `ε ${number(owner.epsilon_left, 3)} of ${number(owner.epsilon_now, 3)}`];
    return [owner.name, price, budgetLeft, gain(owner, outcome)];
  }

  /** Why owners would refuse the run, in words. */
  refusals(answer) {
    const spent = answer.owners.filter((owner) => owner.exhausted).map((owner) =>
      `The run is beyond the budget of ${owner.name}: ${owner.exhausted}.`);
    const broken = answer.owners.flatMap((owner) => owner.objections.map((rule) => `${owner.name} would refuse the run: ${inFields(rule)}.`));
    this.stillRefused = [...broken, ...spent];
    return this.stillRefused;
  }
}

/** The forecast in the terms of the study; without a figure if none would hold. */
function lead({ error_lost: points, rmse_lost: rmse }, { label, ...study }) {
  const figure = (words) => h("span", { class: "figure" }, words);
  if (points !== null) return ["Accuracy: ", figure(`0 to ${number(100 * points, 2)} points`), " below the best possible"];
  if (rmse !== null) {
    const unit = label.unit ? ` ${label.unit}` : "";
    return ["Root mean squared error: ", figure(`0 to ${number(rmse * (label.upper - label.lower) / 2, 2)}${unit}`), " above the least possible"];
  }
  return ["Of the ", label.values ? "accuracy" : "error", ` nothing can be said beforehand: at this budget, with so many ${examplesOf(study)}, it may be far from the best possible.`];
}

/** What people read of a model, as far as it is forecast: beside a model without features and an owner's own. */
function figuresOf({ figures = [] }, study) {
  if (!figures.length) return null;
  const rows = figures.map(({ name, title, unit, low, estimate, high, constant, alone }) => {
    const isShare = /accuracy|recall/.test(name);
    const bare = (value) => value === null ? number(value) : isShare ? percent(value) : number(unit ? value : Number(value.toFixed(3)), 3);
    const write = (value) => bare(value) + (unit && value !== null ? ` ${unit}` : "");
    return [heading(title), [write(estimate), h("p", { class: "hint interval" }, `${bare(low)} to ${write(high)}`)], ...[constant, alone].map((each) => h("span", { class: "interval" }, write(each)))];
  });
  return table(`On ${examplesOf(study)} that it has not seen`, ["Figure", "Expected", "Without features", "Alone, no noise"], rows);
}

function gain({ alone, worth_joining: isWorth, recommended }, outcome) {
  if (!alone || !outcome) return "not known";
  const words = `excess loss ${number(alone.estimate, 2)} alone, ${number(outcome.excess.estimate, 2)} together`;
  return [h("span", { class: isWorth ? "good" : "warn" }, isWorth ? "gains" : "does better alone"), h("p", { class: "hint" }, words),
    recommended === false && h("p", { class: "hint" }, "The others would do better without it.")];
}
