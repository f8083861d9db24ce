"""The command ``parley-party forward``, which a site's Compose file runs beside the service."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated

import typer

from parley.common.service.commands import deferred
from parley.party.commands import LogFormat

with deferred():
    from parley.common.service import forward, logs


def forward_command(
    places: Annotated[
        list[str],
        typer.Argument(metavar="[LISTEN:]HOST:PORT...", help="Where to; it listens on LISTEN, or on the same PORT."),
    ],
    at: Annotated[
        str, typer.Option(metavar="HOST", help="The one name or address of this machine where it listens.")
    ] = "0.0.0.0",  # noqa: S104 -- a container's networks
    output: LogFormat = None,
) -> None:
    """Pass TCP connections on to these places and to no others, until told to stop.

    A container without a way of its own reaches the learner through it (join --compose); TLS is between the two.
    """
    parsed = forward.Place.parse_all(places)
    logs.configure(output or "json")
    with suppress(KeyboardInterrupt):
        asyncio.run(forward.forward(parsed, at))
