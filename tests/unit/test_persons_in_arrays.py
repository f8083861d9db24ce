"""Fits on arrays hide persons by their groups, weigh rows, and take both from scikit-learn's routing."""

from __future__ import annotations

import pickle  # noqa: TID251 -- as users of scikit-learn save models
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from parley.common.algorithms.release import PrivateRelease
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.privacy.account import Cost
from parley.learner.estimators import (
    PrivacyBudget,
    PrivateClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
)
from parley.learner.estimators.array_runs import ArrayRun
from parley.learner.estimators.budget import EstimatorError
from parley.learner.experiments.datasets import deal

N, BOUNDS = 600, (-2, 4)
GROUPS = np.random.default_rng(4).integers(150, size=N)


def table() -> tuple[FloatArray, IntArray]:
    """Rows within (-2, 4), and classes told by a linear score."""
    X = np.random.default_rng(0).uniform(-2, 4, size=(N, 3))
    return X, (X[:, 0] > X[:, 1]).astype(np.int64)


def logistic(**given: Any) -> PrivateLogisticRegression:  # noqa: ANN401 -- parameters
    parameters: dict[str, Any] = {"epsilon": 2.0, "classes": (0, 1), "bounds": BOUNDS} | given
    return PrivateLogisticRegression(**parameters)


def linear(**given: Any) -> PrivateLinearRegression:  # noqa: ANN401 -- parameters
    return PrivateLinearRegression(2.0, BOUNDS, (0, 1), **given)


@pytest.fixture
def dealt(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ArrayRun, Shard]]:
    """The runs that fits make, each with the shard of its examples."""
    runs: list[tuple[ArrayRun, Shard]] = []
    train = ArrayRun.model

    def model(self: ArrayRun, examples: Shard, seed: Any) -> Any:  # noqa: ANN401 -- as it takes and returns
        runs.append((self, examples))
        return train(self, examples, seed)

    monkeypatch.setattr(ArrayRun, "model", model)
    return runs


class TestPersons:
    @pytest.mark.parametrize("model", [logistic(random_state=3), linear(random_state=3)])
    def test_groups_of_one_row_each_are_no_groups_to_the_last_bit(self, model: Any) -> None:  # noqa: ANN401
        alone, grouped = clone(model).fit(*table()), clone(model).fit(*table(), groups=np.arange(N)[::-1])
        assert grouped.coef_.tolist() == alone.coef_.tolist()
        assert grouped.intercept_ == alone.intercept_

    @pytest.mark.parametrize("model", [logistic(), linear()])
    def test_the_promise_is_to_persons_and_n_is_their_number(
        self,
        model: Any,  # noqa: ANN401 -- either kind
        dealt: list[tuple[ArrayRun, Shard]],
    ) -> None:
        promise = model.fit(*table(), groups=GROUPS).guarantee_
        ((run, examples),) = dealt
        assert (run.facts.unit, run.facts.most_rows, run.facts.n_total) == ("person", 1000, len(np.unique(GROUPS)))
        assert int(examples.n_examples) == run.facts.n_total
        assert int(examples.n_rows) == N
        assert model.study_.unit == promise.adjacency == "person"
        assert any("how many persons there are is public" in words for words in promise.assumptions)
        assert promise.epsilon == pytest.approx(2.0, rel=1e-3)

    def test_rows_of_a_person_go_together_to_one_owner(self, dealt: list[tuple[ArrayRun, Shard]]) -> None:
        X, y = table()
        X[:, 2] = GROUPS / 50 - 1  # who it is
        logistic(owners=5, row_norm="largest").fit(X, y, groups=GROUPS)
        ((run, examples),) = dealt
        owners = deal(examples, tuple(run.facts.n_examples.tolist()))
        who = [set(np.unique(owners.X[i][owners.mask[i]][:, 2]).tolist()) for i in range(5)]
        assert [len(some) for some in who] == owners.n_examples.tolist()
        assert len(set().union(*who)) == len(np.unique(GROUPS))

    def test_the_first_rows_of_a_person_count_up_to_the_declared_most(
        self, dealt: list[tuple[ArrayRun, Shard]]
    ) -> None:
        X, y = table()
        first = np.concatenate([np.flatnonzero(who == GROUPS)[:2] for who in dict.fromkeys(GROUPS.tolist())])
        for rows in (np.arange(N), np.sort(first)):
            logistic(most_rows=2, random_state=1).fit(X[rows], y[rows], groups=GROUPS[rows])
        (run, some), (_, same) = dealt
        assert run.facts.most_rows == 2
        assert int(some.n_rows) == len(first) < N
        assert (some.X.tolist(), some.y.tolist()) == (same.X.tolist(), same.y.tolist())

    @pytest.mark.parametrize(
        ("groups", "words"),
        [
            (GROUPS[:-1], r"groups must have the shape \(600,\)"),
            (GROUPS[:, None], r"and have \(600, 1\)"),
            ([None, *GROUPS[1:].tolist()], "identifier missing"),
            (np.where(GROUPS[0] == GROUPS, np.nan, GROUPS), "identifier missing"),
            (["a", float("nan"), *["b"] * (N - 2)], "identifier missing"),
            (pd.Series([pd.NA, *["b"] * (N - 1)], dtype="string"), "numbers or texts, and none may be missing"),
            (GROUPS + 2.0**60, "of 600 rows: identifier rounded"),
            (np.zeros(N), "of 1 example|too few|1 examples"),
        ],
    )
    def test_groups_that_cannot_be_right_are_refused_in_words(self, groups: npt.ArrayLike, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            logistic(owners=2).fit(*table(), groups=groups)

    def test_groups_are_compared_as_identifiers_are(self, dealt: list[tuple[ArrayRun, Shard]]) -> None:
        texts = [f" {who:0{5 * (i % 2)}} " for i, who in enumerate(GROUPS)]
        for groups in (GROUPS, GROUPS.astype(float), pd.Series(GROUPS).astype("category"), texts, np.array(texts)):
            linear(random_state=1).fit(*table(), groups=groups)
        assert {run.facts.n_total for run, _ in dealt} == {len(np.unique(GROUPS))}
        assert all((examples.X == dealt[0][1].X).all() for _, examples in dealt)

    @pytest.mark.parametrize("most_rows", [0, 1.5, "2", 2**17 + 1])
    def test_the_most_rows_of_a_person_are_a_whole_number_within_a_block(self, most_rows: Any) -> None:  # noqa: ANN401
        with pytest.raises(EstimatorError, match="most_rows"):
            logistic(most_rows=most_rows).fit(*table(), groups=GROUPS)

    def test_a_budget_is_charged_for_persons(self, monkeypatch: pytest.MonkeyPatch) -> None:
        paid: list[Any] = []
        monkeypatch.setattr(PrivacyBudget, "pay", lambda _, fit: paid.append(fit))
        with pytest.warns(UserWarning, match="the promise is to 149 persons"):
            logistic(budget=PrivacyBudget(9.0, 0.01)).fit(*table(), groups=GROUPS)
        (fit,) = paid
        assert fit.price.adjacency == "person"
        assert (fit.terms["n_examples"], fit.terms["most_rows"]) == (len(np.unique(GROUPS)), 1000)
        assert isinstance(fit.price.total, Cost)


class TestWeights:
    @pytest.mark.parametrize(
        "given",
        [
            {"delta": 1e-5},
            *({"mechanism": name} for name in ("output", "objective", "generalized", "one_against_rest", "centroids")),
        ],
    )
    def test_a_row_of_weight_0_teaches_nothing(
        self, given: dict[str, Any], dealt: list[tuple[ArrayRun, Shard]]
    ) -> None:
        """By any mechanism; it is one of n all the same."""
        X, y = table()
        weights = (np.arange(N) % 3 > 0).astype(float)
        other = np.where(weights[:, None] > 0, X, -X), np.where(weights > 0, y, 1 - y)
        model = PrivateClassifier(bounds=BOUNDS, classes=(0, 1), random_state=1, **given)
        coefs = [clone(model).fit(rows, labels, weights).coef_ for rows, labels in ((X, y), other)]
        assert coefs[0] == pytest.approx(coefs[1], abs=1e-6)
        assert coefs[0] != pytest.approx(clone(model).fit(X, y).coef_, abs=1e-6)
        assert dealt[0][0].facts.n_total == N

    def test_a_regression_learns_from_rows_by_their_weights(self) -> None:
        X, y = table()
        weights = (np.arange(N) % 3 > 0).astype(float)
        model = linear(random_state=1)
        some, same = (clone(model).fit(X, numbers, weights).coef_ for numbers in (y, np.where(weights > 0, y, 1)))
        assert some.tolist() == same.tolist() != clone(model).fit(X, y).coef_.tolist()

    def test_weights_of_one_are_no_weights_and_a_promise_says_whose_they_are(self) -> None:
        weighed = logistic(random_state=1).fit(*table(), sample_weight=np.ones(N))
        assert weighed.coef_.tolist() == logistic(random_state=1).fit(*table()).coef_.tolist()
        promise = logistic().fit(*table(), sample_weight=np.full(N, 0.5)).guarantee_
        assert promise is not None
        assert any("weight of a row follows from its own example alone" in words for words in promise.assumptions)

    def test_they_multiply_weights_of_classes_and_shares_of_persons(self, dealt: list[tuple[ArrayRun, Shard]]) -> None:
        weights = np.where(np.arange(N) % 2, 1.0, 0.25)
        model = logistic(class_weights={0: 0.5, 1: 1.0}, random_state=1)
        model.fit(*table(), sample_weight=weights, groups=GROUPS)
        ((run, examples),) = dealt
        assert run.facts.loss.class_weights == (0.5, 1.0)
        assert examples.weights.sum() == pytest.approx(
            sum(weights[who == GROUPS].mean() for who in np.unique(GROUPS)), abs=0.01
        )

    @pytest.mark.parametrize(
        ("weights", "words"),
        [
            (np.where(np.arange(N) == 7, -0.5, 1), "1 of 600 are below 0, the first in row 7, -0.5"),
            (np.where(np.arange(N) == 7, np.nan, 1), "NaN"),
            (np.where(np.arange(N) > 597, 1.5, 1), "2 of 600 are above 1, the first in row 598, 1.5"),
            (np.zeros(N), "non-zero"),
            (np.full(N, 1 / N), "divided by their sum"),
            (np.ones(N - 1), "shape"),
            (["much"] * N, "much"),
        ],
    )
    def test_weights_that_cannot_be_right_are_refused_in_words(self, weights: npt.ArrayLike, words: str) -> None:
        for model in (logistic(), linear()):
            with pytest.raises(ValueError, match=words):
                model.fit(*table(), sample_weight=weights)

    def test_ensembles_that_weigh_by_all_rows_or_take_some_twice_are_refused(self) -> None:
        with pytest.raises(ValueError, match="divided by their sum"):
            AdaBoostClassifier(logistic()).fit(*table())
        with pytest.raises(ValueError, match="above 1"):
            BaggingClassifier(logistic()).fit(*table())


class TestRouting:
    def test_cross_validation_by_group_fits_persons_and_leaves_them_whole(
        self, dealt: list[tuple[ArrayRun, Shard]]
    ) -> None:
        with config_context(enable_metadata_routing=True):
            weighed = logistic().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
            model = make_pipeline(FunctionTransformer(), weighed)
            params = {"groups": GROUPS, "sample_weight": np.full(N, 0.5)}
            cross_validate(model, *table(), params=params, cv=GroupKFold(3), error_score="raise")
            GridSearchCV(logistic(), {"epsilon": [1.0, 2.0]}, cv=GroupKFold(3)).fit(*table(), groups=GROUPS)
        assert all(run.facts.unit == "person" for run, _ in dealt)
        assert sum(run.facts.n_total for run, _ in dealt[:3]) == 2 * len(np.unique(GROUPS))
        assert len(dealt) == 3 + 2 * 3 + 1
        assert all(examples.weights.max() <= 0.5 for _, examples in dealt[:3])

    def test_without_routing_the_splitter_alone_has_groups(self, dealt: list[tuple[ArrayRun, Shard]]) -> None:
        cross_val_score(logistic(), *table(), groups=GROUPS, cv=GroupKFold(3))
        assert {run.facts.unit for run, _ in dealt} == {"replace_one"}

    def test_a_model_of_persons_is_copied_and_saved(self) -> None:
        model = logistic(most_rows=7).fit(*table(), groups=GROUPS)
        loaded = pickle.loads(pickle.dumps(model))  # noqa: S301 -- it was made here
        assert loaded.guarantee_ == model.guarantee_
        assert loaded.predict(table()[0]).tolist() == model.predict(table()[0]).tolist()
        assert clone(loaded).most_rows == 7


def test_a_mechanism_that_hides_rows_alone_is_refused_before_a_budget_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivateRelease, "persons", False)
    budget = PrivacyBudget(9.0, 1e-4)
    model = PrivateClassifier(bounds=BOUNDS, classes=(0, 1), mechanism="output", budget=budget)
    with pytest.raises(EstimatorError, match="persons"):
        model.fit(*table(), groups=GROUPS)
    assert budget.fits == 0


def test_one_group_of_all_rows_is_warned_of_and_a_negative_weight_gets_no_advice_for_large_ones() -> None:
    X, y = table()
    with pytest.warns(UserWarning, match="all rows have one group: they count as one person's"):
        logistic(most_rows=N).fit(X, y, groups=np.zeros(N))
    with pytest.raises(EstimatorError, match=r"are below 0, the first in row 0, -1$"):
        logistic().fit(X, y, sample_weight=np.full(N, -1.0))
    with pytest.raises(EstimatorError, match="Divide weights by the largest that is possible"):
        logistic().fit(X, y, sample_weight=np.full(N, 2.0))
