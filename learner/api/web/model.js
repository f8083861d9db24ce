/* Shows a finished run: its guarantees, its evaluation, what it learnt, and what may be done with its model. */

import { ask, changes, get, post, session } from "./api.js";
import { histogram } from "./charts.js";
import { bound, count, debounced, examplesOf, facts, few, field, h, isNarrow, number, percent, section, sentence, table, showNotice, showError, writer } from "./dom.js";
import { evaluation, plainThreshold, weighed } from "./evaluation.js";
import { predictions } from "./predict.js";
import { hiddenAt } from "./run.js";
import { STATISTICS } from "./statistics.js";
import { factsOf, listings, ownersOf } from "./studies.js";
import { weights } from "./weights.js";

const SEEN = { model: "anyone who sees the model alone", transcript: "anyone who sees all that the learner sees" };
const CLAIMED = { paper: "as its paper sets it", tight: "the least that a proof allows" };

export async function showModel(box, run, signal) {
  const [last, state] = await lastEvaluation(run, signal); // before the model: a change in between then counts as news
  const [model, studies] = await Promise.all([get(`/v1/runs/${run.id}/model`, signal), get("/v1/studies", signal)]);
  const study = studies.find((summary) => summary.digest === model.study_digest);
  box.replaceChildren(...guarantee(model.guarantees));
  if (model.algorithm === "describe") box.append(...description(await get(`/v1/runs/${run.id}/description`, signal), model));
  else if (run.evaluates && model.evaluation) box.append(...evaluation(model.evaluation, { ...model, classes: model.study.label.values ?? null }));
  if (model.algorithm === "describe" || run.evaluates) return;
  const found = h("section", { id: "quality" }, quality(model, last, run, signal)), learnt = weights(model, study?.divisor);
  box.append(found, evaluating(run, model, signal), learnt.length ? section("What it learnt", !isNarrow(), learnt) : "",
    h("h2", {}, "Take it away"), actions(run, model), predictions(run, model, signal),
    study ? section("Study", false, facts(factsOf(study))) : "");
  await followEvaluations(found, run, state, signal);
}

/** Draws each new evaluation of the model, by any user and from any page. */
async function followEvaluations(box, run, drawn, signal) {
  const draw = async () => {
    const [last, state] = await lastEvaluation(run, signal);
    if (state !== drawn) box.replaceChildren(...quality(await get(`/v1/runs/${run.id}/model`, signal), last, run, signal));
    drawn = state;
  };
  for await (const _ of changes(signal)) await draw().catch(showError);
}

/** The evaluation that was submitted last, if any, and a text that changes with it and with its state. */
async function lastEvaluation(run, signal) {
  const last = (await get(`/v1/runs/${run.id}`, signal)).evaluations.at(-1);
  return [last, last ? `${last} ${(await get(`/v1/runs/${last}`, signal)).state}` : ""];
}

/** The guarantees in words and in figures: a paper's own claims are listed beside what holds for all rounds. */
function guarantee(promises) {
  const honest = promises.find((each) => each.view === "transcript") ?? promises[0];
  const words = honest.epsilon === null ? "Nothing is promised: a run without noise hides nothing."
    : `For anyone who sees all of this run, the odds of any conclusion differ from those after a run with ${hiddenAt(honest.adjacency, honest.owners ?? 1)} by at most a factor of ${bound(Math.exp(honest.epsilon))} (e to the ${bound(honest.epsilon)})${honest.delta > 0 ? `, except with probability ${bound(honest.delta, 2)}` : ""}.`;
  const bounded = promises.filter((each) => each.epsilon !== null);
  const shared = bounded.length ? bounded[0].assumptions.filter((words) => bounded.every((each) => each.assumptions.includes(words))) : [];
  const further = (promise) => promise.assumptions.filter((words) => !shared.includes(words)).join("; ");
  const rows = promises.map((each) => [
    each.epsilon === null ? "nothing" : `ε = ${bound(each.epsilon)}, δ = ${bound(each.delta, 2)}`,
    CLAIMED[each.calibration] ?? each.calibration, hiddenAt(each.adjacency, each.owners ?? 1),
    SEEN[each.view] + (each.trust ? `, with the help of ${each.trust} of the owners` : ""), further(each) || "nothing of its own"]);
  return [h("h2", {}, "What is promised"), h("p", { id: "promise" }, words),
    h("details", { id: "promises" }, h("summary", {}, "Each promise, and what has to hold for it"), table("Promises, and what has to hold for each alone", ["Promise", "Noise", "Hides", "From", "If"], rows),
      shared.length ? [h("p", {}, "What has to hold for each of them:"), h("ul", {}, shared.map((words) => h("li", {}, words)))] : [])];
}

/** The results of the newest evaluation, or that there are none, with a link to the last one that was submitted. */
function quality(model, last, run, signal) {
  if (model.evaluation) return evaluation(model.evaluation, model, run, signal);
  return [h("h2", {}, "How good it is"), last
    ? h("p", {}, h("a", { href: `#run/${last}` }, "An evaluation"), " of it has been asked for.") : model.study.hold_out ? h("p", {}, "Nobody has evaluated it yet.") : "", plainThreshold(model, run, signal)];
}

/** The form that asks for an evaluation: what it costs, what it can tell, and whether owners allow it; or why not. */
function evaluating(run, { guarantees: promises, study, evaluation: earlier, study_digest: digest }, signal) {
  const none = (words) => earlier ? "" : h("p", { id: "evaluate", class: "hint" }, words);
  if (!study.hold_out) return none(`No evaluation is possible: the study holds no ${examplesOf(study)} out, and a model is not judged by those that it learnt from. A study says how many to keep by hold_out, before owners join.`);
  if (!session.may("submitter")) return none("Your role lets you look, not ask for an evaluation.");
  const bounded = promises.find((promise) => promise.epsilon !== null);
  const epsilon = h("input", { id: "evaluation-epsilon", type: "number", min: 0, step: "any", value: Number((bounded?.epsilon ?? 1).toPrecision(3)) });
  const delta = h("input", { id: "evaluation-delta", type: "number", min: 0, step: "any", value: bounded?.delta || 1e-6 });
  const alert = h("div", { class: "alert", role: "alert" }), atMost = h("p", { id: "at-most", "aria-live": "polite" });
  const button = h("button", {}, "Evaluate"), refusals = h("div", { id: "allowed", "aria-live": "polite" });
  const cost = () => ({ epsilon: epsilon.valueAsNumber, delta: delta.valueAsNumber });
  let parties = null, latest = 0;
  const judge = () => {
    const refused = parties ? unwilling(run, digest, parties, cost()) : [];
    button.disabled = refused.some(({ isFinal }) => isFinal);
    refusals.replaceChildren(...refused.map(({ words }) => h("p", { class: "warn" }, words)),
      parties && !refused.length ? h("p", { class: "hint" }, "All its owners answer, and their rules and budgets allow it.") : "");
  };
  const foresee = debounced(async () => {
    alert.replaceChildren();
    judge();
    const asked = ++latest; // an answer for an earlier budget may come later
    try {
      const words = epsilon.valueAsNumber > 0 ? precision(await get(`/v1/runs/${run.id}/evaluation?${new URLSearchParams(cost())}`, signal), examplesOf(study)) : ["ε must be above 0."];
      if (asked === latest) atMost.replaceChildren(...words);
    } catch (error) {
      if (asked === latest && !signal.aborted) atMost.replaceChildren(error.message);
    }
  }, 250);
  const send = async (event) => {
    event.preventDefault();
    try {
      if (!(epsilon.valueAsNumber > 0)) throw new Error("ε must be above 0.");
      location.hash = `run/${(await post(`/v1/runs/${run.id}/evaluation`, cost(), signal)).id}`;
    } catch (error) {
      alert.replaceChildren(error.message);
    }
  };
  const open = async () => {
    foresee();
    if (parties) return;
    parties = [];
    for await (parties of listings(signal)) judge();
  };
  return h("details", { id: "evaluate", open: !earlier, ontoggle: () => open().catch(showError) }, h("summary", {}, earlier ? "Evaluate it again" : `Evaluate it on held-out ${examplesOf(study)}`),
    h("form", { onsubmit: send, oninput: foresee }, h("p", { class: "hint" }, "Each owner pays for it out of its budget."),
      h("div", { class: "row" }, field("ε", epsilon), field("δ", delta)), atMost, refusals, alert, button));
}

/** Why owners would not take part in an evaluation of a run, in words; `isFinal` unless they may yet answer. */
function unwilling(run, digest, parties, { epsilon, delta }) {
  const absent = new Set(Object.keys(run.absent)), names = run.parties.filter((name) => !absent.has(name));
  const owners = new Map(ownersOf({ digest }, parties).map((owner) => [owner.name, owner]));
  const those = (test) => names.filter((name) => owners.has(name) && test(owners.get(name)));
  const away = names.filter((name) => { const party = parties.find((each) => each.name === name); return !party || party.problem; });
  const without = names.filter((name) => !owners.has(name) && !away.includes(name) && !parties.find((each) => each.name === name)?.awaited);
  const say = (who, one, many, isFinal = true) => who.length ? [{ words: `${few(who)} ${who.length > 1 ? many : one}.`, isFinal }] : [];
  return [
    ...say(away, "does not answer now: the evaluation would wait for it", "do not answer now: the evaluation would wait for them", false),
    ...say(without, "holds the study no more", "hold the study no more"),
    ...say(those(({ facts: { algorithms } }) => !algorithms.includes("evaluate")), "allows no evaluations", "allow no evaluations"),
    ...say(those(({ facts: held }) => epsilon > held.max_epsilon_per_run), "allows less ε in one run", "allow less ε in one run"),
    ...say(those(({ facts: held }) => delta > held.max_delta_per_run), "allows less δ in one run", "allow less δ in one run"),
    ...say(those(({ budget }) => budget && epsilon > budget.epsilon_left), "has less ε left", "have less ε left"),
  ];
}

/** How precise an evaluation at some budget could be at most, in words. */
function precision({ rows, rate, ...results }, examples) {
  const statistic = STATISTICS.find(({ name }) => results[name]), write = writer(statistic);
  const { estimate, low, high } = results[statistic.name];
  if (estimate === null) return [h("span", { class: "warn" }, `So small a budget tells nothing of ${number(rows)} held-out ${examples}: noise would hide it all.`)];
  return [`Of a model without any error it would say, on ${number(rows)} held-out ${examples}: ${statistic.title} between ${write(low)} and ${write(high)} (${percent(rate, 0)} sure).`];
}

/** Histograms of a description, each with its figures in a table. */
function description(results, { contributors, study }) {
  const units = new Map([...study.features, study.label].map((column) => [column.name, column.unit]));
  const drawn = results.columns.map((column) => {
    const bins = column.kind === "values" ? column.values.map((each) => ({ name: each.value, share: each.share }))
      : column.histogram.map((bin) => ({ name: `${number(bin.lower, 3)} to ${number(bin.upper, 3)}`, share: bin.share }));
    const figures = column.kind === "number" && column.mean ? [between("Mean", column.mean), column.variance && between("Deviation", rooted(column.variance)),
      ...(column.at_lower ? [between("At the lower bound", column.at_lower.share, percent), between("At the upper bound", column.at_upper.share, percent)] : [])].filter(Boolean) : [];
    return h("section", { class: "card" }, h("h3", {}, column.name + (units.get(column.name) ? `, in ${units.get(column.name)}` : "")), figures.length ? facts(figures) : "",
      bins.length ? histogram(bins, `Shares of ${column.name}`) : "", column.remarks.map((each) => h("p", { class: "warn" }, sentence(each))),
      bins.length ? h("details", {}, h("summary", {}, "In figures"), table(`Shares of ${column.name}`, ["Value", "Share", "Between"],
        bins.map(({ name, share }) => [name, number(share.value, 3), `${number(share.low, 3)} to ${number(share.high, 3)}`]))) : "");
  });
  return [h("h2", {}, "What the columns hold"), h("p", {}, `About ${count(Math.round(results.rows.value))} ${examplesOf(study)} of ${contributors.length} owners. Each interval holds the owners' own figure in 95 % of cases.${weighed(study)}`),
    h("div", { class: "columns", id: "description" }, drawn)];
}

const rooted = ({ value, low, high }) => ({ value: Math.sqrt(value), low: Math.sqrt(low), high: Math.sqrt(high) });
const between = (name, { value, low, high }, write = (each) => number(each, 3)) => [name, write(value), `${write(low)} to ${write(high)}`];

/** Buttons that download the model, its card, and files for other tools. */
function actions(run, model) {
  const refused = h("div", { class: "alert", role: "alert" });
  const save = (path, ending) => async () => {
    const name = `${model.study.name}-${run.id.slice(0, 8)}${ending}`;
    refused.replaceChildren();
    try {
      download(await (await ask(`/v1/runs/${run.id}/${path}`)).blob(), name);
      showNotice(`${name} is saved.`);
    } catch (error) {
      refused.replaceChildren(h("p", {}, error.message));
    }
  };
  const button = (id, words, path, ending, isMain) => h("button", { id, type: "button", class: isMain && "main", onclick: save(path, ending) }, words);
  const predicts = ["linear", "softmax"].includes(model.kind) && !model.study.features.some((each) => each.columns);
  return h("div", {}, h("div", { class: "row", id: "take-away" }, button("download", "Download the model", "model", ".json", true), button("card", "Download its card", "card", "-card.html"),
    predicts ? [button("onnx", "For ONNX", "export?to=onnx", ".onnx"), button("sklearn", "For scikit-learn", "export?to=sklearn", ".skops")] : []), refused,
    predicts ? h("p", { class: "hint" }, "The files for ONNX and scikit-learn predict from raw columns, without Parley; skops.io.load opens the latter.") : "");
}

/** Hands a file to the browser's user. */
export function download(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
