"""PSGD's two noises: one drawn once a run and kept, one fresh each round, as Procedures 1 to 3 have them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from parley.common.algorithms import build_algorithm
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Hinge, Logistic, Loss, Squared
from parley.common.privacy.calibration import sigma_star, slack
from parley.common.privacy.mechanisms.additive import add_gaussian, add_l2_laplace
from parley.common.privacy.noise import Noise, NoNoise, SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Reply
from tests.support.noises import Relay

D, K, N = 4, 4000, 5
PSGD = build_algorithm("psgd")


class OneTimeNoise(Relay):
    """One-time noise alone: what is fresh each round is zero."""

    def draw(self, law: str, scale: float | FloatArray, shape: tuple[int, ...], *parts: float) -> FloatArray:
        return np.zeros(shape) if law == "l2_laplace" else super().draw(law, scale, shape, *parts)


def facts(**terms: object) -> FederationFacts:
    n = np.full(K, N)
    return FederationFacts.uniform(n, epsilon=1.0, delta=1e-4, n_features=D, loss=Logistic(), **terms)


def answer(noise: Noise, round: int, of: FederationFacts) -> FloatArray:
    shard = Shard(np.zeros((K, N, D)), np.ones((K, N)))  # gradients of zero: what is left is noise
    return to_reals(PSGD.local(Query(round, "gradient", np.full(D, float(round))), shard, of.everyone, noise))


@pytest.mark.parametrize(("terms", "share"), [({}, 1.0), ({"secure_sum": True}, 1 / K)], ids=["each", "sum"])
def test_one_time_noise_is_sigma_star_drawn_once(terms: dict[str, object], share: float) -> None:
    noise, of = OneTimeNoise(SeededNoise(1)), facts(**terms)
    eta = answer(noise, 1, of)
    assert np.array_equal(eta, answer(noise, 2, of))
    _, epsilon_tilde = slack(1.0, 0.01, K * N, 0.25)
    sigma = sigma_star(D, epsilon_tilde, 1e-4) * np.sqrt(share)
    assert stats.kstest(eta.ravel() / sigma, "norm").pvalue > 1e-6
    assert stats.kstest(eta.ravel() / (2 * sigma), "norm").pvalue < 1e-6


def test_fresh_noise_averages_away_and_one_time_noise_stays() -> None:
    noise, of = SeededNoise(2), facts()
    eta = answer(OneTimeNoise(noise), 1, of)
    mean = np.mean([answer(noise, round, of) for round in range(1, 31)], axis=0)
    fresh = answer(noise, 31, of) - eta
    assert np.std(mean - eta) == pytest.approx(np.std(fresh) / np.sqrt(30), rel=0.05)


def test_the_program_finds_the_minimiser_of_the_tilted_risk() -> None:
    """Procedure 1's steps go to zero, and their sum to infinity: without noise it converges to the ridge solution."""
    few = FederationFacts.uniform(np.array([30, 20]), epsilon=1.0, delta=1e-4, n_features=D, loss=Logistic())
    psgd = build_algorithm("psgd", {"n_rounds": 3000, "regularization": 0.1})
    strength = 0.1 + slack(1.0, 0.1, 50, 0.25)[0]
    target, program = np.array([1.0, -2.0, 0.5, 0.0]), psgd.program(few)

    def reply(query: Query) -> Reply:  # a quadratic whose minimiser with the ridge is known
        return Reply(50 * (query.message - target) / 10, (0, 1))

    query = next(program)
    for _ in range(2999):
        query = program.send(reply(query))
    with pytest.raises(StopIteration) as stop:
        program.send(reply(query))
    assert np.allclose(stop.value.value.weights, target * 0.1 / (0.1 + strength), rtol=1e-3)


def test_a_party_who_is_silent_weighs_nothing_in_the_mean() -> None:
    few = FederationFacts.uniform(
        np.array([30, 20, 50]), epsilon=1.0, delta=1e-4, n_features=D, loss=Logistic(), minimum_contributors=2
    )
    for name in ("psgd", "dp_gd"):
        after = []
        for contributors, total in (((0, 1), 50), ((0, 1, 2), 100)):
            program = build_algorithm(name, {"n_rounds": 2}).program(few)
            next(program)
            after.append(program.send(Reply(np.full(D, 0.2) * total, contributors)).message)
        assert np.allclose(after[0], after[1])


def test_noise_past_the_fixed_point_is_refused_before_it_is_drawn() -> None:
    total, refusal = np.zeros(D, dtype=np.int64), "epsilon is too small: noise of deviation"
    with pytest.raises(InvalidInputError, match=refusal):
        add_gaussian(total, 40_000.0, 1.0, NoNoise())
    with pytest.raises(InvalidInputError, match=refusal):
        add_l2_laplace(total, 1e-5, 1, NoNoise())
    tiny = FederationFacts.uniform(np.array([10]), epsilon=1e-5, delta=1e-4, n_features=D, loss=Logistic())
    with pytest.raises(InvalidInputError, match=refusal):
        PSGD.local(Query(1, "gradient", np.zeros(D)), Shard(np.zeros((1, D)), np.ones(1)), tiny.everyone, NoNoise())


def test_a_loss_without_curvature_is_refused_before_anything_is_asked() -> None:
    hinge = FederationFacts.uniform(np.array([10]), epsilon=1.0, delta=1e-4, n_features=D, loss=Hinge())
    with pytest.raises(InvalidInputError, match="bounded curvature"):
        next(PSGD.program(hinge))


@pytest.mark.parametrize(
    ("loss", "given", "of"),
    [
        (Logistic(), {}, ""),
        (Logistic(), {"clip_norm": 0.5}, " of the clipped loss"),
        (Squared(), {}, " of the clipped loss"),
    ],
)
def test_the_claim_names_what_is_minimised(loss: Loss, given: dict[str, float], of: str) -> None:
    (claim,) = build_algorithm("psgd", given).claims(replace(facts(), loss=loss).of(0))
    assert claim.assumptions[0] == f"the model is the exact minimiser{of}"


def test_of_persons_of_several_rows_the_model_alone_is_promised_nothing() -> None:
    """Their rows share the clip norm: no convex loss has such gradients. What hides them in the transcript stands."""
    records = FederationFacts.uniform(np.array([50]), epsilon=1.0, delta=1e-5, n_features=3, loss=Logistic())
    persons = replace(records, unit="person", most_rows=40)
    PSGD.check_rows(persons)
    assert PSGD.claims(persons.of(0)) == ()
    assert len(PSGD.claims(replace(persons, most_rows=1).of(0))) == 1
    assert PSGD.event(1, persons.of(0)) == PSGD.event(1, records.of(0))
