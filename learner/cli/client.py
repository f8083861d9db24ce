"""A user's side of the learner's API, for the command line."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import httpx

from common.errors import InvalidInputError, ParleyError, UnavailableError
from learner.run import RunEvent

_PATIENCE = 30.0  # seconds without the learner before a watcher gives up
_PAUSE = 0.5
_PAGE = 1000
_TIMEOUT = httpx.Timeout(10.0, read=60.0)


class LearnerClient:
    """The learner at ``url``, as the user whose token this is.

    An https learner needs a certificate by an authority that this machine trusts, or that the file SSL_CERT_FILE holds.

    All methods raise UnavailableError when the learner cannot be reached, and ParleyError with the words of its problem
    document, and the document itself as ``facts["problem"]``, when it refuses.
    """

    def __init__(self, url: str, token: str, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
            verify=ssl.create_default_context(),
            timeout=_TIMEOUT,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401
        """The JSON value that a request returns."""
        try:
            response = self._http.request(method, path, json=body, headers=dict(headers or {}))
        except httpx.TransportError as error:
            raise self._unreachable(error) from None
        return _checked(response).json()

    def tell(self, method: str, path: str, body: object = None) -> None:
        """A request that returns nothing."""
        try:
            _checked(self._http.request(method, path, json=body))
        except httpx.TransportError as error:
            raise self._unreachable(error) from None

    def pages(self, path: str, items: str, limit: int | None = None) -> Iterator[Any]:
        """The ``items`` of a list's pages, in order: so many at most, or all."""
        after: dict[str, str] = {}
        while limit is None or limit > 0:
            size = _PAGE if limit is None else min(limit, _PAGE)
            page = self.ask("GET", f"{path}?{urlencode({'limit': size} | after)}")
            yield from page[items]
            if page["next"] is None:
                return
            after, limit = {"after": page["next"]}, limit and limit - size

    def upload(self, path: str, table: Path) -> Any:  # noqa: ANN401 -- any JSON value
        """The JSON value that an upload of a CSV or Parquet file returns; raises InvalidInputError for another file."""
        if table.suffix.lower() not in {".csv", ".parquet"} or not table.is_file():
            raise InvalidInputError(f"{table} is no CSV (.csv) or Parquet (.parquet) file that can be read")
        try:
            response = self._http.put(
                path, content=table.read_bytes(), headers={"Content-Type": "application/octet-stream"}
            )
        except httpx.TransportError as error:
            raise self._unreachable(error) from None
        return _checked(response).json()

    def watch(self, run: str) -> Iterator[RunEvent]:
        """A run's events to its end; a broken connection is taken up where it broke."""
        after, since = 0, time.monotonic()
        while True:
            try:
                for event in self._events(run, after):
                    after, since = event.number, time.monotonic()
                    yield event
            except httpx.TransportError as error:
                if time.monotonic() - since > _PATIENCE:
                    raise self._unreachable(error) from None
                time.sleep(_PAUSE)
            else:
                return

    def _events(self, run: str, after: int) -> Iterator[RunEvent]:
        headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
        with self._http.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
            if not response.is_success:
                response.read()
            yield from parse_events(_checked(response).iter_lines())

    def _unreachable(self, error: httpx.TransportError) -> UnavailableError:
        return UnavailableError(f"no learner answers at {self.url} ({type(error).__name__})")


def parse_events(lines: Iterable[str]) -> Iterator[RunEvent]:
    """The server-sent events of a stream's lines.

    >>> list(parse_events([": ping", "", "event: state", "data: {}", "id: 3", ""]))
    [RunEvent(number=3, kind='state', data='{}')]
    """
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line and name:
            fields[name] = value
        elif not line and "data" in fields:
            yield RunEvent(int(fields["id"]), fields["event"], fields["data"])
            fields = {}


def _checked(response: httpx.Response) -> httpx.Response:
    """The response, if it says success."""
    if response.is_success:
        return response
    try:
        problem = json.loads(response.content)
        detail = problem["detail"]
    except (ValueError, KeyError, TypeError):
        raise ParleyError(f"HTTP status {response.status_code}", problem=None) from None
    faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['type']}" for fault in problem.get("errors", ())]
    raise ParleyError("; ".join([detail, *faults]), problem=problem)
