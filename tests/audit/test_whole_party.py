"""Who tells two parties apart by all that they hold learns no more than was promised, and does if noise is halved.

*What is played.* A distinguisher knows the rows, all votes of all others, and the two shards that one party may hold:
the worst pair there is, which turns all votes over. It sees what the learner sees, or the model alone, so many times
for each shard, and guesses by the likelihood ratio. It is handed the noise of m_min - t parties, which is all that
others cannot take off.

*What is concluded.* Of hits and false hits, by Clopper and Pearson's intervals, a lower bound on mu (or epsilon)
follows that is wrong once in 10^6 audits; one above what was promised is an alarm. Honest noise for the worst pair has
just the mu that was promised, so this is as near as an audit can be to a false alarm. Halved noise has twice that, and
is found out with the POWER that the binomial laws of hits give.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from parley.common.algorithms import REGISTRY, build_algorithm
from parley.common.algorithms.ensemble import Ensemble
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import UNIT, to_reals
from parley.common.learning.losses import Huber, Logistic, Loss, Softmax
from parley.common.privacy.calibration import gaussian_mu
from parley.common.privacy.noise import NoNoise, SeededNoise
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Reply
from tests.contracts.algorithms import variants
from tests.support.noises import ScaledNoise

ALARM, POWER = 1e-6, 0.99
TIMES = 20_000
PARTIES, COLLUDERS = 4, 1
EPSILON, DELTA = 1.0, 1e-5


@dataclass(frozen=True)
class Audit:
    """An algorithm of a loss with parameters, plain or summed; ``delta`` is 0 for noise of Laplace's kind."""

    name: str
    loss: Loss
    delta: float
    calibration: str = "tight"
    summed: bool = True
    n_rows: int = 1
    regularization: float = 50.0
    release: str = "counts"

    def __str__(self) -> str:
        seen = "sum" if self.summed else "each"
        words = [self.name, self.calibration, str(self.loss), self.release, f"delta={self.delta:g}", seen]
        return "-".join([*words, f"{self.n_rows} rows"])

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm."""
        given: dict[str, object] = {"regularization": self.regularization, "calibration": self.calibration}
        if self.release != "counts":
            given["release"] = self.release
        return build_algorithm(self.name, given)

    @property
    def ensemble(self) -> Ensemble:
        """The algorithm, if it is one of votes."""
        assert isinstance(self.algorithm, Ensemble)
        return self.algorithm

    @property
    def rows(self) -> FloatArray:
        """Rows of one number, 1."""
        return np.ones((self.n_rows, 1))

    @property
    def parts(self) -> int:
        """How many answers share the noise."""
        is_in_answers = self.calibration == "tight" or self.name == "parameter_average"
        return 1 if is_in_answers and not self.summed else PARTIES - COLLUDERS

    def facts(self, k: int) -> FederationFacts:
        """Facts of k parties; so many of them contribute at least."""
        return FederationFacts.uniform(
            np.ones(k, np.int64), epsilon=EPSILON, delta=self.delta, n_features=1, loss=self.loss, public=self.rows,
            public_shape=self.rows.shape, minimum_contributors=PARTIES, colluders=COLLUDERS, secure_sum=self.summed,
        )  # fmt: skip

    def promised(self) -> float:
        """Mu of Gaussian noise, epsilon of other noise."""
        return gaussian_mu(EPSILON, DELTA) if self.delta else EPSILON


TIGHT = [
    Audit(name, loss, DELTA, summed=summed, n_rows=n)
    for name in ("ensemble_vote", "ensemble_soft")
    for loss, n in ((Logistic(), 20), (Softmax(2), 3), (Softmax(6), 20))
    for summed in (True, False)
]
PURE = [
    Audit(name, loss, 0.0, summed=summed, n_rows=n)
    for name, loss, n in (("ensemble_vote", Logistic(), 2), ("ensemble_soft", Softmax(6), 1))
    for summed in (True, False)
]
STATISTIC = [
    Audit("ensemble_soft", loss, delta, summed=summed, n_rows=5, release="statistic")
    for loss, delta in ((Logistic(), DELTA), (Softmax(6), DELTA), (Logistic(), 0.0))
    for summed in (True, False)
]
OUTPUT = [
    Audit(name, Huber(0.5), delta, calibration, n_rows=5)
    for name in ("ensemble_vote", "ensemble_soft")
    for delta in (DELTA, 0.0)
    for calibration in ("output_tight", "paper")
    if not (delta and calibration == "paper")
]
AVERAGE = [
    Audit("parameter_average", Huber(0.5), delta, calibration, summed=summed, regularization=regularization)
    for delta, calibration, regularization in ((DELTA, "tight", 0.25), (0.0, "tight", 0.25), (0.0, "paper", 50.0))
    for summed in (True, False)
]
AUDITS = [*TIGHT, *PURE, *STATISTIC, *OUTPUT, *AVERAGE]


def counted(audit: Audit, factor: float) -> tuple[FloatArray, FloatArray]:
    """Noise on what the learner sees, (times, m), and how far apart the two shards' answers lie, (m,)."""
    algorithm, k = audit.ensemble, TIMES * audit.parts
    query, of, everyone = Query(1, "votes", audit.rows), audit.facts(PARTIES).of(0), audit.facts(k).everyone
    none, all_of_it = (algorithm.prepare(Shard(np.ones((1, 1)), np.array([y])), of) for y in (-1.0, 1.0))
    one, other = (algorithm.local(query, voters, of, NoNoise()) for voters in (none, all_of_it))
    rows = algorithm.rows_asked(audit.rows)
    total = np.broadcast_to(one, (k, one.size)).copy()
    noisy = algorithm.hidden(total, rows, everyone, ScaledNoise(SeededNoise(21), factor))
    noise = (noisy - one).reshape(TIMES, audit.parts, -1).sum(axis=1)
    return to_reals(noise), to_reals(other - one)


def modelled(audit: Audit, factor: float) -> tuple[FloatArray, FloatArray]:
    """Noise on the model, (times, m), and how far apart the two shards' models lie, (m,): as far as is said."""
    algorithm, of = audit.ensemble, audit.facts(PARTIES)
    found: list[list[FloatArray]] = []
    everybody = tuple(range(PARTIES))
    for votes in (PARTIES // 2, PARTIES // 2 - 1):  # a tie, which goes to the second class, and one less
        found.append([])
        for told in (0, UNIT):  # nothing, and one in the unit of the noise
            program = algorithm.program(of)
            next(program)
            program.send(Reply(np.full(audit.n_rows, float(votes)), everybody))
            with pytest.raises(StopIteration) as stop:
                program.send(Reply(to_reals(np.array([told])), everybody))
            found[-1].append(np.asarray(stop.value.value.weights))
    (one, shifted), (other, _) = found
    assert np.linalg.norm(one - other) == pytest.approx(algorithm.model_moves(of), rel=1e-3)
    noise = ScaledNoise(SeededNoise(22), factor)
    everyone = audit.facts(TIMES * audit.parts).everyone
    prepared = algorithm.prepare(Shard(np.ones((1, 1)), np.ones(1)), of.of(0))
    drawn = algorithm.local(Query(2, "noise", np.zeros(0)), prepared, everyone, noise)
    return to_reals(drawn.reshape(TIMES, audit.parts, -1).sum(axis=1)) * (shifted - one), other - one


def averaged(audit: Audit, factor: float) -> tuple[FloatArray, FloatArray]:
    """Noise on the sum of minimisers, (times, m), and how far apart the two shards' lie, (m,).

    Of a row as long as the root of lambda the Huber loss has its longest minimiser.
    """
    algorithm, k = audit.algorithm, TIMES * audit.parts
    query, of, everyone = Query(1, "minimise", np.zeros(0)), audit.facts(PARTIES).of(0), audit.facts(k).everyone
    row = np.full((1, 1), min(1.0, math.sqrt(audit.regularization)))
    one, other = (algorithm.prepare(Shard(row, np.array([y])), of) for y in (-1.0, 1.0))
    exact = algorithm.local(query, one, of, NoNoise())
    apart = algorithm.local(query, other, of, NoNoise()) - exact
    assert np.linalg.norm(apart) == pytest.approx(UNIT * np.max(algorithm.sensitivity(query, of)), rel=1e-3)
    noise = ScaledNoise(SeededNoise(24), factor)
    noisy = algorithm.local(query, np.broadcast_to(one, (k, one.size)), everyone, noise)
    return to_reals((noisy - exact).reshape(TIMES, audit.parts, -1).sum(axis=1)), to_reals(apart)


def hits(audit: Audit, noise: FloatArray, apart: FloatArray) -> tuple[int, int]:
    """How often each of two shards that lie ``apart`` is taken for the second: rightly, and falsely."""
    if audit.delta:
        guesses = [(seen @ apart / (apart @ apart) >= 0.5).sum() for seen in (noise + apart, noise)]
    else:  # where the likelihood ratio is greatest: past the other in all numbers that tell
        moved = apart != 0
        beyond = np.sign(apart[moved])
        guesses = [((seen[:, moved] - apart[moved]) * beyond >= 0).all(axis=1).sum() for seen in (noise + apart, noise)]
    return int(guesses[0]), int(guesses[1])


def surely(audit: Audit, right: int, wrong: int) -> float:
    """The mu or epsilon that so many hits of `TIMES` prove."""
    low = float(stats.beta.ppf(ALARM / 2, right, TIMES - right + 1)) if right else 0.0
    high = float(stats.beta.isf(ALARM / 2, wrong + 1, TIMES - wrong)) if wrong < TIMES else 1.0
    if audit.delta:
        return float(stats.norm.ppf(low) - stats.norm.ppf(high))
    return math.log(low / high)


def power(audit: Audit, numbers: int) -> float:
    """How often halved noise on the worst pair is found out, by the binomial laws of its hits."""
    twice = 2 * audit.promised()
    if audit.delta:
        chances = float(stats.norm.cdf(twice / 2)), float(stats.norm.sf(twice / 2))
    else:
        chances = 0.5**numbers, 0.5**numbers * math.exp(-twice)
    drawn = np.random.default_rng(23).binomial(TIMES, chances, (1000, 2))
    return float(np.mean([surely(audit, *draw) > audit.promised() for draw in drawn.tolist()]))


def play(audit: Audit, factor: float) -> tuple[FloatArray, FloatArray]:
    """Noise on what is seen, and how far apart the two shards lie."""
    if audit.name == "parameter_average":
        return averaged(audit, factor)
    return counted(audit, factor) if audit.calibration == "tight" else modelled(audit, factor)


def test_every_algorithm_that_hides_whole_parties_is_audited_in_each_calibration() -> None:
    whole = {
        (name, variant.get("calibration", "tight"))
        for name, kind in REGISTRY.items()
        if kind.adjacency == "whole_party" and kind.__module__.startswith("parley.")
        for variant in variants(name)
    }
    assert {(audit.name, audit.calibration) for audit in AUDITS} == whole


@pytest.mark.parametrize("audit", AUDITS, ids=str)
def test_the_worst_two_parties_are_told_apart_as_promised_and_half_the_noise_is_found_out(audit: Audit) -> None:
    proven = {}
    for factor in (1.0, 0.5):
        noise, apart = play(audit, factor)
        proven[factor] = surely(audit, *hits(audit, noise, apart))
    sure = power(audit, int(np.count_nonzero(apart)))
    print(
        f"{audit}: promised {audit.promised():.3f}, proven {proven[1.0]:.3f}, with half the noise {proven[0.5]:.3f}; "
        f"power {sure:.3f} at a false alarm of {ALARM:g}"
    )
    assert sure >= POWER
    assert 0.5 * audit.promised() < proven[1.0] <= audit.promised()
    assert proven[0.5] > audit.promised()
