"""Five parties of different budgets: what one of them would refuse is refused when it is asked for."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest

from parley.common.privacy.account import SQUARE_UNITS, Cost, limit
from parley.common.privacy.calibration import gaussian_mu
from tests.services.forecast.conftest import BUDGETS, DELTA, CrowdSeekers, Hasty, left_after
from tests.support.cluster import submit, upload, watch
from tests.support.intercepted import Intercepted

Parties = dict[str, Intercepted]
WU: dict[str, Any] = {"algorithm": "wu_strongly_convex", "parameters": {"n_rounds": 20, "calibration": "tight"}}


def gaussian(epsilon: float) -> Cost:
    """The cost of a Gaussian run across runs."""
    return Cost(1, 1, math.ceil(gaussian_mu(epsilon, DELTA) ** 2 * SQUARE_UNITS))


async def left(client: httpx.AsyncClient) -> dict[str, float]:
    """What each party has left, as a forecast tells it."""
    request = {"study": "made-up", "epsilon": 0.25, "delta": 1e-5, **WU}
    answer = (await client.post("/v1/forecasts", json=request)).raise_for_status().json()
    return {owner["name"]: owner["epsilon_now"] for owner in answer["owners"]}


async def problem_of(client: httpx.AsyncClient, **terms: object) -> dict[str, Any]:
    """Why a run is refused, which is not queued."""
    before = (await client.get("/v1/runs")).json()["runs"]
    response = await client.post("/v1/runs", json={"study": "made-up", "delta": 1e-5} | terms)
    problem: dict[str, Any] = response.json()
    assert (response.status_code, problem["type"]) == (422, "urn:parley:problem:foreseen-refusal"), problem
    assert (await client.get("/v1/runs")).json()["runs"] == before
    return problem


async def test_a_budget_that_would_end_within_the_horizon_is_refused_beforehand(
    client: httpx.AsyncClient, parties: Parties
) -> None:
    events = await watch(client, await submit(client, epsilon=0.25, **WU))
    assert events[-1][1]["state"] == "completed"
    before = await left(client)
    assert before == pytest.approx(left_after(gaussian(0.25)), abs=1e-5)

    rounds_before = {name: party.rounds() for name, party in parties.items()}
    problem = await problem_of(client, epsilon=0.2, **WU)  # what party-5 has left would not last for 20 rounds
    reason = "as far as your own runs go, epsilon 0.2, delta 1e-05 are asked for; epsilon 0.1"
    assert problem["detail"].startswith(f"party-5 would refuse the run: {reason}")
    assert [refusal["party"] for refusal in problem["refusals"]] == ["party-5"]
    others = " ".join(f"--party party-{number}" for number in range(1, 5))
    offered = float(problem["helps"][0].removeprefix("--epsilon "))
    assert 0.99 * before["party-5"] < offered <= before["party-5"] < 0.2
    assert problem["helps"][1:] == [others]
    assert await left(client) == before
    assert {name: party.rounds() for name, party in parties.items()} == rounds_before
    print(f"five parties: {problem['detail']}; before round 1, nobody charged")


async def test_each_owners_own_budget_counts(client: httpx.AsyncClient) -> None:
    events = await watch(
        client, await submit(client, epsilon=2.0, budgets={
            "party-4": {"epsilon": 1.0, "delta": 1e-5}, "party-5": {"epsilon": 0.3, "delta": 1e-5},
        }, **WU)
    )  # fmt: skip
    assert events[-1][1]["state"] == "completed"
    now = await left(client)
    assert [now[name] for name in ("party-3", "party-4", "party-5")] == [0, 0, 0], "all of it, to the last unit"
    for name in ("party-1", "party-2"):
        assert now[name] == pytest.approx(limit(BUDGETS[name], DELTA).charge(gaussian(2.0)).epsilon_left, abs=1e-4)


async def test_a_horizon_that_costs_more_than_the_ledger_allows_is_refused(client: httpx.AsyncClient) -> None:
    """The paper's PSGD costs more the more rounds there are: what fits with 1 does not with 40."""
    terms: dict[str, Any] = {"algorithm": "psgd", "epsilon": 0.25, "parties": ["party-5"]}
    ended = await watch(client, await submit(client, **terms, parameters={"n_rounds": 1}))
    assert ended[-1][1]["state"] == "completed"
    problem = await problem_of(client, **terms, parameters={"n_rounds": 40})
    assert problem["refusals"][0]["party"] == "party-5"
    assert "are left" in problem["detail"]


async def test_a_horizon_longer_than_the_owner_allows_is_refused(client: httpx.AsyncClient) -> None:
    terms = {"calibration": "tight", "n_rounds": 51}
    problem = await problem_of(client, algorithm="wu_subgradient", epsilon=0.1, parameters=terms)
    everybody = "party-1, party-2, party-3, party-4, party-5"
    words = f"{everybody} would refuse the run: a run may have at most 50 rounds; what helps: -p n_rounds=50"
    assert problem["detail"] == words


@pytest.mark.parametrize("owners", [Hasty], indirect=True)
async def test_rounds_that_are_left_open_are_no_more_than_the_owners_allow(client: httpx.AsyncClient) -> None:
    terms: dict[str, Any] = {"algorithm": "dp_gd", "epsilon": 2.0, "parties": ["party-1", "party-2", "party-3"]}
    request = {"study": "made-up", "delta": 1e-5} | terms
    unasked = request | {"owners": {"party-1": 40, "party-2": 41, "party-3": 42}}
    wanted, answer = [
        (await client.post("/v1/forecasts", json=body)).raise_for_status().json() for body in (unasked, request)
    ]
    assert wanted["rounds"] > answer["rounds"] == 2
    assert answer["chosen"]["n_rounds"].endswith(f"; {wanted['rounds']} would be more than time or owners allow")
    ended = await watch(client, await submit(client, **terms))
    assert ended[-1][1]["state"] == "completed"


@pytest.mark.parametrize("owners", [CrowdSeekers], indirect=True)
async def test_what_owners_would_refuse_is_told_before_they_are_asked(
    owners: CrowdSeekers, client: httpx.AsyncClient
) -> None:
    """The forecast uses the words in which the run is refused, for each rule, and says what helps."""
    long, start = {"n_rounds": 51, "calibration": "tight"}, await upload(client, owners.public_table(1))
    for terms, reason, helps in (
        ({"epsilon": 11.0, **WU}, "at most epsilon 10", "--epsilon 0.3"),
        ({"epsilon": 0.2, "delta": 1e-4, **WU}, "at most delta 1e-05", "--delta 1e-05"),
        ({"epsilon": 0.2, "algorithm": "average"}, "the owner does not allow average", "--algorithm dp_gd or psgd"),
        (
            {"epsilon": 0.2, "minimum_contributors": 1, **WU},
            "each sum needs at least 3 contributors",
            "--minimum-contributors 3",
        ),
        (
            {"epsilon": 0.2, "algorithm": "wu_subgradient", "parameters": long},
            "a run may have at most 50 rounds",
            "-p n_rounds=50",
        ),
        ({"epsilon": 0.2, "algorithm": "dp_gd", "public": start["digest"]}, "these public rows", None),
        ({"epsilon": 9.0, "algorithm": "psgd", "parameters": {"n_rounds": 40}}, "one may cost 10", "--epsilon 0.015"),
    ):
        request = {"study": "made-up", "delta": 1e-5} | terms
        answer = (await client.post("/v1/forecasts", json=request)).raise_for_status().json()
        (objection,) = answer["owners"][0]["objections"]
        assert reason in objection, (terms, objection)
        problem = await problem_of(client, **terms)
        assert objection in problem["refusals"][0]["reasons"]
        assert problem["helps"] == answer["helps"]
        assert helps in problem["helps"] or helps is None, problem["detail"]
        for epsilon in (way.split()[1] for way in problem["helps"] if way.startswith("--epsilon ")):
            again = (await client.post("/v1/forecasts", json=request | {"epsilon": float(epsilon)})).json()
            assert all(owner["fits"] and not owner["objections"] for owner in again["owners"]), "it does help"
    fine = (await client.post("/v1/forecasts", json={"study": "made-up", "epsilon": 0.2, "delta": 1e-5, **WU})).json()
    assert not any(owner["objections"] for owner in fine["owners"])
