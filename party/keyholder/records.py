"""What a key holder's journal is made of, and what follows from it: one frozen class a kind of record. Pure.

Attached to a roster: ``roster``, as the learner signed it. Attached to an opening: ``receipt``, the answer's head, and
``sums``, which are erased once the round is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from parley.common.errors import LedgerError, VersionError

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
