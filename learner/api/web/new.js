/* The form for a new run: four fields, more on demand, and a forecast that changes as the user types. */

import { changes, get, post, session } from "./api.js";
import { debounced, facts, few, field, firstWords, h, showNotice, showError } from "./dom.js";
import { FIELDS } from "./fields.js";
import { ForecastPane } from "./forecast.js";
import { RuleFields, hasThreshold, rulesFor } from "./rules.js";
import { LATER, factsOf, listings, ownersOf } from "./studies.js";

const PAUSE = 250;
const SHOWN = ["adjacency", "overlap", "minimum_contributors", "colluders", "seconds", "evaluate"];

export async function show(main, chosen, signal) {
  document.title = "New run · Parley";
  main.append(h("h1", {}, "New run"));
  const owners = listings(signal);
  const [studies, { value: parties }] = await Promise.all([get("/v1/studies", signal), owners.next()]);
  const form = new RunForm(studies, parties ?? [], signal);
  if (studies.some((study) => study.name === chosen)) form.study.value = chosen;
  main.append(h("div", { class: "columns" }, form.element, form.pane.element));
  form.studyChanged();
  performance.mark("owners");
  form.algorithms = await get("/v1/algorithms", signal); // later: a learner that has just started loads them for half a second
  form.studyChanged();
  for await (const changed of owners) form.partiesChanged(changed);
  const follow = async () => {
    for await (const changed of listings(signal, LATER)) form.partiesChanged(changed);
  };
  for await (const _ of changes(signal)) await follow().catch(showError);
}

const numeric = (id, value, more = {}) => h("input", { id, type: "number", step: "any", value, ...more });
const options = (pairs) => pairs.map(([value, words]) => h("option", { value }, words));

class RunForm {
  pane = new ForecastPane();
  pending = new AbortController();
  studyDocuments = {};
  shownClasses = "";
  refused = [];
  algorithms = {}; // until they are known
  unticked = new Map();
  epsilon = numeric("epsilon", 1, { required: true });
  delta = numeric("delta", 1e-5, { required: true });
  secure = h("input", { id: "secure", type: "checkbox" });
  purpose = h("input", { id: "purpose", maxlength: 500 });
  adjacency = h("select", { id: "adjacency" }, options([["replace_one", "what the study says: one record, or all rows of a person"], ["person", "all rows of a person"], ["whole_party", "all the data of an owner"]]));
  overlap = numeric("overlap", "", { min: 1, step: 1, placeholder: "1" });
  minimum_contributors = numeric("minimum", "", { min: 1, step: 1, placeholder: "all" });
  colluders = numeric("colluders", "", { min: 0, step: 1, placeholder: "auto" });
  seconds = numeric("seconds", "", { min: 1, placeholder: "auto" });
  evaluate = numeric("evaluate", "", { min: 0, max: 1, placeholder: "auto" });
  classes = h("div", { id: "classes", class: "pair" });
  rule = null;
  weights = null;
  owners = h("fieldset", {});
  about = h("div", {});
  parameters = h("fieldset", { id: "parameters" });
  alert = h("div", { id: "refused", class: "alert", role: "alert" });
  button = h("button", { id: "submit", class: "main", "aria-describedby": "refused" }, "Train");

  constructor(studies, parties, signal) {
    Object.assign(this, { studies, parties, signal });
    this.study = h("select", { id: "study", onchange: () => this.studyChanged() }, options(studies.map(({ name }) => [name, name])));
    this.algorithm = h("select", { id: "algorithm", onchange: () => this.algorithmChanged() });
    const foresee = debounced(() => this.foresee(), PAUSE);
    const change = () => { this.key = null; this.pending.abort(); this.check(); foresee(); };
    this.element = h("form", { id: "run-form", novalidate: true, oninput: change, onchange: change, onsubmit: (event) => this.submit(event) },
      field("Study", this.study), this.about,
      field(FIELDS.epsilon, this.epsilon, "What the run may cost each owner at most: the smaller, the more private."),
      field(FIELDS.delta, this.delta, "How likely the promise may fail; below one over the number of rows, or persons."),
      h("label", { class: "choice" }, this.secure, ` ${FIELDS["secure-sum"]}: the learner sees the sum of the answers alone`), this.classes,
      h("details", { id: "rest" }, h("summary", {}, "Everything else is chosen for you"), this.more()),
      this.alert, this.button);
  }

  more() {
    return [field("Purpose", this.purpose, "Owners read it in their logs."), field(FIELDS.algorithm, this.algorithm), this.parameters, this.owners,
      field(FIELDS.adjacency, this.adjacency), field(FIELDS.overlap, this.overlap, "Who is with more of them is hidden less. Above 1 there is more noise: all their answers count together."),
      field(FIELDS["minimum-contributors"], this.minimum_contributors),
      field(FIELDS.colluders, this.colluders), field("Seconds that the rounds may take", this.seconds),
      field(FIELDS.evaluate, this.evaluate, "Between 0 (none) and 1, where the study holds some out; a tenth if left open, where that tells enough.")];
  }

  /** The owners of the study that is chosen, as their parties answer now. */
  get possible() {
    const study = this.studies.find(({ name }) => name === this.study.value);
    return study ? ownersOf(study, this.parties) : [];
  }

  studyChanged() {
    const study = this.studies.find(({ name }) => name === this.study.value);
    this.ownersChanged();
    this.classesChanged().catch(showError);
    this.about.replaceChildren(study ? h("details", {}, h("summary", {}, "About this study"), facts(factsOf(study))) : "");
    const fit = Object.entries(this.algorithms).filter(([name, algorithm]) => !algorithm.curator && !["describe", "evaluate"].includes(name)
      && (!study || (algorithm.norms.includes(study.norm) && (!study.sparse || algorithm.sparse) && (study.unit === "record" || algorithm.persons))));
    this.algorithm.replaceChildren(...options([["auto", "auto: the one with the best forecast"], ...fit.map(([name, { summary }]) => [name, `${name}: ${summary}`])]));
    this.algorithm.value = fit.some(([name]) => name === "dp_gd") ? "dp_gd" : "auto";
    this.algorithmChanged();
    this.check();
    this.foresee();
  }

  /** The document of a study, which is fetched once. */
  async documentOf(name) {
    return this.studyDocuments[name] ??= await get(`/v1/studies/${encodeURIComponent(name)}`, this.signal);
  }

  /** Shows what a study with classes may be given besides, once its document is there, or nothing. */
  async classesChanged() {
    const name = this.study.value;
    if (this.shownClasses === (this.shownClasses = name)) return;
    this.rule = this.weights = null;
    this.classes.replaceChildren();
    const study = name && await this.documentOf(name);
    if (!study || this.study.value !== name) return;
    this.weights = study.label.values ? new WeightFields(study) : null;
    this.rule = this.weights && hasThreshold(study) ? new RuleFields(rulesFor(study, study.hold_out), null, { first: "a score of 0", label: `${FIELDS.threshold}: say “${study.label.values[1]}” by` }) : null;
    this.classes.replaceChildren(...[this.rule, this.weights].filter(Boolean).map(({ elements }) => h("div", {}, elements)));
  }

  /** Shows the owners of the study: those that are away take no part unless the user wants them to. */
  ownersChanged() {
    const shown = this.possible.map(({ name, isAway }) => [name, isAway, this.unticked.get(name) ?? isAway]);
    if (this.shownOwners === (this.shownOwners = JSON.stringify([this.study.value, shown]))) return;
    this.boxes = shown.map(([name, , isOut]) => h("input", { type: "checkbox", checked: !isOut, value: name, onchange: ({ target }) => this.unticked.set(name, !target.checked) }));
    this.owners.replaceChildren(h("legend", {}, FIELDS.party), h("div", { class: "choices" }, this.boxes.map((box, index) =>
      h("label", { class: "choice" }, box, ` ${box.value}`, shown[index][1] ? h("span", { class: "warn" }, " does not answer") : ""))));
  }

  /** Takes the owners' present facts and budgets. */
  partiesChanged(parties) {
    const told = JSON.stringify(parties.map(({ as_of: _, awaited: __, ...party }) => party));
    if (told === this.told) return;
    Object.assign(this, { parties, told });
    this.ownersChanged();
    this.check();
    this.foresee();
  }

  algorithmChanged() {
    const properties = this.algorithms[this.algorithm.value]?.parameters.properties ?? {};
    this.values = Object.keys(properties).map((name) => h("input", { name, placeholder: "auto", autocomplete: "off" }));
    this.parameters.replaceChildren(h("legend", {}, "Parameters"), ...this.values.map((input) => field(input.name, input, properties[input.name].description)));
    this.parameters.hidden = !this.values.length;
  }

  /** The request for the API, without fields that the user left open. */
  get body() {
    const filled = this.values.filter((input) => input.value.trim() !== "");
    const names = this.boxes.filter((box) => box.checked).map((box) => box.value);
    const body = { study: this.study.value, algorithm: this.algorithm.value, epsilon: this.epsilon.valueAsNumber, delta: this.delta.valueAsNumber,
      secure_sum: this.secure.checked ? "paillier" : "none", purpose: this.purpose.value, parties: names,
      parameters: Object.fromEntries(filled.map((input) => [input.name, read(input.value)])) };
    if (this.rule?.name) body.threshold = this.rule.text;
    if (this.weights?.stated) body.class_weights = this.weights.stated;
    for (const name of SHOWN) if (this[name].value !== "") body[name] = this[name].type === "number" ? this[name].valueAsNumber : this[name].value;
    return body;
  }

  /** Shows what would be refused, before any request is sent. */
  check() {
    const wrong = this.refused = [];
    const epsilon = this.epsilon.valueAsNumber, delta = this.delta.valueAsNumber;
    const checked = this.boxes.filter((box) => box.checked).map((box) => box.value), chosen = this.possible.filter(({ name }) => checked.includes(name));
    if (!this.study.value) wrong.push("There is no study to learn.");
    if (!(epsilon > 0)) wrong.push("ε must be above 0: at 0 an answer tells nothing.");
    if (!(delta >= 0 && delta < 1)) wrong.push("δ must be at least 0 and below 1.");
    if (!chosen.length) wrong.push("No owner takes part.");
    const silent = chosen.filter(({ isAway }) => isAway).map(({ name }) => name);
    this.pane.note(silent.length ? `${few(silent)} ${silent.length > 1 ? "do" : "does"} not answer: the run would wait.` : "");
    const those = (test) => chosen.filter(test).map(({ name }) => name);
    const tight = those(({ facts }) => epsilon > facts.max_epsilon_per_run), strict = those(({ facts }) => delta > facts.max_delta_per_run);
    if (tight.length) wrong.push(`${few(tight)} ${tight.length > 1 ? "allow" : "allows"} less ε in one run.`);
    if (strict.length) wrong.push(`${few(strict)} ${strict.length > 1 ? "allow" : "allows"} less δ in one run.`);
    const summed = this.secure.checked ? [] : those(({ facts }) => facts.require_secure_sum);
    if (summed.length) wrong.push(`${few(summed)} ${summed.length > 1 ? "need" : "needs"} a secure sum.`);
    this.say();
  }

  /** Says why the run would be refused, and on the button whether it is wise. */
  say() {
    const { warning } = this.pane;
    this.alert.replaceChildren(...this.refused.map((words) => h("p", {}, words)));
    this.button.disabled = this.refused.length > 0;
    this.button.className = warning ? "caution" : "main";
    this.button.textContent = warning ? `Train anyway: ${firstWords(warning.replaceAll(/ \([^)]*\)/g, "").split(/[:,] /)[0], 90)}` : "Train";
  }

  /** Requests a forecast, and cancels the request before. */
  async foresee() {
    this.pending.abort();
    const { signal } = this.pending = new AbortController();
    this.signal.addEventListener("abort", () => this.pending.abort(), { once: true });
    if (this.refused.length) {
      this.pane.none("Nothing is forecast of a run that would be refused.");
      this.say();
      return;
    }
    this.pane.wait();
    if (!Object.keys(this.algorithms).length) return;
    try {
      const name = this.study.value;
      const study = await this.documentOf(name);
      const answer = await post("/v1/forecasts", this.body, signal);
      this.pane.take(answer, study, this.possible);
      this.refused.push(...this.pane.refusals(answer));
    } catch (error) {
      if (signal.aborted) return;
      this.pane.none(error.message);
      if (error.status < 500) this.refused.push(error.message);
    }
    this.say();
  }

  async submit(event) {
    event.preventDefault();
    this.check();
    this.refused.push(...this.pane.stillRefused);
    if (!session.may("submitter")) this.refused.push("Your role lets you look, not train.");
    this.say();
    if (this.refused.length) {
      this.alert.tabIndex = -1;
      this.alert.focus();
      return;
    }
    this.key ??= [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    try {
      const run = await post("/v1/runs", this.body, this.signal, { "Idempotency-Key": this.key });
      if (this.pane.words) sessionStorage.setItem(`expected ${run.id}`, this.pane.words);
      showNotice("The run is queued.");
      location.hash = `run/${run.id}`;
    } catch (error) {
      this.refused = [error.message];
      this.say();
    }
  }
}

/** How much a row of each class counts in training: as the study says, or otherwise. */
class WeightFields {
  constructor({ label, class_weights: own }) {
    this.values = label.values;
    this.each = h("div", { id: "weights-of", hidden: true }, this.values.map((name) => field(name, numeric("", "", { min: 0, max: 1, placeholder: "1", "data-class": name }))));
    this.select = h("select", { id: "class-weights", onchange: () => { this.each.hidden = this.select.value !== "each"; } }, options([
      ...own ? [["", "as the study says"], ["alike", "all rows count alike"]] : [["", "all rows count alike"]],
      ...label.shares ? [["balanced", "balanced: classes count alike"]] : [], ["each", "from 0 to 1, of each class …"]]));
    this.elements = [field(FIELDS["class-weights"], this.select), this.each];
  }

  /** What the API takes; null for what the study says. */
  get stated() {
    const { values, select: { value: chosen } } = this;
    if (chosen !== "each") return chosen === "alike" ? { [values[0]]: 1 } : chosen || null;
    const filledIn = [...this.each.querySelectorAll("input")].filter((input) => input.value !== "");
    return filledIn.length ? Object.fromEntries(filledIn.map((input) => [input.dataset.class, input.valueAsNumber])) : null;
  }
}

/** A parameter's value: a number, true or a list if the text is JSON, otherwise the text. */
function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text.trim();
  }
}
