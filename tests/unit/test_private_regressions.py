"""Private regressions keep scikit-learn's conventions, take no scale from data, and pay for each fit."""

from __future__ import annotations

import copy
import math
import pickle  # noqa: TID251 -- as users of scikit-learn save models
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from parley.common.arrays import FloatArray
from parley.common.errors import BudgetExhaustedError, InvalidInputError
from parley.common.learning.model import Model
from parley.common.privacy.guarantee import Guarantee
from parley.learner.estimators import (
    PrivacyBudget,
    PrivateClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
)
from parley.learner.estimators.budget import EstimatorError
from tests.unit.test_estimators import OF_WEIGHTS_ABOVE_1

N = 2000
BOUNDS: Any = (np.array([0.0, -5.0]), np.array([10.0, 5.0]))


def table() -> tuple[FloatArray, FloatArray]:
    """Rows within the bounds, and numbers between -10 and 20."""
    rng = np.random.default_rng(0)
    lower, upper = BOUNDS
    X = lower + (upper - lower) * rng.random((N, 2))
    return X, X[:, 0] - 2 * X[:, 1] + rng.normal(0, 0.5, N)


def promised(model: PrivateClassifier | PrivateLinearRegression) -> Guarantee:
    assert model.guarantee_ is not None
    assert model.epsilon_spent_ == model.guarantee_.epsilon
    return model.guarantee_


def regression(epsilon: float = 5.0, **given: Any) -> PrivateLinearRegression:  # noqa: ANN401 -- parameters
    return PrivateLinearRegression(epsilon, BOUNDS, (-10, 20), **given)


class TestLinear:
    def test_it_is_least_squares_in_the_units_of_the_table(self) -> None:
        X, y = table()
        model, theirs = regression(1000.0).fit(X, y), Ridge(alpha=1e-6).fit(X, y)
        assert model.coef_ == pytest.approx(theirs.coef_, abs=0.1)
        assert model.intercept_ == pytest.approx(theirs.intercept_, abs=0.4)
        assert model.predict(X) == pytest.approx(np.clip(X @ model.coef_ + model.intercept_, -10, 20), abs=1e-3)
        assert regression(2.0).fit(X, y).score(X, y) > 0.9

    @pytest.mark.parametrize("bounds", [((10.0, 100.0), (12.0, 101.0)), ((-12.0, -101.0), (-10.0, -100.0))])
    def test_coefficients_are_those_of_the_predictions_far_from_zero(self, bounds: Any) -> None:  # noqa: ANN401
        lower, upper = map(np.array, bounds)
        X = lower + (upper - lower) * np.random.default_rng(0).random((300, 2))
        model = PrivateLinearRegression(50.0, bounds, (0, 10), random_state=1).fit(X, 4 + X[:, 0] - lower[0])
        inside = model.predict(X)
        assert inside == pytest.approx(np.clip(X @ model.coef_ + model.intercept_, 0, 10), abs=1e-2)
        assert np.abs(model.coef_).max() > 0.01

    def test_the_promise_is_what_was_asked_for(self) -> None:
        promise = promised(regression(0.5).fit(*table()))
        assert promise.epsilon == pytest.approx(0.5, rel=1e-3)
        assert promise.delta == 1e-5

    def test_several_owners_promise_the_same(self) -> None:
        X, y = table()
        for kind in (regression(owners=4), PrivateLogisticRegression(5.0, BOUNDS, owners=4, classes=(0, 1))):
            model = kind.fit(X, y if isinstance(kind, PrivateLinearRegression) else (y > 5).astype(int))
            assert model.epsilon_spent_ == pytest.approx(5.0, rel=1e-3)
            assert any("4 parties contribute" in words for words in promised(model).assumptions)
            assert model.score(X, y if isinstance(kind, PrivateLinearRegression) else y > 5) > 0.85

    def test_a_seed_repeats_a_fit_and_voids_the_guarantee(self) -> None:
        first, second = (regression(random_state=1).fit(*table()) for _ in range(2))
        assert first.coef_.tolist() == second.coef_.tolist()
        assert first.guarantee_ is None
        assert first.epsilon_spent_ is None

    def test_no_choice_follows_from_the_examples(self) -> None:
        X, y = table()
        one, other = regression().fit(X, y), regression().fit(1e6 * X, -y)
        assert (one.study_, one.choices_, one.guarantee_) == (other.study_, other.choices_, other.guarantee_)

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"bounds": None}, "bounds are missing: .* no scale is taken from data"),
            ({"target_bounds": None}, "target_bounds are missing"),
            ({"target_bounds": 3}, "two numbers"),
            ({"target_bounds": (1, 0)}, "lower must be below upper"),
            ({"bounds": (0, (1, 2, 3))}, "one for each of the 2 columns"),
            ({"epsilon": 0}, "epsilon"),
            ({"delta": 0}, "delta"),
            ({"owners": 0}, "owners must be a whole number, at least 1, not 0"),
            ({"epsilon": None}, "epsilon must be a number, not None"),
            ({"owners": 5000}, "part|examples"),
            ({"regularization": -1.0}, "regularization"),
        ],
    )
    def test_what_cannot_be_right_is_refused_in_words(self, given: dict[str, Any], words: str) -> None:
        for error in (ValueError, InvalidInputError):
            with pytest.raises(error, match=words):
                regression().set_params(**given).fit(*table())


class TestConventions:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("estimator", "expected"),
        [
            (PrivateLinearRegression(100.0, (-5, 5), (-5, 5)), set()),
            (PrivateLogisticRegression(100.0, (-5, 5)), set()),
            (PrivateLinearRegression(1.0, (-5, 5), (-5, 5)), {"check_regressors_train"}),
            (PrivateLogisticRegression(1.0, (-5, 5)), set()),
        ],
        ids=["linear", "logistic", "linear by default", "logistic by default"],
    )
    def test_no_check_fails_but_those_of_accuracy_under_noise(self, estimator: Any, expected: set[str]) -> None:  # noqa: ANN401
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=OF_WEIGHTS_ABOVE_1)
        assert {result["check_name"] for result in results if result["status"] == "failed"} == expected

    def test_by_default_it_is_a_private_classifier_with_a_delta(self) -> None:
        X, y = table()
        one = PrivateLogisticRegression(1.0, BOUNDS, classes=(0, 1), random_state=3).fit(X, (y > 5).astype(int))
        other = PrivateClassifier(bounds=BOUNDS, delta=1e-5, classes=(0, 1), random_state=3).fit(X, (y > 5).astype(int))
        assert one.coef_.tolist() == other.coef_.tolist()
        assert one.predict_proba(X).shape == (N, 2)


class TestBudget:
    def test_every_fit_of_a_search_pays(self) -> None:
        X, y = table()
        budget = PrivacyBudget(20.0, 1e-4)
        model = make_pipeline(FunctionTransformer(), regression(1.0, budget=budget))
        search = GridSearchCV(model, {"privatelinearregression__regularization": [0.001, 0.01]}, cv=3).fit(X, y)
        assert budget.fits == 2 * 3 + 1
        assert 1 < budget.epsilon_spent < 7, "fits count as a ledger counts them, by less than their sum"
        cross_val_score(search.best_estimator_, X, y, cv=2)
        assert budget.fits == 9

    def test_a_fit_beyond_the_budget_draws_no_noise(self) -> None:
        X, y = table()
        budget = PrivacyBudget(1.5, 1e-5)
        model = regression(1.0, budget=budget).fit(X, y)
        weights = model.coef_
        with pytest.raises(BudgetExhaustedError, match="are left") as caught:
            model.set_params(epsilon=1.4).fit(X, y)
        assert caught.value.facts["epsilon_left"] == budget.epsilon_left
        assert budget.fits == 1
        assert model.coef_ is weights

    def test_a_fit_that_is_refused_costs_nothing(self) -> None:
        budget = PrivacyBudget(1.5, 1e-5)
        with pytest.raises(ValueError, match="target_bounds"):
            regression(1.0, budget=budget).set_params(target_bounds=None).fit(*table())
        with pytest.raises(ValueError, match="random_state"):
            regression(1.0, budget=budget, random_state=1).fit(*table())
        assert (budget.fits, budget.epsilon_spent) == (0, 0.0)

    def test_what_is_no_number_is_named(self) -> None:
        epsilon: Any = "1"
        with pytest.raises(ValueError, match="epsilon must be a number, not '1'"):
            PrivacyBudget(epsilon)
        with pytest.raises(ValueError, match="delta must be a number, not '1'"):
            PrivacyBudget(1.0, epsilon)

    def test_copies_share_it_in_this_process_alone(self) -> None:
        budget = PrivacyBudget(1.0)
        assert clone(regression(budget=budget)).budget is budget
        assert copy.deepcopy(budget) is budget
        assert copy.copy(budget) is budget

    def test_a_fitted_model_is_saved_with_what_was_spent(self) -> None:
        X, y = table()
        budget = PrivacyBudget(2.0)
        model = PrivateClassifier(bounds=BOUNDS, classes=(0, 1), budget=budget).fit(X, (y > 5).astype(int))
        loaded = pickle.loads(pickle.dumps(model))  # noqa: S301 -- our own
        assert (loaded.predict(X) == model.predict(X)).all()
        assert (loaded.budget.fits, loaded.budget.epsilon_spent) == (1, budget.epsilon_spent)
        with pytest.raises(ValueError, match=r"this is a copy: take n_jobs = 1.* a budget of its own"):
            loaded.fit(X, (y > 5).astype(int))
        assert (budget.fits, loaded.budget.fits) == (1, 1)
        with pytest.raises(ValueError, match="a copy"):
            clone(loaded).fit(X, (y > 5).astype(int))

    @pytest.mark.parametrize(
        "number", [10**400, -(10**400), pytest.param(10**5000, id="huge"), math.inf, math.nan, 5e-324]
    )
    @pytest.mark.parametrize("name", ["epsilon", "delta", "regularization", "bounds", "target_bounds", "owners"])
    def test_a_number_that_does_not_fit_is_an_error_of_the_estimator(self, name: str, number: float) -> None:
        value: Any = (0, number) if name.endswith("bounds") else number
        with pytest.raises(EstimatorError, match=r"epsilon|delta|regularization|bounds|lower|upper|parties|owners"):
            regression().set_params(**{name: value}).fit(*table())
        if name in {"epsilon", "delta"}:
            with pytest.raises(EstimatorError, match=name):
                PrivacyBudget(**({"epsilon": 1.0} | {name: value}))

    @pytest.mark.parametrize("bounds", [(0.0, 5e-324), (0.0, 1e-300)])
    def test_bounds_too_close_for_slopes_are_refused(self, bounds: tuple[float, float]) -> None:
        X = np.random.default_rng(0).uniform(*bounds, size=(50, 1))
        with pytest.raises(EstimatorError, match="upper - lower must be at least 1e-290"):
            PrivateClassifier(bounds=bounds).fit(X, np.arange(50) % 2)

    def test_an_intercept_is_finite_where_bounds_are_large(self) -> None:
        X, y = np.random.default_rng(0).uniform(1e308, 1.7e308, size=(50, 1)), np.arange(50) % 2
        model = PrivateClassifier(bounds=(1e308, 1.7e308)).fit(X, y)
        assert np.isfinite(model.intercept_).all()
        assert np.isfinite(regression().set_params(bounds=(1e308, 1.7e308)).fit(X, y).intercept_)

    def test_pure_fits_add_up(self) -> None:
        X, y = table()
        budget = PrivacyBudget(2.0)
        for _ in range(2):
            PrivateClassifier(bounds=BOUNDS, classes=(0, 1), budget=budget).fit(X, (y > 5).astype(int))
        assert budget.epsilon_left == pytest.approx(0, abs=1e-4)
        with pytest.raises(BudgetExhaustedError):
            PrivateClassifier(bounds=BOUNDS, classes=(0, 1), budget=budget).fit(X, (y > 5).astype(int))


def test_the_defaults_are_a_budget_of_one_and_a_small_delta() -> None:
    shared = {
        "epsilon": 1.0, "bounds": None, "delta": 1e-5, "regularization": "auto", "fit_intercept": True, "owners": 1,
        "most_rows": 1000, "budget": None, "random_state": None,
    }  # fmt: skip
    assert PrivateLinearRegression().get_params() == shared | {"target_bounds": None}
    assert PrivateLogisticRegression().get_params() == shared | {
        "row_norm": "own", "classes": None, "class_weights": None
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"target_bounds": None},
            (
                "target_bounds are missing: give (lower, upper), public numbers in the unit of y; no scale is taken "
                "from data"
            ),
        ),
        ({"target_bounds": (0, 1, 2)}, "target_bounds must be two numbers, (lower, upper)"),
        ({"target_bounds": 4}, "target_bounds must be two numbers, (lower, upper)"),
        ({"target_bounds": (0, 10**400)}, "target_bounds must be two numbers, (lower, upper)"),
        ({"target_bounds": ("a", 1)}, "target_bounds must be two numbers, (lower, upper)"),
        (
            {"bounds": None},
            "bounds are missing: give (lower, upper), public numbers in the units of X; no scale is taken from data",
        ),
    ],
)
def test_what_cannot_be_right_of_a_number_is_said_in_full(given: dict[str, Any], message: str) -> None:
    parameters: dict[str, Any] = {"bounds": BOUNDS, "target_bounds": (-10, 20)} | given
    with pytest.raises(EstimatorError) as refused:
        PrivateLinearRegression(1.0, **parameters).fit(*table())
    assert refused.value.detail == message


def test_a_caution_of_a_regression_names_the_callers_line() -> None:
    with pytest.warns(UserWarning, match=r"^a delta of 0\.01 is above 1/2,000") as warned:
        regression(1.0, budget=PrivacyBudget(5.0, 0.01)).fit(*table())
    assert {warning.filename for warning in warned} == {__file__}


def test_predictions_lie_within_the_bounds_of_the_target() -> None:
    model = regression(50.0, random_state=1).fit(*table())
    model.model_ = Model(100 * model.model_.weights)
    predicted = model.predict(table()[0])
    assert (predicted.min(), predicted.max()) == (-10.0, 20.0)


def test_numbers_in_texts_are_numbers() -> None:
    X, y = table()
    model, same = (regression(50.0, random_state=1).fit(rows, y) for rows in (X, X.astype(str)))
    assert same.coef_.tolist() == model.coef_.tolist()
    assert model.predict(X.astype(str)).tolist() == model.predict(X).tolist()
    labels = y > 0
    plain, told = (
        PrivateLogisticRegression(50.0, BOUNDS, random_state=1).fit(rows, labels) for rows in (X, X.astype(str))
    )
    assert told.coef_.tolist() == plain.coef_.tolist()
    assert plain.decision_function(X.astype(str)).tolist() == plain.decision_function(X).tolist()
