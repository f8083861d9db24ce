"""A learner that kills itself at a chosen step of a run, with the signal that nobody can handle."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from parley.common.client.peer import Peer
from parley.common.client.transport import PeerResponse
from parley.common.service.serve import serve
from parley.common.storage.sqlite import Database
from parley.learner.api.app import create_learner_app
from parley.learner.settings import LearnerSettings
from parley.learner.storage.run_store import RunStore

_CONTEXT = multiprocessing.get_context("forkserver")


class Steps:
    """Counts the steps of the first run that is begun; at number ``last`` the process dies.

    A step is a commit or an answer to a request: what follows it does not yet show outside, or in the store.
    """

    def __init__(self, last: int) -> None:
        self._left = last
        self._begun = False

    def begin(self) -> None:
        """A run leaves the queue."""
        self._begun = True

    def take(self) -> None:
        """One step is done."""
        self._left -= self._begun
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def start_dying_learner(settings: LearnerSettings, last: int) -> BaseProcess:
    """A learner's process that resumes the runs it finds and dies at step ``last`` of the next one."""
    process = _CONTEXT.Process(target=_serve, args=(settings, last), daemon=True)
    process.start()
    return process


def _serve(settings: LearnerSettings, last: int) -> None:
    steps = Steps(last)
    send, enter, transaction = Peer._send, RunStore.enter, Database.transaction

    @contextmanager
    def counted(self: Database, *args: Any) -> Iterator[sqlite3.Connection]:  # noqa: ANN401
        with transaction(self, *args) as inside:
            yield inside
        steps.take()

    async def counted_send(self: Peer, *args: Any, **more: Any) -> PeerResponse:  # noqa: ANN401
        response = await send(self, *args, **more)
        steps.take()
        return response

    def counted_enter(self: RunStore, run: str, state: Any, **more: Any) -> None:  # noqa: ANN401
        if state == "recruiting":
            steps.begin()
        enter(self, run, state, **more)

    Database.transaction = counted  # type: ignore[assignment, method-assign]
    Peer._send, RunStore.enter = counted_send, counted_enter  # type: ignore[method-assign]
    serve(create_learner_app(settings), settings)
