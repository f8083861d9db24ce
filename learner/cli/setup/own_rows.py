"""What becomes of the rows of a public table under the study that was drafted of it: how many would be kept empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.common.data.columns import missing_policy
from parley.common.data.study import Study
from parley.common.encoding.spelling import so_many
from parley.common.files.sources import DataSource
from parley.common.files.study_fit import StudyFit, fit_of_source
from parley.common.files.table_survey import SurveyedColumn

_MOST_TOLD = 5


@dataclass(frozen=True, slots=True)
class OwnRows:
    """How a public table fits its study; ``blanks`` are shares of rows, by column, most first, of what is not filled.

    ``label`` is the column to be learnt, which is neither filled nor left out.
    """

    fit: StudyFit
    blanks: Mapping[str, float]
    label: str

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"fits": self.fit.fits, "dropped": self.fit.dropped, "blanks": dict(self.blanks)}

    def lines(self) -> list[str]:
        """For people: nothing where all rows are used."""
        if not self.fit.fits:
            kinds = ((name, kind, rows) for name, counts in self.fit.faults.items() for kind, rows in counts.items())
            told = [f"{name}: {kind}: {so_many(rows, 'row')}" for name, kind, rows in kinds]
            return ["warning: this file does not fit the study itself", *_few(told), *self._blanks()]
        if not self.fit.dropped:
            return []
        share = f"{self.fit.dropped:.2%} of the rows of this file miss a value"
        return [f"warning: {share}: they would be kept as empty ones, and teach nothing", *self._blanks()]

    def _blanks(self) -> list[str]:
        """The columns with the most blanks, and what helps."""
        if not self.blanks:
            return []
        of_label = {self.label: " (the label)"}
        told = [f"{name!r}{of_label.get(name, '')} {share:.2%}" for name, share in self.blanks.items()]
        lines = [f"most blanks: {', '.join(_few(told))}"]
        if self.blanks.keys() - {self.label}:
            lines.append(
                "--leave-out NAME does without a column, --fill NAME=VALUE fills one, --missing value fills all"
            )
        return lines


def _few(told: Sequence[str]) -> list[str]:
    """The first, and how many more there are."""
    more = len(told) - _MOST_TOLD
    return [*told[:_MOST_TOLD], *([f"and {more:,} more"] if more > 0 else [])]


def own_rows(study: Study, data: DataSource, columns: Sequence[SurveyedColumn]) -> OwnRows:
    """How the public table fits of which a study was drafted. Raises InvalidDataError where it cannot be loaded."""
    filled = {each.name for each in study.named if missing_policy(each, study.missing) == "value"}
    wanted = frozenset(study.table_names) - filled
    blank = [(each.name, each.blank) for each in columns if each.name in wanted and each.blank]
    blanks = dict(sorted(blank, key=lambda pair: -pair[1]))
    return OwnRows(fit_of_source(study, data), blanks, study.label.name)
