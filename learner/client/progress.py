"""A run's progress as a bar, on a terminal or in a notebook."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from parley.common.learning.statistics import STATISTICS
from parley.learner.runs.states import RunEvent

METRIC_WORDS = {"objective": "objective"} | {
    name: statistic.title for name, statistic in STATISTICS.items() if statistic.title
}
"""The names of a model's metrics on a terminal."""


def terminal(*, stderr: bool = False, highlight: bool = True) -> Console:
    """Return a console for people; it draws no bars and colours if it is no terminal or ``NO_COLOR`` is set."""
    is_plain = bool(os.environ.get("NO_COLOR"))  # rich would leave out colours alone
    return Console(stderr=stderr, highlight=highlight, force_terminal=False if is_plain else None)


class RunBar:
    """A bar that follows a run's events; it draws only on a terminal or in a notebook, and only if ``shown``.

    In a notebook it needs ipywidgets, as rich does.
    """

    def __init__(self, *, shown: bool = True, console: Console | None = None) -> None:
        console = console or terminal(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
            disable=not (shown and (console.is_terminal or console.is_jupyter)),
        )
        self._task = self._bar.add_task("queued", total=None, figures="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, event: RunEvent) -> None:
        """Draw an event."""
        news = event.news
        match event.kind:
            case "state":
                self._bar.update(self._task, description=news["state"], total=news.get("rounds"))
                if reason := news.get("reason"):
                    self._bar.console.print(f"{news['state']}: {reason}", markup=False, highlight=False)
            case "round":
                self._bar.update(self._task, completed=news["round"], total=news["of"], figures=_figures(news))
            case "dropped":
                self._bar.console.print(f"dropped {news['party']}: {news['reason']}", markup=False, highlight=False)


def _figures(news: Mapping[str, Any]) -> str:
    """Return a round's figures as a line."""
    spent = max(news["epsilon"].values(), default=0.0)
    return " · ".join([f"{len(news['contributors'])} parties", f"ε spent ≤ {spent:.3g}", *metrics_in_words(news)])


def metrics_in_words(news: Mapping[str, Any]) -> list[str]:
    """Return the metrics of a round's weights on the learner's public examples, as texts."""
    return [f"{METRIC_WORDS[name]} {value:.3f}" for name, value in news.items() if name in METRIC_WORDS]
