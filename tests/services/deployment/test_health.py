"""The health commands: whether a service is ready, asked over the address and the TLS of its own settings."""

from __future__ import annotations

import datetime as dt
import os
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPSConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pydantic_settings import SettingsConfigDict

from parley.common.errors import InvalidInputError, UnavailableError
from parley.common.service.health import _own_context, ask_ready
from parley.common.service.serve import tls_context
from parley.common.service.settings import ServiceSettings, Tls
from parley.common.storage.certificates import issue, make_authority
from parley.learner.cli.client import LearnerClient
from scripts.demo import begin, commands
from scripts.deployment.authority import renew
from scripts.deployment.deployment import Deployment, make_deployment
from scripts.deployment.sites import hospitals, loopback_site, services_of
from scripts.loopback import COMMANDS, processes
from tests.support.certificates import make_certificates
from tests.support.nightly import nightly
from tests.support.processes import free_port

PARTIES = hospitals(1)
_PATIENCE = 60.0

each_way = pytest.mark.parametrize("tls", [pytest.param(False, marks=nightly), True], ids=["http", "tls"])


@contextmanager
def running(root: Path, *, tls: bool) -> Iterator[Deployment]:
    """A learner, a key holder and a party as processes."""
    ports = {name: free_port() for name in services_of(PARTIES)}
    made = make_deployment(root, lambda name: loopback_site(root, name, ports[name], tls=tls), PARTIES)
    begin(made, root)
    with processes(commands(made), root):
        yield made


def health(made: Deployment, name: str) -> subprocess.CompletedProcess[str]:
    """What a service's health command says."""
    service = made.services[name]
    command: list[str | Path] = [
        COMMANDS / service.command[0],
        *service.command[1:-1],
        "health",
        "--config",
        service.config,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PARLEY_")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def wait_until_healthy(made: Deployment) -> None:
    """Wait until every service says that it is ready."""
    deadline = time.monotonic() + _PATIENCE
    for name in made.services:
        while (result := health(made, name)).returncode:
            assert result.returncode == 1
            assert "is not ready" in result.stderr
            assert time.monotonic() < deadline, result.stderr
            time.sleep(1)  # a command of its own each time would slow the services' start
        assert result.stdout == "ready\n"


@pytest.mark.slow
@each_way
def test_every_service_says_whether_it_is_ready(tmp_path: Path, *, tls: bool) -> None:
    with running(tmp_path / "deploy", tls=tls) as made:
        wait_until_healthy(made)
        if tls:
            renew(tmp_path / "deploy")
            wait_until_healthy(made)  # certificates are read again while services run
    stopped = {name: health(made, name) for name in made.services}
    assert {result.returncode for result in stopped.values()} == {1}
    assert all("does not answer (ConnectionRefusedError)" in result.stderr for result in stopped.values())
    print(f"{len(stopped)} services: {len(stopped)} ready while they ran, 0 when they had ended; TLS {tls}")


class Some(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="PARLEY_SOME_")


def settings(tmp_path: Path, **changes: object) -> ServiceSettings:
    fields: dict[str, Any] = {"name": "service", "state": tmp_path, "port": free_port()}
    return Some(**(fields | changes))


def test_a_port_that_is_not_known_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="port 0"):
        ask_ready(settings(tmp_path, port=0))


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"none\.pem"):
        ask_ready(settings(tmp_path, tls={"certificate": tmp_path / "none.pem", "key": tmp_path / "none.key"}))


@contextmanager
def answering(status: int, body: bytes, tls: Tls | None = None) -> Iterator[int]:
    """The port of a server that answers everybody with this."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/readyz"
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        if tls:
            server.socket = tls_context(tls).wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (503, b'{"detail": "the ledger cannot be written"}', "the ledger cannot be written"),
        (503, b"[]", "HTTP status 503"),
        (404, b"\xff", "HTTP status 404"),
        (301, b"", "HTTP status 301"),
        (503, b'{"detail": "%b"}' % (b"x" * (2**14 - 14)), "x" * (2**14 - 14)),
        (503, b'{"detail": "%b"}' % (b"x" * (2**14 - 13)), "HTTP status 503"),
    ],
)
def test_the_services_own_reason_is_passed_on(tmp_path: Path, status: int, body: bytes, reason: str) -> None:
    with answering(status, body) as port, pytest.raises(UnavailableError) as caught:
        ask_ready(settings(tmp_path, port=port))
    assert caught.value.detail == f"service is not ready: {reason}"


def test_another_protocol_is_no_answer(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    tls = Tls(certificate=files.certificate, key=files.key)
    with answering(200, b"") as port, pytest.raises(UnavailableError, match="does not answer"):
        ask_ready(settings(tmp_path, port=port, tls=tls))
    with answering(200, b"", tls) as port, pytest.raises(UnavailableError, match="does not answer"):
        ask_ready(settings(tmp_path, port=port))


def test_a_service_that_nobody_runs_does_not_answer(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(UnavailableError) as caught:
        ask_ready(settings(tmp_path, port=port, host="::1"))
    assert caught.value.detail == f"service is not ready: [::1]:{port} does not answer (ConnectionRefusedError)"


def test_a_certificate_need_not_name_this_machine_and_is_waited_for_five_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: list[float | None] = []

    class Plain(HTTPConnection):
        def connect(self) -> None:
            seconds.append(self.timeout)
            super().connect()

    class Tls13(HTTPSConnection):
        def connect(self) -> None:
            seconds.append(self.timeout)
            super().connect()

    monkeypatch.setattr("parley.common.service.health.HTTPConnection", Plain)
    monkeypatch.setattr("parley.common.service.health.HTTPSConnection", Tls13)
    elsewhere = issue(make_authority("elsewhere"), ["clinic.example"])
    (tmp_path / "a.pem").write_text(elsewhere.certificate_pem)
    (tmp_path / "a.key").write_text(elsewhere.key_pem)
    tls = Tls(certificate=tmp_path / "a.pem", key=tmp_path / "a.key")
    with answering(200, b"", tls) as port:
        ask_ready(settings(tmp_path, port=port, tls=tls))
    with answering(200, b"") as port:
        ask_ready(settings(tmp_path, port=port))
    assert seconds == [5.0, 5.0]
    plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).verify_flags
    assert _own_context(tls).verify_flags == plain | ssl.VERIFY_X509_PARTIAL_CHAIN


def test_an_expired_certificate_is_noticed(tmp_path: Path) -> None:
    good, expired = (make_certificates(tmp_path / str(hours), dt.timedelta(hours=hours)) for hours in (1, 0))
    for files, reason in ((good, None), (expired, "certificate has expired")):
        tls = Tls(certificate=files.certificate, key=files.key)
        with answering(200, b"", tls) as port:
            if reason is None:
                ask_ready(settings(tmp_path, port=port, host="0.0.0.0", tls=tls))  # noqa: S104 -- what a container listens on
                continue
            with pytest.raises(UnavailableError, match=reason):
                ask_ready(settings(tmp_path, port=port, tls=tls))


def test_a_user_believes_the_authority_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = make_certificates(tmp_path)
    with answering(200, b"{}", Tls(certificate=files.certificate, key=files.key)) as port:
        url = f"https://127.0.0.1:{port}"
        with LearnerClient(url, "token") as client, pytest.raises(UnavailableError, match="no learner answers"):
            client.ask("GET", "/readyz")
        monkeypatch.setenv("SSL_CERT_FILE", str(files.authority))
        with LearnerClient(url, "token") as client:
            assert client.ask("GET", "/readyz") == {}
