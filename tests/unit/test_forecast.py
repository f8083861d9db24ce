"""The forecast: its figures against what training on data comes to."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, spearmanr

from parley.common.algorithms import REGISTRY, build_algorithm
from parley.common.algorithms.dp_gd import DpGd
from parley.common.arrays import FloatArray
from parley.common.data.columns import Feature, Label, RealLabel
from parley.common.data.study import Person, Study
from parley.common.errors import InvalidInputError
from parley.common.forecast.coalitions import Members
from parley.common.forecast.excess_risk import RATE
from parley.common.forecast.forecast import OF_PERSONS, Forecast, NoForecast, forecast
from parley.common.forecast.forecasters import FORECASTERS
from parley.common.learning.losses import Hinge, Logistic, Softmax, Squared
from tests.support.nightly import NIGHTLY, repeats
from tests.support.worlds import WAYS, World, coalitions, facts_of, predict, random_world

SQUARED = {"n_rounds": 30, "regularization": 0.2, "l1_clip": 2.0}
HINGE = {"n_rounds": 40, "regularization": 0.01, "l1_clip": 2.0, "step": 2.0}
LONG = {"n_rounds": 30, "step": 4.0, "clip_norm": 0.5}
RIDGE = {"regularization": 0.005}
"""Little: its bias is the same for all coalitions, and large enough it hides what they differ in."""
OWNERS: dict[str, Any] = {"sizes": [2000, 1500, 900, 600, 300, 120], "epsilons": [0.8, 3.0, 0.3, 10.0, 1.0, 0.1]}
WORLDS = [
    World("wu_strongly_convex", Squared(), parameters=SQUARED, **OWNERS),
    World("wu_subgradient", Hinge(), parameters=HINGE, **OWNERS),
    World("gop", Logistic(), parameters=RIDGE, **OWNERS),
    World("gop", Logistic(), parameters=RIDGE | {"calibration": "tight"}, **OWNERS),
    World("psgd", Logistic(), parameters=RIDGE | {"n_rounds": 20}, secure_sum=True, **OWNERS),
    World("local_average", Logistic(), parameters=RIDGE, secure_sum=True, **OWNERS),
    World("average", Logistic(), parameters=RIDGE, **OWNERS),
    World("average", Logistic(), parameters=RIDGE | {"mechanism": "objective"}, **OWNERS),
    World("pooled", Logistic(), parameters={"regularization": 1e-4}, **OWNERS),
]
DRAWS = {"pooled": 40}
"""How many samples a survey averages over, 12 by default. Chosen after looking: where there is no noise, all is luck of
the sample, and with 12 the ranks of pooled data correlated by 0.94."""


SETTINGS = repeats(8, 40)


@dataclass(frozen=True)
class Survey:
    """What training comes to for every coalition of a world: the mean over draws of the data and of the noise."""

    world: World
    masks: list[Members]
    measured: FloatArray

    def again(self, mask: Members) -> float:
        """A coalition's mean over draws that the survey has not seen."""
        return float(
            np.mean([replace(self.world, seed=100 + seed).excesses(mask, range(2)).mean() for seed in range(40)])
        )


@pytest.fixture(scope="module", params=WORLDS if NIGHTLY else WORLDS[:5:2], ids=str)
def survey(request: pytest.FixtureRequest) -> Survey:
    world: World = request.param
    masks = coalitions(6)
    draws = [replace(world, seed=seed) for seed in range(DRAWS.get(world.name, 12))]
    return Survey(
        world, masks, np.mean([[draw.excesses(mask, range(1))[0] for mask in masks] for draw in draws], axis=0)
    )


@pytest.mark.slow
class TestAgainstReality:
    """The means are over draws of the owners' samples too: a forecast, which knows no data, cannot know their luck.

    So it was decided after looking: on one draw of the data, which was measured first, three of the recommendations
    missed the tenth (1.45, 1.28 and 1.13 times the best). psgd's 20 rounds and the 40 draws were chosen for time.
    """

    def test_it_ranks_random_coalitions_as_training_does(self, survey: Survey) -> None:
        chosen = np.random.default_rng(8).permutation(63)[:45]
        predicted = [survey.world.predict(survey.masks[i]).excess.estimate for i in chosen]
        correlation = spearmanr(predicted, survey.measured[chosen]).statistic
        print(f"forecast, {survey.world}: rank correlation {correlation:.4f} over {len(chosen)} random coalitions")
        assert correlation >= 0.95

    def test_its_coalition_is_within_a_tenth_of_the_best(self, survey: Survey) -> None:
        names = np.array([f"owner-{i + 1}" for i in range(6)])
        recommended = np.isin(names, survey.world.predict(np.ones(6, dtype=np.bool_)).coalition)
        best = min(survey.again(survey.masks[i]) for i in np.argsort(survey.measured)[:3])
        ours = survey.again(recommended)
        print(f"forecast, {survey.world}: recommends {names[recommended]}: excess {ours:.5f}, best of all {best:.5f}")
        assert ours <= 1.1 * best


@pytest.mark.slow
def test_the_interval_holds_the_outcome_at_its_stated_rate() -> None:
    """Unfitted settings of each way, one run each. A way whose true rate is 90 % fails once in a million times.

    Without noise the low end is 0, which proves little: pooled data do not count towards the rate of all.
    """
    rates = {way: _held(way) for way in range(len(WAYS))}
    assert min(rates.values()) >= binom.ppf(1e-6 / len(WAYS), SETTINGS, RATE) / SETTINGS
    noisy = [rate for way, rate in rates.items() if WAYS[way][0] != "pooled"]
    print(
        f"forecast: {np.mean(noisy):.1%} of {SETTINGS * len(noisy)} outcomes with noise "
        f"in the interval stated for {RATE:.0%}"
    )
    assert np.mean(noisy) >= RATE


def _held(way: int) -> float:
    """How often the interval holds the outcome of a setting."""
    inside, widths = [], []
    for seed in range(SETTINGS):
        world = random_world(way, seed)
        everyone = np.ones(len(world.sizes), dtype=np.bool_)
        interval = world.predict(everyone).excess
        inside.append(interval.low <= world.excesses(everyone, range(1))[0] <= interval.high)
        widths.append(interval.high / interval.low if interval.low else np.inf)
    name, loss = WAYS[way]
    print(f"forecast, {name}, {type(loss).__name__.lower()}: {np.mean(inside):.0%} of {len(inside)} outcomes in the "
          f"interval stated for {RATE:.0%}; high / low: median {np.median(widths):.0f}")  # fmt: skip
    return float(np.mean(inside))


class Elsewhere(DpGd):
    """An algorithm of another package's."""

    __slots__ = ()


ELSEWHERE = FORECASTERS["dp_gd"]


class TestAnswers:
    def test_an_algorithm_without_one_says_why(self) -> None:
        answers = {}
        for name in REGISTRY:
            algorithm = build_algorithm(name)
            shape = (1 if algorithm.rows == "held_out" else 4, 8 + (algorithm.public_rows == "labelled"))
            answers[name] = forecast(algorithm, facts_of([100, 200], [1.0, 1.0], Logistic(), public_shape=shape))
        reasons = {name: answer.reason for name, answer in answers.items() if isinstance(answer, NoForecast)}
        assert not reasons.keys() & {name for name, _ in WAYS}
        for name in ("local", "individual", "release"):
            assert "a model of its own" in reasons.pop(name)
        assert "second level" in reasons.pop("feature")
        assert "climb a tree" in reasons.pop("multilevel_feature")
        assert "a model of its own" in reasons.pop("matrix_perturbation")
        for name in ("ensemble_vote", "ensemble_soft"):
            assert "of 2 votes on a row, each count will be right to ±" in reasons.pop(name)
        assert "an average that hides parties" in reasons.pop("parameter_average")
        assert reasons.pop("evaluate") == "it trains no model, and says how good one is"
        assert "it trains no model: of 300 rows, each count will be right to ±" in reasons.pop("describe")
        assert "in 10 rounds its actions will cost at most 20 more than the best column" in reasons.pop("ftrl")
        assert all("no bound" in reason for reason in reasons.values())

    def test_an_algorithm_from_elsewhere_brings_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(REGISTRY, "_entries", dict(REGISTRY._entries))
        monkeypatch.setattr(FORECASTERS, "_entries", dict(FORECASTERS._entries))
        REGISTRY.add("elsewhere", f"{__name__}:Elsewhere")
        facts, ours = facts_of([100, 200], [1.0, 1.0], Logistic()), build_algorithm("dp_gd", {"step": 2.0})
        theirs = build_algorithm("elsewhere", {"step": 2.0})
        assert isinstance(forecast(theirs, facts), NoForecast)
        FORECASTERS.add("elsewhere", f"{__name__}:ELSEWHERE")
        assert forecast(theirs, facts) == forecast(ours, facts)
        with pytest.raises(InvalidInputError, match="another forecaster has the name 'elsewhere'"):
            FORECASTERS.add("elsewhere", f"{__name__}:ANOTHER")

    @pytest.mark.slow
    @pytest.mark.parametrize("name", REGISTRY)
    @pytest.mark.parametrize("secure_sum", [False, True])
    def test_no_budget_is_too_small_or_too_large_for_a_forecast(self, name: str, secure_sum: bool) -> None:  # noqa: FBT001
        for epsilon in (1e-300, 1e-100, 1e-9, 1e6):
            terms: dict[str, Any] = {
                "secure_sum": secure_sum,
                "public_shape": (
                    1 if REGISTRY[name].rows == "held_out" else 4,
                    8 + (build_algorithm(name).public_rows == "labelled"),
                ),
            }
            facts = facts_of([1, 2000], [epsilon] * 2, Logistic(), delta=np.full(2, 1e-300), **terms)
            try:
                with np.errstate(all="ignore"):
                    answer = forecast(build_algorithm(name), facts)
            except InvalidInputError:  # a budget may be too small for a single draw
                assert name == "simplex"
                continue
            if isinstance(answer, Forecast):
                assert not answer.excess.estimate <= 0

    @pytest.mark.parametrize("name", ["gop", "psgd", "pooled"])
    def test_exact_minimisers_and_slack_refuse_a_kink(self, name: str) -> None:
        with pytest.raises(InvalidInputError, match="hinge"):
            forecast(build_algorithm(name), facts_of([100], [1.0], Hinge()))

    def test_the_interval_allows_for_owners_who_miss_rounds(self) -> None:
        sizes, epsilons = [500, 400, 300], [1.0, 0.2, 3.0]
        strict, loose = (
            predict("wu_strongly_convex", SQUARED, facts_of(sizes, epsilons, minimum_contributors=m)).excess
            for m in (3, 2)
        )
        assert loose.low < strict.low
        assert loose.estimate == strict.estimate
        assert loose.high > strict.high

    def test_it_is_json(self) -> None:
        document = json.loads(json.dumps(predict("wu_subgradient", {}, facts_of([100], [1.0], Hinge())).to_json()))
        assert document["coalition"] == ["owner-1"]
        assert document["rate"] == RATE
        assert set(document["excess"]) == {"low", "estimate", "high"}

    def test_it_needs_no_data_and_grows_with_privacy(self) -> None:
        excesses = [predict("wu_strongly_convex", SQUARED, facts_of([500], [e])).excess for e in (0.1, 1.0, 10.0)]
        for end in ("low", "estimate", "high"):
            values = [getattr(excess, end) for excess in excesses]
            assert values == sorted(values, reverse=True)


def of_classes(shares: tuple[float, float] | None) -> Study:
    """A study of seven numbers and an intercept, and two classes of these shares."""
    features = tuple(Feature(name=f"x{i}", lower=-1, upper=1) for i in range(7))
    return Study(name="s", features=features, label=Label(name="y", values=("no", "yes"), shares=shares))


class TestLabels:
    def test_of_classes_an_excess_bounds_the_accuracy_that_is_lost(self) -> None:
        """sqrt(2 excess), which is nothing from .5 on."""
        for loss in (Logistic(), Softmax(3)):
            answer = predict("pooled", {"regularization": 1e-6}, facts_of([10**4] * 3, [10.0] * 3, loss))
            assert answer.error_lost == pytest.approx(math.sqrt(2 * answer.excess.high))
            assert answer.rmse_lost is None
        assert predict("dp_gd", {}, facts_of([100], [0.1], Logistic())).error_lost is None
        assert predict("wu_subgradient", {}, facts_of([10**6], [10.0], Hinge())).error_lost is None

    def test_of_a_regression_the_root_mean_squared_error(self) -> None:
        answer = predict("dp_gd", {"n_rounds": 30}, facts_of([1000], [1.0]))
        assert answer.error_lost is None
        assert answer.rmse_lost == pytest.approx(math.sqrt(2 * answer.excess.high))

    def test_a_study_that_tells_classes_shares_makes_it_closer(self) -> None:
        """Of a rare class little is in doubt: less excess to expect, a narrower interval, and the constant's beside."""
        told, untold = (
            predict("dp_gd", LONG, facts_of([2000] * 3, [0.3] * 3, Logistic(), study=of_classes(shares)))
            for shares in ((0.95, 0.05), None)
        )
        assert untold.constant is None
        assert told.constant is not None
        assert 0 < told.constant.low < told.constant.estimate < told.constant.high <= 0.2
        assert told.excess.estimate < untold.excess.estimate
        assert told.excess.high - told.excess.low < (untold.excess.high - untold.excess.low) / 2
        assert told.r_squared_lost is None

    def test_a_study_that_tells_a_labels_deviation_bounds_r_squared(self) -> None:
        label = RealLabel(name="y", lower=0, upper=100, mean=20, deviation=10)
        study = Study(name="s", features=of_classes(None).features, label=label)
        told = predict("dp_gd", {}, facts_of([5000], [1.0], study=study))
        assert told.r_squared_lost == pytest.approx(2 * told.excess.high / 0.2**2)
        assert told.constant is not None
        assert told.constant.high <= 0.02
        untold = predict("dp_gd", {}, facts_of([5000], [1.0]))
        assert (untold.r_squared_lost, untold.constant, untold.warning) == (None, None, None)

    def test_a_run_that_is_expected_to_teach_nothing_is_warned_of(self) -> None:
        told = predict("dp_gd", LONG, facts_of([2000] * 3, [0.3] * 3, Logistic(), study=of_classes((0.75, 0.25))))
        assert told.constant is not None
        better, worse = (replace(told, constant=replace(told.constant, estimate=x)) for x in (0.09, 0.2))
        better, worse = (replace(each, excess=replace(told.excess, estimate=0.1)) for each in (better, worse))
        assert better.warning == (
            "a model that looks at no feature is expected to come as close (0.09): "
            "more owners, more rows or a larger epsilon are needed"
        )
        assert worse.warning is None
        assert better.to_json()["warning"] == better.warning

    def test_persons_are_a_sample_as_large_as_their_number_however_many_rows_they_may_have(self) -> None:
        records = facts_of([2000] * 3, [0.3] * 3, Logistic(), study=of_classes((0.75, 0.25)))
        study = of_classes((0.75, 0.25)).model_copy(update={"person": Person(column="patient")})
        persons = replace(records, study=study, unit="person", most_rows=study.most_rows)
        of_records, of_persons = (predict("dp_gd", LONG, facts) for facts in (records, persons))
        assert (of_persons.excess, of_persons.figures) == (of_records.excess, of_records.figures)
        assert of_persons.assumptions == (*of_records.assumptions, OF_PERSONS)
        assert of_records.constant is not None
        hopeless = replace(of_persons, constant=replace(of_records.constant, estimate=0.0))
        assert "more owners, more persons or a larger epsilon are needed" in str(hopeless.warning)
        described = forecast(build_algorithm("describe"), persons)
        assert isinstance(described, NoForecast)
        assert "of 6,000 persons, each count will be right to ±" in described.reason

    def test_what_is_proven_counts_from_where_a_descent_starts(self) -> None:
        """Far from zero a label may be twice as far from a mean of .8 as from zero."""
        label = RealLabel(name="y", lower=-1, upper=1, mean=0.8, deviation=0.1)
        study = Study(name="s", features=of_classes(None).features, label=label)
        far, near = (
            predict("wu_strongly_convex", SQUARED, facts_of([5000], [1.0], study=each)).proven.excess
            for each in (study, of_classes(None))
        )
        assert far is not None
        assert near is not None
        assert far > near

    def test_softmax_has_a_forecast_with_noise_on_k_weights_a_column(self) -> None:
        two, ten = (predict("local_average", {}, facts_of([10**5], [1.0], Softmax(k))) for k in (2, 10))
        assert two.excess.estimate < ten.excess.estimate
        assert two.proven.noise_energy < ten.proven.noise_energy
        assert ten.proven.excess is not None
