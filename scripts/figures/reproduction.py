"""`docs/reproduction.md`: each claim, what the paper has, what was measured, and the verdict, as the runs wrote them.

A run replaces the rows of the figures that it drew and leaves the others. A quick run, which cannot tell, also leaves
those that a full run wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from scripts.figures.frame import Figure, Sweep, Verdict

HOLDS, FAILS, TOO_FEW = "holds", "DOES NOT HOLD", "too few runs to tell"
_HEAD = """\
# Reproduction

What the papers claim, and what Parley measures, with the number of runs of each point. `make figures` writes this
page: it replaces the rows of each figure that it draws, so change the code, not the page. A claim that does not hold
is marked in capitals; nothing is tuned until it holds. The modules of `scripts/figures` say what is measured, and
what in it is ours.
"""
_COLUMNS = "| figure | claim | the paper has | measured | runs | verdict |"
_RULE = "|---|---|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Row:
    """A claim's row in its paper's table."""

    figure: str
    claim: str
    published: str
    measured: str
    runs: str
    verdict: str

    @classmethod
    def of(cls, figure: Figure[Any], sweep: Sweep, verdict: Verdict) -> Row:
        """Make the row of what one sweep of a figure says about a claim; too few runs say nothing."""
        word = TOO_FEW if sweep is figure.quick else HOLDS if verdict.holds else FAILS
        return cls(figure.name, verdict.claim, verdict.published, verdict.evidence, sweep.runs, word)

    def __str__(self) -> str:
        return f"| {' | '.join(cell.replace('|', '∣') for cell in astuple(self))} |"


def update(page: Path, figures: Sequence[Figure[Any]], judged: Mapping[str, Sequence[Row]]) -> None:
    """Put the rows of the figures that were drawn into the page; rows of what is no figure any more go."""
    lines = _read(page)
    for name, rows in judged.items():
        new = [str(row) for row in rows]
        if _tell(new) or not _tell(lines.get(name, ())):
            lines[name] = new
    parts = [_HEAD]
    for paper, mine in groupby(figures, lambda figure: figure.paper):
        if table := [line for figure in mine for line in lines.get(figure.name, ())]:
            parts.append("\n".join((f"\n## {paper.citation}\n", _COLUMNS, _RULE, *table, "")))
    page.write_text("".join(parts), encoding="utf-8")


def _read(page: Path) -> dict[str, list[str]]:
    """The lines of each figure's rows; of no page, none."""
    lines: dict[str, list[str]] = {}
    for line in page.read_text(encoding="utf-8").splitlines() if page.exists() else ():
        if line.startswith("| ") and line != _COLUMNS:
            lines.setdefault(line.split(" ")[1], []).append(line)
    return lines


def _tell(lines: Iterable[str]) -> bool:
    """Whether there are rows of a run that was long enough to judge."""
    return any(TOO_FEW not in line for line in lines)
