"""What the algorithms that descend on sums of gradients share."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.errors import InvalidInputError
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Question, Reply


def ask_gradients(facts: FederationFacts, n_rounds: int, clip_norm: float) -> tuple[Question, ...]:
    """The questions of so many rounds, each for the sum of gradients at weights of the model's shape.

    The first is about the weights to start from, if those are the run's public rows (`start_of`). Raises
    InvalidInputError for a clip norm above 1 where an example has one score: exact sums hold no more.
    """
    if clip_norm > 1 and facts.loss.outputs == 1:
        raise InvalidInputError(f"clip_norm must be at most 1 for a loss of one score, not {clip_norm:g}")
    question = Question("gradient", facts.shape, facts.n_weights)
    return (replace(question, public=_starts(facts)), *(question,) * (n_rounds - 1))


def start_of(facts: FederationFacts, longest: float = math.inf) -> FloatArray:
    """The weights that a descent starts from, of weights' shape: the run's public rows (K or 1, d), if they are such.

    Else zeros; but the intercept of a regression, whose label's mean the study tells, is what predicts that mean, or is
    as near to it as the set that the descent stays in allows, whose weights are ``longest`` at most.
    """
    if _starts(facts):
        return facts.public_rows.reshape(facts.shape)
    weights = np.zeros(facts.shape)
    if facts.study is not None and (usual := facts.study.usual_label) is not None:
        weights[-1] = min(max(usual.intercept, -longest), longest)
    return weights


def _starts(facts: FederationFacts) -> bool:
    """Whether the run's public rows are weights."""
    return facts.public_shape == facts.rows_of_weights


def mean_gradient(reply: Reply, facts: FederationFacts) -> FloatArray:
    """The sum of gradients that a round was answered, over the examples of those who contributed; of weights' shape."""
    return reply.value.reshape(facts.shape) / facts.examples(reply.contributors)
