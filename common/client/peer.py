"""The services that the learner asks: a warm connection each, receipts, and errors that name the service.

A request goes one way: `Peer._request` shows the newest receipt and checks the one that comes with the response (see
`parley.common.protocol.receipts`), `Peer._send` waits for as long as the peer asked for, traces the request and maps
what fails to an error, and `Line.ask` shows the token.

Whether a request is worth repeating is in the error's type. An `UnavailableError` means no answer, or one that says not
now: the peer may yet answer, and a repeated request gets the same stored answer at no cost. A `RefusedError` means that
it did answer, and that asking again would not change a thing.

A peer may be an adversary: the bytes and values of its JSON are counted before they are parsed (`parse_answer`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from parley.common.client.endpoints import PeerEntry
from parley.common.client.transport import LONGEST_ANSWER, Connections, PeerRequest, PeerResponse, Transport
from parley.common.encoding.canonical_json import JSON, check_counts
from parley.common.errors import (
    AwaitingOwnerError,
    InvalidInputError,
    LedgerError,
    ParleyError,
    RefusedError,
    TooLargeError,
    UnavailableError,
)
from parley.common.protocol.receipts import RECEIPT_HEADER, HeldReceipts, Receipt, ReceiptKeeper
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.errors import MessageError, SignatureError
from parley.common.secure_sum.messages import Roster
from parley.common.service.http.bodies import SIGNED_MEDIA_TYPE as SIGNED
from parley.common.service.http.tls import client_context
from parley.common.service.logs import forwarded
from parley.common.service.tracing import traced_request
from parley.common.strict import one_line
from parley.common.wire.key_holder_api import Signature

M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound="Peer")
_T = TypeVar("_T")

_LONGEST, _MOST_VALUES = 2**22, 2**16  # bytes, and values: the longest are a thousand receipts
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds between attempts: doubled each time
_LONGEST_REST = 60.0  # seconds for which a peer may ask to be left alone
_STOPPED = 0.1  # seconds by which a deadline is noticed late where this process did not run meanwhile
_NOT_NOW = frozenset({400, 401, 408, 425, 429})
"""Statuses below 500 after which a repeated request may succeed: the request came garbled (one that is read but wrong
gets 422), its token is being changed, it was cut short, it was too early, or there were too many."""
_NEVER = frozenset({LedgerError.kind})
"""Kinds of problems after which repeating does not help, for any status."""
_LONGEST_REASON = 500  # characters of a peer's own words
_LONGEST_PROBLEM = 2**16  # bytes of a problem document
_RECEIPT = RECEIPT_HEADER.lower().encode()
_LEFT = ("epsilon_left", "delta_left")  # what a party says when its budget does not suffice


def parse_answer(schema: type[M], content: bytes) -> M:
    """Parse an answer in JSON; raises ValidationError for another form, TooLargeError beyond the limits of any answer.

    Unknown names count too: reporting each takes a hundred times its bytes.
    """
    if len(content) > _LONGEST:
        raise TooLargeError(f"an answer in JSON may have at most {_LONGEST} bytes")
    check_counts(content, _MOST_VALUES, _MOST_VALUES)
    return schema.model_validate_json(content)


class Peer:
    """A service that keeps a chain of records: each request shows it a receipt, each answer has a newer one.

    ``role`` is its name in problem documents; its methods raise UnavailableError or ``refusal``. ``receipt`` is its
    newest receipt at first, and ``key`` its public key, or None to take the key of its first receipt. ``receipts`` has
    the newest receipt from then on.
    """

    role: ClassVar[str]
    refusal: ClassVar[type[RefusedError]]

    def __init__(self, name: str, line: Line, receipt: Receipt | None = None, key: str | None = None) -> None:
        self.name = name
        self.receipts = ReceiptKeeper(name, key, receipt)
        self._line = line
        self._rests_until = 0.0  # by the event loop's clock

    async def close(self) -> None:
        """Close the line's connections."""
        await self._line.close()

    def ask_over(self, line: Line) -> None:
        """Ask over another line from now on, because the service has a new token."""
        self._line = line

    def refuse(self, reason: str, detail: str, **facts: object) -> RefusedError:
        """Return the error that says that this peer's answer cannot be used."""
        return self.refusal(f"{self.name} refused: {detail}", reason=reason, **{self.role: self.name}, **facts)

    async def stored_receipts(self) -> Sequence[str]:
        """Return the receipts of other services that it stores."""
        content, _ = await self._request("GET", "/v1/receipts")
        return self._parse(HeldReceipts, content).receipts

    async def store_receipts(self, texts: Sequence[str]) -> None:
        """Make it store receipts of other services; it keeps the newest of each whose key it has."""
        await self._request("PUT", "/v1/receipts", HeldReceipts(receipts=tuple(texts)).model_dump_json().encode())

    async def _request(  # noqa: PLR0913 -- a request, and what its response must be
        self,
        method: str,
        path: str,
        body: bytes = b"",
        media: str = JSON,
        *,
        query: tuple[str, int, str] | None = None,
        longest: int = LONGEST_ANSWER,
    ) -> tuple[bytes, Receipt]:
        """Return the body of a successful response, and its receipt, which continues from the newest one before.

        The peer first accounts for receipts of it that others handed on. In a round, the receipt binds the body to the
        ``query``: run, round and digest of what is asked.
        """
        for unsettled in tuple(self.receipts.unsettled.values()):
            await self._account_for(unsettled)
        newest = self.receipts.newest
        response = await self._send(method, path, body, media, newest, longest)
        try:
            receipt = self.receipts.take(_header(response, _RECEIPT), newest, query, response.content)
        except LedgerError as error:
            raise self.refuse(LedgerError.kind, error.detail) from None
        return response.content, receipt

    async def _account_for(self, receipt: Receipt) -> None:
        """Make the peer confirm that its ledger holds, or has replaced, the history of one of its receipts.

        A peer that cannot confirm it refuses all requests from then on, of every service.
        """
        response = await self._send("GET", "/v1/receipts", shown=receipt)
        try:
            self.receipts.settle(_header(response, _RECEIPT), receipt)
        except LedgerError as error:
            raise self.refuse(LedgerError.kind, error.detail) from None

    async def _send(  # noqa: PLR0913, PLR0917 -- a request
        self,
        method: str,
        path: str,
        body: bytes = b"",
        media: str = JSON,
        shown: Receipt | None = None,
        longest: int = LONGEST_ANSWER,
    ) -> PeerResponse:
        """Return a successful response of at most ``longest`` bytes; its receipt, if it has one, is not checked."""
        if (pause := self._rests_until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(pause)
        headers = [("Content-Type", media), *forwarded()]
        if shown is not None:
            headers.append((RECEIPT_HEADER, shown.text))
        try:
            with traced_request(self.name, method) as traced:
                response = await self._line.ask(method, path, body, *headers, *traced.headers, longest=longest)
                traced.status = response.status
        except httpx.TransportError as error:
            raise UnavailableError(f"{self.name} cannot be reached ({type(error).__name__})") from None
        if len(response.content) > longest:
            raise self.refuse("malformed-answer", f"its response has more than {longest} bytes")
        if not httpx.codes.is_success(response.status):
            raise self._failure(response)
        return response

    async def _exchange(self, path: str, message: Signed) -> Signed:
        """Return the peer's answer to a signed message; its signature is not checked."""
        content, _ = await self._request("PUT", path, message.to_bytes(), SIGNED)
        try:
            return Signed.from_bytes(content)
        except MessageError as error:
            raise self.refuse(error.reason, f"its answer cannot be used: {error.detail}") from None

    async def _sign(self, path: str, roster: Signed, key: str) -> bytes:
        """Send the peer a roster; return its signature, or refuse one that the holder of ``key`` did not make."""
        content, _ = await self._request("PUT", path, roster.to_bytes(), SIGNED)
        answer = self._parse(Signature, content)
        try:
            signature = bytes.fromhex(answer.signature)
            Signed(roster.body, signature).verify(Roster.TAG, key)
        except (ValueError, SignatureError):
            raise self.refuse("bad_signature", "its signature of the roster is not by the pinned key") from None
        return signature

    def _failure(self, response: PeerResponse) -> UnavailableError | RefusedError:
        """Return the error for a response without success, and note for how long the peer asks to be left alone."""
        problem, status = _problem(response.content), response.status
        detail = _words(problem, "detail", f"HTTP status {status}")
        kind = _words(problem, "type").rpartition(":")[2] or "http"
        if (status in _NOT_NOW or status >= httpx.codes.INTERNAL_SERVER_ERROR) and kind not in _NEVER:
            seconds = min(_seconds(_header(response, b"retry-after")), _LONGEST_REST)
            self._rests_until = asyncio.get_running_loop().time() + seconds
            error = AwaitingOwnerError if kind == AwaitingOwnerError.kind else UnavailableError
            return error(f"{self.name} cannot answer: {detail}", **{self.role: self.name})
        if httpx.codes.is_redirect(status):
            detail = f"it redirects (HTTP status {status}), and redirects are not followed"
        facts = {name: problem[name] for name in _LEFT if isinstance(problem.get(name), float)}
        if rule := _words(problem, "rule"):
            facts["rule"] = rule
        return self.refuse(_words(problem, "reason", kind), detail, **facts)

    def _parse(self, schema: type[M], content: bytes) -> M:
        try:
            return parse_answer(schema, content)
        except (ValidationError, TooLargeError):
            raise self.refuse("malformed-answer", f"its answer is not {schema.__name__}") from None


async def ask_all(
    peers: Sequence[P],
    request: Callable[[P], Awaitable[_T]],
    seconds: float,
    took: MutableMapping[str, float] | None = None,
    *,
    once: bool = False,
) -> list[_T | UnavailableError | RefusedError]:
    """Return each peer's answer to a request, or the error in its place, in the order of ``peers``.

    All are asked at once, each repeatedly while it is unavailable, for so many seconds, or ``once``. Nobody's failure
    hides another's answer. ``took`` gets the seconds that each answer took, by the peer's name.
    """
    took = {} if took is None else took
    return await asyncio.gather(*(_outcome(peer, request, seconds, took, once=once) for peer in peers))


async def _outcome(
    peer: P, request: Callable[[P], Awaitable[_T]], seconds: float, took: MutableMapping[str, float], *, once: bool
) -> _T | UnavailableError | RefusedError:
    """Repeat a request, with growing pauses, while the peer is unavailable; return the answer or the error.

    Where this process was stopped past the deadline, the peer could not answer in time, and is asked again.
    """
    clock = asyncio.get_running_loop().time
    started = clock()
    while True:
        reason, pause, deadline = f"{peer.name} did not answer within {seconds:g} s", _FIRST_PAUSE, clock() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    try:
                        answer = await request(peer)
                    except (AwaitingOwnerError, RefusedError) as error:
                        return error  # the first: people take longer than this
                    except UnavailableError as error:
                        reason = error.detail
                        if once:
                            return error
                    else:
                        took[peer.name] = clock() - started
                        return answer
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        except TimeoutError:
            if clock() - deadline < _STOPPED:
                return UnavailableError(reason, **{peer.role: peer.name})


def all_of(outcomes: Sequence[_T | ParleyError]) -> list[_T]:
    """Return the answers of `ask_all`; raises the first refusal, or UnavailableError if peers were silent.

    The error names one silent peer by its role, several as ``silent``. It is AwaitingOwnerError if all of them await
    their owners.
    """
    answers: list[_T] = []
    silent: list[UnavailableError] = []
    for outcome in outcomes:
        match outcome:
            case UnavailableError():
                silent.append(outcome)
            case ParleyError():
                raise outcome
            case _:
                answers.append(outcome)
    if len(silent) == 1:
        raise silent[0]
    if silent:
        kind = (
            AwaitingOwnerError if all(isinstance(error, AwaitingOwnerError) for error in silent) else UnavailableError
        )
        names = [name for error in silent for name in names_in(error)]
        raise kind("; ".join(error.detail for error in silent), silent=names)
    return answers


def names_in(error: ParleyError) -> tuple[str, ...]:
    """Return the peers that an error names."""
    one = [error.facts[role] for role in ("party", "key_holder") if role in error.facts]
    several = [names for fact in ("silent", "unprepared") if isinstance(names := error.facts.get(fact), list)]
    return tuple(str(name) for names in (one, *several) for name in names)


class Line:
    """The way to one service by its entry: connections that stay open, and the token to show it.

    It takes no proxy or password from the environment, follows no redirect and keeps no cookie. A token file is read
    again when the service does not know the token; certificates are read when a connection begins.

    ``transport`` replaces connections to a URL: for a service that opens its connections itself, or in tests. Raises
    InvalidInputError when the token, the service's authority or the certificate for it cannot be read.
    """

    def __init__(self, entry: PeerEntry, transport: Transport | None = None) -> None:
        url = httpx.URL(str(entry.url or f"http://{entry.name}"))
        self._entry = entry
        self._token = entry.token_text()
        self._base = url.raw_path.decode().rstrip("/")
        self._host = url.netloc.decode()
        self._transport = transport or Connections(url, client_context(entry.ca, entry.certificate, entry.key))

    async def ask(
        self, method: str, path: str, body: bytes = b"", *headers: tuple[str, str], longest: int = LONGEST_ANSWER
    ) -> PeerResponse:
        """Return the response to a request, which is sent once more if the token has changed since it was read.

        The body is cut off somewhere past ``longest`` bytes. Raises httpx.TransportError.
        """
        token = self._token
        response = await self._transport.send(self._request(method, path, body, headers, longest))
        if response.status == httpx.codes.UNAUTHORIZED and self._has_other_token(token):
            response = await self._transport.send(self._request(method, path, body, headers, longest))
        return response

    async def close(self) -> None:
        """Close the connections that are not in use."""
        await self._transport.close()

    def _request(
        self, method: str, path: str, body: bytes, headers: Sequence[tuple[str, str]], longest: int
    ) -> PeerRequest:
        """Return a request as it goes on the wire, with the newest token that was read."""
        line_headers = ("Host", self._host), ("Authorization", f"Bearer {self._token}"), ("Accept-Encoding", "identity")
        return PeerRequest(method, self._base + path, (*line_headers, *headers), body, longest)

    def _has_other_token(self, refused: str) -> bool:
        """Read the token file again; return whether it now holds another token than the refused one."""
        with suppress(InvalidInputError):  # a file that is gone holds no other token
            self._token = self._entry.token_text()
        return self._token != refused


def _header(response: PeerResponse, name: bytes) -> str | None:
    """Return the header with this name, in lower case; None without one."""
    value = response.headers.get(name)
    return None if value is None else value.decode("latin-1")


def _seconds(text: str | None) -> float:
    """Return the seconds that a Retry-After header asks for; 0 without one, or for a date, which needs a right clock.

    >>> _seconds("2"), _seconds("Sat, 21 Nov 2026 20:00:00 GMT")
    (2.0, 0.0)
    """
    return float(text[:9]) if text and text.isdecimal() and text.isascii() else 0.0


def _words(problem: Mapping[str, Any], name: str, otherwise: str = "") -> str:
    """Return a text field of a problem document as one short line of plain text, for people will read it."""
    text = problem.get(name)
    return one_line(text[:_LONGEST_REASON]) if isinstance(text, str) else otherwise


def _problem(content: bytes) -> dict[str, Any]:
    """Parse a problem document; an empty one for anything that is none."""
    if len(content) > _LONGEST_PROBLEM:
        return {}
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
