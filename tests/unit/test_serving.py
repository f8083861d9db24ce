"""How a service begins and is kept up: what its server is given, and what a changed settings file changes."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import resource
import signal
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, cast

import pytest
import uvicorn
from fastapi import FastAPI
from pydantic import Field
from pydantic_settings import SettingsConfigDict
from structlog.testing import capture_logs

from parley.common.errors import InvalidInputError
from parley.common.service import logs
from parley.common.service import serve as serving
from parley.common.service.prometheus import Metrics
from parley.common.service.serve import FullCollections, Upkeep, serve, take_up_nothing, tls_context
from parley.common.service.settings import ServiceSettings, Tls
from parley.common.service.tokens import Caller, SignInError, Tokens, hash_token
from parley.common.service.tracing import Tracing
from tests.support.certificates import make_certificates


class Some(ServiceSettings):
    """The settings of a service without anything of its own."""

    model_config = SettingsConfigDict(env_prefix="PARLEY_SOME_")

    learners: Annotated[tuple[Caller, ...], Field(description="who may ask")] = ()


class Stage:
    """What `serve` did, with all that it starts replaced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.handlers: dict[int, Any] = {}
        self.server: tuple[Any, ...] = ()
        note = self.note
        monkeypatch.setattr(logs, "configure", note("logs"))
        monkeypatch.setattr(serving, "begin_tracing", note("tracing"))
        monkeypatch.setattr(serving, "tls_context", lambda tls: ("context of", tls))
        monkeypatch.setattr(uvicorn, "Config", lambda app, **options: {"app": app, **options})
        monkeypatch.setattr(serving, "_allow_connections", note("allow"))
        monkeypatch.setattr(serving, "connections_allowed", self.allowed)
        monkeypatch.setattr(serving, "_give_memory_back", note("memory"))
        monkeypatch.setattr(serving, "FullCollections", lambda: self.part("collections", "begin", "tend"))
        monkeypatch.setattr(serving, "Upkeep", self.upkeep)
        monkeypatch.setattr(signal, "signal", self.handlers.__setitem__)
        monkeypatch.setattr(sys, "setswitchinterval", note("switch"))
        monkeypatch.setattr(serving, "threadpool_limits", self.limited)
        monkeypatch.setattr(serving, "BoundedServer", self.serves)

    def note(self, name: str) -> Any:  # noqa: ANN401 -- stands for any function
        return lambda *given: self.done.append((name, *given))

    def part(self, name: str, *methods: str) -> SimpleNamespace:
        return SimpleNamespace(**{method: self.note(f"{name} {method}") for method in methods})

    def upkeep(self, *given: object) -> SimpleNamespace:
        self.done.append(("upkeep", *given))
        return SimpleNamespace(keep="the upkeep", look_again=self.note("upkeep look_again"))

    def allowed(self, *given: object) -> int:
        self.done.append(("allowed", *given))
        return 77

    @contextmanager
    def limited(self, threads: int, **options: str) -> Iterator[None]:
        self.done.append(("threads", threads, options))
        yield
        self.done.append(("no limit",))

    def serves(self, *given: object) -> SimpleNamespace:
        self.server = given
        return SimpleNamespace(run=self.note("run"))


@pytest.mark.parametrize("is_tls", [False, True])
async def test_a_service_is_served_by_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_tls: bool
) -> None:
    stage, app = Stage(monkeypatch), FastAPI()
    app.state.tokens, app.state.metrics, app.state.take_up = "the tokens", "the metrics", "takes up"
    tls = Tls(certificate=tmp_path / "a.pem", key=tmp_path / "a.key") if is_tls else None
    tracing = Tracing.model_validate({"endpoint": "https://collector"}) if is_tls else None
    more: dict[str, Any] = {"tls": tls, "tracing": tracing, "limits": {"stop_seconds": 9}, "shares": {"connections": 5}}
    settings = Some(name="clinic", state=tmp_path, host="127.0.0.2", port=8123, log_format="text", **more)
    beside: Any = ["a task"]
    followers: Any = ["a follower"]
    with capture_logs() as lines:
        serve(app, settings, beside, followers)
    config, limits, tend, *rest = stage.server
    factory = config.pop("ssl_context_factory")
    assert (factory is not None) == is_tls
    assert not is_tls or factory("config", "default") == ("context of", tls)
    assert config == {
        "app": app,
        "host": "127.0.0.2",
        "port": 8123,
        "access_log": False,
        "log_config": None,
        "server_header": False,
        "timeout_graceful_shutdown": 9,
        "ws": "none",
    }
    assert (limits, rest) == (settings.limits, [["the upkeep", *beside], 77, 5])
    line = {"event": "serving", "log_level": "info", "name": "clinic", "host": "127.0.0.2", "port": 8123}
    assert lines == [line | {"tls": is_tls, "connections": 77}]
    await tend()
    stage.handlers[signal.SIGHUP](signal.SIGHUP, None)
    assert stage.done == [
        ("logs", "text"),
        ("tracing", tracing, "clinic"),
        ("allow",),
        ("allowed", settings.limits, 0),
        ("upkeep", settings, "the tokens", "the metrics", "takes up", followers),
        ("memory",),
        ("collections begin",),
        ("switch", 0.0005),
        ("threads", 1, {"user_api": "blas"}),
        ("run",),
        ("no limit",),
        ("collections tend",),
        ("upkeep look_again",),
    ]
    assert sorted(stage.handlers) == sorted([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    for stop in (signal.SIGINT, signal.SIGTERM):
        with pytest.raises(SystemExit) as ended:
            stage.handlers[stop](stop, None)
        assert ended.value.code == 0


def test_a_service_has_nothing_beside_it_unless_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, app = Stage(monkeypatch), FastAPI()
    app.state.tokens = app.state.metrics = None
    serve(app, Some(name="clinic", state=tmp_path))
    assert stage.server[3] == ["the upkeep"]
    assert ("upkeep", Some(name="clinic", state=tmp_path), None, None, take_up_nothing, ()) in stage.done


def test_a_service_shows_by_files_that_it_is_ready_where_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, app = Stage(monkeypatch), FastAPI()
    app.state.tokens, app.state.metrics, app.state.ready = None, None, "whether it is ready"
    monkeypatch.setattr(serving, "heartbeat", lambda *given: ("heartbeat", *given))
    beside: Any = ["a task"]
    serve(app, Some(name="clinic", state=tmp_path, heartbeat=tmp_path), beside)
    assert stage.server[3] == ["the upkeep", "a task", ("heartbeat", tmp_path, "whether it is ready")]


def test_a_service_may_have_as_many_files_open_as_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (5, 99) if kind == resource.RLIMIT_NOFILE else (1, 2))
    monkeypatch.setattr(resource, "setrlimit", lambda *given: limits.append(given))
    serving._allow_connections()
    assert limits == [(resource.RLIMIT_NOFILE, (99, 99))]
    for error in (ValueError, OSError):
        monkeypatch.setattr(resource, "setrlimit", lambda *_, error=error: (_ for _ in ()).throw(error()))
        serving._allow_connections()


def test_large_memory_is_returned_at_once_where_the_c_library_can(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []

    def library(name: object) -> object:
        calls.append((name,))
        return SimpleNamespace(mallopt=lambda *given: calls.append(given))

    monkeypatch.setattr(ctypes, "CDLL", library)
    serving._give_memory_back()
    assert calls == [(None,), (-3, 2**23), (-1, 2**24)]
    for error in (AttributeError, OSError, TypeError):
        monkeypatch.setattr(ctypes, "CDLL", lambda _, error=error: (_ for _ in ()).throw(error()))
        serving._give_memory_back()


def test_the_collector_begins_with_what_is_there_and_looks_at_all_when_it_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[object] = []
    monkeypatch.setattr(gc, "freeze", lambda: done.append("frozen"))
    monkeypatch.setattr(gc, "set_threshold", lambda *given: done.append(given))
    monkeypatch.setattr(gc, "collect", lambda: done.append("collected"))
    now = SimpleNamespace(clock=100.0, count=50)
    collections = FullCollections(lambda: now.clock, lambda: now.count)
    collections.begin()
    assert done == ["frozen", (50_000, 1, 2**31 - 1)]
    for clock, count, is_time in (
        (129.9, 50, False),
        (130.0, 50 + 2**20, False),
        (130.0, 49 + 2**20, True),
        (159.9, 40, False),
        (160.0, 40 + 2**20, False),
        (729.9, 40 + 2**20, False),
        (730.0, 2**30, True),
    ):
        done.clear()
        now.clock, now.count = clock, count
        collections.tend()
        assert done == ["collected"] * is_time, (clock, count)
    fresh = FullCollections(lambda: -1e300, lambda: 2**62)
    done.clear()
    fresh.tend()
    assert done == ["collected"], "it was never done before"


def test_a_context_of_files_that_cannot_be_used_is_refused_by_their_names(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    authority = tmp_path / "no.authority"
    authority.write_text("none")
    for tls in (
        Tls(certificate=files.key, key=files.key),
        Tls(certificate=files.certificate, key=tmp_path / "none"),
        Tls(certificate=files.certificate, key=files.key, client_ca=authority),
    ):
        with pytest.raises(InvalidInputError) as refused:
            tls_context(tls)
        assert refused.value.detail == f"tls: {tls.certificate}, {tls.key} or the client authority cannot be used"


def test_a_context_is_of_its_files_and_asks_clients_for_what_the_settings_say(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    ours = {"certificate": files.certificate, "key": files.key}
    for more, verify in (
        ({}, ssl.CERT_NONE),
        ({"client_ca": files.authority}, ssl.CERT_REQUIRED),
        ({"client_ca": files.authority, "clients": "optional"}, ssl.CERT_OPTIONAL),
    ):
        context = tls_context(Tls.model_validate(ours | more))
        assert context._files == (*ours.values(), *([files.authority] if more else []))  # type: ignore[attr-defined]
        newest = context._newest  # type: ignore[attr-defined]
        assert (newest.verify_mode, newest.minimum_version) == (verify, ssl.TLSVersion.TLSv1_3)
        assert len(newest.get_ca_certs()) == len(more) - ("clients" in more)


OLD, NEW = hash_token("old"), hash_token("new")
TODAY = date(2027, 1, 1)


class Kept:
    """A service with a settings file that is kept up."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "some.toml"
        self.write(f'token_hash = "{OLD}"')
        settings = Some.load(self.path)
        self.metrics = Metrics()
        self.tokens = Tokens(settings.tokens, lambda: TODAY)
        self.settings = settings.model_copy(update={"port": 1})
        self.upkeep = Upkeep(self.settings, self.tokens, self.metrics)

    def write(self, learner: str, more: str = "", others: str = "") -> None:
        """Write the settings: of the learner by the name of ann, ``more`` of the service, and other learners."""
        self.put(
            f'name = "clinic"\nstate = "{self.path.parent}"\n{more}\n[[learners]]\nname = "ann"\n{learner}\n{others}'
        )

    def put(self, text: str) -> None:
        """Replace the file, whose time of change may be that of the one before."""
        draft = self.path.with_suffix(".draft")
        draft.write_text(text)
        draft.rename(self.path)

    def tend(self) -> list[Any]:
        with capture_logs() as lines:
            asyncio.run(self.upkeep.tend())
        return lines

    def knows(self, token: str) -> bool:
        return self.status(token) == "ann"

    def status(self, token: str) -> str:
        """Whose token it is, or why it is refused."""
        try:
            return str(self.tokens.identify(f"Bearer {token}"))
        except SignInError as error:
            return error.reason


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_a_changed_file_replaces_tokens_and_says_what_else_needs_a_restart(kept: Kept) -> None:
    read = {"event": "settings", "log_level": "info", "read": str(kept.path)}
    assert kept.tend() == []
    kept.write(f'token_hash = "{NEW}"')
    assert (kept.knows("old"), kept.knows("new")) == (True, False)
    assert kept.tend() == [read], "the options of a command are no change of the file"
    assert (kept.knows("old"), kept.knows("new")) == (False, True)
    assert kept.tend() == []
    kept.write(f'tokens = [{{hash = "{OLD}"}}]', "port = 9\nhost = '127.0.0.2'")
    restart = {"event": "settings", "log_level": "warning", "needs_restart": ["host", "port"]}
    assert kept.tend() == [read, restart]
    kept.write(f'token_hash = "{OLD}"', others=f'[[learners]]\nname = "bob"\ntoken_hash = "{NEW}"')
    assert kept.tend() == [read, restart | {"needs_restart": ["learners"]}]
    assert (kept.knows("old"), kept.knows("new")) == (True, False)
    with pytest.raises(SignInError, match="not known"):
        kept.tokens.identify("Bearer new")


def test_a_file_that_cannot_be_used_changes_nothing(kept: Kept) -> None:
    assert kept.tend() == []
    kept.put("name = 3")
    (line,) = kept.tend()
    assert str(line.pop("reason")).startswith(f"settings {kept.path}: ")
    assert line == {"event": "settings", "log_level": "warning", "kept": "those before"}
    assert kept.knows("old")
    kept.path.unlink()
    assert kept.tend()[0]["reason"] == f"settings {kept.path}: No such file or directory: say --config FILE"
    assert kept.tend() == []


def test_what_the_application_takes_up_needs_no_restart(kept: Kept) -> None:
    """New callers count once it has taken them up, before its followers hear of it; and what it has not, does."""
    done: list[tuple[object, ...]] = []

    def take_up(settings: Some) -> tuple[str, ...]:
        done.append(("application", settings.port, kept.status("new")))
        if settings.port == 666:
            raise InvalidInputError("port: that of the beast")
        return ("learners", "port") if settings.port < 1000 else ("port",)

    def follow(settings: Some) -> tuple[str, ...]:
        done.append(("follower", settings.port, kept.status("new")))
        return ("heartbeat",)

    kept.upkeep = Upkeep(kept.settings, kept.tokens, kept.metrics, take_up, [follow])
    assert kept.tend() == []
    read = {"event": "settings", "log_level": "info", "read": str(kept.path)}
    bob = f'[[learners]]\nname = "bob"\ntoken_hash = "{NEW}"'
    kept.write(f'token_hash = "{OLD}"', "port = 666", others=bob)
    kept_line = {"event": "settings", "log_level": "warning", "kept": "those before"}
    assert kept.tend() == [kept_line | {"reason": "port: that of the beast"}]
    kept.write(f'token_hash = "{OLD}"', "port = 9\nheartbeat = '/tmp'\nhost = '127.0.0.2'", others=bob)
    restart = {"event": "settings", "log_level": "warning", "needs_restart": ["host"]}
    assert kept.tend() == [read | {"taken_up": ["port", "heartbeat", "learners"]}, restart]
    kept.write(f'token_hash = "{OLD}"', "port = 1009\nheartbeat = '/tmp'")
    assert kept.tend() == [read | {"taken_up": ["port"]}, restart | {"needs_restart": ["learners"]}]
    assert kept.status("new") == "unknown", "the application still knows bob, and nobody may come as bob"
    kept.write(f'token_hash = "{OLD}"', "port = 1009\nheartbeat = '/tmp'", others=bob)
    assert kept.tend() == [read], "the settings are those in use, and not those of the start"
    assert kept.status("new") == "bob"
    assert done == [
        ("application", 666, "unknown"),
        ("application", 9, "unknown"),
        ("follower", 9, "bob"),
        ("application", 1009, "bob"),
        ("follower", 1009, "unknown"),
        ("application", 1009, "unknown"),
        ("follower", 1009, "bob"),
    ]


async def test_settings_that_take_long_to_take_up_hold_nothing_else_up(kept: Kept) -> None:
    goes_on = threading.Event()
    kept.upkeep = Upkeep(kept.settings, kept.tokens, kept.metrics, lambda _: ["port"] * goes_on.wait(30))
    kept.write(f'token_hash = "{NEW}"')
    keeping = asyncio.create_task(kept.upkeep.keep(cast("Any", None)))
    for _ in range(3):
        await asyncio.sleep(0.01)
        assert kept.knows("old")
    goes_on.set()
    while not kept.knows("new"):  # noqa: ASYNC110 -- a thread replaces them
        await asyncio.sleep(0.01)
    keeping.cancel()


def test_a_file_is_read_again_if_that_is_asked_for(kept: Kept) -> None:
    assert kept.tend() == []
    kept.upkeep.look_again()
    assert kept.tend() == [{"event": "settings", "log_level": "info", "read": str(kept.path)}]


def test_settings_without_a_file_are_kept_up_too(tmp_path: Path) -> None:
    settings = Some(name="clinic", state=tmp_path)
    upkeep = Upkeep(settings, Tokens(settings.tokens, lambda: TODAY), Metrics())
    upkeep.look_again()
    with capture_logs() as lines:
        asyncio.run(upkeep.tend())
    assert lines == []


def test_what_expires_soon_is_told_once_a_day_by_what_it_is(
    tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = {tmp_path / "a.pem": 31, tmp_path / "b.pem": 30}
    monkeypatch.setattr(Some, "certificates", property(lambda _: (*days, tmp_path / "no.pem")))
    monkeypatch.setattr(serving, "certificate_expiry", {path: TODAY + timedelta(n) for path, n in days.items()}.get)
    token = {"event": "expires", "log_level": "warning", "what": "token", "of": "ann", "days": 29}
    certificate = token | {"what": "certificate", "of": str(tmp_path / "b.pem"), "days": 30}
    assert kept.tend() == [certificate], "the token does not expire"
    assert kept.tend() == []
    kept.write(f'tokens = [{{hash = "{OLD}", expires = {TODAY + timedelta(29)}}}]')
    assert kept.tend()[1:] == [token, certificate], "it is told again once the file has changed"
    assert kept.tend() == []
    kept.tokens.today = lambda: TODAY - timedelta(2)
    assert kept.tend() == [], "more than thirty days are many"
    text = kept.metrics.render().decode()
    assert 'parley_expiry_days{what="token"} 31.0\n' in text
    assert 'parley_expiry_days{what="certificate"} 32.0\n' in text
