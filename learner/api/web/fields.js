/* Names the fields of the form of a new run, and says in these names what the learner says in options of its commands. */

export const FIELDS = {
  adjacency: "Hides",
  algorithm: "Algorithm",
  "class-weights": "Class weights",
  colluders: "Owners who may collude",
  delta: "δ",
  epsilon: "ε",
  evaluate: "Share of the budget kept to evaluate the model",
  "minimum-contributors": "Owners in each sum, at least",
  overlap: "Owners that the same person may be with, at most",
  party: "Owners",
  "secure-sum": "Secure sum",
  threshold: "Threshold",
};

const VALUE = "[^\\s,;()`]+";
const COMMAND = new RegExp(`(?:by )?\`?parley-learner evaluate \\S+ ((?:--[a-z-]+ ${VALUE} ?)+)\`?`, "g");
const LEFT_OUT = /leave --([a-z-]+) out/g;
const OPTIONS = new RegExp(`--([a-z-]+) (${VALUE}(?: --\\1 ${VALUE})*)`, "g"); // one that is repeated has a list
const PARAMETER = new RegExp(`-p (${VALUE})=(${VALUE})`, "g");

/** The learner's words, with the form's fields in the place of its commands' options; others stay as they are. */
export const inFields = (words) => words
  .replace(COMMAND, "on the model's page, by $1")
  .replace(LEFT_OUT, (all, name) => FIELDS[name] ? `leave “${FIELDS[name]}” empty` : all)
  .replace(OPTIONS, (all, name, values) => FIELDS[name] ? `“${FIELDS[name]}: ${values.split(` --${name} `).join(", ")}”` : all)
  .replace(PARAMETER, "“$1: $2”");
