"""The client by which the command line asks a learner: it returns JSON values as the learner sent them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import httpx
import typer

from parley.common.routes import Route
from parley.common.service.commands import deferred
from parley.learner.client.connection import (
    BlockingConnection,
    json_call,
    not_a_learner,
    upload_call,
)

with deferred():
    from parley.common.encoding import number_lines

_PAGE = 1000


class LearnerClient(BlockingConnection):
    """A connection to the learner that returns plain JSON values."""

    def ask(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401
        """Send a request and return its JSON value, or None if the response is empty."""
        return self.send(json_call(method, path, body, headers))

    def pages(self, route: Route, items: str, limit: int | None = None) -> Iterator[Any]:
        """Yield the ``items`` of a list's pages in order, at most ``limit``; name damaged ones on standard error."""
        after: dict[str, object] = {}
        while limit is None or limit > 0:
            size = _PAGE if limit is None else min(limit, _PAGE)
            page = self.ask(*route.to({"limit": size} | after))
            yield from page[items]
            for item in page.get("damaged", ()):
                typer.echo(f"{item} is damaged in the learner's database: ask for it alone to see what helps", err=True)
            if page["next"] is None:
                return
            after, limit = {"after": page["next"]}, limit and limit - size

    def download(self, path: str, file: IO[bytes]) -> Any:  # noqa: ANN401 -- any JSON value
        """Write the response to a GET request into ``file``, and return its JSON value, as `read_lines` reads it."""
        try:
            with self._http.stream("GET", path) as response:
                if not response.is_success:
                    raise self._refusal(response, response.read())
                for piece in response.iter_bytes():
                    file.write(piece)
        except httpx.TransportError as error:
            raise self._unreachable(error) from None
        file.seek(0)
        try:
            return number_lines.read_lines(file)
        except ValueError:
            raise not_a_learner(self.url) from None

    def upload(self, path: str, table: Path) -> Any:  # noqa: ANN401 -- any JSON value
        """Upload a CSV or Parquet file and return the JSON value of the answer; raises InvalidInputError for others."""
        return self.send(upload_call(path, table))
