"""How the command line shows runs to people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from parley.common.encoding.texts import so_many
from parley.common.learning.statistics import figures
from parley.common.privacy.guarantee import HIDDEN, as_clause, as_sentence, in_common
from parley.learner.client.progress import METRIC_WORDS, metrics_in_words
from parley.learner.runs.states import RunEvent, RunState

if TYPE_CHECKING:
    from rich.console import Console

    from parley.common.data.study import StudyKind
    from parley.learner.experiments.baselines import Baselines
    from parley.learner.experiments.simulation import Metric

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


def follow(events: Iterable[RunEvent], console: Console) -> Mapping[str, Any]:
    """Draw a run's events as they come; the last news of its state."""
    last: Mapping[str, Any] = {"state": "queued"}
    rounds = 0
    with progress_bar(console) as bar:
        task = bar.add_task("queued", total=None, figures="")
        for event in events:
            data = json.loads(event.data)
            match event.kind:
                case "state":
                    last = data
                    bar.update(task, description=data["state"], total=data.get("rounds"))
                    _explain(data, console)
                case "round":
                    rounds = data["round"]
                    _advance(bar, task, data)
                case "dropped":
                    lost, why = f"dropped {data['party']} in round {data['round']}:", escape(data["reason"])
                    console.print(f"[yellow]{lost}[/] {why}")
    console.print(f"{last['state']} after {so_many(rounds, 'round')}")
    for line in evaluation_lines(last.get("evaluation")):
        console.print(line, highlight=False)
    return last


def _explain(data: Mapping[str, Any], console: Console) -> None:
    """Say why a run failed or stands still, or who opens its sums."""
    if holders := data.get("key_holders"):
        console.print(f"secure sum: the learner sees nothing but sums, which {' and '.join(holders)} must open")
    if reason := data.get("reason"):
        said = "waits for owners to say yes:" if data["state"] == "recruiting" else "paused, and asks again:"
        console.print(f"[yellow]{said}[/] {escape(reason)}")
    if problem := data.get("problem"):
        console.print(f"[red]{escape(problem['detail'])}")


def _advance(bar: Progress, task: TaskID, data: Mapping[str, Any]) -> None:
    """Move the bar to a round, with its figures."""
    figures = [
        f"{len(data['contributors'])} parties",
        f"{data['ms']:.1f} ms",
        f"ε spent ≤ {max(data['epsilon'].values()):.3g}",
    ]
    figures += metrics_in_words(data)
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


def plain(text: str) -> str:
    """A text for a table, in which no markup is read."""
    return escape(text)


def new_grid() -> Table:
    """A table of two columns, a heading and what it is of, without lines."""
    return Table.grid("", "", padding=(0, 2))


def show_runs(runs: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Runs as a table."""
    table = new_table("run", "state", "study", "algorithm", "opened by", "rounds", "ε", left=5)
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
    for column in table.columns:  # an identifier is to be copied in one piece, and half a number is another
        column.no_wrap = column.header in {"run", "state", "rounds", "ε"}
        column.min_width = None  # names are folded as far as that needs
    console.print(table)


def show_members(members: Sequence[Mapping[str, Any]], console: Console) -> None:
    """The roster as a table."""
    table = new_table("name", "role", "state", "connected", left=4)
    for each in members:
        connected = {True: "yes", False: "no", None: "-"}[each["connected"]]
        table.add_row(each["name"], each["role"], each["state"], connected)
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
    return "; ".join(f"{METRIC_WORDS[name]} {each.mean:#.4g}, sd {each.sd:.4f}" for name, each in metrics.items())


def beside(baselines: Baselines, kind: StudyKind) -> str:
    """A simulation's baselines on a line."""
    figures_in_words = ", ".join(
        f"{title} {value:.4f}" + ("" if auc is None else f" (AUC {auc:.4f})")
        for title, value, auc in baselines.rows(kind)
    )
    return f"beside it, over {so_many(baselines.repeat, 'repetition')}: {figures_in_words}"


def evaluation_lines(found: Mapping[str, Any] | None) -> Iterator[str]:
    """What an evaluation of a document or an event found, in lines; none where there is none."""
    if found is None:
        return
    cost = f"epsilon {found['epsilon']:.3g}, delta {found['delta']:g}"
    yield f"on {found['rows']} rows held out by {len(found['contributors'])} parties, at {cost}:"
    yield from (f"  {title} {_interval(figure, found['rate'])}" for title, figure in figures(found))


def _interval(figure: Mapping[str, Any], rate: float) -> str:
    """An estimate and its ends, each in four digits."""
    known = "not known" if figure["estimate"] is None else f"{figure['estimate']:.4g}"
    low = "-∞" if figure["low"] is None else f"{figure['low']:.4g}"
    return f"{known}, between {low} and {figure['high']:.4g} at {rate:.0%}"


def promises(guarantees: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The guarantees of a document in lines: what all of them assume comes once, after them."""
    bounded = [each for each in guarantees if each["epsilon"] is not None]
    shared = in_common([each["assumptions"] for each in bounded])
    for guarantee in guarantees:
        yield _promise(guarantee)
        if guarantee["epsilon"] is not None:
            own = [each for each in guarantee["assumptions"] if each not in shared]
            yield from (f"  if {as_clause(each)}" for each in own)
    if shared:
        yield "all of that holds if:" if len(bounded) > 1 else "that holds if:"
        yield from (f"  - {as_sentence(each)}" for each in shared)


def _promise(guarantee: Mapping[str, Any]) -> str:
    """What a guarantee of a document promises, and to whom, in a line."""
    helpers = f" with the help of {guarantee['trust']} of the parties" if guarantee["trust"] else ""
    whom = f"whoever sees the {guarantee['view']}{helpers}"
    if guarantee["epsilon"] is None:
        return f"no privacy against {whom}"
    figures = f"epsilon {guarantee['epsilon']:.3g}, delta {guarantee['delta']:g}"
    return f"{figures} for {HIDDEN[guarantee['adjacency']]}, against {whom} ({guarantee['calibration']} calibration)"
