"""Classes as labels of a shard: class c of K is 2c / (K - 1) - 1, so that of two classes one is -1 and one +1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from parley.common.arrays import FloatArray, IntArray


MAX_CLASSES = 100
"""The most classes that are distinct on the grid of labels, which is of 2^-16."""


def encode_classes(classes: IntArray, n_classes: int) -> FloatArray:
    """Return indices (...) of classes as labels in [-1, 1], (...).

    >>> encode_classes(np.array([0, 1, 2]), 3).tolist()
    [-1.0, 0.0, 1.0]
    """
    return np.asarray(2.0 * classes / (n_classes - 1) - 1.0)


def decode_classes(labels: FloatArray, n_classes: int) -> IntArray:
    """Return labels (...) in [-1, 1], on the grid or not, as the indices (...) of the nearest classes.

    >>> decode_classes(np.array([-1.0, 0.1, 1.0]), 3).tolist()
    [0, 1, 2]
    """
    return np.rint((labels + 1.0) / 2.0 * (n_classes - 1)).astype(np.int64)
