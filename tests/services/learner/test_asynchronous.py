"""Asynchronous rounds: a round goes on without the silent, who are asked again, and dropped when silent too long."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from parley.common.client.federation import HttpFederation
from tests.support.cluster import AUTHORIZED, DEADLINE, Cluster, submit, watch
from tests.support.intercepted import Intercept, Intercepted, learner_of, unreachable
from tests.support.rounds import run_spec

Parties = dict[str, Intercepted]
TERMS: dict[str, Any] = {"minimum_contributors": 2, "answer_every": 3, "parameters": {"n_rounds": 8}}


def missing(*rounds: int) -> Intercept:
    """Be out of reach in these rounds."""

    async def refuse(request: httpx.Request) -> httpx.Response | None:
        if "/rounds/" in request.url.path and int(request.url.path.rsplit("/", 1)[1]) in rounds:
            raise httpx.ConnectError("refused", request=request)
        return None

    return refuse


async def run(
    cluster: Cluster, parties: Parties, patience_seconds: float = 60.0, **terms: object
) -> list[tuple[str, dict[str, Any]]]:
    """Run to the end; return the events."""
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE, patience_seconds=patience_seconds) as client:
        return await watch(client, await submit(client, **(TERMS | terms)))


async def spent(party: Intercepted) -> float:
    """What a party's ledger has charged."""
    headers = AUTHORIZED | {"Authorization": "Bearer the-learners-token"}
    async with httpx.AsyncClient(transport=party.inner, base_url="http://party", headers=headers) as client:
        return float((await client.get("/v1/budget")).json()["units"]["spent"][0] / 1e6)


async def test_a_round_goes_on_without_the_silent_who_are_asked_again(cluster: Cluster, parties: Parties) -> None:
    parties["party-2"].intercept = missing(2, 3, 5, 7)
    events = await run(cluster, parties)
    assert events[-1][1]["state"] == "completed"
    assert not [data for kind, data in events if kind == "dropped"]
    rounds = {data["round"]: data for kind, data in events if kind == "round"}
    assert [round for round, data in rounds.items() if data["missed"] == ["party-2"]] == [2, 3, 5, 7]
    assert [round for round, data in rounds.items() if "party-2" in data["contributors"]] == [1, 4, 6, 8]
    charged = [await spent(party) for party in parties.values()]
    assert charged == pytest.approx([1.0] * 3, abs=1e-4)
    print(
        f"asynchronous rounds: 4 of 8 answered, charged {charged[1]:.4f} like who answered all: skipped rounds are paid"
    )


async def test_who_misses_too_many_rounds_in_a_row_is_dropped(cluster: Cluster, parties: Parties) -> None:
    parties["party-2"].intercept = missing(2, 4, 5, 6)
    events = await run(cluster, parties)
    assert events[-1][1]["state"] == "completed"
    dropped = [data for kind, data in events if kind == "dropped"]
    assert [(data["party"], data["round"]) for data in dropped] == [("party-2", 6)]
    rounds_asked = [round for round in range(1, 9) if f"PUT {path(parties, round)}" in parties["party-2"].seen]
    assert rounds_asked == [1, 2, 3, 4, 5, 6]


def path(parties: Parties, round: int) -> str:
    """The path of a round of the only run."""
    first = next(seen for seen in parties["party-1"].seen if seen.endswith("/rounds/1"))
    return first.removeprefix("PUT ").removesuffix("1") + str(round)


async def test_too_few_in_a_round_fail_the_run_by_name(cluster: Cluster, parties: Parties) -> None:
    parties["party-1"].intercept = parties["party-2"].intercept = missing(4)
    events = await run(cluster, parties, patience_seconds=0)
    problem = events[-1][1]["problem"]
    assert (problem["type"], problem["silent"]) == ("urn:parley:problem:quorum-lost", ["party-1", "party-2"])


async def test_a_resumed_run_counts_the_rounds_that_were_missed_before(cluster: Cluster, parties: Parties) -> None:
    parties["party-2"].intercept = missing(3, 4, 5)
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE) as client:
        started = await submit(client, **TERMS)
        await parties["party-1"].wait_until_seen(f"PUT /v1/runs/{started}/rounds/5")  # stopped with two rounds missed
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE) as client:
        events = await watch(client, started)
        model = (await client.get(f"/v1/runs/{started}/model")).json()
    assert events[-1][1]["state"] == "completed"
    assert [(d["party"], d["round"]) for kind, d in events if kind == "dropped"] == [("party-2", 5)]
    assert model["contributors"] == ["party-1", "party-3"]


async def test_the_model_is_a_function_of_the_log(cluster: Cluster, parties: Parties) -> None:
    """Contributors are in the log: the program divides by the examples of those who answered."""
    parties["party-3"].intercept = missing(2)
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE) as client:
        submitted = await submit(client, **TERMS)
        events = await watch(client, submitted)
        weights = (await client.get(f"/v1/runs/{submitted}/model")).json()["weights"]
    assert [data["missed"] for kind, data in events if kind == "round"][1] == ["party-3"]
    assert bool(np.isfinite(weights).all())


@pytest.mark.parametrize(
    ("terms", "word"),
    [
        ({"minimum_contributors": 3}, "needs minimum_contributors below the number of parties"),
        ({"minimum_contributors": None}, "needs minimum_contributors below the number of parties"),
    ],
)
async def test_refuses_asynchronous_rounds_that_nobody_may_miss(
    client: httpx.AsyncClient, terms: dict[str, Any], word: str
) -> None:
    response = await client.post("/v1/runs", json={"study": "made-up", "epsilon": 1, "delta": 1e-5} | TERMS | terms)
    assert response.status_code == 422
    assert word in response.json()["detail"]


async def test_refuses_to_wait_for_no_rounds(client: httpx.AsyncClient) -> None:
    request = {"study": "made-up", "epsilon": 1, "delta": 1e-5} | TERMS | {"answer_every": 0}
    response = await client.post("/v1/runs", json=request)
    assert response.status_code == 422
    assert response.json()["errors"][0]["loc"] == ["body", "answer_every"]


@pytest.mark.parametrize(
    ("every", "recent", "active"),
    [
        (1, [], (0, 1, 2)),
        (1, [(0, 2)], (0, 2)),
        (3, [(0,), (0,)], (0, 1, 2)),
        (3, [(0,), (0,), (0, 2)], (0, 2)),
        (2, [(0, 1, 2), (0,), (0, 1)], (0, 1)),
    ],
)
def test_who_is_asked_follows_from_the_last_replies(
    cluster: Cluster, every: int, recent: list[tuple[int, ...]], active: tuple[int, ...]
) -> None:
    parties: Any = cluster.names
    spec = run_spec(cluster, minimum_contributors=1, answer_every=every)
    assert HttpFederation(spec, parties, 1.0, recent).active == active


async def test_without_the_option_the_first_silence_drops(cluster: Cluster, parties: Parties) -> None:
    parties["party-2"].intercept = unreachable("/rounds/2")
    events = await run(cluster, parties, answer_every=1)
    assert [(data["party"], data["round"]) for kind, data in events if kind == "dropped"] == [("party-2", 2)]
