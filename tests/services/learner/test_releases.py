"""Sites that release models, each by its own mechanism, as a user and their ledgers see it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from parley.common.privacy.account import Cost
from parley.common.runs.pricing import guarantees, schedule
from parley.common.runs.specification import RunSpec
from parley.party.api.app import create_party_app
from tests.support.cluster import Cluster, Stream, asgi_cluster, refused, train
from tests.support.intercepted import learner_of
from tests.support.rounds import ASKING, propose, run_spec
from tests.support.secure_cluster import SUMS, Rehearsal, SecureCluster, secure_services

NAMES = ("release", "average")
MIXED: dict[str, Any] = {
    "mechanism": "objective",
    "law": "gaussian",
    "regularization": 0.1,
    "sites": [
        {"party": "party-2", "mechanism": "output", "law": "l2_laplace", "regularization": 0.5},
        {"party": "party-3", "mechanism": "generalized", "calibration": "paper"},
    ],
}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, n_parties=3, algorithms=NAMES)


def streams(cluster: Cluster) -> dict[str, Stream]:
    return {name: Stream(9, index) for index, name in enumerate(cluster.names)}


async def rehearsed(cluster: Cluster, spec: RunSpec) -> bytes:
    """The model of a run in this process, to which each party answers by itself."""
    return await Rehearsal(cluster, spec, [stream.noise for stream in streams(cluster).values()]).weights()


async def spent(client: httpx.AsyncClient, name: str) -> Cost:
    """What a party says that this learner's runs have spent."""
    parties = (await client.get("/v1/parties")).raise_for_status().json()
    (budget,) = next(party["budgets"] for party in parties if party["name"] == name).values()
    return Cost(*budget["units"]["spent"])


async def hold_prices(client: httpx.AsyncClient, spec: RunSpec, model: dict[str, Any]) -> None:
    """Hold the model's promises and the parties' receipts to the schedule of the run."""
    algorithm, facts = spec.build(), spec.facts()
    promised = [promise.to_json() for promise in guarantees(algorithm, facts)]
    assert model["guarantees"] == json.loads(json.dumps(promised))
    for index, name in enumerate(spec.names):
        (step,) = schedule(algorithm, facts.of(index))
        assert await spent(client, name) == step


@pytest.mark.parametrize("name", NAMES)
async def test_sites_of_all_kinds_answer_as_in_this_process_and_pay_for_it(cluster: Cluster, name: str) -> None:
    spec = run_spec(cluster, algorithm=name, parameters=MIXED)
    async with asgi_cluster(cluster, streams(cluster)) as client:
        model = await train(client, algorithm=name, parameters=MIXED)
        await hold_prices(client, spec, model)
        paid = [await spent(client, party) for party in cluster.names]
    assert model["spec_digest"] == spec.digest
    assert np.array(model["weights"]).tobytes() == await rehearsed(cluster, spec)
    assert [cost.delta for cost in paid] == [10**13, 0, 10**13], "the pure site spends no delta"
    assert [cost.epsilon for cost in paid] == [1_000_000] * 3
    (promise,) = model["guarantees"]
    assert (promise["epsilon"], promise["delta"]) == (1.0, 1e-5), "to every site"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mechanism", ["output", "objective"])
@pytest.mark.parametrize(("law", "delta"), [("gaussian", 1e-5), ("l2_laplace", 0.0)])
async def test_the_price_of_a_release_is_one_wherever_it_is_told(
    cluster: Cluster, name: str, mechanism: str, law: str, delta: float
) -> None:
    parameters = {"mechanism": mechanism, "law": law, "regularization": 0.1}
    spec = run_spec(cluster, algorithm=name, parameters=parameters)
    async with asgi_cluster(cluster, streams(cluster)) as client:
        model = await train(client, algorithm=name, parameters=parameters)
        await hold_prices(client, spec, model)
        assert {(await spent(client, party)).delta for party in cluster.names} == {round(delta * 1e18)}
    assert np.array(model["weights"]).tobytes() == await rehearsed(cluster, spec)
    (promise,) = model["guarantees"]
    assert (promise["epsilon"], promise["delta"]) == (pytest.approx(1.0), delta)


@pytest.mark.parametrize(
    ("sites", "once"),
    [
        ([{"party": "party-1", "regularization": 1.0}], True),
        ([{"party": "party-3", "calibration": "paper"}], False),
        ([{"party": "party-3", "mechanism": "objective"}], False),
    ],
    ids=["once", "of two widths", "inside one"],
)
async def test_a_secure_average_is_that_of_this_process(
    tmp_path: Path, sites: list[dict[str, Any]], *, once: bool
) -> None:
    cluster = SecureCluster(tmp_path, n_parties=3, algorithms=NAMES)
    parameters = {"mechanism": "output", "law": "gaussian", "regularization": 0.1, "sites": sites}
    spec = run_spec(cluster, algorithm="average", parameters=parameters, secure_sum="paillier", colluders=1)
    async with (
        secure_services(cluster, streams(cluster)) as services,
        learner_of(cluster, services) as client,
    ):
        model = await train(client, algorithm="average", parameters=parameters, **SUMS)
        await hold_prices(client, spec, model)
    assert np.array(model["weights"]).tobytes() == await rehearsed(cluster, spec)
    deviations = [site.deviation for site in spec.build().own_sites(spec.facts().everyone)]  # type: ignore[attr-defined]
    assert (len(set(deviations)) == 1) == once


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("parameters", "terms", "words"),
    [
        ({"mechanism": "output", "regularization": 1e-9}, {}, "party-1: no solver surely finds"),
        ({"mechanism": "output", "regularization": 1e-9}, {}, "it would do"),
        ({"sites": [{"party": "nobody"}]}, {}, "sites names nobody, which take no part"),
        ({"sites": [{"party": "party-1"}] * 2}, {}, "sites names a party twice"),
        ({"law": "gaussian"}, {"delta": 0.0}, "Gaussian noise needs a delta above 0: take law = l2_laplace"),
        ({"mechanism": "output", "calibration": "thesis", "law": "gaussian"}, {}, "but must be one of"),
        ({"sites": [{"party": "party-1", "epsilon": 2.0}]}, {}, "epsilon"),
    ],
)
async def test_what_no_site_can_release_is_refused_at_once(
    cluster: Cluster, name: str, parameters: dict[str, Any], terms: dict[str, Any], words: str
) -> None:
    order = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "algorithm": name, "parameters": parameters} | terms
    async with asgi_cluster(cluster) as client:
        refused = await client.post("/v1/runs", json=order)
    assert refused.status_code == 422
    assert words in refused.json()["detail"]


@pytest.mark.parametrize("name", NAMES)
async def test_no_ledger_allows_a_site_without_a_mechanism(cluster: Cluster, name: str) -> None:
    sites = [{"party": "party-2", "mechanism": "none"}]
    parameters = {"regularization": 0.1, "sites": sites}
    spec = run_spec(cluster, algorithm=name, parameters=parameters)
    async with asgi_cluster(cluster) as client:
        reasons = await refused(client, algorithm=name, parameters=parameters)
    assert reasons == {"party-2": ["the run releases answers without noise; no budget allows that"]}
    with TestClient(create_party_app(cluster.party_settings("party-2")), headers=ASKING) as learner:
        problem = propose(learner, spec).json()  # by a learner that asks nevertheless
    assert problem["type"] == "urn:parley:problem:budget-exhausted"
    assert "without noise" in problem["detail"]
    assert math.isinf(guarantees(spec.build(), spec.facts())[-1].epsilon)
