"""What a secure sum opens is held to a public bound: no honest sum is beyond it, and one that was moved far is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.data.shard import Shard
from parley.common.learning.losses import Softmax
from parley.common.privacy.noise import Noise, NoNoise, SeededNoise
from parley.common.privacy.tails import ReachOfNoise
from parley.common.protocol.bounds import exceeds_bound, largest_exact, reach_of_noise
from parley.common.protocol.driver import NoLog, drive
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.simulation import Simulation
from tests.contracts.algorithms import CASES, SIZES, Case, D

SUMS = {
    label: case
    for label, case in CASES.items()
    if case.secure_sum and {declared.reveal for declared in case.algorithm.questions(case.facts(SIZES))} == {"sum"}
}
WITHOUT = frozenset({"average", "feature", "multilevel_feature", "ensemble_vote", "ensemble_soft"})
"""Of these some variants have no bound: noise inside a minimisation, votes without noise, parts that differ."""


@dataclass
class Bounded:
    """A federation whose sums are held to their bounds, and what these are."""

    inner: Simulation
    case: Case
    facts: FederationFacts
    checked: list[Query] = field(default_factory=list)

    async def answer(self, run: str, query: Query) -> Reply:
        reply = await self.inner.answer(run, query)
        everyone = range(len(self.facts.parties))
        if query.reveal == "sum" and np.isfinite(largest_exact(self.case.algorithm, query, self.facts, everyone)):
            assert not exceeds_bound(reply.value, self.case.algorithm, query, self.facts, everyone).any()
            self.checked.append(query)
        return reply


def shards(facts: FederationFacts, seed: int) -> Shard:
    """Rows as long as they may be and all alike, so that sums are as large as they get; or any."""
    rng, k, n = np.random.default_rng(seed), len(facts.parties), int(facts.n_examples.max())
    X = np.zeros((k, n, D)) if seed else rng.normal(size=(k, n, D))
    X[..., seed % D] += 1.0
    mask = np.arange(n) < facts.n_examples[:, None]
    return Shard(X, np.where(rng.random((k, n)) < 0.5, 1.0, -1.0) if not seed else np.ones((k, n)), mask, facts.norm)


async def checked(case: Case, noise: Noise, seed: int) -> list[Query]:
    """The rounds of a run whose sums were held to a bound."""
    facts = case.facts(SIZES)
    federation = Bounded(Simulation.of(case.algorithm, shards(facts, seed), facts, noise), case, facts)
    await drive(case.algorithm.program(facts), federation, "run", NoLog())
    return federation.checked


@pytest.mark.parametrize("label", SUMS)
async def test_no_honest_sum_is_beyond_its_bound(label: str) -> None:
    case = SUMS[label]
    rounds = [await checked(case, noise, seed) for seed, noise in enumerate((SeededNoise(1), NoNoise()))]
    assert rounds[0] or case.name in WITHOUT


@pytest.mark.parametrize("label", ["dp_gd-sum", "psgd-sum", "evaluate-sum", "wu_subgradient-sum", "ensemble_vote-sum"])
def test_a_sum_that_was_moved_far_is_beyond_its_bound(label: str) -> None:
    case, everyone = SUMS[label], range(len(SIZES))
    facts = case.facts(SIZES)
    query = case.first_query(facts)
    noise = reach_of_noise(case.algorithm, query, facts, everyone)
    bound = largest_exact(case.algorithm, query, facts, everyone) + noise
    assert np.all(bound < 2**21 * len(SIZES) / 100), "far less than what fits a lane"
    for sign in (1, -1):
        assert not exceeds_bound(sign * bound, case.algorithm, query, facts, everyone).any()
        moved = np.zeros_like(bound)
        moved[-1] = sign * bound[-1] * 1.001
        assert exceeds_bound(moved, case.algorithm, query, facts, everyone).tolist() == [False] * (len(bound) - 1) + [
            True
        ]


def test_fewer_contributors_have_a_lower_bound() -> None:
    case = SUMS["dp_gd-sum"]
    facts = case.facts(SIZES, minimum_contributors=2)
    query = case.first_query(facts)
    bounds = [largest_exact(case.algorithm, query, facts, some) for some in ((0, 1, 2, 3), (0, 3))]
    assert bounds == pytest.approx([2 * 41, 2 * 8])


@pytest.mark.parametrize("draw", ["gaussian", "laplace", "l2_laplace", "discrete_gaussian", "discrete_laplace"])
def test_noise_reaches_nowhere_near_its_reach(draw: str) -> None:
    """Of 10^5 draws the largest is at least 7 standard deviations, or as many nats, short of it."""
    reach, drawn = (getattr(noise, draw)(100.0, (50_000, 2)) for noise in (ReachOfNoise(), SeededNoise(3)))
    assert np.all(np.abs(drawn) < 0.5 * reach)
    assert np.all(reach < 200 * np.std(drawn))


def test_a_function_of_noisy_numbers_has_no_bound() -> None:
    """Its sensitivity is that of the numbers."""
    algorithm = build_algorithm("average", {"mechanism": "centroids"})
    facts = Case("average", algorithm, secure_sum=True).equal_facts(3, 5, loss=Softmax(3))
    query = next(algorithm.program(facts))
    assert np.isfinite(algorithm.sensitivity(query, facts.of(0)))
    assert largest_exact(algorithm, query, facts, (0, 1, 2)) == np.inf
