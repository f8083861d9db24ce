"""Reads an uploaded table in a process of its own, ``python -m parley.learner.api.tables``, with a task on its input.

A body of a few kilobytes may be a table of gigabytes, and a decoder finds out only by decoding. So the table's numbers
are first counted from the file's own description, and all work is done within `TABLE_BOUNDS`, by a process whose memory
is then given back. The learner's side is `parley.learner.api.uploads`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError, InvalidInputError, TooLargeError
from parley.common.files.examples import load_examples
from parley.common.files.tables import TableSize, size_of
from parley.common.learning.erm import check_smooth, minimise
from parley.common.learning.losses import build_loss
from parley.common.service.child import AnyArray, allow_seconds, send_arrays
from parley.learner.api.table_task import TABLE_BOUNDS, Kind, TableTask
from parley.learner.models.feature_rows import FeatureRows

_FIT_SECONDS = 50
"""Processor seconds that a model may take once its rows are read."""
_STRENGTH = 0.1  # lambda n: little more than a unique minimiser needs


def read_table(task: TableTask) -> FloatArray:
    """Read a table as its task says; raises TooLargeError, before it is decoded, if it has too many numbers.

    Raises the errors of `read_rows`, `read_labelled` and `read_start` too.
    """
    if task.kind == "start":
        check_smooth(build_loss(task.study))
    elif task.study.sparse:
        raise InvalidInputError(
            "the study's features are sparse, and public rows are dense: no algorithm asks for them"
        )
    _check_size(task, size_of(task.path, task.study.table_names))
    reads: dict[Kind, Callable[[Path, Study], FloatArray]] = {
        "rows": read_rows,
        "labelled": read_labelled,
        "start": read_start,
    }
    return reads[task.kind](task.path, task.study)


def read_rows(path: Path, study: Study) -> FloatArray:
    """Read a table's rows (n, d) in a study's design, without labels; raises InvalidInputError if they do not fit."""
    rows = [matrix for matrix, _, _ in FeatureRows(path, study).blocks()]
    return np.concatenate([np.zeros((0, study.n_features)), *rows])


def read_labelled(path: Path, study: Study) -> FloatArray:
    """Read a table's examples (n, d + 1): rows in a study's design, their label last.

    Raises InvalidDataError if rows do not fit the study or all labels are the same.
    """
    shard = load_examples(path, study.of_rows, clip=True).shard
    if shard.y.min() == shard.y.max():
        raise InvalidDataError("the rows all have the same label: nothing can be learnt from them")
    return np.column_stack([shard.X, shard.y])


def read_start(path: Path, study: Study) -> FloatArray:
    """Find the weights (K or 1, d) of the model that fits a table's labelled rows, from which a run can start.

    Sparse features must come from a Parquet file. Raises InvalidInputError for a loss that has no minimiser to find,
    InvalidDataError if rows do not fit the study.
    """
    loss = build_loss(study)
    check_smooth(loss)
    shard = load_examples(path, study.of_rows, clip=True).shard
    allow_seconds(_FIT_SECONDS)
    return np.atleast_2d(minimise(loss, shard, np.asarray(_STRENGTH)))


def _check_size(task: TableTask, size: TableSize) -> None:
    """Raise TooLargeError for a table of too many numbers, counted in the file or in the study's design."""
    width = 1 if task.study.sparse else task.study.n_features + (task.kind != "rows")
    if max(size.cells, size.rows * width) > task.most:
        raise TooLargeError(
            f"the table may have at most {task.most:,} numbers: it has {size.rows:,} rows, of {width:,} numbers in the "
            f"study's columns, and {size.cells:,} cells in these"
        )


def _arrays() -> Iterator[AnyArray]:
    yield read_table(TableTask.model_validate_json(sys.stdin.buffer.read()))


if __name__ == "__main__":
    send_arrays(_arrays, TABLE_BOUNDS)
