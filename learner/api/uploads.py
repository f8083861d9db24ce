"""Reads tables that are bodies of requests, CSV or Parquet, in a child process within bounds, few at once.

The body goes to a file as it arrives, one body of each user at a time. Once all of it is there it waits for a place.
So there are never many children, and a slow body takes no place from others. The child (`parley.learner.api.tables`)
reads the file, and this process receives only the numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.requests import Request

from parley.common.arrays import FloatArray
from parley.common.data.study import Study
from parley.common.errors import ParleyError, UnavailableError, UnsupportedMediaError
from parley.common.extras import require_extra
from parley.common.service.child import receive_arrays
from parley.learner.api.table_task import TABLE_BOUNDS, Kind, TableTask
from parley.learner.storage.public_rows import MAX_BYTES

TABLE_MEDIA_TYPE = "application/octet-stream"
TABLE_BODY = {
    TABLE_MEDIA_TYPE: {
        "schema": {
            "type": "string",
            "format": "binary",
            "description": "a CSV or Parquet file, recognised by its first bytes",
        }
    }
}
"""The OpenAPI content of a body that is a table."""
_PARQUET = b"PAR1"
_MOST_NUMBERS = MAX_BYTES // 8
_AT_ONCE = 2
_PATIENCE = 5.0
"""Seconds that a request waits for its place."""
_READER = "parley.learner.api.tables"


class Uploads:
    """Reads uploaded tables, `_AT_ONCE` at a time."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(_AT_ONCE)

    @property
    def is_full(self) -> bool:
        """Whether another request must wait for a place."""
        return self._places.locked()

    async def read(self, request: Request, study: Study, kind: Kind) -> FloatArray:
        """Read the table in a request's body as ``kind`` says.

        Raises UnsupportedMediaError for another media type; UnavailableError if other tables take all places for too
        long; TooLargeError for more numbers than may be kept, or a table that takes too long or too much memory to
        read; InvalidInputError or InvalidDataError if rows do not fit the study.
        """
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != TABLE_MEDIA_TYPE:
            raise UnsupportedMediaError(f"the body must be {TABLE_MEDIA_TYPE}")
        folder = await asyncio.to_thread(TemporaryDirectory)
        try:
            path = await _received(request, Path(folder.name))
            task = TableTask(path=path, study=study, kind=kind, most=_MOST_NUMBERS)
            async with self._place():
                return await asyncio.to_thread(_read, task)
        finally:
            await asyncio.to_thread(folder.cleanup)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Hold one of the places; raises UnavailableError if none becomes free in time."""
        try:
            await asyncio.wait_for(self._places.acquire(), _PATIENCE)
        except TimeoutError:
            raise UnavailableError(
                "other tables are read at the moment: send this one again in some seconds", retry_after=round(_PATIENCE)
            ) from None
        try:
            yield
        finally:
            self._places.release()


async def _received(request: Request, folder: Path) -> Path:
    """Write a body to a file as it arrives."""
    part = folder / "body"
    with part.open("wb") as file:
        async for piece in request.stream():
            await asyncio.to_thread(file.write, piece)
    with part.open("rb") as file:
        kind = "parquet" if file.read(len(_PARQUET)) == _PARQUET else "csv"
    return part.rename(part.with_name(f"rows.{kind}"))


def _read(task: TableTask) -> FloatArray:
    """Have a child read the table; its error messages then name the body in place of the file."""
    require_extra("files", "a learner that reads tables")
    try:
        (array,) = receive_arrays(_READER, input_bytes=task.model_dump_json().encode(), bounds=TABLE_BOUNDS)
    except ParleyError as error:
        raise type(error)(error.detail.replace(f"data file {task.path}", "the body")) from None
    return array
