"""How drawing obfuscators ahead disturbs the event loop of the service it is done for: a JSON line a way of drawing.

``median_ms`` and ``p99_ms`` are delays of an event loop that asks to be woken every millisecond, over ``seconds``;
``per_second`` is how many obfuscators were drawn meanwhile. ``idle`` draws nothing, ``process`` is what parties do,
``powmod`` is a thread of this process that draws one after the other, which holds the interpreter's lock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import threading
import time
from collections.abc import Callable

import gmpy2
from phe import PaillierPublicKey

from parley.common.secure_sum.paillier import generate_key
from parley.common.service.prometheus import Metrics
from parley.party.answers.obfuscator_pool import CAPACITY, Obfuscators

_TICK = 0.001  # seconds


async def delays(seconds: float) -> list[float]:
    """Return by how many milliseconds each wake-up was late."""
    late = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        await asyncio.sleep(_TICK)
        late.append(1000 * (time.perf_counter() - start - _TICK))
    return late


def in_process(key: PaillierPublicKey) -> tuple[Callable[[], int], Callable[[], None]]:
    """Draw as a party does; how many there are, and how to stop."""
    stock = Obfuscators(Metrics())
    stock.expect("benchmark", [key.n], CAPACITY)
    while stock.ready(key.n) == 0:
        time.sleep(_TICK)
    return lambda: stock.ready(key.n), stock.close


def in_thread(key: PaillierPublicKey) -> tuple[Callable[[], int], Callable[[], None]]:
    """Draw in a thread, one by one."""
    drawn, stop = [0], threading.Event()

    def draw() -> None:
        while not stop.is_set():
            gmpy2.powmod(int.from_bytes(os.urandom(400)) % key.n, key.n, key.nsquare)
            drawn[0] += 1

    thread = threading.Thread(target=draw)
    thread.start()

    def end() -> None:
        stop.set()
        thread.join()

    return lambda: drawn[0], end


def idle(_: PaillierPublicKey) -> tuple[Callable[[], int], Callable[[], None]]:
    """Draw no obfuscators: the delays without any drawing."""
    return lambda: 0, lambda: None


def main() -> None:
    """Measure every way of drawing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key-bits", type=int, default=3072)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    key = generate_key(options.key_bits).public_key
    for name, start in {"idle": idle, "process": in_process, "powmod": in_thread}.items():
        count, stop = start(key)
        before = count()
        late = sorted(asyncio.run(delays(options.seconds)))
        drawn = count() - before
        stop()
        figures = {
            "drawing": name,
            "key_bits": options.key_bits,
            "seconds": options.seconds,
            "per_second": round(drawn / options.seconds, 1),
            "median_ms": round(statistics.median(late), 3),
            "p99_ms": round(late[int(0.99 * len(late))], 3),
            "worst_ms": round(late[-1], 3),
        }
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
