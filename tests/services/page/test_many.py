"""A list of ten thousand runs, an event of each round, two hundred watchers; `scripts/benchmarks/page.py` has times."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import httpx
import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from parley.learner.execution.event_stream import RunNotifier
from parley.learner.storage.run_store import RunStore
from tests.services.page.conftest import ROLES
from tests.support.browser import Site, Visitor
from tests.support.cluster import AUTHORIZED

pytestmark = pytest.mark.slow
MANY = 10_000
COPIES = """
  WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ? - 1)
  INSERT INTO runs (id, user, purpose, draft, created, state, stage, spec, terms)
  SELECT printf('%032x', n), user, printf('copy number %d', n), draft, created, 'cancelled', 'cancelled', spec, terms
  FROM runs, numbers"""
SEEN = """
  window.seen = [];
  new MutationObserver(() => {
    const said = document.querySelector("#figures strong")?.textContent ?? "";
    if (said && said !== window.seen.at(-1)) window.seen.push(said);
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
"""


def store_of(site: Site) -> RunStore:
    """Return the store of the site's learner."""
    endpoints = [getattr(route, "endpoint", None) for route in site.app.routes]
    learners = [cell.cell_contents for endpoint in endpoints for cell in getattr(endpoint, "__closure__", None) or ()]
    store: RunStore = next(learner.store for learner in learners if hasattr(learner, "store"))
    return store


def add_runs(site: Site) -> None:
    """Add ten thousand runs that have ended."""
    with site.client() as client:
        ask = {"study": "biopsies", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": 3}}
        first = client.post("/v1/runs", json=ask).raise_for_status().json()["id"]
        while client.get(f"/v1/runs/{first}").json()["state"] not in {"completed", "failed"}:
            time.sleep(0.05)
    with store_of(site)._database.transaction() as connection:
        connection.execute(COPIES, (MANY,))


def test_a_list_of_ten_thousand_is_there_at_once(visitor: Visitor) -> None:
    add_runs(visitor.site)
    visitor.sign_in()
    visitor.until(lambda: len(visitor.all("#runs tr")) == 50)
    visitor.browser.get_log("performance")  # type: ignore[no-untyped-call]
    visitor.browser.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    visitor.browser.refresh()
    visitor.until(lambda: len(visitor.all("#runs tr")) == 50)
    entries = [json.loads(record["message"])["message"] for record in visitor.browser.get_log("performance")]  # type: ignore[no-untyped-call]
    received = [record["params"] for record in entries if record["method"] == "Network.dataReceived"]
    assert 0 < sum(record.get("encodedDataLength") or record.get("dataLength", 0) for record in received) < 100_000
    visitor.find("#more").click()
    visitor.until(lambda: len(visitor.all("#runs tr")) == 150)
    visitor.find("#search").send_keys("COPY number 77")
    visitor.until(lambda: len(visitor.all("#runs tr")) == 50)  # 77, 770 to 779, 7700 to 7799: 111
    visitor.find("#more").click()
    visitor.until(lambda: len(visitor.all("#runs tr")) == 111)
    assert not visitor.find("#more").is_displayed()
    Select(visitor.find("#with-state")).select_by_visible_text("running")
    visitor.until_it_says("No run is like that.")
    Select(visitor.find("#with-state")).select_by_visible_text("in any state")
    visitor.find("#search").send_keys(Keys.CONTROL + "a", Keys.DELETE)
    visitor.until(lambda: len(visitor.all("#runs tr")) == 50)
    assert visitor.log() == []


def test_a_run_that_goes_on_is_cancelled_by_the_user_who_asked_for_it(visitor: Visitor) -> None:
    with visitor.site.client() as client:
        ask = {"study": "biopsies", "epsilon": 0.5, "delta": 1e-5, "parameters": {"n_rounds": 3000}}
        run = client.post("/v1/runs", json=ask).raise_for_status().json()["id"]
    visitor.sign_in(f"#run/{run}", ROLES["viewer"])
    visitor.until_it_says("Time left")
    assert not visitor.find("#cancel").is_displayed()
    visitor.find("#sign-out").click()
    visitor.sign_in(f"#run/{run}")
    visitor.until_it_says("Time left")
    visitor.find("#cancel").click()
    visitor.until_it_says("cancelled", "#state")
    assert not visitor.find("#cancel").is_displayed()


def test_rounds_are_drawn_as_they_are_told(visitor: Visitor) -> None:
    with visitor.site.client() as client:
        ask = {"study": "biopsies", "epsilon": 0.5, "delta": 1e-5, "parameters": {"n_rounds": 60}}
        visitor.sign_in()
        visitor.until_it_says("alice", "#who")
        visitor.browser.execute_script(SEEN)
        run = client.post("/v1/runs", json=ask).raise_for_status().json()["id"]
        visitor.go(f"run/{run}")
    visitor.until_it_says("completed", "#state", 60)
    seen: list[str] = visitor.browser.execute_script("return window.seen")
    rounds = [int(text.split()[0]) for text in seen]
    assert len(rounds) > 1
    assert rounds == sorted(rounds)
    assert seen[-1] == "60 of 60"


async def test_two_hundred_watch_a_run(site: Site) -> None:
    async with httpx.AsyncClient(
        base_url=site.url, headers=AUTHORIZED, trust_env=False, timeout=60, limits=httpx.Limits(max_connections=None)
    ) as client:
        ask = {"study": "biopsies", "epsilon": 0.5, "delta": 1e-5, "parameters": {"n_rounds": 30}}
        run = (await client.post("/v1/runs", json=ask)).raise_for_status().json()["id"]

        async def watch() -> str:
            async with client.stream("GET", f"/v1/runs/{run}/events") as stream:
                return "".join([text async for text in stream.aiter_text()])

        heard = await asyncio.gather(*(watch() for _ in range(200)))
    assert len(set(heard)) == 1
    assert heard[0].count("event: round") == 30


async def test_those_who_watch_all_runs_hear_each_once(tmp_path: Path) -> None:
    notifier = RunNotifier()
    with notifier.listening_to_all() as changed:
        for run in ("a", "b", "a"):
            notifier.notify(run, ())
        await asyncio.wait_for(changed.has_news.wait(), 5)
        await asyncio.sleep(0.01)
        assert changed.take() == ["a", "b"]
        assert changed.take() == []
    notifier.notify("a", ())
    assert changed.runs == {}


async def test_the_stream_of_all_runs_begins_with_the_newest(site: Site) -> None:
    async with httpx.AsyncClient(base_url=site.url, headers=AUTHORIZED, trust_env=False, timeout=30) as client:
        newest = (await client.get("/v1/runs?limit=3")).json()["runs"]
        async with client.stream("GET", "/v1/events?limit=3") as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == "event: runs"
            document = json.loads((await anext(lines)).removeprefix("data: "))
    assert [run["id"] for run in document] == [run["id"] for run in reversed(newest)]
