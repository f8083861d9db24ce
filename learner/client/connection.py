"""Requests to a learner's API over HTTP: `BlockingConnection` for threads, `AsyncConnection` for an event loop.

A `Call` is a request and the function that reads its answer. It does no input or output, so both connections send the
same calls; `api_call` makes a method of a client from a function that returns a `Call`.

A refused request raises the exception that the service raised: its problem document names it (`refusal_by`).

A run is watched as a stream of events over a connection that may break. `Watching` keeps how far the stream has come,
what to ask for after a break, and how long to wait before that; the connections carry the bytes.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import re
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import update_wrapper, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

import httpx

from parley.common import errors as parley_errors
from parley.common.errors import InvalidInputError, ParleyError, SecureSumError, UnavailableError
from parley.common.service.http.proxy import DENIALS, ProxyAccess, spell_hosts, spell_hosts_async
from parley.common.strict import is_loopback
from parley.learner.api.routes import WATCH_RUN
from parley.learner.client.token import read_token
from parley.learner.runs.states import ENDS, RunEvent

if TYPE_CHECKING:
    from parley.learner.runs.news import AnyEvent

Reading = TypeVar("Reading")
_Transport = TypeVar("_Transport", httpx.BaseTransport, httpx.AsyncBaseTransport)
Given = ParamSpec("Given")


# ── calls ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Call(Generic[Reading]):
    """A request, and the function that reads its answer: ``read`` may raise ValueError, ``body`` is any JSON value."""

    method: str
    path: str
    read: Callable[[bytes], Reading]
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The request as httpx takes it; raises InvalidInputError for what JSON or a header cannot hold."""
        for name, value in self.headers.items():
            if not (value.isascii() and value.isprintable()):
                raise InvalidInputError(f"{name} may have printable ASCII characters only")
        sent: dict[str, Any] = {"method": self.method, "url": self.path, "headers": dict(self.headers)}
        if self.body is not None:
            sent["headers"]["Content-Type"] = "application/json"
        return sent | {"content": self.content if self.body is None else body_bytes(self.body)}


def json_call(method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Call[Any]:
    """Return a call whose answer is any JSON value, or nothing."""
    return Call(method, path, lambda content: json.loads(content) if content else None, body, dict(headers or {}))


def key_header(key: str | None) -> dict[str, str]:
    """Return the header by which a repeated request makes no second run; none without a key."""
    return {"Idempotency-Key": key} if key else {}


def upload_call(path: str, table: Path | str) -> Call[Any]:
    """Return the call that uploads a CSV or Parquet file; raises InvalidInputError for another file or no path."""
    if not isinstance(table, Path | str):
        raise InvalidInputError(f"give the path of a CSV or Parquet file, not a {type(table).__name__}")
    table = Path(table)
    if table.suffix.lower() not in {".csv", ".parquet"} or not table.is_file():
        raise InvalidInputError(f"{table} is no CSV (.csv) or Parquet (.parquet) file that can be read")
    headers = {"Content-Type": "application/octet-stream"}
    return Call("PUT", path, json.loads, headers=headers, content=table.read_bytes())


def body_bytes(body: object) -> bytes:
    """Return a body in JSON: NumPy's numbers and arrays as numbers and lists, every mapping as an object."""
    try:
        return json.dumps(body, allow_nan=False, default=_plain).encode()
    except ValueError:
        raise InvalidInputError("the request holds a number that is not finite") from None
    except TypeError:
        raise InvalidInputError("the request holds a value that JSON cannot say") from None


def _plain(value: Any) -> Any:  # noqa: ANN401 -- what JSON does not know, and what it does
    """Return a value of another library as one of Python's; raises TypeError if it has no such form."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # NumPy's, which need not be loaded
        return value.tolist()
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError


# ── problem documents ────────────────────────────────────────────────────────

_PREFIX = "urn:parley:problem:"
_NO_FACTS = frozenset({"type", "title", "status", "detail", "self"})  # the last is no name for a fact
_BY_KIND = {
    error.kind: error
    for error in vars(parley_errors).values()
    if isinstance(error, type) and issubclass(error, ParleyError)
}
"""The exceptions by problem type; a type that is not here becomes `ParleyError`."""


def refusal_of(status: int, content: bytes) -> ParleyError:
    """Return the exception for an answer without success: that of its problem document, if it holds one."""
    document = _document(content)
    return ParleyError(f"HTTP status {status}", problem=None) if document is None else refusal_by(document)


def refusal_by(document: dict[str, Any]) -> ParleyError:
    """Return the exception of a problem document, with its fields as ``facts``, and itself as ``facts["problem"]``."""
    kind = str(document["type"]).removeprefix(_PREFIX)
    error = _BY_KIND.get(kind, ParleyError)
    facts: dict[str, Any] = {name: fact for name, fact in document.items() if name not in _NO_FACTS}
    if issubclass(error, SecureSumError):
        facts["reason"] = str(facts.get("reason", ""))
    return error(_words(document), **facts | {"problem": document})


def _document(content: bytes) -> dict[str, Any] | None:
    """Parse a problem document; None for anything that is none."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not {"type", "detail"} <= document.keys():
        return None
    return document


def _words(document: dict[str, Any]) -> str:
    """Return the document's detail, then each field of the request that was wrong and why."""
    errors = document.get("errors")
    faults = [
        f"{'.'.join(map(str, fault['loc']))} {fault['reason']}"
        for fault in (errors if isinstance(errors, list) else ())
        if isinstance(fault, dict) and isinstance(fault.get("loc"), list) and "reason" in fault
    ]
    return "; ".join([str(document["detail"]), *faults])


# ── watching a run ───────────────────────────────────────────────────────────

PATIENCE = 60.0
"""Seconds without an answer before a watcher gives up, unless it says otherwise."""
_FIRST, _LONGEST = 0.1, 5.0  # seconds between attempts
AWAY = frozenset({502, 503, 504})
"""HTTP statuses that a learner which is being restarted may show, and a proxy before it."""


@dataclass(slots=True)
class EventParser:
    """Parses the lines of a stream of server-sent events."""

    _fields: dict[str, str] = field(default_factory=dict)

    def take(self, line: str) -> AnyEvent | None:
        """Take a line; return the event that it ends, if it ends one."""
        name, _, value = line.partition(": ")
        if line and name:
            self._fields[name] = value
        if line or not {"data", "event", "id"} <= self._fields.keys():
            return None
        fields, self._fields = self._fields, {}
        return cast("AnyEvent", RunEvent(int(fields["id"]), fields["event"], fields["data"]))


def parse_events(lines: Iterable[str]) -> Iterator[AnyEvent]:
    """Yield the server-sent events of a stream's lines.

    >>> list(parse_events([": ping", "", "event: state", "data: {}", "id: 3", ""]))
    [RunEvent(number=3, kind='state', data='{}')]
    """
    parser = EventParser()
    yield from (event for line in lines if (event := parser.take(line)) is not None)


@dataclass(slots=True)
class Watching:
    """The progress of watching a run.

    ``patience`` is how many seconds may pass without a word from the learner, once the connection is lost.
    """

    run: str
    patience: float = PATIENCE
    has_ended: bool = False
    _after: int = 0
    _pause: float = _FIRST
    _lost: float | None = None
    _parser: EventParser = field(default_factory=EventParser)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that ask for the events after the last one that came."""
        self._parser = EventParser()  # half an event that was cut off is sent again
        return {"Last-Event-ID": str(self._after), "Accept": "text/event-stream"}

    def take(self, line: str) -> Iterator[AnyEvent]:
        """Take a line of the stream; yield the event that it ends, unless that has come before."""
        self._lost = None
        event = self._parser.take(line)
        if event is None or event.number <= self._after:
            return
        self._after, self._pause = event.number, _FIRST
        self.has_ended = event.kind == "state" and event.news.get("state") in ENDS
        yield event

    def pause(self, error: ParleyError) -> float:
        """Return the seconds to wait before asking again, longer each time; raises the error once patience is spent."""
        now = time.monotonic()
        self._lost = self._lost or now
        if now - self._lost >= self.patience:
            raise error
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311 -- so that watchers do not return as one
        self._pause = min(2 * self._pause, _LONGEST)
        return min(pause, max(self._lost + self.patience - now, 0.0))


# ── connections ──────────────────────────────────────────────────────────────

PROXY = "PARLEY_PROXY"
"""The environment's variable that names the HTTP proxy between users and learners beyond this machine."""

_PROXYS_OWN = frozenset({407, 502, 504})
"""HTTP statuses that a proxy answers to a request for a plain HTTP learner, with a page of its own."""
_SIGNS = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted here, or has expired: name its authority, by --ca "
    "or PARLEY_CA",
    "WRONG_VERSION_NUMBER": "it does not speak TLS: is it http://?",
    "Name or service not known": "nobody here knows this name",
}
"""Texts in errors of connections, and what they most likely mean."""
_ZONE = re.compile(r"^(\w+://\[[^]%]+)%25")
"""Matches the zone of an IPv6 address as RFC 6874 spells it, ``%25eth0``; httpx takes ``%eth0``."""
_TIMEOUT = httpx.Timeout(10.0, read=60.0)


def checked_url(url: str) -> str:
    """Return a learner's address as httpx spells it; raises InvalidInputError for what is none."""
    try:
        url = _ZONE.sub(r"\1%", url)
        scheme, host = httpx.URL(url).scheme, httpx.URL(url).host
    except (httpx.InvalidURL, TypeError):  # the second of what is no text
        scheme = host = ""
    if scheme not in {"http", "https"} or not host:
        raise InvalidInputError(f"the learner's address must begin with http:// or https://, not be {str(url)[:200]!r}")
    return url


def proxy_for(url: str, proxy: str | None) -> ProxyAccess | None:
    """Return ``proxy``, or if it is None that of PARLEY_PROXY, which does not count for this machine itself.

    Raises InvalidInputError for what is no proxy.
    """
    if proxy is None and not is_loopback(httpx.URL(url).host):
        proxy = os.environ.get(PROXY)
    return ProxyAccess.of(proxy) if proxy else None


def options_of(url: str, token: str, tls: ssl.SSLContext, proxy: ProxyAccess | None) -> dict[str, Any]:
    """Return the options of a client of httpx."""
    headers = {"Authorization": f"Bearer {token}"}
    return {
        "base_url": url,
        "headers": headers,
        "proxy": proxy and proxy.for_client(),
        "trust_env": False,
        "verify": tls,
        "timeout": _TIMEOUT,
    }


def tls_of(ca: Path | str | None, certificate: Path | str | None, key: Path | str | None) -> ssl.SSLContext:
    """Return TLS with the user's authority and certificate, or with the authorities of this machine and SSL_CERT_FILE.

    Raises InvalidInputError for files that cannot be used.
    """
    if ca is certificate is None:
        return ssl.create_default_context()
    from parley.common.service.http.tls import client_context  # noqa: PLC0415 -- most users need none of it

    return client_context(*(None if file is None else Path(file) for file in (ca, certificate, key)))


def not_a_learner(url: str) -> ParleyError:
    """Return the error for a service that is no learner."""
    return ParleyError(f"what answers at {url} is no learner of this version of Parley", problem=None)


def cut_off(run: str) -> UnavailableError:
    """Return the error for a stream of events that ended before its run did."""
    return UnavailableError(f"the learner ends the news of run {run[:100]} before the run has ended")


class _Connection(ABC, Generic[_Transport]):
    """What blocking and asynchronous clients share; `BlockingConnection` says what they take."""

    def __init__(  # noqa: PLR0913 -- a keyword each
        self,
        url: str,
        token: str | None = None,
        transport: _Transport | None = None,
        *,
        token_file: Path | str | None = None,
        ca: Path | str | None = None,
        certificate: Path | str | None = None,
        key: Path | str | None = None,
        proxy: str | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.url, self.patience = url, patience
        address = checked_url(url)
        self._proxy = proxy_for(address, proxy)
        options = options_of(address, read_token(token, token_file), tls_of(ca, certificate, key), self._proxy)
        self._open(options | {"transport": transport})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        """Return the connection itself: copies share it, as copies of an estimator share a parameter."""
        return self

    def _read(self, call: Call[Reading], response: httpx.Response) -> Reading:
        """Read an answer; raises the exception of a refusal, and ParleyError for an answer that no learner gives."""
        if not response.is_success:
            raise self._refusal(response, response.content)
        try:
            return call.read(response.content)
        except ValueError:  # no JSON, or other fields
            raise not_a_learner(self.url) from None

    def _refusal(self, response: httpx.Response, content: bytes) -> ParleyError:
        """Return the exception for an answer without success, which may be the proxy's own."""
        if self._proxy and response.status_code in _PROXYS_OWN and _document(content) is None:
            answer = f"{response.status_code} {response.reason_phrase}"
            return UnavailableError(self._proxy.refusal(answer, self.url))
        return refusal_of(response.status_code, content)

    def _unreachable(self, error: httpx.TransportError) -> UnavailableError:
        """Return the error for a learner, or a proxy, that does not answer, with a hint if the cause is clear."""
        cause = str(error)
        if self._proxy and isinstance(error, httpx.ProxyError):
            return UnavailableError(self._proxy.refusal(cause, self.url))
        if self._proxy and isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) and "SSL" not in cause:
            return UnavailableError(f"the proxy {self._proxy.url} cannot be reached ({type(error).__name__})")
        hints = [words for sign, words in _SIGNS.items() if sign in cause]
        if isinstance(error, httpx.RemoteProtocolError) and self.url.startswith("http://"):
            hints.append("is it https://?")
        if is_loopback(httpx.URL(self.url).host):
            hints.append("start it by parley-learner serve, or say by PARLEY_URL or --url where it is")
        hint = "".join(f": {words}" for words in hints[:1])
        way = f" through the proxy {self._proxy.url}" if self._proxy else ""
        return UnavailableError(f"no learner answers at {self.url}{way} ({type(error).__name__}){hint}")

    def _lost(self, error: httpx.TransportError) -> UnavailableError:
        """Return the error for a lost connection that may come back; raises it if a proxy wants another password."""
        lost = self._unreachable(error)
        if isinstance(error, httpx.ProxyError) and str(error).startswith(DENIALS):
            raise lost
        return lost

    @abstractmethod
    def _open(self, options: dict[str, Any]) -> None:
        """Make the client of httpx with these options; it sends nothing yet."""


class BlockingConnection(_Connection[httpx.BaseTransport]):
    """The learner at ``url``, as the user whose ``token`` this is; without it, `read_token` reads one.

    An https learner needs a certificate by the authority ``ca``; without ``ca``, by one that this machine trusts or
    the file SSL_CERT_FILE holds. ``certificate`` and ``key`` (PEM files) are the user's own, for a proxy that wants to
    see one. ``proxy`` is the HTTP proxy on the way, http://host:port or http://user:password@host:port, by default
    PARLEY_PROXY. ``patience`` is how many seconds `watch` asks again. A ``transport`` of httpx replaces the network in
    tests.

    All methods raise UnavailableError if no learner answers, and otherwise the exception of the learner's problem
    document: that of `parley.common.errors` whose ``kind`` it names, with its fields as ``facts``.
    """

    def _open(self, options: dict[str, Any]) -> None:
        self._http = httpx.Client(event_hooks={"request": [spell_hosts]}, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the learner."""
        self._http.close()

    def send(self, call: Call[Reading]) -> Reading:
        """Send a call and read its answer."""
        try:
            response = self._http.request(**call.options)
        except httpx.TransportError as error:
            raise self._unreachable(error) from None
        return self._read(call, response)

    def watch(self, run: str) -> Iterator[AnyEvent]:
        """Yield a run's events from its first to its end, as they come; each once, however often the connection breaks.

        A learner that is away, or restarts, is asked again, ever less often, until ``patience`` is spent.
        """
        watching = Watching(run, self.patience)
        while not watching.has_ended:
            try:
                with self._http.stream(*WATCH_RUN.to(run=run), headers=watching.headers) as response:
                    if response.is_success:
                        for line in response.iter_lines():
                            yield from watching.take(line)
                        lost: ParleyError = cut_off(run)
                    else:
                        lost = self._refusal(response, response.read())
                        if response.status_code not in AWAY:
                            raise lost
            except httpx.TransportError as error:
                lost = self._lost(error)
            if not watching.has_ended:
                time.sleep(watching.pause(lost))


class AsyncConnection(_Connection[httpx.AsyncBaseTransport]):
    """A `BlockingConnection` for an event loop: its methods are coroutines."""

    def _open(self, options: dict[str, Any]) -> None:
        self._http = httpx.AsyncClient(event_hooks={"request": [spell_hosts_async]}, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to the learner."""
        await self._http.aclose()

    async def send(self, call: Call[Reading]) -> Reading:
        """Send a call and read its answer."""
        try:
            response = await self._http.request(**call.options)
        except httpx.TransportError as error:
            raise self._unreachable(error) from None
        return self._read(call, response)

    async def watch(self, run: str) -> AsyncIterator[AnyEvent]:
        """Yield a run's events as `BlockingConnection.watch` does."""
        import asyncio  # noqa: PLC0415 -- 40 modules, without which commands and blocking clients start faster

        watching = Watching(run, self.patience)
        while not watching.has_ended:
            try:
                async with self._http.stream(*WATCH_RUN.to(run=run), headers=watching.headers) as response:
                    if response.is_success:
                        async for line in response.aiter_lines():
                            for event in watching.take(line):
                                yield event
                        lost: ParleyError = cut_off(run)
                    else:
                        lost = self._refusal(response, await response.aread())
                        if response.status_code not in AWAY:
                            raise lost
            except httpx.TransportError as error:
                lost = self._lost(error)
            if not watching.has_ended:
                await asyncio.sleep(watching.pause(lost))


class api_call(Generic[Given, Reading]):  # noqa: N801 -- a decorator
    """Makes a client's method of one that returns a `Call`: it sends the call, and returns or awaits the answer."""

    def __init__(self, call: Callable[Concatenate[Any, Given], Call[Reading]]) -> None:
        self.call = call
        self._method = self._sending()
        update_wrapper(self, call)  # type: ignore[arg-type]  # it is documented as one

    @overload
    def __get__(self, client: None, kind: type) -> Callable[Concatenate[Any, Given], Reading]: ...
    @overload
    def __get__(self, client: BlockingConnection, kind: type) -> Callable[Given, Reading]: ...
    @overload
    def __get__(self, client: AsyncConnection, kind: type) -> Callable[Given, Awaitable[Reading]]: ...
    def __get__(self, client: Any, kind: type) -> Any:
        """Return the method of a client or its class; its docstring and its arguments are the call's."""
        return self._method if client is None else self._method.__get__(client, kind)

    def _sending(self) -> Callable[..., Any]:
        """Return the function that sends the call, with a signature that returns the answer."""

        @wraps(self.call)
        def send(client: Any, /, *args: Any, **options: Any) -> Any:  # noqa: ANN401 -- as the call and the client have it
            return client.send(self.call(client, *args, **options))

        signature = inspect.signature(self.call)
        answer = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
        vars(send)["__signature__"] = signature.replace(return_annotation=answer)
        return send
