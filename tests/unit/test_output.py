"""Noise on a minimiser: how far a record moves the answer, by the formula; its share of the noise; and no noise."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import encode_classes
from parley.common.encoding.fixed_point import FRACTION_BITS, MAX_NORM, UNIT, WEIGHT_BITS, to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import MOST_STEPS, TOLERANCE, minimise
from parley.common.learning.losses import (
    Hinge,
    Huber,
    Logistic,
    Loss,
    Softmax,
    Squared,
    gradients_apart,
    largest_minimiser,
)
from parley.common.privacy.calibration import gaussian_delta
from parley.common.privacy.events import L2LaplaceEvent, NonPrivateEvent
from parley.common.privacy.mechanisms.output import (
    ExactMinimiser,
    OutputPerturbation,
    exact,
    on_grid,
    output,
    solvable,
    within,
)
from parley.common.privacy.mechanisms.site import SiteTerms, left_by_solver
from tests.support.noises import HeardNoise
from tests.unit.test_mechanisms import LAWS, rows, terms

SOLVER = "parley.common.privacy.mechanisms.output.left_by_solver"
GRID = 2.0**-FRACTION_BITS
STEEP = Logistic(lipschitz=2.5, smoothness=0.25)


# ── how far a record moves the answer ────────────────────────────────────────


@pytest.mark.parametrize("loss", [Logistic(), STEEP, Huber(0.1), Softmax(3)], ids=str)
@pytest.mark.parametrize("left", [0.0, 0.07])
@pytest.mark.parametrize("calibration", ["tight", "paper"])
def test_the_reach_is_that_of_two_gradients_two_solvers_and_two_roundings(
    monkeypatch: pytest.MonkeyPatch, loss: Loss, left: float, calibration: str
) -> None:
    """Over Lambda, and half a step of the grid, on which answers lie, in each weight of both."""
    monkeypatch.setattr(SOLVER, lambda *_: left)
    site = output.__wrapped__(terms(loss, n_examples=80, regularization=0.05, calibration=calibration))
    apart = 2 * loss.lipschitz
    if calibration == "tight":
        apart = gradients_apart(loss, largest_minimiser(loss, 0.05))
    assert site.output_sensitivity == site.reach
    answers = OutputPerturbation.prepare([site] * 9, Shard.stack([rows(80, seed=seed) for seed in range(9)]))
    step = float(np.gcd.reduce(answers, axis=None)) * GRID
    assert step in {GRID, 2.0**-WEIGHT_BITS}
    rounding = site.reach - (apart + 2 * left) / 4.0
    assert rounding == pytest.approx(2 * math.sqrt(answers.shape[-1]) * step / 2, rel=1e-4, abs=1e-15)


@pytest.mark.parametrize("loss", [STEEP, Softmax(3)], ids=str)
def test_the_noise_hides_the_reach(loss: Loss) -> None:
    """By its Gaussian profile; or beta times the reach is epsilon; or Jain & Thakurta's, for 2 L / Lambda."""
    given = terms(loss, epsilon=0.5, delta=1e-6)
    tight, pure, published = (
        output(replace(given, **changes))  # type: ignore[arg-type]
        for changes in ({}, {"law": "l2_laplace"}, {"calibration": "jain_thakurta"})
    )
    assert tight.reach == pure.reach < published.reach
    assert gaussian_delta(0.5, tight.reach / tight.scale) == pytest.approx(1e-6, rel=1e-5)
    assert pure.scale * pure.reach == pytest.approx(0.5)
    assert published.scale == pytest.approx(2 * published.reach * math.sqrt(math.log(1e6) + 0.5) / 0.5)
    assert (tight.deviation, published.deviation) == (tight.scale, published.scale)
    weights = 3 * loss.outputs
    assert pure.deviation == pytest.approx(math.sqrt(weights + 1) / pure.scale)


def test_jain_and_thakurtas_beta_is_half_of_what_epsilon_allows_and_is_charged_as_that() -> None:
    """Equation (3), epsilon lambda n / (4 L R) = 52.09, where Chaudhuri's is 104.2."""
    given = SiteTerms(Huber(0.5), 41_674, 10, 0.001, 5.0, 0.0, "l2_laplace", "jain_thakurta")
    published, pure = output(given), output(replace(given, calibration="paper"))
    assert published.scale == pytest.approx(52.09, abs=0.01)
    assert pure.scale == pytest.approx(104.2, abs=0.05)
    assert published.event == L2LaplaceEvent(2.5, 10)
    assert pure.event == L2LaplaceEvent(5.0, 10)


# ── gradients at one minimiser ───────────────────────────────────────────────


def furthest_gradients(loss: Loss, radius: float, starts: int) -> float:
    """How far apart a search brings the gradients of two examples in the unit ball at the same weights."""
    k, d, rng = loss.outputs, 3, np.random.default_rng(3)

    def apart(point: FloatArray, classes: FloatArray) -> float:
        weights, rows = point[: k * d].reshape(k, d), point[k * d :].reshape(2, d)
        weights = weights * min(1.0, radius / float(np.linalg.norm(weights)))
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        scores = rows @ weights.T
        slopes = loss.slope(scores if k > 1 else scores[:, 0], classes).reshape(2, k)
        one, other = slopes[:, :, None] * rows[:, None, :]
        return -float(np.linalg.norm(one - other))

    most = 0.0
    for _ in range(starts):
        classes = encode_classes(rng.integers(max(k, 2), size=2), max(k, 2))
        point = np.concatenate([rng.normal(size=k * d) * radius, rng.normal(size=2 * d) * 2])
        most = max(most, -minimize(apart, point, args=(classes,)).fun)
    return most


@pytest.mark.parametrize(
    ("loss", "least"),
    [(Logistic(), 0.999), (Logistic(class_weights=(0.3, 1.0)), 0.999), (Softmax(2), 0.999), (Softmax(4), 0.7)],
    ids=str,
)
@pytest.mark.parametrize("radius", [0.3, 3.0])
def test_no_search_brings_two_gradients_further_apart_than_is_said(loss: Loss, least: float, radius: float) -> None:
    """Of two classes it comes as far."""
    bound = gradients_apart(loss, radius)
    assert bound <= 2 * loss.lipschitz
    assert least <= furthest_gradients(loss, radius, 12) / bound <= 1 + 1e-12


def test_weights_of_zeros_and_weights_without_a_bound_have_gradients_so_far_apart() -> None:
    for loss, at_zero in ((Logistic(), 1.0), (Softmax(2), math.sqrt(2)), (Softmax(4), 2 * math.sqrt(3 / 4))):
        assert gradients_apart(loss, 0.0) == pytest.approx(at_zero)
        assert gradients_apart(loss, 1e9) == pytest.approx(2 * loss.lipschitz)
    assert gradients_apart(Huber(0.3), 0.0) == 2.0
    with pytest.raises(InvalidInputError, match="bounded slope"):
        gradients_apart(Squared(), 1.0)


def test_a_record_moves_a_logistic_minimiser_as_far_as_is_said() -> None:
    """The others' rows make a minimiser as long as any; the record leans against it, and to either side."""
    n, regularization = 4000, 0.05
    radius = largest_minimiser(Logistic(), regularization)
    site = output(SiteTerms(Logistic(), n, 3, regularization, 1.0, 1e-5))
    along = 1.2785 / radius
    X = np.tile([[along, math.sqrt(1 - along**2), 0.0], [along, -math.sqrt(1 - along**2), 0.0]], (n // 2, 1))
    moved = []
    for lean in np.linspace(0, 0.8, 17):
        pair = []
        for side in (1, -1):
            X[0] = -lean, 0.0, side * math.sqrt(1 - lean**2)
            pair.append(to_reals(OutputPerturbation.prepare([site], Shard(X.copy(), np.ones(n)))))
        moved.append(float(np.linalg.norm(pair[0] - pair[1])) / site.reach)
    print(f"{max(moved):.4f} of the bound")
    assert 0.99 < max(moved) <= 1


@pytest.mark.parametrize(("n", "most"), [(200, 0.54), (2000, 0.69)])
def test_few_rows_and_a_small_epsilon_have_much_less_noise_than_was_published(n: int, most: float) -> None:
    """At a lambda at which published noise moves scores by the accepted drift."""
    given = SiteTerms(Logistic(), n, 10, 1.0, 0.1, 1e-5, "l2_laplace", "paper")
    published = replace(given, regularization=output(replace(given, law="gaussian")).reach / 0.0325 / 0.7)
    assert output(replace(published, calibration="tight")).reach / output(published).reach < most


# ── answers ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_a_share_of_the_noise_is_that_part_of_its_variance(law: Any, share: float) -> None:  # noqa: ANN401
    sites = [output(terms(law=law, epsilon=epsilon)) for epsilon in (1.0, 2.0)]
    prepared = np.array([[1, 2, 3], [4, 5, 6]])
    noise = HeardNoise(7.0)
    said = 7 if law == "gaussian" else 7 * UNIT
    hidden = OutputPerturbation.hide(sites, prepared, share, noise)
    assert (hidden == prepared + said).all()
    ((_, scale, shape, parts),) = noise.asked
    assert shape == (2, 3)
    for site, asked in zip(sites, scale[:, 0], strict=True):
        if law == "gaussian":
            assert (asked * GRID) ** 2 == pytest.approx(share * site.scale**2)
        else:
            assert (asked, parts) == (site.scale, 1 / share)
    if share == 1:
        again = HeardNoise(7.0)
        assert (OutputPerturbation.answer(sites, prepared, again) == hidden).all()
        assert (again.asked[0][1] == scale).all()


def test_weights_that_are_longer_than_may_be_are_projected_onto_a_ball() -> None:
    long = np.array([[3e5, -4e5], [3.0, 4.0]])
    found = to_reals(on_grid(long))
    assert found[1].tolist() == [3.0, 4.0]
    assert np.linalg.norm(found[0]) == pytest.approx(MAX_NORM - 1, rel=1e-9)
    assert found[0] == pytest.approx(long[0] * (MAX_NORM - 1) / 5e5)


def test_weights_within_a_radius_are_never_beyond_it_and_lose_less_than_a_step() -> None:
    step = 2.0**-WEIGHT_BITS
    weights = np.random.default_rng(3).normal(size=(500, 3))
    shrunk = within(np.full((500, 1), 0.5), on_grid(weights))
    assert shrunk.dtype == np.int64
    inside = to_reals(shrunk)
    lengths = np.linalg.norm(weights, axis=-1, keepdims=True)
    scaled = weights * np.minimum(1, 0.5 / lengths)
    assert np.linalg.norm(inside, axis=-1).max() <= 0.5
    assert (inside / step == np.rint(inside / step)).all()
    assert (np.abs(inside) <= np.abs(scaled) + step).all()
    assert np.abs(inside - scaled).max() < 2 * step


def test_a_radius_that_rounding_alone_would_pass_is_not_passed() -> None:
    """In rationals: where a radius is a length as computed, about half of the lengths truly are beyond it."""
    weights = on_grid(np.random.default_rng(5).normal(size=(400, 3)))
    beyond = 0
    for row in weights:
        length = float(np.linalg.norm(row.astype(np.float64)))
        beyond += sum(int(each) ** 2 for each in row) > Fraction(length) ** 2
        inside = within(np.array([length / UNIT]), row)
        assert sum(int(each) ** 2 for each in inside) <= Fraction(length) ** 2
    assert beyond > 20
    for radius in (0.5 * (1 - 2.0**-50), 0.5):
        assert float(to_reals(within(np.array([radius]), np.array([UNIT])))[0]) <= radius


def heard(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """How well a minimiser is asked to solve, each time."""
    asked: list[dict[str, Any]] = []

    def minimised(*problem: Any, **how: Any) -> Any:  # noqa: ANN401 -- as `minimise`
        asked.append(how)
        return minimise(*problem, **how)

    monkeypatch.setattr("parley.common.privacy.mechanisms.output.minimise", minimised)
    return asked


def test_what_is_private_is_solved_as_well_as_its_bound_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = heard(monkeypatch)
    OutputPerturbation.prepare([output(terms())], rows(100))
    assert asked == [{"tolerance": TOLERANCE, "most_steps": MOST_STEPS}]


def test_what_is_not_private_is_the_minimiser_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, noise = heard(monkeypatch), HeardNoise()
    sites = [exact(terms(STEEP, regularization=each)) for each in (0.1, 3.0)]
    shard = rows(100)
    stack = Shard.stack([shard, shard])
    answers = to_reals(ExactMinimiser.answer(sites, ExactMinimiser.prepare(sites, stack), noise))
    assert asked == [{"tolerance": TOLERANCE, "most_steps": 0}]
    for site, answer in zip(sites, answers, strict=True):
        fit = minimise(STEEP, shard, site.terms.strength, tolerance=TOLERANCE)
        assert np.abs(answer - fit).max() <= 2.0**-WEIGHT_BITS
        assert (site.event, site.deviation, site.output_sensitivity) == (NonPrivateEvent(), 0.0, math.inf)
        assert site.kind == (ExactMinimiser, "gaussian", STEEP)
        site.check_noise()
    alone = to_reals(ExactMinimiser.answer(sites[:1], ExactMinimiser.prepare(sites[:1], shard), noise))
    assert (alone == answers[0]).all()
    with pytest.raises(InvalidInputError, match="a site without examples has no model"):
        exact(terms(n_examples=0))


# ── the hinge ────────────────────────────────────────────────────────────────


def is_surely_solved(given: SiteTerms) -> bool:
    try:
        left_by_solver(given, given.strength)
    except InvalidInputError:
        return False
    return True


def test_the_hinge_is_as_narrow_as_can_be_and_as_wide_as_a_huber_loss_gets_where_none_will_do() -> None:
    widths = set()
    for regularization in np.geomspace(1e-9, 1.0, 40):
        given = terms(Hinge(), regularization=float(regularization))
        found = solvable(given)
        ladder = [Huber(half_width) for half_width in (0.01, 0.03, 0.1, 0.3, 1.0)]
        will_do = [loss for loss in ladder if is_surely_solved(replace(given, loss=loss))]
        assert found == (will_do[0] if will_do else Huber(1.0))
        assert isinstance(found, Huber)
        widths.add((found.h, bool(will_do)))
        assert exact(given).loss == found
    assert len(widths) > 3
    assert (1.0, False) in widths


def test_other_losses_are_solved_as_they_are() -> None:
    for loss in (Logistic(), Huber(1e-9), Softmax(3), Squared()):
        assert solvable(terms(loss, regularization=1e-9)) == loss


def test_sites_answer_together_whose_law_and_solved_loss_are_the_same() -> None:
    assert output(terms()).kind == (OutputPerturbation, "gaussian", Logistic())
    assert output(terms(Hinge())).kind == output(terms(Huber(0.01), n_examples=500, epsilon=9.0)).kind
    assert output(terms(law="l2_laplace")).kind != output(terms()).kind != exact(terms()).kind
