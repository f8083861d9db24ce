/* Shows each study with its owners, their sizes, health and budgets. */

import { changes, get, post, session } from "./api.js";
import { budgetBar, budgetInWords } from "./charts.js";
import { count, debounced, examplesOf, facts, few, field, h, heading, isNarrow, number, percent, sentence, table, showNotice, showError, when } from "./dom.js";

export const OWN_VIEW = "Budgets are shown as far as this learner's own runs go: other learners, and the owner itself, may have spent more.";
const SPENT_MEANS = "Spent holds, with the budget's delta, whenever it is read and however questions depended on answers; it may pass the limit, which holds too. Nonadaptive is what the same answers cost if no question had depended on one.";

const AT_ONCE = .1;
export const LATER = 2; // seconds that the learner waits for owners: when nothing is shown yet, and later

/** Yields the parties as the learner knows them: at once, then again until those that are slow answer or are away. */
export async function* listings(signal, first = AT_ONCE) {
  for (let within = first; !signal.aborted; within = LATER) {
    const parties = await get(`/v1/parties?within=${within}`, signal);
    yield parties;
    if (!parties.some(({ awaited, problem }) => awaited && !problem)) return;
  }
}

export async function show(main, _, signal) {
  document.title = "Studies · Parley";
  const box = h("div", {});
  main.append(h("h1", {}, "Studies"), box);
  let drawn = "";
  const draw = async (within) => {
    const studies = await get("/v1/studies", signal);
    for await (const parties of listings(signal, within)) {
      const shown = parties.map(({ as_of: _, ...party }) => party); // the time alone is no news
      if (drawn === (drawn = JSON.stringify([studies, shown]))) continue;
      const stops = () => [...box.querySelectorAll("a, button, summary, [tabindex]")], focused = stops().indexOf(document.activeElement);
      const open = new Map([...box.querySelectorAll("details")].map((each) => [each.dataset.study, each.open]));
      box.replaceChildren(...studies.map((study) => card(study, parties)), ...unreached(parties),
        parties.some(({ budgets }) => Object.keys(budgets).length) ? h("p", { class: "hint" }, `${OWN_VIEW} ${SPENT_MEANS}`) : "");
      box.querySelectorAll("details").forEach((each) => { each.open = open.get(each.dataset.study) ?? each.open; });
      if (!studies.length) box.append(h("p", {}, "This learner knows no study yet: its setting `studies` names their folder."));
      stops()[focused]?.focus();
      performance.mark("owners");
    }
  };
  await draw();
  for await (const _ of changes(signal)) await draw(LATER).catch(showError);
}

/** The owners of a study: the parties that hold it, each with its facts about it, the budget of its runs, and its health. */
export const ownersOf = ({ digest }, parties) => parties.flatMap((party) => (party.facts?.studies ?? []).filter((held) => held.study_digest === digest)
  .map((held) => ({ name: party.name, facts: held, budget: party.budgets[digest], isAway: party.problem !== null, health: healthOf(party) })));

/** Whether a party answers, in words; if not, since when and why. */
export function healthOf({ problem, awaited, as_of: asOf }) {
  if (problem) return h("span", { class: "bad" }, asOf ? `away since ${when(asOf)}` : "away", h("span", { class: "hint" }, ` ${problem.detail}`));
  return awaited ? h("span", { class: "warn" }, asOf ? `has not answered yet; as of ${when(asOf)}` : "has not answered yet") : h("span", { class: "good" }, "answers");
}

/** What a study is, in pairs of name and value. */
export function factsOf(study) {
  const kinds = { binary: "two classes", multiclass: `${study.n_classes} classes`, regression: "a number" };
  return [
    ["Predicts", `${study.label}, ${kinds[study.kind]}`],
    ["From", study.sparse ? `${count(study.n_features)} columns` : `${count(study.features)} ${study.features === 1 ? "feature" : "features"}, ${count(study.n_features)} columns`],
    ["Hides", study.person ? `${HIDDEN.person}: those with the same ${study.person}` : HIDDEN[study.unit]],
    ["Loss", study.loss],
    ["Rows bounded by", study.norm === "max" ? "their largest number" : "their length (2-norm)"],
    ["Rows are", study.sparse ? "sparse" : "dense"],
  ];
}

function card(study, parties) {
  const owners = ownersOf(study, parties), examples = examplesOf(study), n = owners.reduce((sum, each) => sum + each.facts.n_examples, 0);
  const actions = session.may("submitter") && owners.length > 0 && h("div", { class: "row" },
    h("a", { class: "button main", href: `#new/${encodeURIComponent(study.name)}` }, "Train a model"),
    h("button", { type: "button", onclick: () => describe(study, owners.filter(({ isAway }) => !isAway)).catch(showError) }, "Describe its columns"));
  const away = owners.filter(({ isAway }) => isAway).length;
  return h("article", { class: "card study" },
    h("div", {}, h("h2", {}, study.name), [study.title, study.purpose].filter(Boolean).map((words) => h("p", {}, words)),
      facts([...factsOf(study), ["Owners", `${owners.length}, with ${count(n)} ${examples}`, away ? `${away} away` : ""]]), actions),
    owners.length ? h("details", { "data-study": study.name, open: !isNarrow() }, h("summary", {}, "Owners"), table(`Owners of ${study.name}`, ["Owner", heading(examples), "Health", "Budget ε", "Left for a run", "Hides"], owners.map((each) => owner(each, study))))
      : h("p", { class: "warn" }, parties.some(({ awaited, problem }) => awaited && !problem) ? "No owner that has answered holds it." : "No owner that answers holds it."));
}

const HIDDEN = { record: "one record", replace_one: "one record", person: "all rows of a person", whole_party: "all its data" };

function owner({ name, budget, health, facts: publicFacts }, { unit }) {
  return [[name, publicFacts.people ? h("p", { class: "hint" }, `people: ${publicFacts.people}`) : ""], count(publicFacts.n_examples), health,
    budget ? [budgetBar(budget), h("span", { class: "hint" }, `${budgetInWords(budget)}${part(budget)}`)] : "not told",
    budget ? `ε ${number(budget.epsilon_left, 3)}` : "not told",
    HIDDEN[publicFacts.adjacency === "replace_one" ? unit : publicFacts.adjacency]];
}

/** The part of a budget that is set aside for a study, in words; nothing for the whole budget. */
const part = ({ units: { share } }) => share < 1e6 ? `, ${percent(share / 1e6)} of it for this study` : "";

/** The parties that have said nothing yet, so that nobody knows what they hold. */
function unreached(parties) {
  const silent = parties.filter((party) => party.facts === null);
  return silent.length ? [h("h2", {}, "Owners that do not answer"),
    table("Owners that do not answer", ["Owner", "Health"], silent.map((each) => [each.name, healthOf(each)]))] : [];
}

/** Opens the dialog that describes a study's columns by a run, which costs its owners as any run does. */
async function describe(summary, owners) {
  const study = await get(`/v1/studies/${encodeURIComponent(summary.name)}`);
  const names = [...study.features.filter((each) => each.name).map((each) => each.name), study.label.name];
  const boxes = names.map((name) => h("input", { type: "checkbox", value: name, checked: names.length <= 12 }));
  const epsilon = h("input", { type: "number", min: 0, step: "any", value: .1, required: true });
  const delta = h("input", { type: "number", min: 0, step: "any", value: 1e-6, required: true });
  const bins = h("input", { type: "number", min: 0, max: 100, value: 10, required: true });
  const secure = h("input", { type: "checkbox" });
  const alert = h("div", { class: "alert", role: "alert" }), atMost = h("p", { id: "precision", "aria-live": "polite" });
  const foresee = debounced(() => precision().then((words) => atMost.replaceChildren(words), (error) => atMost.replaceChildren(error.message)), 250);
  const dialog = h("dialog", { "aria-labelledby": "describe-title" }, h("form", { method: "dialog", oninput: foresee, onsubmit: (event) => {
    event.preventDefault();
    send().catch((error) => alert.replaceChildren(error.message));
  } }, h("h2", { id: "describe-title" }, `Describe ${summary.name}`),
    h("p", {}, "Counts, means and histograms over all owners, with noise. It is a run: owners approve it, and pay."),
    field("ε", epsilon), field("δ", delta), field("Bins of a histogram", bins),
    h("label", { class: "choice" }, secure, " Secure sum: the learner sees the sum alone"),
    h("fieldset", {}, h("legend", {}, "Columns"), h("div", { class: "choices" }, boxes.map((box) => h("label", { class: "choice" }, box, ` ${box.value}`)))),
    atMost, alert, h("div", { class: "row" }, h("button", { class: "main" }, "Ask the owners"), h("button", { type: "button", onclick: () => dialog.close() }, "Not now"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  foresee();

  /** The request for the API; throws Error for values that it would refuse. */
  function order() {
    const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
    if (!(epsilon.valueAsNumber > 0)) throw new Error("ε must be above 0.");
    if (!chosen.length) throw new Error("Choose a column.");
    const columns = Object.fromEntries(chosen.map((name) => [name, null]));
    return { study: summary.name, algorithm: "describe", epsilon: epsilon.valueAsNumber, delta: delta.valueAsNumber,
      parties: owners.map(({ name }) => name), secure_sum: secure.checked ? "paillier" : "none", parameters: { bins: bins.valueAsNumber, columns } };
  }

  /** How wide intervals would be, or whose budget it is beyond. */
  async function precision() {
    const { no_forecast: words, owners: charged } = await post("/v1/forecasts", order());
    const short = charged.filter((each) => each.fits === false).map(({ name }) => name);
    return short.length ? `This is beyond the budget of ${few(short)}.` : sentence(words);
  }

  async function send() {
    const run = await post("/v1/runs", order());
    dialog.close();
    showNotice("The owners are asked.");
    location.hash = `run/${run.id}`;
  }
}
