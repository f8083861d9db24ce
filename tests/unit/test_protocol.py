"""What all agree on before a run, and the loop that asks, remembers and replays."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError, QuorumLostError
from parley.common.learning.losses import Logistic
from parley.common.learning.model import Model
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.algorithm import Program
from parley.common.protocol.driver import MemoryLog, drive
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.simulation import Simulation, simulate


def facts(**terms: object) -> FederationFacts:
    given = {
        "parties": ("a", "b", "c"),
        "n_examples": np.array([10, 20, 70]),
        "epsilon": np.array([1.0, 0.5, 2.0]),
        "delta": np.array([1e-5, 1e-4, 1e-6]),
        "n_features": 2,
        "loss": Logistic(),
        "minimum_contributors": 3,
    }
    return FederationFacts(**(given | terms))  # type: ignore[arg-type]


def test_each_party_has_its_own_budget_where_each_answer_is_seen() -> None:
    assert facts().everyone.own_epsilon.tolist() == [1.0, 0.5, 2.0]
    assert facts().of(2).own_epsilon.shape == ()
    assert [facts().of(i).own_delta.item() for i in range(3)] == [1e-5, 1e-4, 1e-6]
    assert facts().of(1).own_examples == 20
    assert facts().share == 1


def test_noise_in_shares_honours_the_strictest_and_survives_the_missing_and_the_colluding() -> None:
    secure = facts(secure_sum=True, minimum_contributors=3, colluders=1)
    assert secure.everyone.own_epsilon.tolist() == [0.5] * 3
    assert secure.of(2).own_delta == 1e-6
    assert secure.share == 1 / 2
    assert facts(minimum_contributors=3, colluders=1).share == 1


def test_a_curator_is_a_federation_of_one_with_the_strictest_budget() -> None:
    one = facts(secure_sum=True, colluders=2).curated()
    assert (one.parties, one.n_total, one.share) == (("curator",), 100, 1)
    assert (one.everyone.own_epsilon.tolist(), one.everyone.own_delta.tolist()) == ([0.5], [1e-6])
    assert one.of(0).own_examples == 100


def test_contributors_are_weighed_by_their_size() -> None:
    assert facts().examples((0, 2)) == 80
    assert facts().n_total == 100


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        ({"minimum_contributors": 0}, "minimum_contributors must lie between 1 and 3, not 0"),
        ({"minimum_contributors": 4}, "minimum_contributors must lie between 1 and 3, not 4"),
        ({"colluders": 3}, "colluders must lie between 0 and minimum_contributors - 1, not 3"),
        ({"colluders": -1}, "colluders must lie between 0 and minimum_contributors - 1, not -1"),
    ],
)
def test_terms_under_which_nobody_is_hidden_are_refused(terms: dict[str, int], named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        facts(**terms)


# ── the loop ─────────────────────────────────────────────────────────────────


def doubling(start: float) -> Program:
    """Asks three times for twice what it was told."""
    told = np.array([start])
    for round in range(1, 4):
        reply = yield Query(round, "double", told)
        told = reply.value
    return Model(told)


@dataclass
class Doubles:
    """A federation that doubles, and breaks when asked once too often."""

    patience: int
    asked: list[int] = field(default_factory=list)

    async def answer(self, run: str, query: Query) -> Reply:
        if len(self.asked) == self.patience:
            raise QuorumLostError("silent: c")
        self.asked.append(query.round)
        return Reply(query.message * 2, (0,))


def test_a_run_that_broke_goes_on_from_its_log_and_asks_nothing_twice() -> None:
    log, first, second = MemoryLog(), Doubles(2), Doubles(99)
    with pytest.raises(QuorumLostError):
        asyncio.run(drive(doubling(1.0), first, "run", log))
    model = asyncio.run(drive(doubling(1.0), second, "run", log))
    assert model.weights == 8
    assert (first.asked, second.asked) == ([1, 2], [3])


def test_a_program_that_asks_nothing_returns_its_model() -> None:
    def silent() -> Program:
        if np.zeros(0).size:
            yield Query(1, "never", np.zeros(0))
        return Model(np.ones(1))

    assert asyncio.run(drive(silent(), Doubles(0), "run", MemoryLog())).weights == 1


def test_a_simulation_needs_a_shard_for_each_party() -> None:
    shard = Shard(np.zeros((2, 4, 2)), np.ones((2, 4)))
    with pytest.raises(InvalidInputError, match="3 parties need a stack of as many shards"):
        Simulation.of(build_algorithm("dp_gd"), shard, facts(), NoNoise())


def test_a_baseline_with_a_curator_pools_the_shards_first() -> None:
    rng = np.random.default_rng(1)
    shards = [Shard(rng.uniform(-0.5, 0.5, (n, 2)), rng.choice([-1.0, 1.0], n)) for n in (10, 20, 70)]
    pooled = simulate(build_algorithm("pooled"), Shard.stack(shards), facts(), NoNoise())
    assert pooled.weights.shape == (2,)
    alone = simulate(build_algorithm("local"), Shard.stack(shards), facts(), NoNoise())
    assert alone.weights.shape == (3, 2)
    single = simulate(build_algorithm("local"), Shard.stack(shards[:1]), facts().curated(), NoNoise())
    assert np.array_equal(single.weights[0], alone.weights[0])
