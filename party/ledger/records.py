"""The records of a ledger: one frozen class for each kind, and its JSON.

A record's JSON has its ``kind``, its fields, the time, and the digests of its attachments. What is too long for a
record is attached: a specification, a price list, an answer's body, one-time noise, an invitation.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from parley.common.errors import LedgerError, VersionError
from parley.common.privacy.account import Cost, Price
from parley.common.privacy.guarantee import Adjacency, Composition

if TYPE_CHECKING:
    from parley.common.data.study import Study

EndReason = Literal["learner", "owner", "expired", "failed"]


@dataclass(frozen=True, slots=True)
class Begun:
    """The ledger of ``party``, which signs with ``key``, begins; ``nonce`` makes its first link unique.

    ``recovered`` has, by its first link, each ledger that this one replaces: the count of entries that are accounted
    for, and the time of the last. So it has what is left of a learner's own chain in one, if a receipt shows no more.
    What they may have cost is ``spent`` in the account of all; ``groups`` has the `Cost.units` in others, by their
    people. ``merged`` are those of them that the owner has joined: each with its party's name, key and signed receipt.
    """

    party: str
    key: str
    nonce: str
    recovered: Mapping[str, Sequence[int]]
    spent: Cost
    adjacency: Adjacency
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)
    merged: Sequence[Mapping[str, str]] = field(default_factory=list)

    @property
    def costs(self) -> dict[str, Cost]:
        """What the replaced ledgers may have cost, by people."""
        return {"": self.spent, **{people: Cost.of_units(units) for people, units in self.groups.items()}}


@dataclass(frozen=True, slots=True)
class Merged:
    """The ledger ends: what it has spent counts in the ledger of the party ``into``, which signs with ``key``.

    That one begins with this ``nonce``.
    """

    into: str
    key: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Limited:
    """The owner's budget from now on: epsilon in micro-units, delta in units of 1e-18, and how costs add up.

    It is that of the account of these ``people``. The empty word is for all whose rows the owner holds; any other is
    the owner's word for people who, as it says, are in no table of its other studies, but those of the same word.
    """

    epsilon: int
    delta: int
    adjacency: Adjacency
    composition: Composition
    people: str = ""


@dataclass(frozen=True, slots=True)
class OwnerAsked:
    """A run that the policy allows waits for the owner, ``lasts`` seconds. Attached: ``proposal``, ``price``.

    ``spec`` is the digest of the specification; ``cost`` is what the whole run would be charged.
    """

    learner: str
    run: str
    spec: str
    cost: Cost
    lasts: int


@dataclass(frozen=True, slots=True)
class OwnerDenied:
    """The owner does not want to take part in a run that it was asked about."""

    learner: str
    run: str
    reason: str


@dataclass(frozen=True, slots=True)
class Approved:
    """A run was consented to. Its whole price is reserved for it, for ``lasts`` seconds from its last answer.

    ``user`` and ``purpose`` are the learner's words; ``spec`` is the digest of the specification; the account of
    ``people`` pays. ``rows`` are `RunSpec.charged_rows`, empty for any. Attached: ``spec`` and ``price``.
    """

    learner: str
    run: str
    user: str
    purpose: str
    study: str
    algorithm: str
    spec: str
    secure_sum: str
    rounds: int
    reserved: Cost
    adjacency: Adjacency
    lasts: int
    people: str = ""
    rows: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """A round was answered. ``query`` is SHA-256 of the question.

    Attached: ``body``, the answer as it was sent, and each one-time noise that it drew, under ``once:`` and its name.
    """

    learner: str
    run: str
    round: int
    query: str
    step: str
    cost: Cost
    adjacency: Adjacency


@dataclass(frozen=True, slots=True)
class Joined:
    """A secure sum was joined. Attached: ``invitation``, the roster signed by learner and key holders."""

    learner: str
    run: str


@dataclass(frozen=True, slots=True)
class Released:
    """What was still reserved for a run is free again; the run goes on while the budget suffices."""

    learner: str
    run: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A run is answered no more, and what was still reserved for it is free again; ``by`` says who or what ended it.

    If it ``failed`` in work on the data, all that was left of its price is charged: see `Consents.fail`.
    """

    learner: str
    run: str
    by: EndReason
    cost: Cost = Cost(0, 0)  # noqa: RUF009 -- frozen
    adjacency: Adjacency = "whole_party"


@dataclass(frozen=True, slots=True)
class Refused:
    """A run, or a round of one, was refused by one of the owner's rules."""

    learner: str
    run: str
    algorithm: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Pinned:
    """The owner says that answers about the study ``name`` are from now on about these data, of these ``people``.

    ``source`` is where they come from, or the text of a query, and ``tables`` are those that it names; ``study`` is the
    digest of the study. ``rows`` is a digest of the loaded shard of ``n_examples`` rows, and ``contents`` has one of
    each table that was read; they are keyed by the attached ``salt``: without the salt nobody can confirm a guess of
    the rows. ``first`` is the place of the first of these rows in the table, after those of earlier periods. Older
    versions held one study, whose name they did not write. ``most_rows`` is the study's public bound on the rows of a
    person, and ``n_examples`` counts persons then; it is left out of studies that hide records.
    """

    source: str
    tables: Mapping[str, str]
    study: str
    rows: str
    name: str = ""
    people: str = ""
    n_examples: int = 0
    contents: Sequence[str] = ()
    first: int = 0
    most_rows: int = 0

    def is_about_tables_of(self, other: Pinned) -> bool:
        """Say whether both were read at the same places: from one table, or those of one among those of the other."""
        ours, theirs = (set(pin.tables.values()) or {pin.source} for pin in (self, other))
        return ours <= theirs or theirs <= ours


@dataclass(frozen=True, slots=True)
class DataPin:
    """The data of a study as a ledger pins them: where they come from, the study, and what was read.

    ``rows`` is a digest of the ``n_examples`` rows from the place ``first`` on, and ``contents`` has one of each table
    that they were read from: of its bytes if it is a file, otherwise of where it is. ``digest_at`` returns one of the
    rows from a place to before another, as the table is now. They are the owner's secrets: anyone who knows all rows
    except one can find that one with them.
    """

    source: str
    tables: dict[str, str]
    study: Study
    people: str
    n_examples: int
    rows: bytes = field(repr=False)
    contents: tuple[bytes, ...] = field(repr=False)
    first: int = 0
    digest_at: Callable[[int, int], bytes] | None = field(default=None, repr=False)

    def pinned(self, salt: bytes) -> Pinned:
        """Return the record, with digests keyed by ``salt``, which are safe to show to anyone who lacks the salt."""
        return Pinned(
            source=self.source,
            tables=self.tables,
            study=self.study.digest,
            rows=_keyed(self.rows, salt),
            name=self.study.name,
            people=self.people,
            n_examples=self.n_examples,
            contents=self._keyed_contents(salt),
            first=self.first,
            most_rows=self.study.person.most_rows if self.study.person else 0,
        )

    def changes_since(self, pinned: Pinned, salt: bytes) -> list[str]:
        """Return what has changed since these data were pinned with this ``salt``, in words."""
        is_other = {
            "the rows": _keyed(self.rows, salt) != pinned.rows,
            "the rows that belong to an earlier period": self.first != pinned.first,
            "the study": not self.study.has_digest(pinned.study),
            "where they come from": (self.source, self.tables) != (pinned.source, dict(pinned.tables)),
        }
        return [part for part in is_other if is_other[part]]

    def has_in_place(self, pinned: Pinned, salt: bytes) -> bool:
        """Say whether the rows that were pinned with this ``salt`` are where they were in the table."""
        if self.digest_at is None or not self.study.has_digest(pinned.study):
            return False
        return _keyed(self.digest_at(pinned.first, pinned.first + pinned.n_examples), salt) == pinned.rows

    def reads_tables_of(self, pinned: Pinned, salt: bytes) -> bool:
        """Say whether the data were read from the tables that were pinned with this ``salt``.

        They are the same tables by their bytes, or by where they are, for rows may have been added since. It is enough
        that those of one are all among those of the other: a query may join a table that describes nobody. Older
        versions did not write the bytes' digests. Equal rows are of one table too.
        """
        pairs = (
            (set(self._keyed_contents(salt)), set(pinned.contents)),
            (set(self.tables.values()) or {self.source}, set(pinned.tables.values()) or {pinned.source}),
        )
        is_among = any(ours and theirs and (ours <= theirs or theirs <= ours) for ours, theirs in pairs)
        return is_among or _keyed(self.rows, salt) == pinned.rows

    def _keyed_contents(self, salt: bytes) -> list[str]:
        return sorted({_keyed(content, salt) for content in self.contents})


def _keyed(digest: bytes, salt: bytes) -> str:
    return hmac.new(salt, digest, hashlib.sha256).hexdigest()


LedgerRecord = (
    Begun
    | Limited
    | OwnerAsked
    | OwnerDenied
    | Approved
    | Answered
    | Joined
    | Released
    | Ended
    | Refused
    | Pinned
    | Merged
)
_KINDS: dict[str, type[LedgerRecord]] = {
    "begun": Begun,
    "limited": Limited,
    "owner-asked": OwnerAsked,
    "owner-denied": OwnerDenied,
    "approved": Approved,
    "answered": Answered,
    "joined": Joined,
    "released": Released,
    "ended": Ended,
    "refused": Refused,
    "pinned": Pinned,
    "merged": Merged,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_COSTS = frozenset({"cost", "spent", "reserved"})
_IF_STATED = frozenset({"most_rows"})
"""What records of studies that hide records do not say, as those of older versions do not."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record with its number, its time in seconds since 1970, and SHA-256 of each attachment by name."""

    number: int
    at: int
    record: LedgerRecord
    attached: Mapping[str, str] = field(default_factory=dict)


def to_json(record: LedgerRecord, at: int) -> dict[str, Any]:
    """Return a record as the chain stores it; ``at`` is its time in seconds since 1970."""
    values = {item.name: getattr(record, item.name) for item in fields(record)}
    values = {name: value for name, value in values.items() if name not in _IF_STATED or value}
    spelt = {name: list(value.units) if isinstance(value, Cost) else value for name, value in values.items()}
    return {"kind": _NAMES[type(record)], "at": at, **spelt}


def from_json(number: int, values: Mapping[str, Any]) -> Entry:
    """Read an entry from the chain. Raises VersionError for a kind or a field that this version does not know."""
    record_fields = dict(values)
    attached, at = record_fields.pop("attached", {}), record_fields.pop("at")
    kind = record_fields.pop("kind")
    try:
        spelt: dict[str, Any] = {
            name: Cost.of_units(value) if name in _COSTS else value for name, value in record_fields.items()
        }
        return Entry(number, at, _KINDS[kind](**spelt), attached)
    except (TypeError, KeyError):
        raise VersionError(f"entry {number} was written by another version of Parley: use that one") from None


def packed_price(price: Price) -> bytes:
    """Return a price list as the bytes of an attachment."""
    return json.dumps({column.name: getattr(price, column.name) for column in fields(price)}).encode()


def read_price(content: bytes) -> Price:
    """Read a price list that `packed_price` packed. Raises LedgerError."""
    try:
        columns: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(content).items()
        }
        return Price(**columns)
    except (ValueError, TypeError, AttributeError):
        raise LedgerError("the price list cannot be read") from None
