"""The results of other methods on a case: the pooled model without privacy, and `diffprivlib` at the same epsilon.

`diffprivlib` is no dependency; without one that can be imported there are no figures of it. Version 0.6.6 wants a
scikit-learn before 1.6, which may lie in a folder of its own on ``PYTHONPATH``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from parley.common.data.shard import Shard
from parley.common.learning.losses import Hinge, Squared
from parley.common.learning.model import Model
from scripts.utility.trial import Trial, classes

LAMBDAS = (1e-3, 1e-4, 1e-5, 1e-6)
"""Regularizations of the pooled model: the one that tests best counts."""
LAMBDAS_OF_LARGE = (1e-5,)
"""Regularizations of the pooled model where one model takes minutes."""


def pooled(trial: Trial, draws: Sequence[int]) -> tuple[float, float]:
    """The regularization that tests best, and what the models of all examples in one place are worth then."""
    tried = {
        strength: fmean(trial.worth([trial.pooled(strength, draw) for draw in draws], draws))
        for strength in (LAMBDAS_OF_LARGE if trial.is_large else LAMBDAS)
    }
    best = max(tried, key=tried.__getitem__)
    return best, tried[best]


def diffprivlib(trial: Trial, draws: Sequence[int]) -> list[float] | None:
    """The values of the library's models on the held-out examples of draws; None where it has no such model."""
    fit = _estimator(trial)
    return fit and trial.worth([fit(trial.examples.split(draw)[0], draw) for draw in draws], draws)


def _estimator(trial: Trial) -> Callable[[Shard, int], Model] | None:
    """Fits the library's estimator for a case's loss, by examples and a seed; None where there is none.

    It is told that rows have norm at most 1, one of their columns being the intercept, and that labels lie in [-1, 1].
    All else is its default.
    """
    library, loss = _import(), trial.examples.loss
    if library is None or isinstance(loss, Hinge):
        return None

    def fit(shard: Shard, seed: int) -> Model:
        terms = {"epsilon": trial.epsilon, "fit_intercept": False, "random_state": seed}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it may not converge, and says so
            if isinstance(loss, Squared):
                made = library.LinearRegression(**terms, bounds_X=(-1, 1), bounds_y=(-1, 1)).fit(shard.X, shard.y)
            else:
                made = library.LogisticRegression(**terms, data_norm=1.0).fit(shard.X, classes(shard, loss.outputs))
        weights = np.asarray(made.coef_, dtype=np.float64)
        return Model(weights if loss.outputs > 1 else weights.reshape(-1))

    return fit


def _import() -> Any:  # noqa: ANN401 -- a library without types
    """The library's models; None where they cannot be imported."""
    try:
        from diffprivlib import models  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415
    except ImportError:
        return None
    return models
