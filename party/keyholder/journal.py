"""A key holder's journal: its sessions, and the one set that it opened in each round, in one chain of records.

An opening is committed, which SQLite syncs, before its answer leaves. The chain is read in the same transaction, so no
second set can be opened in a round, whichever thread or process asks. The sums of a round that is over are erased; its
receipt stays.

The journal detects that it was copied or put back by a file that no copy has, its anchor. Each record names an empty
file that was made for it, by device, inode and time of change (ctime), and by the boot of the machine; the file of the
record before is deleted. Every tool that restores files (cp, tar, rsync, a backup of files, another volume) creates
that file again or changes it, and no tool can set a ctime. So a journal that was restored, completely or in part and
at any place, names a file that does not exist. A restored disk (a snapshot of a virtual machine) means a new boot.

A process that is killed leaves file and record as they are, and a record that was not committed leaves the file of the
record before. So a service that starts again in the same place goes on.

Two cases are not detected: storage that is rolled back under a running machine (``zfs rollback``, a snapshot of a
volume under the same device number), and a snapshot of a machine's memory.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

import structlog

from parley.common.errors import LedgerError, NotFoundError, VersionError
from parley.common.protocol.receipts import Receipt, read_receipt, verify_receipt
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.errors import Reason, RosterError, RoundError, StateError
from parley.common.secure_sum.messages import Opened, Roster
from parley.common.secure_sum.session import Identity
from parley.common.service import logs
from parley.common.storage.chain import (
    Appending,
    ChainRecord,
    SignedChain,
    begin_chain,
    chain_schema,
    check_begun,
    finish_beginning,
    has_begun,
    salvage,
    unused,
)
from parley.common.storage.keys import writing

_BOOT = Path("/proc/sys/kernel/random/boot_id")


# ── anchors: whether the journal is where it was written ─────────────────────


class Anchors:
    """The folder of the file that a journal's newest record names. Methods raise UnavailableError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def make(self) -> str:
        """Make the file for a record that will be written next; return the words by which the record names it."""
        with writing(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self._directory / secrets.token_hex(8)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return _anchor_of(path)

    def others(self, anchor: str | None) -> list[Path]:
        """Return the files of other records, also of those that were never committed."""
        named = anchor and anchor.partition(" ")[0]
        with writing(self._directory):
            files = list(self._directory.iterdir()) if self._directory.exists() else []
        return [path for path in files if path.name != named]

    def keep_only(self, anchor: str | None) -> None:
        """Delete the files of all other records."""
        with writing(self._directory):
            for path in self.others(anchor):
                path.unlink()

    def holds(self, anchor: str | None) -> bool:
        """Say whether the file that a record names is the one that was made for it, in this boot of the machine."""
        if anchor is None:
            return False
        try:
            return _anchor_of(self._directory / anchor.partition(" ")[0]) == anchor
        except OSError:
            return False


def _anchor_of(path: Path) -> str:
    """Return the words by which a record names a file."""
    status = path.stat(follow_symlinks=False)
    return f"{path.name} {_boot()} {status.st_dev} {status.st_ino} {status.st_ctime_ns}"


@cache
def _boot() -> str:
    """Return the machine's boot ID; without one, a random ID of this process, so that a restart ends all sessions."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return secrets.token_hex(16)


# ── records, and the books that follow from them ─────────────────────────────
#
# There is one frozen class for each kind of record. Attached to a roster: ``roster``, as the learner signed it.
# Attached to an opening: ``receipt``, the answer's head, and ``sums``, which are erased once the round is over.

_DAY = 86_400
SessionEnd = Literal["learner", "idle", "copy", "upgrade"]
"""Why a session ended: its learner ended it, nothing new was asked, the journal is not where it was written, or an
older version wrote it, which bound it to no place."""
SessionName = tuple[str, str]
"""Learner and session."""


@dataclass(frozen=True, slots=True)
class JournalBegun:
    """The journal of ``holder``, which signs with ``key``, begins; ``nonce`` makes its first link unique.

    ``recovered`` are the first links of the journals that this one replaces, whose sessions have all ended.
    """

    holder: str
    key: str
    nonce: str
    recovered: Sequence[str]


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """A session has a key of its own, of this ``modulus`` in hexadecimal."""

    learner: str
    session: str
    modulus: str


@dataclass(frozen=True, slots=True)
class RosterSigned:
    """A session's roster was signed; ``keys`` are the public keys of the parties on it, by name."""

    learner: str
    session: str
    keys: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RoundOpened:
    """A round was opened for the set of contributions of this hash, and will be for no other."""

    learner: str
    session: str
    round: int
    contributors: str


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A session is over; its key is destroyed."""

    learner: str
    session: str
    by: SessionEnd


JournalRecord = JournalBegun | SessionBegun | RosterSigned | RoundOpened | SessionEnded
_KINDS: dict[str, type[JournalRecord]] = {
    "begun": JournalBegun,
    "session": SessionBegun,
    "roster": RosterSigned,
    "opened": RoundOpened,
    "ended": SessionEnded,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def spell(record: JournalRecord, at: int, anchor: str | None = None) -> dict[str, Any]:
    """Return a record as the chain stores it; ``at`` is its time in seconds since 1970, ``anchor`` its file's name."""
    return {
        "kind": _NAMES[type(record)],
        "at": at,
        **({} if anchor is None else {"anchor": anchor}),
        **{item.name: getattr(record, item.name) for item in fields(record)},
    }


def read_record(number: int, values: Mapping[str, Any]) -> tuple[int, JournalRecord]:
    """Read a record's time, in seconds since 1970, and the record. Raises VersionError for an unknown kind or field."""
    record_fields = {name: value for name, value in values.items() if name not in {"attached", "anchor"}}
    try:
        at, kind = record_fields.pop("at"), record_fields.pop("kind")
        return at, _KINDS[kind](**record_fields)
    except (TypeError, KeyError):
        raise VersionError(f"entry {number} was written by another version of Parley: use that one") from None


@dataclass(slots=True)
class SessionBook:
    """Where a session stands: its key, the entries of its roster and its last opening, and when it was last used.

    ``end`` says why it ended; None if it has not.
    """

    n: int
    used: int
    roster: int | None = None
    last: tuple[int, RoundOpened] | None = None
    opened: int = 0
    end: SessionEnd | None = None


@dataclass(slots=True)
class JournalBooks:
    """All that follows from the records added so far.

    ``keys`` are those of parties, each with its name; ``days`` says how many sessions a learner has begun by day (UTC).
    ``anchor`` is the newest record's; older versions wrote none.
    """

    begun: JournalBegun | None = None
    sessions: dict[SessionName, SessionBook] = field(default_factory=dict)
    keys: set[tuple[str, str]] = field(default_factory=set)
    days: Counter[tuple[str, int]] = field(default_factory=Counter)
    anchor: str | None = None

    def begun_today(self, learner: str, now: int) -> int:
        """Return how many sessions a learner has begun on the day of ``now``, which is in seconds since 1970."""
        return self.days[learner, now // _DAY]

    def add(self, number: int, values: Mapping[str, Any]) -> None:
        """Add the next record. Raises LedgerError where it contradicts earlier ones."""
        at, record = read_record(number, values)
        if (self.begun is None) != isinstance(record, JournalBegun):
            raise LedgerError(f"entry {number}: a journal begins once")
        match record:
            case JournalBegun():
                self.begun = record
            case SessionBegun(learner, session, modulus):
                self.sessions[learner, session] = SessionBook(int(modulus, 16), at)
                self.days[learner, at // _DAY] += 1
            case _:
                self._go_on(number, at, record)
        self.anchor = values.get("anchor")

    def _go_on(self, number: int, at: int, record: RosterSigned | RoundOpened | SessionEnded) -> None:
        """Take a record of a session that has begun."""
        if (book := self.sessions.get((record.learner, record.session))) is None:
            raise LedgerError(f"entry {number} is of a session that has not begun")
        book.used = at
        match record:
            case RosterSigned():
                book.roster = number
                self.keys |= record.keys.items()
            case RoundOpened():
                book.last = number, record
                book.opened += 1
            case SessionEnded():
                book.end, book.last = record.by, None  # its last opening is sent no more


# ── the journal on disk ──────────────────────────────────────────────────────

_WAY_OUT = "Run parley-party keyholder recover, which ends all sessions and begins a new journal"
_JOURNAL = chain_schema("journal", 0x50_4B_45_59, _WAY_OUT)  # which spells PKEY


@dataclass(frozen=True, slots=True)
class Session:
    """A session in the journal: its key's modulus, its roster, its last opening, and how many rounds were opened."""

    learner: str
    id: str
    n: int
    roster: Signed | None
    end: SessionEnd | None
    last: Signed | None
    opened: int

    @property
    def state(self) -> str:
        """``new`` until the roster is signed, then ``serving``, then ``ended``."""
        return "ended" if self.end else "serving" if self.roster else "new"


class _JournalChain(SignedChain):
    """The chain of a journal, which has ``replaced`` others; all their sessions have ended."""

    replaced: frozenset[str] = frozenset()

    def has_replaced(self, receipt: Receipt) -> bool:
        """Say whether this journal has replaced that of a receipt."""
        return receipt.ledger in self.replaced


class Journal:
    """The journal in a directory. Threads and processes may share it.

    Every method raises UnavailableError while the database cannot be used, and once it is closed; LedgerError where it
    was changed or is not the one that the key holder last wrote.
    """

    def __init__(self, directory: Path, identity: Identity) -> None:
        """Open the journal. Raises LedgerError where there is none, or only a part: `create_journal` makes one."""
        check_journal(directory)
        self._books = JournalBooks()
        self._anchors = Anchors(directory / "anchor")
        self._sums: dict[int, int] = {}
        self.chain = _JournalChain(_stem(directory), _JOURNAL, self._books.add, identity, _WAY_OUT)
        begun = self._books.begun
        if begun is None or (begun.holder, begun.key) != (identity.name, identity.key):
            self.close()
            raise LedgerError("the journal is empty, or one of another name or identity key: restore its key")
        self.chain.replaced = frozenset(begun.recovered)

    def close(self) -> None:
        """Close the database, once no thread uses it."""
        self.chain.close()

    def probe(self) -> None:
        """Raise UnavailableError unless the largest sum that an open session may ask for could be stored next."""
        self.chain.look()
        rosters = [book.roster for book in self._books.sessions.values() if book.roster is not None and not book.end]
        self._sums = {number: self._sums.get(number) or self._sum_bytes(number) for number in rosters}
        self.chain.probe(max(self._sums.values(), default=0))

    @property
    def party_keys(self) -> Collection[tuple[str, str]]:
        """The parties on all signed rosters, each with its public key."""
        return self._books.keys

    def find(self, learner: str, session: str) -> Session | None:
        """Return a learner's session, or None."""
        with self.chain.transaction():
            book = self._books.sessions.get((learner, session))
            if book is None:
                return None
            roster = None if book.roster is None else self.chain.attachment(book.roster, "roster")
            return Session(
                learner,
                session,
                book.n,
                None if roster is None else Signed.from_bytes(roster),
                book.end,
                None if book.end or book.last is None else self._answer(book.last[0]),
                book.opened,
            )

    def get(self, learner: str, session: str) -> Session:
        """Return a learner's session. Raises NotFoundError."""
        if (book := self.find(learner, session)) is None:
            lost = ": its journal was lost and begun again, which ended all sessions. Begin the run again"
            raise NotFoundError(f"session {session} is not known here{lost if self.chain.replaced else ''}")
        return book

    def begun_today(self, learner: str) -> int:
        """Return how many sessions a learner has begun since midnight, by UTC."""
        self.chain.look()
        return self._books.begun_today(learner, _now())

    def add(self, learner: str, session: str, n: int, keep: Callable[[], None] | None = None) -> None:
        """Begin a session with the key of this modulus, unless it has begun; ``keep`` stores the key on disk first.

        Both happen in one transaction. Otherwise a process that starts meanwhile would delete the key, as one that
        belongs to no session (`sweep`).
        """
        with self._appending() as chain:
            if (learner, session) not in self._books.sessions:
                if keep:
                    keep()
                self._append(chain, SessionBegun(learner, session, f"{n:x}"))

    def sign(self, session: Session, roster: Signed) -> None:
        """Store a session's roster. Raises RosterError(roster_changed) if it has another or has ended."""
        proposal = roster.head.to_bytes()
        with self._appending() as chain:
            book = self._book(session)
            signed_before = None if book.roster is None else self.chain.attachment(book.roster, "roster")
            if book.end or signed_before not in (None, proposal):
                raise RosterError("this session has another roster, or has ended", reason=Reason.ROSTER_CHANGED)
            if signed_before is None:
                keys = {party.name: party.key for party in Roster.parse(roster.body).parties}
                self._append(chain, RosterSigned(session.learner, session.id, keys), {"roster": proposal})

    def append(self, session: Session, signed: Signed) -> Signed:
        """Store an opening, and return the one to send: this one, or an earlier one of the same set.

        It is on the disk when this returns. Raises RoundError(round_old, round_opened), and StateError if the session
        has ended meanwhile.
        """
        opened = Opened.parse(signed.body)
        with self._appending() as chain:
            book = self._book(session)
            if book.end:
                raise StateError("the session has ended", reason=Reason.OUT_OF_TURN)
            if book.last is not None and book.last[1].round >= opened.round:
                return self._again(*book.last, opened)
            (sums,) = signed.attachments
            _forget(chain, book)
            record = RoundOpened(session.learner, session.id, opened.round, opened.contributors)
            self._append(chain, record, {"receipt": signed.head.to_bytes(), "sums": sums})
        return signed

    def end(self, session: Session) -> None:
        """Store that a session's learner has ended it."""
        with self._appending() as chain:
            if not self._book(session).end:
                self._end(chain, session.learner, session.id, "learner")

    def is_idle(self, learner: str, session: str, seconds: float) -> bool:
        """Say whether `expire` would end a session, by the records that this process has read."""
        book = self._books.sessions.get((learner, session))
        return book is not None and not book.end and book.used <= _now() - seconds

    def expire(self, seconds: float) -> list[int]:
        """End all sessions that nothing new was asked of for ``seconds``; return the moduli of their keys."""
        return self._end_all("idle", before=_now() - seconds)

    def end_copied(self) -> list[int]:
        """End all sessions unless this journal is where it was written (`Anchors`); return the moduli of their keys.

        A journal that was put back lacks the later openings, and would open another set. One of an older version, which
        wrote no anchor, cannot be told from a copy.
        """
        with self.chain.transaction():  # otherwise another process could write meanwhile and delete this anchor
            anchor = self._books.anchor
            if self._anchors.holds(anchor):
                return []
        return self._end_all("upgrade" if anchor is None else "copy", before=math.inf)

    def active(self) -> list[int]:
        """Return the moduli of all sessions that have not ended."""
        with self.chain.transaction():
            return self._active()

    def sweep(self, keep_only: Callable[[Collection[int]], None]) -> None:
        """Have the keys of all other sessions than the open ones deleted, while no process can begin a session."""
        with self.chain.transaction():
            keep_only(self._active())

    def _active(self) -> list[int]:
        return [book.n for book in self._books.sessions.values() if not book.end]

    def _end_all(self, by: SessionEnd, before: float) -> list[int]:
        """End all sessions last used ``before`` a time in seconds since 1970; return the moduli of their keys."""
        ended = []
        with self._appending() as chain:
            for (learner, session), book in self._books.sessions.items():
                if not book.end and book.used <= before:
                    self._end(chain, learner, session, by)
                    ended.append(book.n)
        return ended

    def _end(self, chain: Appending, learner: str, session: str, by: SessionEnd) -> None:
        """Append the end of a session that has not ended."""
        _forget(chain, self._books.sessions[learner, session])
        self._append(chain, SessionEnded(learner, session, by))

    @contextmanager
    def _appending(self) -> Iterator[Appending]:
        """Open a transaction that may append; before this returns, the anchors of earlier records are deleted."""
        with self.chain.transaction() as chain:
            yield chain
        if self._anchors.others(self._books.anchor):
            with self.chain.transaction():  # so that nobody writes meanwhile: an anchor is made before its record
                self._anchors.keep_only(self._books.anchor)

    def _append(self, chain: Appending, record: JournalRecord, attachments: Mapping[str, bytes] | None = None) -> None:
        """Append a record with its anchor."""
        chain.append(spell(record, _now(), self._anchors.make()), attachments)

    def _sum_bytes(self, roster: int) -> int:
        """Return the length of a session's sums in bytes, by the entry of its roster."""
        layout = Roster.parse(Signed.from_bytes(self.chain.attachment(roster, "roster")).body).layout
        return layout.blocks * layout.block_bytes

    def log_records(self, others: Sequence[ChainRecord], own: Sequence[ChainRecord]) -> None:
        """Write committed records into the service's log, and a sample of the openings."""
        log = structlog.get_logger()
        for values in (*others, *own):
            if values["kind"] == "opened" and not logs.is_sampled(values["round"]):
                continue
            match read_record(0, values)[1]:
                case SessionBegun(learner, session, _):
                    log.info("session", learner=learner, session=session)
                case RosterSigned(learner, session, keys):
                    log.info("signed", learner=learner, session=session, parties=len(keys))
                case RoundOpened(learner, session, round, _):
                    log.info("opened", learner=learner, session=session, round=round)
                case SessionEnded(learner, session, by):
                    opened = self._books.sessions[learner, session].opened
                    log.info("ended", learner=learner, session=session, by=by, rounds=opened)

    def _book(self, session: Session) -> SessionBook:
        return self._books.sessions[session.learner, session.id]

    def _answer(self, number: int) -> Signed:
        """Return an opening as it was sent."""
        head = Signed.from_bytes(self.chain.attachment(number, "receipt"))
        return Signed(head.body, head.signature, (self.chain.attachment(number, "sums"),))

    def _again(self, number: int, last: RoundOpened, opened: Opened) -> Signed:
        """Return the last opening, if it is asked for again. Raises RoundError for any other."""
        if last.round > opened.round:
            raise RoundError(f"round {opened.round} is over", reason=Reason.ROUND_OLD)
        if last.contributors != opened.contributors:
            raise RoundError(f"round {opened.round} was opened for another set", reason=Reason.ROUND_OPENED)
        return self._answer(number)


def create_journal(directory: Path, identity: Identity, recovered: Sequence[str] | None = None) -> None:
    """Begin a key holder's journal in a directory. Raises LedgerError where there is a journal, or a part of one.

    With ``recovered``, which names the journals that it replaces, the new one may do so: what is there is put aside.
    """
    begun = JournalBegun(identity.name, identity.key, secrets.token_hex(32), list(recovered or ()))
    begin_chain(_stem(directory), _JOURNAL, spell(begun, _now()), replaces=recovered is not None)


def recover_journal(directory: Path, identity: Identity, receipts: Sequence[str] = ()) -> list[str]:
    """Begin a new journal in a directory, put aside what is there, and return the first links of the replaced journals.

    The links come from what is left of the old journal, and from ``receipts``. All sessions have ended then: the caller
    destroys their keys. Raises LedgerError for a receipt that is not of this key holder, and ConflictError while a
    process uses the journal.
    """
    shown_receipts = [verify_receipt(text, identity.name, read_receipt(text).key) for text in receipts]
    links = [receipt.ledger for receipt in shown_receipts]
    finish_beginning(_stem(directory))
    with unused(_stem(directory).with_suffix(".head")):
        if (first := next(salvage(_stem(directory).with_suffix(".db")), None)) is not None:
            links += [*json.loads(first[1]).get("recovered", ()), first[2].hex()]
        replaced = sorted(set(links))
        create_journal(directory, identity, replaced)
    return replaced


def has_journal(directory: Path) -> bool:
    """Say whether a directory has a journal, or a part of one."""
    return has_begun(_stem(directory))


def check_journal(directory: Path) -> None:
    """Raise LedgerError, which says what to do, where a directory has no journal or only a part of one."""
    check_begun(
        _stem(directory),
        _JOURNAL,
        missing="make a new key holder's with parley-party keyholder init; if there was one, run "
        "parley-party keyholder recover, which ends all sessions",
        recover="parley-party keyholder recover",
    )


def _stem(directory: Path) -> Path:
    return directory / "keyholder"


def _forget(chain: Appending, book: SessionBook) -> None:
    """Erase the sums of the last opening."""
    if book.last is not None:
        chain.erase(book.last[0], "sums")


def _now() -> int:
    """Return the time in seconds since 1970."""
    return int(time.time())
