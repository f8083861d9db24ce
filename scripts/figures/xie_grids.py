"""What is run for each figure of Xie's thesis: panels of lines over one thing that varies, all around one setting.

The setting that all vary is the thesis's: MNIST's threes and sevens, the Huber loss, Lambda = .01, ten sites of 789
rows. What it does not say is ours: the aggregator's 789 rows, objective perturbation at sites and aggregator, the
grids, and all repeats but 360 and 200. The public feature method weighs by the first m0 of the rows that made the
components.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from scripts.figures.curves import Curve
from scripts.figures.frame import Sweep
from scripts.figures.point import Point
from scripts.figures.xie_data import ALL_ROWS, UNIT_ROWS, folder_of
from scripts.figures.xie_plots import TIGHT
from scripts.figures.xie_runs import Setting, distances_on, errors_on

Changes = Mapping[str, Any]
"""Fields of a setting that differ."""
Lines = Mapping[str, Changes]
EPSILONS = (0.1, 0.3, 1.0, 3.0)
MNIST, KDD, FORESTS = "MNIST 3 or 7", "KDD99", "Covertype"
_NOT_PRIVATE = ALL_ROWS + " (not private)"
DIGITS = {
    MNIST + way + panel: "mnist" + way + every
    for way in ("", UNIT_ROWS) for panel, every in (("", ""), (_NOT_PRIVATE, ALL_ROWS))
}  # fmt: skip
"""The ways to prepare MNIST, by their panels: as it is done in all figures, and what else the thesis may have done."""
_DATA = {**DIGITS, KDD: "kdd99", FORESTS: "covertype"}
_SECONDS = 0.2
"""About what a run takes."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Panels, of lines each, over what varies, the ``label``; ``x`` makes the changes of a number, of the ``xs``.

    Each point is run ``repeat`` times, or in a quick figure ``few``, in each of ``chunks`` that run side by side.
    """

    x: Callable[[float], Changes]
    xs: Sequence[float]
    panels: Mapping[str, tuple[Changes, Lines]]
    base: Setting = field(default_factory=Setting)
    repeat: int = 20
    few: int = 2
    chunks: int = 1
    measure: Callable[..., Any] = errors_on
    label: str = "ε"

    def settings(self) -> Iterator[tuple[tuple[str, str, float], Setting]]:
        """Panel, line and x, and what is run there."""
        for panel, (changes, lines) in self.panels.items():
            for line, terms in lines.items():
                for x in self.xs:
                    yield (panel, line, x), replace(self.base, **{**changes, **terms, **self.x(x)})

    def sweep(self, repeat: int) -> Sweep:
        """Return the points to measure, each in chunks of ``repeat`` runs."""
        points = {}
        for label, setting in self.settings():
            seconds = repeat * _SECONDS * setting.sites / 10
            for chunk in range(self.chunks):
                first = {"first": chunk * repeat} if self.chunks > 1 else {}
                points[*label, chunk] = Point.of(
                    self.measure, folder_of(setting.data), about_seconds=seconds, repeat=repeat, **first,
                    **asdict(setting),
                )  # fmt: skip
        return Sweep(points, str(repeat * self.chunks))

    def read(self, results: Mapping[tuple[str, str, float, int], Any]) -> list[Curve]:
        """Read the results as a curve for each line of each panel."""
        curves: dict[tuple[str, str], Curve] = {}
        for (panel, line, x, _), errors in results.items():
            runs, bound = errors if self.measure is distances_on else (errors, None)
            curve = curves.setdefault((panel, line), Curve(panel, line, {}, None if bound is None else {}))
            merged = dict(curve.runs) | {x: np.append(curve.runs.get(x, []), runs)}
            bounds = None if bound is None else {**(curve.bound or {}), x: bound}
            curves[panel, line] = replace(curve, runs=merged, bound=bounds)
        return list(curves.values())


def varying(name: str) -> Callable[[float], Changes]:
    """The changes that set a field: to a whole number where it counts sites or rows."""
    is_whole = name in {"sites", "rows", "aggregator"}
    return lambda x: {name: int(x) if is_whole else x}


def also_tight(lines: Lines) -> Lines:
    """The lines, and each with tight noise."""
    return {**lines, **{name + TIGHT: {**terms, "noise": "tight"} for name, terms in lines.items()}}


def at(data: str, **changes: object) -> Changes:
    """The changes that take the data of a panel."""
    return {"data": _DATA[data], **changes}


NO_NOISE: Lines = {"non-private": {"method": "global", "mechanism": "none"}}
OUTPUT: Lines = {"output": {"method": "global", "mechanism": "output"}}
OBJECTIVE: Lines = {"objective": {"method": "global", "mechanism": "objective"}}
GENERALIZED: Lines = {"generalized": {"method": "global", "mechanism": "generalized"}}
HESSIAN: Lines = {"thesis's Hessian bound": {"method": "global", "mechanism": "generalized", "noise": "thesis"}}
AVERAGE: Lines = {"average": {"method": "average"}}
PUBLIC: Lines = {"feature, public": {"method": "public"}}
FULL: Lines = {"feature, full": {"method": "full"}}
ONE_SITE: Lines = {**NO_NOISE, **OUTPUT, **OBJECTIVE, **GENERALIZED, **also_tight({**OUTPUT, **OBJECTIVE})}
JOINED: Lines = {**AVERAGE, **PUBLIC, **FULL}
EVERYBODY: Lines = {
    **NO_NOISE, "global": {"method": "global"}, "local": {"method": "local"}, **also_tight(JOINED),
}  # fmt: skip
_LOGISTIC = {name: {**terms, "loss": "logistic"} for name, terms in {**OUTPUT, **OBJECTIVE}.items()}
NUMBERS: Lines = {**NO_NOISE, **_LOGISTIC, **also_tight(JOINED)}
CASES: Mapping[str, tuple[Changes, Lines]] = {
    "sites private only": ({"second": "none"}, also_tight({**AVERAGE, **PUBLIC, **FULL})),
    "aggregator private only": (
        {"mechanism": "none"}, also_tight({**FULL, "average, noise once": {"method": "once"}}),
    ),
    "both private": ({}, also_tight(FULL)),
}  # fmt: skip
LOSSES_OF: Mapping[str, tuple[Changes, Lines]] = {
    "MNIST 3 or 7, logistic": (at(MNIST, loss="logistic"), ONE_SITE),
    "MNIST 3 or 7, Huber": (at(MNIST), ONE_SITE),
    "KDD99, Huber": (at(KDD), ONE_SITE),
}

numbers = Grid(
    varying("epsilon"),
    (0.1, 1.0),
    {name: (at(name), NUMBERS) for name in (*DIGITS, KDD)},
    repeat=50,
    few=1,
    chunks=4,
)
forests = replace(numbers, panels={FORESTS: (at(FORESTS), NUMBERS)})
over_epsilon = Grid(varying("epsilon"), EPSILONS, LOSSES_OF)
over_rows = Grid(
    lambda n: {"rows": int(n), "sites": 1},
    (500, 1_000, 2_000, 4_000, 8_000),
    {name: LOSSES_OF[name] for name in LOSSES_OF if "Huber" in name},
    label="n",
)
over_lambda = Grid(
    varying("regularization"),
    tuple(float(f"1e{power}") for power in range(2, -14, -1)),
    {name: (at(MNIST, loss=loss), {**NO_NOISE, **also_tight(OBJECTIVE)}) for name, loss in (("logistic", "logistic"),
                                                                                            ("Huber", "huber"))},
    label="Λ",
)  # fmt: skip
hessians = Grid(
    varying("epsilon"),
    EPSILONS,
    {name: (at(name), {**NO_NOISE, **GENERALIZED, **HESSIAN, "generalized" + TIGHT: {
        **GENERALIZED["generalized"], "noise": "tight"}}) for name in (MNIST, KDD)},
)  # fmt: skip
own_epsilon = Grid(
    lambda epsilon: {"own": (789, epsilon), "epsilon": 1.0},
    (0.01, 0.03, 0.1, 0.3, 1.0),
    {name: (at(name), JOINED) for name in (MNIST, KDD)},
    label="ε'",
)
own_rows = replace(
    own_epsilon, x=lambda rows: {"own": (int(rows), 1.0), "epsilon": 1.0}, xs=(25, 50, 100, 400, 789), label="m'"
)
histograms = Grid(
    varying("epsilon"), (0.1,), {MNIST: (at(MNIST), {**AVERAGE, **PUBLIC}), KDD: (at(KDD), {**AVERAGE, **PUBLIC})},
    chunks=18, few=1,
)  # fmt: skip
few_histograms = replace(histograms, xs=(1.0,), chunks=10)
cases = Grid(varying("epsilon"), EPSILONS, CASES)
everybody = Grid(varying("epsilon"), EPSILONS, {name: (at(name), EVERYBODY) for name in (MNIST, KDD)})
bounds = Grid(
    varying("epsilon"),
    (*EPSILONS, 10.0),
    {name: ({}, {line: {**terms}}) for name, line, terms in (
        ("output", "output", OUTPUT["output"]),
        ("objective", "objective", OBJECTIVE["objective"]),
        ("average, of output", "average", {"method": "average", "mechanism": "output"}),
    )},
    measure=distances_on, repeat=40,
)  # fmt: skip
