/* Shows chosen runs side by side: their cost, their guarantees, and the evaluations of their models. */

import { changes, get } from "./api.js";
import { badge, bound, h, heading, number, table, showError, writer } from "./dom.js";
import { figuresAt, nearestPoint } from "./evaluation.js";
import { STATISTICS } from "./statistics.js";

export async function show(main, ids, signal) {
  document.title = "Compare runs · Parley";
  const box = h("div", {}), chosen = ids.split(",").filter(Boolean);
  main.append(h("h1", {}, "Compare runs"), box);
  let drawn = "";
  const draw = async () => {
    const runs = await Promise.all(chosen.map((id) => load(id, signal)));
    if (drawn === (drawn = JSON.stringify(runs))) return;
    box.replaceChildren(table("Chosen runs", ["", ...runs.map(({ run }) => h("a", { href: `#run/${run.id}` }, `${run.algorithm}, ${run.id.slice(0, 6)}`))],
      LINES.map(([name, read]) => [name, ...runs.map(read)]), "comparison"));
  };
  await draw();
  for await (const _ of changes(signal)) await draw().catch(showError);
}

async function load(id, signal) {
  const run = await get(`/v1/runs/${id}`, signal);
  return { run, model: run.state === "completed" ? await get(`/v1/runs/${id}/model`, signal) : null };
}

const LINES = [
  ["Study", ({ run }) => run.study],
  ["State", ({ run }) => badge(run.state)],
  ["ε at most, of an owner", ({ run }) => number(Math.max(...Object.values(run.epsilon)))],
  ["Whole run, for all rounds", ({ model }) => promise(model, "transcript")],
  ["The model alone", ({ model }) => promise(model, "model")],
  ["Rounds", ({ run }) => `${run.rounds.done} of ${run.rounds.of}`],
  ["Owners", ({ run }) => String(run.parties.length - Object.keys(run.absent).filter((name) => run.parties.includes(name)).length)],
  ["Secure sum", ({ run }) => run.secure_sum === "none" ? "no" : run.secure_sum],
  ...STATISTICS.filter(({ better, title }) => better && !title.includes("{}"))
    .map((statistic) => [heading(statistic.title), ({ model }) => figure(figures(model)[statistic.name], writer(statistic))]),
  ["By", ({ run }) => run.user],
];

function promise(model, view) {
  const guarantee = model?.guarantees.find((each) => each.view === view);
  if (!guarantee) return "–";
  return guarantee.epsilon === null ? "nothing" : `ε ${bound(guarantee.epsilon)}, δ ${bound(guarantee.delta, 2)}`;
}

/** The figures of a model's evaluation, at its threshold where they depend on it. */
function figures(model) {
  const { evaluation, threshold } = model ?? {};
  if (!threshold?.score || !evaluation?.points?.length) return evaluation ?? {};
  const point = evaluation.points[nearestPoint(evaluation.points, threshold.score)];
  const { accuracy, balanced_accuracy } = figuresAt(point, evaluation, model.classes[1]);
  return { ...evaluation, accuracy, balanced_accuracy };
}

/** A figure with its interval, or a dash if there is none. */
function figure(interval, write) {
  if (typeof interval?.estimate === "undefined") return "–"; // none, or one for each class
  const low = interval.low === null ? "−∞" : write(interval.low);
  return `${interval.estimate === null ? "not known" : write(interval.estimate)} (${low} to ${write(interval.high)})`;
}
