/* Shows one run live: the news of its stream, drawn once a frame however fast its rounds are. */

import { events, get, post, session } from "./api.js";
import { curve } from "./charts.js";
import { ENDS, badge, count, duration, facts, few, h, number, percent, sentence, table, showNotice, showError, when } from "./dom.js";
import { inFields } from "./fields.js";

const HIDDEN = { replace_one: "one record replaced", person: "all rows of one person, with one owner, replaced", whole_party: "all the data of an owner replaced", auxiliary_row: "one of the public rows replaced" };
const OF_EXAMPLES = { replace_one: "one record", person: "all rows of one person" };

/** What a promise, or a run, hides of those who are with so many of the owners. */
export const hiddenAt = (adjacency, overlap) => overlap > 1 && OF_EXAMPLES[adjacency] ? `${OF_EXAMPLES[adjacency]}, with up to ${count(overlap)} owners, replaced` : HIDDEN[adjacency];
const RECENT = 20, MANY = 50;

export async function show(main, id, signal) {
  const view = new LiveRun(id, signal);
  main.append(view.element);
  await view.showTerms();
  for await (const [kind, data] of events(`/v1/runs/${id}/events`, signal, (error) => showNotice(error ? "The learner does not answer; the run is taken up again when it does." : ""))) {
    if (kind === "state" && data.state === "running" && !view.hasRounds) await view.showTerms();
    view.take(kind, data);
    if (ENDS.includes(data.state)) break;
  }
  view.draw();
  if (view.state === "completed") view.stepBack();
  if (view.state === "completed") await (await import("./model.js")).showModel(view.result, view.terms, signal);
}

class LiveRun {
  state = "";
  pause = null;
  round = null;
  objectives = [];
  times = [];
  owners = new Map();
  title = h("h1", {}, "Run");
  words = h("p", { id: "terms" });
  cautions = h("div", { id: "cautions" });
  keptForEvaluation = h("div", {});
  line = h("p", { id: "state", role: "status" });
  still = h("div", { id: "pause", class: "alert pause", role: "status" });
  bar = h("progress", { class: "whole", "aria-label": "Rounds" });
  figures = h("div", { id: "figures" });
  chart = h("div", { id: "chart" });
  parties = h("div", { id: "owners" });
  chosen = h("div", {});
  course = h("details", { id: "course", class: "section", open: true }, h("summary", {}, h("h2", {}, "Rounds and owners")), this.keptForEvaluation, this.chart, this.parties, this.chosen);
  result = h("div", { id: "result" });
  cancel = h("button", { id: "cancel", type: "button", class: "danger", hidden: true, onclick: () => this.ask("cancel") }, "Cancel the run");
  resume = h("button", { id: "resume", type: "button", hidden: true, onclick: () => this.ask("resume") }, "Go on now");

  constructor(id, signal) {
    Object.assign(this, { id, signal });
    this.element = h("article", { "data-run": id }, this.title, this.words, this.cautions,
      h("div", { class: "row" }, this.line, this.resume, this.cancel), this.still, this.bar, this.figures, this.result, this.course);
  }

  get hasRounds() {
    return this.round !== null;
  }

  async showTerms() {
    const terms = this.terms = await get(`/v1/runs/${this.id}`, this.signal);
    document.title = `${terms.study} · ${terms.algorithm} · Parley`;
    this.title.textContent = terms.evaluates ? `An evaluation on ${terms.study}` : `${terms.algorithm} on ${terms.study}`;
    const words = [`by ${terms.user}, ${when(terms.created)}`, `ε ≤ ${number(Math.max(...Object.values(terms.epsilon)))} for ${hiddenAt(terms.adjacency, terms.overlap)}`];
    if (terms.purpose) words.unshift(terms.purpose);
    words.push(terms.secure_sum === "none" ? "the learner sees each answer" : "the learner sees sums alone");
    if (terms.class_weights && !terms.evaluates) words.push(`class weights: ${few(Object.entries(terms.class_weights).map(([name, weight]) => `${name} ${number(weight, 3)}`))}`);
    if (terms.public && !terms.evaluates) words.push(`asks about ${count(terms.public.rows)} public rows`);
    const expected = sessionStorage.getItem(`expected ${this.id}`);
    if (expected) words.push(`expected: ${expected}`);
    this.words.replaceChildren(words.join(" · "), ...(terms.evaluates ? [" · ", h("a", { href: `#run/${terms.evaluates}` }, "the run whose model it evaluates")] : []));
    this.cautions.replaceChildren(...terms.cautions.map((words) => h("p", { class: "warn" }, sentence(words))));
    this.keptForEvaluation.replaceChildren(terms.evaluation ? h("p", { class: "hint" }, sentence(terms.evaluation)) : "");
    for (const name of terms.parties) this.set(name, { state: "takes part" });
    for (const [name, why] of Object.entries(terms.absent)) this.set(name, { state: `absent: ${why}` });
    const choices = Object.entries(terms.chosen);
    this.chosen.replaceChildren(choices.length ? h("details", {}, h("summary", {}, "What was chosen for it, and why"),
      table("Parameters that were chosen", ["Parameter", "Value", "Why"], choices.map(([name, why]) => [name, String(name === "algorithm" ? terms.algorithm : terms.parameters[name]), why]))) : "");
  }

  set(name, change) {
    this.owners.set(name, { epsilon: 0, state: "takes part", ...this.owners.get(name), ...change });
  }

  take(kind, data) {
    if (kind === "state") {
      this.state = data.state;
      this.pause = data.reason ? data : null;
      this.problem = data.problem;
      this.follower = data.evaluated_by;
    }
    if (kind === "dropped") this.set(data.party, { epsilon: data.epsilon, state: `lost in round ${data.round}: ${data.reason}` });
    if (kind === "round") {
      this.round = data;
      this.times.push(data.ms);
      if ("objective" in data) this.objectives.push(data.objective);
      for (const [name, epsilon] of Object.entries(data.epsilon)) this.set(name, { epsilon });
    }
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = undefined;
    const hasEnded = ENDS.includes(this.state);
    if (this.shownState !== this.state) this.line.replaceChildren("State: ", badge(this.shownState = this.state));
    this.cancel.hidden = hasEnded || !this.mayChange;
    this.resume.hidden = this.state !== "paused" || !this.mayChange;
    this.still.replaceChildren(...this.whyStill());
    this.still.classList.toggle("pause", !this.problem);
    this.bar.hidden = hasEnded;
    if (this.round) [this.bar.max, this.bar.value] = [this.round.of, this.round.round];
    if (this.round) this.figures.replaceChildren(facts(this.pairs(hasEnded)));
    if (this.objectives.length > 1) this.chart.replaceChildren(h("h3", {}, "Objective on public examples"), curve(this.objectives, "Objective by round"));
    const firstOwners = [...this.owners].slice(0, MANY), more = this.owners.size - firstOwners.length;
    const rows = firstOwners.map(([name, owner]) => [name, `ε ${number(owner.epsilon, 3)}`, this.round?.stragglers.includes(name) && !hasEnded ? "slow" : owner.state === "takes part" && hasEnded ? this.round ? "took part" : "was asked" : owner.state]);
    this.parties.replaceChildren(table("Owners of this run", ["Owner", "Spent", "State"], rows), more > 0 ? h("p", { class: "hint" }, `and ${count(more)} more`) : "");
  }

  /** Leaves the place to the model: it is what counts once the run has completed. */
  stepBack() {
    this.course.open = false;
    this.course.querySelector("summary").after(this.figures);
  }

  get mayChange() {
    return session.may("operator") || (session.may("submitter") && this.terms.user === session.user.name);
  }

  whyStill() {
    if (this.problem) return [h("p", {}, inFields(this.problem.detail))];
    if (!this.pause) return [];
    const { reason, who, since } = this.pause;
    return [h("p", {}, `${this.state === "paused" ? "Paused" : "Waiting"} since ${when(since)}: ${reason}`), who?.length ? h("p", {}, `Waits for ${few(who)}.`) : ""];
  }

  pairs(hasEnded) {
    const { round, of, ms, stragglers, missed, accuracy, objective, r_squared: rSquared } = this.round;
    const recent = this.times.slice(-RECENT), mean = recent.reduce((sum, time) => sum + time, 0) / recent.length / 1000;
    const pairs = [["Round", `${count(round)} of ${count(of)}`]];
    if (hasEnded) pairs.push(["A round took", `${number(1000 * mean, 3)} ms`]);
    else pairs.push(["Time left", round < of ? duration((of - round) * mean) : "none"], ["Last round", `${number(ms, 3)} ms`]);
    if (objective !== undefined) pairs.push(["Objective", number(objective)]);
    if (accuracy !== undefined) pairs.push(["Accuracy, public", percent(accuracy)]);
    if (rSquared !== undefined) pairs.push(["R², public", number(rSquared, 3)]);
    if (stragglers.length && !hasEnded) pairs.push(["Slow", few(stragglers)]);
    if (missed?.length && !hasEnded) pairs.push(["Missed this round", few(missed)]);
    return pairs;
  }

  async ask(action) {
    try {
      await post(`/v1/runs/${this.id}/${action}`, undefined, this.signal);
      showNotice(action === "cancel" ? "The run is being cancelled." : "The run is asked to go on.");
    } catch (error) {
      showError(error);
    }
  }
}
