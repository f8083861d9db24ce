"""How the command line shows runs, rosters, evaluations and guarantees to people."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from parley.common.encoding.texts import so_many
from parley.common.learning.statistics import figures, unsaid_caution, weighed_in_words
from parley.common.learning.threshold import at_threshold, threshold_in_words
from parley.common.privacy.guarantee import EXAMPLE_NAMES, as_clause, as_sentence, hidden_at, in_common, no_less
from parley.learner.client.progress import METRIC_WORDS, metrics_in_words
from parley.learner.runs.states import RunEvent, RunState

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod

    from parley.common.data.study import StudyKind
    from parley.learner.experiments.baselines import Baselines
    from parley.learner.experiments.simulation import Metric

_COLORS: Mapping[RunState, str] = {"completed": "green", "failed": "red", "cancelled": "yellow", "paused": "yellow"}


def progress_bar(console: Console) -> Progress:
    """Return a progress bar, with a description before it and figures after it; it is drawn on a terminal alone."""
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


def follow(
    events: Iterable[RunEvent], console: Console, read_document: Callable[[], Mapping[str, Any]] | None = None
) -> Mapping[str, Any]:
    """Draw a run's events as they come, and return the last one about its state.

    Where that has an evaluation, its figures are those at the threshold of the model, whose document is read then; at 0
    if nothing reads it.
    """
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
                    dropped, reason = f"dropped {data['party']} in round {data['round']}:", escape(data["reason"])
                    console.print(f"[yellow]{dropped}[/] {reason}")
    console.print(f"{last['state']} after {so_many(rounds, 'round')}")
    evaluation = last.get("evaluation")
    document = read_document() if evaluation is not None and read_document is not None else None
    for line in evaluation_lines(evaluation) if document is None else threshold_lines(document):
        console.print(line, highlight=False)
    return last


def _explain(data: Mapping[str, Any], console: Console) -> None:
    """Print why a run failed or waits, or which key holders open its sums."""
    if holders := data.get("key_holders"):
        console.print(f"secure sum: the learner sees nothing but sums, which {' and '.join(holders)} must open")
    if reason := data.get("reason"):
        meaning = "waits for owners to say yes:" if data["state"] == "recruiting" else "paused, and asks again:"
        console.print(f"[yellow]{meaning}[/] {escape(reason)}")
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
    """Return a table for narrow terminals: long cells are folded, not cut; the first ``left`` columns align left."""
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    for number, heading in enumerate(headings):
        longest = max(map(len, heading.split()))
        justify: JustifyMethod = "left" if number < left else "right"
        table.add_column(heading, justify=justify, min_width=longest, overflow="fold")
    return table


def plain(text: str) -> str:
    """Escape a text so that a table does not read it as markup."""
    return escape(text)


def new_grid() -> Table:
    """Return a table of two columns without lines: a heading, and its content."""
    return Table.grid(padding=(0, 2))


def show_runs(runs: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print runs as a table."""
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
    """Print the roster as a table."""
    table = new_table("name", "role", "state", "connected", left=4)
    for member in members:
        connected = {True: "yes", False: "no", None: "-"}[member["connected"]]
        state = f"{member['state']}{', unchecked' if member.get('unchecked') else ''}"
        table.add_row(member["name"], member["role"], state, connected)
    console.print(table)


def show_receipts(opened: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print opened rounds as a table."""
    table = new_table("round", "contributors", "opened by", "signed", left=4)
    for opened_round in opened:
        for receipt in opened_round["receipts"]:
            signature = f"{receipt['signature'][:16]}…"
            table.add_row(
                str(opened_round["round"]), ", ".join(opened_round["contributors"]), receipt["key_holder"], signature
            )
    console.print(table)


def measured(metrics: Mapping[str, Metric]) -> str:
    """Return a simulation's metrics as a line, each to four digits."""
    return "; ".join(f"{METRIC_WORDS[name]} {metric.mean:#.4g}, sd {metric.sd:.4f}" for name, metric in metrics.items())


def beside(baselines: Baselines, kind: StudyKind) -> str:
    """Return a simulation's baselines as a line."""
    figures_in_words = ", ".join(
        f"{title} {value:.4f}" + ("" if auc is None else f" (AUC {auc:.4f})")
        for title, value, auc in baselines.rows(kind)
    )
    return f"beside it, over {so_many(baselines.repeat, 'repetition')}: {figures_in_words}"


def threshold_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a model's threshold, and its evaluation there."""
    yield from threshold_in_words(document)
    yield from evaluation_lines(at_threshold(document), document["study"])


def counted_by(study: Mapping[str, Any]) -> str:
    """Return what a study's document counts, in the plural: rows, or persons."""
    return EXAMPLE_NAMES["person" if study.get("person") else "replace_one"]


def evaluation_lines(
    evaluation: Mapping[str, Any] | None, study: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[str]:
    """Yield the lines that show the evaluation of a document or an event; nothing for None.

    ``study`` is the document's, and says what it counts: rows, if it is empty.
    """
    if evaluation is None:
        return
    cost = f"epsilon {no_less(evaluation['epsilon'])}, delta {evaluation['delta']:g}"
    n_parties = len(evaluation["contributors"])
    yield f"on {evaluation['rows']} {counted_by(study)} held out by {n_parties} parties, at {cost}:"
    if words := weighed_in_words(study):
        yield f"  {words}"
    yield from (f"  {title} {_interval(figure, evaluation['rate'])}" for title, figure in figures(evaluation))
    if caution := unsaid_caution(evaluation):
        yield f"  caution: {caution}"


def _interval(figure: Mapping[str, Any], rate: float) -> str:
    """Return an estimate and its interval, each to four digits."""
    estimate = "not known" if figure["estimate"] is None else f"{figure['estimate']:.4g}"
    low = "-∞" if figure["low"] is None else f"{figure['low']:.4g}"
    return f"{estimate}, between {low} and {figure['high']:.4g} at {rate:.0%}"


def promises(guarantees: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the guarantees of a document as lines, then once what all of them assume."""
    bounded = [guarantee for guarantee in guarantees if guarantee["epsilon"] is not None]
    shared = in_common([guarantee["assumptions"] for guarantee in bounded])
    for guarantee in guarantees:
        yield _promise(guarantee)
        if guarantee["epsilon"] is not None:
            specific = [assumption for assumption in guarantee["assumptions"] if assumption not in shared]
            yield from (f"  if {as_clause(assumption)}" for assumption in specific)
    if shared:
        yield "all of that holds if:" if len(bounded) > 1 else "that holds if:"
        yield from (f"  - {as_sentence(assumption)}" for assumption in shared)


def _promise(guarantee: Mapping[str, Any]) -> str:
    """Return a line that says what a guarantee promises, and against whom."""
    helpers = f" with the help of {guarantee['trust']} of the parties" if guarantee["trust"] else ""
    observer = f"anyone who sees the {guarantee['view']}{helpers}"
    if guarantee["epsilon"] is None:
        return f"no privacy against {observer}"
    figures = f"epsilon {no_less(guarantee['epsilon'])}, delta {guarantee['delta']:g}"
    hidden = hidden_at(guarantee["adjacency"], guarantee.get("owners", 1))
    return f"{figures} for {hidden}, against {observer} ({guarantee['calibration']} calibration)"
