"""``parley-learner describe``: what a study's columns hold over all owners, before anything is trained on them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parley.common.service.commands import ExitCode, Printer, deferred
from parley.learner.api import routes
from parley.learner.cli.forecast import outlook
from parley.learner.cli.options import AnyRunOptions, LearnerOptions

with deferred():
    from parley.learner.cli import display
    from parley.learner.client import progress

if TYPE_CHECKING:
    from rich.console import Console

    from parley.learner.runs.states import RunEvent

DESCRIPTIONS = (
    "Examples:\n\n"
    "parley-learner describe loans --epsilon 0.1 --delta 1e-6 --secure-sum paillier\n\n"
    "parley-learner describe loans --epsilon 0.1 --delta 1e-6 --column age=20 --column repaid --format json"
)
"""How the command is used."""
_BARS = " ▁▂▃▄▅▆▇█"
_MOST_VALUES = 20
_NOISY = 0.05
"""The deviation of a count's noise as a part of all rows, beyond which it deserves a remark."""


def describe_command(
    terms: AnyRunOptions,
    *,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME[=BINS]", help="a column, and its bins; repeat; all if not given"),
    ] = None,
    bins: Annotated[int, typer.Option(min=0, help="equal bins between a number's bounds; 0: no histogram")] = 10,
    purpose: Annotated[str, typer.Option(help="what it is for, as owners read in their logs")] = "",
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Count what a study's columns hold over all owners, so that bounds and values can be checked before a run.

    Of numbers: mean, deviation, share at each bound, histogram; of categories and classes: the share of each value. It
    is a run like any other: private, approved by each owner, and charged to its ledger. How wide intervals will be is
    said first, on standard error. Behind ± is half of the interval that holds the owners' own figure in 95 of 100 runs.
    """
    parameters = {"bins": bins} | ({"columns": dict(map(_column, column))} if column else {})
    body = terms.body(algorithm="describe", parameters=parameters, purpose=purpose)
    with learner.open() as client:
        for line in outlook(client, body, explain=False):
            typer.echo(line, err=True)
        run = client.ask(*routes.SUBMIT.to(), body)["id"]
        cost = _wait(client.watch(run))
        model, found = (client.ask(*route.to(run=run)) for route in (routes.SHOW_MODEL, routes.SHOW_DESCRIPTION))
    value = {"run": run, "cost": cost, "guarantees": model["guarantees"], "description": found}
    out.result(value, lambda: _show(found, progress.terminal()))
    if not out.is_json:
        _tell(run, cost, model["guarantees"])


def _column(given: str) -> tuple[str, int | None]:
    """A column as it is given, ``NAME`` or ``NAME=BINS``."""
    name, _, bins = given.rpartition("=")
    return (name, int(bins)) if name and bins.isdecimal() else (given, None)


def _wait(events: Iterator[RunEvent]) -> dict[str, float]:
    """Show a run's events to its end, and say what it cost each party; exit with 1 unless it completed."""
    cost: dict[str, float] = {}

    def noted() -> Iterator[RunEvent]:
        for event in events:
            if event.kind == "round":
                cost.update(json.loads(event.data)["epsilon"])
            yield event

    if display.follow(noted(), progress.terminal(stderr=True))["state"] != "completed":
        raise typer.Exit(ExitCode.NO)
    return cost


def _show(found: Mapping[str, Any], console: Console) -> None:
    """A description as tables, then what is remarkable about it."""
    console.print(
        f"{_estimate(found['rows'], ',.0f')} rows; noise of deviation {found['deviation']:,.1f} on each count"
    )
    numbers = [column for column in found["columns"] if column["kind"] == "number"]
    others = [column for column in found["columns"] if column["kind"] == "values"]
    if numbers:
        table = display.new_table("column", "bounds", "mean", "sd", "at lower", "between", "at upper", left=2)
        for each in numbers:
            table.add_row(*map(display.plain, _number(each)))
        console.print(table)
    if others:
        table = display.new_table("column", "value", "rows", "share", left=2)
        for each in others:
            for row in _values(each):
                table.add_row(*map(display.plain, row))
        console.print(table)
    for each in found["columns"]:
        for remark in each["remarks"]:
            console.print(f"{each['name']}: {remark}", markup=False, highlight=False)
    if found["deviation"] > _NOISY * found["rows"]["value"]:
        console.print("[yellow]the noise hides much:[/] ask about fewer columns, or none with bins, or spend more")


def _number(column: Mapping[str, Any]) -> tuple[str, ...]:
    """A number as the cells of a row."""
    sd = column["variance"] and {part: value**0.5 for part, value in column["variance"].items()}
    shares = [part and part["share"] for part in (column["at_lower"], column["at_upper"])]
    lower, upper = (_estimate(share, ".1%") for share in shares)
    bounds = f"{column['lower']:g} to {column['upper']:g}"
    bars = _bars([each["share"]["value"] for each in column["histogram"]])
    return column["name"], bounds, _estimate(column["mean"]), _estimate(sd), lower, bars, upper


def _values(column: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The most frequent values of a category or a label, as the cells of a row each."""
    values = sorted(column["values"], key=lambda part: -part["share"]["value"])
    for number, part in enumerate(values[:_MOST_VALUES]):
        name = column["name"] if number == 0 else ""
        yield name, part["value"], _estimate(part["rows"], ".0f"), _estimate(part["share"], ".1%")
    if (more := len(values) - _MOST_VALUES) > 0:
        yield "", f"and {more} more", "", ""


def _estimate(estimate: Mapping[str, float] | None, form: str = ".4g") -> str:
    """A figure and half of its interval, which is what is unsure about it; a dash where there is none."""
    if estimate is None:
        return "-"
    return f"{estimate['value']:{form}} ± {(estimate['high'] - estimate['low']) / 2:{form.replace('4', '2')}}"


def _bars(shares: Sequence[float]) -> str:
    """A histogram as a line of bars; a dash where there is none."""
    if not shares:
        return "-"
    highest = max(*shares, 1e-9)
    return "".join(_BARS[round(share / highest * (len(_BARS) - 1))] for share in shares)


def _tell(run: str, cost: Mapping[str, float], guarantees: Sequence[Mapping[str, Any]]) -> None:
    """Say what it cost, and what it promises."""
    paid = ", ".join(f"{party} {epsilon:.3g}" for party, epsilon in cost.items())
    typer.echo(f"run {run} cost, in epsilon: {paid}")
    for line in display.promises(guarantees):
        typer.echo(f"  {line}")
