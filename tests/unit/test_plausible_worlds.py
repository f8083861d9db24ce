"""What data may be like, as a forecast supposes, and what methods make of it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from parley.common.arrays import FloatArray
from parley.common.encoding.classes import encode_classes
from parley.common.forecast.dynamics import BestConstant, Descent, Load, Method, Problem, Tilt, clipped_excess
from parley.common.forecast.excess_risk import Interval, response_of, saturation
from parley.common.forecast.plausible_worlds import N_WORLDS, Worlds, worlds_of
from parley.common.learning.losses import Hinge, Huber, Logistic, Softmax, Squared

PROBLEMS = [
    Problem(d, loss) for loss in (Logistic(), Softmax(7), Squared(), Huber(), Hinge()) for d in (1, 2, 9, 500, 10**6)
]
by_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{type(p.loss).__name__}-{p.n_features}")


def test_the_worlds_are_the_same_each_time() -> None:
    first = worlds_of(Problem(9, Logistic()))
    worlds_of.cache_clear()
    again = worlds_of(Problem(9, Logistic()))
    assert first is not again
    assert all(np.array_equal(getattr(first, name), getattr(again, name)) for name in Worlds.__slots__)


class TestWorlds:
    @by_problem
    def test_every_direction_is_counted(self, problem: Problem) -> None:
        counts = worlds_of(problem).counts
        assert counts.shape == (N_WORLDS, 48)
        assert counts.sum(axis=1) == pytest.approx(
            np.full(N_WORLDS, problem.n_features * max(1, problem.loss.outputs - 1))
        )

    @by_problem
    def test_no_world_is_more_curved_than_the_loss_allows(self, problem: Problem) -> None:
        """Rows have norm 1 at most, so curvatures add up to c, or of K classes to 1 - 1/K; but for the grid."""
        worlds = worlds_of(problem)
        trace = (worlds.counts * worlds.curvature).sum(axis=1)
        most = 1 - 1 / problem.loss.outputs if problem.loss.outputs > 1 else problem.curvature
        assert trace.max() <= 1.3 * most
        assert worlds.curvature.max() <= problem.curvature * (1 + 1e-12)

    @by_problem
    def test_what_is_to_be_learnt_is_a_part_of_the_loss_at_zero(self, problem: Problem) -> None:
        learnt = worlds_of(problem).energy.sum(axis=1) / problem.gap
        assert learnt.min() > 0
        assert learnt.max() < 1
        if not isinstance(problem.loss, Squared):
            power = 1 + 1 / problem.n_features
            assert learnt.min() <= 0.03**power
            assert learnt.max() == pytest.approx(0.99**power, abs=0.01)
            assert learnt + worlds_of(problem).least_loss / problem.gap == pytest.approx(np.ones(N_WORLDS))

    def test_of_a_label_that_is_known_the_constant_is_learnt_at_once(self) -> None:
        """Of a class of one in twenty: what its share gains lies along the intercept, all else is no more than H."""
        best = BestConstant(loss=0.2, gain=0.49, bend=0.19)
        told, untold = (worlds_of(Problem(9, Logistic(), each)) for each in (best, None))
        assert told.energy.sum(axis=1) + told.least_loss == pytest.approx(np.full(N_WORLDS, 0.69))
        assert told.least_loss.max() <= 0.2
        assert np.all(told.bend <= 0.19)
        assert np.all((told.energy >= 0.49).sum(axis=1) == 1)
        assert told.curvature == pytest.approx(untold.curvature)

    def test_of_a_regression_whose_deviation_is_known_nothing_exceeds_its_half_square(self) -> None:
        worlds = worlds_of(Problem(9, Squared(), BestConstant(loss=0.02)))
        assert worlds.energy.sum(axis=1) + worlds.least_loss == pytest.approx(np.full(N_WORLDS, 0.02))

    def test_what_a_regression_leaves_over_is_its_slopes_variance(self) -> None:
        worlds = worlds_of(Problem(9, Squared()))
        label = worlds.energy.sum(axis=1) + worlds.variance / 2
        assert label.min() >= 0.01 - 1e-9
        assert label.max() <= 0.4 + 1e-9
        assert np.all(worlds.bend == 1)

    def test_worlds_that_are_told_apart_well_are_less_curved(self) -> None:
        worlds = worlds_of(Problem(9, Logistic()))
        learnt = worlds.energy.sum(axis=1) / math.log(2)
        assert np.all(worlds.bend <= 1)
        assert np.all(worlds.bend >= (1 - learnt) ** 0.8 - 1e-9)
        assert np.corrcoef(learnt, worlds.bend)[0, 1] < -0.4

    def test_noise_does_some_times_the_harm_that_is_said(self) -> None:
        classes, parabola = (worlds_of(Problem(9, loss)).rough for loss in (Logistic(), Squared()))
        assert (classes.min(), classes.max()) == pytest.approx((0.25, 6.0), rel=0.05)
        assert (parabola.min(), parabola.max()) == pytest.approx((0.35, 2.1), rel=0.05)


def descent(rounds: int, **terms: object) -> Descent:
    return Descent((4.0,) * rounds, 1e-6, **terms)  # type: ignore[arg-type]


def ends(interval: Interval) -> list[float]:
    return [interval.low, interval.estimate, interval.high]


METHODS: tuple[Method, ...] = (descent(30), descent(30, momentum=0.7), Tilt(1e-6), Tilt(0.01, 0.1))
SIZES = (0.0, 1e-8, 1e-3, 10.0)
RESPONSES = [
    (problem, method, SIZES[(i + j) % len(SIZES)])
    for i, problem in enumerate(PROBLEMS)
    for j, method in enumerate(METHODS)
]
"""Every pair of a problem and a method, and of a method and a size of the noise."""


class TestResponse:
    @pytest.mark.parametrize(("problem", "method", "size"), RESPONSES)
    def test_the_estimate_lies_in_its_interval(self, problem: Problem, method: Method, size: float) -> None:
        interval = response_of(method, problem).excess(Load(fresh=size, once=size / 10, sample=size / 3))
        assert 0 <= interval.low <= interval.estimate <= interval.high < math.inf

    def test_no_steps_leave_all_that_there_is_to_learn(self) -> None:
        response = response_of(Descent((1e-12,), 1e-6), Problem(9, Logistic()))
        assert response.start == pytest.approx(response.worlds.energy.sum(axis=1))

    def test_more_rounds_learn_more(self) -> None:
        starts = [response_of(descent(rounds), Problem(9, Logistic())).start for rounds in (3, 10, 100, 1000)]
        assert all(np.all(after < before) for before, after in pairwise(starts))

    def test_regularisation_is_harm_where_there_is_enough_data(self) -> None:
        weak, strong = (
            response_of(Tilt(each), Problem(9, Logistic())).excess(Load(sample=1e-6)) for each in (1e-6, 0.1)
        )
        assert all(np.array(ends(weak)) < np.array(ends(strong)))

    def test_of_a_likelihood_that_is_right_a_sample_costs_a_half_over_n_a_direction(self) -> None:
        """Tr H^-1 H / (2 n) = d / (2 n) for the minimiser (Fisher's information), times what worlds are rough by."""
        response = response_of(Tilt(1e-12), Problem(9, Logistic()))
        by_sample = response.worlds.counts @ response.sample
        assert by_sample == pytest.approx(np.full(N_WORLDS, 9 / 2), rel=1e-4)
        assert response.middle[4] == pytest.approx(4.5 * np.median(response.worlds.rough), rel=1e-4)

    def test_noise_of_a_round_costs_half_its_variance_a_curvature(self) -> None:
        response = response_of(Descent((1.0,), 1e-9), Problem(9, Logistic()))
        assert response.fresh == pytest.approx(response.worlds.curvature / 2)
        assert response.once == pytest.approx(response.worlds.curvature / 2)

    def test_the_ends_are_the_quantiles_of_draws(self) -> None:
        """Of worlds and chi-squares, drawn: the gamma of two moments is 10 % off at the most here."""
        response, load = response_of(descent(30), Problem(40, Logistic())), Load(fresh=1e-3)
        rng, worlds = np.random.default_rng(1), response.worlds
        drawn = np.array(
            [rng.chisquare(np.maximum(counts, 1e-9), (400, 48)) @ response.fresh for counts in worlds.counts]
        )
        x = worlds.rough[:, None] * drawn * load.fresh
        outcomes = response.start[:, None] + response.scale[:, None] * (
            np.sqrt(1 + 2 * x / response.scale[:, None]) - 1
        )
        interval = response.excess(load)
        assert [interval.low, interval.high] == pytest.approx(np.quantile(outcomes, [0.05, 0.95]), rel=0.1)

    def test_without_noise_many_samples_at_once_are_as_one_by_one(self) -> None:
        response = response_of(Tilt(1e-3), Problem(9, Logistic()))
        together = response.by_samples(np.array([50.0, 4000.0]))
        for n, interval in zip((50, 4000), together, strict=True):
            assert ends(interval) == pytest.approx(ends(response.excess(Load(sample=1 / n))))

    def test_clipping_the_1_norm_slows_descent_and_not_its_noise(self) -> None:
        problem = Problem(64, Logistic())
        free, clipped = (response_of(descent(30, slope_l1=each), problem) for each in (math.inf, 1.0))
        assert np.all(clipped.start > free.start)
        assert np.all(clipped.fresh >= free.fresh)
        assert descent(30, slope_l1=1.0).gradient_share(problem) == pytest.approx(1 / (0.5 * 0.7 * 8))
        assert Tilt(0.1).gradient_share(problem) == 1

    @pytest.mark.parametrize(
        ("loss", "slope"), [(Logistic(), 0.5), (Softmax(4), math.sqrt(0.75)), (Hinge(), 1.0), (Squared(), 0.5)]
    )
    def test_a_clip_norm_below_the_slope_at_zero_slows_it_too(self, loss: Logistic, slope: float) -> None:
        assert descent(3, slope=slope / 2).gradient_share(Problem(9, loss)) == pytest.approx(0.5)
        assert descent(3, slope=slope * 2).gradient_share(Problem(9, loss)) == 1

    def test_nothing_is_proven_of_slopes_that_are_clipped(self) -> None:
        method = Descent((0.5,) * 5, 0.01)
        assert method.bound(Problem(9, Logistic()), Load(fresh=1e-3)) < math.inf
        assert replace(method, slope=0.5).bound(Problem(9, Logistic()), Load(fresh=1e-3)) == math.inf


class TestClipping:
    @pytest.mark.slow
    @pytest.mark.parametrize(("loss", "clip_norm"), [(Logistic(), 0.5), (Logistic(), 0.3), (Softmax(4), 0.7)])
    @pytest.mark.parametrize("p", [0.55, 0.8, 0.95])
    def test_it_is_where_descent_on_clipped_slopes_comes_to_rest(
        self, loss: Logistic | Softmax, clip_norm: float, p: float
    ) -> None:
        """Rows of one kind: one class is right with probability p, the others alike."""
        k = max(2, loss.outputs)
        chances = np.array([p, *[(1 - p) / (k - 1)] * (k - 1)])
        codes = np.array([1.0, -1.0]) if loss.outputs == 1 else encode_classes(np.arange(k), k)
        scores: FloatArray = np.zeros((k,) if loss.outputs == 1 else (k, k))
        for _ in range(6000):
            slopes = loss.slope(scores, codes).reshape(k, -1)
            kept = np.minimum(1.0, clip_norm / np.maximum(np.linalg.norm(slopes, axis=1), 1e-12))
            scores = (
                scores - 0.5 * (chances * kept) @ slopes
                if loss.outputs > 1
                else scores - 0.5 * float((chances * kept) @ slopes[:, 0])
            )
        entropy = -float(chances @ np.log(chances))
        excess = float(chances @ loss.value(scores, codes)) - entropy
        assert excess > 1e-4
        assert clipped_excess(loss.outputs, clip_norm, np.array([entropy])) == pytest.approx(excess, rel=0.02)

    def test_a_slope_that_fits_is_not_clipped(self) -> None:
        assert clipped_excess(1, 1.0, np.linspace(0, 0.6, 4)) == pytest.approx(np.zeros(4), abs=1e-9)
        assert descent(3, slope=0.1).excess_at_rest(Problem(9, Squared()), np.ones(2)) == pytest.approx(np.zeros(2))

    def test_it_counts_as_far_as_the_model_has_come(self) -> None:
        clipped, free = (response_of(descent(3000, slope=each), Problem(9, Logistic())) for each in (0.5, 1.0))
        harm = clipped.start - free.start
        assert harm.min() >= 0
        assert 0.015 < harm.max() < clipped_excess(1, 0.5, np.linspace(0, 0.69, 50)).max()
        still = response_of(Descent((1e-12,), 1e-6, 0.5), Problem(9, Logistic()))
        assert still.start == pytest.approx(still.worlds.energy.sum(axis=1))


class TestSaturation:
    """psi against E loss(z) - loss(0) over normal scores."""

    @staticmethod
    def grown(loss: Logistic | Softmax, deviation: float) -> float:
        z: FloatArray = deviation * np.random.default_rng(2).standard_normal((400_000, max(2, loss.outputs)))
        if loss.outputs == 1:
            return float((loss.value(z[:, 0], np.ones(len(z))) - math.log(2)).mean())
        from scipy.special import logsumexp  # noqa: PLC0415

        return float(logsumexp(z, axis=1).mean() - math.log(loss.outputs))

    @pytest.mark.parametrize("loss", [Logistic(), Softmax(3), Softmax(10)])
    @pytest.mark.parametrize("deviation", [0.1, 1.0, 3.0, 30.0])
    @pytest.mark.slow
    def test_it_is_how_the_loss_grows(self, loss: Logistic | Softmax, deviation: float) -> None:
        x = deviation**2 / 2 * (0.25 if loss.outputs == 1 else 1 - 1 / loss.outputs)
        scale = saturation(loss)
        assert scale * (math.sqrt(1 + 2 * x / scale) - 1) == pytest.approx(self.grown(loss, deviation), rel=0.25)

    def test_a_parabola_never_slows(self) -> None:
        assert saturation(Squared()) == math.inf
        response = response_of(Tilt(0.1), Problem(4, Squared()))
        one, many = (response.excess(Load(once=each)).high - response.excess(Load()).high for each in (1e3, 1e6))
        assert many == pytest.approx(1e3 * one, rel=1e-2)
