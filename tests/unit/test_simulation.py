"""A simulated federation in blocks of parties: the same answers, one-time noise of each block's own, bounded memory."""

from __future__ import annotations

import asyncio
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Logistic, Softmax
from parley.common.privacy.noise import Noise, NoNoise, SeededNoise, SystemNoise
from parley.common.protocol import simulation
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.simulation import Simulation, simulate
from tests.support.noises import OnlyOnce

K, N, D = 11, 4, 6


def federation(*, secure: bool) -> tuple[Shard, FederationFacts]:
    rng = np.random.default_rng(1)
    shard = Shard(rng.normal(size=(K, N, D)), rng.choice([-1.0, 1.0], (K, N)))
    facts = FederationFacts.uniform(
        shard.n_examples, epsilon=1.0, delta=1e-5, n_features=D, loss=Logistic(), secure_sum=secure
    )
    return shard, replace(facts, epsilon=np.linspace(0.5, 2.0, K))


def in_blocks_of(monkeypatch: pytest.MonkeyPatch, parties: int) -> None:
    monkeypatch.setattr(simulation, "_LANES", parties * D)


@pytest.mark.parametrize("secure", ["", "secure"])
@pytest.mark.parametrize("name", ["dp_gd", "psgd", "wu_subgradient", "local_average", "local"])
def test_blocks_answer_what_one_stack_does(name: str, secure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shard, facts = federation(secure=bool(secure))
    given: dict[str, Any] = {"n_rounds": 3} if name in {"dp_gd", "psgd", "wu_subgradient"} else {}
    algorithm = build_algorithm(name, given)
    whole = simulate(algorithm, shard, facts, NoNoise())
    for parties in (1, 4, K - 1, K):
        in_blocks_of(monkeypatch, parties)
        blocks = Simulation.of(algorithm, shard, facts, NoNoise()).blocks
        assert len(blocks) == -(-K // parties)
        assert np.concatenate([block.facts.own_epsilon for block in blocks]).tolist() == (
            facts.everyone.own_epsilon.tolist()
        )
        assert simulate(algorithm, shard, facts, NoNoise()).weights.tobytes() == whole.weights.tobytes()


def test_a_stack_is_parted_into_views_of_at_most_so_many_parties() -> None:
    shard, _ = federation(secure=False)
    parts = list(shard.parties(4))
    assert [len(part.y) for _, part in parts] == [4, 4, 3]
    for index, part in parts:
        assert np.shares_memory(part.X, shard.X)
        assert all(np.array_equal(getattr(part, name), getattr(shard, name)[index]) for name in ("X", "y", "mask"))
        assert np.array_equal(part.norms_l1, shard.norms_l1[index])
    for whole in (shard, shard.party(0)):
        assert [(index, part is whole) for index, part in whole.parties(K)] == [(..., True)]


def test_one_block_draws_what_a_stack_always_drew() -> None:
    shard, facts = federation(secure=True)
    algorithm = build_algorithm("dp_gd", {"n_rounds": 2})
    query = Query(1, "gradient", np.zeros(D))
    answers = algorithm.local(query, shard, facts.everyone, SeededNoise(5))
    reply = answered(Simulation.of(algorithm, shard, facts, SeededNoise(5)), query)
    assert reply.value.tolist() == (answers.sum(axis=0) * 2.0**-32).tolist()


@pytest.mark.slow
def test_noise_of_blocks_is_as_wide_as_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shard, facts = federation(secure=True)
    algorithm, query = build_algorithm("dp_gd", {"n_rounds": 2}), Query(1, "gradient", np.zeros(D))
    exact = answered(Simulation.of(algorithm, shard, facts, NoNoise()), query).value
    in_blocks_of(monkeypatch, 3)
    noisy = Simulation.of(algorithm, shard, facts, SeededNoise(6))
    drawn = np.array([answered(noisy, query).value - exact for _ in range(500)])
    sigma = facts.deviation_of_sum(algorithm.sigma(facts.everyone))  # type: ignore[attr-defined]
    ratio = drawn.std() / sigma
    print(f"noise on a sum over {len(noisy.blocks)} blocks: {ratio:.3f} of its deviation, in {drawn.size} draws")
    assert abs(ratio - 1) < 5 / np.sqrt(2 * drawn.size)  # five standard errors: a false alarm in 10^6 at most


@pytest.mark.parametrize("noise", [OnlyOnce(), SystemNoise()], ids=["once", "all"])
def test_each_block_has_one_time_noise_of_its_own_and_keeps_it(noise: Noise, monkeypatch: pytest.MonkeyPatch) -> None:
    shard, facts = federation(secure=False)
    algorithm, query = build_algorithm("psgd", {"n_rounds": 2}), Query(1, "gradient", np.zeros(D))
    in_blocks_of(monkeypatch, 3)
    blocks = Simulation.of(algorithm, shard, facts, noise)
    first, second = (answered(blocks, query).value for _ in range(2))
    assert bool((first == second).all()) == isinstance(noise, OnlyOnce)
    kept = [part.tobytes() for part in noise.one_time.values()]  # type: ignore[attr-defined]
    assert len(set(kept)) == len(kept) == 4, "no two blocks share it"


@pytest.mark.slow
def test_long_answers_of_many_parties_fit_the_memory() -> None:
    """20,000 answers of 2,000 integers each would be 320 MB, and a dozen such arrays what their noise takes."""
    parties, lanes = 20_000, 2_000
    shard = Shard(np.zeros((parties, 1, 1)), np.ones((parties, 1)))
    facts = FederationFacts.uniform(
        shard.n_examples, epsilon=1.0, delta=1e-5, n_features=lanes, loss=Logistic(), secure_sum=True
    )
    algorithm = build_algorithm("dp_gd", {"n_rounds": 1})
    wide = Simulation.of(_Wide(algorithm), shard, facts, SystemNoise())  # type: ignore[arg-type]
    tracemalloc.start()
    answered(wide, Query(1, "gradient", np.zeros(lanes)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"{parties} answers of {lanes} noisy integers in {len(wide.blocks)} blocks: {peak / 1e6:.0f} MB at most")
    assert peak < 600e6


@pytest.mark.slow
def test_short_answers_about_many_rows_fit_the_memory_too() -> None:
    """20,000 parties' votes on 2,000 rows would be 320 MB, and 3.2 GB one by one for ten classes, added up or not."""
    parties, rows, classes = 20_000, np.zeros((2_000, 1)), 10
    shard = Shard(np.zeros((parties, 1, 1)), np.ones((parties, 1)))
    terms: dict[str, Any] = {"public": rows, "public_shape": rows.shape, "secure_sum": True}
    facts = FederationFacts.uniform(
        shard.n_examples, epsilon=1.0, delta=1e-5, n_features=1, loss=Softmax(classes), **terms
    )
    tracemalloc.start()
    simulate(build_algorithm("ensemble_soft", {"release": "statistic"}), shard, facts, SystemNoise())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"{parties} sums of {classes} numbers over {len(rows)} rows: {peak / 1e6:.0f} MB at most")
    assert peak < 200e6


class _Wide:
    """An algorithm whose sum is zero, so that all the memory is the answers'."""

    def __init__(self, algorithm: Any) -> None:  # noqa: ANN401 -- dp_gd
        self.inner = algorithm
        self.questions, self.prepare, self.check_rows = algorithm.questions, algorithm.prepare, algorithm.check_rows

    def local(self, query: Query, prepared: Shard, facts: Any, noise: Noise) -> Any:  # noqa: ANN401 -- as dp_gd
        zeros = Shard(np.zeros((*prepared.y.shape, facts.n_features)), prepared.y)
        return self.inner.local(query, zeros, facts, noise)


def answered(federation: Simulation, query: Query) -> Reply:
    return asyncio.run(federation.answer("run", query))


def test_shards_of_other_examples_than_the_facts_are_about_are_refused() -> None:
    shard, facts = federation(secure=False)
    of_persons = Shard(shard.X, shard.y, begins=np.broadcast_to(np.arange(N) % 3 == 0, (K, N)))
    algorithm, persons = build_algorithm("dp_gd"), replace(facts, unit="person", most_rows=3)
    for rows, terms in ((of_persons, facts), (shard, persons)):
        with pytest.raises(InvalidInputError, match="examples are persons and the run's are records, or the other way"):
            Simulation.of(algorithm, rows, terms, NoNoise())
    with pytest.raises(InvalidInputError, match="a person has more rows than the 2 that the parties agreed on"):
        Simulation.of(algorithm, of_persons, replace(persons, most_rows=2), NoNoise())
