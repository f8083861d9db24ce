"""The web side that every service shares: authentication, limits, turns, problem documents, and the OpenAPI document.

A request passes one `Boundary` before any route: it gets an identifier, must not be compressed, must carry a valid
bearer token, or belong to a session (`Tokens.sessions`), unless the path is public, and its body is counted as it
streams in (JSON: see `strict_json`). Every error, foreseen or not, is answered with a problem document, and no cache
may store an answer unless its route says so. So no route can forget any of this.

Work on a chain is done beside the event loop, with receipts both ways (`Desk`).

The OpenAPI document (`completed`) has stable names, says which paths need a token, and uses nothing beyond OpenAPI 3.1.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig
from pydantic import TypeAdapter
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parley.common import parley_version
from parley.common.errors import ParleyError, ShareUsedUpError, UnsupportedMediaError
from parley.common.protocol.receipts import MOST_RECEIPTS, RECEIPT_HEADER, HeldReceipts
from parley.common.routes import Route
from parley.common.service import logs, problems
from parley.common.service.fair_use import CallerTurns, SignIns, Turn
from parley.common.service.http.bodies import CountedBody, StrictRoute, large_json
from parley.common.service.http.connections import SIGNED_IN
from parley.common.service.http.pages import EVENT_SCHEMA, event_schema, reference_page, show_document
from parley.common.service.problems import PROBLEM_MEDIA_TYPE, ProblemDocument
from parley.common.service.prometheus import METRICS_MEDIA_TYPE as METRICS_TYPE
from parley.common.service.prometheus import Metrics
from parley.common.service.readiness import Readiness
from parley.common.service.settings import Limits, Shares
from parley.common.service.tokens import AnyCaller, KnownToken, SignInError, Tokens
from parley.common.service.tracing import traced_answers

if TYPE_CHECKING:
    from parley.common.service.worker import Worker
    from parley.common.storage.chain import SignedChain
    from parley.common.storage.witness import Witness

EVENTS_MEDIA_TYPE = "text/event-stream"
_EVENTS = {"description": "server-sent events: id, event and data, whose value is JSON"}
_SCHEMAS = "#/components/schemas/"

REFUSED: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "Refused",
        "content": {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": f"{_SCHEMAS}{ProblemDocument.__name__}"}}},
    }
}
"""The answer that every route may give besides its own."""


def operation_id(route: APIRoute) -> str:
    """Return a route's name in the document, and so a function's in generated clients: that of its function here."""
    return route.name


def event_stream(**kinds: Any) -> dict[int | str, dict[str, Any]]:  # noqa: ANN401 -- types of any form
    """Describe the answer of a route that sends events of these ``kinds``, each with the type of its data."""
    adapters = [(kind, "validation", TypeAdapter(data)) for kind, data in kinds.items()]
    by_kind, shared = TypeAdapter.json_schemas(adapters, ref_template=f"{_SCHEMAS}{{model}}")  # type: ignore[arg-type]
    events = [event_schema(kind, by_kind[kind, "validation"]) for kind in kinds]
    return {200: {"content": {EVENTS_MEDIA_TYPE: {EVENT_SCHEMA: {"oneOf": events, **shared}}}}}


def completed(document: dict[str, Any], public_paths: frozenset[str]) -> dict[str, Any]:
    """Complete the document that FastAPI makes: all but the public paths need a bearer token.

    A stream of events as a whole has no schema, because some readers would apply it to one event. What each kind of
    event holds is a schema of its own, and `event_stream` says which.
    """
    components = document.setdefault("components", {})
    components.setdefault("securitySchemes", {})["bearer"] = {"type": "http", "scheme": "bearer"}
    components.setdefault("schemas", {})[ProblemDocument.__name__] = ProblemDocument.model_json_schema()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["security"] = [] if path in public_paths else [{"bearer": []}]
            for response in operation["responses"].values():
                if (events := response.get("content", {}).get(EVENTS_MEDIA_TYPE)) is not None:
                    events["schema"] = _EVENTS
                    components["schemas"] |= events.get(EVENT_SCHEMA, {}).pop("$defs", {})
    return document


PUBLIC_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"})
"""The paths that need no token."""

_NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""FastAPI's own would send texts of errors, and time what runs after an answer; `tracing` does neither."""
_HEALTH_PATH = "/healthz"
_SLICE_SECONDS, _MEMORY_SECONDS, _REST_SECONDS = 2.0, 2.0, 0.25
"""How long a request counts as a turn, its caller counts as active after it, and a caller rests: see `CallerTurns`."""
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
Function = TypeVar("Function", bound=Callable[..., Any])
_T = TypeVar("_T")


def service(  # noqa: PLR0913 -- all by keyword
    title: str,
    description: str,
    *,
    tokens: Iterable[KnownToken],
    metrics: Metrics,
    ready: Callable[[], Awaitable[None]],
    limits: Limits,
    lifespan: Lifespan | None = None,
    public_paths: frozenset[str] = PUBLIC_PATHS,
    round_paths: re.Pattern[str] | None = None,
    shares: Shares | None = None,
    keeps_room_for: Callable[[AnyCaller], bool] = lambda _caller: False,
) -> FastAPI:
    """Make an application with everything but its own routes.

    ``tokens`` are those of the callers; a route gets the caller's name from `caller`. ``ready`` raises a ParleyError
    while the service cannot work; it is asked at most four times a second. A body may have ``limits.round_bytes`` on
    ``round_paths``, and ``limits.body_bytes`` on all others; routes may allow less. ``shares`` bound what each caller
    may have; where too many connections are open, callers for whom it ``keeps_room_for`` are still served. The
    application's ``state`` has ``tokens`` and ``metrics``, which `serve` maintains while it runs, and ``ready``.
    """
    shares, ready = shares or Shares(), Readiness(ready)
    app = FastAPI(
        title=title,
        description=description,
        version=parley_version(),
        lifespan=lifespan,
        openapi_url=None,  # served below: FastAPI's has no tag, and is not compressed
        docs_url=None,  # FastAPI's own load scripts from elsewhere; `reference_page` is served instead
        redoc_url=None,
        redirect_slashes=False,
        responses=REFUSED,
        generate_unique_id_function=operation_id,
        separate_input_output_schemas=False,  # what a service shows, such as a study, may be sent to it
        telemetry=_NO_TELEMETRY,
    )
    app.state.tokens, app.state.metrics, app.state.limits, app.state.ready = Tokens(tokens), metrics, limits, ready
    app.router.route_class = StrictRoute
    problems.install(app)
    app.add_middleware(
        Boundary,
        tokens=app.state.tokens,
        metrics=metrics,
        limits=limits,
        public_paths=public_paths,
        round_paths=round_paths,
        turns=caller_turns(shares),
        sign_ins=SignIns(shares.failed_sign_ins),
        keeps_room_for=keeps_room_for,
    )
    app.add_api_route("/docs", reference_page, include_in_schema=False, response_class=HTMLResponse)
    app.add_api_route("/openapi.json", show_document, include_in_schema=False)
    _add_operations(app, metrics, ready)
    _complete_document(app, public_paths)
    return app


def caller_turns(shares: Shares) -> CallerTurns:
    """Return the turns that a service's callers take."""
    return CallerTurns(
        shares.requests, slice_seconds=_SLICE_SECONDS, memory_seconds=_MEMORY_SECONDS, rest_seconds=_REST_SECONDS
    )


def answers(app: FastAPI, route: Route, **options: Any) -> Callable[[Function], Function]:  # noqa: ANN401 -- FastAPI's
    """Have a function answer a route; ``options`` are those of ``FastAPI.get``."""
    return app.api_route(route.path, methods=[route.method], **options)


def caller_of(request: Request) -> AnyCaller:
    """Return the caller whose token the request carries."""
    identified: AnyCaller = request.scope["parley.caller"]
    return identified


def caller(request: Request) -> str:
    """Return the name of the caller whose token the request carries, where all callers are of one kind."""
    return caller_of(request).name


@dataclass(frozen=True, slots=True)
class Desk:
    """Requests to a service that keeps a ``chain``, done by a ``worker``."""

    chain: SignedChain
    worker: Worker

    async def do(self, request: Request, response: Response, work: Callable[[], _T]) -> _T:
        """Check the caller's receipt, do some work, and put a newer receipt into the response; returns the result."""
        value, receipt = await self.answer(request, work)
        response.headers[RECEIPT_HEADER] = receipt
        return value

    async def answer(self, request: Request, work: Callable[[], _T]) -> tuple[_T, str]:
        """Check the caller's receipt and do some work; returns the result and the receipt for the response."""
        learner, receipt = caller(request), request.headers.get(RECEIPT_HEADER)
        return await self.worker.do(partial(self.chain.witnessed, learner, receipt, work))


def add_witness(app: FastAPI, desk: Desk, witness: Witness) -> None:
    """Add the routes that take and show receipts of other services."""

    @app.put("/v1/receipts", summary="Hand receipts of others on", tags=["receipts"], status_code=204)
    @large_json
    async def take_receipts(request: Request, response: Response, handed_on: HeldReceipts) -> None:
        """Store the newest receipt of each service whose public key is known here; those of others are ignored.

        If one is no receipt, or was not signed with the key that it names, all that came with it are refused.
        """
        await desk.do(request, response, lambda: None)
        await asyncio.to_thread(witness.take, handed_on.receipts, caller(request))

    @app.get("/v1/receipts", summary="The newest receipts of others", tags=["receipts"])
    async def show_receipts(request: Request, response: Response) -> HeldReceipts:
        """Show the receipts that the caller handed on: shown to their signer, they reveal a ledger that was set back.

        What other callers handed on is not shown.
        """
        texts = await asyncio.to_thread(witness.texts, caller(request))
        return await desk.do(request, response, lambda: HeldReceipts(receipts=tuple(texts[-MOST_RECEIPTS:])))


@dataclass(frozen=True, slots=True)
class Boundary:
    """The outermost layer of a service, in plain ASGI, which is fast."""

    app: ASGIApp
    tokens: Tokens
    metrics: Metrics
    limits: Limits
    public_paths: frozenset[str]
    round_paths: re.Pattern[str] | None
    turns: CallerTurns
    sign_ins: SignIns
    keeps_room_for: Callable[[AnyCaller], bool]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a valid request on, and answer every request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with logs.about(request=_sent(scope, "request") or secrets.token_hex(8)):
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a valid HTTP request on, and answer every one."""
        began = time.perf_counter()
        reply = _Reply(send, logs.request_id(), is_head=scope["method"] == "HEAD")
        method, scope = scope["method"], {**scope, "method": "GET"} if reply.is_head else scope
        asker: AnyCaller | str = _address(scope)
        try:
            is_round = self.round_paths is not None and self.round_paths.fullmatch(scope["path"])
            body = CountedBody(receive, self.limits, "round_bytes" if is_round else "body_bytes")
            asker = await self._identify(scope)
            self._sign_in(scope)
            async with self.turns.turn(asker, is_probe="parley.caller" not in scope) as reply.turn:
                self._admit(scope, body)
                await traced_answers(self.app)(scope, body.receive, reply.send)
        except ParleyError as error:
            async with self.turns.turn(asker) as reply.turn:  # refusals are work as well
                await self._refusal(error, scope)(scope, receive, reply.send)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 -- the boundary: the text of any error stays inside
            structlog.get_logger().error("internal", error=type(error).__name__, place=logs.place_of(error))
            if not reply.status:
                await problems.internal()(scope, receive, reply.send)
        route = getattr(scope.get("route"), "path", "none")  # the template, never a path that the caller made up
        seconds = reply.ended - began if reply.ended else None
        self.metrics.count_request(method if route != "none" else "none", route, reply.status, seconds)

    async def _identify(self, scope: Scope) -> AnyCaller | str:
        """Return the caller; on a public path without a token, its address and the path.

        Raises SignInError otherwise, and UnavailableError as `Tokens.identify_request`.
        """
        path: str = scope["path"]
        if path == _HEALTH_PATH:
            return path
        headers = Headers(scope=scope)
        if path in self.public_paths:
            with suppress(SignInError):
                return self.tokens.identify(headers.get("authorization"))
            return f"{_address(scope)} {path}"
        caller = scope["parley.caller"] = await self.tokens.identify_request(headers)
        run = _sent(scope, "run")
        logs.note(caller=str(caller), **({"run": run} if run else {}))
        return caller

    def _sign_in(self, scope: Scope) -> None:
        """Assign the connection to the caller, if the request carries a token.

        Raises UnavailableError where too many connections are open, ShareUsedUpError where the caller has too many.
        """
        caller, state = scope.get("parley.caller"), scope.get("state", {})
        if caller is not None and SIGNED_IN in state:
            state[SIGNED_IN](caller, is_kept_room=self.keeps_room_for(caller))

    def _admit(self, scope: Scope, body: CountedBody) -> None:
        """Raise ParleyError for a body that is compressed or too large."""
        headers = Headers(scope=scope)
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise UnsupportedMediaError("a compressed body is not read; send it as it is")
        length = headers.get("content-length", "0")
        body.check(int(length[:20]) if length.isdecimal() else sys.maxsize)

    def _refusal(self, error: ParleyError, scope: Scope) -> Response:
        """Count a refused request and return the answer to it, which closes one connection too many."""
        if isinstance(error, SignInError):
            return problems.of_error(self._count_failed_sign_in(error, scope))
        self.metrics.count_refusal(error)
        response = problems.of_error(error)
        if error.facts.get("share") == "connections":
            response.headers["Connection"] = "close"
        return response

    def _count_failed_sign_in(self, error: SignInError, scope: Scope) -> ParleyError:
        """Count and log a failed sign-in by address and reason, never the token; returns the error to answer."""
        address, log = _address(scope), structlog.get_logger()
        self.metrics.failed_sign_ins.labels(error.reason).inc()
        try:
            is_last = self.sign_ins.fail(address, error.detail)
        except ShareUsedUpError as too_many:  # these are not logged one by one: the log says once that there are many
            return too_many
        log.warning("sign-in", why=error.reason, peer=address, **({"then": "unlogged for a minute"} if is_last else {}))
        return error


@dataclass(slots=True)
class _Reply:
    """The sending side: notes the status and the end, adds the identifier, and omits the body for HEAD.

    The caller's turn lasts until the answer has been sent, since an answer may be made while it is sent. For a stream
    of events, which waits for them, it ends when the stream begins.
    """

    forward: Send
    request_id: str
    is_head: bool = False
    status: int = 0
    turn: Turn | None = None
    ended: float | None = None
    """When the last byte was sent, or a stream of events began."""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            is_stream = headers.get("content-type", "").startswith(EVENTS_MEDIA_TYPE)
            if self.turn is not None and is_stream:
                self.turn.end()
            headers[logs.FORWARDED["request"]] = self.request_id
            headers.setdefault("Cache-Control", "no-store")
            await self.forward(message)
            if self.is_head:  # the answer ends here, even if its body would never end
                await self.forward({"type": "http.response.body", "body": b"", "more_body": False})
            if self.is_head or is_stream:
                self.ended = time.perf_counter()
        elif not self.is_head:
            await self.forward(message)
            if self.ended is None and not message.get("more_body"):
                self.ended = time.perf_counter()


def _address(scope: Scope) -> str:
    """Return the address that a request comes from."""
    return str((scope.get("client") or ("unknown",))[0])


def _sent(scope: Scope, name: str) -> str | None:
    """Return the identifier that the client sends for this field of the log's lines, if it is a plain one."""
    value = Headers(scope=scope).get(logs.FORWARDED[name], "")
    return value if _SANE_ID.fullmatch(value) else None


async def metrics_response(
    metrics: Metrics, ready: Callable[[], Awaitable[None]], render: Callable[[], bytes]
) -> Response:
    """Return metrics as a response, as ``render`` does, after asking whether the service is ready."""
    await metrics.ask_ready(ready)
    return Response(await asyncio.to_thread(render), media_type=METRICS_TYPE)


def _add_operations(app: FastAPI, metrics: Metrics, ready: Callable[[], Awaitable[None]]) -> None:
    """Add the routes for operators."""

    @app.get("/healthz", summary="Whether the process answers", tags=["operations"])
    async def check_health() -> dict[str, str]:
        """Return ``{"status": "ok"}``, always: any answer shows that the process runs."""
        return {"status": "ok"}

    @app.get("/readyz", summary="Whether the service can do its work", tags=["operations"])
    async def check_readiness() -> dict[str, str]:
        """``{"status": "ready"}``, or 503 and the reason."""
        await ready()
        return {"status": "ready"}

    @app.get(
        "/metrics",
        summary="Metrics for Prometheus",
        tags=["operations"],
        response_class=Response,
        responses={200: {"content": {METRICS_TYPE.partition(";")[0]: {"schema": {"type": "string"}}}}},
    )
    async def show_metrics() -> Response:
        """Show what everybody may know, in Prometheus' text format; the listener of ``[metrics]`` shows all."""
        return await metrics_response(metrics, ready, metrics.render_public)


def _complete_document(app: FastAPI, public_paths: frozenset[str]) -> None:
    """Make the application serve its OpenAPI document completed."""
    plain = app.openapi
    app.openapi = lambda: completed(plain(), public_paths)  # type: ignore[method-assign]
