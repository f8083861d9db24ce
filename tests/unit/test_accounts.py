"""What is left for whom: accounts of groups of people, parts that are set aside, and what a learner may see of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.common.encoding.texts import basis_points
from parley.common.errors import BudgetExhaustedError, InvalidInputError
from parley.common.privacy.account import MICRO, Account, Cost, limit
from parley.common.privacy.guarantee import Composition
from parley.party.ledger.accounts import EARLIER, Accounts, StudyTerms
from parley.party.ledger.books import Books, Use
from parley.party.ledger.records import Answered, Approved, Begun, Entry, LedgerRecord, Limited

HALF, ALL_OF_IT = StudyTerms(share=MICRO // 2), StudyTerms(share=MICRO)


def approved(run: str, study: str, cost: Cost, learner: str = "ann", people: str = "") -> Approved:
    return Approved(learner, run, "", "", study, "dp_gd", "0", "none", 1, cost, "replace_one", 100, people)


def answered(run: str, cost: Cost, learner: str = "ann") -> Answered:
    return Answered(learner, run, 1, "query", "step", cost, "replace_one")


def told(
    *records: LedgerRecord,
    terms: Mapping[str, StudyTerms] | None = None,
    budget: tuple[float, float] = (1.0, 0.0),
    composition: Composition = "basic",
    spent: Cost = Cost(0, 0),  # noqa: B008 -- frozen
) -> Accounts:
    """The accounts after these records."""
    allowed = limit(*budget, composition=composition)
    groups = {record.people for record in records if isinstance(record, Approved)} | {""}
    limits = [
        Limited(allowed.epsilon_limit, allowed.delta_limit, "replace_one", composition, people)
        for people in sorted(groups)
    ]
    books = Books()
    begun = Begun("party", "key", "nonce", {}, spent, "replace_one")
    for number, record in enumerate((begun, *limits, *records), 1):
        books.add(Entry(number, 1000 + number, record))
    accounts = Accounts(books)
    accounts.terms = terms or {}
    return accounts


def test_all_studies_and_learners_have_one_account() -> None:
    accounts = told(approved("a", "one", Cost(600_000, 0)), approved("b", "two", Cost(300_000, 0), "bob"))
    accounts.require(Use("", "three", "eve"), Cost(100_000, 0))
    with pytest.raises(BudgetExhaustedError):
        accounts.require(Use("", "three", "eve"), Cost(100_001, 0))


def test_people_who_are_in_no_other_table_have_an_account_of_their_own() -> None:
    accounts = told(
        approved("a", "one", Cost(900_000, 0)),
        approved("b", "two", Cost(200_000, 0), people="ward-7"),
        terms={"two": StudyTerms("ward-7")},
    )
    assert (accounts.of("one").reserved, accounts.of("two").reserved) == (Cost(900_000, 0), Cost(200_000, 0))
    accounts.require(Use("ward-7", "two", "ann"), Cost(800_000, 0))
    with pytest.raises(BudgetExhaustedError):
        accounts.require(Use("", "one", "ann"), Cost(200_000, 0))


@pytest.mark.parametrize("composition", ["basic", "filter"])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_no_study_takes_what_is_set_aside_for_another(composition: Composition, delta: float) -> None:
    """Each fills its part alone, in any order, and together they never exceed the account."""
    terms = {"one": HALF, "two": StudyTerms(share=MICRO // 4)}
    for order in (("one", "two", "three"), ("three", "two", "one")):
        records: list[LedgerRecord] = []
        for study in order:
            accounts = told(*records, terms=terms, budget=(1.0, delta), composition=composition)
            part = accounts.part(Use("", study, "ann"))
            cost = _largest(part, delta)
            accounts.require(Use("", study, "ann"), cost)
            with pytest.raises(BudgetExhaustedError):
                accounts.require(Use("", study, "ann"), cost + Cost(1, int(delta > 0), 1, 0))
            records.append(approved(study, study, cost))
        full = told(*records, terms=terms, budget=(1.0, delta), composition=composition)
        assert full.of("one").fits(Cost(0, 0))


def _largest(part: Account, delta: float) -> Cost:
    """The largest cost that fits into a part, of one kind."""
    if part.composition == "basic" or not delta:
        return Cost(part.epsilon_limit * part.share // MICRO, part.delta_limit * part.share // MICRO)
    return Cost(1, 1, gdp=part.square_limit(slack=False))


def test_what_a_lost_ledger_may_have_cost_is_taken_from_what_is_not_set_aside() -> None:
    accounts = told(terms={"one": HALF}, spent=Cost(400_000, 0))
    accounts.require(Use("", "one", "ann"), Cost(500_000, 0))
    accounts.require(Use("", "two", "ann"), Cost(100_000, 0))
    with pytest.raises(BudgetExhaustedError):
        accounts.require(Use("", "two", "ann"), Cost(100_001, 0))
    accounts.check_shares()
    assert [(usage.learner, usage.spent) for usage in accounts.statement("").usages] == [(EARLIER, 0.4)]


def test_no_more_is_set_aside_than_is_left() -> None:
    spent = approved("a", "two", Cost(600_000, 0)), answered("a", Cost(600_000, 0))
    with pytest.raises(InvalidInputError, match=r"one: the shares set aside more of the account than the 0\.4 of it"):
        told(*spent, terms={"one": HALF}).check_shares()
    with pytest.raises(InvalidInputError, match=r"two: a share of 0\.5 of the account is less than its runs have cost"):
        told(*spent, terms={"two": HALF}).check_shares()
    told(*spent, terms={"one": StudyTerms(share=400_000)}).check_shares()


def test_a_learner_sees_what_its_own_runs_have_left_and_nothing_of_others() -> None:
    own = approved("a", "one", Cost(100_000, 0))
    alone = told(own, terms={"one": StudyTerms()})
    beside = told(
        own,
        approved("b", "two", Cost(700_000, 0), "bob"),
        answered("b", Cost(700_000, 0), "bob"),
        terms={"one": StudyTerms(), "two": StudyTerms(share=700_000), "three": StudyTerms("ward-7")},
    )
    assert alone.seen_by("ann", "one") == beside.seen_by("ann", "one")
    assert alone.refusal("ann", "one", Cost(950_000, 0)).detail == beside.refusal("ann", "one", Cost(950_000, 0)).detail
    refused = beside.refusal("ann", "one", Cost(300_000, 0))
    assert "others than this learner have spent or reserved the rest" in refused.detail
    assert not refused.facts, "not how much is left"


def test_the_parts_that_studies_and_learners_have_had_add_up() -> None:
    uses = [("one", "ann", 3), ("one", "bob", 5), ("two", "ann", 7)]
    records: list[LedgerRecord] = []
    for place, (study, learner, gdp) in enumerate(uses):
        cost = Cost(1, 1, gdp * 10**9)
        records += [approved(str(place), study, cost, learner), answered(str(place), Cost(1, 1, 10**9), learner)]
    accounts = told(*records, budget=(1.0, 1e-5), composition="filter")
    statement, account = accounts.statement(""), accounts.of("one")
    assert [(usage.study, usage.learner) for usage in statement.usages] == [
        ("two", "ann"),
        ("one", "bob"),
        ("one", "ann"),
    ]
    assert sum(usage.spent for usage in statement.usages) == pytest.approx(account.parts["spent"], abs=1e-12)
    assert sum(usage.reserved for usage in statement.usages) == pytest.approx(account.parts["reserved"], abs=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30).filter(lambda sizes: sum(sizes) > 1e-6))
def test_rounded_parts_add_up_and_are_off_by_less_than_a_hundredth_of_a_percent(sizes: list[float]) -> None:
    parts = [size / sum(sizes) for size in sizes]
    rounded = basis_points(parts)
    assert sum(rounded) == 10_000
    assert all(abs(points - 10_000 * part) < 1 for points, part in zip(rounded, parts, strict=True))


def test_a_statement_divides_the_whole_account() -> None:
    accounts = told(
        approved("a", "one", Cost(100_000, 0)),
        answered("a", Cost(100_000, 0)),
        approved("b", "two", Cost(50_000, 0), "bob"),
        terms={"one": StudyTerms(), "two": StudyTerms(share=MICRO // 5)},
        spent=Cost(33_333, 0),
    )
    parts = [(part.kind, part.study, part.learner, part.percent) for part in accounts.statement("").parts]
    assert parts == [
        ("spent", "one", "ann", 10.0),
        ("spent", "", EARLIER, 3.33),
        ("reserved", "two", "bob", 5.0),
        ("unused share", "two", "", 15.0),
        ("left", "", "", 66.67),
    ]


def test_an_account_without_runs_is_left() -> None:
    assert [(part.kind, part.percent) for part in told().statement("").parts] == [("left", 100.0)]


def test_an_account_is_named_only_beside_others() -> None:
    assert told(terms={"one": StudyTerms()}).payer("one") == ""
    shares = told(terms={"one": StudyTerms(), "two": HALF})
    assert shares.payer("one") == "what no study has set aside of the account of all"
    assert shares.payer("two") == "the 0.5 of the account of all that is set aside for two"
    groups = told(approved("a", "two", Cost(1, 0), people="ward-7"), terms={"two": StudyTerms("ward-7")})
    assert (groups.payer("one"), groups.payer("two")) == ("the account of all", "the account of the people 'ward-7'")


def test_the_parts_add_up_where_what_is_spent_and_what_is_reserved_take_most_of_different_limits() -> None:
    slack, gaussian = Cost(1, 1, 10**9, 10**12), Cost(1, 1, 3 * 10**10)
    accounts = told(
        approved("a", "one", slack),
        answered("a", slack),
        approved("b", "two", gaussian),
        budget=(1.0, 1e-5),
        composition="filter",
    )
    statement, parts = accounts.statement(""), accounts.of("one").parts
    assert sum(usage.spent for usage in statement.usages) == pytest.approx(parts["spent"], abs=1e-12)
    assert sum(usage.reserved for usage in statement.usages) == pytest.approx(parts["reserved"], abs=1e-12)
    assert sum(parts.values()) == pytest.approx(1, abs=1e-12)
