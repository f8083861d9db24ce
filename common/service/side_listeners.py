"""Small applications that are served beside a service, each on an address of its own: its metrics, an owner's page.

What callers of the service do cannot crowd them out, nor the reverse: each has its own few connections. The service
goes on where such an address cannot be used; the log says so, and it is tried again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager

import structlog
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from parley.common.service import problems
from parley.common.service.application import Boundary, caller_turns, metrics_response
from parley.common.service.fair_use import SignIns
from parley.common.service.http.connections import Beside, BoundedServer
from parley.common.service.settings import MetricsListener, ServiceSettings
from parley.common.service.tokens import KnownToken, NamedCaller, Tokens

MOST_CONNECTIONS = 16
"""Connections that may be open to one such application."""
_LATER = 60.0  # seconds until an address that cannot be used is tried again
_METRICS = "/metrics"


def listener(
    what: str, host: str, port: int, create_app: Callable[[], ASGIApp], context: ssl.SSLContext | None = None
) -> Beside:
    """Return what serves an application at an address, for as long as a service runs; ``what`` names it in the log."""

    async def serve(server: BoundedServer) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, port), family=family)
        except OSError as error:
            reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            structlog.get_logger().warning(what, host=host, port=port, failed=reason)
            await asyncio.sleep(_LATER)
            return
        with listening:
            config = uvicorn.Config(
                create_app(),
                ssl_context_factory=(lambda *_: context) if context else None,
                access_log=False,
                log_config=None,
                server_header=False,
                ws="none",
                lifespan="off",
            )
            await _SideServer(config, server.limits, _nothing, most=MOST_CONNECTIONS).serve([listening])

    return serve


class _SideServer(BoundedServer):
    """A server that leaves signals to the service beside which it runs."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture no signal."""
        yield


async def _nothing() -> None:
    """Do no upkeep."""


def create_metrics_app(settings: ServiceSettings, where: MetricsListener, service: FastAPI) -> Starlette:
    """Build what answers GET /metrics alone, with all metrics of a service; if a token is set, to its holders."""
    metrics = service.state.metrics

    async def show_metrics(_: Request) -> Response:
        return await metrics_response(metrics, service.state.ready, metrics.render)

    tokens = [KnownToken(where.token_hash, NamedCaller("monitor"))] if where.token_hash else []
    boundary = Middleware(
        Boundary,
        tokens=Tokens(tokens),
        metrics=metrics,
        limits=settings.limits,
        public_paths=frozenset() if tokens else frozenset({_METRICS}),
        round_paths=None,
        turns=caller_turns(settings.shares),
        sign_ins=SignIns(settings.shares.failed_sign_ins),
        keeps_room_for=lambda _: False,
    )
    app = Starlette(routes=[Route(_METRICS, show_metrics)], middleware=[boundary])
    app.state.metrics = metrics
    problems.install(app)
    return app
