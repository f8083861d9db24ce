"""The people in a table have one account, at all paths to it, and after a ledger was recovered or merged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.errors import InvalidInputError
from parley.common.privacy.account import Account, Price
from parley.common.secure_sum.session import Identity
from parley.party.ledger.accounts import StudyTerms
from parley.party.ledger.ledger import Ledger
from parley.party.ledger.merging import Owned, merge
from parley.party.ledger.records import DataPin
from parley.party.ledger.recovery import recover
from tests.support.ledgers import KEY, open_ledger

STUDY = Study(name="one", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("no", "yes")))
LIMIT = Account(100, 0, composition="basic")
PRICE = Price((1,), (0,), (0,), (0,))
TERMS = {"one": StudyTerms(), "two": StudyTerms("ward-7"), "three": StudyTerms("ward-7")}


def pin(name: str, source: str = "rows.csv", people: str = "", contents: tuple[bytes, ...] = (b"table",)) -> DataPin:
    return DataPin(source, {}, STUDY.model_copy(update={"name": name}), people, 9, name.encode(), contents)


def opened(folder: Path) -> Ledger:
    open_ledger(folder, LIMIT).close()
    return Ledger(folder, Identity("party", KEY), LIMIT, TERMS)


def charged(ledger: Ledger, study: str) -> None:
    ledger.consents.begin_own(f"of-{study}", "fit", b"{}", 1, PRICE, study)


@pytest.mark.parametrize(
    "other",
    [
        pin("two", "link.csv", "ward-7"),
        pin("two", "SELECT * FROM a JOIN b", "ward-7", (b"table", b"codes")),
        pin("one", "rows.csv", "ward-7"),
    ],
    ids=["another path", "a query over it", "the same study"],
)
def test_a_table_that_an_account_has_paid_for_gets_no_other(tmp_path: Path, other: DataPin) -> None:
    with opened(tmp_path) as ledger:
        assert ledger.pin(pin("one")) == []
        charged(ledger, "one")
    with opened(tmp_path) as ledger:
        with pytest.raises(
            InvalidInputError, match=r"people: this table is one's too, which the account of all pays for"
        ):
            ledger.pin(other)
        assert ledger.pin(replace(other, people="")) in ([], ["where they come from"])


def test_two_studies_of_one_table_are_about_the_same_people_even_before_a_charge(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        assert ledger.pin(pin("one")) == []
        with pytest.raises(InvalidInputError, match="the same people have one account"):
            ledger.pin(pin("two", "copy.csv", "ward-7"))
        assert ledger.pin(pin("two", "joined.csv", "ward-7", (b"other", b"codes"))) == []
        assert ledger.pin(pin("three", "again.csv", "ward-7", (b"third", b"codes"))) == [], "a table of codes in common"


def test_an_owner_may_think_again_before_anything_was_charged(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        assert ledger.pin(pin("two", people="ward-7")) == []
        assert ledger.pin(pin("two")) == []


def test_a_ledger_that_was_begun_again_knows_whose_tables_were_charged(tmp_path: Path) -> None:
    moved = pin("two", "copy.csv", "ward-7")
    with opened(tmp_path / "a") as ledger:
        ledger.pin(pin("one"))
        charged(ledger, "one")
    recover(tmp_path / "a", Identity("party", KEY), LIMIT, [], [])
    with opened(tmp_path / "a") as ledger, pytest.raises(InvalidInputError, match="one account"):
        ledger.pin(moved)
    opened(tmp_path / "b").close()
    merge(Owned(tmp_path / "b", Identity("party", KEY)), Owned(tmp_path / "a", Identity("party", KEY)), "replace_one")
    with opened(tmp_path / "b") as ledger:
        with pytest.raises(InvalidInputError, match="one account"):
            ledger.pin(moved)
        assert ledger.pin(replace(moved, people="")) == []
