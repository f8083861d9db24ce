"""What clipping costs where descent comes to rest: the model is surer than the labels are.

Take rows that are all in the same doubt: of K classes one is right with probability p, and each other is equally likely
to be. The model rests where the mean of the clipped slopes is zero. Those of the examples that the model has wrong are
the long ones, so they count for less than they should, and it rests at a probability s > p. Its excess is then
KL(p, s), and p follows from how much loss the labels leave, their entropy. Rows in doubt to different degrees come to
about the mean: the excess is nearly in proportion to the loss that is left.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import xlogy

from parley.common.arrays import FloatArray

_POINTS, _HALVINGS = 200, 50
_TINY = 1e-300


def clipped_excess(outputs: int, clip_norm: float, left: FloatArray) -> FloatArray:
    """The excess at rest for slopes clipped to ``clip_norm``, of data whose least mean loss is ``left``, (W,).

    ``outputs`` are the scores of an example: 1 for the logistic loss of two classes, K for softmax.

    >>> clipped_excess(1, 0.5, np.array([0.0, 0.2, 0.5])).round(3)
    array([0.   , 0.009, 0.022])
    """
    entropy, excess = _of_doubt(max(2, outputs), outputs > 1, clip_norm)
    return np.interp(left, entropy, excess)


@lru_cache(maxsize=16)
def _of_doubt(k: int, softmax: bool, clip_norm: float) -> tuple[FloatArray, FloatArray]:  # noqa: FBT001 -- a key
    """The entropy of K classes of which one is likelier, rising, and the excess at rest, (points,) each."""
    p = np.linspace(1, 1 / k, _POINTS)
    low, high = p.copy(), np.ones_like(p)
    for _ in range(_HALVINGS):
        s = (low + high) / 2
        right, wrong = _lengths(s, k) if softmax else (1 - s, s)
        pushed = p * (1 - s) * _kept(right, clip_norm) > (1 - p) * s * _kept(wrong, clip_norm)
        low, high = np.where(pushed, s, low), np.where(pushed, high, s)
    entropy = -xlogy(p, p) - xlogy(1 - p, (1 - p) / (k - 1))
    excess = xlogy(p, p / low) + xlogy(1 - p, (1 - p) / np.maximum(1 - low, _TINY))
    return np.asarray(entropy), np.asarray(np.maximum(0.0, excess))


def _lengths(s: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """The norms of softmax slopes of an example of the likelier class, and of any other, (points,) each."""
    others = (1 - s) / (k - 1)
    return (1 - s) * np.sqrt(1 + 1 / (k - 1)), np.sqrt(s**2 + (1 - others) ** 2 + (k - 2) * others**2)


def _kept(length: FloatArray, clip_norm: float) -> FloatArray:
    """What part of a slope clipping leaves."""
    return np.minimum(1.0, clip_norm / np.maximum(length, _TINY))
