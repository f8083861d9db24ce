"""Ask a service that is about to be killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import httpx


def last_answer(ask: Callable[[], httpx.Response], pid: int, seconds: float | None) -> bytes | None:
    """What a service answers that is killed so long after it was asked, or (None) right after it has answered."""
    killer = threading.Timer(seconds or 0, os.kill, (pid, signal.SIGKILL))
    if seconds is not None:
        killer.start()
    try:
        return ask().content
    except httpx.TransportError:
        return None
    finally:
        killer.join() if seconds is not None else os.kill(pid, signal.SIGKILL)
