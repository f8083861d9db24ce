"""The learner's memory on disk: runs, the replies they are made of, what watchers were told, and receipts.

All that a run needs to go on after a crash is here, and every change is one transaction. A reply, the news of its round
and the parties' receipts are committed together, before the program sees the reply: parties are never asked about
anything that the log does not hold.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from common.encoding.npy import pack_array, unpack_array
from common.errors import ConflictError, NotFoundError, ParleyError
from common.protocol.messages import Query, Reply
from common.protocol.receipts import Receipt, read_receipt
from common.runs.specification import RunSpec
from common.secure_sum.envelope import Signed
from common.storage.sqlite import Database
from learner.plan import Plan
from learner.run import ENDS, Notice, Pause, Run, RunEvent, RunState, RunTerms, check_transition
from learner.storage import statements as sql
from learner.storage.session_store import SessionStore, close_round

Announce = Callable[[str, Sequence[RunEvent]], None]
_BEYOND_ALL = 2**63 - 1  # no row's number is larger


class RunStore:
    """The database at ``path``; ``announce`` is told of each commit that adds to a run's events, in their order.

    It gets the run's identifier, and the events of a round that was logged, or none where they are to be read.

    For any thread; ``announce`` is called in the thread that commits. Every method raises UnavailableError while the
    file cannot be used. Raises ConflictError while another process has it open: two would carry the same runs.
    """

    def __init__(self, path: Path, announce: Announce = lambda _run, _events: None) -> None:
        self._lock = _lock(path.with_suffix(".lock"))
        self._announce = announce
        try:
            self._database = Database(path, sql.STORE_SCHEMA)
        except ParleyError:
            self._lock.close()
            raise
        self.sessions = SessionStore(self._database)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()
        self._lock.close()

    def probe(self) -> None:
        """Raise UnavailableError unless the file can be written."""
        self._database.probe()

    def add(self, draft: RunSpec, user: str, idempotency_key: str | None = None, purpose: str = "") -> Run:
        """Queue a run; the run queued before under the same user's same key, if it was the same.

        Raises ConflictError if that was another.
        """
        run = uuid.uuid4().hex
        row = {
            "id": run,
            "user": user,
            "purpose": purpose,
            "idempotency_key": idempotency_key,
            "draft": draft.digest,
            "created": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "state": "queued",
            "spec": draft.model_dump_json(),
            "terms": RunTerms.of(draft).model_dump_json(),
        }
        with self._database.transaction() as connection:
            earlier = connection.execute(sql.FIND_KEYED, (user, idempotency_key)).fetchone()
            if earlier is None:
                connection.execute(sql.ADD_RUN, row)
                _tell(connection, run, [Notice("state", {"state": "queued"})])
        if earlier is None:
            return self.run(run)
        if earlier[1] != row["draft"]:
            raise ConflictError("the idempotency key has been used for another run")
        return self.run(earlier[0])

    def run(self, run: str) -> Run:
        """A run; raises NotFoundError."""
        return _run(self._found(run, sql.FIND_RUN))

    def newest(self, limit: int, after: str | None = None) -> list[Run]:
        """The newest runs, newest first, of those older than the run ``after``; raises NotFoundError for that."""
        place = _BEYOND_ALL if after is None else self._found(after, sql.FIND_PLACE)[0]
        with self._database.reading() as connection:
            rows = connection.execute(sql.NEWEST_RUNS, (place, limit)).fetchall()
        return [_run(row) for row in rows]

    def unfinished(self) -> list[str]:
        """The identifiers of all runs that have not come to an end, oldest first."""
        with self._database.reading() as connection:
            return [run for (run,) in connection.execute(sql.UNFINISHED_RUNS)]

    def count(self) -> dict[RunState, int]:
        """How many runs are in each state."""
        with self._database.reading() as connection:
            return dict(connection.execute(sql.COUNT_RUNS).fetchall())

    def state(self, run: str) -> RunState:
        """The state a run is in; raises NotFoundError."""
        state: RunState = self._found(run, sql.FIND_STATE)[0]
        return state

    def enter(
        self,
        run: str,
        state: RunState,
        *,
        news: Mapping[str, object] = MappingProxyType({}),
        problem: Mapping[str, object] | None = None,
        model: Mapping[str, object] | None = None,
    ) -> None:
        """Move a run to a state, with the problem or the model that it ends in; ``news`` goes into the event.

        Raises ConflictError where the run may not go there, NotFoundError.
        """
        told = {"state": state, **news, **({"problem": problem} if problem else {})}
        ended = {"problem": problem and json.dumps(problem), "model": model and json.dumps(model)}
        self._move(run, state, sql.ENTER_STATE, {"state": state, **ended}, told)

    def pause(self, run: str, pause: Pause) -> None:
        """Move a run to ``paused``, which keeps its stage. Raises ConflictError for one that has ended."""
        fields = pause.to_json()
        self._move(run, "paused", sql.PAUSE_RUN, {"pause": json.dumps(fields)}, {"state": "paused", **fields})

    def _move(
        self, run: str, state: RunState, statement: str, values: Mapping[str, object], told: Mapping[str, object]
    ) -> None:
        """Change a run's state by a statement, if the table allows it, and tell."""
        with self._database.in_turn():
            with self._database.transaction() as connection:
                check_transition(run, self.state(run), state)
                connection.execute(statement, {"run": run, **values})
                _tell(connection, run, [Notice("state", told)])
            self._announce(run, ())

    def settle(self, run: str, spec: RunSpec, plan: Plan) -> None:
        """Replace a run's draft by the specification and the plan with which it will be proposed."""
        with self._database.transaction() as connection:
            values = {"run": run, "spec": spec.model_dump_json(), "terms": RunTerms.of(spec).model_dump_json()}
            connection.execute(sql.SETTLE_RUN, values | {"plan": plan.to_json()})

    def plan(self, run: str) -> Plan | None:
        """A settled run's plan; raises NotFoundError."""
        text = self._found(run, sql.FIND_PLAN)[0]
        return Plan.from_json(text) if text else None

    def model(self, run: str) -> dict[str, Any]:
        """A completed run's model document; raises NotFoundError, ConflictError while there is none."""
        text = self._found(run, sql.FIND_MODEL)[0]
        if text is None:
            state = self.state(run)
            raise ConflictError(f"run {run} is {state}; it has no model", state=state)
        document: dict[str, Any] = json.loads(text)
        return document

    def reply(self, run: str, round: int) -> tuple[str, Reply] | None:
        """The logged digest of a round's query and its reply."""
        with self._database.reading() as connection:
            row = connection.execute(sql.FIND_REPLY, (run, round)).fetchone()
        if row is None:
            return None
        query, contributors, value = row
        return query, Reply(unpack_array(value, "<f8"), tuple(json.loads(contributors)))

    def recent(self, run: Run) -> list[tuple[int, ...]]:
        """The indices of the contributors of the last logged rounds, so many as a party may not miss in a row."""
        first = max(1, run.rounds - run.spec.answer_every + 1)
        replies = (self.reply(run.id, round) for round in range(first, run.rounds + 1))
        return [reply[1].contributors for reply in replies if reply is not None]

    def append(  # noqa: PLR0913 -- all that is known of a round, by name
        self,
        run: str,
        query: Query,
        reply: Reply,
        notices: Sequence[Notice],
        receipts: Sequence[Receipt],
        *,
        opened: Mapping[str, Signed] = MappingProxyType({}),
    ) -> None:
        """Log a reply, with the news of its round and the receipts of peers and of who ``opened`` a secure sum.

        A run that was paused is so no longer.
        """
        row = {
            "run": run,
            "round": query.round,
            "query": query.digest,
            "contributors": json.dumps(reply.contributors),
            "value": pack_array(reply.value),
        }
        with self._database.in_turn():
            with self._database.transaction() as connection:
                connection.execute(sql.ADD_REPLY, row)
                goes_on = connection.execute(sql.GO_ON, (run,)).rowcount > 0
                told = [Notice("state", {"state": "running"}), *notices] if goes_on else notices
                events = _tell(connection, run, told)
                _keep(connection, receipts)
                if opened:
                    close_round(connection, run, query.round, opened)
            self._announce(run, events)

    def keep(self, receipts: Sequence[Receipt]) -> None:
        """Keep each party's and key holder's newest receipt, which its client has compared with the one before."""
        with self._database.transaction() as connection:
            _keep(connection, receipts)

    def receipts(self) -> dict[str, Receipt]:
        """The newest receipt of each party and key holder, by name."""
        with self._database.reading() as connection:
            return {signer: read_receipt(text) for signer, text in connection.execute(sql.RECEIPTS)}

    def events(self, run: str, after: int = 0) -> list[RunEvent]:
        """What watchers of a run have been told since event number ``after``."""
        with self._database.reading() as connection:
            return [RunEvent(*row) for row in connection.execute(sql.EVENTS, (run, after))]

    def news(self, run: str, after: int) -> tuple[list[RunEvent], bool]:
        """What watchers have been told since event number ``after``, and whether that was all: the run has ended."""
        has_ended = self.state(run) in ENDS
        return self.events(run, after), has_ended

    def _found(self, run: str, statement: str) -> tuple[Any, ...]:
        """A run's row; raises NotFoundError."""
        with self._database.reading() as connection:
            row: tuple[Any, ...] | None = connection.execute(statement, (run,)).fetchone()
        if row is None:
            raise NotFoundError(f"there is no run {run[:100]!r}")
        return row


def _lock(path: Path) -> IO[bytes]:
    """A lock on a file that lasts until the file is closed or the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConflictError(f"another learner uses the state directory {path.parent}") from None
    return file


def _run(row: tuple[Any, ...]) -> Run:
    run, user, purpose, created, state, stage, spec, terms, problem, pause, rounds, key_holders = row
    return Run(
        run,
        user,
        purpose,
        created,
        state,
        stage,
        spec,
        RunTerms.model_validate_json(terms),
        rounds,
        json.loads(problem) if problem else None,
        Pause.from_json(json.loads(pause)) if pause else None,
        tuple(json.loads(key_holders)),
    )


def _tell(connection: sqlite3.Connection, run: str, notices: Sequence[Notice]) -> list[RunEvent]:
    """Write events of a run down."""
    events = []
    for notice in notices:
        data = json.dumps(notice.data)
        number = connection.execute(sql.ADD_EVENT, (run, notice.kind, data)).lastrowid
        assert number is not None  # noqa: S101 -- a row was added
        events.append(RunEvent(number, notice.kind, data))
    return events


def _keep(connection: sqlite3.Connection, receipts: Sequence[Receipt]) -> None:
    connection.executemany(sql.KEEP_RECEIPT, [(receipt.signer, receipt.text) for receipt in receipts])
