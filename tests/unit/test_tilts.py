"""Noise inside a minimisation: its width by the theorems, for any slope, and the blur that hides the solver."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import FRACTION_BITS, MAX_NORM, UNIT
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import MOST_STEPS, TOLERANCE, minimise
from parley.common.learning.losses import Huber, Logistic, Loss
from parley.common.privacy.calibration import gaussian_delta
from parley.common.privacy.mechanisms.objective import FOR_THE_SOLVER, ObjectivePerturbation, objective, tilted
from parley.common.privacy.mechanisms.output import generalized, hessian_bound, output
from parley.common.privacy.mechanisms.site import Law, SiteCalibration, SiteTerms, left_by_solver, stacked
from tests.support.noises import HeardNoise
from tests.unit.test_mechanisms import CALIBRATIONS, LAWS, rows, terms

GRID = 2.0**-FRACTION_BITS
EPSILON, DELTA, D = 0.5, 1e-6, 3
WHOLE = 1 - FOR_THE_SOLVER
LEFT, LEFT_DELTA = WHOLE * EPSILON, WHOLE * DELTA
STEEP: list[Loss] = [Logistic(), Logistic(lipschitz=2.5, smoothness=0.25), Huber(0.1)]
EVERY_LOSS = pytest.mark.parametrize("loss", STEEP, ids=str)
EVERY_LAW = pytest.mark.parametrize("law", LAWS)


def site_of(loss: Loss, law: Law, calibration: SiteCalibration = "tight", **changes: object) -> SiteTerms:
    given: dict[str, object] = {"epsilon": EPSILON, "delta": DELTA, "law": law, "calibration": calibration}
    return terms(loss, **given | changes)


def determinants(site: ObjectivePerturbation) -> float:
    """The logarithm of 1 + c / Lambda."""
    return math.log1p(site.terms.loss.smoothness / site.strength)


# ── tilts ────────────────────────────────────────────────────────────────────


@EVERY_LOSS
def test_the_least_tilt_hides_two_slopes_with_what_one_determinant_leaves(loss: Loss) -> None:
    """Its Gaussian profile at what is left of epsilon is delta's; a density exp(-beta |b|) moves by 2 L beta."""
    for set_up in (objective, generalized):
        gaussian, pure = (set_up(site_of(loss, law)) for law in ("gaussian", "l2_laplace"))
        left = LEFT - determinants(gaussian)
        assert gaussian_delta(left, 2 * loss.lipschitz / gaussian.tilt) == pytest.approx(LEFT_DELTA, rel=1e-5)
        assert 2 * loss.lipschitz * pure.tilt == pytest.approx(left)


@EVERY_LOSS
def test_the_papers_tilt_is_the_large_root_with_what_two_determinants_leave(loss: Loss) -> None:
    """Rajkumar & Agarwal, Procedure 3; Chaudhuri's, of density exp(-beta |b|), is Jain & Thakurta's too."""
    site = objective(site_of(loss, "gaussian", "paper"))
    left, slope = LEFT - 2 * determinants(site), loss.lipschitz
    quantile = stats.chi2(D).isf(LEFT_DELTA)
    over = site.tilt**2 * left - 2 * slope**2
    assert over > 0
    assert (over / (2 * slope * site.tilt)) ** 2 == pytest.approx(quantile)
    for calibration in ("paper", "jain_thakurta"):
        assert 2 * slope * objective(site_of(loss, "l2_laplace", calibration)).tilt == pytest.approx(left)


@EVERY_LOSS
def test_jain_and_thakurtas_tilt_is_as_published_and_costs_what_is_proven(loss: Loss) -> None:
    """4 L^2 (log(1/delta) + epsilon) / epsilon^2 is its variance; determinant, tilt and solver add up to its cost."""
    site = objective(site_of(loss, "gaussian", "jain_thakurta"))
    assert (site.tilt * EPSILON / 2 / loss.lipschitz) ** 2 == pytest.approx(math.log(1 / DELTA) + EPSILON)
    for_the_tilt = site.event.epsilon - determinants(site) - FOR_THE_SOLVER * EPSILON
    assert gaussian_delta(for_the_tilt, 2 * loss.lipschitz / site.tilt) == pytest.approx(LEFT_DELTA, rel=1e-5)
    assert site.event.delta == DELTA


@EVERY_LOSS
@pytest.mark.parametrize("calibration", ["paper", "thesis"])
def test_kifers_tilt_and_ridge_are_as_published(loss: Loss, calibration: SiteCalibration) -> None:
    """With zeta = 2 L; the ridge is the site's own and 2 c / epsilon, or twice the thesis's bound of a Hessian."""
    slope, c = loss.lipschitz, loss.smoothness
    bound = c if calibration == "paper" else math.sqrt((D * c) ** 2 + D * (slope**2 + 2 * slope * c))
    zeta = 2 * loss.lipschitz
    for regularization in (1e-4, 1e3):
        gaussian, pure = (generalized(site_of(loss, law, calibration, regularization=regularization)) for law in LAWS)
        variance = zeta**2 * (8 * math.log(2 / LEFT_DELTA) + 4 * LEFT) / LEFT**2
        assert gaussian.tilt**2 == pytest.approx(variance)
        assert pure.tilt == pytest.approx(LEFT / (2 * zeta))
        assert gaussian.strength == pure.strength == pytest.approx(100 * regularization + 2 * bound / LEFT)


def test_the_thesiss_bound_of_a_hessian_is_as_printed() -> None:
    """(3.8) at d = 80, h = 1/2: sqrt(6400 + 240)."""
    terms = site_of(Huber(), "l2_laplace", "thesis", n_features=80)
    assert hessian_bound(terms) == pytest.approx(81.486, abs=5e-4)
    assert hessian_bound(replace(terms, loss=Huber(0.1))) == pytest.approx(math.sqrt(160_000 + 80 * 11))
    assert hessian_bound(replace(terms, calibration="paper")) == 1


@EVERY_LAW
def test_a_tilt_moves_weights_by_itself_over_the_ridge(law: Law) -> None:
    site = objective(site_of(Logistic(), law))
    each_way = site.tilt if law == "gaussian" else math.sqrt(D + 1) / site.tilt
    assert site.deviation == pytest.approx(each_way / site.strength)
    assert site.output_sensitivity == math.inf, "noise inside a minimisation is not on an answer"


# ── the solver ───────────────────────────────────────────────────────────────


@EVERY_LAW
@pytest.mark.parametrize("d", [1, 3, 50])
@pytest.mark.parametrize(("left", "strength"), [(0.05, 4.0), (1e-3, 0.25), (0.0, 4.0)])
def test_the_blur_hides_twice_what_a_solver_may_leave_and_the_rounding(
    monkeypatch: pytest.MonkeyPatch, law: Law, d: int, left: float, strength: float
) -> None:
    """Two answers lie |gradient| / Lambda from their minimisers each, and half a unit in each coordinate."""
    monkeypatch.setattr("parley.common.privacy.mechanisms.objective.left_by_solver", lambda *_: left)
    site = tilted(site_of(Logistic(), law, n_features=d), strength, 10.0)
    apart = 2 * (left / strength + math.sqrt(d) * GRID / 2)
    if law == "gaussian":
        within = gaussian_delta(FOR_THE_SOLVER * EPSILON, apart / site.blur)
        assert within == pytest.approx(FOR_THE_SOLVER * DELTA, rel=1e-5)
        assert site.blur_deviation == site.blur
    else:
        assert apart * site.blur == pytest.approx(FOR_THE_SOLVER * EPSILON)
        assert site.blur_deviation == pytest.approx(math.sqrt(d + 1) / site.blur)
    site.check_noise()


def told_to_the_bound(monkeypatch: pytest.MonkeyPatch, site: SiteTerms, tilt: float | None = None) -> dict[str, Any]:
    """What the bound of a solver's error knows about a site with such a tilt, or none."""
    told: dict[str, Any] = {}

    def heard(loss: Loss, n: FloatArray, d: int, ridge: FloatArray, tilt: float = 0.0, **more: Any) -> FloatArray:  # noqa: ANN401
        told.update(loss=loss, n=int(n), d=d, ridge=float(ridge), tilt=tilt, **more)
        return np.asarray(0.01)

    monkeypatch.setattr("parley.common.privacy.mechanisms.site.gradient_left", heard)
    if tilt is None:
        assert left_by_solver(site, 7.0) == 0.01
    else:
        tilted(site, 7.0, tilt)
    assert (told["loss"], told["n"], told["d"], told["ridge"]) == (site.loss, site.n_examples, site.n_features, 7.0)
    assert told["row_entries"] == site.row_entries
    return told


ROWS = pytest.mark.parametrize(("d", "entries"), [(1, None), (3, None), (400, None), (400, 20), (400, 400), (3, 20)])
SIZES = pytest.mark.parametrize("n", [1, 100, 10**6])


@ROWS
@SIZES
def test_a_gaussian_tilt_is_longer_than_it_is_taken_for_but_once_in_10_to_17(
    monkeypatch: pytest.MonkeyPatch, d: int, entries: int | None, n: int
) -> None:
    """And so are its parts in the columns of n rows: |g| is beyond sqrt(m) + t with a chance of at most exp(-t^2/2)."""
    site = site_of(Logistic(), "gaussian", n_examples=n, n_features=d, row_entries=entries)
    told = told_to_the_bound(monkeypatch, site, 20.0)
    most = min(d, entries or d)
    longest, in_a_row = told["tilt"] / 20.0, told["row_tilt"] / 20.0
    assert stats.chi2(d).sf(longest**2) <= 1e-17
    assert n * stats.chi2(most).sf(in_a_row**2) <= 1e-17
    concentration = math.exp(-((longest - math.sqrt(d)) ** 2) / 2)
    of_rows = n * math.exp(-((in_a_row - math.sqrt(most)) ** 2) / 2)
    assert concentration == pytest.approx(of_rows, rel=1e-6, abs=0), "neither is wasteful"
    assert 1e-18 < concentration < 1e-17 / 2


@ROWS
@SIZES
def test_a_tilt_of_density_exp_minus_beta_b_is_longer_than_it_is_taken_for_but_once_in_10_to_17(
    monkeypatch: pytest.MonkeyPatch, d: int, entries: int | None, n: int
) -> None:
    """It is sqrt(V) g. Of sparse rows three bounds may fail: of |b|, of V, and of g in the columns of a row."""
    beta = 0.05
    site = site_of(Logistic(), "l2_laplace", n_examples=n, n_features=d, row_entries=entries)
    told = told_to_the_bound(monkeypatch, site, beta)
    most = min(d, entries or d)
    beyond = stats.gamma(d).sf(told["tilt"] * beta)
    if most == d:
        assert beyond == pytest.approx(1e-17, rel=1e-6, abs=0)
        assert told["row_tilt"] >= told["tilt"], "all of it is in a row"
        return
    of_g = math.sqrt(most) + math.sqrt(2 * math.log(n) + 81)
    largest = (told["row_tilt"] / of_g) ** 2
    of_v = stats.gamma((d + 1) / 2, scale=2 / beta**2).sf(largest)
    assert 7e-18 < beyond + of_v + math.exp(-81 / 2) <= 1e-17
    assert beyond == pytest.approx(of_v, rel=1e-6, abs=0)


def test_without_a_tilt_none_is_reckoned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of noise on the answer; rows that are all dense have no tilt of their own either."""
    told = told_to_the_bound(monkeypatch, site_of(Logistic(), "gaussian"))
    assert (told["tilt"], told["row_tilt"]) == (0.0, None)


# ── answers ──────────────────────────────────────────────────────────────────


@EVERY_LAW
def test_an_answer_is_the_minimiser_with_that_tilt_and_a_whole_blur(law: Law) -> None:
    site, shard = objective(site_of(Logistic(), law)), rows(100)
    noise = HeardNoise(2.0, 8.0)
    answer = ObjectivePerturbation.answer([site], ObjectivePerturbation.prepare([site], shard), noise)
    (kind, tilt, shape, parts), (_, blur, _, of_blur) = noise.asked
    assert (kind, float(tilt[0]), shape, parts) == (law, site.tilt, (3,), 1)
    assert of_blur == 1
    assert blur == pytest.approx(site.blur * UNIT if law == "gaussian" else site.blur)
    exact = minimise(Logistic(), shard, site.strength, np.full(3, 2.0), TOLERANCE)
    said = 8 if law == "gaussian" else 8 * UNIT
    assert np.abs(answer - said - exact * UNIT).max() <= 1


@EVERY_LAW
@pytest.mark.parametrize("sign", [-1, 1])
def test_an_answer_outside_the_cube_is_projected_onto_it(law: Law, sign: int) -> None:
    site = objective(site_of(Logistic(), law))
    answer = ObjectivePerturbation.answer([site], rows(100), HeardNoise(-sign * 1e9, 0.0))
    assert answer.tolist() == [sign * int(MAX_NORM) * UNIT] * 3


def test_it_is_solved_as_well_as_the_bound_of_its_error_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def heard(loss: Loss, shard: Shard, strength: FloatArray, tilt: FloatArray, **how: Any) -> FloatArray:  # noqa: ANN401
        asked.update(how)
        return minimise(loss, shard, strength, tilt)

    monkeypatch.setattr("parley.common.privacy.mechanisms.objective.minimise", heard)
    ObjectivePerturbation.answer([objective(terms())], rows(100), HeardNoise(1.0, 0.0))
    assert asked == {"tolerance": TOLERANCE, "most_steps": MOST_STEPS}


# ── words ────────────────────────────────────────────────────────────────────


def test_what_a_guarantee_assumes_is_said_and_where_a_noise_falls_short() -> None:
    for law, calibration in itertools.product(LAWS, CALIBRATIONS["objective"]):
        site = objective(site_of(Logistic(), law, calibration))
        short = [words for words in site.event.assumptions if "Jain & Thakurta" in words]
        assert any("floating point" in words for words in site.event.assumptions)
        assert any("10^17" in words for words in site.event.assumptions)
        if (law, calibration) == ("gaussian", "jain_thakurta"):
            assert short == [words for words in short if f"is ({site.event.epsilon:.3g}, 1e-06)-private" in words] != []
        else:
            assert not short
            assert site.event.epsilon == EPSILON


def test_a_refusal_lists_the_noise_that_there_is() -> None:
    for set_up, wrong, known in (
        (objective, "thesis", "tight, paper, better_branch, jain_thakurta"),
        (generalized, "jain_thakurta", "tight, paper, thesis"),
        (output, "thesis", "tight, paper, jain_thakurta"),
    ):
        with pytest.raises(InvalidInputError, match=f"must be one of: {known}$"):
            set_up(terms(calibration=wrong))


def test_sites_of_one_mechanism_law_and_loss_answer_together() -> None:
    assert objective(terms()).kind == (ObjectivePerturbation, "gaussian", Logistic())
    assert objective(terms()).kind == generalized(terms(n_examples=50, epsilon=3.0, calibration="paper")).kind
    others = [objective(terms(law="l2_laplace")), objective(terms(Huber(0.1))), output(terms())]
    assert all(other.kind != objective(terms()).kind for other in others)


def test_values_of_sites_are_floats_in_the_shape_of_their_stack() -> None:
    for values, labels, shape in (([2], np.zeros(5), ()), ([2, 3], np.zeros((2, 5)), (2,))):
        found = stacked(values, labels)
        assert found.shape == shape
        assert found.dtype.name == "float64"
        assert found.ravel().tolist() == values
