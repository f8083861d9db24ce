"""`PrivateClassifier` keeps scikit-learn's conventions, takes no scale from data, and promises what a run does."""

from __future__ import annotations

import warnings
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from parley.common.algorithms import settle
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.layout import DesignLayout
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.data.study import HuberLoss, LogisticLoss, SoftmaxLoss
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Logistic, build_loss
from parley.common.learning.model import Model
from parley.common.privacy.account import Cost
from parley.common.privacy.guarantee import Guarantee
from parley.common.privacy.noise import SeededNoise, SystemNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from parley.common.runs.pricing import price, transcript
from parley.learner import estimators
from parley.learner.estimators import (
    PrivacyBudget,
    PrivateClassifier,
    PrivateLinearRegression,
    array_runs,
    private,
)
from parley.learner.estimators.array_runs import ArrayRun
from parley.learner.estimators.budget import EstimatorError

N, D = 600, 3
OF_WEIGHTS_ABOVE_1 = dict.fromkeys(
    (
        "check_sample_weights_list",
        "check_sample_weights_not_overwritten",
        "check_sample_weight_equivalence_on_dense_data",
    ),
    "noise hides an example that counts at most as one, so weights above 1 are refused",
)
"""scikit-learn's checks that fit with weights of 2 and more."""


def rows(n_classes: int = 2) -> tuple[FloatArray, IntArray]:
    """Rows within (-2, 4), and classes told by a linear score."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 4, size=(N, D))
    return X, np.digitize(X[:, 0] - X[:, 1], np.linspace(-4, 4, n_classes + 1)[1:-1])


def fitted(n_classes: int = 2, **given: object) -> PrivateClassifier:
    parameters: dict[str, Any] = {"bounds": (-2, 4)} | given
    return PrivateClassifier(**parameters).fit(*rows(n_classes))


def promised(n_classes: int = 2, **given: object) -> Guarantee:
    promise = fitted(n_classes, **given).guarantee_
    assert promise is not None
    return promise


def passed(estimator: PrivateClassifier) -> set[str]:
    """The checks that pass; raises what fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_skip=None, expected_failed_checks=OF_WEIGHTS_ABOVE_1)
    return {result["check_name"] for result in results if result["status"] == "passed"}


class TestConventions:
    @pytest.mark.parametrize("delta", [0.0, 1e-5])
    def test_by_default_no_check_fails(self, delta: float) -> None:
        assert "check_classifiers_train" in passed(PrivateClassifier(bounds=(-5, 5), delta=delta))

    @pytest.mark.parametrize(
        "given",
        [
            {"epsilon": 100.0},
            {"epsilon": 100.0, "delta": 1e-5},
            {"epsilon": 100.0, "delta": 1e-5, "mechanism": "output", "row_norm": "largest"},
            {"epsilon": 10.0, "mechanism": "generalized", "calibration": "paper", "fit_intercept": False},
            {"loss": "huber"},
            {"mechanism": "objective"},
        ],
    )
    @pytest.mark.slow
    def test_with_little_noise_or_two_classes_none_fails(self, given: dict[str, Any]) -> None:
        assert "check_classifiers_train" in passed(PrivateClassifier(bounds=(-5, 5), **given))

    def test_it_works_within_pipelines_and_searches(self) -> None:
        X, y = rows()
        model = make_pipeline(FunctionTransformer(np.negative), PrivateClassifier(bounds=(-4, 2), random_state=0))
        search = GridSearchCV(model, {"privateclassifier__regularization": np.array([1, 0.01])}, cv=2).fit(X, y)
        assert search.best_params_ == {"privateclassifier__regularization": 0.01}
        copy = clone(search.best_estimator_[-1])
        assert copy.get_params() == search.best_estimator_[-1].get_params()
        assert not hasattr(copy, "guarantee_")

    def test_bounds_in_arrays_and_labels_in_words(self) -> None:
        X, y = rows()
        model = PrivateClassifier(
            bounds=(np.full(D, -2.0), np.full(D, 4)), classes=["ill", "well"], epsilon=100, random_state=0
        ).fit(X, np.where(y, "well", "ill"))
        assert model.classes_.tolist() == ["ill", "well"]
        assert model.score(X, np.where(y, "well", "ill")) > 0.9


class TestPrivacy:
    @pytest.mark.parametrize(
        ("mechanism", "delta"),
        [*product(("auto", "output", "objective", "generalized"), (0.0, 1e-5)), ("descent", 1e-5)],
    )
    def test_the_guarantee_is_no_more_than_was_asked_for(self, mechanism: str, delta: float) -> None:
        promise = promised(mechanism=mechanism, delta=delta)
        assert 0.99 < promise.epsilon <= 1 + 1e-6
        assert promise.adjacency == "replace_one"
        assert promise.delta == (delta if mechanism in {"auto", "descent"} else 0), (
            "in four dimensions pure noise is less"
        )
        message = " ".join(promise.assumptions)
        for words in ("numbers of examples", "bounds, row_norm", "one fit", "which classes"):
            assert words in message
        assert ("floating point" in message) == (mechanism not in {"auto", "descent"} or not delta)

    @pytest.mark.parametrize(("name", "given"), [("release", {"mechanism": "objective"}), ("dp_gd", {"delta": 1e-5})])
    def test_it_is_the_price_of_the_same_run_of_one_party(self, name: str, given: dict[str, Any]) -> None:
        delta = given.pop("delta", 0.0)
        facts = FederationFacts.uniform(np.array([N]), epsilon=1.0, delta=delta, n_features=D + 1, loss=Logistic())
        promise = transcript(settle(name, given, facts)[0], facts.of(0))
        found = promised(delta=delta, classes=(0, 1))
        assert (found.epsilon, found.delta, found.view) == (promise.epsilon, promise.delta, promise.view)
        assert set(promise.assumptions) < set(found.assumptions)
        assert not any("which classes" in words for words in found.assumptions)

    def test_noise_that_falls_short_promises_what_it_keeps(self) -> None:
        X = np.random.default_rng(0).uniform(-1, 1, size=(N, 100))
        model = PrivateClassifier(bounds=(-1, 1), delta=1e-5, mechanism="objective", calibration="jain_thakurta")
        promise = model.fit(X, (X[:, 0] > 0).astype(int)).guarantee_
        assert promise is not None
        assert promise.epsilon > 1
        assert promise.delta == 1e-5
        assert any("said to be (1, 1e-05)-private" in words for words in promise.assumptions)

    def test_a_seed_repeats_a_fit_and_voids_the_guarantee(self) -> None:
        seeded = [fitted(random_state=seed) for seed in (1, 1, 2, np.random.RandomState(1))]
        assert all(model.guarantee_ is None for model in seeded)
        assert (seeded[0].coef_ == seeded[1].coef_).all()
        assert (seeded[0].coef_ == seeded[3].coef_).all()
        assert (seeded[0].coef_ != seeded[2].coef_).all()
        assert (fitted().coef_ != fitted().coef_).all()

    def test_no_scale_noise_or_choice_follows_from_the_examples(self) -> None:
        X, y = rows()
        others = np.random.default_rng(1).normal(1e6, 1e9, size=X.shape), np.roll(y, 7)
        for delta in (0.0, 1e-5):
            model, other = (
                PrivateClassifier(bounds=(-2, 4), classes=(0, 1), delta=delta).fit(*each) for each in ((X, y), others)
            )
            assert (model.study_, model.choices_, model.guarantee_) == (other.study_, other.choices_, other.guarantee_)

    def test_values_count_as_the_bounds_that_they_are_beyond(self) -> None:
        X, y = rows()
        wild = np.where(X > 3, 1e300, X)
        model, other = (
            PrivateClassifier(bounds=(-2, 3), random_state=0).fit(each, y) for each in (wild, np.minimum(X, 3))
        )
        assert (model.coef_ == other.coef_).all()
        assert (model.decision_function(wild) == other.decision_function(np.minimum(X, 3))).all()

    @pytest.mark.parametrize(
        ("name", "delta", "n_classes"), [("release", 0.0, 2), ("release", 0.0, 4), ("dp_gd", 1e-5, 4)]
    )
    def test_a_fit_is_the_run_of_a_party_that_loaded_the_rows(self, name: str, delta: float, n_classes: int) -> None:
        model = fitted(n_classes, delta=delta, random_state=3)
        X, y = rows(n_classes)
        shard = shard_of(model.study_, dict(zip(model.study_.feature_names, X.T, strict=True)) | {"y": y}, clip=True)
        facts = FederationFacts.uniform(
            np.array([N]), epsilon=1.0, delta=delta, n_features=D + 1, loss=build_loss(model.study_)
        )
        noise = SeededNoise(int(np.random.RandomState(3).randint(2**31)))
        run = simulate(settle(name, {}, facts)[0], Shard.stack([shard]), facts, noise)
        assert (run.members[0].weights == model.model_.weights).all()


class TestModel:
    @pytest.mark.parametrize("n_classes", [2, 4])
    @pytest.mark.parametrize("row_norm", ["own", "largest", 5.0])
    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_coefficients_are_in_the_units_of_the_rows(
        self, n_classes: int, row_norm: str | float, *, fit_intercept: bool
    ) -> None:
        model = fitted(n_classes, epsilon=50.0, row_norm=row_norm, fit_intercept=fit_intercept)
        X, _ = rows()
        scores = X @ model.coef_.T + model.intercept_
        if row_norm == "own":
            scores /= np.hypot(np.linalg.norm((X - 1) / 3, axis=1), float(fit_intercept))[:, None]
        assert model.decision_function(X) == pytest.approx(np.squeeze(scores), abs=1e-3 * np.abs(scores).max())
        assert model.coef_.shape == (1 if n_classes == 2 else n_classes, D)
        assert fit_intercept or n_classes == 4 or model.intercept_ == pytest.approx(-model.coef_.sum(axis=1))

    def test_with_hardly_any_noise_it_is_logistic_regression(self) -> None:
        for n_classes in (2, 3):
            X, y = rows(n_classes)
            X = (X - 1) / 3
            model = PrivateClassifier(
                bounds=(-1, 1), row_norm="largest", fit_intercept=False, mechanism="output", regularization=0.01,
                epsilon=1e7,
            ).fit(X, y)  # fmt: skip
            theirs = LogisticRegression(C=1 / (N * 0.01), fit_intercept=False, tol=1e-8).fit(X / D**0.5, y)
            assert model.coef_ == pytest.approx(theirs.coef_ / D**0.5, abs=1e-3)
            assert (model.predict(X) == theirs.predict(X / D**0.5)).mean() > 0.99

    def test_probabilities_are_those_of_the_scores(self) -> None:
        X, _ = rows()
        two, several = fitted(), fitted(4)
        assert two.predict_proba(X)[:, 1] == pytest.approx(expit(two.decision_function(X)))
        assert several.predict_proba(X) == pytest.approx(softmax(several.decision_function(X), axis=1))
        assert not hasattr(fitted(loss="huber"), "predict_proba")

    def test_a_class_that_no_example_has_is_a_class_all_the_same(self) -> None:
        X, y = rows()
        model = PrivateClassifier(bounds=(-2, 4), classes=(0, 1, 2), random_state=0).fit(X, y)
        assert model.predict_proba(X).shape == (N, 3)
        alone = PrivateClassifier(bounds=(-2, 4), classes=(0, 1), random_state=0, epsilon=50.0)
        assert (alone.fit(X, np.ones(N)).predict(X) == 1).all()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"bounds": None}, "bounds are missing"),
    ({"bounds": 4}, "bounds must be"),
    ({"bounds": (0, 1, 2)}, "bounds must be"),
    ({"bounds": ((0, 0), 1)}, "one for each of the 3 columns"),
    ({"bounds": (1, (2, 2, 1))}, "column 'x2': lower must be below upper"),
    ({"bounds": (0, np.inf)}, "bounds must be finite, and those of column 'x0' are 0 and inf"),
    ({"bounds": (0, 10**400)}, "bounds must be"),
    ({"epsilon": "1"}, "epsilon must be a number, not '1'"),
    ({"epsilon": True}, "epsilon must be a number, not True"),
    ({"delta": None}, "delta must be a number, not None"),
    ({"regularization": "much"}, "regularization must be a number, not 'much'"),
    ({"regularization": np.ones(2)}, "regularization must be a number, not array"),
    ({"loss": ["huber"]}, "no private"),
    ({"owners": 1.5}, "owners must be a whole number, at least 1, not 1.5"),
    ({"most_rows": 0}, "most_rows must be a whole number, at least 1, not 0"),
    ({"owners": 0}, "owners must be a whole number, at least 1, not 0"),
    ({"budget": 5}, "budget must be a PrivacyBudget or a LedgerBudget, not 5"),
    ({"bounds": (np.nan, 1)}, "finite"),
    ({"epsilon": 0}, "epsilon"),
    ({"delta": 1}, "delta"),
    ({"mechanism": "none"}, "no private 'logistic' loss by mechanism 'none'"),
    ({"mechanism": "descent"}, "delta"),
    ({"mechanism": "descent", "delta": 1e-5, "calibration": "paper"}, "calibration"),
    ({"loss": "squared"}, "no private 'squared' loss"),
    ({"calibration": "thesis"}, "but must be one of"),
    ({"regularization": 1e-9, "mechanism": "output"}, "the examples: no solver surely finds"),
    ({"regularization": -1.0}, "regularization"),
    ({"row_norm": 0.0}, "row_norm"),
    ({"classes": (0, 7)}, "not among classes"),
    *(({"classes": classes}, "classes must be a list") for classes in ((0, None), [[0, 1], [2]], {0, 1}, "no")),
    ({"classes": (1,)}, "not 1 class"),
    ({"classes": range(101)}, "2 to 100 classes"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[str(given) for given, _ in REFUSED])
def test_what_cannot_be_right_is_refused_in_words(given: dict[str, Any], words: str) -> None:
    for error in (ValueError, InvalidInputError):
        with pytest.raises(error, match=words):
            fitted(**given)


@pytest.mark.parametrize("given", [{"loss": "huber"}, {"mechanism": "objective"}, {"mechanism": "generalized"}])
def test_more_than_two_classes_are_refused_where_no_proof_covers_them(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Only binary classification"):
        fitted(3, **given)


def test_a_refused_fit_leaves_the_model_as_it_was() -> None:
    model = fitted()
    weights, promise = model.coef_, model.guarantee_
    with pytest.raises(ValueError, match="bounds are missing"):
        model.set_params(bounds=None).fit(*rows(3))
    assert model.coef_ is weights
    assert model.guarantee_ is promise


def test_a_lambda_that_noise_would_drown_is_warned_of_from_public_numbers() -> None:
    with pytest.warns(UserWarning, match=r"regularization = 0.0001 is far less than the noise needs.* would be chosen"):
        fitted(regularization=1e-4, mechanism="output")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted()


@pytest.mark.parametrize("name", estimators.__all__)
def test_each_estimator_is_imported_by_its_name(name: str) -> None:
    assert getattr(estimators, name).__name__ == name


MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"classes": (1,)}, "there must be 2 to 100 classes, not 1 class"),
    ({"classes": range(101)}, "there must be 2 to 100 classes, not 101 classes"),
    ({"classes": (0, 7)}, "y has labels that are not among classes"),
    ({"classes": [[0, 1]]}, "classes must be a list of numbers, or one of words"),
    (
        {"bounds": None},
        "bounds are missing: give (lower, upper), public numbers in the units of X; no scale is taken from data",
    ),
    ({"bounds": (0, 1, 2)}, "bounds must be (lower, upper), each a number or one for each of the 3 columns"),
    ({"bounds": ((0, 0, -np.inf), 1)}, "bounds must be finite, and those of column 'x2' are -inf and 1"),
    ({"loss": "huber", "mechanism": "centers"}, "there is no private 'huber' loss by mechanism 'centers'"),
    ({"owners": 2}, "several owners train together by mechanism = descent alone, and a delta above 0"),
    ({"calibration": 3}, "calibration must be a word, not 3"),
    ({"epsilon": 10**400}, "epsilon is beyond what floating point holds, 1.8e308"),
    ({"regularization": None}, "regularization must be a number, not None"),
    ({"owners": "2"}, "owners must be a whole number, at least 1, not '2'"),
    ({"budget": (1.0, 0.0)}, "budget must be a PrivacyBudget or a LedgerBudget, not (1.0, 0.0)"),
]


@pytest.mark.parametrize(("given", "message"), MESSAGES, ids=[str(given) for given, _ in MESSAGES])
def test_what_cannot_be_right_is_said_in_full(given: dict[str, Any], message: str) -> None:
    with pytest.raises(EstimatorError) as refused:
        fitted(**given)
    assert refused.value.detail == message


def test_three_classes_of_a_loss_for_two_are_refused_with_what_to_take() -> None:
    with pytest.raises(EstimatorError) as refused:
        fitted(3, loss="huber")
    assert refused.value.detail == (
        "Only binary classification is supported of the huber loss by mechanism auto: for 3 classes take loss = "
        "logistic, mechanism = descent, output, one_against_rest or centroids"
    )


def test_a_hundred_classes_and_two_are_the_most_and_the_least() -> None:
    X, y = rows()
    assert len(PrivateClassifier(bounds=(-2, 4), classes=range(100), random_state=0).fit(X, y).classes_) == 100
    assert PrivateClassifier(bounds=(-2, 4), classes=(1, 0), random_state=0).fit(X, y).classes_.tolist() == [0, 1]


def test_which_losses_and_mechanisms_take_several_classes_is_told_to_scikit_learn() -> None:
    def takes_several(**given: Any) -> bool:  # noqa: ANN401 -- parameters
        told: bool = PrivateClassifier(**given).__sklearn_tags__().classifier_tags.multi_class
        return told

    for mechanism in ("auto", "descent", "output", "one_against_rest", "centroids"):
        assert takes_several(mechanism=mechanism)
    assert not takes_several(mechanism="objective")
    assert not takes_several(mechanism="generalized")
    assert not takes_several(loss="huber")


def test_the_study_has_the_loss_that_is_asked_for_and_softmax_for_several_classes() -> None:
    plain, robust = PrivateClassifier(bounds=(-2, 4)), PrivateClassifier(bounds=(-2, 4), loss="huber")
    losses = plain._study(D, 2).loss, plain._study(D, 3).loss, robust._study(D, 2).loss
    assert losses == (LogisticLoss(), SoftmaxLoss(), HuberLoss())


def test_the_default_is_a_budget_of_one_and_no_delta() -> None:
    defaults = PrivateClassifier().get_params()
    assert defaults == {
        "bounds": None, "epsilon": 1.0, "delta": 0.0, "mechanism": "auto", "loss": "logistic",
        "regularization": "auto", "calibration": "tight", "row_norm": "own", "fit_intercept": True, "classes": None,
        "class_weights": None, "owners": 1, "most_rows": 1000, "budget": None, "random_state": None,
    }  # fmt: skip


def test_a_warning_names_the_callers_line_and_a_budgets_delta_is_warned_of() -> None:
    X, y = rows()
    with pytest.warns(UserWarning, match=r"^a delta of 0\.01 is above 1/600") as warned:
        PrivateClassifier(bounds=(-2, 4), budget=PrivacyBudget(5.0, 0.01)).fit(X, y)
    assert [warning.filename for warning in warned] == [__file__]


def run_of(owners: int, delta: float = 1e-5) -> ArrayRun:
    """A run of owners of the rows."""
    study = PrivateClassifier(bounds=(-2, 4))._study(D, 2)
    return ArrayRun.settled(study, 601, "dp_gd", {"n_rounds": 3}, owners=owners, epsilon=2.0, delta=delta)


def test_a_run_is_of_owners_with_equal_parts() -> None:
    one, three = run_of(1).facts, run_of(3).facts
    assert (one.parties, one.n_examples.tolist(), one.secure_sum) == (("the examples",), [601], False)
    assert three.parties == tuple(f"owner-{i} of the examples" for i in (1, 2, 3))
    assert (three.n_examples.tolist(), three.secure_sum) == ([200, 201, 200], True)
    assert (three.epsilon.tolist(), three.delta.tolist(), three.n_features) == ([2.0] * 3, [1e-5] * 3, D + 1)
    assert three.study is not None
    assert three.loss == build_loss(three.study)


def test_a_run_says_what_each_fit_on_arrays_assumes() -> None:
    run = run_of(1)
    plain = transcript(run.algorithm, run.facts.of(0)).assumptions
    assert run.promise("one more").assumptions == (
        *plain,
        "bounds, row_norm, all other parameters, and what became of X before, do not follow from the examples",
        "that fit refuses examples, and how long it takes, are not hidden",
        (
            "the promise is for one fit, and another on the same examples costs as much again; scores on them are not "
            "covered"
        ),
        "one more",
    )
    assert "which classes there are is public: they were read from y" in promised().assumptions
    assert not any("read from y" in words for words in promised(classes=(0, 1)).assumptions)


@pytest.mark.parametrize("owners", [1, 3])
def test_a_fit_pays_the_price_of_its_run(owners: int) -> None:
    run, budget = run_of(owners), PrivacyBudget(9.0, 1e-4)
    run.paid(budget, None)
    (units,) = {price(run.algorithm, run.facts.of(i)).total.units for i in range(owners)}
    assert budget._account.spent == Cost(*units)
    assert budget.fits == 1
    run.paid(None, None)
    with pytest.raises(EstimatorError) as refused:
        run.paid(budget, 5)
    assert refused.value.detail == "a random_state voids the promise that a budget counts: give one of the two"
    assert budget.fits == 1


def test_noise_is_the_systems_or_a_seeds() -> None:
    assert isinstance(array_runs._noise(None), SystemNoise)
    expected = SeededNoise(int(np.random.RandomState(5).randint(2**31)))
    drawn, again = (each.gaussian(np.full(4, 1e6), (4,)) for each in (array_runs._noise(5), expected))
    assert drawn.tolist() == again.tolist()


def test_a_budget_tells_its_delta_and_refuses_what_is_none() -> None:
    budget = PrivacyBudget(2.0, 1e-5)
    assert (budget.delta, budget.delta_left, budget.epsilon_spent, budget.epsilon_left) == (1e-5, 1e-5, 0.0, 2.0)
    assert PrivacyBudget(1.0).delta == 0.0
    assert repr(PrivacyBudget(2.5)) == "PrivacyBudget(epsilon_left=2.5, delta_left=0, fits=0)"
    for given, message in (
        (("1",), "epsilon must be a number, not '1'"),
        ((1.0, True), "delta must be a number, not True"),
        ((1.0, 10**400), "delta is beyond what floating point holds, 1.8e308"),
    ):
        arguments: Any = given
        with pytest.raises(EstimatorError) as refused:
            PrivacyBudget(*arguments)
        assert refused.value.detail == message
    for wrong in (0.0, -1.0):
        with pytest.raises(EstimatorError, match="epsilon"):
            PrivacyBudget(wrong)


def test_coefficients_without_an_intercept_move_by_the_middle_of_the_bounds() -> None:
    study = PrivateClassifier(bounds=((0, 2, -1), (4, 6, 1)), row_norm="largest", fit_intercept=False)._study(3, 2)
    unit = DesignLayout.of(study).unit
    slopes, constant = private._in_units(study, Model(np.array([1.0, 2.0, 3.0])))
    assert slopes == pytest.approx(np.array([[0.5, 1.0, 3.0]]) * unit)
    assert constant == pytest.approx(np.array([-(0.5 * 2 + 1.0 * 4)]) * unit)
    own = PrivateClassifier(bounds=((0, 2, -1), (4, 6, 1)))._study(3, 2)
    slopes, constant = private._in_units(own, Model(np.array([[1.0, 2.0, 3.0, 7.0]])))
    assert slopes == pytest.approx(np.array([[0.5, 1.0, 3.0]]))
    assert constant == pytest.approx(np.array([7.0 - 5.0]))


@pytest.mark.parametrize(("refused", "mechanism"), [(0, "objective"), (1, "output"), (9, "objective")])
def test_of_what_is_left_open_a_budget_is_asked_for_what_it_pays_for(refused: int, mechanism: str) -> None:
    """If it pays for none, the first is kept, and is refused where it is to be paid."""
    asked: list[Cost] = []

    def fits(cost: Cost) -> bool:
        asked.append(cost)
        return len(asked) > refused

    budget: Any = SimpleNamespace(account=SimpleNamespace(fits=fits), delta=0.0)
    model = PrivateClassifier(bounds=(-1, 1), classes=(0, 1), epsilon=0.3)
    study = model._study(4, 2)
    run = ArrayRun.settled(study, 500, "release", {}, owners=1, epsilon=0.3, delta=0.0, budget=budget)
    found: Any = run.algorithm
    assert (found.mechanism, found.law, len(asked)) == (mechanism, "l2_laplace", min(refused, 1) + 1)


def test_what_has_gaussian_noise_alone_says_that_it_needs_a_delta() -> None:
    X, y = np.zeros((20, 2)), np.arange(20) % 2
    with pytest.raises(EstimatorError, match="needs a delta above 0; mechanism = auto does not"):
        PrivateClassifier(bounds=(-1, 1), classes=(0, 1), epsilon=1.0, delta=0.0, mechanism="descent").fit(X, y)
    with pytest.raises(EstimatorError, match="a linear regression adds Gaussian noise, which needs a delta above 0"):
        PrivateLinearRegression(1.0, (-1, 1), (0, 1), delta=0.0).fit(X, y)
