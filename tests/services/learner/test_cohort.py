"""A run of parties that are not always there: who is absent while it recruits does not fail it, and is left alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.cluster import DEADLINE, Cluster, submit, train, until_paused, watch
from tests.support.intercepted import Intercepted, always, learner_of, pass_on, unreachable

Parties = dict[str, Intercepted]
COHORT: dict[str, Any] = {"cohort": {"least": 3, "seconds": 2.0}}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """The files of five parties."""
    return Cluster(tmp_path, n_parties=5, algorithms=("dp_gd", "evaluate"), hold_out=0.2)


@pytest.fixture
async def client(cluster: Cluster, parties: Parties) -> AsyncIterator[httpx.AsyncClient]:
    """A user of a learner that does not wait long."""
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE, approval_seconds=DEADLINE) as client:
        yield client


async def view(client: httpx.AsyncClient, run: str) -> dict[str, Any]:
    """A run as users see it."""
    document: dict[str, Any] = (await client.get(f"/v1/runs/{run}")).json()
    return document


async def test_who_is_absent_does_not_fail_the_run_and_is_asked_nothing_later(
    client: httpx.AsyncClient, parties: Parties
) -> None:
    parties["party-2"].intercept = unreachable()
    parties["party-4"].intercept = always(403, b'{"type": "policy-refusal", "detail": "not today"}', "/v1/party")
    run = await submit(client, **COHORT)
    events = await watch(client, run)
    assert events[-1][1]["state"] == "completed", events[-1]
    run_view = await view(client, run)
    assert run_view["parties"] == ["party-1", "party-3", "party-5"] == list(run_view["epsilon"])
    assert run_view["cohort"] == {"least": 3, "most": None, "seconds": 2.0, "owner_hours": 24}
    assert run_view["absent"].keys() == {"party-2", "party-4"}
    assert "cannot be reached" in run_view["absent"]["party-2"]
    assert run_view["absent"]["party-4"] == "party-4 refused: not today"
    assert next(data for kind, data in events if data.get("state") == "running")["absent"] == run_view["absent"]
    assert not [seen for name in ("party-2", "party-4") for seen in parties[name].seen if "/v1/runs" in seen]
    model = (await client.get(f"/v1/runs/{run}/model")).json()
    assert model["contributors"] == ["party-1", "party-3", "party-5"]


async def test_who_does_not_approve_is_absent_from_all_rounds(client: httpx.AsyncClient, parties: Parties) -> None:
    parties["party-1"].intercept = unreachable("/v1/runs")
    parties["party-2"].intercept = always(403, b'{"detail": "no budget"}', "/v1/runs")
    run = await submit(client, **COHORT, answer_every=2, minimum_contributors=2)
    events = await watch(client, run)
    assert events[-1][1]["state"] == "completed", events[-1]
    assert {tuple(data["contributors"]) for kind, data in events if kind == "round"} == {
        ("party-3", "party-4", "party-5")
    }
    run_view = await view(client, run)
    assert len(run_view["parties"]) == 5
    assert run_view["absent"].keys() == {"party-1", "party-2"}
    assert not [seen for name in ("party-1", "party-2") for seen in parties[name].seen if "/rounds/" in seen]


async def test_too_few_pause_the_run_which_says_how_many_answered_of_how_many_and_by_when(
    client: httpx.AsyncClient, parties: Parties
) -> None:
    for name in ("party-1", "party-2", "party-3"):
        parties[name].intercept = unreachable()
    run = await submit(client, **COHORT)
    pause = await until_paused(client, run)
    assert pause["reason"].startswith("2 of 5 parties answered within 2 s, by 20")
    assert "and the cohort needs at least 3; party-1 cannot be reached (ConnectError); party-2" in pause["reason"]
    assert pause["who"] == ["party-1", "party-2", "party-3"]
    parties["party-2"].intercept = pass_on
    await client.post(f"/v1/runs/{run}/resume")
    assert (await watch(client, run))[-1][1]["state"] == "completed"
    assert (await view(client, run))["parties"] == ["party-2", "party-4", "party-5"]
    print(f"paused: {pause['reason']}")


async def test_too_many_refusals_fail_the_run(client: httpx.AsyncClient, parties: Parties) -> None:
    for name in ("party-1", "party-2", "party-3"):
        parties[name].intercept = always(403, b'{"detail": "not today"}', "/v1/runs")
    problem = (await watch(client, await submit(client, **COHORT)))[-1][1]["problem"]
    assert problem["detail"].startswith("2 of 5 parties approved within")
    assert problem["reason"] == "cohort-too-small"


async def test_of_more_than_most_some_are_drawn_and_the_others_left_alone(
    client: httpx.AsyncClient, parties: Parties
) -> None:
    run = await submit(client, cohort={"least": 2, "most": 3, "seconds": 5})
    assert (await watch(client, run))[-1][1]["state"] == "completed"
    run_view = await view(client, run)
    assert len(run_view["parties"]) == 3
    assert set(run_view["absent"].values()) == {"not drawn: the cohort has at most 3 parties"}
    for name in run_view["absent"]:
        assert parties[name].seen == ["GET /v1/party"] * 2, "before the run, and as it recruits"


async def test_an_evaluation_follows_among_the_members_by_the_same_rule(
    client: httpx.AsyncClient, parties: Parties
) -> None:
    parties["party-2"].intercept = unreachable()
    run = await submit(client, **COHORT, evaluate=0.2)
    follower = (await watch(client, run))[-1][1]["evaluated_by"]
    parties["party-5"].intercept = unreachable()
    evaluated = await watch(client, follower)
    assert evaluated[-1][1]["state"] == "completed", evaluated[-1]
    run_view = await view(client, follower)
    assert set(run_view["parties"]) <= {"party-1", "party-3", "party-4", "party-5"}
    assert run_view["cohort"] == (await view(client, run))["cohort"]
    assert "party-2" not in run_view["absent"]


async def test_a_learner_that_restarts_while_it_recruits_goes_on(cluster: Cluster, parties: Parties) -> None:
    parties["party-2"].intercept = unreachable()
    for name in ("party-1", "party-3", "party-4"):
        parties[name].intercept = unreachable("/v1/runs")
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE, approval_seconds=DEADLINE) as client:
        run = await submit(client, **COHORT)
        await until_paused(client, run)
        assert (await view(client, run))["absent"].keys() == {"party-2"}
    for name in ("party-1", "party-3", "party-4"):
        parties[name].intercept = pass_on
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE) as client:
        assert (await watch(client, run))[-1][1]["state"] == "completed"
        assert (await view(client, run))["parties"] == ["party-1", "party-3", "party-4", "party-5"]


async def test_a_learner_that_restarts_in_mid_run_leaves_who_did_not_approve_alone(
    cluster: Cluster, parties: Parties
) -> None:
    parties["party-1"].intercept = unreachable("/v1/runs")
    for name in ("party-3", "party-4", "party-5"):
        parties[name].intercept = unreachable("/rounds/1")
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE, approval_seconds=DEADLINE) as client:
        run = await submit(client, **COHORT)
        await until_paused(client, run)
    for party in parties.values():
        party.intercept = pass_on
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE) as client:
        events = await watch(client, run)
        assert events[-1][1]["state"] == "completed"
    assert not [seen for seen in parties["party-1"].seen if "/rounds/" in seen]


async def test_a_forecast_is_of_those_who_answer_now(client: httpx.AsyncClient, parties: Parties) -> None:
    parties["party-2"].intercept = unreachable()
    request = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": 10}} | COHORT
    owners = (await client.post("/v1/forecasts", json=request)).raise_for_status().json()["owners"]
    assert [owner["name"] for owner in owners] == ["party-1", "party-3", "party-4", "party-5"]


async def test_without_a_rule_all_must_come(client: httpx.AsyncClient, parties: Parties) -> None:
    parties["party-2"].intercept = unreachable()
    assert (await until_paused(client, await submit(client)))["who"] == ["party-2"]
    parties["party-2"].intercept = pass_on
    assert (await train(client))["contributors"] == [f"party-{i}" for i in range(1, 6)]
