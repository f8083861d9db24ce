"""Tables as bodies of requests: CSV or Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.requests import Request

from common.arrays import FloatArray
from common.data.records import rows_of
from common.data.study import Study
from common.errors import InvalidInputError, UnsupportedMediaError
from common.files.tables import read_columns

_SUFFIXES: Mapping[str, str] = {"text/csv": ".csv", "application/vnd.apache.parquet": ".parquet"}
TABLE_BODY = {media: {"schema": {"type": "string", "format": "binary"}} for media in _SUFFIXES}
"""The OpenAPI content of a body that is a table."""


def table_suffix(request: Request) -> str:
    """How a file of the body's media type ends; raises UnsupportedMediaError for any other."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _SUFFIXES:
        raise UnsupportedMediaError(f"the body must be {' or '.join(_SUFFIXES)}")
    return _SUFFIXES[media_type]


def read_rows(body: bytes, suffix: str, study: Study) -> FloatArray:
    """A table's rows (n, d) in a study's design, without labels; raises InvalidInputError for what does not fit."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{suffix}"
        path.write_bytes(body)
        columns = read_columns(path)
    if missing := [name for name in study.feature_names if name not in columns]:
        raise InvalidInputError(f"columns missing from the rows: {', '.join(missing[:5])}")
    cells = zip(*(columns[name].tolist() for name in study.feature_names), strict=True)
    return rows_of(study, [dict(zip(study.feature_names, row, strict=True)) for row in cells])
