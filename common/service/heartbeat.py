"""Show by the age of a file that a service is alive, and by that of another that it is ready: in containers.

A check of health that starts a command, reads the settings and asks over HTTP takes half a second of a processor, every
time. The age of a file is read in a hundredth of that (``scripts/deployment/parley_is.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from parley.common.errors import ParleyError
from parley.common.service.http.connections import Beside, BoundedServer
from parley.common.storage.keys import writing

ALIVE, READY = "parley-alive", "parley-ready"
"""The names of the files."""

_EVERY = 10.0  # seconds; a file of 35 s says that three beats failed


def heartbeat(folder: Path, ready: Callable[[], Awaitable[None]]) -> Beside:
    """Touch the files in a folder every ten seconds, as `beat` does, for as long as a server runs.

    Files of an earlier service are removed at once. Raises UnavailableError where the folder cannot be written.
    """
    with writing(folder):
        for file in (folder / ALIVE, folder / READY):
            file.touch()
            file.unlink()

    async def keep_beating(_: BoundedServer) -> None:
        while True:
            await beat(folder, ready)
            await asyncio.sleep(_EVERY)

    return keep_beating


async def beat(folder: Path, ready: Callable[[], Awaitable[None]], patience: float = _EVERY) -> None:
    """Touch ``ALIVE``, and ``READY`` if ``ready`` raises nothing within ``patience`` seconds; remove it if not."""
    try:
        (folder / ALIVE).touch()
        async with asyncio.timeout(patience):
            await ready()
        (folder / READY).touch()
    except (ParleyError, TimeoutError, OSError):  # what a disk refuses is seen by the file's age
        with suppress(OSError):
            (folder / READY).unlink(missing_ok=True)
