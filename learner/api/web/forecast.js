/* What a run would achieve, what it costs each owner, and what each gains: from public facts, before it is run. */

import { budgetBar } from "./charts.js";
import { count, duration, h, number, percent, table } from "./dom.js";
import { facts } from "./studies.js";

export class ForecastPane {
  words = "";
  stillRefused = [];
  summary = h("div", { id: "expected", "aria-live": "polite" });
  details = h("div", {});
  element = h("section", { id: "forecast", "aria-label": "Forecast", class: "card" }, h("h2", {}, "What to expect"), this.summary, this.details);

  /** There is no forecast, and why. */
  none(why) {
    this.words = "";
    this.stillRefused = [];
    this.element.removeAttribute("aria-busy");
    this.summary.replaceChildren(h("p", {}, why));
    this.details.replaceChildren();
  }

  wait() {
    this.stillRefused = [];
    this.element.setAttribute("aria-busy", "true");
    if (!this.summary.childElementCount) this.summary.replaceChildren(h("p", {}, "Working it out …"));
  }

  take(answer, parties) {
    this.element.removeAttribute("aria-busy");
    this.summary.replaceChildren(...this.expected(answer));
    const chosen = Object.entries(answer.chosen);
    const budgets = new Map(parties.map((party) => [party.name, party.budget]));
    this.details.replaceChildren(
      facts([["Algorithm", answer.algorithm], ["Rounds", count(answer.rounds)],
        ["Time", answer.run_time.seconds === null ? "not known" : duration(answer.run_time.seconds)]]),
      table("Price and gain of each owner", ["Owner", "Price", "Left after it", "Gain"], answer.owners.map((owner) => this.owner(owner, budgets.get(owner.name), answer.outcome))),
      chosen.length ? h("details", {}, h("summary", {}, "What was chosen, and why"),
        table("Parameters that were chosen", ["Parameter", "Value", "Why"], chosen.map(([name, why]) => [name, String(name === "algorithm" ? answer.algorithm : answer.parameters[name]), why]))) : "",
      answer.outcome ? h("details", {}, h("summary", {}, "What has to hold for this"), h("ul", {}, answer.outcome.assumptions.map((each) => h("li", {}, each)))) : "");
  }

  expected({ outcome, no_forecast, majority }) {
    this.words = "";
    if (!outcome) return [h("p", {}, `There is no forecast: ${no_forecast}.`)];
    const { excess, rate } = outcome;
    this.words = `excess loss ${number(excess.estimate, 2)}, between ${number(excess.low, 2)} and ${number(excess.high, 2)}`;
    const lead = outcome.error_lost !== null ? ["Accuracy", `at most ${number(100 * outcome.error_lost, 2)} points below the best possible`]
      : outcome.rmse_lost !== null ? ["Root mean squared error", `at most ${number(outcome.rmse_lost, 2)} above the least, the label's bounds being −1 and +1`]
      : ["Loss above the least possible", number(excess.estimate, 2)];
    return [h("p", {}, lead[0], ": ", h("span", { class: "figure" }, lead[1])),
      h("p", {}, `Expected ${this.words}, in ${percent(rate, 0)} of such runs.`),
      majority !== null && h("p", { class: "hint" }, `Always naming the commonest class is right in ${percent(majority)}.`)];
  }

  owner(owner, budget, outcome) {
    const price = owner.epsilon === null ? "no noise, no limit" : `ε ${number(owner.epsilon, 3)}, δ ${number(owner.delta, 2)}`;
    const left = [budget ? budgetBar(budget, owner.epsilon_left === null ? 0 : owner.epsilon_now - owner.epsilon_left) : "",
      owner.fits === false ? h("span", { class: "bad" }, `does not fit: ε ${number(owner.epsilon_now, 3)} is left`)
        : owner.epsilon_left === null ? "not known" : `ε ${number(owner.epsilon_left, 3)} of ${number(owner.epsilon_now, 3)}`];
    return [owner.name, price, left, gain(owner, outcome)];
  }

  /** What owners would refuse, in words. */
  refusals(answer) {
    this.stillRefused = answer.owners.filter((owner) => owner.fits === false).map((owner) =>
      `The run is beyond the budget of ${owner.name}: it would be charged ε = ${number(owner.epsilon, 3)}, and ε = ${number(owner.epsilon_now, 3)} is left.`);
    return this.stillRefused;
  }
}

function gain({ alone, worth_joining: isWorth, recommended }, outcome) {
  if (!alone || !outcome) return "not known";
  const words = `excess loss ${number(alone.estimate, 2)} alone, ${number(outcome.excess.estimate, 2)} together`;
  return [h("span", { class: isWorth ? "good" : "warn" }, isWorth ? "gains" : "does better alone"), h("p", { class: "hint" }, words),
    recommended === false && h("p", { class: "hint" }, "The others would do better without it.")];
}
