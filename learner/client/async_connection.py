"""`parley.learner.client.connection` for an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import httpx

from parley.common.errors import ParleyError
from parley.common.service.http.proxy import spell_hosts_async
from parley.learner.client.call import Call, Reading, run_path
from parley.learner.client.connection import cut_off, options_of, read_answer, tls_of, unreachable
from parley.learner.client.refusals import refusal_of
from parley.learner.client.token import read_token
from parley.learner.client.watching import AWAY, PATIENCE, Watching
from parley.learner.run_states import RunEvent


class AsyncConnection:
    """As `BlockingConnection`, whose methods it has as coroutines."""

    def __init__(  # noqa: PLR0913 -- a keyword each
        self,
        url: str,
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        token_file: Path | str | None = None,
        ca: Path | str | None = None,
        certificate: Path | str | None = None,
        key: Path | str | None = None,
        proxy: str | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.url, self.patience = url, patience
        options = options_of(url, read_token(token, token_file), tls_of(ca, certificate, key), proxy)
        hooks = {"request": [spell_hosts_async]}
        self._http = httpx.AsyncClient(transport=transport, event_hooks=hooks, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        """Itself, as of `BlockingConnection`."""
        return self

    async def close(self) -> None:
        """End the connections."""
        await self._http.aclose()

    async def send(self, call: Call[Reading]) -> Reading:
        """What a call's answer says."""
        try:
            response = await self._http.request(**call.options)
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from None
        return read_answer(call, self.url, response)

    async def watch(self, run: str) -> AsyncIterator[RunEvent]:
        """A run's events from its first to its end, as they come, as `BlockingConnection.watch` has them."""
        watching = Watching(run, self.patience)
        while not watching.has_ended:
            try:
                async with self._http.stream("GET", run_path(run, "events"), headers=watching.headers) as response:
                    if response.is_success:
                        async for line in response.aiter_lines():
                            for event in watching.take(line):
                                yield event
                        lost: ParleyError = cut_off(run)
                    else:
                        lost = refusal_of(response.status_code, await response.aread())
                        if response.status_code not in AWAY:
                            raise lost
            except httpx.TransportError as error:
                lost = unreachable(self.url, error)
            if not watching.has_ended:
                await asyncio.sleep(watching.pause(lost))
