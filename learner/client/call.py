"""What a learner is asked, and how its answer is read: no input or output, so that threads and event loops share it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from parley.common.errors import InvalidInputError

Reading = TypeVar("Reading")


@dataclass(frozen=True, slots=True)
class Call(Generic[Reading]):
    """A request, and what to make of the answer's bytes: ``read`` may raise, ``body`` is any JSON value."""

    method: str
    path: str
    read: Callable[[bytes], Reading]
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The request as httpx takes it; raises InvalidInputError for what JSON, or a header, cannot say."""
        for name, value in self.headers.items():
            if not (value.isascii() and value.isprintable()):
                raise InvalidInputError(f"{name} may have printable ASCII characters only")
        sent: dict[str, Any] = {"method": self.method, "url": self.path, "headers": dict(self.headers)}
        if self.body is not None:
            sent["headers"]["Content-Type"] = "application/json"
        return sent | {"content": self.content if self.body is None else body_bytes(self.body)}


def run_path(run: str, part: str = "") -> str:
    """The path of a run, or of a part of it; raises InvalidInputError for what is no text, as a run itself is none."""
    if not isinstance(run, str):
        raise InvalidInputError(f"name a run by its identifier, as run.id is, not by a {type(run).__name__}")
    return f"/v1/runs/{quote(run, safe='')}{part and '/'}{part}"


def json_call(method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Call[Any]:
    """A call whose answer is any JSON value, or nothing."""
    return Call(method, path, lambda content: json.loads(content) if content else None, body, dict(headers or {}))


def upload_call(path: str, table: Path | str) -> Call[Any]:
    """The upload of a CSV or Parquet file; raises InvalidInputError for another file, or what is no path."""
    if not isinstance(table, Path | str):
        raise InvalidInputError(f"give the path of a CSV or Parquet file, not a {type(table).__name__}")
    table = Path(table)
    if table.suffix.lower() not in {".csv", ".parquet"} or not table.is_file():
        raise InvalidInputError(f"{table} is no CSV (.csv) or Parquet (.parquet) file that can be read")
    headers = {"Content-Type": "application/octet-stream"}
    return Call("PUT", path, json.loads, headers=headers, content=table.read_bytes())


def body_bytes(body: object) -> bytes:
    """A body in JSON; numbers and arrays of NumPy are numbers and lists, and every mapping is an object."""
    try:
        return json.dumps(body, allow_nan=False, default=_plain).encode()
    except ValueError:
        raise InvalidInputError("the request holds a number that is not finite") from None
    except TypeError:
        raise InvalidInputError("the request holds a value that JSON cannot say") from None


def _plain(value: Any) -> Any:  # noqa: ANN401 -- what JSON does not know, and what it does
    """A value of another library as Python's own; raises TypeError where there is none."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # NumPy's, which need not be loaded
        return value.tolist()
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError
