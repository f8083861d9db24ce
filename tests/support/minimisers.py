"""Rows whose minimisers are as long as can be."""

from __future__ import annotations

import math

import numpy as np

from parley.common.learning.losses import Loss


def pull(loss: Loss, score: float) -> float:
    """-<s, slope(s)> at a score of this much for the last class."""
    at = np.array([score]) if loss.outputs == 1 else np.eye(loss.outputs)[None, -1] * score
    return -float((loss.slope(at, np.ones(1)) * at).sum())


def longest(loss: Loss) -> float:
    """How long rows, all alike and of one class, are to be for the longest minimiser, in roots of lambda."""
    best = max(np.linspace(0.01, 5.0, 500).tolist(), key=lambda score: pull(loss, score))
    if loss.outputs == 1:
        return float(best / math.sqrt(pull(loss, best)))
    k = loss.outputs  # weights (t, -t/(k-1), ...) tell as large a score by more numbers
    return float(best * math.sqrt((k - 1) / k / pull(loss, best)))
