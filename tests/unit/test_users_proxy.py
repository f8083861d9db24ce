"""An HTTP proxy between a user and a learner: asked for by a keyword or by the environment."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from parley.common.errors import InvalidInputError, UnavailableError
from parley.learner.client.learner import AsyncLearner, Learner


class Proxy:
    """Notes the head of each request, and ends its connection."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._note, daemon=True)
        self._thread.start()

    def _note(self) -> None:
        while True:
            try:
                line, _ = self._listening.accept()
            except OSError:
                return
            with line:
                self.heads.append(line.recv(2**16).decode())

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    noting = Proxy()
    yield noting
    noting.close()


WAYS = [
    ("https://learner.example:8443", "CONNECT learner.example:8443 HTTP/1.1", "learner.example:8443"),
    ("http://learner.example", "GET http://learner.example/v1/user HTTP/1.1", "learner.example"),
    ("https://[2001:db8::1]", "CONNECT [2001:db8::1]:443 HTTP/1.1", "[2001:db8::1]:443"),
    ("https://[::ffff:192.0.2.1]:8443/at", "CONNECT [::ffff:192.0.2.1]:8443 HTTP/1.1", "[::ffff:192.0.2.1]:8443"),
    ("http://[2001:db8::1]:81", "GET http://[2001:db8::1]:81/v1/user HTTP/1.1", "[2001:db8::1]:81"),
    ("http://[2001:db8::1]/at/", "GET http://[2001:db8::1]/at/v1/user HTTP/1.1", "[2001:db8::1]"),
]


@pytest.mark.parametrize(("url", "line", "host"), WAYS)
def test_a_learner_is_asked_by_a_proxy(proxy: Proxy, url: str, line: str, host: str) -> None:
    with Learner(url, token="a-token", proxy=f"http://ann:secret@{proxy.address}") as learner:
        with pytest.raises(UnavailableError):
            learner.user()
        assert "secret" not in repr(learner)
    assert proxy.heads[0].split("\r\n")[0] == line
    assert f"\r\nHost: {host}\r\n" in proxy.heads[0]
    assert "Proxy-Authorization: Basic YW5uOnNlY3JldA==" in proxy.heads[0]


def test_the_environment_names_a_proxy_for_other_machines_alone(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_PROXY", f"http://{proxy.address}")
    for url, is_asked in (("https://learner.example", True), ("http://127.0.0.1:1", False), ("http://[::1]:1", False)):
        proxy.heads.clear()
        with Learner(url, token="a-token") as learner, pytest.raises(UnavailableError):
            learner.user()
        assert bool(proxy.heads) == is_asked


@pytest.mark.asyncio
async def test_an_event_loop_asks_by_a_proxy(proxy: Proxy) -> None:
    for url, line, _ in WAYS:
        proxy.heads.clear()
        async with AsyncLearner(url, token="a-token", proxy=f"http://{proxy.address}") as learner:
            with pytest.raises(UnavailableError):
                await learner.user()
        assert proxy.heads[0].split("\r\n")[0] == line


def test_what_is_no_proxy_is_refused_without_its_password() -> None:
    with pytest.raises(InvalidInputError, match="the proxy is named") as refused:
        Learner("https://learner.example", token="a-token", proxy="socks5://ann:secret@h")
    assert "secret" not in str(refused.value)
