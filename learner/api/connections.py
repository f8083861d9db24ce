"""Where parties and key holders connect that cannot be reached: see `parley.common.client.awaited`."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from fastapi import FastAPI, Request, Response

from parley.common.client.awaited import Switchboard
from parley.common.client.handshake import CONNECT_PATH, UPGRADE
from parley.common.errors import InvalidInputError
from parley.common.service.application import caller
from parley.common.service.http.connections import TAKE_OVER
from parley.learner.api.callers import check_certified, peer_of

_SWITCHING = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {UPGRADE}\r\n\r\n".encode()


def add_connections(app: FastAPI, board: Switchboard, needs_certificate: Callable[[str], bool]) -> None:
    """The route; of some names a certificate has to be shown that is for that name."""

    @app.get(CONNECT_PATH, summary="Have a party or key holder asked on this connection", tags=["connections"])
    async def take_connection(request: Request) -> Response:
        """Answers 101; from then on the learner asks, by HTTP/1.1, and who has connected answers.

        Needs the token that `connects_with` of the roster names, and ``Connection: Upgrade``.
        """
        name = peer_of(caller(request))
        if request.headers.get("upgrade", "").lower() != UPGRADE or TAKE_OVER not in request.scope.get("state", {}):
            raise InvalidInputError(f"this takes Connection: Upgrade and Upgrade: {UPGRADE}")
        if needs_certificate(name):
            check_certified(request, name)
        board.check(name)
        if not board.is_connected(name):
            structlog.get_logger().info("connected", peer=name)
        board.add(name, *request.scope["state"][TAKE_OVER](_SWITCHING))
        return Response(status_code=101)
