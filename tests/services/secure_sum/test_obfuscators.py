"""Obfuscators drawn ahead: each used once, even if a process dies; the metrics show the stock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from phe import PaillierPrivateKey

from parley.common.secure_sum.paillier import generate_key
from parley.common.service.prometheus import Metrics
from parley.party.answers.obfuscator_pool import Obfuscators

PATIENCE = 60.0


@pytest.fixture(scope="module")
def key() -> PaillierPrivateKey:
    return generate_key(2048)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def stock(metrics: Metrics) -> Iterator[Obfuscators]:
    obfuscators = Obfuscators(metrics)
    yield obfuscators
    obfuscators.close()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def exists(pid: int) -> bool:
    """Whether a process runs, and is more than a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_threads_never_get_the_same(key: PaillierPrivateKey, stock: Obfuscators) -> None:
    stock.expect("session", [key.public_key.n], 60)
    wait_until(lambda: stock.ready(key.public_key.n) >= 20)
    with ThreadPoolExecutor(8) as threads:
        taken = [one for part in threads.map(lambda count: stock.take(key.public_key, count), [5] * 16) for one in part]
    assert len(set(taken)) == len(taken) == 80
    assert [key.raw_decrypt(one) for one in taken[::10]] == [0] * 8


def test_the_stock_fills_as_far_as_the_session_goes(
    key: PaillierPrivateKey, stock: Obfuscators, metrics: Metrics
) -> None:
    n, other = key.public_key.n, generate_key(2048).public_key.n
    stock.expect("session", [n, other], 12)
    wait_until(lambda: stock.ready(n) == stock.ready(other) == 12)
    assert 'parley_obfuscators{session="session"} 12.0' in metrics.render().decode()
    stock.take(key.public_key, 7)
    stock.expect("later", [generate_key(2048).public_key.n], 1)
    wait_until(lambda: 'parley_obfuscators{session="later"} 1.0' in metrics.render().decode())
    assert stock.ready(n) == 5  # all that the session may still use
    stock.forget("session")
    assert stock.ready(n) == stock.ready(other) == 0
    text = metrics.render().decode()
    assert 'session="session"' not in text
    assert 'parley_obfuscators_drawn_total{when="ahead"} 25.0' in text


def test_what_is_not_in_stock_is_drawn_late(key: PaillierPrivateKey, stock: Obfuscators, metrics: Metrics) -> None:
    taken = stock.take(key.public_key, 3)
    assert len(set(taken)) == 3
    assert 'parley_obfuscators_drawn_total{when="late"} 3.0' in metrics.render().decode()


def test_a_killed_process_is_replaced_and_nothing_comes_twice(key: PaillierPrivateKey, stock: Obfuscators) -> None:
    n, taken = key.public_key.n, []
    stock.expect("session", [n], 1000)
    kills = 3
    for _ in range(kills):
        wait_until(lambda: stock.ready(n) > 0 and stock._process is not None)
        process = stock._process
        assert process is not None
        process.kill()
        taken += stock.take(key.public_key, stock.ready(n))
        wait_until(lambda process=process: stock._process not in (None, process))  # type: ignore[misc]
    wait_until(lambda: stock.ready(n) > 0)
    taken += stock.take(key.public_key, stock.ready(n))
    assert len(set(taken)) == len(taken)
    print(f"the drawing process killed {kills} times: {len(taken)} obfuscators used, 0 twice")


def test_a_restart_hands_out_none_of_those_before(key: PaillierPrivateKey) -> None:
    seen: list[int] = []
    for _ in range(3):
        stock = Obfuscators(Metrics())
        stock.expect("session", [key.public_key.n], 16)
        wait_until(lambda stock=stock: stock.ready(key.public_key.n) == 16)  # type: ignore[misc]
        seen += stock.take(key.public_key, 8)
        stock.close()
        assert stock._process is None
    assert len(set(seen)) == len(seen) == 24


def test_the_process_dies_with_its_party() -> None:
    """A party killed with SIGKILL leaves nobody behind who draws for ever."""
    program = (
        "import time; from parley.common.service.prometheus import Metrics\n"
        "from parley.party.answers.obfuscator_pool import Obfuscators\n"
        f"stock = Obfuscators(Metrics()); stock.expect('session', [{generate_key(2048).public_key.n}], 4000)\n"
        "while stock._process is None: time.sleep(0.01)\n"
        "print(stock._process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as party:
        assert party.stdout is not None
        child = int(party.stdout.readline())
        assert exists(child)
        os.kill(party.pid, signal.SIGKILL)
        party.wait()
    wait_until(lambda: not exists(child))
