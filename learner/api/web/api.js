/* Asks the learner's API: one session, problems as errors, streams as iterators. */

import { inFields } from "./fields.js";

const KEY = "token";
/* The session's own cookie is hidden from scripts; this one says that there may be a session. */
const MARK = "__Host-parley-signed-in=";
let waiting = [];

/** A request that the API refused, with the API's words. */
export class Problem extends Error {
  constructor(document) {
    super(inFields([document.detail, ...faults(document)].join("; ")));
    this.name = "Problem";
    this.status = document.status;
  }
}

function faults(document) {
  return (document.errors ?? []).map((each) => `${(each.loc ?? []).slice(1).join(".")} ${each.reason ?? ""}`.trim());
}

/** The user that is signed in, by a token or by a session's cookie. Without one, requests wait until a user signs in. */
export const session = {
  user: null,
  onend: () => {},
  get token() { return sessionStorage.getItem(KEY); },
  /** Whether there is something to begin with: a token of this tab, or a session of this browser. */
  get mayBegin() { return this.token !== null || document.cookie.includes(MARK); },
  /** Takes a token, or null for the browser's session, if the learner accepts it; throws Problem. */
  async begin(token) {
    const response = await fetch("/v1/user", { headers: bearing(token) });
    if (!response.ok) throw await problemOf(response);
    this.user = await response.json();
    if (token !== null) sessionStorage.setItem(KEY, token);
    for (const go of waiting.splice(0)) go();
  },
  /** Forgets the user and the token; `reason` is in words, or empty if the user signed out. */
  end(reason) {
    sessionStorage.removeItem(KEY);
    this.user = null;
    this.onend(reason);
  },
  /** Signs out; returns where the browser signs out at the identity provider as well, or null. */
  async leave() {
    const response = this.token === null ? await fetch("/sign-out", { method: "POST" }).catch(() => null) : null;
    this.end("");
    return response?.ok ? (await response.json()).next : null;
  },
  may(role) {
    const roles = ["viewer", "submitter", "operator"];
    return this.user !== null && roles.indexOf(this.user.role) >= roles.indexOf(role);
  },
};

const bearing = (token) => token === null ? {} : { Authorization: `Bearer ${token}` };

async function problemOf(response) {
  const unknown = { detail: `the learner answered with status ${response.status}`, status: response.status };
  return new Problem(await response.json().catch(() => unknown));
}

function signedIn(signal) {
  return new Promise((resolve, reject) => {
    waiting.push(resolve);
    signal?.addEventListener("abort", () => reject(signal.reason));
  });
}

/** The response to a request; throws Problem. If the user no longer counts, it waits for another sign-in and goes on. */
export async function ask(path, options = {}) {
  for (;;) {
    const { user, token } = session;
    if (user === null) {
      await signedIn(options.signal);
      continue;
    }
    const response = await fetch(path, { ...options, headers: { ...options.headers, ...bearing(token) } });
    if (response.ok) return response;
    const problem = await problemOf(response);
    if (response.status !== 401) throw problem;
    if (session.user === user) session.end(problem.message);
  }
}

export const get = async (path, signal) => (await ask(path, { signal })).json();

export async function post(path, body, signal, headers = {}) {
  const content = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers } };
  return (await ask(path, { method: "POST", signal, ...content })).json();
}

/** Server-sent events as [kind, data], without end: when the connection breaks, it continues after the last event. */
export async function* events(path, signal, onbreak = () => {}) {
  let last = "0", pause = 500;
  while (!signal.aborted) {
    try {
      const response = await ask(path, { headers: { "Last-Event-ID": last }, signal });
      onbreak(null);
      for await (const block of blocks(response.body)) {
        const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s)));
        if (!fields.data) continue;
        last = fields.id ?? last;
        pause = 500;
        yield [fields.event, JSON.parse(fields.data)];
      }
    } catch (error) {
      if (signal.aborted || (error instanceof Problem && error.status < 500)) throw error;
      onbreak(error);
    }
    await delay(pause);
    pause = Math.min(2 * pause, 8000);
  }
}

const delay = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Yields when any run has news, so that views of runs are fetched again: every 3 to 30 s unless said otherwise. */
export async function* changes(signal, least = 3000, most = 30_000) {
  let isNew = false, wake = () => {};
  const listen = async () => {
    for await (const _ of events("/v1/events?limit=1", signal)) {
      isNew = true;
      wake();
    }
  };
  listen().catch(() => {}); // without the stream it yields after `most` milliseconds each time
  while (!signal.aborted) {
    await delay(least);
    if (!isNew) await Promise.race([delay(most), new Promise((resolve) => { wake = resolve; })]);
    isNew = false;
    if (!signal.aborted) yield;
  }
}

async function* blocks(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    const complete = (text + chunk.value).split("\n\n");
    text = complete.pop();
    yield* complete;
  }
}
