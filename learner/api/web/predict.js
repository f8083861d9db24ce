/* Shows predictions for the rows of a CSV file, which the learner computes and does not keep. */

import { post } from "./api.js";
import { h, number, table } from "./dom.js";
import { download } from "./model.js";

const SHOWN = 10;

export function predictions(run, model, signal) {
  const file = h("input", { id: "rows", type: "file", accept: ".csv,text/csv" }), out = h("div", { id: "predictions", "aria-live": "polite" });
  const read = async () => {
    try {
      const rows = parse(await file.files[0].text());
      const predicted = await post(`/v1/runs/${run.id}/predictions`, { records: records(rows, model.study) }, signal);
      out.replaceChildren(table(`Predictions of ${model.study.label.name}, the first ${Math.min(SHOWN, predicted.length)} of ${predicted.length}`, ["Row", "Predicted", "Score", "Probability"],
        predicted.slice(0, SHOWN).map((each, index) => [String(index + 1), String(each.label), number(each.score), each.probability === null ? "–" : number(each.probability, 3)])),
        h("button", { type: "button", onclick: () => save(rows, predicted, model.study) }, "Save all as CSV"));
    } catch (error) {
      out.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message));
    }
  };
  file.addEventListener("change", read);
  return h("details", { id: "predict" }, h("summary", {}, "Predict for rows of your own"),
    h("label", { for: "rows" }, "A CSV file with the study's features"), file, out);
}

/** Rows of cells; a cell in quotes may hold commas, line breaks and doubled quotes. */
function parse(text) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.replace(/^\uFEFF/, "").matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/g)) {
    rows.at(-1).push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    if (end === "") break;
    if (end !== ",") rows.push([]);
  }
  return rows.filter((row) => row.length > 1 || row[0]);
}

/** The rows as records of the study's features: numbers where the study has numbers, null where a cell is empty. */
function records([names, ...rows], study) {
  const missing = study.features.map((each) => each.name).filter((name) => !names.includes(name));
  if (missing.length) throw new Error(`The file lacks the columns ${missing.slice(0, 5).join(", ")}.`);
  if (!rows.length) throw new Error("The file has no row.");
  return rows.map((row, index) => Object.fromEntries(study.features.map(({ name, values }) => [name, cell(row[names.indexOf(name)], values, name, index)])));
}

function cell(text = "", values, name, index) {
  if (text.trim() === "") return null;
  if (values) return text;
  const value = Number(text);
  if (!Number.isFinite(value)) throw new Error(`Row ${index + 1}: ${name} is no number.`);
  return value;
}

function save([names, ...rows], predicted, study) {
  const quoted = (text) => /[",\r\n]/.test(text) ? `"${String(text).replaceAll('"', '""')}"` : String(text);
  const lines = [[...names, `predicted_${study.label.name}`, "probability"], ...rows.map((row, index) => [...row, predicted[index].label, predicted[index].probability ?? ""])];
  download(new Blob([lines.map((line) => line.map(quoted).join(",")).join("\n")], { type: "text/csv" }), "predictions.csv");
}
