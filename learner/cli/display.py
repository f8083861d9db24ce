"""How the command line shows runs to people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from learner.run import RunEvent, RunState

if TYPE_CHECKING:
    from learner.experiments.simulation import Metric

_METRICS = {"objective": "objective", "accuracy": "accuracy", "r_squared": "R²", "rmse": "RMSE"}
"""What metrics are called on a terminal."""
_COLORS: Mapping[RunState, str] = {"completed": "green", "failed": "red", "cancelled": "yellow", "paused": "yellow"}


def progress_bar(console: Console) -> Progress:
    """A bar for long work, with what is being done before it and figures after it; none but on a terminal."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figures]}"),
        console=console,
        disable=not console.is_terminal,
    )


def follow(events: Iterable[RunEvent], console: Console) -> RunState:
    """Draw a run's events as they come; the state in which it ended."""
    state: RunState = "queued"
    rounds = 0
    with progress_bar(console) as bar:
        task = bar.add_task("queued", total=None, figures="")
        for event in events:
            data = json.loads(event.data)
            match event.kind:
                case "state":
                    state = data["state"]
                    bar.update(task, description=state, total=data.get("rounds"))
                    _explain(data, console)
                case "round":
                    rounds = data["round"]
                    _advance(bar, task, data)
                case "dropped":
                    console.print(f"[yellow]dropped {data['party']} in round {data['round']}:[/] {data['reason']}")
    console.print(f"{state} after {rounds} rounds")
    return state


def _explain(data: Mapping[str, Any], console: Console) -> None:
    """Say why a run failed or is paused, or who opens its sums."""
    if holders := data.get("key_holders"):
        console.print(f"secure sum: the learner sees nothing but sums, which {' and '.join(holders)} must open")
    if reason := data.get("reason"):
        console.print(f"[yellow]paused, and asks again:[/] {reason}")
    if problem := data.get("problem"):
        console.print(f"[red]{problem['detail']}")


def _advance(bar: Progress, task: TaskID, data: Mapping[str, Any]) -> None:
    """Move the bar to a round, with its figures."""
    figures = [
        f"{len(data['contributors'])} parties",
        f"{data['ms']:.1f} ms",
        f"ε spent ≤ {max(data['epsilon'].values()):.3g}",
    ]
    figures += [f"{shown} {data[name]:.3f}" for name, shown in _METRICS.items() if name in data]
    if data["stragglers"]:
        figures.append(f"waiting for {', '.join(data['stragglers'])}")
    bar.update(task, completed=data["round"], total=data["of"], figures=" · ".join(figures))


def new_table(*headings: str, left: int = 1) -> Table:
    """A table that fits a narrow terminal: what is long is folded, nothing cut short; the first columns to the left."""
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    for number, heading in enumerate(headings):
        longest = max(map(len, heading.split()))
        table.add_column(heading, "left" if number < left else "right", min_width=longest, overflow="fold")
    return table


def show_runs(runs: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Runs as a table."""
    table = new_table("run", "state", "study", "algorithm", "key holders", "rounds", "ε", left=5)
    table.columns[0].no_wrap = table.columns[1].no_wrap = True  # an identifier is to be copied in one piece
    for run in runs:
        color = _COLORS.get(run["state"], "cyan")
        table.add_row(
            run["id"],
            f"[{color}]{run['state']}[/]",
            run["study"],
            run["algorithm"],
            ", ".join(run["key_holders"]) or "-",
            f"{run['rounds']['done']}/{run['rounds']['of']}",
            f"{max(run['epsilon'].values()):g}",
        )
    console.print(table)


def show_receipts(opened: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Opened rounds as a table."""
    table = new_table("round", "contributors", "opened by", "signed", left=4)
    for each in opened:
        for receipt in each["receipts"]:
            signature = f"{receipt['signature'][:16]}…"
            table.add_row(str(each["round"]), ", ".join(each["contributors"]), receipt["key_holder"], signature)
    console.print(table)


def measured(metrics: Mapping[str, Metric]) -> str:
    """A simulation's metrics in a line, each in four digits."""
    return "; ".join(f"{_METRICS[name]} {each.mean:#.4g}, sd {each.sd:.4f}" for name, each in metrics.items())


def promise(guarantee: Mapping[str, Any]) -> str:
    """A guarantee of a document in a line."""
    helpers = f" with the help of {guarantee['trust']} of the parties" if guarantee["trust"] else ""
    whom = f"whoever sees the {guarantee['view']}{helpers}"
    if guarantee["epsilon"] is None:
        return f"no privacy against {whom}"
    hidden = {"replace_one": "one record replaced", "whole_party": "all the data of a party replaced"}
    figures = f"epsilon {guarantee['epsilon']:.3g}, delta {guarantee['delta']:g}"
    assumptions = f", if {'; '.join(guarantee['assumptions'])}" if guarantee["assumptions"] else ""
    return (
        f"{figures} for {hidden[guarantee['adjacency']]}, against {whom} "
        f"({guarantee['calibration']} calibration){assumptions}"
    )
