"""A service opens its connections to those who ask it: see `parley.common.client.awaited` for the other side.

From the learner's 101 on, uvicorn serves a connection as it serves one that was accepted: the same application, the
same limits. One connection more is kept than is in use. Where none can be had, another is tried after a pause that
grows to ten seconds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import structlog

from parley.common.client.awaited import PING_SECONDS
from parley.common.client.endpoints import LearnerAddress
from parley.common.client.handshake import open_to
from parley.common.client.renewal import renew_for, renewing
from parley.common.errors import InvalidInputError, UnavailableError
from parley.common.service.http.connections import Beside, BoundedProtocol, BoundedServer

_SPARE, _MOST = 1, 8
_SHAKE_SECONDS = 20.0
_FIRST_PAUSE, _LONGEST_PAUSE, _SOON = 0.2, 10.0, 5.0  # seconds; gone before the last, it has failed


class OpenedProtocol(BoundedProtocol):
    """uvicorn's protocol on a connection that this side has opened; ``changed`` hears of all that befalls it."""

    def __init__(self, *args: Any, changed: Callable[[], None], **options: Any) -> None:  # noqa: ANN401 -- as uvicorn's
        super().__init__(*args, **options)
        self._changed = changed
        self.timeout_keep_alive = round(3 * PING_SECONDS)
        self.opened_at = self.loop.time()
        self.closed_at: float | None = None

    @property
    def is_spare(self) -> bool:
        """Whether it waits for a request."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def was_asked(self) -> bool:
        """Whether a request has come."""
        return self.cycle is not None

    @property
    def was_in_vain(self) -> bool:
        """Whether it is gone, soon and unasked."""
        return self.closed_at is not None and not self.was_asked and self.closed_at - self.opened_at < _SOON

    def on_headers_complete(self) -> None:
        """A request has come: another connection may be needed."""
        super().on_headers_complete()
        self._changed()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        super().connection_lost(exc)
        self.closed_at = self.loop.time()
        self._changed()

    def expire(self) -> None:
        """A spare connection may rest for as long as it is tried now and then; a request may take as long as any."""
        if not self.is_spare or self.loop.time() - (self.waiting_since or 0.0) > 3 * PING_SECONDS:
            super().expire()


class Dialer:
    """Keeps connections of a server open to one learner."""

    def __init__(self, server: BoundedServer, address: LearnerAddress) -> None:
        self._server, self._address = server, address
        self._open: list[OpenedProtocol] = []
        self._news = asyncio.Event()
        self._pause = 0.0
        self._told: str | None = None

    async def keep(self) -> None:
        """Open what is missing, for ever."""
        while True:
            if any(each.was_asked for each in self._open):
                self._pause = 0.0
            elif any(each.was_in_vain for each in self._open):
                self._slow_down()
            self._open = [each for each in self._open if each.closed_at is None]
            if len(self._open) >= _MOST or sum(each.is_spare for each in self._open) >= _SPARE:
                await self._wait()
                continue
            await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 -- so that not all come at once
            try:
                async with asyncio.timeout(_SHAKE_SECONDS):
                    transport, received = await open_to(self._address)
            except TimeoutError:
                self._fail("nobody answers in time")
            except (OSError, UnavailableError, InvalidInputError) as error:
                self._fail(str(error))
            else:
                self._open.append(self._serve(transport, received))
                self._tell("")

    async def _wait(self) -> None:
        """Until something happens to a connection; after a while without, the next failure is the first."""
        try:
            async with asyncio.timeout(_SOON if self._pause else None):
                await self._news.wait()
        except TimeoutError:
            self._pause = 0.0
        self._news.clear()

    def _fail(self, why: str) -> None:
        self._slow_down()
        self._tell(why)

    def _slow_down(self) -> None:
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)

    def _tell(self, problem: str) -> None:
        """Log that there is a connection, or why there is none, when that has changed."""
        if problem != self._told:
            self._told = problem
            log = structlog.get_logger().bind(learner=self._address.name)
            if problem:
                log.warning("outbound", connected=False, reason=problem)
            else:
                log.info("outbound", connected=True)

    def _serve(self, transport: asyncio.Transport, received: bytes) -> OpenedProtocol:
        """Have uvicorn serve a connection from here on, what has come of a request included."""
        protocol = OpenedProtocol(
            config=self._server.config,
            server_state=self._server.server_state,
            app_state=self._server.lifespan.state,
            limits=self._server.limits,
            crowd=self._server.crowd,
            changed=self._news.set,
        )
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if received:
            protocol.data_received(received)
        return protocol


def outbound(addresses: Sequence[LearnerAddress]) -> list[Beside]:
    """What keeps connections to each of these learners, and the certificates for them, beside a server."""

    def dial(address: LearnerAddress) -> Beside:
        return lambda server: Dialer(server, address).keep()

    renewals = [renewing(each.name, partial(renew_for, each)) for each in addresses if each.certificate]
    return [*map(dial, addresses), *renewals]
