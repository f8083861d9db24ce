"""Deletes runs that have ended, or their logs, from the learner's database."""

from __future__ import annotations

from collections.abc import Sequence

from parley.common.errors import ConflictError, NotFoundError
from parley.common.storage.sqlite import Database
from parley.learner.runs.run import readable
from parley.learner.runs.states import ENDS
from parley.learner.storage import statements as sql


class EndedRuns:
    """The runs in the learner's database that may be deleted.

    Methods may be called from any thread, and raise UnavailableError while the database cannot be used.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def with_logs(self, days: float) -> list[str]:
        """Return the runs that ended more than ``days`` ago and still have a log."""
        return self._older(sql.OLD_LOGS, days)

    def older(self, days: float) -> list[str]:
        """Return the runs that ended more than ``days`` ago, an evaluation before the run that it evaluates."""
        return self._older(sql.OLD_RUNS, days)

    def delete_log(self, run: str) -> None:
        """Delete a run's replies and the news of its rounds; who contributed to each, and all else, stays.

        Raises ConflictError if the run has not ended, or key holders have yet to be told so; NotFoundError.
        """
        self._delete(run, sql.FORGET_LOG)

    def delete(self, run: str) -> None:
        """Delete all of a run, with its model and certificate; raises as `delete_log`, and if others evaluate it."""
        self._delete(run, sql.FORGET_RUN)

    def named_public(self) -> set[str]:
        """Return the digests of the public rows that runs name."""
        with self._database.reading() as connection:
            return {row["digest"] for row in connection.execute(sql.NAMED_PUBLIC)}

    def compact(self) -> int:
        """Give the disk what deleted runs took; returns bytes."""
        return self._database.compact()

    def _older(self, statement: str, days: float) -> list[str]:
        with self._database.reading() as connection:
            return [row["id"] for row in connection.execute(statement, (f"-{days * 86_400:.0f} seconds",))]

    def _delete(self, run: str, statements: Sequence[str]) -> None:
        with self._database.transaction() as connection:
            row = connection.execute(sql.FIND_STATE, (run,)).fetchone()
            if row is None:
                raise NotFoundError(f"there is no run {run[:100]!r}")
            if (state := readable(row["state"])) not in ENDS:
                raise ConflictError(f"run {run} is {state}: it can be deleted once it has ended", state=state)
            evaluations = [readable(row["id"]) for row in connection.execute(sql.FIND_EVALUATIONS, (run,))]
            if evaluations and statements is sql.FORGET_RUN:
                raise ConflictError(f"run {run} is evaluated by {', '.join(evaluations)}: delete these first")
            if connection.execute(sql.FIND_UNENDED, (run,)).fetchone() is not None:
                raise ConflictError(f"run {run} has ended, and its key holders have yet to be told: try again later")
            for statement in statements:
                connection.execute(statement, {"run": run})
