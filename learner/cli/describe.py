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
    from parley.common.learning import statistics
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

    A number gets its mean, deviation, share at each bound and histogram; categories and classes get the share of each
    value. It is a run like any other: private, approved by each owner, and charged to its ledger. The widths of the
    intervals are printed first, on standard error. The figure behind ± is how far the farther end of the interval is,
    which holds the true figure of the owners' rows in 95 of 100 runs.
    """
    parameters = {"bins": bins} | ({"columns": dict(map(_column, column))} if column else {})
    body = terms.body(algorithm="describe", parameters=parameters, purpose=purpose)
    with learner.open() as client:
        for line in outlook(client, body, explain=False):
            typer.echo(line, err=True)
        run = client.ask(*routes.SUBMIT.to(), body)["id"]
        cost = _watch_to_end(client.watch(run))
        model, description = (client.ask(*route.to(run=run)) for route in (routes.SHOW_MODEL, routes.SHOW_DESCRIPTION))
    value = {"run": run, "cost": cost, "guarantees": model["guarantees"], "description": description}
    out.result(value, lambda: _show(description, model["study"], progress.terminal()))
    if not out.is_json:
        _print_cost(run, cost, model["guarantees"])


def _column(text: str) -> tuple[str, int | None]:
    """Parse ``NAME`` or ``NAME=BINS`` into a column's name and its bins."""
    name, _, bins = text.rpartition("=")
    return (name, int(bins)) if name and bins.isdecimal() else (text, None)


def _watch_to_end(events: Iterator[RunEvent]) -> dict[str, float]:
    """Show a run's events to its end; return its cost in epsilon by party. Exits with 1 unless it completed."""
    cost: dict[str, float] = {}

    def with_costs_noted() -> Iterator[RunEvent]:
        for event in events:
            if event.kind == "round":
                cost.update(json.loads(event.data)["epsilon"])
            yield event

    if display.follow(with_costs_noted(), progress.terminal(stderr=True))["state"] != "completed":
        raise typer.Exit(ExitCode.NO)
    return cost


def _show(description: Mapping[str, Any], study: Mapping[str, Any], console: Console) -> None:
    """Print a description of a study's rows or persons as tables, then its remarks."""
    examples = display.counted_by(study)
    console.print(
        f"{_estimate(description['rows'], ',.0f')} {examples}; "
        f"noise of deviation {description['deviation']:,.1f} on each count"
    )
    if words := statistics.weighed_in_words(study):
        console.print(words, markup=False, highlight=False)
    numbers = [column for column in description["columns"] if column["kind"] == "number"]
    others = [column for column in description["columns"] if column["kind"] == "values"]
    if numbers:
        table = display.new_table("column", "bounds", "mean", "sd", "at lower", "between", "at upper", left=2)
        for described in numbers:
            table.add_row(*map(display.plain, _number(described)))
        console.print(table)
    if others:
        table = display.new_table("column", "value", examples, "share", left=2)
        for described in others:
            for row in _values(described):
                table.add_row(*map(display.plain, row))
        console.print(table)
    for described in description["columns"]:
        for remark in described["remarks"]:
            console.print(f"{described['name']}: {remark}", markup=False, highlight=False)
    if description["deviation"] > _NOISY * description["rows"]["value"]:
        console.print("[yellow]the noise hides much:[/] ask about fewer columns, or none with bins, or spend more")


def _number(column: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a number's description as the cells of a row."""
    sd = column["variance"] and {part: value**0.5 for part, value in column["variance"].items()}
    shares = [part and part["share"] for part in (column["at_lower"], column["at_upper"])]
    lower, upper = (_estimate(share, ".1%") for share in shares)
    bounds = f"{column['lower']:g} to {column['upper']:g}"
    bars = _bars([bin_["share"]["value"] for bin_ in column["histogram"]])
    return column["name"], bounds, _estimate(column["mean"]), _estimate(sd), lower, bars, upper


def _values(column: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row of cells for each of the most frequent values of a category or a label."""
    values = sorted(column["values"], key=lambda part: -part["share"]["value"])
    for number, part in enumerate(values[:_MOST_VALUES]):
        name = column["name"] if number == 0 else ""
        yield name, part["value"], _estimate(part["rows"], ".0f"), _estimate(part["share"], ".1%")
    if (more := len(values) - _MOST_VALUES) > 0:
        yield "", f"and {more} more", "", ""


def _estimate(estimate: Mapping[str, float] | None, form: str = ".4g") -> str:
    """Format a figure with how far the farther end of its interval is from it; a dash for None."""
    if estimate is None:
        return "-"
    reach = max(estimate["high"] - estimate["value"], estimate["value"] - estimate["low"])
    return f"{estimate['value']:{form}} ± {reach:{form.replace('4', '2')}}"


def _bars(shares: Sequence[float]) -> str:
    """Format a histogram as a line of bars; a dash for none."""
    if not shares:
        return "-"
    highest = max(*shares, 1e-9)
    return "".join(_BARS[round(share / highest * (len(_BARS) - 1))] for share in shares)


def _print_cost(run: str, cost: Mapping[str, float], guarantees: Sequence[Mapping[str, Any]]) -> None:
    """Print what a run cost each party, and what it promises."""
    paid = ", ".join(f"{party} {epsilon:.3g}" for party, epsilon in cost.items())
    typer.echo(f"run {run} cost, in epsilon: {paid}")
    for line in display.promises(guarantees):
        typer.echo(f"  {line}")
