"""What is left open of a run's parameters is chosen from public facts, by a rule that no step of can diverge."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.common.algorithms import AUTO, MOST_ROUNDS, REGISTRY, build_algorithm, settle
from parley.common.algorithms._noisy_gradients import (
    NoisyGradients,
    bearable_step,
    drift_of,
    noise_of_one_round,
    rounds_until_settled,
)
from parley.common.algorithms._regularization import BETTER_BRANCH
from parley.common.algorithms.average import LocalAverage
from parley.common.algorithms.dp_gd import DpGd
from parley.common.algorithms.gop import Gop
from parley.common.algorithms.wu import WuStronglyConvex
from parley.common.data.columns import Feature, RealLabel
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss, Softmax, Squared, curvature_of
from parley.common.privacy.calibration import gaussian_sigma
from parley.common.privacy.mechanisms.additive import l2_laplace_deviation
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from parley.common.runs.pricing import guarantees

BASELINES = ("pooled", "local", "batch", "individual")
ENSEMBLES = ("ensemble_vote", "ensemble_soft", "parameter_average")
RELEASES = ("release", "average", "feature", "multilevel_feature")
REGULARIZED = ("gop", "local_average", "psgd", "wu_strongly_convex", "wu_subgradient")
LOSSES = (Logistic(), Huber(0.5), Squared(), Hinge(), Softmax(3), Softmax(10))


def facts_of(n: int = 1000, epsilon: float = 1.0, loss: Loss = LOSSES[0], **terms: object) -> FederationFacts:
    return FederationFacts.uniform(np.full(5, n), epsilon=epsilon, delta=1e-6, n_features=20, loss=loss, **terms)


def chosen(facts: FederationFacts, most_rounds: int = MOST_ROUNDS, **given: object) -> DpGd:
    algorithm, _ = settle("dp_gd", given, facts, most_rounds)
    assert isinstance(algorithm, DpGd)
    return algorithm


def way(found: DpGd) -> float:
    return found.n_rounds * found.step / (1 - found.momentum)


class TestRule:
    @given(
        st.sampled_from(LOSSES),
        st.integers(1, 10**6),
        st.floats(1e-3, 50),
        st.integers(1, 2000),
        st.integers(0, 4),
    )
    def test_what_is_chosen_can_be_run(self, loss: Loss, n: int, epsilon: float, most: int, colluders: int) -> None:
        facts = facts_of(n, epsilon, loss, secure_sum=bool(colluders), colluders=colluders)
        found = chosen(facts, most)
        assert len(found.questions(facts)) == found.n_rounds <= min(most, MOST_ROUNDS)
        steepest = curvature_of(loss) + found.regularization
        assert found.step * steepest < 2 * (1 + found.momentum)
        noise = noise_of_one_round(facts, found.clip_norm)
        assert way(found) * noise <= drift_of(facts) * 1.01, "never further than noise allows"
        promise, *_ = guarantees(found, facts)
        assert promise.epsilon <= epsilon * (1 + 1e-9)

    def test_the_drift_is_that_of_the_rule(self) -> None:
        assert drift_of(facts_of(100, 1.0)) == 1.8
        assert drift_of(facts_of(100, 1.0, Squared())) == 0.2

    @pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0, 5.0])
    def test_the_model_travels_as_far_as_noise_allows(self, epsilon: float) -> None:
        found = chosen(facts := facts_of(10_000, epsilon))
        assert way(found) * noise_of_one_round(facts, found.clip_norm) == pytest.approx(drift_of(facts), rel=0.02)

    @pytest.mark.parametrize(("loss", "curvature", "few"), [(Logistic(), 0.25, 7.5), (Squared(), 1.0, 0)])
    def test_noise_that_allows_few_steps_gets_one_where_classes_are_told(
        self, loss: Loss, curvature: float, few: float
    ) -> None:
        for n in range(1, 200):
            found = chosen(facts := facts_of(n, 0.3, loss))
            steps = drift_of(facts) / noise_of_one_round(facts, found.clip_norm) * curvature
            assert found.n_rounds == (1 if steps <= max(few, 1) else math.ceil(min(steps, math.sqrt(10 * steps))))
            assert found.step <= 1 / curvature
        assert chosen(facts_of(20, 0.1), step=0.1).n_rounds > 1, "many short steps make a long one"

    @pytest.mark.parametrize("loss", [Logistic(), Squared()])
    @pytest.mark.parametrize("regularization", [0.1, 1.0, 10.0])
    def test_a_lambda_that_is_given_has_the_model_settle(self, loss: Loss, regularization: float) -> None:
        """It took 969 rounds at lambda 1, whose noise was all that most of them added."""
        found = chosen(facts_of(20_000, 30.0, loss), regularization=regularization)
        assert way(found) == pytest.approx(3 / regularization, rel=0.02)
        assert found.n_rounds <= 20

    def test_scores_that_are_numbers_may_move_less_than_signs(self) -> None:
        facts = facts_of(10_000, 1.0, Squared())
        assert way(chosen(facts)) * noise_of_one_round(facts, 0.25) == pytest.approx(0.2, rel=0.02)

    def test_a_label_that_the_study_describes_scales_them(self) -> None:
        """By its deviation, where the bounds are -1 and +1: a tenth, for 10 on a scale up to 210."""
        label = RealLabel(name="y", lower=10, upper=210, mean=40, deviation=10)
        study = Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=label)
        facts = replace(facts_of(10_000, 1.0, Squared()), study=study)
        found = chosen(facts)
        assert found.clip_norm == pytest.approx(0.08)
        assert way(found) * noise_of_one_round(facts, 0.08) == pytest.approx(0.1, rel=0.02)
        assert chosen(facts, clip_norm=0.5).clip_norm == 0.5

    @pytest.mark.parametrize(
        ("name", "given", "start"),
        [
            ("dp_gd", {"regularization": 1e-6}, -1.4),
            ("dp_gd", {"regularization": 4.0}, -0.5),
            ("wu_subgradient", {"weight_bound": 10.0}, -1.4),
            ("wu_subgradient", {"weight_bound": 0.3}, -0.3),
        ],
    )
    def test_a_regression_starts_from_the_mean_within_the_set_that_it_stays_in(
        self, name: str, given: dict[str, float], start: float
    ) -> None:
        """A mean of -.7, by an intercept's column of 1/2 with the weight -1.4."""
        features = tuple(Feature(name=f"x{i}", lower=0, upper=1) for i in range(19))
        label = RealLabel(name="y", lower=10, upper=210, mean=40, deviation=10)
        facts = replace(facts_of(loss=Squared()), study=Study(name="s", features=features, label=label))
        query = next(build_algorithm(name, given).program(facts))
        assert query.message[-1] == pytest.approx(start)
        assert not query.message[:-1].any()

    def test_noise_is_that_of_the_sums(self) -> None:
        facts = facts_of(1000, 1.0, secure_sum=True, colluders=1)
        sigma = gaussian_sigma(1.0, 1e-6, 2 * 0.5)
        assert noise_of_one_round(facts, 0.5) == pytest.approx(sigma * math.sqrt(5 / 4) / 5000)
        one = DpGd(n_rounds=1, clip_norm=0.5)
        assert float(one.sigma(facts.of(0))) == pytest.approx(sigma)

    def test_more_data_or_budget_is_more_rounds(self) -> None:
        rounds = [
            chosen(facts_of(n, epsilon)).n_rounds for n, epsilon in ((10, 0.1), (100, 0.1), (1000, 0.1), (1000, 1))
        ]
        assert rounds == sorted(rounds)
        assert rounds[0] < rounds[-1]

    def test_few_rounds_have_no_momentum(self) -> None:
        found = chosen(facts_of(20, 0.3))
        assert found.n_rounds < 10
        assert found.momentum == 0

    def test_time_limits_rounds_and_the_reason_says_so(self) -> None:
        facts = facts_of(10_000, 1.0)
        free, (hasty, choices) = chosen(facts), settle("dp_gd", {}, facts, 12)
        assert isinstance(hasty, DpGd)
        assert hasty.n_rounds == 12 < free.n_rounds
        assert f"{free.n_rounds} would be more than time or owners allow" in choices["n_rounds"].why
        assert hasty.momentum == pytest.approx(1 - 10 / 12, abs=1e-4)

    def test_what_is_given_stays_and_the_rest_follows(self) -> None:
        facts = facts_of(10_000, 1.0)
        given = {"n_rounds": 40, "momentum": 0.5, "clip_norm": 1.0, "averaging": 0.25, "regularization": 1e-3}
        found, choices = settle("dp_gd", given, facts)
        assert asdict(found) == given | {"step": choices["step"].value}  # type: ignore[call-overload]
        assert set(choices) == {"step"}
        slow = chosen(facts, step=0.1)
        assert slow.step == 0.1
        assert slow.n_rounds > chosen(facts).n_rounds
        assert way(chosen(facts, step=0.1, n_rounds=5000)) * noise_of_one_round(facts, 0.5) <= drift_of(facts) * 1.01

    @pytest.mark.parametrize("strength", [1e-9, 0.5, 1.0, 1e3, 1e9])
    @pytest.mark.parametrize("loss", LOSSES, ids=repr)
    def test_no_step_is_too_long_for_a_lambda_that_is_given(self, loss: Loss, strength: float) -> None:
        facts = facts_of(loss=loss)
        descent = chosen(facts, regularization=strength)
        assert descent.regularization == strength
        assert len(descent.questions(facts)) == descent.n_rounds

    def test_each_loss_has_a_clip_norm_that_its_sums_hold(self) -> None:
        assert [chosen(facts_of(loss=loss)).clip_norm for loss in LOSSES] == [0.5, 1.0, 0.25, 1.0, 0.7, 0.7]

    def test_a_long_step_gets_the_momentum_that_it_needs(self) -> None:
        for n in (1, 10_000):
            found = chosen(facts_of(n, 0.1, Softmax(3)), step=4.5, n_rounds=4)
            assert found.step == 4.5
            assert found.momentum >= 4.5 / 4 - 1
            assert found.questions(facts_of(loss=Softmax(3)))
        with pytest.raises(InvalidInputError, match="descent may diverge"):
            chosen(facts_of(loss=Softmax(3)), step=9.0).questions(facts_of(loss=Softmax(3)))


class TestSettling:
    def test_auto_is_the_same_as_leaving_it_out(self) -> None:
        facts = facts_of()
        assert chosen(facts, step=AUTO, n_rounds=7) == chosen(facts, n_rounds=7)

    def test_what_nothing_chooses_is_named(self) -> None:
        with pytest.raises(InvalidInputError, match="nothing chooses clip_norm, n_rounds of psgd: give a value"):
            settle("psgd", {"regularization": AUTO, "clip_norm": AUTO, "n_rounds": AUTO}, facts_of())
        with pytest.raises(InvalidInputError, match="nothing chooses speed of dp_gd"):
            settle("dp_gd", {"speed": AUTO}, facts_of())

    def test_wrong_parameters_are_refused_before_anything_is_chosen(self) -> None:
        with pytest.raises(
            InvalidInputError, match="parameters of dp_gd: step: Input should be greater than or equal to"
        ):
            settle("dp_gd", {"step": -1.0}, facts_of())

    def test_what_chooses_nothing_keeps_its_defaults(self) -> None:
        for name in REGISTRY.keys() - {
            "ftrl",
            "dp_gd",
            "simplex",
            *BASELINES,
            *ENSEMBLES,
            *REGULARIZED,
            *RELEASES,
            "matrix_perturbation",
        }:
            assert settle(name, {}, facts_of()) == (build_algorithm(name), {})

    def test_baselines_are_hardly_regularised(self) -> None:
        for name, n in (("pooled", 5000), ("local", 1000)):
            algorithm, choices = settle(name, {}, facts_of())
            assert choices["regularization"].value == pytest.approx(0.1 / n)
            assert settle(name, {"regularization": 0.5}, facts_of())[1] == {}
            assert json.loads(json.dumps(asdict(algorithm))) == {"regularization": choices["regularization"].value}  # type: ignore[call-overload]


class TestRegularization:
    @pytest.mark.parametrize("name", REGULARIZED)
    @pytest.mark.parametrize("secure_sum", [False, True])
    def test_lambda_holds_the_noise_down(self, name: str, *, secure_sum: bool) -> None:
        chosen = []
        for n, epsilon in ((30, 0.1), (30, 1.0), (3000, 1.0), (3000, 10.0)):
            facts = facts_of(n, epsilon, secure_sum=secure_sum)
            given: dict[str, Any] = {"n_rounds": 10, "step": 1.0} if name == "wu_subgradient" else {}
            given = {"n_rounds": 10} if name == "wu_strongly_convex" else given
            given = {"calibration": "paper"} if name == "local_average" else given
            algorithm, choices = settle(name, given, facts)
            assert choices.get("calibration", BETTER_BRANCH) == BETTER_BRANCH
            assert algorithm == build_algorithm(name, given | {each: choice.value for each, choice in choices.items()})
            assert set(choices) - {"calibration"} == {"regularization"}
            assert algorithm.questions(facts.curated() if algorithm.curator else facts)
            chosen.append(choices["regularization"].value)
        assert chosen == sorted(chosen, reverse=True), "less noise, less lambda"
        assert chosen[1] == pytest.approx(100 * chosen[2], rel=0.05), "as 1 / n"
        assert set(settle(name, given | {"regularization": 0.5}, facts_of())[1]) <= {"calibration"}

    @pytest.mark.parametrize("name", ["wu_strongly_convex", "wu_subgradient"])
    @pytest.mark.parametrize("calibration", ["paper", "tight"])
    def test_a_number_is_sought_for_as_many_rounds_as_noise_allows(self, name: str, calibration: str) -> None:
        """Ten rounds told a fifth of what there is to learn, from however many examples."""
        rounds = []
        for n in (10, 100, 1000, 10_000):
            facts = facts_of(n, loss=Squared())
            algorithm, _ = settle(name, {"calibration": calibration}, facts)
            assert isinstance(algorithm, NoisyGradients)
            found, most = algorithm.n_rounds, drift_of(facts)
            assert found == 1 or algorithm.blur_of(facts, found) <= 1.01 * most
            assert found == MOST_ROUNDS or algorithm.blur_of(facts, found + 1) > 0.99 * most
            rounds.append(found)
        assert rounds == sorted(rounds)
        assert rounds[0] < 10 < rounds[-1]
        assert settle(name, {}, facts, most_rounds=7)[0] == settle(name, {"n_rounds": 7}, facts)[0]
        assert "n_rounds" not in settle(name, {"n_rounds": 7}, facts)[1]

    @pytest.mark.parametrize("name", ["wu_strongly_convex", "wu_subgradient"])
    @pytest.mark.parametrize(("calibration", "most"), [("paper", 0.3), ("tight", 0.6)])
    def test_of_classes_fewer_rounds_are_worth_their_noise(self, name: str, calibration: str, most: float) -> None:
        rounds = []
        for n in (10, 100, 1000, 100_000):
            facts = facts_of(n)
            algorithm, _ = settle(name, {"calibration": calibration}, facts)
            assert isinstance(algorithm, NoisyGradients)
            assert algorithm.n_rounds == 1 or algorithm.blur_of(facts, algorithm.n_rounds) <= 1.05 * most, (
                "lambda is chosen after"
            )
            rounds.append(algorithm.n_rounds)
        assert rounds == sorted(rounds)
        assert rounds[0] == 1
        assert rounds[-1] > 10
        held, _ = settle(name, {"calibration": calibration, "regularization": 0.1}, facts)
        assert isinstance(held, NoisyGradients)
        assert held.steps(facts)[:-1].sum() < 3 / 0.1, "it has settled"
        assert held.n_rounds < rounds[-1]

    @pytest.mark.parametrize("name", ["wu_strongly_convex", "wu_subgradient"])
    def test_of_many_classes_the_published_noise_of_a_second_round_is_too_much(self, name: str) -> None:
        assert settle(name, {}, facts_of(10**5, loss=Softmax(5)))[1]["n_rounds"].value == 1
        assert settle(name, {"calibration": "tight"}, facts_of(10**5, loss=Softmax(5)))[0].n_rounds > 10  # type: ignore[attr-defined]

    def test_subgradients_of_classes_start_with_a_step_that_leads_somewhere(self) -> None:
        """Steps of 1 / sqrt(k) told the commonest class alone where it is not near as common as the other."""

        def step(n: int, given: dict[str, float] | None = None) -> float:
            return float(settle("wu_subgradient", dict(given or {}), facts_of(n))[1]["step"].value)

        steps = [step(n) for n in (2, 20, 200, 20_000)]
        assert steps == sorted(steps)
        assert steps[0] == 1
        assert steps[-1] == 32
        assert step(200, {"n_rounds": 100}) < steps[2], "a hundred rounds have a hundred times the noise"
        assert step(20_000, {"regularization": 0.25}) == 4, "more would overshoot"
        assert "step" not in settle("wu_subgradient", {"step": 2.0}, facts_of())[1]
        assert "step" not in settle("wu_subgradient", {}, facts_of(loss=Squared()))[1]

    def test_printed_steps_lead_no_further_by_more_rounds(self) -> None:
        assert "n_rounds" not in settle("wu_strongly_convex", {"rho": 1.0}, facts_of(loss=Squared()))[1]

    def test_it_is_the_deviation_of_the_noise_by_the_drift(self) -> None:
        facts = facts_of(1000, 0.5)
        algorithm, choices = settle("wu_strongly_convex", {"calibration": "tight", "n_rounds": 7}, facts)
        assert isinstance(algorithm, WuStronglyConvex)
        noise = float(algorithm.sigma(facts.of(0))) * math.sqrt(5 / 7) / 5000  # the mean of 7 rounds of 5 parties
        assert choices["regularization"].value == pytest.approx(noise / 0.6, rel=1e-3)
        average, _ = settle("local_average", {}, facts)
        assert isinstance(average, LocalAverage)
        deviation = float(l2_laplace_deviation(average.beta(facts.of(0)), 20)) / math.sqrt(5)
        assert deviation == pytest.approx(0.7, rel=0.02)
        curated = facts.curated()
        gop, choices = settle("gop", {"calibration": "tight"}, facts)
        assert isinstance(gop, Gop)
        tilt = gop.mechanism(curated.of(0)).tilt / 5000 / gop.regularization
        assert tilt == pytest.approx(2.4, rel=0.1)

    @pytest.mark.parametrize("name", ["release", "average", "local_average"])
    @pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), Softmax(3)], ids=["logistic", "huber", "softmax"])
    def test_where_noise_is_small_it_is_the_least_that_can_be_solved(self, name: str, loss: Loss) -> None:
        """A million examples, or a large epsilon, need so little lambda that no solver surely finds the minimiser."""
        large = facts_of(10**6, 1.0, loss)
        settle(name, {}, large)[0].check_noise(large.of(0))
        facts = facts_of(300, 1e6, loss)
        algorithm, choices = settle(name, {}, facts)
        algorithm.check_noise(facts.of(0))
        least = choices["regularization"]
        assert "surely" in least.why
        less, _ = settle(name, {"regularization": 0.97 * float(least.value)}, facts)
        with pytest.raises(InvalidInputError, match="no solver surely"):
            less.check_noise(facts.of(0))

    def test_losses_without_a_proof_are_refused_in_words(self) -> None:
        with pytest.raises(InvalidInputError):
            settle("gop", {}, facts_of(loss=Softmax(3)))
        for name in ("local_average", "release", "average"):
            with pytest.raises(InvalidInputError, match="bounded slope"):
                settle(name, {}, facts_of(loss=Squared()))

    @pytest.mark.parametrize("name", ["dp_gd", "psgd", "gop"])
    def test_without_a_delta_the_refusal_names_algorithms_that_need_none(self, name: str) -> None:
        """The refusal of `gop` told to take a law that it does not have."""
        facts = FederationFacts.uniform(np.full(5, 100), epsilon=1.0, delta=0.0, n_features=3, loss=Logistic())
        with pytest.raises(InvalidInputError, match="local_average and wu_subgradient need none"):
            settle(name, {}, facts)
        for other in ("local_average", "wu_subgradient"):
            assert all(promise.delta == 0 for promise in guarantees(settle(other, {}, facts)[0], facts))


class TestDescent:
    @pytest.mark.parametrize(
        ("loss", "parameters", "words"),
        [
            (Logistic(), {"step": 8.0, "regularization": 1e-6, "momentum": 0.0}, "step must be below 8 for this loss"),
            (Softmax(3), {"step": 6.0, "momentum": 0.4}, "descent may diverge"),
            (Squared(), {"step": 2.0}, "not 2: descent may diverge"),
            (Hinge(), {"step": 3.0, "regularization": 1.0}, "step must be below 2 "),
            (Logistic(), {"clip_norm": 1.2}, "clip_norm must be at most 1 for a loss of one score, not 1.2"),
        ],
    )
    def test_a_step_that_can_diverge_is_refused(self, loss: Loss, parameters: dict[str, float], words: str) -> None:
        with pytest.raises(InvalidInputError, match=words):
            build_algorithm("dp_gd", parameters).questions(facts_of(loss=loss))

    def test_momentum_allows_longer_steps(self) -> None:
        DpGd(step=2.0, momentum=0.5).questions(facts_of(loss=Squared()))
        DpGd(clip_norm=1.4).questions(facts_of(loss=Softmax(3)))

    @pytest.mark.parametrize("averaging", [0.0, 0.5, 1.0])
    def test_it_is_the_heavy_ball_and_the_mean_of_its_last_iterates(self, averaging: float) -> None:
        rng = np.random.default_rng(1)
        X = rng.normal(size=(1, 50, 3)) / 4
        shard = Shard(X, np.where(rng.random((1, 50)) < 0.5, 1.0, -1.0))
        facts = FederationFacts.uniform(np.array([50]), epsilon=1.0, delta=1e-6, n_features=3, loss=Logistic())
        algorithm = DpGd(n_rounds=7, step=3.0, momentum=0.6, averaging=averaging, regularization=0.01, clip_norm=1.0)
        weights = simulate(algorithm, shard, facts, NoNoise()).weights
        w = last = np.zeros(3)
        iterates = []
        for _ in range(7):
            slopes = Logistic().slope(shard.X[0] @ w, shard.y[0])
            gradient = slopes @ shard.X[0] / 50 + 0.01 * w
            w, last = w + 0.6 * (w - last) - 3.0 * gradient, w
            iterates.append(w)
        assert algorithm.n_averaged == {0.0: 1, 0.5: 4, 1.0: 7}[averaging]
        assert weights == pytest.approx(np.mean(iterates[-algorithm.n_averaged :], axis=0), abs=1e-3)

    def test_the_ball_holds_every_iterate(self) -> None:
        shard = Shard(np.full((1, 10, 1), 0.9), np.ones((1, 10)))
        facts = FederationFacts.uniform(np.array([10]), epsilon=1.0, delta=1e-6, n_features=1, loss=Logistic())
        algorithm = DpGd(n_rounds=400, step=5.0, momentum=0.3, regularization=0.1)
        assert abs(float(simulate(algorithm, shard, facts, NoNoise()).weights[0])) <= algorithm.radius(facts)


class TestBearable:
    """What `parley.common.algorithms._noisy_gradients` makes of noise and lambda."""

    @pytest.mark.parametrize(("regularization", "rounds"), [(1.0, 3), (0.5, 6), (0.31, 10), (0.01, 10), (100.0, 1)])
    def test_rounds_end_where_a_given_lambda_has_the_model_settle(self, regularization: float, rounds: int) -> None:
        steps, known = np.ones(10), {"regularization": regularization}
        assert rounds_until_settled(steps, facts_of(), known) == rounds, "3 / lambda behind it, or all"
        assert rounds_until_settled(steps, facts_of(), {}) == 10
        assert rounds_until_settled(steps, facts_of(loss=Squared()), known) == 10

    def test_the_first_step_is_as_long_as_noise_allows(self) -> None:
        for calibration, loss, blur, regularization, step in (
            ("tight", Logistic(), 0.05, 0.0, 12.0),
            ("paper", Logistic(), 0.05, 0.0, 6.0),
            ("paper", Softmax(3), 0.05, 0.0, 6.0),
            ("tight", Logistic(), 0.05, 0.2, 5.0),
            ("tight", Logistic(), 0.01, 0.0, 32.0),
            ("tight", Logistic(), 2.0, 0.0, 1.0),
            ("tight", Logistic(), 0.05, 2.0, 1.0),
        ):
            assert bearable_step(facts_of(loss=loss), calibration, blur, regularization) == step  # type: ignore[arg-type]


class TestStart:
    @pytest.mark.parametrize("name", ["dp_gd", "psgd", "wu_strongly_convex", "wu_subgradient"])
    def test_a_descent_starts_from_the_runs_public_weights(self, name: str) -> None:
        rows = np.array([[0.5, -0.25, 1.0]])
        facts = FederationFacts.uniform(
            np.array([50]), epsilon=1.0, delta=1e-6, n_features=3, loss=Logistic(), public=rows, public_shape=rows.shape
        )
        algorithm = build_algorithm(name, {"n_rounds": 2})
        first, second = algorithm.questions(facts)
        assert (first.public, second.public) == (True, False)
        assert next(algorithm.program(facts)).message.tolist() == rows[0].tolist()
        assert not next(algorithm.program(facts_of())).message.any()

    def test_of_several_scores_it_is_a_row_of_weights_a_class(self) -> None:
        rows = np.arange(6.0).reshape(3, 2)
        terms = {"epsilon": 1.0, "delta": 1e-6, "n_features": 2, "loss": Softmax(3)}
        facts = FederationFacts.uniform(np.array([50]), **terms, public=rows, public_shape=rows.shape)  # type: ignore[arg-type]
        assert next(DpGd().program(facts)).message.tolist() == rows.tolist()

    def test_rows_that_are_no_weights_are_none_to_start_from(self) -> None:
        facts = facts_of(public_shape=(7, 20), public=np.ones((7, 20)))
        assert not any(question.public for question in DpGd().questions(facts))
        assert not next(DpGd().program(facts)).message.any()
