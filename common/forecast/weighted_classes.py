"""The run without class weights that is like a run with them, so that one theory forecasts both.

Let m be the mean weight of a row: the sum over classes of share times weight. The sum of n weighted gradients is about
that of m n rows of a population in which class k is w_k times as common, under the same noise. The learner divides by n
all the same, so a step goes m times as far, and lambda counts for 1 / m as much. What is forecast of that run, the
excess fitness, is that of the weighted mean loss divided by m: of a population in which rows count as the weights say.

If the study states no shares, weights are taken to be there to make classes count alike: m is their harmonic mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from parley.common.algorithms._parameters import LEAST_STEP
from parley.common.data.columns import Label
from parley.common.data.study import Study
from parley.common.learning.losses import unweighted
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts

_LEAST_SHARE = 1e-9


def mean_weight(weights: Sequence[float], shares: Sequence[float] | None) -> float:
    """Return the mean weight m of a row.

    >>> round(mean_weight((0.25, 1.0), (0.8, 0.2)), 3), round(mean_weight((0.25, 1.0), None), 3)
    (0.4, 0.4)
    """
    if shares is not None:
        return float(np.dot(weights, shares))
    positive = np.array([weight for weight in weights if weight > 0])
    return float(len(positive) / (1 / positive).sum())


def as_unweighted(algorithm: Algorithm, facts: FederationFacts) -> tuple[Algorithm, FederationFacts]:
    """Return the algorithm and the facts of the run without class weights that is like this one."""
    weights = facts.loss.class_weights
    if not weights:
        return algorithm, facts
    m = mean_weight(weights, None if facts.study is None else facts.study.class_shares)
    scaled: dict[str, Any] = {}
    for name in {field.name for field in fields(algorithm)}:  # type: ignore[arg-type]  # a dataclass, see `Algorithm`
        if name == "step":
            scaled[name] = max(LEAST_STEP, getattr(algorithm, name) * m)
        elif name == "regularization":
            scaled[name] = getattr(algorithm, name) / m
    like = replace(
        facts,
        n_examples=np.maximum(1, np.rint(facts.n_examples * m)).astype(np.int64),
        loss=unweighted(facts.loss),
        study=None if facts.study is None else _of_weighted(facts.study, weights, m),
    )
    return replace(algorithm, **scaled), like  # type: ignore[type-var]  # as above


def _of_weighted(study: Study, weights: Sequence[float], m: float) -> Study:
    """Return the study of a population in which classes are as common as their rows count."""
    if study.class_shares is None or not isinstance(study.label, Label):
        return study.model_copy(update={"class_weights": None})
    counted = (max(_LEAST_SHARE, share * w / m) for share, w in zip(study.class_shares, weights, strict=True))
    return study.model_copy(
        update={"class_weights": None, "label": study.label.model_copy(update={"shares": tuple(counted)})}
    )
