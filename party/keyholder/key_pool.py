"""Paillier keys made ahead in a separate process, because a search for primes would hold the interpreter's lock.

``python -m parley.party.keyholder.key_pool BITS`` prints the two primes of a key in hexadecimal, and nothing else.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import Protocol

import structlog
from phe import PaillierPrivateKey

from parley.common.errors import UnavailableError
from parley.common.secure_sum.paillier import generate_key, private_key

_SPARE = 1
_PATIENCE = 20.0  # seconds; a key of 8192 bits takes about as long
_PAUSE = 1.0  # seconds between attempts, and between looks at whether to stop


class KeySource(Protocol):
    """Where a new session's key comes from."""

    def take(self) -> PaillierPrivateKey:
        """Return a key that was never used. Raises UnavailableError if there is none yet."""

    def close(self) -> None:
        """Stop making keys."""


class KeyPool:
    """Keeps one key of ``bits`` bits ready, in memory only: a key that is not taken is never stored."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._ready: Queue[PaillierPrivateKey] = Queue(_SPARE)
        self._stopping = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._fill, name="key-stock", daemon=True)
        self._thread.start()

    def take(self) -> PaillierPrivateKey:
        """Return the key made ahead, or wait for the next one. Raises UnavailableError after 20 seconds."""
        try:
            return self._ready.get(timeout=_PATIENCE)
        except Empty:
            raise UnavailableError("no Paillier key is ready yet; ask again") from None

    def close(self) -> None:
        """Stop the process and its thread."""
        self._stopping.set()
        if (process := self._process) is not None:
            process.terminate()
        self._thread.join()

    def _fill(self) -> None:
        while not self._stopping.is_set():
            if (key := self._make()) is not None:
                self._offer(key)
            else:
                self._stopping.wait(_PAUSE)

    def _offer(self, key: PaillierPrivateKey) -> None:
        """Wait until there is room for a key."""
        while not self._stopping.is_set():
            with suppress(Full):
                self._ready.put(key, timeout=_PAUSE)
                break

    def _make(self) -> PaillierPrivateKey | None:
        """Make a key in a process; None if the process fails or is stopped."""
        command = [sys.executable, "-m", __name__, str(self._bits)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as process:  # noqa: S603
            self._process = process
            if self._stopping.is_set():
                process.terminate()
            printed, _ = process.communicate()
        if process.returncode != 0:
            if not self._stopping.is_set():
                structlog.get_logger().error("key generation failed", status=process.returncode)
            return None
        p, q = (int(line, 16) for line in printed.split())
        return private_key(p, q)


if __name__ == "__main__":
    made = generate_key(int(sys.argv[1]))
    sys.stdout.write(f"{made.p:x}\n{made.q:x}\n")
