"""How far a call walks through the files of the packages: a round, a token, a cell of a table.

    python -m scripts.benchmarks.walks

One JSON line, the same each time. A call is the start of a function of the packages, comprehensions and generator
expressions aside; a coroutine that goes on is no call. A move is a call from another file than the function's own: the
caller is the nearest function of the packages on the stack, and a call by a library alone is a move too.

- The round: a learner and two parties in this process, on loopback, so that all calls of both sides are seen: one round
  of gradient descent, from one reply in the hands of the program to the next.
- The token: a user's request of the learner, from its bearer token to the route that its role may use.
- The cell: a CSV file of one row, one feature and a label, from its path to a shard on the grid.

Each is walked many times. A function counts as often as it does in the median walk, so what happens beside some of
them, such as news of witnesses, is no part of it.

The frames are the functions of the packages that wait for each other when the first byte of a query leaves: from the
driver, which has the query of the program, to the one that writes, tasks that others wait for included.
"""

from __future__ import annotations

import asyncio
import dis
import inspect
import json
import os
import socket
import sys
import tempfile
import threading
from asyncio import selector_events
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import median
from types import CodeType, FrameType
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

FIRST, WALKS = 20, 41  # rounds before those that count; walks of each kind that count
COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
RESUME = dis.opmap["RESUME"]
STARTS_TASKS = {asyncio.gather.__code__, asyncio.create_task.__code__, asyncio.TaskGroup.create_task.__code__}


@dataclass(frozen=True, slots=True)
class Waiting:
    """The functions that wait for tasks, from the innermost: those of ``task``, then those that wait for it."""

    task: asyncio.Task[Any] | None
    names: tuple[str, ...]


WAITING: ContextVar[Waiting | None] = ContextVar("WAITING", default=None)  # a task begins with its starter's


@dataclass(frozen=True, slots=True)
class Walk:
    """The calls of some work: how many, of how many functions in how many files, and how many from another file."""

    calls: int
    functions: int
    files: int
    moves: int


class Tracer:
    """A profile function that counts the calls of functions whose files are in a checkout's packages.

    ``walks`` has their numbers in each walk, by function and file of the caller, "" for a library. ``stops_at`` is the
    function that ends a walk. The rounds of a run after the first are walks; ``walked`` is set after the last.
    ``frames`` is 0 until a query has left.
    """

    def __init__(self, root: Path) -> None:
        self.walks: list[Counter[tuple[CodeType, str]]] = []
        self.is_counting = False
        self.stops_at: CodeType | None = None
        self.walked = threading.Event()
        self.frames = 0
        self._rounds = 0
        self._packages = tuple(f"{package.parent}/" for package in root.glob("*/__init__.py"))
        self.file_of = cache(self._file_of)

    def _file_of(self, code: CodeType) -> str:
        """The file of a function, or "" for one that is not in the packages."""
        file = os.path.realpath(code.co_filename)  # links lead from one package to the others
        return file if file.startswith(self._packages) else ""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Count an event of `sys.setprofile`."""
        code = frame.f_code
        if event != "call":
            return
        if code in STARTS_TASKS:
            WAITING.set(Waiting(asyncio.current_task(), self._waiting(frame)))
        elif not self.frames and code.co_name == "write" and code.co_filename == selector_events.__file__:
            self._note_write(frame)
        elif self.file_of(code):
            if _begins(frame):
                self._note_call(frame)
            elif code.co_name == "program" and frame.f_back and frame.f_back.f_code.co_name != "program":
                self._note_reply()  # to the outermost program, where one has another in it

    def _note_call(self, frame: FrameType) -> None:
        """Count the start of a function of the packages."""
        code = frame.f_code
        if code is self.stops_at:
            self.is_counting = False
        if self.is_counting and code.co_name not in COMPREHENSIONS:
            self.walks[-1][code, next(self._callers(frame), ("", ""))[1]] += 1

    def _callers(self, frame: FrameType) -> Iterator[tuple[str, str]]:
        """Name and file of each function of the packages that is on the stack below a frame, from the innermost."""
        below = frame.f_back
        while below is not None:
            if (file := self.file_of(below.f_code)) and below.f_code.co_name not in COMPREHENSIONS:
                yield below.f_code.co_name, file
            below = below.f_back

    def _note_reply(self) -> None:
        """A program takes a reply: a round is over, and the next begins."""
        self._rounds += 1
        if FIRST < self._rounds <= FIRST + WALKS:
            self.begin()
        elif self._rounds > FIRST + WALKS:
            self.is_counting = False
            self.walked.set()

    def _waiting(self, frame: FrameType) -> tuple[str, ...]:
        """The functions that wait for what a frame does, from the innermost, those that wait for its task included."""
        task, above = asyncio.current_task(), WAITING.get()
        names = tuple(name for name, _ in self._callers(frame))
        return names + (above.names if above is not None and above.task is not task else ())

    def _note_write(self, frame: FrameType) -> None:
        """A transport takes bytes: count the frames if they are the first of a query."""
        names = self._waiting(frame)
        if bytes(frame.f_locals["data"][:4]) == b"PUT " and "drive" in names:
            self.frames = names.index("drive") + 1

    def begin(self) -> None:
        """Begin another walk: count calls from now on."""
        self.walks.append(Counter())
        self.is_counting = True

    def take(self) -> Walk:
        """The median of the walks since this was last asked for, function by function."""
        edges = {edge for walk in self.walks for edge in walk}
        calls = {edge: int(median(walk[edge] for walk in self.walks)) for edge in edges}
        self.walks = []
        functions = {code for (code, _), number in calls.items() if number}
        moves = sum(number for (code, caller), number in calls.items() if caller != self.file_of(code))
        return Walk(sum(calls.values()), len(functions), len(set(map(self.file_of, functions))), moves)


def main() -> None:
    """Measure, and print the figures."""
    print(json.dumps(asyncio.run(measure())), flush=True)


async def measure() -> dict[str, Any]:
    """Measure the walks by name, and the frames."""
    tracer = Tracer(Path.cwd().resolve())
    threading.setprofile(tracer)  # of threads that begin from now on
    sys.setprofile(tracer)
    with tempfile.TemporaryDirectory(prefix="parley-walks-") as folder:
        walks = {
            "round": await walk_round(Path(folder) / "round", tracer),
            "token": await walk_token(Path(folder) / "token", tracer),
            "cell": walk_cell(Path(folder) / "cell", tracer),
        }
    sys.setprofile(None)
    if not tracer.frames:
        raise LookupError("no query was seen that a driver waits for")
    return {
        "benchmark": "walks",
        "walks": {name: asdict(walk) for name, walk in walks.items()},
        "frames": tracer.frames,
    }


def support() -> Any:  # noqa: ANN401 -- a module of the checkout that is measured, not of this one
    """Import the test support of the checkout, which has its cluster."""
    return import_module("tests.support.cluster")


async def walk_round(root: Path, tracer: Tracer) -> Walk:
    """One gradient round of a learner with two parties, on connections of loopback."""
    cluster = support().Cluster(root, n_parties=2)
    async with AsyncExitStack() as stack:
        apps = await stack.enter_async_context(support().party_apps(cluster))
        urls = {name: await stack.enter_async_context(served(app)) for name, app in apps.items()}
        learner = await stack.enter_async_context(
            support().running(support().create_learner(cluster.learner_settings(urls)))
        )
        client = await stack.enter_async_context(client_of(learner))
        await support().submit(client, algorithm="dp_gd", parameters={"n_rounds": FIRST + WALKS + 5})
        await asyncio.to_thread(tracer.walked.wait, 60)
    if not tracer.walked.is_set():
        raise TimeoutError("the run did not come to its rounds within a minute")
    return tracer.take()


async def walk_token(root: Path, tracer: Tracer) -> Walk:
    """The calls for a user's request until its route begins."""
    cluster = support().Cluster(root, n_parties=1)
    async with support().running(support().create_learner(cluster.learner_settings())) as learner:
        endpoint = next(route.endpoint for route in learner.routes if route.path == "/v1/user")
        tracer.stops_at = inspect.unwrap(endpoint).__code__
        async with client_of(learner) as client:
            (await client.get("/v1/user")).raise_for_status()
            for _ in range(WALKS):
                tracer.begin()
                await client.get("/v1/user")
    if tracer.is_counting:
        raise LookupError("the route of /v1/user did not begin")
    return tracer.take()


def walk_cell(root: Path, tracer: Tracer) -> Walk:
    """The calls that load a CSV file of one row and one feature as a shard."""
    cluster = support().Cluster(root, n_parties=1, n_examples=1, n_features=1, makes_ledgers=False)
    cluster.shard(0)  # which imports what it needs
    for _ in range(WALKS):
        tracer.begin()
        cluster.shard(0)
    tracer.is_counting = False
    return tracer.take()


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    """The address of an application that has started, served on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, access_log=False))
        serving = asyncio.create_task(server.serve([listening]))
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        await serving


def client_of(learner: FastAPI) -> httpx.AsyncClient:
    """Return a user's client of a learner in this process."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(learner), base_url="http://learner", headers=support().AUTHORIZED
    )


def _begins(frame: FrameType) -> bool:
    """Whether a frame is at the beginning of its function, and not where it goes on after a yield or an await."""
    operation, place = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    return operation == RESUME and not place & 3  # https://docs.python.org/3/library/dis.html#opcode-RESUME


if __name__ == "__main__":
    main()
