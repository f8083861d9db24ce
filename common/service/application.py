"""The web side that every service shares: who may ask, how much, what is said when something is wrong.

A request passes one `Boundary` before any route: it gets an identifier, must not be compressed, must carry a known
bearer token unless the path is public, and its body is counted as it streams in. What goes wrong, foreseen or not,
leaves as a problem document. So a route cannot forget any of this.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from common.errors import ParleyError, TooLargeError, UnsupportedMediaError
from common.service import problems
from common.service.logs import place_of
from common.service.openapi import REFUSED, completed, operation_id
from common.service.prometheus import METRICS_MEDIA_TYPE as METRICS_TYPE
from common.service.prometheus import Metrics
from common.service.strict_json import strict_json
from common.service.tokens import identify

REQUEST_ID = "x-request-id"
PUBLIC_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/openapi.json"})
"""What anybody may ask without a token."""

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def service(  # noqa: PLR0913 -- what a service is, by name
    title: str,
    description: str,
    *,
    tokens: Mapping[str, str],
    metrics: Metrics,
    ready: Callable[[], Awaitable[None]],
    body_bytes: int,
    lifespan: Lifespan | None = None,
    public_paths: frozenset[str] = PUBLIC_PATHS,
) -> FastAPI:
    """An application with everything but its own routes.

    ``tokens`` maps token hashes to callers' names; a route finds the name with `caller`. ``ready`` raises a ParleyError
    while the service cannot do its work.
    """
    app = FastAPI(
        title=title,
        description=description,
        version=version("parley"),
        lifespan=lifespan,
        docs_url=None,  # the pages that draw the documentation load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses=REFUSED,
        generate_unique_id_function=operation_id,
        separate_input_output_schemas=False,  # what a service shows, such as a study, may be sent to it
    )
    app.router.route_class = StrictRoute
    problems.install(app)
    app.add_middleware(Boundary, tokens=tokens, metrics=metrics, body_bytes=body_bytes, public_paths=public_paths)
    _add_operations(app, metrics, ready)
    _complete_document(app, public_paths)
    return app


def caller(request: Request) -> str:
    """The name of whoever's token the request carries."""
    name: str = request.scope["parley.caller"]
    return name


@dataclass(frozen=True, slots=True)
class Boundary:
    """The outermost layer of a service, in plain ASGI so that it costs little."""

    app: ASGIApp
    tokens: Mapping[str, str]
    metrics: Metrics
    body_bytes: int
    public_paths: frozenset[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if it may, and answer it in any case."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        reply = _Reply(send, _request_id(scope))
        try:
            self._admit(scope)
            await self.app(scope, _Counted(receive, self.body_bytes).receive, reply.send)
        except ParleyError as error:
            await problems.of_error(error)(scope, receive, reply.send)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 -- the boundary: whatever it was, its text stays inside
            structlog.get_logger().error("internal", error=type(error).__name__, place=place_of(error))
            if not reply.status:
                await problems.internal()(scope, receive, reply.send)
        route = getattr(scope.get("route"), "path", "none")  # the template, never a path that the caller made up
        self.metrics.requests.labels(scope["method"] if route != "none" else "none", route, reply.status).inc()

    def _admit(self, scope: Scope) -> None:
        """Note who asks; raises ParleyError for a stranger, and for a body that is compressed or too large."""
        headers = Headers(scope=scope)
        if scope["path"] not in self.public_paths:
            scope["parley.caller"] = identify(headers.get("authorization"), self.tokens)
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise UnsupportedMediaError("a compressed body is not read; send it as it is")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self.body_bytes:
            raise TooLargeError(f"the body may have at most {self.body_bytes} bytes")


@dataclass(slots=True)
class _Counted:
    """The way in: counts the bytes of a body whose length was not announced, or not truly."""

    source: Receive
    limit: int
    count: int = 0

    async def receive(self) -> Message:
        message = await self.source()
        self.count += len(message.get("body", b""))
        if self.count > self.limit:
            raise HTTPException(TooLargeError.status)  # which FastAPI lets pass while it reads a body
        return message


@dataclass(slots=True)
class _Reply:
    """The way out: remembers the status and adds the request's identifier."""

    forward: Send
    request_id: str
    status: int = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)[REQUEST_ID] = self.request_id
        await self.forward(message)


def _request_id(scope: Scope) -> str:
    """The identifier that the caller chose, if it is a sane one, or a new one."""
    given = Headers(scope=scope).get(REQUEST_ID, "")
    return given if _SANE_ID.fullmatch(given) else secrets.token_hex(8)


class StrictRequest(Request):
    """A request whose JSON is strict: see `strict_json`."""

    async def json(self) -> Any:  # noqa: ANN401 -- any JSON value
        """The body's JSON value; raises json.JSONDecodeError, which becomes a 422."""
        return strict_json(await self.body())


class StrictRoute(APIRoute):
    """A route whose requests are strict."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """The handler, given a `StrictRequest`."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strict


def _add_operations(app: FastAPI, metrics: Metrics, ready: Callable[[], Awaitable[None]]) -> None:
    """The routes for those who run the service."""

    @app.get("/healthz", summary="Whether the process answers", tags=["operations"])
    async def check_health() -> dict[str, str]:
        """Always ``{"status": "ok"}``: that an answer came is the news."""
        return {"status": "ok"}

    @app.get("/readyz", summary="Whether the service can do its work", tags=["operations"])
    async def check_readiness() -> dict[str, str]:
        """``{"status": "ready"}``, or 503 and the reason."""
        await ready()
        return {"status": "ready"}

    @app.get("/metrics", summary="Counters for Prometheus", tags=["operations"], response_class=Response)
    async def show_metrics() -> Response:
        """Counters and gauges in Prometheus' text format; no private value and no timing among them."""
        return Response(metrics.render(), media_type=METRICS_TYPE)


def _complete_document(app: FastAPI, public_paths: frozenset[str]) -> None:
    """Have the application hand out its OpenAPI document completed."""
    plain = app.openapi
    app.openapi = lambda: completed(plain(), public_paths)  # type: ignore[method-assign]
