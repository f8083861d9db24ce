"""What one user may do to stall the others: raw connections that send too much, or not enough."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import httpx

_CHUNK = b"a" * 2**16


@dataclass
class Attack:
    """What an attack did, once its connections have ended: ``ended`` says that the service closed each of them."""

    ended: bool = False
    words: str = ""
    done: threading.Event = field(default_factory=threading.Event)


@contextmanager
def under_attack(attack: Callable[[], Attack]) -> Iterator[Attack]:
    """Run an attack in a thread; the end of the block waits for it."""
    report = Attack()

    def go() -> None:
        try:
            outcome = attack()
            report.ended, report.words = outcome.ended, outcome.words
        finally:
            report.done.set()

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    yield report
    thread.join(60)


def endless_head(port: int, n_bytes: int = 300 * 2**20) -> Attack:
    """One header of 300 MB, as fast as the service takes it."""
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, suppress(OSError):
        connection.sendall(b"GET /v1/party HTTP/1.1\r\nHost: x\r\nX: ")
        while sent < n_bytes:
            sent += connection.send(_CHUNK)
    return Attack(sent < n_bytes, f"{sent / 2**20:.1f} of {n_bytes // 2**20} MB of a header")


def half_sent(port: int, token: str, path: str, count: int = 50, seconds: float = 60.0) -> Attack:
    """Requests that stop in the head or in the body, each held open until the service closes it."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    with ExitStack() as stack:
        connections = []
        for index in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=seconds))
            connection.sendall(head.encode() + (b"Content-Length: 9\r\n\r\n{" if index % 2 else b""))
            connections.append(connection)
        start = time.monotonic()
        closed = sum(map(_is_closed, connections))
    return Attack(closed == count, f"{closed} of {count} half-sent requests closed in {time.monotonic() - start:.1f} s")


def long_json(url: str, token: str, path: str, body: bytes, count: int = 5) -> Attack:
    """Long bodies in JSON, one after the other."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    answers = []
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60) as client:
        for _ in range(count):
            try:
                answers.append(str(client.post(path, content=body).status_code))
            except httpx.TransportError as error:
                answers.append(type(error).__name__)
    return Attack(len(answers) == count, f"{count} bodies of {len(body) / 2**20:.0f} MB: {' '.join(answers)}")


def _is_closed(connection: socket.socket) -> bool:
    """Wait until the other side ends a connection; whether it did."""
    try:
        while connection.recv(2**16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True
