"""A run as its user sees it: queued, watched, cancelled, resumed, predicted with."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from parley.common.algorithms.dp_gd import DpGd
from parley.common.arrays import IntArray
from parley.common.data import study
from parley.common.data.records import rows_of
from parley.common.encoding.canonical_json import canonical_digest
from parley.common.privacy.account import Cost
from parley.common.privacy.noise import Noise
from parley.common.protocol.facts import OwnFacts
from parley.common.protocol.messages import Query
from parley.common.runs import specification
from parley.common.runs.pricing import guarantees, schedule
from parley.common.service.tokens import hash_token
from parley.party.answers.party import open_store
from tests.support.cluster import Cluster, asgi_cluster, submit, train, watch
from tests.support.intercepted import Intercepted, always, learner_of
from tests.support.rounds import run_spec

Parties = dict[str, Intercepted]


class Gate:
    """Holds back every question of one round until it is opened."""

    def __init__(self, round: int) -> None:
        self.round = round
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def __call__(self, request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith(f"/rounds/{self.round}"):
            self.reached.set()
            await self.opened.wait()
        return None


async def view(client: httpx.AsyncClient, run: str) -> dict[str, Any]:
    document: dict[str, Any] = (await client.get(f"/v1/runs/{run}")).raise_for_status().json()
    return document


async def test_no_specification_is_read_or_spelt_on_an_event_loop(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a study of many columns either takes a second, in which a learner and its parties would answer nobody."""
    on_loop = list[bool]()

    def watched(value: object) -> str:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return canonical_digest(value)

    monkeypatch.setattr(study, "canonical_digest", watched)
    monkeypatch.setattr(specification, "canonical_digest", watched)
    terms = {"study": "made-up", "epsilon": 1, "delta": 1e-5, "parameters": {"n_rounds": 2}}
    (await client.post("/v1/forecasts", json=terms)).raise_for_status()
    await train(client, **terms)
    assert on_loop
    assert not any(on_loop)


async def test_a_run_goes_from_the_queue_to_a_model(client: httpx.AsyncClient, cluster: Cluster) -> None:
    request = {"study": "made-up", "epsilon": 1, "delta": 1e-5, "parameters": {"n_rounds": 10}}
    response = await client.post("/v1/runs", json=request)
    assert response.status_code == 202
    queued = response.json()
    assert response.headers["location"] == f"/v1/runs/{queued['id']}"
    assert queued["state"] in {"queued", "recruiting"}, "it may have begun before it was answered"
    assert queued["rounds"] == {"done": 0, "of": 10}

    events = await watch(client, queued["id"])
    states = [data["state"] for kind, data in events if kind == "state"]
    assert states == ["queued", "recruiting", "running", "completed"]
    rounds = [data for kind, data in events if kind == "round"]
    assert [data["round"] for data in rounds] == list(range(1, 11))

    spec = run_spec(cluster)
    algorithm, facts = spec.build(), spec.facts()
    spent = np.cumsum([cost.epsilon for cost in schedule(algorithm, facts.of(0))]) / 1e6
    assert [data["epsilon"]["party-1"] for data in rounds] == pytest.approx(spent.tolist())

    ended = await view(client, queued["id"])
    assert (ended["state"], ended["rounds"]["done"], ended["problem"]) == ("completed", 10, None)
    assert ended["parameters"] == spec.parameters
    assert set(ended["chosen"]) == set(spec.parameters) - {"n_rounds"}
    assert "curvature" in ended["chosen"]["step"]
    model = (await client.get(f"/v1/runs/{queued['id']}/model")).json()
    assert model["spec_digest"] == ended["spec_digest"] == spec.digest
    assert model["contributors"] == list(cluster.names)
    promised = [guarantee.to_json() for guarantee in guarantees(algorithm, facts)]
    assert model["guarantees"] == json.loads(json.dumps(promised))
    assert model["guarantees"][0]["assumptions"], "in words, that come with the model"
    assert len(model["weights"]) == len(model["column_names"]) == 4
    counted = {f'{metric}{{state="completed"}} 1.0' for metric in ("parley_runs", "parley_runs_ended_total")}
    assert counted <= set((await client.get("/metrics")).text.splitlines())


async def test_the_parties_hear_that_a_run_has_ended(client: httpx.AsyncClient, parties: Parties) -> None:
    run = await submit(client)
    await watch(client, run)
    for party in parties.values():
        await party.wait_until_seen(f"DELETE /v1/runs/{run}")


async def test_watching_resumes_after_the_last_event_that_was_seen(client: httpx.AsyncClient) -> None:
    run = await submit(client)
    response = await client.get(f"/v1/runs/{run}/events")
    numbers = [int(line.removeprefix("id: ")) for line in response.text.splitlines() if line.startswith("id: ")]
    everything = await watch(client, run)
    assert len(everything) == len(numbers)
    for seen in (1, 5, len(numbers)):
        assert await watch(client, run, after=numbers[seen - 1]) == everything[seen:]


async def test_an_idempotency_key_queues_one_run(client: httpx.AsyncClient) -> None:
    request = {"study": "made-up", "epsilon": 1, "delta": 1e-5}
    first, again = [await client.post("/v1/runs", json=request, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert first.status_code == again.status_code == 202
    assert first.json()["id"] == again.json()["id"]
    other = await client.post("/v1/runs", json=request | {"epsilon": 2}, headers={"Idempotency-Key": "k"})
    assert other.status_code == 409
    assert other.json()["type"] == "urn:parley:problem:conflict"
    for changed in ({"purpose": "for somebody else"}, {"seconds": 5}, {"algorithm": "auto"}):
        different = await client.post("/v1/runs", json=request | changed, headers={"Idempotency-Key": "k"})
        assert different.status_code == 409, changed
    assert len((await client.get("/v1/runs")).json()["runs"]) == 1
    await watch(client, first.json()["id"])


async def test_an_idempotency_key_finds_a_run_of_any_algorithm_when_it_has_one(client: httpx.AsyncClient) -> None:
    request = {"study": "made-up", "epsilon": 1, "delta": 1e-5, "algorithm": "auto", "purpose": "costs"}
    first = await client.post("/v1/runs", json=request, headers={"Idempotency-Key": "k"})
    await watch(client, first.json()["id"])
    again = await client.post("/v1/runs", json=request, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])


async def test_users_do_not_share_their_idempotency_keys(cluster: Cluster, parties: Parties) -> None:
    users = [{"name": name, "token_hash": hash_token(name)} for name in ("alice", "bob")]
    request = {"study": "made-up", "epsilon": 1, "delta": 1e-5}
    runs = set()
    async with learner_of(cluster, parties, users=users) as client:
        for user in ("alice", "bob"):
            headers = {"Authorization": f"Bearer {user}", "Idempotency-Key": "k"}
            document = (await client.post("/v1/runs", json=request, headers=headers)).json()
            assert document["user"] == user
            runs.add(document["id"])
    assert len(runs) == 2


async def test_cancelling_ends_a_run_at_once(client: httpx.AsyncClient, parties: Parties) -> None:
    gate = parties["party-2"].intercept = Gate(round=3)
    run = await submit(client)
    watching = asyncio.create_task(watch(client, run))
    await gate.reached.wait()
    for _ in range(2):  # twice is once
        response = await client.post(f"/v1/runs/{run}/cancel")
        assert (response.status_code, response.json()["state"]) == (200, "cancelled")
    assert (await watching)[-1] == ("state", {"state": "cancelled"})
    gate.opened.set()
    model = await client.get(f"/v1/runs/{run}/model")
    assert model.status_code == 409
    assert max(parties["party-1"].rounds()) == 3
    for party in parties.values():
        await party.wait_until_seen(f"DELETE /v1/runs/{run}")


async def test_a_run_fails_where_work_on_a_partys_data_does_and_others_are_free_again(
    client: httpx.AsyncClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = DpGd.local

    def failing(self: DpGd, query: Query, prepared: Any, facts: OwnFacts, noise: Noise) -> IntArray:  # noqa: ANN401
        if query.round == 2 and facts.index == 1:
            raise ZeroDivisionError
        return local(self, query, prepared, facts, noise)

    monkeypatch.setattr(DpGd, "local", failing)
    run = await submit(client)
    ended = (await watch(client, run))[-1][1]
    assert ended["state"] == "failed"
    assert "party-2" in ended["problem"]["detail"]
    assert "what was left of its price is charged" in ended["problem"]["detail"]
    spent = {}
    for name in cluster.names:
        with open_store(cluster.party_settings(name)) as ledger:
            async with asyncio.timeout(10):
                while ledger.account().reserved != Cost(0, 0):  # noqa: ASYNC110 -- parties are told after all others
                    await asyncio.sleep(0.01)
            spent[name] = ledger.account().spent.gdp
    assert spent["party-1"] == spent["party-3"] < spent["party-2"]


async def test_a_run_says_what_its_delta_allows(tmp_path: Path) -> None:
    """Once the sizes of all shards are known."""
    generous = {"delta": 0.9, "max_delta_per_run": 0.5}
    async with asgi_cluster(Cluster(tmp_path, n_parties=2, policy=generous)) as client:
        risky, usual = await submit(client, delta=0.5), await submit(client)
        for run in (risky, usual):
            await watch(client, run)
        assert "published whole" in (await view(client, risky))["cautions"][0]
        assert (await view(client, usual))["cautions"] == []


async def test_what_has_ended_cannot_be_cancelled(client: httpx.AsyncClient) -> None:
    run = await submit(client)
    await watch(client, run)
    response = await client.post(f"/v1/runs/{run}/cancel")
    assert response.status_code == 409
    assert response.json()["state"] == "completed"


async def test_runs_beyond_the_limit_wait_in_the_queue(cluster: Cluster, parties: Parties) -> None:
    gate = parties["party-1"].intercept = Gate(round=1)
    async with learner_of(cluster, parties, concurrent_runs=1) as client:
        first = await submit(client)
        await gate.reached.wait()
        second = await submit(client)
        assert (await view(client, second))["state"] == "queued"
        gate.opened.set()
        assert (await watch(client, second))[-1][1]["state"] == "completed"
        assert [run["id"] for run in (await client.get("/v1/runs")).json()["runs"]] == [second, first]
        assert len((await client.get("/v1/runs?limit=1")).json()["runs"]) == 1


async def test_a_stopped_learner_takes_up_its_runs(cluster: Cluster, parties: Parties) -> None:
    gate = parties["party-3"].intercept = Gate(round=4)
    async with learner_of(cluster, parties) as client:
        run = await submit(client, parameters={"n_rounds": 10})
        await gate.reached.wait()
    gate.opened.set()
    async with learner_of(cluster, parties) as client:
        events = await watch(client, run)
    assert events[-1][1]["state"] == "completed"
    assert [data["round"] for kind, data in events if kind == "round"] == list(range(1, 11))
    assert [parties["party-3"].rounds().count(round) for round in range(1, 11)] == [1, 1, 1, 2, 1, 1, 1, 1, 1, 1]


async def test_predicts_with_the_model(client: httpx.AsyncClient, cluster: Cluster) -> None:
    model = await train(client, epsilon=50.0)
    (run,) = [view["id"] for view in (await client.get("/v1/runs")).json()["runs"]]
    records = [{"x0": 0.9, "x1": 0.8, "x2": 0.7}, {"x0": -0.9, "x1": -0.8, "x2": -0.7, "ignored": 1.0}]
    response = await client.post(f"/v1/runs/{run}/predictions", json={"records": records})
    predictions = response.raise_for_status().json()
    scores = rows_of(cluster.study, records) @ np.array(model["weights"])
    assert [view["score"] for view in predictions] == scores.tolist()
    assert [view["label"] for view in predictions] == ["yes", "no"]
    assert [view["probability"] for view in predictions] == pytest.approx((1 / (1 + np.exp(-scores))).tolist())


@pytest.mark.parametrize(
    "records",
    [[{"x0": 1.0, "x1": 1.0}], [{"x0": "red", "x1": 1.0, "x2": 1.0}], [{"x0": None, "x1": 1.0, "x2": 1.0}]],
)
async def test_refuses_records_it_cannot_predict_for(client: httpx.AsyncClient, records: list[object]) -> None:
    await train(client)
    (run,) = [view["id"] for view in (await client.get("/v1/runs")).json()["runs"]]
    response = await client.post(f"/v1/runs/{run}/predictions", json={"records": records})
    assert response.status_code == 422
    assert response.json()["type"] == "urn:parley:problem:invalid-input"
    assert "red" not in response.text


async def test_measures_rounds_on_public_data(cluster: Cluster, parties: Parties) -> None:
    public = {"made-up": cluster.root / "party-1.csv"}
    async with learner_of(cluster, parties, public_data=public) as client:
        events = await watch(client, await submit(client, epsilon=50.0))
    rounds = [data for kind, data in events if kind == "round"]
    assert rounds[0]["objective"] == pytest.approx(np.log(2))
    assert events[-1][1]["objective"] < rounds[0]["objective"]
    assert events[-1][1]["accuracy"] > 0.8


async def test_lists_parties_and_algorithms(client: httpx.AsyncClient, parties: Parties) -> None:
    parties["party-2"].intercept = always(307, location="http://elsewhere/")
    parties["party-3"].intercept = always(403, b"{}", "/v1/budget")
    first, second, third = (await client.get("/v1/parties")).json()
    assert (first["name"], first["problem"]) == ("party-1", None)
    (about,) = first["facts"]["studies"]
    assert about["n_examples"] == 40
    assert first["budgets"].keys() == {about["study_digest"]}
    assert (second["facts"], second["budgets"]) == (None, {})
    assert (third["facts"]["name"], third["budgets"], third["problem"]) == ("party-3", {}, None), "it does not say"
    assert "redirects are not followed" in second["problem"]["detail"]
    algorithms = (await client.get("/v1/algorithms")).json()
    assert algorithms["gop"]["curator"]
    assert algorithms["dp_gd"]["parameters"]["properties"]["n_rounds"]["minimum"] == 1
    assert algorithms["dp_gd"]["summary"].startswith("Full-batch gradient descent")
