"""Obfuscators r^n mod n^2, drawn ahead by a process beside the party, and each used at most once.

They are kept in memory only, also on their way through the pipe: after a crash or a restart all are drawn again, so
none can be used twice. Once an answer has used one, it is forgotten.

``python -m parley.party.answers.obfuscator_pool`` is the process. For each line ``MODULUS COUNT`` on its input it
writes so many numbers, each as wide as the modulus squared. It ends when its input ends, so it does not outlive the
party, however the party ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TextIO

import structlog
from phe import PaillierPublicKey
from prometheus_client import Counter, Gauge

from parley.common.secure_sum.errors import OwnKeyError, Reason
from parley.common.secure_sum.paillier import blocks_from_blob, blocks_to_blob, make_obfuscators, public_key
from parley.common.service.prometheus import Metrics

CAPACITY = 4096
"""The most obfuscators kept for one key: 3 MB at 3072 bits, minutes of drawing."""
_BATCH = 8  # drawn at once: a quarter of a second at 3072 bits
_NICENESS = 10  # answering comes first
_PAUSE = 1.0  # seconds before a process that died is started again


@dataclass(slots=True, eq=False)
class _Pool:
    """The stock for one key; ``wanted`` is how many its session may still use."""

    key: PaillierPublicKey
    session: str
    wanted: int
    ready: deque[int] = field(default_factory=deque)

    @property
    def lacking(self) -> int:
        """How many to draw until the pool is full."""
        return min(self.wanted, CAPACITY) - len(self.ready)


class Reserved:
    """Obfuscators taken for one answer, an `ObfuscatorSource`."""

    def __init__(self, taken: dict[int, list[int]]) -> None:
        self._taken = taken

    def take(self, key: PaillierPublicKey, count: int) -> Sequence[int]:
        """Return those for this key, once. Raises OwnKeyError(obfuscators_exhausted)."""
        taken = self._taken.pop(key.n, [])
        if len(taken) != count:
            raise OwnKeyError("the obfuscators of this answer have been used", reason=Reason.OBFUSCATORS_EXHAUSTED)
        return taken


class Obfuscators:
    """The stock of a party, an `ObfuscatorSource`; safe to use from several threads."""

    def __init__(self, metrics: Metrics) -> None:
        self._level = Gauge("parley_obfuscators", "Obfuscators ready for use.", ["session"], registry=metrics.registry)
        self._drawn = Counter(
            "parley_obfuscators_drawn",
            "Obfuscators drawn ahead by the process beside the party, or late where the stock had run out.",
            ["when"],
            registry=metrics.registry,
        )
        for when in ("ahead", "late"):  # from 0 on, so that the first late one is an increase
            self._drawn.labels(when)
        self._pools: dict[int, _Pool] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def expect(self, session: str, moduli: Sequence[int], count: int) -> None:
        """Draw ahead for a session that may use so many obfuscators for each of these keys."""
        with self._changed:
            for n in moduli:
                self._pools.setdefault(n, _Pool(public_key(n), session, count)).wanted = count
            self._show(session)
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._fill, name="obfuscators", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def forget(self, session: str) -> None:
        """Discard a session's stock."""
        with self._changed:
            self._pools = {n: pool for n, pool in self._pools.items() if pool.session != session}
            with suppress(KeyError):
                self._level.remove(session)

    def ready(self, n: int) -> int:
        """Return how many are ready for the key of a modulus."""
        with self._changed:
            return len(self._pools[n].ready) if n in self._pools else 0

    def take(self, key: PaillierPublicKey, count: int) -> list[int]:
        """Return obfuscators that no other answer gets; those not drawn ahead are drawn now, which is slow."""
        with self._changed:
            taken: list[int] = []
            if (pool := self._pools.get(key.n)) is not None:
                taken = [pool.ready.popleft() for _ in range(min(count, len(pool.ready)))]
                pool.wanted = max(0, pool.wanted - count)
                self._show(pool.session)
                self._changed.notify_all()
        late = count - len(taken)
        self._drawn.labels("late").inc(late)
        return taken + make_obfuscators(key, late, os.urandom)

    def reserve(self, moduli: Sequence[int], count: int) -> Reserved:
        """Take ``count`` for each of these keys; as slow as `take` where the stock has run out."""
        return Reserved({n: self.take(public_key(n), count) for n in moduli})

    def close(self) -> None:
        """End the process and discard the whole stock."""
        with self._changed:
            self._closing = True
            self._pools = {}
            self._changed.notify_all()
        if (process := self._process) is not None:
            process.kill()
        if self._thread is not None:
            self._thread.join()

    def _show(self, session: str) -> None:
        """Set the session's gauge to the smallest stock of its keys."""
        levels = [len(pool.ready) for pool in self._pools.values() if pool.session == session]
        self._level.labels(session).set(min(levels, default=0))

    def _fill(self) -> None:
        """Draw for the key that lacks most, again and again, until closed."""
        while (need := self._neediest()) is not None:
            pool, count = need
            drawn = self._draw(pool.key, count)
            with self._changed:
                if not drawn and not self._closing:
                    structlog.get_logger().error("the process that draws obfuscators has died")
                    self._changed.wait(_PAUSE)
                pool.ready.extend(drawn)
                self._drawn.labels("ahead").inc(len(drawn))
                if pool.key.n in self._pools:
                    self._show(pool.session)
        self._end_process()

    def _neediest(self) -> tuple[_Pool, int] | None:
        """Wait until a pool lacks some; return the one that lacks most, and how many to draw. None when closing."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or any(pool.lacking > 0 for pool in self._pools.values()))
            if self._closing:
                return None
            pool = max(self._pools.values(), key=lambda pool: pool.lacking)
            return pool, min(_BATCH, pool.lacking)

    def _draw(self, key: PaillierPublicKey, count: int) -> list[int]:
        """Have the process draw ``count`` obfuscators; none if it dies."""
        process = self._running()
        width = _width(key)
        assert process.stdin is not None  # noqa: S101 -- both are pipes
        assert process.stdout is not None  # noqa: S101
        try:
            process.stdin.write(f"{key.n:x} {count}\n".encode())
            process.stdin.flush()
            blob = process.stdout.read(width * count)
        except OSError:
            blob = b""
        if len(blob) == width * count:
            return blocks_from_blob(blob, width, count)
        self._end_process()
        return []

    def _end_process(self) -> None:
        """Kill the process and reap it."""
        if (process := self._process) is not None:
            process.kill()
            process.communicate()
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        """Return the process, and start it if there is none."""
        if self._process is None:
            command = [sys.executable, "-m", __name__]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, process_group=0)  # noqa: S603 -- our own
        return self._process


def _width(key: PaillierPublicKey) -> int:
    """Return the length of a number modulo n squared, in bytes."""
    bits: int = key.nsquare.bit_length()
    return (bits + 7) // 8


def _serve(orders: TextIO) -> None:
    """Draw what each line orders, until the input ends: the main function of the process."""
    os.nice(_NICENESS)
    for order in orders:
        modulus, count = order.split()
        key = public_key(int(modulus, 16))
        drawn = make_obfuscators(key, int(count), os.urandom)
        sys.stdout.buffer.write(blocks_to_blob(drawn, _width(key)))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        _serve(sys.stdin)
