"""What is left for whom: a ledger's accounts, divided among studies as the owner's settings say.

An account is of people: all whose rows the owner holds, or those of a group that, as the owner says, stand in no table
of its other studies. One account pays for all that is asked about them, by all learners and in all studies.

The owner may set a part of an account aside for a study, by a share. Then each run must fit twice: into the account,
which no sum of runs ever exceeds, and into its part, so that no study takes what is set aside for another. Studies
without a share have what remains in common; so has all that no study was charged with, such as what a ledger that was
lost may have cost.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal

from parley.common.data.study import ChargedRows
from parley.common.encoding.texts import basis_points
from parley.common.errors import BudgetExhaustedError, InvalidInputError
from parley.common.privacy.account import DELTA_UNITS, MICRO, Account, Cost, exhausted
from parley.common.privacy.guarantee import NEXT_TO_NOTHING, no_less
from parley.common.wire.party_api import BudgetReport
from parley.party.ledger.books import ALL, ANYWHERE, NOTHING, Books, Places, RunBook, Use, counted, is_used


@dataclass(frozen=True, slots=True)
class StudyTerms:
    """Whose account pays for a study's runs, and the share of it that is set aside for them, in millionths."""

    people: str = ALL
    share: int | None = None


EARLIER = "(earlier)"
"""The learner's name for what ledgers may have cost that this one replaces; no learner can have it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the runs of one learner in one study have spent of an account, and have reserved, as parts of it."""

    study: str
    learner: str
    spent: float
    reserved: float

    @property
    def taken(self) -> float:
        """Both together."""
        return self.spent + self.reserved


@dataclass(frozen=True, slots=True)
class RowsUsage:
    """What a record in some rows of a study's table may have lost: spent and reserved, as parts of the account.

    ``rows`` says which rows, in words; ``one_more`` is the epsilon that one more run about them may cost.
    """

    study: str
    rows: str
    spent: float
    reserved: float
    one_more: float


@dataclass(frozen=True, slots=True)
class PersonLoss:
    """What all that was spent promises to a person, all of whose rows are exchanged, of an account that counts records.

    ``rows`` are how many of them, by study, in the tables of studies that were asked about record by record: at most
    what the study of the same table that hides persons says (`Person.most_rows`). ``epsilon`` holds at the account's
    delta whenever it is read, ``nonadaptive`` if no question depended on an answer; infinite if nothing is promised.
    ``unknown`` are the studies for which no study says how many rows a person may have.
    """

    rows: Mapping[str, int]
    unknown: tuple[str, ...]
    epsilon: float
    nonadaptive: float
    delta: float

    def __str__(self) -> str:
        if self.unknown:
            return (
                f"Nothing is promised to a person with several rows: runs about {_listed(self.unknown)} hide one "
                "record each, and no study of the same table that hides persons says how many rows a person may have."
            )
        if not self.rows:
            return "All that was charged hides each person, all rows at once."
        little = " That is next to nothing." if self.epsilon > NEXT_TO_NOTHING else ""
        tables = " and ".join(f"{most:,} in the table of {study}" for study, most in self.rows.items())
        if not math.isfinite(self.epsilon):
            return (
                f"Nothing is promised to a person with several rows: of runs about {_listed(tuple(self.rows))} no more "
                "is known than what they promise to one record."
            )
        return (
            f"To a person, all rows at once, with at most {tables}, what was spent promises epsilon "
            f"{no_less(self.epsilon)} at delta {no_less(self.delta, 2)} ({no_less(self.nonadaptive)} nonadaptive): "
            f"these runs hide one record each, and several by group privacy.{little}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; an infinite epsilon is None."""
        figures = {"epsilon": self.epsilon, "nonadaptive": self.nonadaptive}
        finite = {name: value if math.isfinite(value) else None for name, value in figures.items()}
        return {
            "rows": dict(self.rows),
            "unknown": list(self.unknown),
            **finite,
            "delta": self.delta,
            "words": str(self),
        }


def _listed(studies: tuple[str, ...]) -> str:
    return ", ".join(study or "no study in particular" for study in studies)


PartKind = Literal["spent", "reserved", "unused share", "left"]


@dataclass(frozen=True, slots=True)
class AccountPart:
    """A part of an account: what one learner's runs in a study have spent or reserved, or what is free.

    What is set aside for a study and not yet used is of no learner; what is left for all is of no study either.
    ``percent`` is rounded to hundredths, so that those of all parts add up as they are printed.
    """

    kind: PartKind
    study: str
    learner: str
    percent: float


@dataclass(frozen=True, slots=True)
class Statement:
    """An account and what each use has had of it, and the shares of it that are ``set_aside``, by study.

    If there are such shares, ``one_more`` is the epsilon that one more run may cost by study, "" for all others.
    ``rows`` are those of studies that lose in parallel: the account has spent what the worst-off of them has lost.
    ``to_a_person`` is stated of an account that counts records, if one of its studies hides persons.
    """

    people: str
    account: Account
    usages: tuple[Usage, ...]
    set_aside: Mapping[str, float]
    one_more: Mapping[str, float]
    rows: tuple[RowsUsage, ...] = ()
    to_a_person: PersonLoss | None = None

    @property
    def parts(self) -> tuple[AccountPart, ...]:
        """The parts of the account: spent, reserved, set aside and not yet used, left. Their percentages add up to 100.

        They add up to more if the owner has lowered the limit below what was spent.
        """
        sizes: dict[tuple[PartKind, str, str], float] = {}
        for usage in self.usages:
            sizes["spent", usage.study, usage.learner] = usage.spent
        for usage in self.usages:
            sizes["reserved", usage.study, usage.learner] = usage.reserved
        for study, share in self.set_aside.items():
            used = sum(usage.taken for usage in self.usages if usage.study == study)
            sizes["unused share", study, ""] = max(0.0, share - used)
        sizes = {part: size for part, size in sizes.items() if size > 0}
        sizes["left", "", ""] = max(0.0, 1 - sum(sizes.values()))
        rounded = basis_points([*sizes.values()])
        return tuple(AccountPart(*part, percent=points / 100) for part, points in zip(sizes, rounded, strict=True))

    @property
    def whose(self) -> str:
        """Whose account it is, in words."""
        return whose(self.people)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values: the class and `parts` say what they are."""
        return {
            "people": self.people,
            "assumes": promise_about(self.people) if self.people else None,
            "budget": BudgetReport.of(self.account).model_dump(mode="json"),
            "set_aside": dict(self.set_aside),
            "one_more": dict(self.one_more),
            "parts": [asdict(part) for part in self.parts],
            "rows": [asdict(usage) for usage in self.rows],
        } | ({"to_a_person": self.to_a_person.to_json()} if self.to_a_person else {})


def whose(people: str) -> str:
    """Return whose account it is, in words, by the owner's word for the people."""
    return f"the people {people!r}" if people else "all"


def promise_about(people: str) -> str:
    """Return, as a clause, what an owner has said of people who have an account of their own."""
    return f"nobody among {people!r} is in another table of yours, as you said"


IN_PARALLEL = (
    "A record, or a person where persons are hidden, is among a study's rows of one kind or period alone, so they lose "
    "in parallel: the account has spent the most that those of one have lost."
)
"""Why the parts that rows have lost do not add up."""
_IN_WORDS: Mapping[str, str] = {"training": "training rows", "held_out": "held-out rows"}


class Accounts:
    """The accounts in a ledger's ``books``, by the owner's ``terms`` for each study."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self.terms: Mapping[str, StudyTerms] = {}

    def of(self, study: str) -> Account:
        """Return the account that pays for a study's runs; that of all for a study without terms."""
        return self._account(self.people(study))

    def _account(self, people: str) -> Account:
        """Return the account of these people; one that is as large as that of all if they have none yet."""
        account = self._books.accounts.get(people)
        return account or replace(self._books.account, spent=NOTHING, reserved=NOTHING)

    def people(self, study: str) -> str:
        """Return the owner's word for the people that a study is about: as it was last, for one that is withdrawn."""
        if study in self.terms:
            return self.terms[study].people
        pins = self._books.pins.get(study)
        return pins[-1][1].people if pins else ALL

    def payer(self, study: str) -> str:
        """Say which account pays for a study's runs, and from which part of it; "" for one account that is whole."""
        people = self.people(study)
        shares = self._shares(people)
        account = f"the account of {whose(people)}"
        if study in shares:
            return f"the {shares[study] / MICRO:.4g} of {account} that is set aside for {study}"
        if shares:
            return f"what no study has set aside of {account}"
        return account if len(self._books.accounts) > 1 else ""

    def use(self, learner: str, study: str, rows: ChargedRows | None = None) -> Use:
        """Return what a new run is for: of a learner, about these ``rows`` of a study, or about any."""
        return Use(self.people(study), study, learner, self._books.places(study, rows or ""))

    def part(self, use: Use, cost: Cost = NOTHING) -> Account:
        """Return the part of an account that a use may spend, on a run of this cost: its study's share, or the rest.

        The rest is what is not set aside.
        """
        people = use.people
        shares = self._shares(people)
        account = self._books.left_to(use, cost)
        if not shares:
            return account
        if use.study in shares:
            beside = None if self._books.has_slack(people, cost) else use
            own = self._books.used(people, lambda other: other.study == use.study, beside)
            return replace(own, share=shares[use.study])
        set_aside = self._books.used(people, lambda other: other.study in shares)
        spent, reserved = account.spent - set_aside.spent, account.reserved - set_aside.reserved
        return replace(account, spent=spent, reserved=reserved, share=max(0, MICRO - sum(shares.values())))

    def require(self, use: Use, cost: Cost) -> None:
        """Raise BudgetExhaustedError, which says how much is left, unless a cost fits beside all that is reserved."""
        self._books.left_to(use, cost).require(cost)
        self.part(use, cost).require(cost)

    def epsilon_left(self, use: Use, reserved: Cost = NOTHING) -> float:
        """Return the epsilon of one more run of a use, after this cost was reserved, which fits, for another one."""
        both = self._books.left_to(use, reserved), self.part(use, reserved)
        return min(replace(account, reserved=account.reserved + reserved).epsilon_left for account in both)

    def require_charge(self, run: RunBook, cost: Cost) -> None:
        """Raise BudgetExhaustedError where the limit does not suffice for a charge to a run.

        It suffices for what is reserved for the run, because no run was approved that does not fit beside it, unless
        the owner has lowered it since; then what other runs have reserved does not count.
        """
        charge = counted(run, cost)[0]
        if run.reserved == NOTHING:
            self.require(run.use, charge)
        elif charge.exceeds(run.reserved) or run.number < self._books.lowered.get(run.use.people, 0):
            replace(self._books.left_to(run.use, charge), reserved=NOTHING).require(charge)

    def seen_by(self, learner: str, study: str, rows: ChargedRows | None = None) -> Account:
        """Return the account that pays for a study's runs as a learner may see it: as its own runs have left it.

        It is what is left for a run about these ``rows``, or about any; if a share is set aside for the study, of it.
        """
        terms = self.terms.get(study, StudyTerms())
        own = self._books.used(
            terms.people,
            lambda use: use.learner == learner and (terms.share is None or use.study == study),
            self.use(learner, study, rows),
        )
        return replace(own, share=terms.share or MICRO)

    def refusal(self, learner: str, study: str, cost: Cost, rows: ChargedRows | None = None) -> BudgetExhaustedError:
        """Return the error for a cost that does not fit, which tells a learner nothing but what its own runs cost."""
        own = self.seen_by(learner, study, rows)
        if not own.fits(cost):
            return exhausted(own, cost)
        return BudgetExhaustedError(
            f"epsilon {cost.epsilon / MICRO:g}, delta {cost.delta / DELTA_UNITS:g} are asked for, and too little is "
            "left of the owner's budget: others than this learner have spent or reserved the rest"
        )

    def statements(self) -> list[Statement]:
        """Return what each use has had of each account, that of all first; of those that nobody uses any more, none."""
        named = {ALL, *(terms.people for terms in self.terms.values())}
        accounts = sorted(self._books.accounts.items())
        used = [people for people, account in accounts if people in named or is_used(account)]
        return [self.statement(people) for people in used]

    def statement(self, people: str) -> Statement:
        """Return what each use has had of an account, the largest first, in parts of it that add up."""
        account, added = self._account(people), self._books.added(people)
        usages = [
            Usage(study, learner, account.part_of(cost.spent), account.part_of(cost.reserved))
            for (study, learner), cost in added.items()
            if is_used(cost)
        ]
        spent = sum((cost.spent for cost in added.values()), NOTHING)
        if (earlier := account.spent - spent) != NOTHING:
            usages.append(Usage("", EARLIER, account.part_of(earlier), 0.0))
        usages.sort(key=lambda usage: -usage.taken)
        set_aside = {study: share / MICRO for study, share in self._shares(people).items()}
        one_more = {
            study: self.epsilon_left(Use(people, study, "")) for study in ([*set_aside, ""] if set_aside else [])
        }
        rows = tuple(self._rows(people))
        return Statement(people, account, tuple(usages), set_aside, one_more, rows, self._to_a_person(people))

    def _to_a_person(self, people: str) -> PersonLoss | None:
        """Return what all that was spent promises to a person, if a study hides persons and the account counts records.

        A run that hides persons counts as it was charged, one that hides a record by group privacy. Of rows of a study
        that lose in parallel the worst-off count, as if all of a person's were among them: of n rows in all, n_p at a
        place p, a release of mu about the places S takes mu^2 (sum of n_p in S)^2 <= n sum of n_p mu^2 in S, and all of
        them together no more than n^2 times what is most at one place.
        """
        books, account = self._books, self._account(people)
        hides_persons = any(pins[-1][1].most_rows and pins[-1][1].people == people for pins in books.pins.values())
        if account.adjacency != "replace_one" or not hides_persons:
            return None
        by_record = {use.study: NOTHING for use in list(books.uses) if use.people == people and _is_by_record(use)}
        for study in by_record:
            by_record[study] = books.used(people, partial(_is_by_record, study=study)).spent
        costs = {study: cost for study, cost in by_record.items() if cost != NOTHING}
        others = books.used(people, lambda use: not _is_by_record(use)).spent
        if books.begun is not None and (earlier := books.begun.costs.get(people, NOTHING)) != NOTHING:
            if books.begun.adjacency == "replace_one":
                costs[""] = costs.get("", NOTHING) + earlier
            else:
                others += earlier
        rows = {study: books.most_rows(study) for study in costs}
        if unknown := tuple(study for study, most in rows.items() if not most):
            return PersonLoss(rows, unknown, math.inf, math.inf, account.delta_limit / DELTA_UNITS)
        try:
            spent = sum((cost.to_group(rows[study]) for study, cost in costs.items()), others)
        except InvalidInputError:
            return PersonLoss(rows, (), math.inf, math.inf, account.delta_limit / DELTA_UNITS)
        lost = replace(account, spent=spent, reserved=NOTHING, composition="filter")
        return PersonLoss(rows, (), lost.epsilon_spent, lost.epsilon_nonadaptive, account.delta_limit / DELTA_UNITS)

    def _rows(self, people: str) -> Iterator[RowsUsage]:
        """Yield what the rows of studies have lost that are asked about apart from others, in the data pinned now."""
        account = self._account(people)
        by_study: dict[str, dict[Places, None]] = {}
        for use in list(self._books.uses):
            if use.people == people and use.places != ANYWHERE:
                places = by_study.setdefault(use.study, {self._books.places(use.study, "all"): None})
                places[replace(use.places, rows="")] = None
        for study, places in by_study.items():
            latest = {one.first: one for one in sorted(places, key=lambda one: one.since)}
            is_divided = any(use.places.rows for use in list(self._books.uses) if use.study == study)
            if len(latest) == 1 and not is_divided:
                continue
            for one, rows in product(latest.values(), _IN_WORDS if is_divided else ("",)):
                use = Use(people, study, "", replace(one, rows=rows))
                lost = self._books.lost(use)
                spent, reserved = account.part_of(lost.spent), account.part_of(lost.reserved)
                yield RowsUsage(study, _rows_in_words(use.places, latest), spent, reserved, self.epsilon_left(use))

    def check_shares(self) -> None:
        """Raise InvalidInputError if more is set aside for a study than is left, or less than its runs have cost."""
        for people in {terms.people for terms in self.terms.values()}:
            if (together := sum(terms.share or 0 for terms in self.terms.values() if terms.people == people)) > MICRO:
                of = f"of the people {people!r} " if people else ""
                raise InvalidInputError(
                    f"studies: the shares {of}add up to {together / MICRO:g}, and an account has but 1 to set aside"
                )
        for study, terms in self.terms.items():
            if terms.share is None:
                continue
            owns, others = [*map(self.part, self._kinds_of(terms.people, study))], self.part(Use(terms.people, "", ""))
            of = f" of the people {terms.people!r}" if terms.people else ""
            if not all(map(_holds, owns)):
                raise InvalidInputError(
                    f"studies: {study}: a share of {terms.share / MICRO:g} of the account{of} is less than its runs "
                    f"have cost: {max(map(_taken, owns)):.3g} of it"
                )
            if not _holds(others):
                raise InvalidInputError(
                    f"studies: {study}: the shares set aside more of the account{of} than the {1 - _taken(others):.3g} "
                    "of it that is left"
                )

    def _kinds_of(self, people: str, study: str) -> list[Use]:
        """Return a use for each kind of rows that runs of a study were about apart from others, or one of any rows."""
        places = dict.fromkeys(
            use.places for use in list(self._books.uses) if (use.people, use.study) == (people, study)
        )
        apart = [place for place in places if place.rows]
        return [Use(people, study, "", place) for place in apart] or [Use(people, study, "")]

    def _shares(self, people: str) -> dict[str, int]:
        """Return the shares of an account that are set aside, in millionths, by study."""
        return {study: terms.share for study, terms in self.terms.items() if terms.people == people and terms.share}


def _is_by_record(use: Use, study: str | None = None) -> bool:
    """Say whether runs hide one record each, and are about this study, or about any."""
    return use.adjacency == "replace_one" and study in {None, use.study}


def _rows_in_words(places: Places, periods: Collection[int]) -> str:
    """Return which rows these are, beside others of a study whose periods begin at these places."""
    kind = _IN_WORDS.get(places.rows, "rows")
    if len(periods) == 1:
        return kind
    end = min((first for first in periods if first > places.first), default=None)
    return f"{kind} from {places.first + 1:,} {'on' if end is None else f'to {end:,}'}"


def _holds(part: Account) -> bool:
    """Say whether a part is not spent beyond what it is."""
    return not is_used(part) or part.fits(NOTHING)


def _taken(part: Account) -> float:
    """Return what is spent and reserved of a part, as a part of the whole account."""
    return 1 - replace(part, share=MICRO).parts["left"]
