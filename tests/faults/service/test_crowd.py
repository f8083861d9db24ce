"""Too many connections: those whose clients say nothing make room, and where all are busy a request is told so."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.attackers import half_sent, under_attack
from tests.support.cluster import AUTHORIZED, LEARNER, USER, Cluster
from tests.support.processes import free_port, start_learner, start_party, stopped_at_exit, wait_until_ready
from tests.support.rounds import ASKING

MOST = 20


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A party that takes few connections, and waits long for what they say."""
    limits = {"connections": MOST, "receive_seconds": 60}
    settings = Cluster(tmp_path, n_parties=1).party_settings("party-1", port=free_port(), limits=limits)
    with stopped_at_exit(start_party(settings)):
        wait_until_ready(f"http://127.0.0.1:{settings.port}")
        yield settings.port


@pytest.mark.slow
def test_half_sent_requests_make_room_for_whole_ones(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    with under_attack(lambda: half_sent(port, LEARNER, "/v1/runs", count=10 * MOST, seconds=10)) as attack:
        answered = 0
        for _ in range(50):
            with httpx.Client(base_url=url, headers=ASKING, trust_env=False, timeout=30) as client:
                answered += client.get("/v1/party").is_success
    print(f"{answered} of 50 requests answered beside {10 * MOST} half-sent ones; {attack.words}, by {MOST} at once")
    assert answered == 50


def test_where_all_are_busy_a_request_is_told_so(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1, learner={"approval_seconds": 600})
    settings = cluster.learner_settings(
        {"party-1": f"http://127.0.0.1:{free_port()}"}, port=free_port(), limits={"connections": MOST}
    )
    url = f"http://127.0.0.1:{settings.port}"
    with stopped_at_exit(start_learner(settings)), ExitStack() as stack:
        wait_until_ready(url)
        order = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5}
        run = httpx.post(f"{url}/v1/runs", json=order, headers=AUTHORIZED, trust_env=False).json()["id"]
        for _ in range(MOST):  # watchers of a run that waits for a party which is not there
            watcher = stack.enter_context(socket.create_connection(("127.0.0.1", settings.port)))
            watcher.sendall(
                f"GET /v1/runs/{run}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {USER}\r\n\r\n".encode()
            )
            assert watcher.recv(2**12).startswith(b"HTTP/1.1 200")
        refused = httpx.get(f"{url}/v1/runs", headers=AUTHORIZED, trust_env=False)
        healthy = httpx.get(f"{url}/healthz", trust_env=False)
    print(f"beside {MOST} watchers: {refused.status_code} {refused.json()['detail']!r}, /healthz {healthy.status_code}")
    assert refused.status_code == 503
    assert refused.json()["detail"] == "too many connections are open; try again later"
    assert healthy.status_code == 200


@pytest.mark.parametrize(
    "endless",
    [
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ",
        b"GET /",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    ],
    ids=["header", "line", "chunk", "trailer"],
)
def test_what_is_no_body_ends(port: int, endless: bytes) -> None:
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, suppress(OSError):
        connection.sendall(endless)
        while sent < 2**26:
            sent += connection.send(b"a" * 2**16)
    print(f"closed after {sent // 2**10} KiB, most of them in the system's buffers")
    assert sent < 2**26


def test_a_client_that_asks_on_and_does_not_read_is_closed(tmp_path: Path) -> None:
    limits = {"receive_seconds": 1}
    settings = Cluster(tmp_path, n_parties=1).party_settings("party-1", port=free_port(), limits=limits)
    with stopped_at_exit(start_party(settings)):
        wait_until_ready(f"http://127.0.0.1:{settings.port}")
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
            deaf.settimeout(30)
            deaf.connect(("127.0.0.1", settings.port))
            start = time.monotonic()
            with suppress(OSError):
                while time.monotonic() - start < 30:
                    deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
            taken = time.monotonic() - start
    print(f"closed after {taken:.1f} s")
    assert taken < 30
