"""Methods as the forecast sees them: their linear maths by simulation, their bounds against training."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from parley.common.arrays import FloatArray
from parley.common.forecast.dynamics import Answers, Average, Descent, Load, Method, Problem, Tilt
from parley.common.forecast.excess_risk import response_of
from parley.common.learning.losses import Hinge, Logistic, Squared
from parley.common.privacy.noise import SeededNoise
from tests.support.worlds import WAYS, facts_of, predict, random_world

H = np.array([0.05, 0.2, 0.7])
DESCENTS = {
    "last": Descent((1.0, 0.7, 0.5, 0.4), 0.05),
    "average": Descent((1.0, 0.7, 0.5, 0.4), 0.05, average=(0.1, 0.2, 0.3, 0.4)),
    "tilted": Descent((1.0, 0.7, 0.5, 0.4), 0.05, tilt=0.3),
    "momentum": Descent((0.7,) * 4, 0.05, momentum=0.6),
    "momentum, average": Descent((0.7,) * 4, 0.05, average=(0.1, 0.2, 0.3, 0.4), momentum=0.6),
}


def trained(descent: Descent, force: FloatArray) -> FloatArray:
    """The model by descent, written out, on (h + tilt) w^2 / 2, against forces (T, runs, m)."""
    before = weights = np.zeros(force.shape[1:])
    model = np.zeros_like(weights)
    for step, part, push in zip(descent.steps, descent.weights, force, strict=True):
        moving = descent.momentum * (weights - before)
        before, weights = weights, weights + moving - step * ((H + descent.tilt) * weights + push)
        model += part * weights
    return model


class TestLinear:
    @pytest.mark.parametrize("descent", DESCENTS.values(), ids=DESCENTS)
    def test_reach_and_spread_are_descents(self, descent: Descent) -> None:
        reach, spread = descent.linear(H)
        assert reach == pytest.approx(-trained(descent, np.ones((4, 1, 3)))[0])
        each_round = [trained(descent, np.eye(4)[:, round, None, None] * np.ones((1, 1, 3)))[0] for round in range(4)]
        assert spread == pytest.approx(np.square(each_round).sum(axis=0))

    @pytest.mark.parametrize("average", [None, (1e-3,) * 1000])
    @pytest.mark.parametrize("momentum", [0.0, 0.9])
    def test_of_a_descent_that_diverges_all_is_a_number(self, momentum: float, average: tuple[float, ...]) -> None:
        wild = Descent((40.0,) * 1000, 99.0, average=average, momentum=momentum)
        response = response_of(wild, Problem(5, Logistic()))
        worst = response.excess(Load(fresh=1.0))
        assert worst.estimate > 1e6
        assert all(map(math.isfinite, (worst.low, worst.estimate, worst.high)))

    def test_tilt_is_the_limit_of_descent(self) -> None:
        reach, spread = Tilt(0.05, 0.3).linear(H)
        limit, _ = Descent((1.0,) * 500, 0.05, tilt=0.3).linear(H)
        assert reach == pytest.approx(limit)
        assert not spread.any()

    def test_minimisers_start_from_nowhere(self) -> None:
        for method in (Tilt(0.05), Average(0.05)):
            assert 1 - H * method.linear(H)[0] == pytest.approx(np.zeros(3), abs=1e-15)
            assert response_of(replace(method, regularization=1e-12), Problem(5, Logistic())).start == pytest.approx(0)


class TestHeaviness:
    @pytest.mark.slow
    @pytest.mark.parametrize(("d", "k", "parts"), [(2, 1, 1.0), (8, 1, 1.0), (3, 4, 1.0), (3, 4, 4.0)])
    def test_the_variance_of_what_heavy_noise_does_is_that_of_its_fourth_moments(
        self, d: int, k: int, parts: float
    ) -> None:
        """Of Q = sum h b^2: v^2 (2 g sum h^2 + (g - 1) (sum h)^2), g = 1 + heaviness / K."""
        h = np.linspace(0.1, 1, d)
        draws = SeededNoise(3).l2_laplace(1.0, (400_000, k, d), parts).sum(axis=1)
        answers = Answers.l2_laplace(np.ones(k), d, parts)
        assert draws.var(axis=0) == pytest.approx(np.full(d, answers.fresh.sum()), rel=0.02)
        g = 1 + answers.heaviness / k
        expected = answers.fresh.sum() ** 2 * (2 * g * (h**2).sum() + (g - 1) * h.sum() ** 2)
        assert (draws**2 @ h).var() == pytest.approx(expected, rel=0.05)

    def test_heavy_noise_widens_an_interval(self) -> None:
        response = response_of(Average(0.05), Problem(3, Logistic()))
        normal, heavy = (response.excess(Load(fresh=30.0, heaviness=heaviness)) for heaviness in (0.0, 2.0))
        assert heavy.low < normal.low
        assert heavy.estimate == normal.estimate
        assert heavy.high > normal.high


def test_two_noises_are_no_less_than_either() -> None:
    response = response_of(Descent((0.5,) * 20, 0.05), Problem(6, Logistic()))
    both = response.excess(Load(fresh=0.1, once=0.01))
    for one in (Load(fresh=0.1), Load(once=0.01)):
        assert both.low >= response.excess(one).low
        assert both.high >= response.excess(one).high


class TestBounds:
    @pytest.mark.parametrize("way", range(len(WAYS)), ids=[f"{name}-{type(loss).__name__}" for name, loss in WAYS])
    @pytest.mark.slow
    def test_no_mean_outcome_exceeds_the_mended_bound(self, way: int) -> None:
        """On the owners' own examples, which the bounds are about: 6 random settings, each 5 standard errors' grace."""
        ratios = []
        for seed in range(6):
            world = random_world(way, 1000 + seed)
            everyone = np.ones(len(world.sizes), dtype=np.bool_)
            proven = world.predict(everyone).proven.excess
            if proven:
                outcomes = world.excesses_on_own(everyone, range(20))
                assert outcomes.mean() <= proven + 5 * outcomes.std() / math.sqrt(20)
                ratios.append(outcomes.mean() / proven)
        most = max(ratios, default=0)
        print(f"forecast, {world}: {len(ratios)} of 6 have a bound; mean outcome / bound at most {most:.2f}")

    def test_the_minimiser_is_the_best_on_its_own_examples(self) -> None:
        proven = predict("pooled", {}, facts_of([100, 50], [1.0, 1.0], Logistic())).proven
        assert (proven.noise_energy, proven.excess) == (0, 0)

    def test_of_a_tilt_it_is_reached(self) -> None:
        """On a paraboloid of curvature lambda alone, the noise's part is exact."""
        proven = Tilt(0.1, 0.3).bound(Problem(4, Squared()), Load(once=0.02))
        assert proven == pytest.approx(4 * 0.02 / (2 * 0.4) + 0.3 / 0.4 / 2)

    def test_descent_comes_to_the_tilts_own(self) -> None:
        problem, load = Problem(4, Logistic()), Load(once=0.02)
        far = Descent((1.0,) * 2000, 0.1, tilt=0.3).bound(problem, load)
        assert far == pytest.approx(Tilt(0.1, 0.3).bound(problem, load))

    def test_nothing_is_proven_for_steps_beyond_the_curvature(self) -> None:
        assert Descent((8.0,) * 5, 0.01).bound(Problem(3, Squared()), Load(fresh=1.0)) == math.inf
        assert predict("dp_gd", {"momentum": 0.1}, facts_of([100], [1.0])).proven.excess is None

    def test_nothing_is_proven_of_tilted_averages_of_iterates(self) -> None:
        averaged = replace(DESCENTS["average"], tilt=0.1, diameter=2.0)
        assert averaged.bound(Problem(3, Hinge()), Load(fresh=1.0)) == math.inf

    def test_the_mended_bound_is_the_corrected_theorem_2(self) -> None:
        """(1 - lambda/M)^T gap + 4 p Xi^2 T^2 S / (lambda n^2), but for the noise that has shrunk away."""
        facts = facts_of([3000, 1000], [1.0, 0.5])
        answer = predict("wu_strongly_convex", {"n_rounds": 50, "regularization": 0.1, "l1_clip": 1.5}, facts)
        s = 1 + 4
        energy = 8 * 8 * 1.5**2 * 50**2 * s / 4000**2
        contraction = (1 - 0.1 / 1.1) ** 50
        assert answer.proven.noise_energy == pytest.approx(energy)
        assert answer.proven.excess == pytest.approx(contraction / 2 + (1 - contraction) * energy / 0.2)
        assert answer.printed is not None
        assert answer.printed.noise_energy == pytest.approx(energy / 8)
        assert answer.printed.excess is not None
        assert answer.proven.excess is not None
        assert answer.printed.excess < answer.proven.excess
        print(f"forecast: bound proven {answer.proven.excess:.4f}, printed (without p) {answer.printed.excess:.4f}")


def test_methods_are_remembered_by_what_they_say() -> None:
    methods: list[Method] = [Tilt(0.1), Tilt(0.1, 0.2), Average(0.1), *DESCENTS.values()]
    assert len(set(methods)) == len(methods)
    assert response_of(Tilt(0.1), Problem(3, Logistic())) is response_of(Tilt(0.1), Problem(3, Logistic()))
