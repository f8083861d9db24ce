"""Owners who allow no delta: what is chosen spends none, what cannot do without says so, and evaluations work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.party.settings import PartySettings
from tests.services.forecast.conftest import Owners
from tests.support.cluster import Cluster, submit, watch

PURE = "average", "release", "simplex", "wu_subgradient", "wu_strongly_convex", "local_average"


class WithoutDelta(Owners):
    """Three owners who allow no delta at all."""

    def party_settings(self, name: str, **changes: object) -> PartySettings:
        """Return a party's settings, with a budget without a delta."""
        self.policy = {"epsilon": 4.0, "delta": 0.0, "max_epsilon_per_run": 2.0, "max_delta_per_run": 0.0}
        return Cluster.party_settings(self, name, **changes)


@pytest.fixture
def owners(tmp_path: Path) -> Owners:
    return WithoutDelta(tmp_path, n_parties=3, algorithms=("dp_gd", *PURE, "evaluate"), hold_out=0.25)


async def forecast(client: httpx.AsyncClient, **terms: object) -> dict[str, Any]:
    response = await client.post("/v1/forecasts", json={"study": "made-up", "epsilon": 0.5, "delta": 0} | terms)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def refusal(client: httpx.AsyncClient, status: int, **terms: object) -> dict[str, Any]:
    response = await client.post("/v1/runs", json={"study": "made-up", "epsilon": 0.5} | terms)
    assert response.status_code == status, response.text
    problem: dict[str, Any] = response.json()
    return problem


@pytest.mark.parametrize("algorithm", [*PURE, "auto"])
async def test_every_method_with_a_pure_form_fits(client: httpx.AsyncClient, algorithm: str) -> None:
    answer = await forecast(client, algorithm=algorithm)
    assert [(owner["fits"], owner["delta"]) for owner in answer["owners"]] == [(True, 0.0)] * 3, answer["owners"]
    assert answer["owners"][0]["objections"] == []
    assert answer["more_runs"] == 7, "epsilons add up: 8 of .5 are 4"
    assert answer["delta_buys"] is None, "these owners allow none"


async def test_a_run_and_its_evaluation_spend_none(client: httpx.AsyncClient) -> None:
    run = await submit(client, algorithm="average", epsilon=2.0, delta=0, evaluate=0.5)
    events = await watch(client, run)
    assert events[-1][1]["state"] == "completed", events[-1]
    model = (await client.get(f"/v1/runs/{run}/model")).json()
    assert {promise["delta"] for promise in model["guarantees"]} == {0.0}
    follower = await client.post(f"/v1/runs/{run}/evaluation", json={"epsilon": 0.5, "delta": 0})
    assert follower.status_code == 202, follower.text
    assert (await watch(client, follower.json()["id"]))[-1][1]["state"] == "completed"


async def test_a_request_with_a_delta_is_refused_and_told_how_to_do_without(client: httpx.AsyncClient) -> None:
    problem = await refusal(client, 422, algorithm="release", delta=1e-6)
    assert "one run may cost at most delta 0" in problem["detail"]
    assert problem["helps"] == ["--delta 0"]
    problem = await refusal(client, 422, algorithm="dp_gd", delta=1e-6)
    assert problem["helps"] == ["--delta 0 --algorithm release or average"]
    problem = await refusal(client, 422, algorithm="dp_gd", delta=0)
    assert problem["detail"].endswith(
        "Gaussian noise needs one; average, release, simplex and wu_subgradient train without, and algorithm = auto "
        "chooses"
    )
