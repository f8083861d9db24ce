"""Services as real processes on this machine's loopback interface, for the demonstration and the benchmarks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

import httpx

COMMANDS = Path(sys.executable).parent
START_SECONDS, TELL_SECONDS = 900.0, 20.0
"""How long services may take to start, on a busy machine too, and how often it is said for whom one waits."""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that no process listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


def make_ledgers(
    *configs: Path,
    command: Sequence[str | Path] = (COMMANDS / "parley-party",),
    environment: Mapping[str, str] | None = None,
) -> None:
    """Have each party make its ledger, by its settings file, all at once.

    The party's ``command`` may be of another installation, and have another environment than this process.
    """
    commands = [(*command, "init", "--config", config) for config in configs]
    started = [subprocess.Popen(init, stdout=subprocess.DEVNULL, env=environment) for init in commands]  # noqa: S603 -- our own
    for process in started:
        if process.wait():
            raise RuntimeError("a party's ledger could not be made")


@contextmanager
def processes(
    commands: Mapping[str, Sequence[str | Path]], logs: Path, environment: Mapping[str, str] | None = None
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run commands, each as a process with a log in a folder, by name; the end of the block ends all of them.

    They have this process's environment, or the given one.
    """
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            with (logs / f"{name}.log").open("wb") as log:
                started[name] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)  # noqa: S603 -- ours
        yield started
    finally:
        for process in started.values():
            process.terminate()
        for process in started.values():
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that was asked to end; kill it if it does not."""
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until_ready(
    urls: Mapping[str, str], started: Mapping[str, subprocess.Popen[bytes]] = MappingProxyType({})
) -> None:
    """Wait until every service, by name, says that it is ready, and say meanwhile for whom.

    Raises ChildProcessError for one of those ``started`` that has ended, TimeoutError for one that is never ready.
    """
    begun = told = time.monotonic()
    with httpx.Client(trust_env=False, timeout=2.0) as client:
        for name, url in urls.items():
            while not _is_ready(client, url):
                now = time.monotonic()
                if name in started and (status := started[name].poll()) is not None:
                    raise ChildProcessError(f"{name} ended with status {status} before it was ready: see its log")
                if now - begun > START_SECONDS:
                    raise TimeoutError(f"{name} was not ready within {START_SECONDS:g} s")
                if now - told > TELL_SECONDS:
                    print(f"waiting for {name} since {now - begun:.0f} s: this machine is busy", file=sys.stderr)
                    told = now
                time.sleep(0.05)


def wait_until(is_so: Callable[[], bool], *, seconds: float, pause: float) -> None:
    """Wait until a condition holds, which is asked again after each pause; raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(pause)


def _is_ready(client: httpx.Client, url: str) -> bool:
    """Whether a service answers that it is ready."""
    try:
        return client.get(f"{url}/readyz").is_success
    except httpx.TransportError:
        return False


def cpu_seconds(pid: int) -> float:
    """The processor seconds that a process and its threads have used, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user's and system's: fields 14 and 15


def resident_mb(pid: int, field: str = "VmRSS") -> float:
    """A process's resident memory in megabytes: as it is now, or with ``VmHWM`` the most that it was."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split(f"{field}:")[1].split()[0]) / 1024
