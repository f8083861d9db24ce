"""Tokens and certificates are replaced while services run, and no connection is dropped for it."""

from __future__ import annotations

import os
import signal
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from parley.common.client.endpoints import PeerEntry
from parley.common.client.peer import Line
from parley.common.service.prometheus import Metrics
from parley.common.service.serve import Upkeep
from parley.common.service.tokens import NamedCaller, SignInError, Tokens, hash_token
from parley.party.settings import PartySettings
from tests.support.certificates import Certificates, make_certificates
from tests.support.cluster import LEARNER, Cluster
from tests.support.lines import closing_line, line_over
from tests.support.processes import free_port, start_party, stopped_at_exit, wait_until_ready

PATIENCE = 30.0
OLD, NEW = "the-old-token", "the-new-token"


def today() -> date:
    """Return the day by which tokens expire; a run of the tests may last beyond midnight."""
    return datetime.now(UTC).date()


@dataclass
class Site:
    """A party with a settings file."""

    cluster: Cluster
    port: int
    watched: int

    @property
    def path(self) -> Path:
        return self.cluster.root / "party.toml"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def write(self, tokens: dict[str, int | None], threads: int = 1) -> None:
        """The settings file; ``tokens`` last for so many days, or for ever."""
        lines = [
            f'{{hash = "{hash_token(token)}"{"" if days is None else f", expires = {today() + timedelta(days)}"}}}'
            for token, days in tokens.items()
        ]
        draft = self.path.with_suffix(".draft")
        draft.write_text(f"""
name = "party-1"
state = "{self.cluster.root / "party-1"}"
port = {self.port}
blas_threads = {threads}
study = "{self.cluster.study_path}"
[metrics]
port = {self.watched}
[data]
source = "{self.cluster.root / "party-1.csv"}"
[policy]
epsilon = 100.0
delta = 0.1
max_epsilon_per_run = 100.0
max_delta_per_run = 0.1
[[learners]]
name = "learner"
tokens = [{", ".join(lines)}]
""")
        draft.rename(self.path)

    def metrics(self) -> str:
        """What the owner's monitor reads."""
        return shown_at(self.watched)

    def status(self, token: str) -> int:
        """What a token gets on a connection of its own."""
        return httpx.get(f"{self.url}/v1/party", headers=bearer(token), trust_env=False).status_code

    def log(self) -> str:
        """Return what the process has logged."""
        return (self.cluster.root / "party-1.log").read_text()

    def times_read(self) -> int:
        """How often the settings file was read again."""
        return self.log().count('"read": ')


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(Cluster(tmp_path, n_parties=1), free_port(), free_port())


def shown_at(port: int) -> str:
    """The metrics of a listener that asks for no token."""
    return httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def until(something: Callable[[], bool]) -> float:
    """Wait until something is so; the seconds that it took."""
    start = time.monotonic()
    while not something():
        assert time.monotonic() - start < PATIENCE
        time.sleep(0.05)
    return time.monotonic() - start


def test_tokens_change_without_a_stop(site: Site) -> None:
    site.write({OLD: None})
    process = start_party(PartySettings.load(site.path))
    with stopped_at_exit(process), httpx.Client(base_url=site.url, headers=bearer(OLD), trust_env=False) as client:
        wait_until_ready(site.url)
        assert (client.get("/v1/party").status_code, site.status(NEW)) == (200, 401)
        site.write({OLD: 20, NEW: 400})
        waited = until(lambda: site.status(NEW) == 200)
        assert site.status(OLD) == 200, "tokens overlap"
        until(lambda: 'parley_expiry_days{what="token"} 20.0' in site.metrics())
        site.path.write_text("neither = settings")
        until(lambda: "kept" in site.log())
        assert site.status(NEW) == 200, "an unusable file changes nothing"
        site.write({OLD: 0, NEW: 400}, threads=2)
        assert process.pid
        os.kill(process.pid, signal.SIGHUP)
        until(lambda: "needs_restart" in site.log())
        expired = client.get("/v1/party")
        times = site.times_read()
        os.kill(process.pid, signal.SIGHUP)
        until(lambda: site.times_read() > times)
    words = expired.json()["detail"]
    print(f"a new token counts {waited:.1f} s after it was written, beside the old one; later {words!r}")
    assert expired.status_code == 401
    assert words == "the bearer token has expired: ask for a new one"
    assert '"needs_restart": ["blas_threads"]' in site.log()
    assert '"event": "expires"' in site.log()
    assert not any(secret in site.log() for secret in (OLD, NEW, hash_token(OLD), hash_token(NEW)))


def test_a_token_that_ends_and_a_new_caller_wait_for_nothing_and_for_a_restart(site: Site) -> None:
    site.write({OLD: None})
    settings = PartySettings.load(site.path)
    tokens = Tokens(settings.tokens)
    upkeep = Upkeep(settings, tokens, Metrics())
    other = site.path.read_text() + f'[[learners]]\nname = "other"\ntoken_hash = "{hash_token(NEW)}"\n'
    site.path.write_text(other)
    upkeep.reload()
    assert tokens.identify(f"Bearer {OLD}") == NamedCaller("learner")
    with pytest.raises(SignInError, match="not known here"):
        tokens.identify(f"Bearer {NEW}")


async def test_expiry_is_told_once_a_day(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    first = today()
    site.write({OLD: 31, NEW: None})
    settings = PartySettings.load(site.path)
    tokens = Tokens(settings.tokens)
    upkeep = Upkeep(settings, tokens, metrics := Metrics())

    async def told(days: int) -> tuple[bool, bool]:
        """What is said on a later day, twice: whether there is a warning, and whether the metric is right."""
        tokens.today = lambda: first + timedelta(days)
        await upkeep.tend()
        await upkeep.tend()
        output = capfd.readouterr()
        is_shown = f'parley_expiry_days{{what="token"}} {31 - days}.0' in metrics.render().decode()
        return (output.out + output.err).count("expires") == 1, is_shown

    assert await told(0) == (False, True)
    assert await told(1) == (True, True)
    assert await told(30) == (True, True)


def tls_party(root: Path, **tls: Path) -> PartySettings:
    """The settings of a party that speaks TLS."""
    return Cluster(root, n_parties=1).party_settings(
        "party-1", port=free_port(), tls=tls, metrics={"port": free_port()}
    )


def status(url: str, client: httpx.Client) -> int:
    """The status of a request on a new connection; 0 where there is none."""
    with client:
        try:
            return client.get(f"{url}/v1/party", headers=bearer(LEARNER)).status_code
        except httpx.TransportError:
            return 0


def trusting(files: Certificates) -> httpx.Client:
    """A client that trusts an authority."""
    return httpx.Client(verify=ssl.create_default_context(cafile=files.authority), trust_env=False)


def install(source: Certificates, target: Certificates) -> None:
    """Put other files in place of some."""
    for old, new in ((target.authority, source.authority), (target.certificate, source.certificate)):
        old.write_bytes(new.read_bytes())
    target.key.write_bytes(source.key.read_bytes())


async def test_certificates_change_without_a_stop(tmp_path: Path) -> None:
    first, second = (make_certificates(tmp_path / name) for name in ("first", "second"))
    used = make_certificates(tmp_path / "used")
    install(first, used)
    settings = tls_party(tmp_path / "site", certificate=used.certificate, key=used.key)
    url = f"https://127.0.0.1:{settings.port}"
    with stopped_at_exit(start_party(settings)):
        until(lambda: status(url, trusting(first)) == 200)
        entry = PeerEntry(name="party-1", url=url, token=LEARNER, ca=used.authority)
        with trusting(first) as client:
            assert client.get(f"{url}/v1/party", headers=bearer(LEARNER)).status_code == 200
            async with closing_line(Line(entry)) as line:
                assert (await line.ask("GET", "/v1/party")).status == 200
            install(second, used)
            async with closing_line(Line(entry)) as line:
                assert (await line.ask("GET", "/v1/party")).status == 200, (
                    "the learner's side reads its files again too"
                )
            assert status(url, trusting(second)) == 200
            assert status(url, trusting(first)) == 0
            assert client.get(f"{url}/v1/party", headers=bearer(LEARNER)).status_code == 200, "a connection stays"
            assert settings.metrics
            assert 'parley_expiry_days{what="certificate"} 1.0' in shown_at(settings.metrics.port)
            used.key.write_text("no key")
            assert status(url, trusting(second)) == 200
    log = (tmp_path / "site" / "party-1.log").read_text()
    assert log.count('"kept": "those before"') == 1
    assert "cannot be used" in log
    assert '"what": "certificate"' in log, "a certificate of a day will soon expire"


def test_the_authority_of_clients_changes_without_a_stop(tmp_path: Path) -> None:
    server, first, second = (make_certificates(tmp_path / name) for name in ("server", "first", "second"))
    authority = tmp_path / "clients.pem"
    authority.write_bytes(first.authority.read_bytes())
    settings = tls_party(tmp_path / "site", certificate=server.certificate, key=server.key, client_ca=authority)
    url = f"https://127.0.0.1:{settings.port}"

    def showing(files: Certificates) -> httpx.Client:
        context = ssl.create_default_context(cafile=server.authority)
        context.load_cert_chain(files.certificate, files.key)
        return httpx.Client(verify=context, trust_env=False)

    with stopped_at_exit(start_party(settings)):
        until(lambda: status(url, showing(first)) == 200)
        assert status(url, showing(second)) == 0
        authority.write_bytes(second.authority.read_bytes())
        assert status(url, showing(second)) == 200
        assert status(url, showing(first)) == 0


async def test_a_changed_token_file_is_read_when_the_peer_refuses(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(OLD)
    seen: list[str] = []
    good = [OLD]

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"].removeprefix("Bearer "))
        return httpx.Response(200 if seen[-1] == good[0] else 401)

    entry = PeerEntry(name="party", url="http://party", plain_http=True, token_file=file)
    line = line_over(entry, httpx.MockTransport(answer))
    assert (await line.ask("GET", "/")).status == 200
    good[0] = NEW
    assert (await line.ask("GET", "/")).status == 401
    file.write_text(NEW)
    assert (await line.ask("GET", "/")).status == 200
    assert (await line.ask("GET", "/")).status == 200
    file.unlink()
    good[0] = "another"
    assert (await line.ask("GET", "/")).status == 401
    assert seen == [OLD, OLD, OLD, NEW, NEW, NEW]
