"""Tables as bodies of requests: CSV or Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from starlette.requests import Request

from common.arrays import FloatArray
from common.data.records import rows_of
from common.data.study import Study
from common.errors import InvalidDataError, InvalidInputError, UnsupportedMediaError
from common.files.examples import load_examples
from common.files.tables import read_columns
from common.learning.erm import check_smooth, minimise
from common.learning.losses import build_loss

TABLE_MEDIA_TYPE = "application/octet-stream"
TABLE_BODY = {
    TABLE_MEDIA_TYPE: {
        "schema": {
            "type": "string",
            "format": "binary",
            "description": "a CSV or Parquet file, told by its first bytes",
        }
    }
}
"""The OpenAPI content of a body that is a table."""
_PARQUET = b"PAR1"
_STRENGTH = 0.1  # lambda n: little more than makes a minimiser one


def check_table(request: Request) -> None:
    """Raise UnsupportedMediaError unless a body says that it is a file."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != TABLE_MEDIA_TYPE:
        raise UnsupportedMediaError(f"the body must be {TABLE_MEDIA_TYPE}")


def read_start(body: bytes, study: Study) -> FloatArray:
    """Weights (K or 1, d) of the model that fits a table's labelled rows: to start a run from.

    Of sparse features from a Parquet file. Raises InvalidInputError for a loss that has no minimiser to find,
    InvalidDataError for what does not fit the study.
    """
    loss = build_loss(study)
    check_smooth(loss)
    with _file(body) as path:
        shard = load_examples(path, study, clip=True).shard
    return np.atleast_2d(minimise(loss, shard, np.asarray(_STRENGTH)))


def read_labelled(body: bytes, study: Study) -> FloatArray:
    """A table's examples (n, d + 1): rows in a study's design, their label last.

    Raises InvalidDataError for what does not fit the study, and for labels that are all the same.
    """
    _check_dense(study)
    with _file(body) as path:
        shard = load_examples(path, study, clip=True).shard
    if shard.y.min() == shard.y.max():
        raise InvalidDataError("the rows all have the same label: nothing is to be learnt from them")
    return np.column_stack([shard.X, shard.y])


def read_rows(body: bytes, study: Study) -> FloatArray:
    """A table's rows (n, d) in a study's design, without labels; raises InvalidInputError for what does not fit."""
    _check_dense(study)
    with _file(body) as path:
        columns = read_columns(path)
    if missing := [name for name in study.feature_names if name not in columns]:
        raise InvalidInputError(f"columns missing from the rows: {', '.join(missing[:5])}")
    cells = zip(*(columns[name].tolist() for name in study.feature_names), strict=True)
    return np.asarray(rows_of(study, [dict(zip(study.feature_names, row, strict=True)) for row in cells]))


def _check_dense(study: Study) -> None:
    """Raise InvalidInputError for sparse features: no algorithm that asks about rows takes them."""
    if study.sparse:
        raise InvalidInputError(
            "the study's features are sparse, and public rows are dense: no algorithm asks for them"
        )


@contextmanager
def _file(body: bytes) -> Iterator[Path]:
    """A body as a file, for as long as it is read; what is said of the file is said of the body."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{'.parquet' if body.startswith(_PARQUET) else '.csv'}"
        path.write_bytes(body)
        try:
            yield path
        except InvalidDataError as error:
            raise InvalidDataError(error.detail.replace(f"data file {path}", "the body")) from None
