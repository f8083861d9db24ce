"""An HTTP proxy between a user and a learner: asked for by a keyword or by the environment."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from parley.common.errors import InvalidInputError, UnavailableError
from parley.common.service.commands import ExitCode
from parley.learner.cli.main import learner_app
from parley.learner.client.learner import AsyncLearner, Learner


class Proxy:
    """Notes the head of each request, sends its ``answer``, and ends the connection."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.answer = b""
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
                line.sendall(self.answer)

    def close(self) -> None:
        if self._thread.is_alive():
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


REFUSED = (
    ("407 Proxy Authentication Required", "ann:secret@", "the proxy {} does not take this user and password"),
    (
        "407 Proxy Authentication Required",
        "",
        "the proxy {} asks for a password: name it http://user:password@host:port",
    ),
    ("502 Bad Gateway", "", "the proxy {} does not connect to {}: 502 Bad Gateway"),
)


@pytest.mark.parametrize(("status", "user", "words"), REFUSED)
def test_a_proxy_that_refuses_is_named_at_once(proxy: Proxy, status: str, user: str, words: str) -> None:
    proxy.answer = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()
    for url in ("https://learner.example", "http://learner.example"):
        expected = words.format(f"http://{proxy.address}", url)
        with Learner(url, "t", proxy=f"http://{user}{proxy.address}", patience=0) as learner:
            for ask in (learner.user, lambda: list(learner.watch("r"))):
                with pytest.raises(UnavailableError) as refused:
                    ask()
                assert refused.value.detail == expected


def test_a_proxy_that_is_away_is_named_and_a_lost_password_is_not_asked_again(proxy: Proxy) -> None:
    proxy.answer = b"HTTP/1.1 407 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    with Learner("https://learner.example", "t", proxy=f"http://{proxy.address}") as learner:
        with pytest.raises(UnavailableError, match="asks for a password"):  # without 60 seconds of patience
            list(learner.watch("r"))
        assert len(proxy.heads) == 1
        proxy.close()
        with pytest.raises(UnavailableError, match=rf"the proxy http://{proxy.address} cannot be reached"):
            learner.user()


def test_a_command_takes_a_proxy(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_TOKEN", "t")
    done = CliRunner().invoke(
        learner_app, ["list", "--url", "http://learner.example", "--proxy", f"http://{proxy.address}"]
    )
    assert done.exit_code == ExitCode.UNREACHABLE
    assert f"no learner answers at http://learner.example through the proxy http://{proxy.address}" in done.stderr
    assert proxy.heads[0].startswith("GET http://learner.example/v1/runs")


def test_what_is_no_proxy_is_refused_without_its_password() -> None:
    with pytest.raises(InvalidInputError, match="the proxy is named") as refused:
        Learner("https://learner.example", token="a-token", proxy="socks5://ann:secret@h")
    assert "secret" not in str(refused.value)
