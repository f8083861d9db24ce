"""How soon the learner's page shows things, in Chromium on services of this machine: needs chromium and chromedriver.

    python -m scripts.benchmarks.page [--runs 10000] [--watchers 200]

JSON lines. ``list``: milliseconds from the reload of the page, nothing cached, to the first fifty of so many runs, the
median of five, beside that of a list of a few, their ratio, and what was carried; then for ``more``, a press of the
button that shows a hundred further rows, the first and after three thousand are shown, and the longest frame in
scrolling through these. ``event``: milliseconds from the event of a round, as another client hears it, to its being on
screen.
``watchers``: what a round takes while so many hear of it, beside one, in runs in turns, and their ratio.
``owners``: milliseconds to the owners on screen, in the view of studies and in the form of a new run, while one hangs
and one refuses connections; and until both are said to be away. ``just_started``: from the opening of the page on a
learner that has just started, which has heard of no owner yet, to the list of runs, and to the owners in both views.
The goals are owners within 300 ms, of a learner that has just started too, a list within 300 ms and 100 kB, and an
event within 200 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import signal
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from hashlib import sha256

import httpx
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from scripts.demonstrations.hospitals import Hospitals
from scripts.deployment.sites import HOSPITALS
from scripts.loopback import processes, wait_until_ready

ROUNDS = 60
SHOWN = 3_000
COPIES = """
  WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ? - 1)
  INSERT INTO runs (id, user, purpose, draft, created, state, stage, spec, terms)
  SELECT printf('%032x', n), user, printf('copy number %d', n), draft, created, 'cancelled', 'cancelled', spec, terms
  FROM (SELECT * FROM runs LIMIT 1), numbers"""
LISTED = "return performance.getEntriesByName('listed')[0]?.startTime"
AWAY = re.compile(r"^(\S+) \d+ away since", re.MULTILINE)
SINCE = "return Math.round(performance.now() - performance.getEntriesByName('began')[0].startTime)"
PLACES = ("studies", "new")
BEGUN = "performance.clearMarks(); performance.mark('began'); location.hash = arguments[0]"
SHOWN_AFTER = """
  const [began, owners] = ["began", "owners"].map((name) => performance.getEntriesByName(name)[0]?.startTime);
  return owners - began;
"""
MARKED = "return performance.getEntriesByName(arguments[0])[0]?.startTime"
ROWS = "return document.querySelectorAll('#runs tr').length"
SEEN = """
  window.seen = [];
  new MutationObserver(() => {
    const said = document.querySelector("#figures strong")?.textContent ?? "";
    if (said && said !== window.seen.at(-1)?.[0]) window.seen.push([said, Date.now()]);
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
"""
GROWN = """
  const done = arguments[0], had = document.querySelectorAll('#runs tr').length, began = performance.now();
  const watch = new MutationObserver(() => {
    if (document.querySelectorAll('#runs tr').length > had) {
      watch.disconnect();
      requestAnimationFrame(() => done(performance.now() - began));
    }
  });
  watch.observe(document.querySelector('#runs'), { childList: true, subtree: true });
  document.querySelector('#more').click();
"""
SCROLLED = """
  const done = arguments[0], end = document.documentElement.scrollHeight;
  let last = performance.now(), longest = 0, at = 0;
  const step = (now) => {
    longest = Math.max(longest, now - last);
    last = now;
    if ((at += end / 120) > end) return done(longest);
    scrollTo(0, at);
    requestAnimationFrame(step);
  };
  requestAnimationFrame((now) => { last = now; requestAnimationFrame(step); });
"""


def main() -> None:
    """Start services and browser, measure and print."""
    parser = argparse.ArgumentParser(description="How soon the learner's page shows things.")
    parser.add_argument("--runs", type=int, default=10_000, help="runs in the list (default: %(default)s)")
    parser.add_argument("--watchers", type=int, default=200, help="who hear a run at once (default: %(default)s)")
    options = parser.parse_args()
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        sys.exit("chromium and chromedriver are not on the path")
    hospitals = Hospitals.start()
    try:
        headers = {"Authorization": f"Bearer {hospitals.token}"}
        with (
            httpx.Client(base_url=hospitals.url, headers=headers, trust_env=False, timeout=60) as learner,
            chromium() as page,
        ):
            sign_in(page, hospitals)
            measure_event(page, learner)
            asyncio.run(measure_watchers(learner, hospitals.token, options.watchers))
            measure_list(page, hospitals, options.runs)
            measure_owners(page, hospitals)
    finally:
        hospitals.stop()


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """Start a browser without a screen."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-proxy-server"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield browser
    finally:
        browser.quit()


def until(page: webdriver.Chrome, holds: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    WebDriverWait(page, 60, 0.02).until(lambda _: holds())


def sign_in(page: webdriver.Chrome, hospitals: Hospitals) -> None:
    """Open the page with a token."""
    page.get(hospitals.url)
    until(page, lambda: page.execute_script("return document.querySelector('#sign-in')?.open"))
    page.find_element("css selector", "#token").send_keys(hospitals.token)
    page.find_element("css selector", "#sign-in form button").click()
    until(page, lambda: page.find_element("css selector", "#who").text)


def submit(learner: httpx.Client, epsilon: float, rounds: int) -> str:
    """Submit a run, and return its identifier."""
    ask = {"study": "biopsies", "epsilon": epsilon, "delta": 1e-5, "parameters": {"n_rounds": rounds}}
    return str(learner.post("/v1/runs", json=ask).raise_for_status().json()["id"])


def measure_event(page: webdriver.Chrome, learner: httpx.Client) -> None:
    """Measure how late a round appears on the screen."""
    page.execute_script(SEEN)
    run, submitted = submit(learner, 0.3, ROUNDS), dict[str, float]()
    page.execute_script("location.hash = arguments[0]", f"run/{run}")
    with learner.stream("GET", f"/v1/runs/{run}/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: ") and "round" in (data := json.loads(line[6:])) and "ms" in data:
                submitted.setdefault(f"{data['round']} of {data['of']}", time.time() * 1000)
    until(page, lambda: page.find_element("css selector", "#state").text.endswith("completed"))
    seen = dict(page.execute_script("return window.seen"))
    late = [at - submitted[message] for message, at in seen.items() if message in submitted]
    figures = {"rounds": ROUNDS, "drawn": len(late), "median_ms": round(statistics.median(late)), "goal_ms": 200}
    print(json.dumps({"benchmark": "page", "what": "event"} | figures | {"most_ms": round(max(late))}), flush=True)


def measure_list(page: webdriver.Chrome, hospitals: Hospitals, runs: int) -> None:
    """Measure how soon a list appears: of a few runs, then of many."""
    few, _ = first_view(page, hospitals.url, 1)
    (path,) = hospitals.root.glob("**/learner.sqlite")
    with closing(sqlite3.connect(path)) as store, store:
        store.execute(COPIES, (runs,))
    many, carried = first_view(page, hospitals.url, 50)
    figures: dict[str, object] = {"runs": runs, "ms": round(many), "goal_ms": 300, "ms_of_few": round(few)}
    figures |= {"ratio": round(many / few, 2), "kB": round(carried / 1000, 1)}
    first = float(page.execute_async_script(GROWN))
    while page.execute_script(ROWS) < min(SHOWN, runs - 100):
        page.execute_async_script(GROWN)
    figures |= {"more_ms": round(first), "shown": page.execute_script(ROWS)}
    figures |= {"more_then_ms": round(page.execute_async_script(GROWN))}
    figures |= {"longest_frame_ms": round(page.execute_async_script(SCROLLED))}
    print(json.dumps({"benchmark": "page", "what": "list"} | figures), flush=True)


def first_view(page: webdriver.Chrome, url: str, rows: int) -> tuple[float, int]:
    """Milliseconds to the list from a reload of the page, nothing cached, and the bytes that it took."""
    page.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    page.execute_script("location.hash = ''")
    times, carried = [], 0
    for _ in range(5):
        page.get(f"{url}/")
        page.get_log("performance")  # type: ignore[no-untyped-call]
        page.refresh()
        until(page, lambda: page.execute_script(ROWS) >= rows and page.execute_script(LISTED))
        times.append(float(page.execute_script(LISTED)))
        log = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]  # type: ignore[no-untyped-call]
        sent = [entry["params"] for entry in log if entry["method"] == "Network.dataReceived"]
        carried = sum(entry.get("encodedDataLength") or entry.get("dataLength", 0) for entry in sent)
    return statistics.median(times), carried


def measure_owners(page: webdriver.Chrome, hospitals: Hospitals) -> None:
    """Measure how soon owners appear while one hangs and another refuses connections; both have answered before."""
    names = HOSPITALS[:2]
    hangs, refuses = (hospitals.processes[name] for name in names)
    first = {place: owners_shown(page, place) for place in PLACES}
    hangs.send_signal(signal.SIGSTOP)
    try:
        refuses.kill()
        refuses.wait()
        figures = {f"{place}_ms": owners_shown(page, place) for place in PLACES}
        page.execute_script(BEGUN, "studies")
        until(page, lambda: {*names} <= set(AWAY.findall(page.find_element("css selector", "main").text)))
        away = page.execute_script(SINCE)
        measure_just_started(page, hospitals)
    finally:
        hangs.send_signal(signal.SIGCONT)
    figures |= {f"{place}_all_answer_ms": milliseconds for place, milliseconds in first.items()}
    print(json.dumps({"benchmark": "page", "what": "owners"} | figures | {"goal_ms": 300, "away_ms": away}), flush=True)


def measure_just_started(page: webdriver.Chrome, hospitals: Hospitals) -> None:
    """Measure how soon each view appears on a learner that has just started, while owners are away."""
    learner, figures = hospitals.processes["learner"], {}
    for place, mark in {"runs": "listed", "studies": "owners", "new": "owners"}.items():
        learner.terminate()
        learner.wait()
        with processes({"learner": learner.args}, hospitals.root) as started:  # type: ignore[dict-item]  # a command
            wait_until_ready({"learner": hospitals.url}, started)
            page.get("about:blank")
            page.get(f"{hospitals.url}/#{place}")
            until(page, partial(page.execute_script, MARKED, mark))
            figures[f"{place}_ms"] = round(page.execute_script(MARKED, mark))
    print(json.dumps({"benchmark": "page", "what": "just_started"} | figures | {"goal_ms": 300}), flush=True)


def owners_shown(page: webdriver.Chrome, place: str) -> int:
    """Milliseconds from a change of the view to the owners on screen, the median of five."""
    times = []
    for _ in range(5):
        page.execute_script("location.hash = 'runs'")
        until(page, lambda: page.execute_script("return document.title.startsWith('Runs')"))
        page.execute_script(BEGUN, place)
        until(page, lambda: page.execute_script(SHOWN_AFTER))
        times.append(float(page.execute_script(SHOWN_AFTER)))
    return round(statistics.median(times))


async def measure_watchers(learner: httpx.Client, token: str, watchers: int) -> None:
    """The time of a round with many watchers and with none, in turns."""
    took: dict[int, list[float]] = {0: [], watchers: []}
    is_same = True
    for _ in range(3):
        for count in took:
            run = submit(learner, 0.05, 10 * ROUNDS)
            heard = await asyncio.gather(*(watch(learner.base_url, token, run) for _ in range(count + 1)))
            is_same &= len({sha256(stream).digest() for stream in heard}) == 1
            took[count] += [float(milliseconds) for milliseconds in re.findall(rb'"ms": ?([0-9.]+)', heard[0])]
    alone, watched = statistics.median(took[0]), statistics.median(took[watchers])
    figures = {"watchers": watchers, "all_heard_the_same": is_same, "round_ms": round(alone, 2)}
    figures |= {"round_watched_ms": round(watched, 2), "ratio": round(watched / alone, 2)}
    print(json.dumps({"benchmark": "page", "what": "watchers"} | figures), flush=True)


async def watch(url: httpx.URL, token: str, run: str) -> bytes:
    """A run's events to its end, as they come: a watcher that costs this process little."""
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = f"GET /v1/runs/{run}/events HTTP/1.0\r\nHost: {url.host}\r\nAuthorization: Bearer {token}\r\n\r\n"
    writer.write(head.encode("ascii"))
    received = await reader.read(-1)
    writer.close()
    return received.partition(b"\r\n\r\n")[2]


if __name__ == "__main__":
    main()
