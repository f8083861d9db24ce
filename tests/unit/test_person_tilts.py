"""What a tilt hides of a person of several rows: two traps, the determinant and the signs of slopes, and its price."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr, ndtri

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import UNIT
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Huber, Logistic, Softmax
from parley.common.privacy.calibration import (
    SlackCalibration,
    bisect,
    determinant_cost,
    gaussian_delta,
    gaussian_mu,
    least_curvature,
    person_delta,
    person_epsilon,
    person_mu,
    person_tilt,
    slack,
)
from parley.common.privacy.events import GaussianEvent, L2LaplaceEvent, TiltEvent
from parley.common.privacy.filter import cover
from parley.common.privacy.l2_laplace import l2_laplace_delta
from parley.common.privacy.mechanisms.objective import (
    FOR_THE_SOLVER,
    ObjectivePerturbation,
    _longest,
    objective,
)
from parley.common.privacy.mechanisms.one_against_rest import OneAgainstRest, one_against_rest
from parley.common.privacy.mechanisms.output import generalized
from parley.common.privacy.mechanisms.site import Law, SiteTerms
from parley.common.privacy.tilt import tilt_profile
from tests.support.noises import HeardNoise

ROWS, D = 40, 41
MAIN = 1 - FOR_THE_SOLVER
TERMS = SiteTerms(Huber(0.5), 10, D, 1e-3, 1.0, 1e-5, most_rows=ROWS)


def person(X: FloatArray, y: FloatArray | float = 1.0) -> Shard:
    """One person's rows."""
    return Shard(X, np.broadcast_to(y, len(X)), begins=np.arange(len(X)) == 0)


def log_determinant(site: ObjectivePerturbation, shard: Shard, model: FloatArray) -> float:
    """The logarithm of the determinant of the derivative of the tilt that leads to a model."""
    d, step = len(model), 1e-5
    noise = site.tilts_of(shard, model + step * np.concatenate([np.eye(d), -np.eye(d)]))[:, 0]
    return float(np.linalg.slogdet((noise[:d] - noise[d:]) / (2 * step))[1])


# ── the determinant ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("law", ["gaussian", "l2_laplace"])
def test_rows_at_right_angles_change_a_determinant_by_more_than_a_record_and_no_more_than_is_spent(law: Law) -> None:
    """The trap: log(1 + c / Lambda) is a record's. The event, its proof and the slack have the person's."""
    site = objective(replace(TERMS, law=law, epsilon=8.0))
    nothing, model = person(np.zeros((ROWS, D))), np.zeros(D)
    steep = person(np.hstack([np.zeros((ROWS, 1)), np.eye(ROWS)]), np.where(np.arange(ROWS) % 2, 1.0, -1.0))
    in_band = model + np.append(0.0, steep.y)  # scores of 1: in the band of the Huber loss
    apart = log_determinant(site, steep, in_band * 0.9) - log_determinant(site, nothing, in_band * 0.9)
    assert apart > 1.5 * math.log1p(site.terms.loss.smoothness / site.strength)
    assert site.determinant == site.event.determinant == pytest.approx(apart, rel=1e-4)
    assert site.proof([site]).spent[0] >= apart
    assert apart <= 0.99 * 8.0 / 6 * (1 + 1e-6), "no more than a sixth"
    assert site.event.persons
    assert site.proof([site]).persons


def test_no_rows_change_it_by_more() -> None:
    site, rng = objective(replace(TERMS, n_features=5, epsilon=8.0)), np.random.default_rng(1)
    model = np.zeros(5)
    for r in (1, 2, 5, 40):
        for _ in range(10):
            X = rng.standard_normal((r, 5))
            shard = person(X / np.linalg.norm(X, axis=1, keepdims=True), rng.choice([-1.0, 1.0], r))
            apart = log_determinant(site, shard, model + 0.7) - log_determinant(site, person(np.zeros((r, 5))), model)
            assert apart <= site.determinant * (1 + 1e-6)


def test_the_slack_of_persons_is_the_larger_of_theirs_and_the_papers() -> None:
    for x in (1e-3, 0.1, 3.0, 50.0):
        for rank in (1, 2, 40):
            assert determinant_cost(x, rank) >= math.log1p(x)
            assert least_curvature(determinant_cost(x, rank), rank) == pytest.approx(x)
        assert determinant_cost(x, 40) < min(x, 40 * math.log1p(x))
    assert determinant_cost(0.3) == math.log1p(0.3)
    parts: dict[SlackCalibration, float] = {"tight": 1 / 6, "paper": 1.0, "better_branch": 0.5}
    for epsilon in (0.1, 1.0, 10.0):
        for calibration, most in parts.items():
            extra, left = slack(epsilon, 1e-3, 10, 1.0, calibration, 40)
            curvature = 1.0 / (10 * (1e-3 + extra))
            due = max(determinant_cost(curvature, 40), (1 if calibration == "tight" else 2) * math.log1p(curvature))
            assert left + due <= epsilon * (1 + 1e-12)
            assert due <= most * epsilon * (1 + 1e-12)
    assert math.isfinite(slack(1e9, 1e-12, 1, 1.0, "tight", 10**5)[0]), "a huge epsilon has a ridge too"


# ── the signs of slopes ──────────────────────────────────────────────────────


def worst(epsilon: float, mu: float, least: float) -> float:
    """The delta of a person whose one slope is chosen after its noise, from ``least`` to 1, by quadrature."""
    z = np.linspace(-12, 12, 400_001)
    best = mu * np.where(z > 0, z, least * z)  # its square left out, as the proof does
    chances = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    return float((chances * np.maximum(np.exp(best) - math.exp(epsilon), 0.0)).sum())


def bracket(epsilon: float, mu: float) -> float:
    """E (e^(mu Z^+) - e^epsilon)^+, which a single step proves."""
    return float(np.exp(mu**2 / 2 + log_ndtr(mu - epsilon / mu)) - np.exp(epsilon + log_ndtr(-epsilon / mu)))


def test_slopes_of_both_signs_would_cost_twice_as_much_and_are_refused() -> None:
    """The trap: a slope that may take the sign of its noise moves any model towards what gives a person away."""
    for epsilon, mu in ((0.3, 0.3), (1.0, 0.27), (3.0, 0.7)):
        one_sided, both = worst(epsilon, mu, 0.0), worst(epsilon, mu, -1.0)
        assert one_sided == pytest.approx(bracket(epsilon, mu), rel=1e-3)
        assert both == pytest.approx(2 * bracket(epsilon, mu), rel=1e-3)
        assert both > 1.2 * max(bracket(epsilon, mu), person_delta(epsilon, mu, 0.0))
    with pytest.raises(InvalidInputError, match="slopes of one sign"):
        objective(replace(TERMS, loss=TwoSided()))


class TwoSided(Huber):
    """A loss that says that its slopes have both signs."""

    one_sided = False


@pytest.mark.parametrize("law", ["gaussian", "l2_laplace"])
def test_a_person_moves_the_tilt_that_led_to_a_model_by_no_more_than_its_reach(law: Law) -> None:
    """However many rows it has, of any labels; weights are 1 / r. Rows about one direction attain it."""
    site, rng = objective(replace(TERMS, law=law, n_features=3)), np.random.default_rng(2)
    model = np.array([[30.0, 0.0, 0.0]])
    farthest = 0.0
    for r in (1, 2, 40):
        for spread in (0.0, 0.5, 3.0):
            rows = [[-0.1, side, 0.0] + spread * rng.standard_normal((r, 3)) for side in (1.0, -1.0)]
            rows = [X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0) for X in rows]
            one, other = (person(X, rng.choice([-1.0, 1.0], r) if spread else 1.0) for X in rows)
            farthest = max(farthest, float(np.linalg.norm(site.tilts_of(one, model) - site.tilts_of(other, model))))
    assert 1.9 < farthest <= site.proof([site]).reach == 2.0


@pytest.mark.parametrize("law", ["gaussian", "l2_laplace"])
def test_the_tilt_that_led_to_an_answer_about_persons_is_the_one_drawn(law: Law) -> None:
    """Both weigh rows alike: the minimiser, and what reads its tilt off it."""
    site, rng = objective(replace(TERMS, law=law, loss=Logistic(), n_features=3)), np.random.default_rng(3)
    X, y = rng.standard_normal((40, 3)), rng.choice([-1.0, 1.0], 40)
    shard = Shard(X, y, begins=np.arange(40) % 4 == 0)
    answer = ObjectivePerturbation.answer([site], shard, HeardNoise(2.0, 0.0)) / UNIT
    assert site.tilts_of(shard, answer[None])[0, 0] == pytest.approx(np.full(3, 2.0), abs=1e-6)
    assert site.tilts_of(Shard(X, y), answer[None])[0, 0] != pytest.approx(np.full(3, 2.0), abs=0.1)


# ── the price ────────────────────────────────────────────────────────────────

BUDGETS = [(0.1, 1e-5), (0.3, 1e-5), (1.0, 1e-5), (3.0, 1e-5), (10.0, 1e-5), (0.1, 0.05), (1.0, 0.05)]
OF_A_STEP = [1.005, 1.012, 1.034, 1.082, 1.19, 1.10, 1.21]
"""Noise that hides a person by the proof of a single step, over a record's."""
WITH_A_DETERMINANT = [1.0014, 1.0037, 1.0103, 1.0256, 1.0635, 1.0105, 1.0471]
"""Noise that hides a person, over a record's, if a sixth of epsilon is the determinant's."""


def is_hidden_by_a_step(epsilon: float, delta: float, mu: float) -> bool:
    """Whether the proof of a single step allows mu."""
    return bracket(epsilon, mu) <= delta


def test_but_for_the_determinant_persons_cost_what_records_cost() -> None:
    for (epsilon, delta), of_a_step, with_determinant in zip(BUDGETS, OF_A_STEP, WITH_A_DETERMINANT, strict=True):
        of_record = gaussian_mu(epsilon, delta)
        by_a_step, _ = bisect(partial(is_hidden_by_a_step, epsilon, delta))
        assert of_record / by_a_step == pytest.approx(of_a_step, abs=6e-3)
        assert of_record / person_tilt(epsilon, delta, 0.0) == pytest.approx(1.0, abs=1e-7)
        less = person_tilt(epsilon, delta, epsilon / 6)
        assert gaussian_mu(epsilon * 5 / 6, delta) / less == pytest.approx(with_determinant, rel=1e-3)
        assert person_delta(epsilon, less, epsilon / 6) <= delta
        assert person_epsilon(less, delta, epsilon / 6) == pytest.approx(epsilon, rel=1e-6)
    with pytest.raises(InvalidInputError, match="leaves nothing of epsilon"):
        person_tilt(0.1, 1e-5, 0.2)
    assert 0 < person_tilt(1e12, 1e-18, 1e11) < 1e6 * math.sqrt(2)
    assert person_tilt(1.0, 1e-18, 0.1) < person_tilt(1.0, 1e-17, 0.1)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("determinant", [0.0, 0.01, 0.3, 2.0])
def test_the_delta_of_a_person_is_the_most_that_the_theorem_leaves(mu: float, determinant: float) -> None:
    """The two bounds of chances, at every chance; a Gaussian release of mu + kappa covers it, and none of less does."""
    both = mu + float(ndtri(1 - math.exp(-determinant) / 2))
    assert person_mu(mu, determinant) == pytest.approx(both, rel=1e-8)
    z = np.linspace(-8, 12, 100_001)
    chances = np.where(z >= both, math.exp(determinant) * ndtr(mu - z), ndtr(both - z))
    epsilons = np.linspace(0, both**2 + determinant + 1, 40)
    due = [float((chances - math.exp(epsilon) * ndtr(-z)).max()) for epsilon in epsilons]
    deltas = [person_delta(epsilon, mu, determinant) for epsilon in epsilons.tolist()]
    assert deltas == pytest.approx(due, rel=1e-4, abs=1e-9)
    assert all(
        delta <= gaussian_delta(epsilon, person_mu(mu, determinant))
        for epsilon, delta in zip(epsilons, deltas, strict=True)
    )


def test_the_mechanisms_have_the_noise_of_persons() -> None:
    tight = objective(TERMS)
    assert person_delta(MAIN, 2 / tight.tilt, tight.determinant) == pytest.approx(MAIN * 1e-5, rel=1e-5)
    assert tight.tilt > objective(replace(TERMS, most_rows=1)).tilt
    claimed = replace(TERMS, calibration="jain_thakurta", epsilon=0.5)
    site = objective(claimed)
    for_the_model = site.epsilon - FOR_THE_SOLVER * 0.5
    assert person_delta(for_the_model, 2 / site.tilt, site.determinant) == pytest.approx(MAIN * 1e-5, rel=1e-5)
    assert any("one person replaced" in words for words in site.assumed)
    pure = objective(replace(TERMS, law="l2_laplace"))
    assert 2 * pure.tilt + pure.determinant == pytest.approx(MAIN)


FREE = replace(TERMS, n_features=1001, most_rows=1000, regularization=1e-7)
"""With next to no ridge of its own."""


def test_kifers_noise_is_raised_to_what_is_proven_of_persons() -> None:
    """It falls short of that for a large epsilon, in many columns; it is as published for others."""
    for epsilon, delta, short in ((1.0, 1e-5, False), (10.0, 0.05, False), (60.0, 0.05, True)):
        terms = replace(FREE, calibration="paper", epsilon=epsilon, delta=delta)
        site, published = generalized(terms), generalized(replace(terms, most_rows=1))
        assert (site.tilt > published.tilt) == short
        assert person_delta(MAIN * epsilon, 2 / site.tilt, site.determinant) <= MAIN * delta
        assert site.determinant <= MAIN * epsilon / 2


@pytest.mark.parametrize("regularization", [1e-3, 1.0])
def test_the_models_of_classes_compose_for_persons_as_for_records(regularization: float) -> None:
    terms = replace(TERMS, loss=Softmax(3), regularization=regularization)
    site = one_against_rest(terms)
    assert isinstance(site, OneAgainstRest)
    of_class = site.of_class
    assert of_class.determinant == determinant_cost(0.25 / of_class.strength, ROWS)
    whole = math.sqrt(3) * person_mu(2 / of_class.tilt, of_class.determinant)
    assert whole == pytest.approx(gaussian_mu(MAIN, MAIN * 1e-5), rel=1e-6)
    assert site.event.persons
    assert site.event.times == 3
    assert site.proof([site]).persons
    taken = cover(site.event)
    assert taken.slack == 0
    assert taken.alone <= gaussian_mu(1.0, 1e-5) ** 2 * 1.05


def test_rows_of_persons_are_counted_where_one_may_be_far_along_a_tilt() -> None:
    """The union bound is over all rows that the persons may have."""
    sparse = replace(TERMS, row_entries=5, most_rows=1000)
    assert _longest(sparse, 1.0) == _longest(replace(sparse, n_examples=10_000, most_rows=1), 1.0)


def test_an_example_of_one_row_is_a_record() -> None:
    for law in ("gaussian", "l2_laplace"):
        site = objective(replace(TERMS, law=law, most_rows=1))
        assert not site.event.persons
        assert site.determinant == math.log1p(site.terms.loss.smoothness / site.strength)


# ── the account ──────────────────────────────────────────────────────────────


def test_what_a_tilt_of_persons_takes_of_an_account() -> None:
    """Alone, the square of mu + kappa; a tilt of density exp(-beta |b|) much less than its pure epsilon, in company."""
    blur = GaussianEvent(1e-9)
    for mu, determinant in ((0.05, 0.02), (0.2, 0.1), (0.5, 0.4)):
        event = TiltEvent(9.0, 1e-3, law=GaussianEvent(mu / 2), determinant=determinant, blur=blur, persons=True)
        taken = cover(event)
        assert taken.slack == 0
        assert taken.alone == pytest.approx(person_mu(mu, determinant) ** 2, rel=1e-6)
        assert mu**2 < taken.variance <= taken.alone
    law = L2LaplaceEvent(0.4, 100)
    of_record = TiltEvent(0.9, 0.0, law=law, determinant=0.1, blur=L2LaplaceEvent(1e-9, 100))
    taken = cover(replace(of_record, persons=True))
    assert 0.8**2 / 100 < cover(of_record).alone < taken.alone < 0.1 < 0.9**2


@pytest.mark.parametrize("d", [1, 2, 3, 50])
def test_a_pure_tilt_of_persons_is_no_better_than_a_move_of_noise(d: int) -> None:
    """Its profile is above that of the plain release, which a person of one row may need, and ends where that ends."""
    reach, determinant = 1.2, 0.2
    profile = tilt_profile(L2LaplaceEvent(reach / 2, d), determinant, persons=True)
    at = np.linspace(0.0, reach - 0.01, 30)
    plain, rng = l2_laplace_delta(at, reach, d), np.random.default_rng(d)
    directions = rng.standard_normal((200_000, d))
    powers = np.exp(reach * np.maximum(directions[:, 0] / np.linalg.norm(directions, axis=1), 0.0))
    due = np.array([np.maximum(powers - math.exp(loss), 0.0).mean() for loss in at]) * math.exp(determinant)
    deltas = profile(at + determinant)
    assert (deltas >= plain).all()
    assert deltas == pytest.approx(np.minimum(due, 1.0), rel=0.03, abs=1e-3)
    assert profile(np.array([reach + determinant + 1e-9]))[0] == 0
    assert (np.diff(profile(np.linspace(0, 1.4, 100))) <= 1e-12).all()
