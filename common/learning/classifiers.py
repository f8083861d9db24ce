"""Classifiers that an owner may train on its own shard, to vote for it; scikit-learn's, each with a seed.

A vote hides which kind an owner takes, and no proof depends on it: votes are bounded for any classifier. With the seed
the same shard gives the same classifier again, so that a party which was restarted votes as it did before.
"""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from parley.common.strict import Strict

if TYPE_CHECKING:
    from parley.common.arrays import FloatArray, IntArray

_Strength = Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)]
_Depth = Annotated[int | None, Field(ge=1, le=1_000, description="the deepest that a tree may be; any if not given")]
_Leaf = Annotated[int, Field(ge=1, le=1_000_000, description="the fewest examples of a leaf")]


class LogisticRegression(Strict):
    """Logistic regression, multinomial for more than two classes, without an intercept."""

    kind: Literal["logistic"]
    regularization: Annotated[_Strength, Field(description="lambda of the mean loss + (lambda/2)|w|^2")] = 1e-4

    def build(self, n_examples: int, seed: int) -> Any:  # noqa: ANN401 -- scikit-learn's
        """Return an unfitted estimator for so many examples."""
        from sklearn.linear_model import LogisticRegression as Estimator  # noqa: PLC0415 -- only where one is trained

        strength = 1 / (n_examples * self.regularization)
        return Estimator(C=strength, fit_intercept=False, max_iter=1000, random_state=seed)


class LinearSvm(Strict):
    """A linear support vector machine, one class against the rest."""

    kind: Literal["svm"]
    cost: Annotated[_Strength, Field(description="C, the weight of the hinge losses")] = 1.0

    def build(self, n_examples: int, seed: int) -> Any:  # noqa: ANN401, ARG002
        """Return an unfitted estimator; the number of examples does not matter."""
        from sklearn.svm import LinearSVC  # noqa: PLC0415

        return LinearSVC(C=self.cost, random_state=seed)


class DecisionTree(Strict):
    """A decision tree, as scikit-learn grows it by default."""

    kind: Literal["tree"]
    max_depth: _Depth = None
    min_samples_leaf: _Leaf = 1

    def build(self, n_examples: int, seed: int) -> Any:  # noqa: ANN401, ARG002
        """Return an unfitted estimator; the number of examples does not matter."""
        from sklearn.tree import DecisionTreeClassifier  # noqa: PLC0415

        return DecisionTreeClassifier(
            max_depth=self.max_depth, min_samples_leaf=self.min_samples_leaf, random_state=seed
        )


class RandomForest(Strict):
    """A random forest: decision trees grown on bootstrap samples."""

    kind: Literal["forest"]
    n_trees: Annotated[int, Field(ge=1, le=1_000, description="how many trees")] = 50
    max_depth: _Depth = None
    min_samples_leaf: _Leaf = 1

    def build(self, n_examples: int, seed: int) -> Any:  # noqa: ANN401, ARG002
        """Return an unfitted estimator; the number of examples does not matter."""
        from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415

        return RandomForestClassifier(
            n_estimators=self.n_trees,
            max_depth=self.max_depth,
            min_samples_leaf=self.min_samples_leaf,
            random_state=seed,
        )


class NearestNeighbours(Strict):
    """The class of most of the nearest examples; of all, where there are fewer."""

    kind: Literal["knn"]
    n_neighbours: Annotated[
        int | None,
        Field(
            ge=1,
            le=10_000,
            description="how many examples are asked; if not given 5, or 3 of up to 24, or 1 of up to 8",
        ),
    ] = None

    def build(self, n_examples: int, seed: int) -> Any:  # noqa: ANN401, ARG002
        """Return an unfitted estimator for so many examples."""
        from sklearn.neighbors import KNeighborsClassifier  # noqa: PLC0415

        few = min(5, (math.isqrt(n_examples) - 1) // 2 * 2 + 1)  # the root of how many there are, and odd
        return KNeighborsClassifier(n_neighbors=min(self.n_neighbours or few, n_examples))


class NaiveBayes(Strict):
    """Gaussian naive Bayes: features are normal and independent within a class."""

    kind: Literal["bayes"]
    smoothing: Annotated[_Strength, Field(description="part of the largest variance that is added to each")] = 1e-2

    def build(self, n_examples: int, seed: int) -> Any:  # noqa: ANN401, ARG002
        """Return an unfitted estimator; the number of examples does not matter."""
        from sklearn.naive_bayes import GaussianNB  # noqa: PLC0415

        return GaussianNB(var_smoothing=self.smoothing)


LocalClassifier = Annotated[
    LogisticRegression | LinearSvm | DecisionTree | RandomForest | NearestNeighbours | NaiveBayes,
    Field(discriminator="kind"),
]
"""The classifiers that an owner's settings may name, by ``kind``."""


class Voter:
    """A classifier trained on some rows X (n, d) of classes (n,) and weights (n,) in (0, 1], one of them at least.

    Of the nearest neighbours each counts 1. If the rows are all alike or of one class, or scikit-learn
    refuses them, it votes for the commonest class among them: an error would reveal what they are.
    """

    def __init__(
        self, classifier: LocalClassifier, X: FloatArray, classes: IntArray, weights: FloatArray, seed: int
    ) -> None:
        self._most = int(np.bincount(classes, weights).argmax())
        self._estimator = None
        if len(np.unique(classes)) > 1 and (X[0] != X).any():
            with warnings.catch_warnings(), suppress(ValueError, ArithmeticError):
                warnings.simplefilter("ignore")  # that training did not converge, which depends on the examples
                self._estimator = _fitted(classifier.build(math.ceil(weights.sum()), seed), X, classes, weights)

    def votes(self, rows: FloatArray) -> IntArray:
        """Return the class that it votes for on each of the rows (N, d), (N,)."""
        if self._estimator is None:
            return np.full(len(rows), self._most)
        return np.asarray(self._estimator.predict(rows), dtype=np.int64)


def _fitted(estimator: Any, X: FloatArray, classes: IntArray, weights: FloatArray) -> Any:  # noqa: ANN401 -- scikit-learn's
    """Return an estimator of scikit-learn, trained by the rows' weights, where it takes some that differ."""
    from sklearn.utils.validation import has_fit_parameter  # noqa: PLC0415 -- only where one is trained

    if (weights == 1).all() or not has_fit_parameter(estimator, "sample_weight"):
        return estimator.fit(X, classes)
    return estimator.fit(X, classes, sample_weight=weights)
