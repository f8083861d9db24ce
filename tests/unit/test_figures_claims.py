"""The report names the statement that each row judges, and nothing in it is older than the claims and the figures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from scripts.figures.claims.table import PAPERS, Claim, claims, items
from scripts.figures.frame import Ruling, all_figures
from scripts.figures.reproduction import ITEMS, PAGE, PICTURES, RECORD, page, papers_page, read

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RECORDS = read(DOCS / RECORD)
ROWS = [row for record in RECORDS.values() for row in record.rows]


def test_the_record_is_of_full_runs_of_the_figures_there_are() -> None:
    names = [figure.name for figure in all_figures()]
    assert list(RECORDS) == [name for name in names if name in RECORDS]
    assert not [name for name, record in RECORDS.items() if not record.tells]
    undrawn = {figure.name for figure in all_figures()} - set(RECORDS)
    waiting = {claim.paper for claim in claims().values() if claim.waits}
    assert {name.split("_")[0] for name in undrawn} <= waiting, undrawn


def test_each_row_judges_an_entry_and_each_entry_has_a_row_or_waits() -> None:
    judged = {row.claim for row in ROWS}
    assert judged <= set(claims())
    assert {claim.key for claim in claims().values() if not claim.waits} == judged


def test_what_does_not_hold_says_who_is_the_cause_and_why() -> None:
    for row in ROWS:
        assert row.ruling in set(map(str, Ruling)), row
        assert not row.is_unexplained(claims()[row.claim]), row


def test_the_pages_are_what_the_record_and_the_tables_give() -> None:
    figures = all_figures()
    assert (DOCS / PAGE).read_text(encoding="utf-8") == page(RECORDS, claims(), figures)
    assert (DOCS / ITEMS).read_text(encoding="utf-8") == papers_page(items(), claims(), figures)
    assert {path.stem for path in (DOCS / PICTURES).iterdir()} == set(RECORDS)


def test_a_papers_claim_has_a_place_in_it_and_parleys_own_has_none() -> None:
    with pytest.raises(ValidationError, match=r"paper\.it: a paper's claim has a place in it"):
        Claim(key="paper.it", short="it", says="it is so")
    with pytest.raises(
        ValidationError, match=r"paper\.it: a paper's claim has a place in it, and Parley's own has none"
    ):
        Claim(key="paper.it", short="it", says="it is so", where="Theorem 1", by="parley")
    with pytest.raises(ValidationError, match=r"paper\.it: names a cause without saying why"):
        Claim(key="paper.it", short="it", says="it is so", where="Theorem 1", cause="paper")


def test_the_items_of_the_papers_name_what_is_there() -> None:
    counts = Counter(item.standing for item in items())
    assert len(items()) == 154
    assert sum(counts[standing] for standing in ("works", "vacuous", "open", "future")) >= 145, counts
    assert {item.paper for item in items()} == set(PAPERS)
    for item in items():
        assert item.places or item.standing in {"open", "future", "absent", "waits"}, item
        for place in item.places:
            kind, _, key = place.partition(": ")
            if kind == "claim":
                assert key in claims(), item
            elif not place.startswith("`"):
                assert (ROOT / place).exists(), item
