"""Tables as bodies of requests: CSV or Parquet."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.requests import Request

from common.arrays import FloatArray
from common.data.records import rows_of
from common.data.study import Study
from common.errors import InvalidInputError, UnsupportedMediaError
from common.files.tables import read_columns

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


def check_table(request: Request) -> None:
    """Raise UnsupportedMediaError unless a body says that it is a file."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != TABLE_MEDIA_TYPE:
        raise UnsupportedMediaError(f"the body must be {TABLE_MEDIA_TYPE}")


def read_rows(body: bytes, study: Study) -> FloatArray:
    """A table's rows (n, d) in a study's design, without labels; raises InvalidInputError for what does not fit."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{'.parquet' if body.startswith(_PARQUET) else '.csv'}"
        path.write_bytes(body)
        columns = read_columns(path)
    if missing := [name for name in study.feature_names if name not in columns]:
        raise InvalidInputError(f"columns missing from the rows: {', '.join(missing[:5])}")
    cells = zip(*(columns[name].tolist() for name in study.feature_names), strict=True)
    return rows_of(study, [dict(zip(study.feature_names, row, strict=True)) for row in cells])
