"""How good a model is: fitness relative to the best, errors of a regression, and rates for classes however unbalanced.

All take the examples (n, d) of one party, or of all pooled. Members' models have the mean of their accuracies, AUCs or
errors. A row of zeros is no example, as in `parley.common.learning.evaluation`: a study dropped it, so a prediction for
it says nothing. Fitness alone counts it, because training makes that small and proofs are about it. Rows count by their
weights: of persons of several rows each person counts the same.
"""

from __future__ import annotations

import math

import numpy as np

from parley.common.arrays import BoolArray, FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Loss
from parley.common.learning.model import Model


def fitness(loss: Loss, model: Model, shard: Shard, regularization: float) -> float:
    """Return the mean loss plus (regularization / 2) |w|^2: what training makes small, so of dropped rows too."""
    losses = (loss.value(model_scores(model, shard), shard.y) * shard.weights)[shard.mask]
    return float(losses.sum() / shard.n_examples + regularization / 2 * (model.weights**2).sum())


def relative_fitness(loss: Loss, model: Model, best: Model, shard: Shard, regularization: float) -> float:
    """Return Psi = f(w) / f(w*) - 1, the part by which the fitness exceeds ``best``'s (Wu et al. 2020, Section 5)."""
    optimum = fitness(loss, best, shard, regularization)
    if not optimum > 0:
        raise InvalidInputError("relative fitness needs a best fitness above 0")
    return fitness(loss, model, shard, regularization) / optimum - 1


def accuracy(model: Model, shard: Shard) -> float:
    """Return the share of examples whose class the model predicts: by the score's sign, or the largest score."""
    return float(np.mean([_hits(member, shard) for member in model.members]))


def recall(model: Model, shard: Shard) -> float:
    """Return the share of positive examples predicted positive; raises InvalidInputError where there is none."""
    (positive, weights), _ = _both_classes(model, shard, n_required=1)
    return float(np.average(positive > 0, weights=weights))


def auc(model: Model, shard: Shard) -> float:
    """Return the probability that a positive example scores above a negative one, ties counting half.

    Raises InvalidInputError for examples of one class only, or a model of more than two.
    """
    return float(np.mean([_auc(member, shard) for member in model.members]))


def rmse(model: Model, shard: Shard) -> float:
    """Return the root mean squared error, in the units of y, in which the label's bounds are -1 and +1."""
    return float(np.mean([math.sqrt(_squared_error(member, shard)) for member in model.members]))


def r_squared(model: Model, shard: Shard) -> float:
    """Return 1 - (mean squared error) / (variance of y): 0 for the best constant.

    Raises InvalidInputError for constant y.
    """
    variance = _mean((shard.y - _mean(shard.y, shard)) ** 2, shard)
    if not variance > 0:
        raise InvalidInputError("R squared needs labels that differ")
    return 1 - float(np.mean([_squared_error(member, shard) for member in model.members])) / variance


def examples_of(shard: Shard) -> BoolArray:
    """Return the mask (n,) of the rows to measure a model on, present and of a weight above 0.

    Raises InvalidInputError if there is none.
    """
    examples = shard.present & (shard.weights > 0)
    if not examples.any():
        raise InvalidInputError("no example to measure on: there is no row, or each misses a value and was dropped")
    return np.asarray(examples)


def majority_share(shard: Shard) -> float:
    """Return the share of the commonest class among the examples; raises InvalidInputError where there is none."""
    examples = examples_of(shard)
    _, classes = np.unique(shard.y[examples], return_inverse=True)
    counts = np.bincount(classes, shard.weights[examples])
    return float(counts.max() / counts.sum())


def _mean(values: FloatArray | BoolArray, shard: Shard) -> float:
    """Return the mean of values (n,) over the examples, by their weights."""
    examples = examples_of(shard)
    return float(np.average(values[examples], weights=shard.weights[examples]))


def model_scores(model: Model, shard: Shard) -> FloatArray:
    """Return the scores of a shard's examples, (n,) or (n, K)."""
    scores = shard.scores(np.atleast_2d(model.weights))
    return scores[..., 0] if model.kind == "linear" else scores


def _squared_error(model: Model, shard: Shard) -> float:
    """Return the mean squared error of one model."""
    return _mean((model_scores(model, shard) - shard.y) ** 2, shard)


def _hits(model: Model, shard: Shard) -> float:
    """Return the accuracy of one model."""
    scores = model_scores(model, shard)
    if model.kind == "linear":
        right = (scores > 0) == (shard.y > 0)
    else:
        right = scores.argmax(axis=-1) == decode_classes(shard.y, scores.shape[-1])
    return _mean(right, shard)


def _auc(model: Model, shard: Shard) -> float:
    """Return the AUC of one model."""
    (positive, of_positive), (negative, of_negative) = _both_classes(model, shard, n_required=2)
    order = np.argsort(negative)
    reached = np.concatenate([[0.0], np.cumsum(of_negative[order])])
    below, not_above = (reached[np.searchsorted(negative[order], positive, side)] for side in ("left", "right"))
    return float(np.average(below + not_above, weights=of_positive) / 2 / reached[-1])


def _both_classes(model: Model, shard: Shard, n_required: int) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """Return the scores and the weights of the positive, and of the negative examples.

    The first ``n_required`` classes must not be empty.
    """
    if model.kind != "linear":
        raise InvalidInputError(f"a {model.kind} model has no positive class")
    scores, weights, examples = model_scores(model, shard), shard.weights, examples_of(shard)
    sides = examples & (shard.y > 0), examples & (shard.y <= 0)
    if not all(side.any() for side in sides[:n_required]):
        raise InvalidInputError("examples of one class only: the rate of the other cannot be measured")
    return tuple((scores[side], weights[side]) for side in sides)
