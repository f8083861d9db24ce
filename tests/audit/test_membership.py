"""Membership inference on many runs: no attack may tell neighbours apart better than the promise allows.

An adversary who knows all records but one, asks what hurts most, and sees the whole transcript, guesses which of two
neighbouring shards it came from by the likelihood ratio. Its error rates bound epsilon from below: e^epsilon >= (true
positives - delta) / false positives, here by Clopper & Pearson's intervals, that all hold but for once in a million.
The attack is a strong one: it catches a mechanism whose noise is a quarter of what it should be.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import to_reals
from parley.common.privacy.events import Event, GaussianEvent, L2LaplaceEvent
from parley.common.privacy.noise import Noise, SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query
from parley.common.runs.pricing import transcript
from tests.contracts.algorithms import Case, D, exact
from tests.contracts.attacks import Attack
from tests.support.noises import RoundNoise, ScaledNoise

RUNS = 40_000
COLLUDING, CONTRIBUTING = 1, 5

AUDITED = {
    "dp_gd-each": Case("dp_gd", build_algorithm("dp_gd", {"n_rounds": 3}), secure_sum=False),
    "dp_gd-sum": Case("dp_gd", build_algorithm("dp_gd", {"n_rounds": 3}), secure_sum=True),
    "psgd": Case("psgd", build_algorithm("psgd", {"n_rounds": 3}), secure_sum=False),
    "local_average": Case("local_average", build_algorithm("local_average", {"regularization": 10}), secure_sum=False),
}


def likelihood_ratio(seen: FloatArray, one: FloatArray, other: FloatArray, event: Event) -> FloatArray:
    """How much better the answers (runs, d) fit ``other`` (d,) than ``one``, (runs,); up to a positive factor."""
    if isinstance(event, GaussianEvent):
        return np.asarray(seen @ (other - one))
    assert isinstance(event, L2LaplaceEvent)
    return np.asarray(np.linalg.norm(seen - one, axis=-1) - np.linalg.norm(seen - other, axis=-1))


def neighbours() -> tuple[Shard, Shard]:
    """One record whose gradient is all but opposite to its replacement's, for weights far down the first axis."""
    x = np.array([[0.01, math.sqrt(1 - 0.01**2), 0, 0]])
    return Shard(x, np.ones(1)), Shard(x * [1, -1, 1, 1], np.ones(1))


def attack(case: Case, facts: FederationFacts, noises: tuple[Noise, Noise]) -> float:
    """Runs on either neighbour, one stacked party a run; the answers of a secure sum's honest parties are summed."""
    parts = CONTRIBUTING - COLLUDING if case.secure_sum else 1
    query = case.first_query(facts)
    asked = [Query(round + 1, query.step, np.resize([-60_000.0, 0, 0, 0], query.message.shape)) for round in range(3)]
    scores = [np.zeros(RUNS), np.zeros(RUNS)]
    one, other = neighbours()
    for ask in asked[: len(case.algorithm.questions(facts))]:
        centres = [to_reals(exact(case, ask, shard, facts.of(0))) for shard in (one, other)]
        for i, (shard, noise) in enumerate(zip((one, other), noises, strict=True)):
            many = Shard(np.broadcast_to(shard.X, (RUNS * parts, 1, D)), np.broadcast_to(shard.y, (RUNS * parts, 1)))
            answers = to_reals(case.answer(ask, many, facts, RoundNoise(noise)))
            others = (parts - 1) * centres[i]  # what the other honest parties hold, the adversary knows
            seen = answers.reshape(RUNS, parts, D).sum(axis=1) - others
            scores[i] += likelihood_ratio(seen, centres[0], centres[1], case.algorithm.event(ask.round, facts.of(0)))
    delta = float(facts.of(0).own_delta)
    null, alternative = scores
    return max(Attack.of(*pair, delta).epsilon for pair in ((null, alternative), (-alternative, -null)))


@pytest.mark.parametrize("name", AUDITED)
def test_no_attack_beats_the_promise_and_a_quarter_of_the_noise_is_caught(name: str) -> None:
    """One-time noise is left out: the transcript's promise does not lean on it."""
    case = AUDITED[name]
    terms: dict[str, object] = {"epsilon": 3.0 if case.name == "dp_gd" else 1.0}
    if case.secure_sum:
        terms |= {"minimum_contributors": CONTRIBUTING, "colluders": COLLUDING}
    parts = CONTRIBUTING - COLLUDING if case.secure_sum else 1
    facts = case.equal_facts(RUNS * parts, 1, **terms)
    claimed = transcript(case.algorithm, facts.of(0)).epsilon
    seeds = SeededNoise([1, 1]), SeededNoise([1, 2])
    found = attack(case, facts, seeds)
    broken = attack(case, facts, (ScaledNoise(seeds[0], 0.25), ScaledNoise(seeds[1], 0.25)))
    print(
        f"{name}: epsilon {claimed:.2f} claimed, at least {found:.2f} found, {broken:.2f} with a quarter of the noise"
    )
    assert 0 < found <= claimed
    assert broken > claimed
