"""Which rows of an owner no training ever sees, so that a model can be evaluated on them: by their place alone.

Of an owner's rows, row i (from 0) is held out where floor((i + 1) s) > floor(i s), s being the study's public share. So
an owner of n rows holds floor(n s) out, spread evenly, and all know how many. A record that replaces another takes its
place: it is trained on or evaluated on as the other was, never both, so each kind of run is as private as if there were
no other rows. The products are float64, the same on every machine; as s stays 2^-20 away from 1, rounding skips no row.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from parley.common.arrays import BoolArray, FloatArray, IntArray

Rows = Literal["training", "held_out"]
"""Which rows a run is about; all are for training where a study holds none out."""

_NEAREST = 2.0**-20
_BLOCK = 2**14

HoldOut = Annotated[
    float,
    Field(ge=_NEAREST, le=1 - _NEAREST, description="the share of each owner's rows that are kept for evaluation"),
]


def count_held_out(n_rows: IntArray | int, share: float) -> IntArray:
    """How many of n rows (...) are held out: floor(n s).

    >>> count_held_out(np.array([1, 4, 10]), 0.25).tolist()
    [0, 1, 2]
    """
    return np.floor(np.asarray(n_rows) * share).astype(np.int64)


def is_held_out(n_rows: int, share: float) -> BoolArray:
    """Which of n rows are held out, (n,).

    >>> np.flatnonzero(is_held_out(10, 0.25)).tolist()
    [3, 7]
    """
    return np.diff(count_held_out(np.arange(n_rows + 1), share)) > 0


def move_held_out_last(X: FloatArray, y: FloatArray, share: float) -> None:
    """Move the held-out of the rows X (n, d) and y (n,) behind the others, in order and in place.

    Takes a copy of the rows held out and of a block of the others, for a shard may fill the memory.
    """
    held = is_held_out(len(y), share)
    for values in (X, y):
        kept, end = values[held], 0
        for start in range(0, len(values), _BLOCK):
            others = values[start : start + _BLOCK][~held[start : start + _BLOCK]]
            values[end : end + len(others)] = others
            end += len(others)
        values[end:] = kept
