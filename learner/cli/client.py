"""The client by which the command line asks a learner: it returns JSON values as the learner sent them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import httpx
import typer

from parley.common.errors import NotFoundError
from parley.common.routes import Route
from parley.common.service.commands import deferred
from parley.learner.api.routes import LIST_RUNS
from parley.learner.client.connection import (
    BlockingConnection,
    Call,
    Reading,
    json_call,
    not_a_learner,
    upload_call,
)

with deferred():
    from parley.common.encoding import number_lines

if TYPE_CHECKING:
    from parley.learner.runs.news import AnyEvent

_PAGE = 1000
_SHORTENED = re.compile(r"/v1/runs/([0-9a-f]{4,31})(?=[/?]|$)")
"""The path of a run, with the first characters of its identifier."""


class LearnerClient(BlockingConnection):
    """A connection to the learner that returns plain JSON values.

    A run may be named by the first characters of its identifier, four or more, if no other of the newest begins so.
    """

    def send(self, call: Call[Reading]) -> Reading:
        """Send a call and read its answer."""
        try:
            return super().send(call)
        except NotFoundError as error:
            return super().send(replace(call, path=self._completed(call.path, error)))

    def watch(self, run: str) -> Iterator[AnyEvent]:
        """Yield a run's events from its first to its end, as they come."""
        try:
            yield from super().watch(run)
        except NotFoundError as error:
            yield from super().watch(self._completed(f"/v1/runs/{run}", error).rpartition("/")[2])

    def _completed(self, path: str, error: NotFoundError) -> str:
        """Return a path with all of a run's identifier; raises NotFoundError unless just one run begins so."""
        if path.startswith("/v1/runs/") and error.detail.startswith("there is no run"):
            error = NotFoundError(f"{error.detail}; parley-learner list shows those there are", **error.facts)
        if (given := _SHORTENED.match(path)) is None:
            raise error
        runs = super().send(json_call(*LIST_RUNS.to({"limit": _PAGE})))["runs"]
        found = [run["id"] for run in runs if run["id"].startswith(given[1])]
        if len(found) > 1:
            raise NotFoundError(f"{len(found)} runs begin with {given[1]}: say more of the identifier")
        if not found:
            raise error
        return f"/v1/runs/{found[0]}{path[given.end() :]}"

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
                    refusal = self._refusal(response, response.read())
                    if isinstance(refusal, NotFoundError):
                        return self.download(self._completed(path, refusal), file)
                    raise refusal
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
