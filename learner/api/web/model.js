/* Shows a finished run: its guarantees, its evaluation, what it learnt, and what may be done with its model. */

import { ask, changes, get, post, session } from "./api.js";
import { histogram } from "./charts.js";
import { bound, count, debounced, field, h, heading, number, percent, table, showNotice, showError, writer } from "./dom.js";
import { predictions } from "./predict.js";
import { HIDDEN } from "./run.js";
import { STATISTICS } from "./statistics.js";
import { facts, factsOf } from "./studies.js";
import { weights } from "./weights.js";

const SEEN = { model: "anyone who sees the model alone", transcript: "anyone who sees all that the learner sees" };
const CLAIMED = { paper: "as its paper sets it", tight: "the least that a proof allows" };

export async function showModel(box, run, signal) {
  const [last, state] = await lastEvaluation(run, signal); // before the model: a change in between then counts as news
  const [model, studies] = await Promise.all([get(`/v1/runs/${run.id}/model`, signal), get("/v1/studies", signal)]);
  const study = studies.find((summary) => summary.digest === model.study_digest);
  box.replaceChildren(...guarantee(model.guarantees));
  if (model.algorithm === "describe") box.append(...description(await get(`/v1/runs/${run.id}/description`, signal), model));
  else if (run.evaluates && model.evaluation) box.append(...evaluation(model.evaluation));
  if (model.algorithm === "describe" || run.evaluates) return;
  const section = h("section", { id: "quality" }, quality(model, last));
  box.append(section);
  if (session.may("submitter") && model.study.hold_out) box.append(evaluating(run, model.guarantees, signal));
  box.append(...weights(model, study?.divisor), h("h2", {}, "Take it away"), actions(run, model), predictions(run, model, signal));
  if (study) box.append(h("h2", {}, "Study"), facts(factsOf(study)));
  await followEvaluations(section, run, state, signal);
}

/** Draws each new evaluation of the model, by any user and from any page. */
async function followEvaluations(box, run, drawn, signal) {
  const draw = async () => {
    const [last, state] = await lastEvaluation(run, signal);
    if (state !== drawn) box.replaceChildren(...quality(await get(`/v1/runs/${run.id}/model`, signal), last));
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
    : `For anyone who sees all of this run, the odds of any conclusion differ from those after a run with ${HIDDEN[honest.adjacency]} by at most a factor of ${bound(Math.exp(honest.epsilon))} (e to the ${bound(honest.epsilon)}), except with probability ${bound(honest.delta, 2)}.`;
  const bounded = promises.filter((each) => each.epsilon !== null);
  const shared = bounded.length ? bounded[0].assumptions.filter((words) => bounded.every((each) => each.assumptions.includes(words))) : [];
  const further = (promise) => promise.assumptions.filter((words) => !shared.includes(words)).join("; ");
  const rows = promises.map((each) => [
    each.epsilon === null ? "nothing" : `ε = ${bound(each.epsilon)}, δ = ${bound(each.delta, 2)}`,
    CLAIMED[each.calibration] ?? each.calibration, HIDDEN[each.adjacency],
    SEEN[each.view] + (each.trust ? `, with the help of ${each.trust} of the owners` : ""), further(each) || "nothing of its own"]);
  return [h("h2", {}, "What is promised"), h("p", { id: "promise" }, words),
    h("div", { id: "promises" }, table("Each promise, and what has to hold for it alone", ["Promise", "Noise", "Hides", "From", "If"], rows),
      shared.length ? [h("p", {}, "What has to hold for each of them:"), h("ul", {}, shared.map((words) => h("li", {}, words)))] : [])];
}

/** The results of the newest evaluation, or that there are none, with a link to the last one that was submitted. */
function quality({ evaluation: results }, last) {
  if (results) return evaluation(results);
  return [h("h2", {}, "How good it is"), last
    ? h("p", {}, h("a", { href: `#run/${last}` }, "An evaluation"), " of it has been asked for.") : h("p", {}, "Nobody has evaluated it yet.")];
}

/** The classes that a model hardly ever predicts, as parley.common.learning.statistics.unsaid_classes has them. */
function unsaidClasses({ recall }) {
  return Object.entries(recall ?? {}).filter(([, { estimate, low }]) => estimate !== null && estimate <= .1 && (low ?? 0) <= .02).map(([name]) => name);
}

function evaluation(results) {
  const single = [], byClass = [];
  for (const statistic of STATISTICS.filter(({ name }) => results[name])) {
    const { name, title } = statistic, values = results[name], write = writer(statistic);
    const row = (words, { estimate, low, high }) =>
      [heading(words), estimate === null ? "not known" : write(estimate), `${low === null ? "−∞" : write(low)} to ${write(high)}`];
    if (title.includes("{}")) byClass.push(...Object.entries(values).map(([label, figure]) => row(title.replace("{}", () => label), figure)));
    else single.push(row(title, values));
  }
  const rows = [...single, ...byClass];
  const unsaid = unsaidClasses(results);
  return [h("h2", {}, "How good it is"),
    ...(unsaid.length ? [h("p", { class: "warn" }, `The model predicts ${unsaid.join(", ")} of nobody or almost nobody: choose another threshold, or train with class weights.`)] : []),
    h("p", {}, `On ${results.rows} rows that ${results.contributors.length} owners held out, at ε = ${number(results.epsilon, 3)}. An interval holds the true figure of these rows in ${percent(results.rate, 0)} of cases.`),
    table("Figures on held-out rows", ["Figure", "Estimate", "Between"], rows, "evaluation")];
}

function evaluating(run, promises, signal) {
  const bounded = promises.find((promise) => promise.epsilon !== null);
  const epsilon = h("input", { id: "evaluation-epsilon", type: "number", min: 0, step: "any", value: Number((bounded?.epsilon ?? 1).toPrecision(3)) });
  const delta = h("input", { id: "evaluation-delta", type: "number", min: 0, step: "any", value: bounded?.delta || 1e-6 });
  const alert = h("div", { class: "alert", role: "alert" }), atMost = h("p", { id: "at-most", "aria-live": "polite" });
  const cost = () => ({ epsilon: epsilon.valueAsNumber, delta: delta.valueAsNumber });
  const foresee = debounced(async () => {
    alert.replaceChildren();
    try {
      if (epsilon.valueAsNumber > 0) atMost.replaceChildren(...precision(await get(`/v1/runs/${run.id}/evaluation?${new URLSearchParams(cost())}`, signal)));
      else atMost.replaceChildren("ε must be above 0.");
    } catch (error) {
      if (!signal.aborted) atMost.replaceChildren(error.message);
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
  return h("details", { id: "evaluate", ontoggle: foresee }, h("summary", {}, "Evaluate it on held-out rows"), h("form", { onsubmit: send, oninput: foresee },
    h("p", { class: "hint" }, "Each owner pays for it out of its budget."), field("ε", epsilon), field("δ", delta), atMost, alert, h("button", {}, "Evaluate")));
}

/** How precise an evaluation at some budget could be at most, in words. */
function precision({ rows, rate, ...results }) {
  const statistic = STATISTICS.find(({ name }) => results[name]), write = writer(statistic);
  const { estimate, low, high } = results[statistic.name];
  if (estimate === null) return [h("span", { class: "warn" }, `So small a budget tells nothing of ${number(rows)} held-out rows: noise would hide it all.`)];
  return [`Of a model without any error it would say, on ${number(rows)} held-out rows: ${statistic.title} between ${write(low)} and ${write(high)} (${percent(rate, 0)} sure).`];
}

/** Histograms of a description, each with its figures in a table. */
function description(results, { contributors, study }) {
  const units = new Map([...study.features, study.label].map((column) => [column.name, column.unit]));
  const drawn = results.columns.map((column) => {
    const bins = column.kind === "values" ? column.values.map((each) => ({ name: each.value, share: each.share }))
      : column.histogram.map((bin) => ({ name: `${number(bin.lower, 3)} to ${number(bin.upper, 3)}`, share: bin.share }));
    const figures = column.kind === "number" && column.mean ? [["Mean", between(column.mean)], ["Deviation", column.variance && between(rooted(column.variance))],
      ...(column.at_lower ? [["Share at the lower bound", between(column.at_lower.share)], ["Share at the upper bound", between(column.at_upper.share)]] : [])] : [];
    return h("section", { class: "card" }, h("h3", {}, column.name + (units.get(column.name) ? `, in ${units.get(column.name)}` : "")), figures.length ? facts(figures) : "",
      bins.length ? histogram(bins, `Shares of ${column.name}`) : "", column.remarks.map((each) => h("p", { class: "warn" }, each)),
      bins.length ? h("details", {}, h("summary", {}, "In figures"), table(`Shares of ${column.name}`, ["Value", "Share", "Between"],
        bins.map(({ name, share }) => [name, number(share.value, 3), `${number(share.low, 3)} to ${number(share.high, 3)}`]))) : "");
  });
  return [h("h2", {}, "What the columns hold"), h("p", {}, `About ${count(Math.round(results.rows.value))} rows of ${contributors.length} owners. Each interval holds the owners' own figure in 95 % of cases.`),
    h("div", { class: "columns", id: "description" }, drawn)];
}

const rooted = ({ value, low, high }) => ({ value: Math.sqrt(value), low: Math.sqrt(low), high: Math.sqrt(high) });
const between = ({ value, low, high }) => `${number(value, 3)} (${number(low, 3)} to ${number(high, 3)})`;

/** Buttons that download the model and its card. */
function actions(run, model) {
  const save = (path, ending) => async () => {
    const name = `${model.study.name}-${run.id.slice(0, 8)}${ending}`;
    try {
      download(await (await ask(`/v1/runs/${run.id}/${path}`)).blob(), name);
      showNotice(`${name} is saved.`);
    } catch (error) {
      showError(error);
    }
  };
  return h("div", { class: "row", id: "take-away" },
    h("button", { id: "download", type: "button", class: "main", onclick: save("model", ".json") }, "Download the model"),
    h("button", { id: "card", type: "button", onclick: save("card", "-card.html") }, "Download its card"));
}

/** Hands a file to the browser's user. */
export function download(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
