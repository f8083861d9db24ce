"""What the learner's commands print of runs, descriptions and forecasts, to the letter."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner

from parley.common.errors import ParleyError
from parley.learner.cli import describe, display, forecast
from parley.learner.cli.main import learner_app
from parley.learner.cli.options import LearnerOptions
from parley.learner.experiments.baselines import Baselines
from parley.learner.experiments.simulation import Metric
from parley.learner.runs.states import RunEvent


def shown(show: Callable[[Console], object], **options: Any) -> list[str]:  # noqa: ANN401 -- a console's
    """The lines that something prints, without blanks at their ends."""
    console = Console(file=StringIO(), **{"width": 120, "color_system": None} | options)
    show(console)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def events(news: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[RunEvent]:
    """A run's events."""
    return (RunEvent(i, kind, json.dumps(data)) for i, (kind, data) in enumerate(news))


# ── runs ─────────────────────────────────────────────────────────────────────

RUN: dict[str, Any] = {
    "study": "loans",
    "algorithm": "dp_gd",
    "key_holders": [],
    "rounds": {"done": 3, "of": 10},
    "epsilon": {"a": 0.5, "b": 1.25},
}


def test_runs_are_a_table() -> None:
    others = {"id": "r2", "state": "completed", "key_holders": ["notary", "court"]}
    lines = shown(lambda console: display.show_runs([{"id": "r1", "state": "running"} | RUN, RUN | others], console))
    assert lines == [
        "",
        " run state     study algorithm opened by     rounds    ε",
        " ───────────────────────────────────────────────────────",
        " r1  running   loans dp_gd     -               3/10 1.25",
        " r2  completed loans dp_gd     notary, court   3/10 1.25",
        "",
    ]


def test_a_state_has_its_colour() -> None:
    colors = {"completed": "32", "failed": "31", "cancelled": "33", "paused": "33", "queued": "36"}
    runs = [RUN | {"id": "r", "state": state} for state in colors]
    lines = shown(
        lambda console: display.show_runs(runs, console), force_terminal=True, color_system="standard", width=100
    )
    told = re.findall(r"\x1b\[(\d+)m(\w+)\x1b", "\n".join(lines[3:]))
    assert {state: color for color, state in told} == colors


def news_of_a_run() -> list[tuple[str, dict[str, Any]]]:
    """A run that waits, is paused, loses a party, and fails."""
    first = {"contributors": ["a", "b"], "ms": 12.34, "epsilon": {"a": 0.12345, "b": 0.1}, "stragglers": []}
    second = {
        "contributors": ["a", "b", "d"],
        "ms": 2.0,
        "epsilon": {"a": 0.25, "b": 0.51234},
        "stragglers": ["e", "f"],
    }
    return [
        ("state", {"state": "queued"}),
        ("state", {"state": "recruiting", "reason": "a has not said yes"}),
        ("state", {"state": "paused", "reason": "b is away"}),
        ("state", {"state": "running", "rounds": 10, "key_holders": ["notary", "court"]}),
        ("round", {"round": 1, "of": 10} | first),
        ("dropped", {"party": "c", "round": 2, "reason": "it is too late"}),
        ("round", {"round": 2, "of": 10, "accuracy": 0.81234, "objective": 0.5} | second),
        ("compacted", {}),
        ("state", {"state": "failed", "problem": {"detail": "too few parties"}}),
    ]


def test_a_run_is_told_as_it_goes() -> None:
    last: dict[str, Any] = {}
    lines = shown(lambda console: last.update(display.follow(events(news_of_a_run()), console)))
    assert last == {"state": "failed", "problem": {"detail": "too few parties"}}
    assert lines == [
        "waits for owners to say yes: a has not said yes",
        "paused, and asks again: b is away",
        "secure sum: the learner sees nothing but sums, which notary and court must open",
        "dropped c in round 2: it is too late",
        "too few parties",
        "failed after 2 rounds",
    ]
    assert shown(lambda console: last.update(display.follow([], console))) == ["queued after 0 rounds"]
    assert last["state"] == "queued"


@pytest.mark.parametrize(
    ("n_news", "bar"),
    [
        (0, "queued ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 0/? TIME"),
        (4, "running                                          0/10 TIME"),
        (5, "running ━━━━                                     1/10 TIME 2 parties · 12.3 ms · ε spent ≤ 0.123"),
        (
            9,
            (
                "failed ━━━━━━━━                                 2/10 TIME "
                "3 parties · 2.0 ms · ε spent ≤ 0.512 · accuracy 0.812 · objective 0.500 · waiting for e, f"
            ),
        ),
    ],
)
def test_the_bar_of_a_run_shows_its_last_round(n_news: int, bar: str) -> None:
    news = news_of_a_run()[:n_news]
    lines = shown(lambda console: display.follow(events(news), console), force_terminal=True, width=160)
    plain = [re.sub(r"\x1b\[\??[0-9]*[a-zA-Z]", "", line) for line in "\r".join(lines).split("\r")]
    last = next(line for line in reversed(plain) if "━" in line or "/" in line)
    _, _, text = last.partition(" ")
    assert " ".join(re.sub(r"\d:\d\d:\d\d", "TIME", text).split()) == " ".join(bar.split())
    assert text.count("━") in {bar.count("━"), 40}, "a bar that is not begun is drawn whole where there is no colour"


def test_a_run_whose_rounds_were_not_told_gets_them_from_its_first(monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[Progress] = []
    made = display.progress_bar

    def kept(console: Console) -> Progress:
        bars.append(made(console))
        return bars[0]

    monkeypatch.setattr(display, "progress_bar", kept)
    shown(lambda console: display.follow(events(news_of_a_run()[4:5]), console))
    (task,) = bars[0].tasks
    assert (task.description, task.completed, task.total) == ("queued", 1, 10)


def test_columns_fold_and_those_of_numbers_align_right() -> None:
    columns = display.new_table("owner", "an average", "n", left=2).columns
    assert [column.justify for column in columns] == ["left", "left", "right"]
    assert [column.min_width for column in columns] == [5, 7, 1]
    assert {column.overflow for column in columns} == {"fold"}
    assert [column.justify for column in display.new_table("a", "b").columns] == ["left", "right"]


def test_an_evaluation_is_told_when_a_run_ends() -> None:
    figure = {"estimate": 0.912345, "low": 0.9, "high": 0.95}
    evaluation = {
        "epsilon": 0.12345,
        "delta": 1e-6,
        "rows": 300,
        "contributors": ["a", "b"],
        "rate": 0.95,
        "accuracy": figure,
        "auc": {"estimate": None, "low": None, "high": 1.0},
    }
    news = [("state", {"state": "completed", "evaluation": evaluation})]
    assert shown(lambda console: display.follow(events(news), console)) == [
        "completed after 0 rounds",
        "on 300 rows held out by 2 parties, at epsilon 0.124, delta 1e-06:",
        "  accuracy 0.9123, between 0.9 and 0.95 at 95%",
        "  AUC not known, between -∞ and 1 at 95%",
    ]
    assert list(display.evaluation_lines(None)) == []
    label = {"label": {"values": ["no", "yes"]}}
    document = {"evaluation": evaluation, "study": label, "threshold": {"rule": "f1", "score": -1.0, "estimated": True}}
    at_threshold = shown(lambda console: display.follow(events(news), console, lambda: document))
    assert "'yes' is predicted where the score exceeds -1 (a probability of 0.269), by the rule f1" in at_threshold[1]


def test_figures_of_a_simulation_and_those_beside_it_are_a_line_each() -> None:
    metrics = {"accuracy": Metric((0.49, 0.51)), "auc": Metric((0.912345,))}
    assert display.measured(metrics) == "accuracy 0.5000, sd 0.0141; AUC 0.9123, sd 0.0000"
    figures = {"majority": 0.6, "pooled": 0.9, "alone": None, "alone_worst": 0.5}
    assert display.beside(Baselines(5, figures, "psgd", 0.7976, {"pooled": 0.85}), "binary") == (
        "beside it, over 5 repetitions: the majority 0.6000, all data pooled, not private 0.9000 (AUC 0.8500), "
        "the worst of them 0.5000, best at this budget, psgd 0.7976"
    )


GUARANTEES: list[dict[str, Any]] = [
    {
        "epsilon": 0.98765,
        "delta": 1e-6,
        "view": "model",
        "trust": 0,
        "adjacency": "replace_one",
        "calibration": "tight",
        "assumptions": ["noise is random", "no answer is late"],
    },
    {
        "epsilon": 2.0,
        "delta": 1e-5,
        "view": "transcript",
        "trust": 2,
        "adjacency": "whole_party",
        "calibration": "paper",
        "assumptions": ["noise is random", "at most 2 of them collude"],
    },
    {
        "epsilon": None,
        "delta": 0.0,
        "view": "transcript",
        "trust": 0,
        "adjacency": "replace_one",
        "calibration": "paper",
        "assumptions": ["anything"],
    },
]
PROMISES = [
    "epsilon 0.988, delta 1e-06 for one record replaced, against anyone who sees the model (tight calibration)",
    "  if no answer is late",
    (
        "epsilon 2, delta 1e-05 for all the data of a party replaced, against anyone who sees the transcript with the "
        "help of 2 of the parties (paper calibration)"
    ),
    "  if at most 2 of the parties collude",
    "no privacy against anyone who sees the transcript",
    "all of that holds if:",
    "  - Noise is random.",
]


def test_promises_are_told_with_what_they_assume() -> None:
    assert list(display.promises(GUARANTEES)) == PROMISES
    assert list(display.promises(GUARANTEES[:1])) == [
        PROMISES[0],
        "that holds if:",
        "  - Noise is random.",
        "  - No answer is late.",
    ]


def test_a_grid_has_its_two_columns_two_blanks_apart() -> None:
    grid = display.new_grid()
    grid.add_row("time", "0.2 s")
    grid.add_row("leave out", "nobody")
    assert shown(lambda console: console.print(grid)) == ["time       0.2 s", "leave out  nobody"]


# ── descriptions ─────────────────────────────────────────────────────────────

SHARE = {"value": 0.1234567, "low": 0.1, "high": 0.15}
ROWS = {"value": 1234.6, "low": 1200, "high": 1300}
AT = {"share": SHARE, "rows": ROWS}


def number(name: str, **more: object) -> dict[str, Any]:
    """A number's description; nothing is known of it but its bounds."""
    nothing = dict.fromkeys(("mean", "variance", "at_lower", "at_upper"))
    return (
        {"name": name, "kind": "number", "lower": -1.5, "upper": 1e6, "histogram": [], "remarks": []} | nothing | more
    )


def values(n: int, *remarks: str) -> dict[str, Any]:
    """A category's description, whose last values are the most frequent."""
    parts = [
        {
            "value": f"v{i}",
            "rows": {"value": 10.4 * i, "low": 10.4 * i - 5, "high": 10.4 * i + 5},
            "share": {"value": i / 100, "low": 0, "high": i / 50},
        }
        for i in range(1, n + 1)
    ]
    return {"name": "work", "kind": "values", "values": parts, "remarks": list(remarks)}


def described(**more: object) -> dict[str, Any]:
    """A description of three columns, one with more values than are shown."""
    age = number(
        "[age]",
        lower=0.0,
        upper=100.0,
        mean={"value": 51.23456, "low": 50, "high": 52.5},
        variance={"value": 400.0, "low": 390.0, "high": 420.0},
        at_lower=AT,
        histogram=[{"share": {"value": value}} for value in (0.0, 0.05, 0.1, 0.2, 0.4, 0.25)],
        remarks=["look [at] it", "and again"],
    )
    columns = [age, values(22, "no value is rare"), number("x", at_upper=AT)]
    return {"rows": ROWS, "deviation": 61.74, "columns": columns} | more


def test_a_description_is_tables_and_remarks() -> None:
    lines = shown(lambda console: describe._show(described(), {}, console))
    assert lines == [
        "1,235 ± 65 rows; noise of deviation 61.7 on each count",
        "",
        " column bounds               mean        sd     at lower between     at upper",
        " ────────────────────────────────────────────────────────────────────────────",
        " [age]  0 to 100      51.23 ± 1.3 20 ± 0.49 12.3% ± 2.7%   ▁▂▄█▅            -",
        " x      -1.5 to 1e+06           -         -            -       - 12.3% ± 2.7%",
        "",
        "",
        " column value         rows         share",
        " ───────────────────────────────────────",
        " work   v22        229 ± 5 22.0% ± 22.0%",
        "        v21        218 ± 5 21.0% ± 21.0%",
        "        v20        208 ± 5 20.0% ± 20.0%",
        "        v19        198 ± 5 19.0% ± 19.0%",
        "        v18        187 ± 5 18.0% ± 18.0%",
        "        v17        177 ± 5 17.0% ± 17.0%",
        "        v16        166 ± 5 16.0% ± 16.0%",
        "        v15        156 ± 5 15.0% ± 15.0%",
        "        v14        146 ± 5 14.0% ± 14.0%",
        "        v13        135 ± 5 13.0% ± 13.0%",
        "        v12        125 ± 5 12.0% ± 12.0%",
        "        v11        114 ± 5 11.0% ± 11.0%",
        "        v10        104 ± 5 10.0% ± 10.0%",
        "        v9          94 ± 5   9.0% ± 9.0%",
        "        v8          83 ± 5   8.0% ± 8.0%",
        "        v7          73 ± 5   7.0% ± 7.0%",
        "        v6          62 ± 5   6.0% ± 6.0%",
        "        v5          52 ± 5   5.0% ± 5.0%",
        "        v4          42 ± 5   4.0% ± 4.0%",
        "        v3          31 ± 5   3.0% ± 3.0%",
        "        and 2 more",
        "",
        "[age]: look [at] it",
        "[age]: and again",
        "work: no value is rare",
        "the noise hides much: ask about fewer columns, or none with bins, or spend more",
    ]


def test_persons_of_weighed_rows_are_said_to_count_by_weights() -> None:
    study = {"person": {"column": "patient"}, "row_weights": {"column": "[w]"}}
    told = (
        "persons count by the weights of their rows, in the column [w]: a count is a sum of weights, at most 1 of each "
        "person"
    )
    lines = shown(lambda console: describe._show(described(columns=[], deviation=1.0), study, console), width=200)
    assert lines == ["1,235 ± 65 persons; noise of deviation 1.0 on each count", told]
    found = {"rows": 421, "contributors": ["a"], "epsilon": 1.0, "delta": 0.0, "rate": 0.95}
    assert list(display.evaluation_lines(found, study)) == [
        "on 421 persons held out by 1 parties, at epsilon 1, delta 0:",
        f"  {told}",
    ]


def test_noise_that_hides_much_is_a_remark() -> None:
    exact = {"value": 1000, "low": 1000, "high": 1000}
    few = described(rows=exact, columns=[])
    line = "the noise hides much: ask about fewer columns, or none with bins, or spend more"
    for deviation, more in ((50.0, []), (50.1, [line])):
        told = shown(lambda console: describe._show(few | {"deviation": deviation}, {}, console))  # noqa: B023 -- called here
        assert told == [f"1,000 ± 0 rows; noise of deviation {deviation} on each count", *more]


def test_numbers_of_remarks_and_evaluations_have_no_colour_of_their_own() -> None:
    remarked = described(columns=[number("x", remarks=["5 of 10"])], deviation=1.0)
    in_color: dict[str, Any] = {"force_terminal": True, "color_system": "standard"}
    assert "x: 5 of 10" in shown(lambda console: describe._show(remarked, {}, console), **in_color)
    figure = {"estimate": 0.5, "low": 0.25, "high": 0.75}
    evaluation = {"epsilon": 1, "delta": 1e-6, "rows": 300, "contributors": ["a"], "rate": 0.95, "rmse": figure}
    news = [("state", {"state": "completed", "evaluation": evaluation})]
    lines = shown(lambda console: display.follow(events(news), console), **in_color)
    assert "  RMSE 0.5, between 0.25 and 0.75 at 95%" in lines


def test_twenty_values_are_shown_and_no_more() -> None:
    cells = list(describe._values(values(20)))
    assert cells[0] == ("work", "v20", "208 ± 5", "20.0% ± 20.0%")
    assert cells[1] == ("", "v19", "198 ± 5", "19.0% ± 19.0%")
    assert (len(cells), cells[-1][1]) == (20, "v1")
    assert list(describe._values(values(23)))[-2:] == [("", "v4", "42 ± 5", "4.0% ± 4.0%"), ("", "and 3 more", "", "")]


def test_bars_of_a_histogram_of_nothing_are_empty() -> None:
    assert describe._bars([0.0, 0.0]) == "  "
    assert describe._bars([1e-9, 2e-9, 5e-10]) == "▄█▂"
    assert describe._bars([]) == "-"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("age=20", ("age", 20)),
        ("age", ("age", None)),
        ("a=b=3", ("a=b", 3)),
        ("=3", ("=3", None)),
        ("a=x", ("a=x", None)),
    ],
)
def test_a_column_to_describe_may_have_bins(text: str, column: tuple[str, int | None]) -> None:
    assert describe._column(text) == column


class Asked(list[tuple[Any, ...]]):
    """A learner that gives the same answer to each request of a kind, and notes what it was asked."""

    def __init__(self, news: list[tuple[str, dict[str, Any]]], *answers: tuple[tuple[str, str], object]) -> None:
        super().__init__()
        self.news, self.answers = news, dict(answers)

    def ask(self, *request: Any) -> object:  # noqa: ANN401 -- a method, a path, perhaps a body
        self.append(request)
        answer = self.answers[request[:2]]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def watch(self, run: str) -> Iterator[RunEvent]:
        self.append(("watch", run))
        return events(self.news)


ONE_ROUND = {"contributors": ["a", "b"], "ms": 1.0, "epsilon": {"a": 0.12345, "b": 0.1}, "stragglers": []}
NO_FORECAST: dict[str, Any] = {
    "owners": [],
    "key_holders": [],
    "rounds": 1,
    "evaluation": None,
    "run_time": {"seconds": None},
    "costs": {"answered": 3},
    "majority": None,
    "outcome": None,
    "without": [],
    "helps": [],
    "no_forecast": "it trains no model",
}


@pytest.fixture
def describing(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """A learner of whose run the description is known."""
    description = {"rows": ROWS, "deviation": 1.0, "columns": [number("x", remarks=["it is narrow"])]}
    learner = Asked(
        [("round", {"round": 1, "of": 1} | ONE_ROUND), ("state", {"state": "completed"})],
        (("POST", "/v1/forecasts"), NO_FORECAST),
        (("POST", "/v1/runs"), {"id": "r1"}),
        (("GET", "/v1/runs/r1/model"), {"guarantees": GUARANTEES[:1], "study": {}}),
        (("GET", "/v1/runs/r1/description"), description),
    )
    monkeypatch.setattr(LearnerOptions, "open", lambda _: nullcontext(learner))
    return learner


TERMS = ["describe", "loans", "--epsilon", "0.5", "--delta", "1e-6"]


def test_a_description_is_printed_with_what_it_cost(describing: Asked) -> None:
    done = CliRunner().invoke(learner_app, [*TERMS, "--purpose", "to see", "--column", "x", "--column", "age=5"])
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines() == [
        "1 round",
        "no forecast: it trains no model",
        "completed after 1 round",
    ]
    assert [line.rstrip() for line in done.stdout.splitlines()] == [
        "1,235 ± 65 rows; noise of deviation 1.0 on each count",
        "",
        " column bounds        mean sd at lower between at upper",
        " ──────────────────────────────────────────────────────",
        " x      -1.5 to 1e+06    -  -        -       -        -",
        "",
        "x: it is narrow",
        "run r1 cost, in epsilon: a 0.123, b 0.1",
        *(f"  {line}" for line in list(display.promises(GUARANTEES[:1]))),
    ]
    body = {
        "study": "loans",
        "epsilon": 0.5,
        "delta": 1e-6,
        "budgets": {},
        "parties": None,
        "minimum_contributors": None,
        "colluders": None,
        "secure_sum": "none",
        "overlap": 1,
        "algorithm": "describe",
        "parameters": {"bins": 10, "columns": {"x": None, "age": 5}},
        "purpose": "to see",
    }
    assert describing == [
        ("POST", "/v1/forecasts", body),
        ("POST", "/v1/runs", body),
        ("watch", "r1"),
        ("GET", "/v1/runs/r1/model"),
        ("GET", "/v1/runs/r1/description"),
    ]


def test_a_description_is_a_document_for_programs(describing: Asked) -> None:
    done = CliRunner().invoke(learner_app, [*TERMS, "--format", "json", "--bins", "0"])
    assert json.loads(done.stdout) == {
        "run": "r1",
        "cost": {"a": 0.12345, "b": 0.1},
        "guarantees": GUARANTEES[:1],
        "description": describing.answers["GET", "/v1/runs/r1/description"],
    }
    assert describing[1][2]["parameters"] == {"bins": 0}
    assert describing[1][2]["purpose"] == ""


def test_a_description_that_did_not_complete_shows_none(describing: Asked) -> None:
    describing.news[-1:] = [("state", {"state": "cancelled"})]
    done = CliRunner().invoke(learner_app, TERMS)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "cancelled after 1 round"
    assert len(describing) == 3


# ── forecasts ────────────────────────────────────────────────────────────────


def owner(name: str, **more: object) -> dict[str, Any]:
    """An owner of a forecast who joins."""
    return {
        "name": name,
        "n_examples": 2900,
        "epsilon": 0.98765,
        "epsilon_now": None,
        "epsilon_left": None,
        "value": 0.012345,
        "alone": {"estimate": 0.34567},
        "worth_joining": True,
        "recommended": True,
        "fits": None,
        "objections": [],
        "exhausted": None,
        "away": None,
    } | more


def interval(estimate: float) -> dict[str, float | None]:
    """An estimate, and what it lies between."""
    return {"estimate": estimate, "low": estimate / 2, "high": None if estimate > 1 else estimate * 3}


def bound(excess: float | None, stated: str = "") -> dict[str, Any]:
    """What a theorem says."""
    return {"excess": excess, "noise_energy": 0.0098765, "stated": stated}


OUTCOME: dict[str, Any] = {
    "excess": interval(0.12345),
    "rate": 0.9,
    "error_lost": 0.054321,
    "rmse_lost": 0.23456,
    "r_squared_lost": 0.34567,
    "constant": interval(0.45678),
    "figures": [
        {"title": "RMSE", "unit": "grams", "constant": 0.55555, "alone": 0.5, **interval(0.44444)},
    ],
    "unstated": "accuracy is not forecast",
    "warning": "few rows",
    "best": interval(1.5),
    "coalition": ["a", "b"],
    "left_out": ["c", "d"],
    "proven": bound(0.65432),
    "printed": bound(None, "Theorem 3: at most c₂"),
    "likely": {"chance": 0.95, "excess": 0.045678, "printed": 0.98765, "at_zero": 0.69315},
    "assumptions": ["rows are alike", "noise is random"],
}
RMSE = "0.444 grams (from 0.222 to 1.33); without any feature 0.556, the largest owner alone 0.5"
POOLED = "without privacy they reach what nobody knows: nobody has seen the data"
UNTOLD: dict[str, Any] = dict.fromkeys(("error_lost", "rmse_lost", "r_squared_lost", "unstated")) | {"figures": []}
COSTS: dict[str, Any] = {
    "answered": 1_234_567,
    "round_bytes": 8_765_432,
    "all_bytes": 17_654_321_000,
    "memory_bytes": 1_000_000_000,
    "learner_bytes": 999_999_999,
    "noise_seconds": 0.456,
    "limit": "limits.round_bytes",
    "longest": 8_000_128,
    "fits": False,
}
CARRIES = [
    (
        "an answer has 1,234,567 numbers: 8.77 MB on the wire a party and round, 17.7 GB in all; at a party 1 GB of "
        "memory beside its rows, and about 0.46 s of noise; at the learner about 1e+03 MB of memory"
    ),
    "warning: a party's limits.round_bytes must be 8,000,128 or more, which its default is not",
]
ANSWER: dict[str, Any] = {
    "algorithm": "dp_gd",
    "rounds": 2000,
    "owners": [
        owner("a", exhausted="its budget is spent"),
        owner("b", worth_joining=False, objections=["it does not allow [it]", "its budget is spent"]),
        owner(
            "c",
            recommended=False,
            alone={"estimate": 0.1},
            value=None,
            away="c is silent",
            objections=["it is dear"],
        ),
    ],
    "key_holders": ["notary is away"],
    "without": ["d"],
    "helps": ["--epsilon 1", "--party c"],
    "chosen": {"algorithm": "it does best", "step": "by its theorem"},
    "parameters": {"step": 0.30000000000000004},
    "run_time": {"seconds": 12.3456, "ms_per_round": 6.1728, "basis": "as measured"},
    "costs": COSTS,
    "majority": 0.76543,
    "evaluation": "a tenth evaluates it",
    "outcome": OUTCOME,
    "no_forecast": None,
}
NOTHING_ELSE: dict[str, Any] = {"without": [], "helps": []}
REFUSED = ["by a, b: its budget is spent", "by b: it does not allow [it]"]


def test_the_lines_before_a_run_say_all_that_is_foreseen() -> None:
    learner: Any = Asked([], (("POST", "/v1/forecasts"), ANSWER))
    body = {"epsilon": 20.5, "budgets": {"a": {"epsilon": 1.0}}}
    lines = [
        "warning: an epsilon of 20.5 promises next to nothing: 1 is a strong promise, 10 a weak one",
        "algorithm = dp_gd: it does best",
        "step = 0.3: by its theorem",
        "asks a, b, c; d holds other studies",
        "warning: c is silent: the run waits for c, which may refuse it: it is dear, unless you name others by --party",
        "warning: notary is away",
        "2,000 rounds, about 12.3 s (as measured)",
        "a tenth evaluates it",
        *CARRIES,
        "the commonest class makes up 0.765: to predict it always is right so often",
        f"RMSE: {RMSE}",
        f"all data pooled: {POOLED}",
        "note: accuracy is not forecast",
        "accuracy: at most 5.4% below the best possible, if a linear model has the right probabilities",
        "root mean squared error: at most 0.235 above the least, the label's bounds being -1 and 1",
        "R²: at most 0.346 below the largest possible",
        "warning: few rows",
        "excess fitness to expect 0.123 (from 0.0617 to 0.37)",
        "excess fitness of an owner alone, without noise: 0.1 to 0.346",
        (
            "note: by excess fitness joining is not worth it for b: alone, without noise, they are expected to do "
            "better, if all owners' data are alike"
        ),
    ]
    assert list(forecast.outlook(learner, body, explain=True)) == lines
    assert list(forecast.outlook(learner, body | {"epsilon": 20}, explain=False)) == lines[3:]
    far = {"epsilon": 1, "budgets": {"a": {"epsilon": 30}}}
    assert next(forecast.outlook(learner, far, explain=False)) == (
        "warning: an epsilon of 30 promises next to nothing: 1 is a strong promise, 10 a weak one"
    )
    assert learner[0] == ("POST", "/v1/forecasts", body)


def test_the_lines_before_a_run_leave_out_what_is_not_so() -> None:
    outcome = OUTCOME | UNTOLD | {"warning": None}
    plain = ANSWER | {"owners": [owner("a")], "costs": COSTS | {"answered": 10**5}, "outcome": outcome, "rounds": 1}
    plain |= {"key_holders": [], "without": [], "majority": None, "run_time": {"seconds": None, "basis": "not known"}}
    plain |= {"evaluation": None}
    learner: Any = Asked([], (("POST", "/v1/forecasts"), plain))
    assert list(forecast.outlook(learner, {"epsilon": 1, "budgets": {}}, explain=False)) == [
        "1 round",
        "excess fitness to expect 0.123 (from 0.0617 to 0.37)",
        "excess fitness of an owner alone, without noise: 0.346 to 0.346",
    ]
    learner = Asked([], (("POST", "/v1/forecasts"), plain | {"costs": COSTS | {"fits": True}}))
    assert list(forecast.outlook(learner, {"epsilon": 1, "budgets": {}}, explain=False))[:3] == [
        "1 round",
        CARRIES[0],
        "excess fitness to expect 0.123 (from 0.0617 to 0.37)",
    ]


@pytest.mark.parametrize(
    ("status", "is_told"), [(400, False), (401, False), (403, False), (422, False), (409, True), (503, True)]
)
def test_a_forecast_that_fails_is_a_line_unless_the_request_makes_no_sense(status: int, *, is_told: bool) -> None:
    learner: Any = Asked([], (("POST", "/v1/forecasts"), ParleyError("not now", problem={"status": status})))
    lines = forecast.outlook(learner, {"epsilon": 1, "budgets": {}}, explain=False)
    if is_told:
        assert list(lines) == ["no forecast: not now"]
    else:
        with pytest.raises(ParleyError, match="not now"):
            list(lines)


def test_a_learner_that_cannot_be_asked_is_no_missing_forecast() -> None:
    learner: Any = Asked([], (("POST", "/v1/forecasts"), ParleyError("it is away")))
    with pytest.raises(ParleyError, match="it is away"):
        list(forecast.outlook(learner, {"epsilon": 1, "budgets": {}}, explain=False))


def test_five_owners_are_named_and_the_others_counted() -> None:
    owners = [owner(f"o{i}", objections=["no"], worth_joining=False) for i in range(7)]
    assert list(forecast.refusals({"owners": owners})) == ["by o0, o1, o2, o3, o4 and 2 more: no"]
    assert list(forecast.refusals({"owners": owners[:5]})) == ["by o0, o1, o2, o3, o4: no"]
    assert list(forecast.refusals({"owners": owners[:6]})) == ["by o0, o1, o2, o3, o4 and 1 more: no"]


def forecast_printed(
    monkeypatch: pytest.MonkeyPatch, answer: Mapping[str, Any], *words: str
) -> tuple[list[str], Asked]:
    """What the command prints of a forecast, and what it asked."""
    learner = Asked([], (("POST", "/v1/forecasts"), answer))
    monkeypatch.setattr(LearnerOptions, "open", lambda _: nullcontext(learner))
    terms = ["forecast", "loans", "--epsilon", "1", "--delta", "1e-6", *words]
    done = CliRunner().invoke(learner_app, terms, env={"COLUMNS": "130"})
    assert done.exit_code == 0, done.output
    return [line.rstrip() for line in done.stdout.splitlines()], learner


def test_a_forecast_is_a_summary_a_table_and_a_legend(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, learner = forecast_printed(monkeypatch, ANSWER, "--explain", "--owner", "a=30", "--owner", "b=4")
    assert learner[0][2]["owners"] == {"a": 30, "b": 4}
    assert lines == [
        "dp_gd, 2,000 rounds, 3 owners",
        "refused                  by a, b: its budget is spent",
        "refused                  by b: it does not allow [it]",
        "what helps               --epsilon 1, or --party c",
        "of the parties           asks a, b, c; d holds other studies",
        (
            "warning                  c is silent: the run waits for c, which may refuse it: it is dear, unless you "
            "name others by --party"
        ),
        "warning                  notary is away",
        "evaluation               a tenth evaluates it",
        f"RMSE                     {RMSE}",
        f"all data pooled          {POOLED}",
        "note                     accuracy is not forecast",
        "excess fitness with all  0.123 (from 0.0617 to 0.37), in 90% of runs on data like those of its fit",
        (
            "accuracy                 at most 5.4% below the best possible, if a linear model has the right "
            "probabilities"
        ),
        "root mean squared error  at most 0.235 above the least, the label's bounds being -1 and 1",
        "R²                       at most 0.346 below the largest possible",
        "without any feature      0.457 (from 0.228 to 1.37), of the best model that looks at none",
        "warning                  few rows",
        "with the best coalition  1.5 (from 0.75 to -): a, b",
        "leave out                c, d",
        "proven                   at most 0.654 on the owners' own examples, noise energy 0.00988 a round",
        "as the paper prints it   Theorem 3: at most c₂; it drops the dimension",
        "without the dimension    nothing on the owners' own examples, noise energy 0.00988 a round",
        (
            "in 95% of draws          at most 0.0457 (as the paper prints it, 0.988) more than the best "
            "regularised risk on the owners' own"
        ),
        "                         examples, if the model is the exact minimiser",
        "assumes that             rows are alike; noise is random",
        "time                     12.3 s, 6.17 ms a round: as measured",
        (
            "carries                  an answer has 1,234,567 numbers: 8.77 MB on the wire a party and round, "
            "17.7 GB in all; at a party 1 GB"
        ),
        (
            "                         of memory beside its rows, and about 0.46 s of noise; at the learner about "
            "1e+03 MB of memory"
        ),
        (
            "carries                  warning: a party's limits.round_bytes must be 8,000,128 or more, which its "
            "default is not"
        ),
        "algorithm = dp_gd        it does best",
        "step = 0.3               by its theorem",
        "",
        " owner examples epsilon  value alone worth it take part",
        " ──────────────────────────────────────────────────────",
        " a         2900   0.988 0.0123 0.346      yes       yes",
        " b         2900   0.988 0.0123 0.346       no   refuses",
        " c         2900   0.988      -   0.1      yes      away",
        "",
        "epsilon: what the run is charged at most. value: by how much the best coalition",
        "is worse without the owner (below 0: with it). alone: the excess of the owner's",
        "own model. worth it: whether the best coalition, the owner included, comes to",
        "less than that. take part: whether the owner is in the best coalition.",
    ]


def test_a_forecast_with_ledgers_shows_what_would_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = [owner("[a]", epsilon_now=5.0), owner("b", epsilon_left=3.21987, epsilon_now=4.0, fits=False, alone=None)]
    outcome = OUTCOME | UNTOLD | dict.fromkeys(("constant", "warning", "printed"))
    outcome |= {"left_out": [], "likely": {"chance": 0.95, "excess": 0.7, "printed": None, "at_zero": 0.69315}}
    lines, learner = forecast_printed(
        monkeypatch,
        ANSWER
        | {"owners": owners, "outcome": outcome, "key_holders": [], "costs": {"answered": 1}, "evaluation": None}
        | NOTHING_ELSE,
    )
    assert learner[0][2]["owners"] is None
    assert lines == [
        "dp_gd, 2,000 rounds, 2 owners",
        "excess fitness with all  0.123 (from 0.0617 to 0.37), in 90% of runs on data like those of its fit",
        "with the best coalition  1.5 (from 0.75 to -): a, b",
        "leave out                nobody",
        "proven                   at most 0.654 on the owners' own examples, noise energy 0.00988 a round",
        (
            "in 95% of draws          at most 0.7 more than the best regularised risk on the owners' own "
            "examples, if the model is the exact"
        ),
        "                         minimiser; that says nothing: weights of 0 are at most 0.693 off",
        "assumes that             rows are alike; noise is random",
        "time                     12.3 s, 6.17 ms a round: as measured",
        "",
        " owner examples epsilon left now left after  value alone worth it take part",
        " ──────────────────────────────────────────────────────────────────────────",
        " [a]       2900   0.988        5          - 0.0123 0.346      yes       yes",
        " b         2900   0.988        4       3.22 0.0123     -      yes   refuses",
        "",
        "left: as far as your own runs go; other learners may have spent more. A run may",
        "take less off it than its epsilon: Gaussian answers together cost less than the",
        "sum of theirs.",
        "epsilon: what the run is charged at most. value: by how much the best coalition",
        "is worse without the owner (below 0: with it). alone: the excess of the owner's",
        "own model. worth it: whether the best coalition, the owner included, comes to",
        "less than that. take part: whether the owner is in the best coalition.",
    ]


def test_runs_to_come_are_told_with_what_is_not_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least over owners, who are named if it is not the same at all."""
    said = "as far as your own runs go: others may spend too"
    undecided = {"worth_joining": None, "recommended": None, "value": None, "alone": None, "fits": True}
    owners = [owner("a", **undecided, more_runs=1200), owner("b", **undecided, more_runs=9)]
    to_come = {"instead": "law = x: y would do", "more_runs": 9, "delta_buys": "with delta 1e-06: noise x 0.5"}
    answer = NO_FORECAST | {"algorithm": "release", "chosen": {}, "owners": owners} | to_come
    answer |= {"run_time": {"seconds": None, "basis": "not known"}}
    lines, _ = forecast_printed(monkeypatch, answer)
    assert [line.split(maxsplit=3)[3] for line in lines if line.startswith("runs to come")] == [
        "law = x: y would do",
        f"9 more like this would fit afterwards at b, {said}",
        "with delta 1e-06: noise x 0.5",
    ]
    learner: Any = Asked([], (("POST", "/v1/forecasts"), answer | {"owners": owners[:1], "more_runs": 1200}))
    printed = list(forecast.outlook(learner, {"epsilon": 1, "budgets": {}}, explain=False))
    assert printed[1:4] == [
        "law = x: y would do",
        f"1,200 more like this would fit afterwards, {said}",
        "with delta 1e-06: noise x 0.5",
    ]


def test_no_forecast_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    undecided = {"worth_joining": None, "recommended": None, "value": None, "alone": None, "fits": True}
    more = {"algorithm": "describe", "chosen": {}, "owners": [owner("a", **undecided)]}
    run_time = {"seconds": None, "basis": "not known"}
    lines, _ = forecast_printed(monkeypatch, NO_FORECAST | more | {"run_time": run_time}, "--explain")
    assert lines == [
        "describe, 1 round, 1 owner",
        "no forecast  it trains no model",
        "time         not known",
        "",
        " owner examples epsilon value alone worth it take part",
        " ─────────────────────────────────────────────────────",
        " a         2900   0.988     -     -        -         -",
        "",
    ]
