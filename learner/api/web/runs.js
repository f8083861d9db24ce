/* Shows the list of runs from a stream: a run that begins, changes or ends changes in the list at once. */

import { events, get } from "./api.js";
import { ENDS, badge, count, debounced, firstWords, h, number, showNotice, showError, whenInShort } from "./dom.js";

const FIRST = 50, MORE = 100;
const STATES = ["queued", "recruiting", "running", "paused", ...ENDS];
const HEADINGS = ["", "Run", "State", "Rounds", "ε at most", "By", "Since"];

export async function show(main, _, signal) {
  document.title = "Runs · Parley";
  const list = new RunList(signal);
  main.append(h("h1", {}, "Runs"), ...list.elements);
  let isFirst = true;
  const broken = (error) => {
    showNotice(error ? "The learner does not answer; this list is taken up again when it does." : "");
    if (!error && isFirst) setTimeout(() => list.settle(), 300);
    isFirst = false;
  };
  for await (const [kind, runs] of events(`/v1/events?limit=${FIRST}`, signal, broken)) if (kind === "runs") list.take(runs);
}

class RunList {
  looked = new AbortController();
  state = h("select", { id: "with-state", "aria-label": "State", onchange: () => this.look().catch(showError) },
    h("option", { value: "" }, "in any state"), STATES.map((each) => h("option", {}, each)));
  search = h("input", { id: "search", type: "search", maxlength: 200, placeholder: "Study, algorithm, who, purpose", "aria-label": "Find runs",
    oninput: debounced(() => this.look().catch(showError), 250) });
  rows = new Map();
  newest = "";
  oldest = null;
  body = h("tbody", { id: "runs" });
  empty = h("p", { id: "no-runs", hidden: true }, "There are no runs yet. ", h("a", { href: "#new" }, "Train a model"));
  damaged = h("div", { id: "damaged", role: "status" });
  more = h("button", { id: "more", type: "button", hidden: true, onclick: () => this.older().catch(showError) }, "Older runs");
  compare = h("button", { id: "compare", type: "button", disabled: true, onclick: () => this.go() }, "Compare the chosen");

  constructor(signal) {
    signal.addEventListener("abort", () => this.looked.abort());
  }

  get elements() {
    const head = h("thead", {}, h("tr", {}, HEADINGS.map((each) =>
      h("th", { scope: "col" }, each || h("span", { class: "unseen" }, "Choose")))));
    return [h("div", { class: "row", role: "search" }, this.search, this.state, this.compare), this.empty, this.damaged,
      h("table", { class: "cards" }, h("caption", { class: "unseen" }, "Runs, newest first"), head, this.body), this.more];
  }

  /** Takes runs from the stream, oldest first: runs in the list change, and new ones come on top. */
  take(runs) {
    for (const run of runs) {
      const row = this.rows.get(run.id);
      if (row) row.update(run);
      else if (run.created >= this.newest && this.fits(run)) {
        this.body.prepend(this.row(run));
        this.newest = run.created;
        this.oldest ??= run.id;
      }
    }
    this.settle();
    performance.mark("listed");
  }

  row(run) {
    const row = new RunRow(run, () => this.chose());
    this.rows.set(run.id, row);
    return row.element;
  }

  /** The state and the search text, as the API's query. */
  get wanted() {
    return Object.entries({ state: this.state.value, search: this.search.value.trim() }).filter(([, value]) => value);
  }

  /** Whether a new run has the state and the text that the user searches for. */
  fits(run) {
    const words = [run.study, run.algorithm, run.user, run.purpose].join("\n").toLowerCase();
    return (!this.state.value || run.state === this.state.value) && words.includes(this.search.value.trim().toLowerCase());
  }

  /** Replaces the list by the newest runs with the state and the text that the user searches for. */
  async look() {
    this.looked.abort();
    this.looked = new AbortController();
    const page = await get(`/v1/runs?${new URLSearchParams([["limit", FIRST], ...this.wanted])}`, this.looked.signal);
    this.rows.clear();
    this.body.replaceChildren();
    this.damaged.replaceChildren();
    this.newest = page.runs[0]?.created ?? "";
    this.show(page);
    this.empty.replaceChildren(this.wanted.length ? "No run is like that." : "There are no runs yet.");
    this.settle();
    this.chose();
  }

  async older() {
    this.show(await get(`/v1/runs?${new URLSearchParams([["limit", MORE], ["after", this.oldest], ...this.wanted])}`, this.looked.signal));
  }

  show(page) {
    this.warn(page);
    this.body.append(...page.runs.filter((run) => !this.rows.has(run.id)).map((run) => this.row(run)));
    this.oldest = page.next ?? page.runs.at(-1)?.id ?? this.oldest;
    this.more.dataset.end = page.next === null ? "yes" : "";
    this.more.hidden = page.next === null;
  }

  /** Names the runs of a page that cannot be read. */
  warn(page) {
    this.damaged.append(...page.damaged.map((run) => h("p", {}, `Run ${run} is damaged in the learner's database. `,
      h("a", { href: `#run/${run}` }, "What helps"))));
  }

  settle() {
    this.empty.hidden = this.rows.size > 0;
    this.more.hidden = this.rows.size < FIRST || this.more.dataset.end === "yes";
  }

  chosen() {
    return [...this.rows].filter(([, row]) => row.box.checked).map(([id]) => id);
  }

  chose() {
    this.compare.disabled = this.chosen().length < 2;
  }

  go() {
    location.hash = `compare/${this.chosen().join(",")}`;
  }
}

class RunRow {
  constructor(run, onchoose) {
    this.box = h("input", { type: "checkbox", "aria-label": `Choose ${nameOf(run)}`, onchange: onchoose });
    this.state = h("td", { "data-label": "State" });
    this.rounds = h("td", { "data-label": "Rounds" });
    this.element = h("tr", { "data-run": run.id },
      h("td", {}, this.box),
      h("th", { scope: "row" }, h("a", { href: `#run/${run.id}` }, nameOf(run)), run.purpose && h("p", { class: "hint" }, run.purpose)),
      this.state, this.rounds,
      h("td", { "data-label": "ε at most" }, number(largest(run.epsilon))),
      h("td", { "data-label": "By" }, run.user),
      h("td", { "data-label": "Since" }, h("time", { datetime: run.created }, whenInShort(run.created))));
    this.update(run);
  }

  update(run) {
    if (this.drawn !== run.state + (run.pause?.reason ?? "")) {
      this.drawn = run.state + (run.pause?.reason ?? "");
      const why = run.pause?.reason ?? run.problem?.detail;
      this.state.replaceChildren(badge(run.state), why ? h("p", { class: "hint why" }, firstWords(why)) : "");
    }
    const { done, of } = run.rounds, rounds = `${count(done)} of ${count(of)}`;
    if (ENDS.includes(run.state) || !of) this.rounds.replaceChildren(of ? rounds : "not chosen yet");
    else if (this.bar?.isConnected) [this.bar.value, this.bar.max, this.progress.textContent] = [done, of, rounds];
    else {
      this.bar = h("progress", { value: done, max: of, "aria-label": `Rounds of ${nameOf(run)}` });
      this.progress = h("span", {}, rounds);
      this.rounds.replaceChildren(this.bar, " ", this.progress);
    }
  }
}

const nameOf = (run) => `${run.study}, ${run.evaluates ? "an evaluation" : run.algorithm}`;
const largest = (epsilon) => typeof epsilon === "number" ? epsilon : Math.max(...Object.values(epsilon));
