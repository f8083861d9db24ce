"""Services as real processes on loopback, forked from one that has imported everything: a start takes milliseconds."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import cycle
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import MappingProxyType

import httpx
import uvicorn
from starlette.types import ASGIApp

from parley.common.algorithms import REGISTRY
from parley.common.client.outbound import Outbound
from parley.common.privacy.noise import SystemNoise
from parley.common.service.serve import serve
from parley.learner.api.app import create_learner_app as create_learner
from parley.learner.api.membership import renewals
from parley.learner.settings import LearnerSettings
from parley.learner.storage.run_store import RunStore
from parley.party.answers.party import NoiseFactory
from parley.party.api.app import create_party_app as create_party
from parley.party.keyholder.app import create_key_holder_app
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.settings import PartySettings
from scripts.loopback import wait_until
from tests.support import forest
from tests.support.cluster import Cluster

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        __name__,
        "pyarrow.csv",
        "dp_accounting.pld.privacy_loss_distribution",
        forest.__name__,
        "tests.support.fits",
    ]
)
_START_SECONDS = 60.0
REGISTRY.add("probe", "tests.support.probe:Probe")  # which services in other processes know too


_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 20
_PORTS = cycle(10_000 + 1_000 * _WORKER + (os.getpid() + offset) % 1_000 for offset in range(1_000))
"""A worker's own, in turn, below those that the system gives out: none is another's by the time it is listened on."""


def free_port() -> int:
    """A port that nobody listens on now, and that is not given again for long."""
    for port in _PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError


@contextmanager
def serving(app: ASGIApp, port: int) -> Iterator[str]:
    """An application that a thread of this process serves on loopback; yields its URL once it accepts connections."""
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None, ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), seconds=_START_SECONDS, pause=0.01)
        assert server.started, f"port {port} cannot be listened on"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


def start_party(settings: PartySettings, noise: NoiseFactory = SystemNoise) -> BaseProcess:
    """A party's process."""
    return _start(_serve_party, settings, noise)


def start_key_holder(settings: KeyHolderSettings) -> BaseProcess:
    """A key holder's process."""
    return _start(_serve_key_holder, settings)


def start_learner(settings: LearnerSettings, die_after_round: int | None = None) -> BaseProcess:
    """The learner's process; it kills itself as soon as round ``die_after_round`` is logged (0: as rounds begin)."""
    return _start(_serve_learner, settings, die_after_round)


@contextmanager
def stopped_at_exit(*processes: BaseProcess) -> Iterator[None]:
    """End processes when the block ends."""
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(10)
            process.kill()


@contextmanager
def party_processes(
    cluster: Cluster, noises: Mapping[str, NoiseFactory] = MappingProxyType({})
) -> Iterator[dict[str, str]]:
    """The parties of a cluster as processes: their URLs by name."""
    urls = {name: f"http://127.0.0.1:{free_port()}" for name in cluster.names}
    parties = [
        start_party(cluster.party_settings(name, port=httpx.URL(url).port), noises.get(name, SystemNoise))
        for name, url in urls.items()
    ]
    with stopped_at_exit(*parties):
        for url in urls.values():
            wait_until_ready(url)
        yield urls


def wait_until_ready(url: str, authority: Path | None = None) -> None:
    """Wait until a service answers, whose certificate an authority has signed if it is an https one."""
    trusted = ssl.create_default_context(cafile=authority)
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            httpx.get(f"{url}/readyz", trust_env=False, verify=trusted).raise_for_status()
        except httpx.HTTPError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _start(
    target: Callable[..., None], settings: PartySettings | KeyHolderSettings | LearnerSettings, *args: object
) -> BaseProcess:
    process = _CONTEXT.Process(target=target, args=(settings, *args), daemon=True)
    process.start()
    return process


def _serve_party(settings: PartySettings, noise: NoiseFactory) -> None:
    _begin(settings.state.with_suffix(".log"))
    connections = Outbound(settings.outbound)
    serve(create_party(settings, noise), settings, [connections.keep], [connections.take_up])


def _serve_key_holder(settings: KeyHolderSettings) -> None:
    _begin(settings.state.with_suffix(".log"))
    connections = Outbound(settings.outbound)
    serve(create_key_holder_app(settings), settings, [connections.keep], [connections.take_up])


def _serve_learner(settings: LearnerSettings, die_after_round: int | None) -> None:
    _begin(settings.state.with_suffix(".log"))
    if die_after_round is not None:
        _die_after(die_after_round)
    serve(create_learner(settings), settings, renewals(settings))


def _die_after(round: int) -> None:
    """Make the store kill this process right after it has committed a round, or the start of the rounds."""
    append, enter = RunStore.append, RunStore.enter

    def deadly_append(self: RunStore, run: str, query: object, *args: object, **more: object) -> None:
        append(self, run, query, *args, **more)  # type: ignore[arg-type]
        if query.round == round:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGKILL)

    def deadly_enter(self: RunStore, run: str, state: str, **more: object) -> None:
        enter(self, run, state, **more)  # type: ignore[arg-type]
        if round == 0 and state == "running":
            os.kill(os.getpid(), signal.SIGKILL)

    RunStore.append, RunStore.enter = deadly_append, deadly_enter  # type: ignore[method-assign]


def _begin(path: Path) -> None:
    """Know one more algorithm, which no other suite should try, and append this process's output to a file."""
    REGISTRY.add("forest", forest.PLACE)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    for stream in (1, 2):
        os.dup2(file, stream)
