/* Signs in and out, and shows the view that the address names after #. */

import { session } from "./api.js";
import { $, heading, showNotice, showError } from "./dom.js";
import { PROVIDER } from "./provider.js";

const VIEWS = {
  runs: () => import("./runs.js"),
  studies: () => import("./studies.js"),
  new: () => import("./new.js"),
  run: () => import("./run.js"),
  compare: () => import("./compare.js"),
};
const PLACE = "place"; // where a user was before the browser went to the identity provider
let leaving = new AbortController();

async function show() {
  leaving.abort();
  const { signal } = leaving = new AbortController();
  if (location.hash === "#main") return;
  const [name, argument = ""] = location.hash.slice(1).split(/\/(.*)/s);
  const view = Object.hasOwn(VIEWS, name) ? name : "runs";
  for (const link of document.querySelectorAll("nav a"))
    link.hash === `#${view}` ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  showNotice("");
  try {
    const module = await VIEWS[view]();
    if (signal.aborted) return;
    $("main").replaceChildren();
    scrollTo(0, 0);
    if (document.activeElement === document.body) $("main").focus({ preventScroll: true }); // the link that led here is gone
    await module.show($("main"), decodeURIComponent(argument), signal);
  } catch (error) {
    if (!signal.aborted) showError(error);
  }
}

function welcome() {
  $("sign-in").close();
  $("user").textContent = `${session.user.title} · ${session.user.role}`;
  $("who").hidden = false;
  for (const link of document.querySelectorAll("[data-role]")) link.hidden = !session.may(link.dataset.role);
}

function askToSignIn(reason) {
  const goesOn = PROVIDER ? "You come back to this view" : "What you see stays, and goes on when you have signed in";
  $("who").hidden = true;
  $("sign-in-why").textContent = reason ? `${heading(reason)}. ${goesOn}.` : "";
  if (!$("sign-in").open) $("sign-in").showModal();
}

function goToProvider() {
  sessionStorage.setItem(PLACE, location.hash);
  location.assign("/sign-in");
}

/** Offers the identity provider first, where there is one, and a token second. */
function offer() {
  $("with-provider").hidden = !PROVIDER;
  $("with-token").open = !PROVIDER;
  $("with-token").querySelector("summary").hidden = !PROVIDER;
  $("to-provider").textContent = `Sign in with ${PROVIDER}`;
}

async function signIn(event) {
  event.preventDefault();
  const token = $("token").value.trim();
  $("token").value = "";
  const isNew = !$("main").childElementCount;
  try {
    await session.begin(token);
    welcome();
    if (isNew) await show();
  } catch (error) {
    $("sign-in-why").textContent = `That did not work: ${error.message}.`;
    $("token").focus();
  }
}

async function start() {
  offer();
  if (!session.mayBegin) {
    askToSignIn("");
    return;
  }
  try {
    await session.begin(session.token);
    welcome();
    const place = sessionStorage.getItem(PLACE);
    sessionStorage.removeItem(PLACE);
    if (place && !location.hash) history.replaceState(null, "", place);
    await show();
  } catch (error) {
    if (error.status === 401) session.end(error.message);
    else showError(error);
  }
}

session.onend = askToSignIn;
$("sign-in").addEventListener("cancel", (event) => event.preventDefault());
$("sign-in").addEventListener("close", () => session.user ?? $("sign-in").showModal()); // a second Escape closes it all the same
$("sign-in").querySelector("form").addEventListener("submit", signIn);
$("to-provider").addEventListener("click", goToProvider);
$("sign-out").addEventListener("click", async () => {
  leaving.abort();
  $("main").replaceChildren();
  const next = await session.leave();
  if (next) location.assign(next);
});
window.addEventListener("hashchange", show);
start();
