"""Deletes what ended runs left once the days are over for which the operator keeps it, and gives the disk the room.

A party's ledger forgets nothing by this: what a run was charged stays charged, and owners still find the run in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from parley.common.errors import ConflictError, DamagedError, NotFoundError, ParleyError, UnavailableError
from parley.learner.settings import Retention
from parley.learner.storage.public_rows import PublicRowStore
from parley.learner.storage.run_store import RunStore

_EVERY = 3600.0  # seconds
_DAY = 86_400


class Purge:
    """Deletes by the ``retention`` of the settings, and for operators; ``is_carried`` says whether a run has a task."""

    def __init__(
        self, store: RunStore, rows: PublicRowStore, retention: Retention, is_carried: Callable[[str], bool]
    ) -> None:
        self._store, self._rows, self._retention = store, rows, retention
        self._is_carried = is_carried

    async def keep_on(self) -> None:
        """Delete what is too old now, and every hour."""
        while True:
            try:
                await asyncio.to_thread(self.delete_old)
            except ParleyError as error:  # a disk that is full, a database that is damaged: others say so
                structlog.get_logger().warning("retention", error=error.detail)
            await asyncio.sleep(_EVERY)

    def delete_old(self) -> None:
        """Delete what is older than the settings keep it. Raises UnavailableError, DamagedError."""
        keep, ended = self._retention, self._store.ended
        runs, logs, rows = list[str](), list[str](), list[str]()
        if keep.run_days is not None:
            runs = [run for run in ended.older(keep.run_days) if self._deleted(run, ended.delete)]
        if keep.log_days is not None:
            logs = [run for run in ended.with_logs(keep.log_days) if self._deleted(run, ended.delete_log)]
        if keep.public_days is not None:
            rows = self._rows.delete_unnamed(ended.named_public(), time.time() - keep.public_days * _DAY)
        if runs or logs or rows:
            structlog.get_logger().info("deleted", runs=runs, logs=logs, public=rows)
        self._compact()  # also where it failed before

    def delete(self, run: str, user: str, *, only_log: bool) -> None:
        """Delete a run, or its log, for a user. Raises ConflictError while it cannot be deleted, NotFoundError."""
        if self._is_carried(run):
            raise ConflictError(f"run {run} is worked at: it can be deleted once it has ended")
        ended = self._store.ended
        (ended.delete_log if only_log else ended.delete)(run)
        kind = "logs" if only_log else "runs"
        structlog.get_logger().info("deleted", **{kind: [run]}, user=user)
        self._compact()

    def _compact(self) -> None:
        """Give the disk what was deleted. It failing undoes no deletion, so that is logged alone, and tried again."""
        try:
            if freed := self._store.ended.compact():
                structlog.get_logger().info("compacted", bytes=freed)
        except (DamagedError, UnavailableError) as error:
            structlog.get_logger().warning("not compacted", error=error.detail)

    def _deleted(self, run: str, delete: Callable[[str], None]) -> bool:
        """Delete a run or its log, unless it is not time yet; returns whether it was."""
        with suppress(ConflictError, DamagedError, NotFoundError):
            if not self._is_carried(run):
                delete(run)
                return True
        return False
