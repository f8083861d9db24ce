"""Stores runs on disk, with their logged replies, the events sent to watchers, and the receipts of peers.

All that a run needs to go on after a crash is here, and every change is one transaction. A reply, the news of its round
and the parties' receipts are committed together, before the program sees the reply: parties are never asked about
anything that the log does not hold.

This learner wrote what it reads, but a disk may have changed it since. So each row is decoded within `decoding_row`: a
damaged row is an error of its run alone. A model is read only if its digest equals the digest stored with it.
"""

from __future__ import annotations

import fcntl
import io
import json
import sqlite3
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Literal, get_args

import numpy as np
from pydantic import TypeAdapter

from parley.common.arrays import FloatArray
from parley.common.data.study import Study
from parley.common.encoding.canonical_json import UnhurriedEncoder, own_json
from parley.common.encoding.npy import npy_parts, pack_array, unpack_array
from parley.common.errors import ConflictError, DamagedError, NotFoundError, ParleyError
from parley.common.learning.threshold import ThresholdRule, chosen_threshold
from parley.common.protocol.cautions import cautions
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.receipts import Receipt, read_receipt
from parley.common.runs.certificate import SignedApproval
from parley.common.runs.pricing import longest_body
from parley.common.runs.self_evaluation import SelfEvaluation
from parley.common.runs.specification import Cohort, RunSpec
from parley.common.runs.weights import stated_weights
from parley.common.secure_sum.envelope import Signed
from parley.common.service.fair_use import Share
from parley.common.storage.sqlite import Database, decoding
from parley.learner.runs.plan import Plan
from parley.learner.runs.run import DEFAULT_SECONDS, DamagedStoreError, Pause, Run, RunTerms, decoding_row, readable
from parley.learner.runs.states import ENDS, Notice, RunEvent, RunState, check_transition
from parley.learner.storage import statements as sql
from parley.learner.storage.ended_runs import EndedRuns
from parley.learner.storage.run_log import RunLog
from parley.learner.storage.session_store import SessionStore, close_round

Announce = Callable[[str, Sequence[RunEvent]], None]
_APPROVALS = TypeAdapter(dict[str, SignedApproval])
_LONG = 2**20  # bytes of a reply that is not bound to a statement, which would keep a copy
_PEER_BYTES = 4096  # of a party's receipt and its part of the news
_BEYOND_ALL = 2**63 - 1  # no row's number is larger
_STATES: Mapping[str, RunState] = {state: state for state in get_args(RunState)}


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Runs, newest first; the identifiers of those among them that are ``damaged``; and the last if more follow it."""

    runs: tuple[Run, ...]
    damaged: tuple[str, ...]
    last: str | None


class RunStore:
    """The database at ``path``; it calls ``announce`` after each commit that adds to a run's events, in their order.

    ``announce`` gets the run's identifier, and the events of a logged round, or of the run's end; no events means that
    the store must be read. It is called in the thread that commits.

    Methods may be called from any thread. Each raises UnavailableError while the file cannot be used, and DamagedError
    if the file or the requested row is damaged. The constructor raises ConflictError while another process has the
    file open, because both would carry the same runs.
    """

    def __init__(self, path: Path, announce: Announce = lambda _run, _events: None) -> None:
        self._lock = _lock(path.with_suffix(".lock"))
        self._announce = announce
        self._log = RunLog()
        self._sizes: dict[str, int] = {}
        try:
            self._database = Database(path, sql.STORE_SCHEMA, damaged=DamagedStoreError)
            self._database.files.watch(path.with_suffix(".lock"), self._lock.fileno())
            with self._database.reading() as connection:  # otherwise one bad byte in a row would hide all rows
                connection.text_factory = lambda text: text.decode(errors="surrogateescape")
                connection.row_factory = sqlite3.Row  # rows are read by the names of their columns
        except ParleyError:
            self._lock.close()
            raise
        self.sessions = SessionStore(self._database)
        self.ended = EndedRuns(self._database)

    def close(self) -> None:
        """Close the file and release its lock."""
        self._database.close()
        self._lock.close()

    def probe(self) -> None:
        """Raise UnavailableError unless the disk takes the largest reply to a running run, or its model."""
        with self._database.reading() as connection:
            running = [row["id"] for row in connection.execute(sql.RUNNING_RUNS)]
        self._sizes = {run: size for run in running if (size := self._sizes.get(run) or self._reply_bytes(run))}
        self._database.probe(max(self._sizes.values(), default=0))

    def _reply_bytes(self, run: str) -> int:
        """Return how many bytes the longest reply to a run has; 0 for a damaged run, which does not go on."""
        try:
            return _reply_bytes(self.run(run).spec)
        except DamagedError:
            return 0

    def add(  # noqa: PLR0913 -- all fields of a new run, by name
        self,
        draft: RunSpec,
        user: str,
        idempotency_key: str | None = None,
        purpose: str = "",
        seconds: float = DEFAULT_SECONDS,
        *,
        evaluates: str | None = None,
        evaluation: RunSpec | None = None,
        may_evaluate: bool = False,
        any_algorithm: bool = False,
        cohort: Cohort | None = None,
        threshold: str | None = None,
        share: Share | None = None,
    ) -> Run:
        """Queue a run, or return the run that the same user queued before with the same key and the same request.

        ``evaluates`` is the run whose model the new run evaluates; ``evaluation`` is the draft of an evaluation that
        follows it, and ``may_evaluate`` says that `settle` may add one; ``any_algorithm`` says that the draft's
        algorithm stands for any; ``threshold`` is the rule for the model's. Raises ConflictError if the key was used
        for another request, ShareUsedUpError if the user's unfinished runs have reached its ``share``.
        """
        terms = RunTerms.of(draft, seconds, {}, any_algorithm=any_algorithm, cohort=cohort, may_evaluate=may_evaluate)
        row = _new_row(draft, user, purpose, terms, idempotency_key) | {"evaluates": evaluates}
        if cohort is not None:
            row["draft"] += cohort.model_dump_json()
        if threshold is not None:
            row |= {"draft": row["draft"] + threshold, "threshold": threshold}
        if may_evaluate and draft.study.hold_out is not None:
            row["draft"] += "evaluated if of use"
        if evaluation is not None:
            row |= {"draft": row["draft"] + evaluation.digest, "evaluation": evaluation.model_dump_json()}
        with self._database.transaction() as connection:
            earlier = connection.execute(sql.FIND_KEYED, (user, idempotency_key)).fetchone()
            if earlier is None:
                if share is not None:
                    share.check(user, connection.execute(sql.COUNT_UNFINISHED_OF, (user,)).fetchone()["number"])
                _queue(connection, row)
        if earlier is None:
            self._log.submitted(row["id"], user, terms, evaluates)
            self._announce(row["id"], ())
            return self.run(row["id"])
        with decoding_row("runs", earlier["id"]):
            earlier_terms = RunTerms.model_validate_json(earlier["terms"])
        was_open = earlier_terms.any_algorithm or "algorithm" in earlier_terms.chosen
        order = (row["draft"], purpose, seconds, any_algorithm)
        if (earlier["draft"], earlier["purpose"], earlier_terms.seconds, was_open) != order:
            raise ConflictError("the idempotency key has been used for another run, or with other words")
        return self.run(earlier["id"])

    def keyed(self, user: str, idempotency_key: str | None) -> Run | None:
        """Return the run that a user queued with this key; None without a key, or without such a run."""
        if idempotency_key is None:
            return None
        with self._database.reading() as connection:
            row = connection.execute(sql.FIND_KEYED, (user, idempotency_key)).fetchone()
        return None if row is None else self.run(row["id"])

    def run(self, run: str) -> Run:
        """Return the run with this identifier; raises NotFoundError if there is none."""
        return _run(self._row(run, sql.FIND_RUN))

    def newest(
        self, limit: int, after: str | None = None, state: RunState | None = None, search: str = ""
    ) -> FoundRuns:
        """Return at most ``limit`` runs older than ``after``, newest first; raises NotFoundError if that is no run.

        Only runs in ``state``, if it is given, whose study, algorithm, user or purpose contains ``search``; capitals
        do not matter.
        """
        place = _BEYOND_ALL if after is None else self._row(after, sql.FIND_PLACE)["rowid"]
        terms = {"place": place, "limit": limit + 1, "state": state, "search": search}
        with self._database.reading() as connection:
            rows = connection.execute(sql.NEWEST_RUNS, terms).fetchall()
        runs, damaged = [], []
        for row in rows[:limit]:
            try:
                runs.append(_run(row))
            except DamagedError:
                damaged.append(readable(row["id"]))
        return FoundRuns(tuple(runs), tuple(damaged), rows[limit - 1]["id"] if len(rows) > limit else None)

    def unfinished(self) -> list[str]:
        """Return the identifiers of all runs that have not come to an end, oldest first."""
        with self._database.reading() as connection:
            return [row["id"] for row in connection.execute(sql.UNFINISHED_RUNS)]

    def count(self) -> dict[RunState, int]:
        """Return how many runs are in each state."""
        with self._database.reading() as connection:
            return {row["state"]: row["number"] for row in connection.execute(sql.COUNT_RUNS)}

    def state(self, run: str) -> RunState:
        """Return the state of a run; raises NotFoundError."""
        return _state(run, self._row(run, sql.FIND_STATE)["state"])

    def enter(  # noqa: PLR0913 -- all that a new state may bring, by name
        self,
        run: str,
        state: RunState,
        *,
        news: Mapping[str, object] = MappingProxyType({}),
        problem: Mapping[str, object] | None = None,
        terms: RunTerms | None = None,
        approvals: Mapping[str, SignedApproval] | None = None,
    ) -> None:
        """Move a run to a state, with its problem, new terms, or parties' approvals; ``news`` goes into the event.

        Raises ConflictError if no such change of state is allowed, NotFoundError if there is no such run.
        """
        data = {"state": state, **news, **({"problem": problem} if problem else {})}
        values = {"state": state, "problem": problem and json.dumps(problem)}
        values |= dict.fromkeys(("model", "model_digest"))
        values["approvals"] = None if approvals is None else _APPROVALS.dump_json(dict(approvals)).decode()
        self._move(run, state, sql.ENTER_STATE, values | {"terms": terms and terms.model_dump_json()}, data)

    def complete(
        self,
        run: Run,
        model: Mapping[str, object],
        weights: FloatArray,
        news: Mapping[str, object],
        evaluation: RunSpec | None = None,
    ) -> str | None:
        """End a run with its model, and queue its ``evaluation`` with the same commit. Returns its identifier or None.

        The ``weights`` are stored instead of those in the model's document. Raises the errors of `enter`.
        """
        row, terms = None, None
        if evaluation is not None:
            terms = RunTerms.of(evaluation, DEFAULT_SECONDS, {}, cohort=run.terms.cohort)
            row = _new_row(evaluation, run.user, run.purpose, terms) | {"evaluates": run.id}
        data = {"state": "completed", **news, **({"evaluated_by": row["id"]} if row else {})}
        values = dict.fromkeys(("problem", "terms", "approvals"))
        text = UnhurriedEncoder().encode({**model, "weights": None})
        digest = sql.digest_of_model(text, *npy_parts(weights))
        values |= {"state": "completed", "model": text, "model_digest": digest}
        self._move(run.id, "completed", sql.ENTER_STATE, values, data, row, weights)
        if row is None or terms is None:
            return None
        self._log.submitted(row["id"], run.user, terms, run.id)
        return str(row["id"])

    def evaluation(self, run: str) -> RunSpec | None:
        """Return the draft of the evaluation that follows a run, or None; raises NotFoundError without such a run."""
        text = self._row(run, sql.FIND_EVALUATION)["evaluation"]
        with decoding_row("runs", run):
            return RunSpec.model_validate_json(text) if text else None

    def pause(self, run: str, pause: Pause, state: Literal["paused", "recruiting"] = "paused") -> None:
        """Pause a run, which keeps its stage, and store the reason. Raises ConflictError if the run has ended."""
        fields = pause.to_json()
        values = {"state": state, "pause": json.dumps(fields)}
        self._move(run, state, sql.PAUSE_RUN, values, {"state": state, **fields})

    def _move(  # noqa: PLR0913, PLR0917 -- a change, its event, and the run that follows from it
        self,
        run: str,
        state: RunState,
        statement: str,
        values: Mapping[str, object],
        data: Mapping[str, object],
        follower: Mapping[str, Any] | None = None,
        weights: FloatArray | None = None,
    ) -> None:
        """Change a run's state by a statement, if the table allows it, add the event, and queue a run that follows."""
        with self._database.in_turn():
            with self._database.transaction() as connection:
                earlier = self._row(run, sql.FIND_STATE)
                check_transition(run, before := _state(run, earlier["state"]), state)
                connection.execute(statement, {"run": run, **values})
                if weights is not None:
                    (row,) = connection.execute(sql.KEEP_WEIGHTS, {"run": run, "size": _size(weights)}).fetchall()
                    _write(connection, "runs", "weights", row["rowid"], weights)
                events = _add_events(connection, run, [Notice("state", data)])
                if follower:
                    _queue(connection, follower)
            self._log.moved(run, data, earlier["rounds"], was_paused=before == "paused")
            self._announce(run, events if state in ENDS else ())
        if follower:
            self._announce(follower["id"], ())

    def settle(  # noqa: PLR0913 -- what a run is settled with, by name
        self,
        run: Run,
        spec: RunSpec,
        plan: Plan,
        chosen: Mapping[str, str],
        absent: Mapping[str, str] = MappingProxyType({}),
        *,
        kept: SelfEvaluation | None = None,
    ) -> None:
        """Replace a run's draft by the specification and the plan with which it will be proposed.

        ``chosen`` has the reason for each parameter that was chosen; ``absent`` the reason of each absent party;
        ``kept`` the evaluation that follows the run, where that was left open.
        """
        terms = RunTerms.of(
            spec,
            run.terms.seconds,
            chosen,
            cohort=run.terms.cohort,
            absent=absent,
            cautions=cautions(spec.build(), spec.facts(), has_threshold=run.threshold is not None),
            may_evaluate=run.terms.may_evaluate,
            evaluation=kept.words if kept else None,
        )
        follower = kept.evaluation.model_dump_json() if kept and kept.evaluation else None
        values = {"run": run.id, "spec": spec.model_dump_json(), "terms": terms.model_dump_json()}
        with self._database.transaction() as connection:
            connection.execute(sql.SETTLE_RUN, values | {"plan": plan.to_json(), "evaluation": follower})

    def plan(self, run: str) -> Plan | None:
        """Return a run's plan, None until the run is settled; raises NotFoundError."""
        text = self._row(run, sql.FIND_PLAN)["plan"]
        with decoding_row("runs", run):
            return Plan.from_json(text) if text else None

    def approvals(self, run: str) -> dict[str, SignedApproval]:
        """Return the signed approvals of a run by its parties, by name; raises NotFoundError."""
        text = self._row(run, sql.FIND_APPROVALS)["approvals"]
        with decoding_row("runs", run):
            return _APPROVALS.validate_json(text or "{}")

    def model(self, run: str) -> dict[str, Any]:
        """Return a completed run's model document, its weights last, each row of them an array.

        Raises NotFoundError, ConflictError if the run has no model, DamagedError unless the document and the weights
        have the digest that was stored with them.
        """
        row = self._row(run, sql.FIND_MODEL)
        text, weights = row["model"], row["weights"]
        if text is None:
            state = self.state(run)
            yet = "" if state in ENDS else f" yet: parley-learner watch {run} says why, and waits for it"
            raise ConflictError(f"run {run} is {state}; it has no model{yet}", state=state)
        with decoding_row("runs", run):
            if sql.digest_of_model(text, weights) != row["model_digest"]:
                raise ValueError("digest")
            document: dict[str, Any] = own_json(text)
            if weights is not None:
                del document["weights"]
                document["weights"] = stated_weights(np.load(io.BytesIO(weights), allow_pickle=False), document["kind"])
        return document

    def evaluated_model(self, run: str) -> dict[str, Any]:
        """Return a run's model document with its newest completed evaluation, and the threshold that its rule chooses.

        A damaged evaluation is left out: it does not keep the model from being read. Raises `model`'s errors.
        """
        document = self.model(run)
        with self._database.reading() as connection:
            newest = connection.execute(sql.NEWEST_EVALUATION, (run,)).fetchone()
        if newest is not None:
            with suppress(DamagedError), decoding_row("runs", newest["id"]):
                other = self.model(newest["id"])
                source = {"run": newest["id"], "certificate": other.get("certificate")}
                document["evaluation"] = other["evaluation"] | source
        if (rule := self._row(run, sql.FIND_THRESHOLD)["threshold"]) is not None:
            with decoding_row("runs", run):
                study = Study.model_validate(document["study"])
                threshold = chosen_threshold(rule, study, document["evaluation"], document.get("class_weights"))
            document["threshold"] = threshold.model_dump(mode="json")
        return document

    def set_threshold(self, run: str, rule: str | None) -> None:
        """Keep the rule by which the threshold of a run's model is chosen, or none; raises NotFoundError."""
        with self._database.transaction() as connection:
            self._row(run, sql.FIND_STATE)
            connection.execute(sql.KEEP_THRESHOLD, (rule, run))

    def will_be_evaluated(self, run: str) -> bool:
        """Return whether a completed run's model is evaluated, or will be; raises NotFoundError."""
        return bool(self._row(run, sql.WILL_BE_EVALUATED)["is_sure"])

    def reply(self, run: str, round: int) -> tuple[str, Reply] | None:
        """Return the logged digest of a round's query and its reply; None if the round is not logged."""
        with self._database.reading() as connection:
            row = connection.execute(sql.FIND_REPLY, (run, round)).fetchone()
        if row is None:
            return None
        with decoding_row("replies", run):
            return row["query"], Reply(unpack_array(row["value"], "<f8"), tuple(json.loads(row["contributors"])))

    def recent(self, run: Run) -> list[tuple[int, ...]]:
        """Return the indices of contributors of the last `answer_every` logged rounds: no party may miss all of these.

        Parties that did not approve the run count as having missed that many rounds before the first.
        """
        span, members = run.spec.answer_every, set(run.members)
        replies = (self.reply(run.id, round) for round in range(max(1, run.rounds - span + 1), run.rounds + 1))
        contributors = [reply[1].contributors for reply in replies if reply is not None]
        if len(members) == len(run.spec.parties):
            return contributors
        present = tuple(index for index, name in enumerate(run.spec.names) if name in members)
        return [present] * (span - len(contributors)) + contributors

    def append(  # noqa: PLR0913 -- all parts of a round, by name
        self,
        run: str,
        query: Query,
        reply: Reply,
        notices: Sequence[Notice],
        receipts: Sequence[Receipt],
        *,
        opened: Mapping[str, Signed] = MappingProxyType({}),
    ) -> None:
        """Log a reply, with the news of its round, the receipts of peers, and those of key holders that ``opened`` it.

        This ends a pause of the run.
        """
        row = {
            "run": run,
            "round": query.round,
            "query": query.digest,
            "contributors": json.dumps(reply.contributors),
            "value": None if (is_long := reply.value.nbytes > _LONG) else pack_array(reply.value),
            "size": _size(reply.value) if is_long else 0,
        }
        with self._database.in_turn():
            with self._database.transaction() as connection:
                place = connection.execute(sql.ADD_REPLY, row).lastrowid
                if is_long:
                    _write(connection, "replies", "value", place, reply.value)
                goes_on = connection.execute(sql.GO_ON, (run,)).rowcount > 0
                if goes_on:
                    notices = [Notice("state", {"state": "running"}), *notices]
                events = _add_events(connection, run, notices)
                _keep(connection, receipts)
                if opened:
                    close_round(connection, run, query.round, opened)
            self._log.noticed(run, query.round, notices)
            self._announce(run, events)

    def keep(self, receipts: Sequence[Receipt]) -> None:
        """Keep the newest receipts of parties and key holders; their clients have compared them with earlier ones."""
        with self._database.transaction() as connection:
            _keep(connection, receipts)

    def receipts(self) -> dict[str, Receipt]:
        """Return the newest receipt of each party and key holder, by name."""
        with self._database.reading() as connection:
            rows = connection.execute(sql.RECEIPTS).fetchall()
        receipts = {}
        for signer, text in rows:
            place = f"the receipt of {readable(signer)[:100]!r} in the table 'receipts' of the learner's database"
            with decoding(place, "put back a copy of its state"):
                receipts[signer] = read_receipt(text)
                if receipts[signer].signer != signer:
                    raise ValueError("signer")
        return receipts

    def mark_copied(self) -> None:
        """Note that this is a copy that is brought back: later receipts, and rounds of its runs, may have been lost."""
        with self._database.transaction() as connection:
            connection.execute(sql.MARK_COPIED)
            connection.execute(sql.ADD_RESTORE, (datetime.now(UTC).isoformat(timespec="milliseconds"),))

    def was_restored(self, run: str) -> bool:
        """Return whether a run was in a copy that was brought back."""
        return bool(self._row(run, sql.WAS_RESTORED)["was_restored"])

    def copied(self) -> frozenset[str]:
        """Return the texts of receipts that came with a copy that was brought back: later ones may have been lost."""
        with self._database.reading() as connection:
            return frozenset(readable(row["text"]) for row in connection.execute(sql.COPIED))

    def events(self, run: str, after: int = 0) -> list[RunEvent]:
        """Return the events of a run after event number ``after``."""
        with self._database.reading() as connection:
            events = [RunEvent(*row) for row in connection.execute(sql.EVENTS, (run, after))]
        with decoding_row("events", run):
            for event in events:
                if not event.kind.isidentifier() or not isinstance(event.news, dict):
                    raise ValueError("event")
        return events

    def news(self, run: str, after: int) -> tuple[list[RunEvent], bool]:
        """Return a run's events after event number ``after``, and whether no more will follow: the run has ended."""
        has_ended = self.state(run) in ENDS
        return self.events(run, after), has_ended

    def _row(self, run: str, statement: str) -> sqlite3.Row:
        """Return a run's row; raises NotFoundError."""
        with self._database.reading() as connection:
            row: sqlite3.Row | None = connection.execute(statement, (run,)).fetchone()
        if row is None:
            raise NotFoundError(f"there is no run {run[:100]!r}")
        return row


def _lock(path: Path) -> IO[bytes]:
    """Lock a file until it is closed or the process ends; raises ConflictError if another process has locked it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConflictError(f"another learner uses the state directory {path.parent}") from None
    return file


def _reply_bytes(spec: RunSpec) -> int:
    """Return how many bytes the longest reply to a run has, with the news, receipts and openings written with it."""
    parties = len(spec.parties)
    replies = [
        longest_body([(parties if question.reveal == "each" else 1, question.answer)]) for question in spec.questions()
    ]
    return max(replies) + parties * _PEER_BYTES


def _state(run: str, state: str) -> RunState:
    """Return a state as it was stored; raises DamagedError if there is no such state."""
    with decoding_row("runs", run):
        return _STATES[state]


def _run(row: sqlite3.Row) -> Run:
    """Return a run as `FIND_RUN` reads it; raises DamagedError."""
    with decoding_row("runs", row["id"]):
        return _decoded_run(row)


def _decoded_run(row: sqlite3.Row) -> Run:
    for text in (row["id"], row["user"], row["purpose"], row["evaluates"] or "", row["evaluations"]):
        text.encode()  # raises for bytes that are no UTF-8
    datetime.fromisoformat(row["created"])
    return Run(
        id=row["id"],
        user=row["user"],
        purpose=row["purpose"],
        created=row["created"],
        state=_state(row["id"], row["state"]),
        stage=_state(row["id"], row["stage"]),
        spec_text=row["spec"],
        terms=RunTerms.model_validate_json(row["terms"]),
        rounds=row["rounds"],
        problem=json.loads(row["problem"]) if row["problem"] else None,
        pause=Pause.from_json(json.loads(row["pause"])) if row["pause"] else None,
        key_holders=tuple(json.loads(row["key_holders"])),
        evaluates=row["evaluates"],
        evaluations=tuple(json.loads(row["evaluations"])),
        threshold=row["threshold"] and str(ThresholdRule.read(row["threshold"])),
    )


def _new_row(
    draft: RunSpec, user: str, purpose: str, terms: RunTerms, idempotency_key: str | None = None
) -> dict[str, Any]:
    """Return the row of a new run that evaluates no other run and that no evaluation follows."""
    return {
        "id": uuid.uuid4().hex,
        "user": user,
        "purpose": purpose,
        "idempotency_key": idempotency_key,
        "draft": draft.digest,
        "created": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "state": "queued",
        "spec": draft.model_dump_json(),
        "terms": terms.model_dump_json(),
        "evaluates": None,
        "evaluation": None,
        "threshold": None,
    }


def _size(array: FloatArray) -> int:
    """Return how many bytes an array has as an ``.npy`` body."""
    return sum(memoryview(part).nbytes for part in npy_parts(array))


def _write(connection: sqlite3.Connection, table: str, column: str, place: int | None, array: FloatArray) -> None:
    """Write an array over zeros of its size, in the row of this number.

    A bound parameter would copy the array, and the statement would keep the copy.
    """
    assert place is not None  # noqa: S101 -- a row was added
    with connection.blobopen(table, column, place) as blob:
        for part in npy_parts(array):
            blob.write(part)


def _queue(connection: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    """Add a new run, with the event that it is queued."""
    connection.execute(sql.ADD_RUN, row)
    _add_events(connection, row["id"], [Notice("state", {"state": "queued"})])


def _add_events(connection: sqlite3.Connection, run: str, notices: Sequence[Notice]) -> list[RunEvent]:
    """Add events of a run, and return them with their numbers."""
    events = []
    for notice in notices:
        data = json.dumps(notice.data)
        number = connection.execute(sql.ADD_EVENT, (run, notice.kind, data)).lastrowid
        assert number is not None  # noqa: S101 -- a row was added
        events.append(RunEvent(number, notice.kind, data))
    return events


def _keep(connection: sqlite3.Connection, receipts: Sequence[Receipt]) -> None:
    connection.executemany(sql.KEEP_RECEIPT, [(receipt.signer, receipt.text) for receipt in receipts])
