"""The learner's tables and news on a terminal of 80 columns: nothing runs over, nothing is lost, no word is markup."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from parley.learner.cli import describe, display, forecast
from parley.learner.client.progress import terminal
from parley.learner.runs.states import RunEvent

LONG = "z" * 48
"""A name whose letters are counted: nothing else here has one."""
RUN = "5f" * 16
MARKUP = "[/red] is no tag"


def runs(console: Console) -> None:
    shown = {"algorithm": "wu_strongly_convex", "key_holders": [LONG, LONG], "rounds": {"done": 1000, "of": 3000}}
    display.show_runs([{"id": RUN, "state": "recruiting", "study": LONG, "epsilon": {LONG: 0.125}} | shown], console)


def receipts(console: Console) -> None:
    receipt = {"key_holder": LONG, "signature": "ab" * 64}
    display.show_receipts([{"round": 1000, "contributors": [LONG] * 5, "receipts": [receipt]}], console)


def owners(console: Console) -> None:
    figures = dict.fromkeys(("epsilon", "epsilon_now", "epsilon_left", "value"), -0.000123)
    owner = {"name": LONG, "n_examples": 1_000_000, "alone": {"estimate": 0.000123}, "fits": False} | figures
    unknown = {"worth_joining": False, "recommended": None, "away": None}
    console.print(forecast._table({"owners": [owner | unknown]}))


def columns(console: Console) -> None:
    share = {"value": 0.123456, "low": 0.1, "high": 0.2}
    at = {"share": share, "rows": {"value": 1000, "low": 900, "high": 1100}}
    number = {"name": LONG, "kind": "number", "lower": -123456.0, "upper": 123456.0, "mean": share, "variance": share}
    number |= {"at_lower": at, "at_upper": at, "histogram": [at] * 10, "remarks": [f"{MARKUP}, but a remark"]}
    values = {"name": LONG, "kind": "values", "values": [{"value": LONG, **at}], "remarks": []}
    describe._show({"rows": at["rows"], "deviation": 1000.0, "columns": [number, values]}, {}, console)


@pytest.mark.parametrize(("show", "names"), [(runs, 3), (receipts, 6), (owners, 1), (columns, 4)])
def test_a_table_fits_and_loses_nothing(
    show: Callable[[Console], None], names: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show(terminal())
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 80
    assert "…" not in output.replace(f"{'ab' * 8}…", "")
    assert output.count("z") == names * len(LONG)
    assert "\x1b" not in output


def test_a_number_and_an_identifier_stand_in_one_piece(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    runs(terminal())
    told = capsys.readouterr().out.split()
    assert {RUN, "recruiting", "1000/3000", "0.125"} <= set(told)


def test_what_a_party_says_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    news: list[tuple[str, dict[str, Any]]] = [
        ("dropped", {"party": "party-1", "round": 2, "reason": MARKUP}),
        ("state", {"state": "paused", "reason": MARKUP}),
        ("state", {"state": "failed", "problem": {"detail": MARKUP}}),
    ]
    last = display.follow((RunEvent(i, kind, json.dumps(data)) for i, (kind, data) in enumerate(news)), terminal())
    assert last["state"] == "failed"
    assert capsys.readouterr().out.count(MARKUP) == 3
