"""The lines of a run with a secure sum, which pauses and goes on: they tell all of it, name it, and have no value."""

from __future__ import annotations

import asyncio
import csv
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from parley.common.service import logs
from parley.learner.runs.states import Notice
from parley.learner.storage.run_log import RunLog
from tests.support.cluster import DEADLINE, submit, until_paused, watch
from tests.support.intercepted import learner_of, pass_on, unreachable
from tests.support.secure_cluster import SUMS, SecureCluster, secure_services

Lines = list[dict[str, Any]]
EVERYWHERE = {"timestamp", "level", "event", "request", "run", "session", "caller"}
ROW = re.compile(r"\| (`[^|]*) \| [^|]* \| [^|]* \| ([^|]*)\|")
ENDED = re.compile('"event": "ended"')
ROUNDS = 5
STORY = """submitted recruiting approved running round round paused
    asked_to_resume resumed round round completed ended"""


def documented() -> dict[str, set[str]]:
    """The fields that the documents name for each event, of all services that have it."""
    text = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text().partition("## Logs\n")[2]
    fields: defaultdict[str, set[str]] = defaultdict(set)
    for events, named in ROW.findall(text):
        for event in re.findall("`([^`]+)`", events):
            fields[event] |= set(re.findall("`([^`]+)`", named))
    return fields


def cells(cluster: SecureCluster) -> set[str]:
    """All numbers of the owners' tables."""
    tables = [(cluster.root / f"{name}.csv").read_text().splitlines()[1:] for name in cluster.names]
    return {cell for table in tables for row in csv.reader(table) for cell in row[:-1]}


async def logged(cluster: SecureCluster, capfd: pytest.CaptureFixture[str]) -> Lines:
    """A run that one party interrupts for a while, and all lines about it, from all services."""
    async with secure_services(cluster) as services:
        services["party-2"].intercept = unreachable("/rounds/4")
        async with learner_of(cluster, services, deadline_seconds=DEADLINE) as client:
            run = await submit(client, parameters={"n_rounds": ROUNDS}, **SUMS)
            await until_paused(client, run)
            services["party-2"].intercept = pass_on
            (await client.post(f"/v1/runs/{run}/resume", headers={"X-Request-Id": "go-on"})).raise_for_status()
            await watch(client, run)
            text = capfd.readouterr().err
            n_ends = 1 + len(cluster.names) + len(cluster.key_holders)  # the learner waits for the others, but not long
            async with asyncio.timeout(10):
                while len(ENDED.findall(text)) < n_ends:
                    await asyncio.sleep(0.02)
                    text += capfd.readouterr().err
    return [line for line in map(json.loads, text.splitlines()) if line.get("run") == run]


async def test_the_lines_of_a_run_tell_its_story_and_no_value(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logs.configure("json")
    cluster = SecureCluster(tmp_path, n_parties=2)
    lines = await logged(cluster, capfd)
    learners = [line for line in lines if "learner" not in line and line["event"] != "refused"]
    assert [line["event"].replace(" ", "_") for line in learners] == STORY.split()
    of = {line["event"]: line for line in learners}
    assert (of["submitted"]["user"], of["submitted"]["epsilon"]) == ("alice", 1.0)
    assert (of["approved"]["by"], of["running"]["key_holders"]) == (list(cluster.names), list(cluster.key_holders))
    assert [line["round"] for line in learners if line["event"] == "round"] == [1, 2, 4, ROUNDS]
    assert [of[event]["rounds"] for event in ("running", "paused", "resumed", "completed")] == [ROUNDS, 3, 3, ROUNDS]
    assert of["paused"]["who"] == ["party-2"]
    assert "cannot be reached" in of["paused"]["reason"]

    others = Counter(line["event"] for line in lines if "learner" in line)
    assert others == {
        **dict.fromkeys(("proposed", "approved", "joined"), 2),
        "charged": 2 * 3,
        "opened": 3,
        "session": 1,
        "signed": 1,
        "ended": 2 + 1,
    }
    assert {line["epsilon"] for line in lines if line["event"] == "ended" and "epsilon" in line} == {1.0}
    assert {line["request"] for line in lines} == {of["submitted"]["request"], "go-on"}
    assert [line["event"] for line in lines if line["request"] == "go-on"] == ["asked to resume"]

    fields = documented()
    for line in lines:
        assert line.keys() - EVERYWHERE <= fields[line["event"]], line["event"]
    said = {str(value) for line in lines for name, value in line.items() if name != "seconds"}
    assert not said & cells(cluster)


def test_a_long_run_has_few_lines_and_at_least_one_a_minute() -> None:
    def rounds(seconds: float) -> list[int]:
        clock = iter(seconds * number for number in range(2000))
        log = RunLog(lambda: next(clock))
        with capture_logs() as lines:
            for number in range(1, 2001):
                log.noticed("run", number, [Notice("round", {"of": 2000, "missed": ["b"] * 99})])
        assert all(line["missed"][-1] == "and 79 more" for line in lines)
        return [line["round"] for line in lines]

    assert rounds(0.01) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2000]
    assert rounds(30.0)[:6] == [1, 2, 4, 6, 8, 10]
