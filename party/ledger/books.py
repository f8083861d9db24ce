"""What follows from a ledger's records: its account, and where each run stands. Pure functions of the records.

`Books` takes the records in order and keeps what later questions need. The party and a distant auditor compute the
same from the same records.

*In parallel.* Two tables that are neighbours differ in one record, at the same place of both. Places are divided by
public rules: into those for training and those held out, and into periods, each after the last. An answer about other
places than that of the record has the same distribution for both tables, given all answers before it, also if its
question was chosen by them: the likelihood ratio of all answers is the product of those about the record's place alone.
So a filter that counts these alone holds for each record. A run must therefore fit beside all that may be about the
same places (`Places.is_apart`), and an account has spent what the worst-off record may have lost (`_worst`), in each
unit apart. That may be more than any record has lost; as a cost that fits does so still if a unit of it is less, it
counts no record's loss too low. The exception is slack, which must come before all else: see `Books.left_to`.

Rows for training and rows held out are apart if one entry pins the data of both: other data, or another share that is
held out, may put a record elsewhere. Runs of two periods are apart because `Ledger.pin` checks that the earlier rows
are where they were, and that the later ones come after all of them. That nobody moved a record within a period, to
accept that as changed data, is the owner's word. Studies add up, because neighbours differ in a record of each table.
So does what may be about any place: runs that hide all that the owner holds, runs of its own, and those that were
approved before any data were pinned for their study by name.

*Of persons.* Where a study hides persons, read "person" for "record" above: a place is that of a person, in the order
in which their first rows stand in the table, and neighbours differ in all rows of one person. Nobody is at two places
of one table, and each period would divide persons, so there is none. A charge says what it hides of this owner's data:
a record, all rows that a person has with this owner, or all of the data. How many other owners a person may be with,
each run's own guarantee states and pays for.

Older versions charged the epsilon of a run with a delta round by round. That undercharges a run that its learner
ends early (see `parley.common.runs.pricing`). So all of its epsilon counts as spent with the first answer that has a
delta, even if older records say less; this holds for open runs and for those that have ended. Newer records say so
themselves.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import reduce
from itertools import accumulate, chain, pairwise
from operator import itemgetter
from typing import Self

from parley.common.errors import LedgerError
from parley.common.privacy.account import Account, Cost, larger
from parley.common.privacy.guarantee import Adjacency, weakest
from parley.party.ledger.records import (
    Answered,
    Approved,
    Begun,
    Ended,
    Entry,
    Joined,
    LedgerRecord,
    Limited,
    Merged,
    OwnerAsked,
    OwnerDenied,
    Pinned,
    Refused,
    Released,
)

_LAST_ROUND = 2**63 - 1
ALL = ""
"""The word for the account of all whose rows the owner holds."""
NOTHING = Cost(0, 0)
_EMPTY = Account(0, 0)
NO_END = 2**63 - 1
"""After the last place in any table."""
RunKey = tuple[str, str]
"""Learner and run."""
ONCE = "once:"
"""The prefix of the names of attached one-time noise."""
OWNER = "(owner)"
"""The learner's name in a run of the owner's own; no learner can have it."""


class RoundEntries(Mapping[int, int]):
    """The entries of a run's answers by round, in the order in which they came, which is that of the rounds.

    It takes sixteen bytes an answer, a sixth of what a dict would take.
    """

    __slots__ = ("_entries", "_rounds")

    def __init__(self) -> None:
        self._rounds, self._entries = array("q"), array("q")

    def __getitem__(self, round: int) -> int:
        place = bisect_left(self._rounds, round)
        if place == len(self._rounds) or self._rounds[place] != round:
            raise KeyError(round)
        return self._entries[place]

    def __iter__(self) -> Iterator[int]:
        return iter(self._rounds)

    def __len__(self) -> int:
        return len(self._rounds)

    @property
    def last(self) -> int:
        """The last round; 0 for none."""
        return self._rounds[-1] if self._rounds else 0

    def add(self, round: int, entry: int) -> None:
        """Add an answer. Raises LedgerError unless its round comes after the last."""
        if not self.last < round <= _LAST_ROUND:
            raise LedgerError(f"entry {entry}: an answer to round {round} does not come after one to round {self.last}")
        self._rounds.append(round)
        self._entries.append(entry)


@dataclass(frozen=True, slots=True)
class Places:
    """The places in a study's table that runs are about, as public rules divide them: from ``first`` to before ``end``.

    ``since`` is the entry that pins the data, 0 for runs that may be about any place. ``rows`` are those for training
    or those held out; empty for both.
    """

    since: int = 0
    rows: str = ""
    first: int = 0
    end: int = NO_END

    def is_apart(self, other: Places) -> bool:
        """Say whether no record is at places of both, which are those of one study's table."""
        is_divided = self.since == other.since and bool(self.rows and other.rows) and self.rows != other.rows
        return is_divided or self.end <= other.first or other.end <= self.first


ANYWHERE = Places()


@dataclass(frozen=True, slots=True)
class Use:
    """What runs are for, and which account pays: that of ``people`` for a ``study`` of a ``learner``.

    The study of a run of the owner's own is empty if the owner did not say it. ``places`` are what the runs are about,
    and ``adjacency`` is what they hide.
    """

    people: str
    study: str
    learner: str
    places: Places = ANYWHERE
    adjacency: Adjacency = "replace_one"


@dataclass(slots=True)
class RunBook:
    """Where a run stands: the entry that approved it, its answers' entries by round, and what is still reserved.

    ``total`` is what was reserved for all of its ``rounds``; ``lasts`` is as in `Approved`; ``use`` says who pays.
    """

    use: Use
    number: int
    total: Cost
    rounds: int
    lasts: int
    reserved: Cost
    expires: int
    answers: RoundEntries = field(default_factory=RoundEntries)
    once: dict[str, int] = field(default_factory=dict)
    joined: int | None = None
    ended: str | None = None
    prepaid: int = 0
    """Micro-units of epsilon that already count as spent, and that later records will charge."""
    charged: int = 0
    """Micro-units of epsilon that count as spent by this run."""

    @property
    def last(self) -> int:
        """The last round that was answered; 0 for none."""
        return self.answers.last

    @classmethod
    def begin(cls, entry: Entry, approved: Approved, places: Places) -> Self:
        """Return the book of a run that was just approved, about these places."""
        total, lasts = approved.reserved, approved.lasts
        use = Use(approved.people, approved.study, approved.learner, places, approved.adjacency)
        return cls(use, entry.number, total, approved.rounds, lasts, total, entry.at + lasts)


class Runs(Mapping[RunKey, RunBook]):
    """The books of all runs. Those of runs that have ended are packed, and each access to one unpacks a copy.

    A party remembers every run for ever, and hardly ever needs one that has ended.
    """

    __slots__ = ("_ended", "_open")

    def __init__(self) -> None:
        self._open: dict[RunKey, RunBook] = {}
        self._ended: dict[RunKey, bytes] = {}

    def __getitem__(self, key: RunKey) -> RunBook:
        if (book := self._open.get(key)) is not None:  # first: `put` moves a book from here to there
            return book
        return _unpacked(self._ended[key], key[0])

    def __contains__(self, key: object) -> bool:
        return key in self._open or key in self._ended

    def __iter__(self) -> Iterator[RunKey]:
        return iter(dict.fromkeys((*self._open, *self._ended)))

    def __len__(self) -> int:
        return len(self._open) + len(self._ended)

    def put(self, key: RunKey, book: RunBook) -> None:
        """Store a run's book as it is now."""
        if book.ended is None:
            self._open[key] = book
        else:
            learner, run = key
            self._ended[sys.intern(learner), run] = _packed(book)
            self._open.pop(key, None)

    def unended(self) -> list[tuple[RunKey, RunBook]]:
        """Return the runs that have not ended, oldest first."""
        return list(self._open.items())


@dataclass(slots=True)
class OwnerBook:
    """A question to the owner: its entry, until when it waits, and why it was denied, if it was."""

    number: int
    question: OwnerAsked
    expires: int
    denied: str | None = None


class Books:
    """All that follows from the records added so far. One thread may read the books while another adds records."""

    def __init__(self) -> None:
        self.begun: Begun | None = None
        self.merged: Merged | None = None
        """The last entry, if the ledger was joined to another."""
        self.accounts = {ALL: Account(0, 0)}
        """The account of each group of people, by the owner's word for them; that of all has none."""
        self.lowered: dict[str, int] = {}
        """The entry at which the limit of an account was last lowered, or counts in another way, by people."""
        self.uses: dict[Use, Account] = {}
        """What the runs of each use have spent and reserved, in the account that pays for them."""
        self._by_places: dict[tuple[str, str], dict[Places, Account]] = {}
        """What the runs of each study have spent and reserved at places of its table, by people and study."""
        self._worst: dict[tuple[str, str], Account] = {}
        """What the worst-off record of each study's table may have lost by them."""
        self.at = 0
        """When the last record was written, in seconds since 1970."""
        self.runs = Runs()
        self.owner: dict[RunKey, OwnerBook] = {}
        """The newest question to the owner about each run, until the run has ended."""
        self.charges: Counter[Adjacency] = Counter()
        """How many charges hide a record each, all rows of a person, or all of the party's data."""
        self.pins: dict[str, list[tuple[int, Pinned]]] = {}
        """By the name of a study, the data that its answers were about, the last ones now, with their entries' numbers.

        Older versions, which held one study, wrote no name.
        """
        self.refusals: dict[str, int] = {}
        """How many refusals are noted, by learner and day."""
        self.approvals: dict[str, int] = {}
        """How many runs were approved, by learner and day."""

    def add(self, entry: Entry) -> None:
        """Add the next entry. Raises LedgerError where it contradicts earlier ones."""
        if (self.begun is None) != isinstance(entry.record, Begun):
            raise LedgerError(f"entry {entry.number}: a ledger begins once")
        if self.merged is not None:
            raise LedgerError(f"entry {entry.number}: the ledger has ended before")
        self.at = entry.at
        try:
            self._take(entry, entry.record)
        except KeyError:
            raise LedgerError(f"entry {entry.number} is of a run that was not approved") from None

    def _take(self, entry: Entry, record: LedgerRecord) -> None:
        match record:
            case OwnerAsked() | OwnerDenied() | Pinned():
                self._hear(entry, record)
            case Joined() | Released() | Ended():
                self._move(entry, record)
            case Begun():
                self._begin(record)
            case Limited():
                self._limit(entry.number, record)
            case Approved():
                run = RunBook.begin(entry, record, self._places(record))
                self.runs.put((record.learner, record.run), run)
                self._settle(run.use, lambda account: replace(account, reserved=account.reserved + record.reserved))
                day = learner_day(record.learner, entry.at)
                self.approvals[day] = self.approvals.get(day, 0) + 1
            case Answered():
                self._answer(entry, record)
            case Refused():
                day = learner_day(record.learner, entry.at)
                self.refusals[day] = self.refusals.get(day, 0) + 1
            case Merged():
                self.merged = record

    def _begin(self, record: Begun) -> None:
        """Take what ledgers may have cost that this one replaces."""
        self.begun = record
        for people, spent in record.costs.items():
            self.accounts[people] = Account(0, 0, spent, adjacency=record.adjacency)
        if any(spent != NOTHING for spent in record.costs.values()):
            self.charges[record.adjacency] += 1

    def _limit(self, number: int, record: Limited) -> None:
        """Set the limit of an account, and note where it is lower than it was, or counts in another way."""
        people = record.people
        account = self.accounts.get(people, self.account if people == ALL else Account(0, 0))
        is_lower = record.epsilon < account.epsilon_limit or record.delta < account.delta_limit
        if is_lower or record.composition != account.composition:
            self.lowered[people] = number
        self.accounts[people] = replace(
            account,
            epsilon_limit=record.epsilon,
            delta_limit=record.delta,
            adjacency=record.adjacency,
            composition=record.composition,
        )

    def pending(self, now: int) -> Iterator[tuple[RunKey, OwnerBook]]:
        """Yield the questions that the owner may still answer, oldest first."""
        return (
            (key, book)
            for key, book in list(self.owner.items())
            if key not in self.runs and book.denied is None and book.expires > now
        )

    def unended(self) -> Iterator[tuple[RunKey, RunBook]]:
        """Yield all runs that have not ended, oldest first."""
        return iter(self.runs.unended())

    def open_runs(self) -> list[tuple[RunKey, RunBook]]:
        """Return the learners' runs that have not ended, oldest first."""
        return [(key, run) for key, run in self.runs.unended() if key[0] != OWNER]

    @property
    def account(self) -> Account:
        """The account of all whose rows the owner holds."""
        return self.accounts[ALL]

    @property
    def pinned(self) -> list[tuple[int, Pinned]]:
        """All records that pin data, with their entries' numbers, in their order."""
        return sorted((pin for pins in self.pins.values() for pin in pins), key=itemgetter(0))

    def places(self, study: str, rows: str) -> Places:
        """Return the places of the ``rows`` of a study's data as they are pinned now; `ANYWHERE` for none named.

        Rows may have moved to the front since earlier data, whose places then begin at these or after them: those count
        too.
        """
        if not rows or not (pins := self.pins.get(study)):
            return ANYWHERE
        number, pinned = pins[-1]
        rows = "" if rows == "all" else rows
        since = [pin for _, pin in pins if pin.first >= pinned.first]
        end = max(pin.first + pin.n_examples if pin.n_examples else NO_END for pin in since)
        return Places(number, rows, pinned.first, end)

    def used(self, people: str, counts: Callable[[Use], bool], beside: Use | None = None) -> Account:
        """Return the account of these people as only those uses have left it that count.

        If a use is given ``beside`` which it has to fit, those that are apart from it do not count.
        """
        studies: dict[str, dict[Places, Account]] = {}
        for use, account in list(self.uses.items()):
            if use.people == people and counts(use):
                by_places = studies.setdefault(use.study, {})
                by_places[use.places] = _replaced(by_places.get(use.places, _EMPTY), _EMPTY, account)
        return self._with(
            people,
            [
                _worst(by_places, beside.places if beside and study == beside.study else ANYWHERE)
                for study, by_places in studies.items()
            ],
        )

    def added(self, people: str) -> dict[tuple[str, str], Account]:
        """Return by study and learner what its runs have added to what the account had spent, and to what is reserved.

        They are taken in the order in which they first came, so that all of them add up to the account. A run adds
        nothing until it has cost more than those that are apart from it.
        """
        had: dict[tuple[str, str], Account] = {}
        taken: dict[str, dict[Places, Account]] = {}
        uses = [(use, account) for use, account in list(self.uses.items()) if use.people == people]
        for is_spent in (True, False):
            for use, account in uses:
                by_places, key = taken.setdefault(use.study, {}), (use.study, use.learner)
                before = _worst(by_places)
                more = replace(account, reserved=NOTHING) if is_spent else replace(account, spent=NOTHING)
                by_places[use.places] = _replaced(by_places.get(use.places, _EMPTY), _EMPTY, more)
                growth = _replaced(_worst(by_places), before, _EMPTY)
                had[key] = _replaced(had.get(key, _EMPTY), _EMPTY, growth)
        return had

    def lost(self, use: Use) -> Account:
        """Return what a record at a use's places may have lost in its study; the limit is not that of an account."""
        return _worst(self._by_places.get((use.people, use.study), {}), use.places)

    def left_to(self, use: Use, cost: Cost = NOTHING) -> Account:
        """Return the account that pays for a use as a run of that use finds it: without what is apart from it.

        Of people who have no account yet it is as large as that of all. If the run's ``cost``, or anything before it,
        has slack under a filter, nothing is apart: slack comes first or never, and that is decided for all records at
        once, before anything was answered.
        """
        account = self.accounts.get(use.people)
        if account is None:
            return self._with(use.people, [])
        if self.has_slack(use.people, cost):
            return account
        return _replaced(account, self._worst.get((use.people, use.study), _EMPTY), self.lost(use))

    def has_slack(self, people: str, cost: Cost = NOTHING) -> bool:
        """Say whether anything in the account of these people has slack under a filter, or this cost has."""
        account = self.accounts.get(people, self.account)
        return account.composition == "filter" and (account.spent + account.reserved + cost).slack > 0

    def _with(self, people: str, totals: Iterable[Account]) -> Account:
        """Return the account of these people with what these have spent and reserved together."""
        empty = replace(self.accounts.get(people, self.account), spent=NOTHING, reserved=NOTHING)
        return reduce(lambda account, total: _replaced(account, _EMPTY, total), totals, empty)

    def is_charged(self, people: str, study: str) -> bool:
        """Say whether the account of these people has paid for runs of a study, or may have to; of any for no name.

        What it has paid for no study by name, and what a ledger may have cost that this one replaces, counts for all.
        """
        earlier = self.begun.costs.get(people, NOTHING) if self.begun else NOTHING
        return earlier != NOTHING or any(
            use.people == people and (not study or use.study in {"", study}) for use in self._paying()
        )

    def most_rows(self, study: str) -> int:
        """Return how many rows a person may have in a study's table: 0 if no study says it.

        It is the largest public bound of the studies of the same table that hide persons: none of them knows how many
        rows there are.
        """
        if not (pins := self.pins.get(study)):
            return 0
        table = pins[-1][1]
        latest = (others[-1][1] for others in self.pins.values())
        bounds = [pin.most_rows for pin in latest if pin.most_rows and pin.is_about_tables_of(table)]
        return max(bounds, default=0)

    def pays_for(self, study: str) -> set[str]:
        """Return the people whose accounts have paid for runs of a study, or may have to."""
        return {use.people for use in self._paying() if use.study == study}

    def _paying(self) -> Iterator[Use]:
        """Yield the uses that something was charged to or is reserved for, and those of runs that have not ended."""
        charged = (use for use, account in list(self.uses.items()) if is_used(account))
        return chain(charged, (run.use for _, run in self.runs.unended()))

    def hides(self) -> Adjacency:
        """Return the weakest adjacency among all charges so far."""
        return weakest(self.charges)

    def _hear(self, entry: Entry, record: OwnerAsked | OwnerDenied | Pinned) -> None:
        """Take a question to the owner, its denial, or the data that it accepts."""
        if isinstance(record, Pinned):
            self.pins.setdefault(record.name, []).append((entry.number, record))
            return
        key = record.learner, record.run
        if isinstance(record, OwnerAsked):
            self.owner[key] = OwnerBook(entry.number, record, entry.at + record.lasts)
        else:
            self.owner[key].denied = record.reason

    def _move(self, entry: Entry, record: Joined | Released | Ended) -> None:
        run = self.runs[record.learner, record.run]
        if isinstance(record, Joined):
            run.joined = entry.number
        else:
            self._release(run)
        if isinstance(record, Ended):
            run.ended = record.by
            self._charge(run, record)
            self.owner.pop((record.learner, record.run), None)
        self.runs.put((record.learner, record.run), run)

    def _answer(self, entry: Entry, record: Answered) -> None:
        run = self.runs[record.learner, record.run]
        self._charge(run, record)
        run.answers.add(record.round, entry.number)
        for name in entry.attached:
            if name.startswith(ONCE):
                run.once[name.removeprefix(ONCE)] = entry.number
        run.expires = entry.at + run.lasts
        self.runs.put((record.learner, record.run), run)

    def _charge(self, run: RunBook, record: Answered | Ended) -> None:
        """Spend what a record charges to a run, first from what is reserved for it."""
        cost, run.prepaid = counted(run, record.cost)
        run.charged += cost.epsilon
        taken, run.reserved = run.reserved.split(cost)
        self._settle(run.use, lambda account: account.settle(cost, taken))
        self.charges[record.adjacency] += 1

    def _release(self, run: RunBook) -> None:
        freed, run.reserved = run.reserved, NOTHING
        self._settle(run.use, lambda account: account.release(freed))

    def _places(self, record: Approved) -> Places:
        """Return what a run is about that is approved now: any place if it is the owner's, or hides all data at once.

        Older versions wrote no rows of those that learners ran: they were about all that were pinned.
        """
        is_any = record.learner == OWNER or record.adjacency == "whole_party"
        return ANYWHERE if is_any else self.places(record.study, record.rows or "all")

    def _settle(self, use: Use, change: Callable[[Account], Account]) -> None:
        """Change what a use has had, and the account that pays for it, by what the worst-off record may have lost."""
        study = use.people, use.study
        by_places = self._by_places.setdefault(study, {})
        self.uses[use] = change(self.uses.get(use, _EMPTY))
        by_places[use.places] = change(by_places.get(use.places, _EMPTY))
        before, self._worst[study], account = self._worst.get(study), _worst(by_places), self.accounts[use.people]
        is_one = len(by_places) == 1  # then the account changes as the study does, which is computed sooner
        now = change(account) if is_one else _replaced(account, before or _EMPTY, self._worst[study])
        self.accounts[use.people] = now


def is_used(account: Account) -> bool:
    """Say whether anything was charged to an account, or is reserved."""
    return account.spent + account.reserved != NOTHING


def _worst(by_places: Mapping[Places, Account], beside: Places = ANYWHERE) -> Account:
    """Return what the worst-off record of a study's table has spent and reserved, of those at the places ``beside``.

    Each unit of the cost is the largest that a record may have lost: of what is apart the larger, of all else the sum.
    """
    taken = {places: account for places, account in list(by_places.items()) if not places.is_apart(beside)}
    if len(taken) == 1:
        return next(iter(taken.values()))
    spent = _most_of({places: account.spent for places, account in taken.items()})
    together = _most_of({places: account.spent + account.reserved for places, account in taken.items()})
    return Account(0, 0, spent, together - spent)


def _most_of(costs: Mapping[Places, Cost]) -> Cost:
    """Return the most that these costs may be together to one record, in each unit."""
    firsts = {places.first for places in costs}
    return reduce(larger, (_cost_at(first, costs) for first in firsts), NOTHING)


def _cost_at(place: int, costs: Mapping[Places, Cost]) -> Cost:
    """Return the most that these costs may be together to the record at a place, in each unit."""
    divided: dict[int, list[Cost]] = {}
    total = NOTHING
    for places, cost in costs.items():
        if places.first <= place < places.end:
            if places.rows:
                divided.setdefault(places.since, []).append(cost)
            else:
                total += cost
    return sum((reduce(larger, parts) for parts in divided.values()), total)


def _replaced(account: Account, before: Account, now: Account) -> Account:
    """Return an account in which something has spent and reserved what it has ``now`` in place of ``before``."""
    return replace(
        account,
        spent=account.spent - before.spent + now.spent,
        reserved=account.reserved - before.reserved + now.reserved,
    )


def _packed(book: RunBook) -> bytes:
    """Pack the book of a run that has ended, for which nothing is reserved."""
    answers = _steps(book.answers), _steps(book.answers.values())
    values = [
        book.use.people,
        book.use.study,
        astuple(book.use.places),
        book.use.adjacency,
        book.number,
        book.total.units,
        book.rounds,
        book.lasts,
        book.expires,
        *answers,
    ]
    values += [book.once, book.joined, book.ended, book.prepaid, book.charged]
    return zlib.compress(json.dumps(values).encode())


def _unpacked(packed: bytes, learner: str) -> RunBook:
    """Unpack a book of a learner's run that `_packed` packed."""
    people, study, places, adjacency, *values = json.loads(zlib.decompress(packed))
    number, total, rounds, lasts, expires, *answers, once, joined, ended, prepaid, charged = values
    entries = RoundEntries()
    for round, entry in zip(*map(accumulate, answers), strict=True):
        entries.add(round, entry)
    use = Use(people, study, learner, Places(*places), adjacency)
    return RunBook(
        use, number, Cost(*total), rounds, lasts, NOTHING, expires, entries, once, joined, ended, prepaid, charged
    )


def _steps(numbers: Iterable[int]) -> list[int]:
    """Return the differences between successive numbers, which compress well: small, and many of them equal."""
    return [after - before for before, after in pairwise((0, *numbers))]


def learner_day(learner: str, at: int) -> str:
    """Return a key for a learner and a day in UTC; ``at`` is in seconds since 1970."""
    return f"{at // 86_400}:{learner}"


def counted(run: RunBook, cost: Cost) -> tuple[Cost, int]:
    """Return what counts as spent by a run's next charge, and what is prepaid after it; see the module's docstring."""
    if cost.delta > 0:
        total = max(cost.epsilon, run.total.epsilon)
        return replace(cost, epsilon=total), total - cost.epsilon
    if not run.prepaid:  # always so for charges of newer versions
        return cost, 0
    paid = min(cost.epsilon, run.prepaid)
    return replace(cost, epsilon=cost.epsilon - paid), run.prepaid - paid


def is_accounted(recovered: Mapping[str, Sequence[int]], ledger: str, count: int, at: int) -> bool:
    """Say whether the head of an earlier ledger was accounted for when this ledger began."""
    if ledger not in recovered:
        return False
    last, latest = recovered[ledger]
    return count <= last and at <= latest
