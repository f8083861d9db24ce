"""What a key holder has promised: its sessions, and the one set that it opened in each round; in one chain of records.

An opening is committed, which SQLite syncs, before its answer leaves; the chain is read in the same transaction, so
that no second set gets into a round, whichever thread or process asks. The sums of a round that is over are erased, its
receipt stays.

By what a journal knows that it is where it was written: a file that no copy has.

Each record of the journal names an empty file that was made for it, by device, inode and time of change (ctime), and
the boot of the machine; the file of the record before is deleted. All that puts files back (cp, tar, rsync, a backup of
files, another volume) makes that file anew or changes it, and nothing sets a ctime: so a journal that was put back,
whole or in part and wherever, names a file that is not there. What puts a disk back as it was (a snapshot of a virtual
machine) starts the machine anew.

A process that is killed leaves file and record as they are, and a record that was not committed leaves the file of the
one before: so a service that starts again in its place goes on.

Not noticed: storage that goes back under a machine that runs on (``zfs rollback``, a snapshot of a volume under the
same device number), and a snapshot of a machine's memory.

What a key holder's journal is made of, and what follows from it: one frozen class a kind of record. Pure.

Attached to a roster: ``roster``, as the learner signed it. Attached to an opening: ``receipt``, the answer's head, and
``sums``, which are erased once the round is over.
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

from parley.common.errors import LedgerError, NotFoundError, VersionError
from parley.common.protocol.receipts import Receipt, read_receipt, verify_receipt
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.errors import Reason, RosterError, RoundError, StateError
from parley.common.secure_sum.messages import Opened, Roster
from parley.common.secure_sum.session import Identity
from parley.common.storage.chain import (
    Appending,
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


class Anchors:
    """The folder of the file that a journal's newest record names. Methods raise UnavailableError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def make(self) -> str:
        """Make the file of a record that is about to be written, which names it so."""
        with writing(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = self._directory / secrets.token_hex(8)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return _spelt(path)

    def others(self, anchor: str | None) -> list[Path]:
        """The files of other records, and of those that were never committed."""
        held = anchor and anchor.partition(" ")[0]
        with writing(self._directory):
            files = list(self._directory.iterdir()) if self._directory.exists() else []
        return [path for path in files if path.name != held]

    def keep_only(self, anchor: str | None) -> None:
        """Delete the files of all other records."""
        with writing(self._directory):
            for path in self.others(anchor):
                path.unlink()

    def holds(self, anchor: str | None) -> bool:
        """Whether the file that a record names is the one that was made for it, in this boot of the machine."""
        if anchor is None:
            return False
        try:
            return _spelt(self._directory / anchor.partition(" ")[0]) == anchor
        except OSError:
            return False


def _spelt(path: Path) -> str:
    """A file as a record names it."""
    found = path.stat(follow_symlinks=False)
    return f"{path.name} {_boot()} {found.st_dev} {found.st_ino} {found.st_ctime_ns}"


@cache
def _boot() -> str:
    """This boot of the machine; where no file says it, this process: no journal outlives that then."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return secrets.token_hex(16)


_DAY = 86_400
SessionEnd = Literal["learner", "idle", "copy"]
"""By whom or why: the learner's word, nothing new for long, or a journal that is not where it was written."""
SessionName = tuple[str, str]
"""Learner and session."""


@dataclass(frozen=True, slots=True)
class JournalBegun:
    """The journal of ``holder``, who signs with ``key``; ``nonce`` makes its first link unlike any other's.

    ``recovered`` are the first links of the journals that this one replaces, whose sessions are all over.
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
    """A record as the chain holds it, of the time ``at`` in seconds since 1970; ``anchor`` is by `Anchors`."""
    return {
        "kind": _NAMES[type(record)],
        "at": at,
        **({} if anchor is None else {"anchor": anchor}),
        **{item.name: getattr(record, item.name) for item in fields(record)},
    }


def read_record(number: int, values: Mapping[str, Any]) -> tuple[int, JournalRecord]:
    """The time of a record, and the record; raises VersionError for one that this Parley does not know."""
    given = {name: value for name, value in values.items() if name not in {"attached", "anchor"}}
    try:
        at, kind = given.pop("at"), given.pop("kind")
        return at, _KINDS[kind](**given)
    except (TypeError, KeyError):
        raise VersionError(f"entry {number} was written by another version of Parley: use that one") from None


@dataclass(slots=True)
class SessionBook:
    """Where a session stands: its key, the entries of its roster and of the last opening, when it was last used.

    ``end`` says why it is over, None while it goes on.
    """

    n: int
    used: int
    roster: int | None = None
    last: tuple[int, RoundOpened] | None = None
    opened: int = 0
    end: SessionEnd | None = None


@dataclass(slots=True)
class JournalBooks:
    """All that follows from the records told so far.

    ``keys`` are those of parties, each with its name; ``days`` says how many sessions a learner has begun by day (UTC).
    ``anchor`` is the newest record's; versions before wrote none.
    """

    begun: JournalBegun | None = None
    sessions: dict[SessionName, SessionBook] = field(default_factory=dict)
    keys: set[tuple[str, str]] = field(default_factory=set)
    days: Counter[tuple[str, int]] = field(default_factory=Counter)
    anchor: str | None = None

    def begun_today(self, learner: str, now: int) -> int:
        """How many sessions a learner has begun on the day of ``now``, in seconds since 1970."""
        return self.days[learner, now // _DAY]

    def tell(self, number: int, values: Mapping[str, Any]) -> None:
        """Take one more record; raises LedgerError where it contradicts those before."""
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
                book.end, book.last = record.by, None  # which is sent no more


_JOURNAL = chain_schema("journal", 0x50_4B_45_59)  # which spells PKEY
_WAY_OUT = "Run parley-party keyholder recover, which ends all sessions and begins a new journal"


@dataclass(frozen=True, slots=True)
class Session:
    """A session as the journal has it: its key's modulus, its roster, the last opening, how many rounds were opened."""

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
    """The chain of a journal, which has ``replaced`` others: all of their sessions are over."""

    replaced: frozenset[str] = frozenset()

    def has_replaced(self, receipt: Receipt) -> bool:
        """Whether it has replaced the journal of a receipt."""
        return receipt.ledger in self.replaced


class Journal:
    """The journal in a directory. Threads and processes may share it.

    Every method raises UnavailableError while the database cannot be used, and once it is closed; LedgerError where it
    was changed or is not the one that the key holder last wrote.
    """

    def __init__(self, directory: Path, identity: Identity) -> None:
        """Open the journal; raises LedgerError where there is none, or only half of one: `create_journal` makes one."""
        check_journal(directory)
        self._books = JournalBooks()
        self._anchors = Anchors(directory / "anchor")
        self._sums: dict[int, int] = {}
        self.chain = _JournalChain(_stem(directory), _JOURNAL, self._books.tell, identity, _WAY_OUT)
        begun = self._books.begun
        if begun is None or (begun.holder, begun.key) != (identity.name, identity.key):
            self.close()
            raise LedgerError("the journal is empty, or one of another name or identity key: give back its key")
        self.chain.replaced = frozenset(begun.recovered)

    def close(self) -> None:
        """Close the database, once no thread uses it."""
        self.chain.close()

    def probe(self) -> None:
        """Raise UnavailableError unless the largest sum that an open session may ask for can be written down next."""
        self.chain.look()
        rosters = [book.roster for book in self._books.sessions.values() if book.roster is not None and not book.end]
        self._sums = {number: self._sums.get(number) or self._sum_bytes(number) for number in rosters}
        self.chain.probe(max(self._sums.values(), default=0))

    @property
    def party_keys(self) -> Collection[tuple[str, str]]:
        """The parties on the rosters that were signed, each with its public key."""
        return self._books.keys

    def find(self, learner: str, session: str) -> Session | None:
        """A learner's session, or None."""
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
        """A learner's session; raises NotFoundError."""
        if (found := self.find(learner, session)) is None:
            raise NotFoundError(f"session {session} is not known here")
        return found

    def begun_today(self, learner: str) -> int:
        """How many sessions a learner has begun since midnight, by UTC."""
        self.chain.look()
        return self._books.begun_today(learner, _now())

    def add(self, learner: str, session: str, n: int, keep: Callable[[], None] | None = None) -> None:
        """Begin a session with the key of this modulus, unless it has begun; ``keep`` puts the key on the disk first.

        Nobody else writes meanwhile: or a process that starts would take the key for one of no session (`sweep`).
        """
        with self._appending() as chain:
            if (learner, session) not in self._books.sessions:
                if keep:
                    keep()
                self._append(chain, SessionBegun(learner, session, f"{n:x}"))

    def sign(self, session: Session, roster: Signed) -> None:
        """Note the roster of a session that has no other. Raises RosterError(roster_changed)."""
        proposal = roster.head.to_bytes()
        with self._appending() as chain:
            book = self._book(session)
            known = None if book.roster is None else self.chain.attachment(book.roster, "roster")
            if book.end or known not in (None, proposal):
                raise RosterError("this session has another roster, or has ended", reason=Reason.ROSTER_CHANGED)
            if known is None:
                keys = {party.name: party.key for party in Roster.parse(roster.body).parties}
                self._append(chain, RosterSigned(session.learner, session.id, keys), {"roster": proposal})

    def append(self, session: Session, signed: Signed) -> Signed:
        """Note an opening, on the disk when this returns; the one to send: this, or the same set's noted before.

        Raises RoundError(round_old, round_opened), or StateError when the session has ended meanwhile.
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
        """Note that a session has ended."""
        with self._appending() as chain:
            if not self._book(session).end:
                self._end(chain, session.learner, session.id, "learner")

    def is_idle(self, learner: str, session: str, seconds: float) -> bool:
        """Whether `expire` would end a session, as far as this process knows."""
        book = self._books.sessions.get((learner, session))
        return book is not None and not book.end and book.used <= _now() - seconds

    def expire(self, seconds: float) -> list[int]:
        """End all sessions of which nothing new was asked for so long; the moduli of their keys."""
        return self._end_all("idle", before=_now() - seconds)

    def end_copied(self) -> list[int]:
        """End all sessions, unless this journal is where it was written (`Anchors`); the moduli of their keys.

        A journal that was put back has forgotten what it opened since, and would open another set.
        """
        with self.chain.transaction():  # or another process would write meanwhile, and delete the anchor that was read
            if self._anchors.holds(self._books.anchor):
                return []
        return self._end_all("copy", before=math.inf)

    def active(self) -> list[int]:
        """The moduli of all sessions that have not ended."""
        with self.chain.transaction():
            return self._active()

    def sweep(self, keep_only: Callable[[Collection[int]], None]) -> None:
        """Have all keys deleted but those of sessions that have not ended, while nobody begins one."""
        with self.chain.transaction():
            keep_only(self._active())

    def _active(self) -> list[int]:
        return [book.n for book in self._books.sessions.values() if not book.end]

    def _end_all(self, by: SessionEnd, before: float) -> list[int]:
        """End all sessions that were last used so long ago, in seconds since 1970; the moduli of their keys."""
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
        """A transaction that may append; nothing that it did is told before the anchor of the record before is gone."""
        with self.chain.transaction() as chain:
            yield chain
        if self._anchors.others(self._books.anchor):
            with self.chain.transaction():  # while nobody writes, whose anchor is made before its record
                self._anchors.keep_only(self._books.anchor)

    def _append(self, chain: Appending, record: JournalRecord, attachments: Mapping[str, bytes] | None = None) -> None:
        """Append a record, anchored to where it is written."""
        chain.append(spell(record, _now(), self._anchors.make()), attachments)

    def _sum_bytes(self, roster: int) -> int:
        """The length of the sums of a session, by the entry of its roster."""
        layout = Roster.parse(Signed.from_bytes(self.chain.attachment(roster, "roster")).body).layout
        return layout.blocks * layout.block_bytes

    def _book(self, session: Session) -> SessionBook:
        return self._books.sessions[session.learner, session.id]

    def _answer(self, number: int) -> Signed:
        """An opening as it was sent."""
        head = Signed.from_bytes(self.chain.attachment(number, "receipt"))
        return Signed(head.body, head.signature, (self.chain.attachment(number, "sums"),))

    def _again(self, number: int, last: RoundOpened, opened: Opened) -> Signed:
        """The last opening, where it is asked for again; raises RoundError for any other."""
        if last.round > opened.round:
            raise RoundError(f"round {opened.round} is over", reason=Reason.ROUND_OLD)
        if last.contributors != opened.contributors:
            raise RoundError(f"round {opened.round} was opened for another set", reason=Reason.ROUND_OPENED)
        return self._answer(number)


def create_journal(directory: Path, identity: Identity, recovered: Sequence[str] | None = None) -> None:
    """Begin a key holder's journal in a directory; raises LedgerError where there is anything of one already.

    One that tells of ``recovered`` journals takes the place of what there is, which is put aside.
    """
    begun = JournalBegun(identity.name, identity.key, secrets.token_hex(32), list(recovered or ()))
    begin_chain(_stem(directory), _JOURNAL, spell(begun, _now()), replaces=recovered is not None)


def recover_journal(directory: Path, identity: Identity, receipts: Sequence[str] = ()) -> list[str]:
    """Put a new journal in a directory, and what is there aside; the first links of the journals that it replaces.

    They are known from what is left of the old one, and from ``receipts``. All their sessions are over: their keys are
    to be destroyed. Raises LedgerError for a receipt that is none of this key holder's,
    and ConflictError while somebody uses the journal.
    """
    shown = [verify_receipt(text, identity.name, read_receipt(text).key) for text in receipts]
    links = [receipt.ledger for receipt in shown]
    finish_beginning(_stem(directory))
    with unused(_stem(directory).with_suffix(".head")):
        if (first := next(salvage(_stem(directory).with_suffix(".db")), None)) is not None:
            links += [*json.loads(first[1]).get("recovered", ()), first[2].hex()]
        replaced = sorted(set(links))
        create_journal(directory, identity, replaced)
    return replaced


def has_journal(directory: Path) -> bool:
    """Whether there is anything of a journal in a directory."""
    return has_begun(_stem(directory))


def check_journal(directory: Path) -> None:
    """Raise LedgerError, with the way out, where a directory has no journal or only a part of one."""
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
    """Seconds since 1970."""
    return int(time.time())
