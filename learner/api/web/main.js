/* Signs in and out, and shows the view that the address names after #. */

import { session } from "./api.js";
import { $, showNotice, showError } from "./dom.js";

const VIEWS = {
  runs: () => import("./runs.js"),
  studies: () => import("./studies.js"),
  new: () => import("./new.js"),
  run: () => import("./run.js"),
  compare: () => import("./compare.js"),
};
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
  $("user").textContent = `${session.user.name} · ${session.user.role}`;
  $("who").hidden = false;
  for (const link of document.querySelectorAll("[data-role]")) link.hidden = !session.may(link.dataset.role);
}

function askForToken(reason) {
  $("who").hidden = true;
  $("sign-in-why").textContent = reason ? `${reason}. What you see stays, and goes on when you have signed in.` : "";
  if (!$("sign-in").open) $("sign-in").showModal();
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
  if (session.token === null) {
    askForToken("");
    return;
  }
  try {
    await session.begin(session.token);
    welcome();
    await show();
  } catch (error) {
    if (error.status === 401) session.end(error.message);
    else showError(error);
  }
}

session.onend = askForToken;
$("sign-in").addEventListener("cancel", (event) => event.preventDefault());
$("sign-in").addEventListener("close", () => session.user ?? $("sign-in").showModal()); // a second Escape closes it all the same
$("sign-in").querySelector("form").addEventListener("submit", signIn);
$("sign-out").addEventListener("click", () => {
  leaving.abort();
  $("main").replaceChildren();
  session.end("");
});
window.addEventListener("hashchange", show);
start();
