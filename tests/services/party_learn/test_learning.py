"""An owner trains a model of its own: its examples as they are, the others' with noise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from parley.common.client.endpoints import PeerEntry
from parley.common.client.peer import Line
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import to_reals
from parley.common.errors import InvalidInputError, ParleyError, PartyRefusedError, QuorumLostError
from parley.common.learning.gradients import gradient_sum
from parley.common.privacy.account import MICRO
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.simulation import simulate
from parley.common.service.tokens import hash_token
from parley.common.wire.party_api import is_of_people
from parley.party.data.owner_data import load_holding
from parley.party.owner.training import Order, OwnShard, joined, learn
from parley.party.settings import PartySettings
from tests.support.cluster import DEADLINE, Cluster, party_apps
from tests.support.intercepted import Intercepted, silent
from tests.support.lines import line_over
from tests.support.rounds import run_spec

WU: dict[str, Any] = {
    "algorithm": "wu_strongly_convex",
    "parameters": {"n_rounds": 6, "calibration": "tight", "regularization": 0.01},
}
BUDGET = (1.0, 1e-5)


class Owners(Cluster):
    """Three parties that know each other as learners."""

    def party_settings(self, name: str, **changes: object) -> PartySettings:
        """A party's settings; the token for each other is its name."""
        others = [other for other in self.names if other != name]
        peers = [{"name": other, "url": f"http://{other}", "token": name, "plain_http": True} for other in others]
        learners = [{"name": other, "token_hash": hash_token(other)} for other in others]
        return super().party_settings(name, **{"learners": learners, "peers": peers} | changes)


@pytest.fixture
def owners(tmp_path: Path) -> Owners:
    return Owners(tmp_path, n_parties=3, algorithms=("dp_gd", "wu_strongly_convex", "wu_subgradient"))


class Neighbours:
    """The parties of the cluster, open to interception."""

    def __init__(self, owners: Owners, apps: dict[str, FastAPI]) -> None:
        self.owners, self.apps = owners, apps
        self.wires = {name: Intercepted(httpx.ASGITransport(app)) for name, app in apps.items()}

    async def learn(self, name: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 -- fields of an order
        """Train one owner's model."""
        settings = self.owners.party_settings(name)
        order = Order(**{
            "run": f"run-of-{name}",
            "budgets": {peer.name: BUDGET for peer in settings.peers},
            **WU,
        } | changes)  # fmt: skip
        return await learn(order, name, load_holding(settings), settings.peers, self.connect)

    def connect(self, entry: PeerEntry) -> Line:
        return line_over(entry, self.wires[entry.name])

    def spent(self, name: str) -> float:
        """What an owner's ledger says is spent, by all."""
        spent: int = self.apps[name].state.ledger.books.account.spent.epsilon
        return spent / MICRO


@pytest.fixture
async def neighbours(owners: Owners) -> AsyncIterator[Neighbours]:
    async with party_apps(owners) as apps:
        yield Neighbours(owners, apps)


async def test_every_owner_has_a_model_of_its_own(neighbours: Neighbours) -> None:
    models = {name: await neighbours.learn(name) for name in neighbours.owners.names}
    assert len({tuple(model["weights"]) for model in models.values()}) == 3
    for name, model in models.items():
        others = [other for other in neighbours.owners.names if other != name]
        assert model["contributors"] == [*others, name]
        assert model["guarantees_cover"] == others
        assert model["own"]["party"] == name
        assert model["own"]["epsilon"] is None
        assert "without noise" in model["own"]["protection"]
        assert [guarantee["epsilon"] for guarantee in model["guarantees"]] == pytest.approx([1.0], rel=1e-6)
    spent = [neighbours.spent(name) for name in neighbours.owners.names]
    assert spent == pytest.approx([2.0] * 3, abs=1e-4)  # each answered two runs, and nothing for its own
    print(f"three owners, three models: each ledger charged {spent[0]:.4f} for two others' runs, 0 for its own")


class Wards(Owners):
    """Owners; the first says that its people are in none of its other tables."""

    def party_settings(self, name: str, **changes: object) -> PartySettings:
        """A party's settings; the first party names its people."""
        table = {"source": str(self.root / f"{name}.csv")}
        study = {"name": self.study.name, "study": self.study_path, "data": table, "people": "ward-7"}
        named = {"study": None, "data": None, "studies": [study]} if name == "party-1" else {}
        return super().party_settings(name, **named | changes)


async def test_a_model_assumes_what_the_others_say_of_their_people(tmp_path: Path) -> None:
    owners = Wards(tmp_path, n_parties=3, algorithms=("wu_strongly_convex",))
    async with party_apps(owners) as apps:
        model = await Neighbours(owners, apps).learn("party-3")
    assumed = [[words for words in promise["assumptions"] if is_of_people(words)] for promise in model["guarantees"]]
    (said,) = {words for promise in assumed for words in promise}
    assert said.startswith("nobody among ward-7, of party-1, is in its owner's tables of other people")
    assert [len(promise) for promise in assumed] == [1] * len(model["guarantees"])


async def test_the_own_party_is_never_asked(neighbours: Neighbours) -> None:
    await neighbours.learn("party-2")
    assert neighbours.wires["party-2"].seen == []
    assert neighbours.wires["party-1"].rounds() == list(range(1, 7))
    assert neighbours.wires["party-1"].seen[-1] == "DELETE /v1/runs/run-of-party-2"


@pytest.mark.parametrize("hold_out", [None, 0.25])
async def test_without_noise_it_is_the_model_of_all_rows_to_train_on_pooled(
    tmp_path: Path, hold_out: float | None
) -> None:
    """The others' noise silenced, the run is a simulation of three parties, bit for bit."""
    owners = Owners(tmp_path, n_parties=3, algorithms=("wu_strongly_convex",), hold_out=hold_out)
    async with party_apps(owners, {name: lambda _: NoNoise() for name in owners.names}) as apps:
        model = await Neighbours(owners, apps).learn("party-3")
    spec = run_spec(owners, algorithm="wu_strongly_convex", parameters=WU["parameters"])
    stack = Shard.stack([owners.part(index, "training") for index in range(3)])
    expected = simulate(spec.build(), stack, spec.facts(), NoNoise())
    assert model["weights"].tolist() == expected.weights.tolist()


async def test_by_the_feature_method_models_come_in_and_nothing_goes_out(tmp_path: Path) -> None:
    """The others' noise silenced, the run is a simulation, bit for bit; with it they are charged, and see nothing."""
    owners = Owners(tmp_path, n_parties=3, algorithms=("feature",))
    order: dict[str, Any] = {"algorithm": "feature", "parameters": {"regularization": 0.1}}
    async with party_apps(owners, {name: lambda _: NoNoise() for name in owners.names}) as apps:
        neighbours = Neighbours(owners, apps)
        model = await neighbours.learn("party-3", **order)
        assert neighbours.wires["party-1"].rounds() == [1]
        assert [neighbours.spent(name) for name in owners.names] == pytest.approx([1.0, 1.0, 0.0], abs=1e-4)
    parameters = order["parameters"] | {"second": "own", "aggregator": "party-3"}
    others = run_spec(owners, algorithm="feature", parameters=parameters)
    others = others.model_copy(update={"parties": others.parties[:2], "minimum_contributors": 2}).settled()[0]
    stack = Shard.stack([owners.part(index, "training") for index in range(3)])
    expected = simulate(others.build(), stack, joined(others.facts(), "party-3", stack.n_examples[2]), NoNoise())
    assert model["weights"].tolist() == expected.weights.tolist()
    assert len(model["made_of"]["site_weights"]) == 3
    assert model["own"]["protection"].startswith("nothing that is computed from these examples")


class Zeros:
    """Others whose answers are zeros."""

    async def answer(self, run: str, query: Query) -> Reply:
        value = np.zeros((2, 4)) if query.reveal == "each" else np.zeros(4)
        return Reply(value, (0, 1))


@pytest.mark.parametrize("calibration", ["paper", "tight"])
async def test_the_own_answers_are_exact(owners: Owners, calibration: str) -> None:
    spec = run_spec(owners, algorithm="wu_subgradient", parameters={"calibration": calibration})
    others = spec.model_copy(update={"parties": spec.parties[:2], "minimum_contributors": 2})
    facts = joined(others.facts(), "party-3", owners.shard(2).X.shape[0])
    federation = OwnShard(Zeros(), len(spec.questions()), spec.build(), owners.shard(2), facts.of(2))
    query = Query(1, "gradient", np.full(4, 0.25))
    exact = to_reals(gradient_sum(facts.loss, owners.shard(2), query.message, 1.0, 1.0))
    summed, separate = [await federation.answer("run", replace(query, reveal=reveal)) for reveal in ("sum", "each")]
    assert summed.value.tolist() == exact.tolist()
    assert separate.value.tolist() == [[0.0] * 4, [0.0] * 4, exact.tolist()]
    assert summed.contributors == (0, 1, 2)
    assert facts.examples(summed.contributors) == sum(owners.n_examples + index for index in range(3))


async def test_a_run_that_failed_is_taken_up_at_no_cost(neighbours: Neighbours) -> None:
    neighbours.wires["party-2"].intercept = silent("/rounds/4")
    with pytest.raises(QuorumLostError, match="party-2"):
        await neighbours.learn("party-1", deadline=DEADLINE)
    neighbours.wires["party-2"].intercept = silent("never")
    model = await neighbours.learn("party-1")
    assert model["rounds"] == 6
    assert [neighbours.spent(name) for name in ("party-2", "party-3")] == pytest.approx([1.0, 1.0], abs=1e-4)


async def test_it_goes_on_without_a_silent_owner_where_the_others_are_enough(neighbours: Neighbours) -> None:
    neighbours.wires["party-2"].intercept = silent("/rounds/")
    model = await neighbours.learn("party-1", minimum_contributors=1, deadline=DEADLINE)
    assert model["contributors"] == ["party-3", "party-1"]


@pytest.mark.parametrize(
    ("changes", "error", "word"),
    [
        ({"budgets": {"party-9": BUDGET}}, InvalidInputError, "unknown parties: party-9"),
        ({"budgets": {}}, InvalidInputError, "at least 1 item"),
        ({"budgets": {"party-2": (0.0, 1e-5)}}, InvalidInputError, "epsilon must be positive"),
        ({"algorithm": "psgd", "parameters": {}}, InvalidInputError, "has guarantees for its parties alone"),
        ({"algorithm": "gop", "parameters": {}}, InvalidInputError, "has guarantees for its parties alone"),
        ({"parameters": {"overlap": 0}}, InvalidInputError, "overlap"),
        ({"parameters": {"rho": 0.0}}, InvalidInputError, "rho"),
        ({"minimum_contributors": 3}, InvalidInputError, "minimum_contributors"),
        ({"budgets": {"party-2": (1000.0, 1e-5)}}, PartyRefusedError, "party-2 refused: one run may cost at most"),
    ],
)
async def test_refuses_what_cannot_be(
    neighbours: Neighbours, changes: dict[str, Any], error: type[ParleyError], word: str
) -> None:
    with pytest.raises(error, match=word):
        await neighbours.learn("party-1", **changes)
    assert all(not wire.rounds() for wire in neighbours.wires.values())
