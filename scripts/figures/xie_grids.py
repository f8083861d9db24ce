"""What is run for each figure of Xie's thesis: its own settings, of threes and sevens, as far as MNIST allows.

Ours are the repeats where they are more than the thesis's, the values of h, and .003, .007 and .03 among those of
Lambda.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from scripts.figures.curves import Curve
from scripts.figures.frame import Sweep
from scripts.figures.point import Point
from scripts.figures.xie_runs import AVERAGE, F_FULL, F_LOC, GLOBAL, LOCAL, UNIT_VIEWS, Errors, Setting, alone, joined

Changes = Mapping[str, Any]
"""Fields of a setting that differ."""
PUBLIC_LINES, ALL_LINES = (AVERAGE, F_LOC), (AVERAGE, F_LOC, F_FULL, UNIT_VIEWS)
NON_PRIVATE, OUTPUT, OBJECTIVE, PRINTED, RIGHT = (
    "non-private",
    "output",
    "objective",
    "generalized, (3.8)",
    "generalized",
)
_FASTER = 10
"""How many times fewer runs a quick figure takes."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Panels over what varies, the ``label``; ``x`` makes the changes of a number, of the ``xs``.

    ``measured`` are further arguments of what measures, which returns the errors of all lines at once.
    """

    x: Callable[[float], Changes]
    xs: Sequence[float]
    label: str
    panels: Mapping[str, Changes] = field(default_factory=lambda: {"": {}})
    base: Setting = field(default_factory=Setting)
    repeat: int = 20
    measure: Callable[..., Errors] = joined
    measured: Changes = field(default_factory=lambda: {"lines": PUBLIC_LINES})
    seconds: float = 0.1
    """About how long a run takes."""

    def sweep(self, *, quick: bool = False) -> Sweep:
        """Return the points to measure, by panel and x."""
        repeat = max(self.repeat // _FASTER, 2) if quick else self.repeat
        points = {}
        for panel, changes in self.panels.items():
            for x in self.xs:
                terms = {**self.measured, **changes}
                own = {name: terms.pop(name) for name in self.measured}
                setting = replace(self.base, **terms, **self.x(x))
                points[panel, x] = Point.of(self.measure, setting.data, about_seconds=repeat * self.seconds,
                                            repeat=repeat, **own, **asdict(setting))  # fmt: skip
        return Sweep(points, str(repeat))

    def read(self, results: Mapping[tuple[str, float], Errors]) -> list[Curve]:
        """Read the results as a curve for each line of each panel."""
        runs: dict[tuple[str, str], dict[float, Any]] = {}
        for (panel, x), errors in results.items():
            for line, values in errors.items():
                runs.setdefault((panel, line), {})[x] = np.array(values)
        return [Curve(panel, line, points) for (panel, line), points in runs.items()]


def varying(name: str) -> Callable[[float], Changes]:
    """The changes that set a field: to a whole number where it counts sites or rows."""
    is_whole = name in {"sites", "rows", "aggregator", "own_rows"}
    return lambda x: {name: int(x) if is_whole else x}


def steps(first: float, last: float, step: float) -> tuple[float, ...]:
    """The numbers from first to last, by steps."""
    return tuple(round(first + i * step, 6) for i in range(round((last - first) / step) + 1))


# ── one site (Chapter 3) ─────────────────────────────────────────────────────

_ONE: Changes = {OUTPUT: (OUTPUT, "paper"), OBJECTIVE: (OBJECTIVE, "paper")}
_BOTH: Mapping[str, Changes] = {"logistic": {"loss": "logistic"}, "Huber, h = .5": {}}
_ALONE = Grid(
    varying("epsilon"), steps(0.025, 0.375, 0.025), "ε", base=Setting(sites=1, rows=8678, aggregator=0), measure=alone,
    measured={"mechanisms": {NON_PRIVATE: (), **_ONE}}, panels=_BOTH, seconds=0.15,
)  # fmt: skip
over_epsilon = replace(_ALONE, panels={**_BOTH, "Huber, h = .5, Algorithm 3": {"mechanisms": {
    PRINTED: ("generalized", "thesis"), RIGHT: ("generalized", "paper")}}})  # fmt: skip
over_rows = replace(_ALONE, x=varying("rows"), xs=steps(1735, 8675, 1735), label="m, rows of the site")
over_lambda = replace(
    _ALONE, x=varying("regularization"), label="Λ", repeat=40, seconds=0.04,
    xs=tuple(sorted([*(float(f"1e{power}") for power in range(-13, 3)), 0.003, 0.007, 0.03])),
    panels={"logistic": {"loss": "logistic"}}, measured={"mechanisms": {OBJECTIVE: (OBJECTIVE, "paper")}},
)  # fmt: skip
over_half_width = replace(
    _ALONE, x=varying("half_width"), xs=(0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0), label="h of the Huber loss", repeat=40,
    panels={"ε = .1": {"epsilon": 0.1}, "ε = .375": {"epsilon": 0.375}}, measured={"mechanisms": _ONE},
)  # fmt: skip

# ── many sites (Chapter 5) ───────────────────────────────────────────────────

_EPSILONS, _ROWS, _AGGREGATOR = steps(0.025, 0.75, 0.025), steps(39, 780, 39), steps(79, 790, 79)
_SITES = steps(2, 50, 1)
_OTHERS: Mapping[str, Changes] = {
    "nine others without noise": {"epsilon": None},
    "nine others at ε = 2": {"epsilon": 2.0},
}
own_epsilon = Grid(varying("own_epsilon"), steps(0.025, 0.5, 0.025), "one site's ε'", _OTHERS)
own_rows = Grid(
    varying("own_rows"), steps(413, 4543, 413), "m', rows of one site",
    {"without noise": {"epsilon": None}, "all at ε = 2": {"epsilon": 2.0}}, Setting(rows=413, aggregator=413),
    seconds=0.3,
)  # fmt: skip
histograms = Grid(
    varying("sites"), (10,), "N", {"without noise": {}}, Setting(epsilon=None), 360,
)  # fmt: skip
_FREE = Setting(epsilon=None)
free_rows = Grid(varying("rows"), _ROWS, "m, rows of a site", base=_FREE)
free_aggregator = Grid(varying("aggregator"), _AGGREGATOR, "m0, rows of the aggregator", base=_FREE)
free_sites = Grid(varying("sites"), _SITES, "N, sites", base=replace(_FREE, rows=170, aggregator=170), repeat=100)
_PRIVATE: Changes = {"measured": {"lines": ALL_LINES}, "repeat": 40}
epsilons = Grid(varying("epsilon"), _EPSILONS, "ε", base=Setting(dealt_again=False), **_PRIVATE)
rows = Grid(varying("rows"), _ROWS, "m, rows of a site", **_PRIVATE)
aggregator = Grid(varying("aggregator"), _AGGREGATOR, "m0, rows of the aggregator", **_PRIVATE)
sites = Grid(
    varying("sites"), _SITES, "N, sites", base=Setting(rows=170, aggregator=170),
    repeat=50, measured={"lines": ALL_LINES},
)  # fmt: skip
everybody = Grid(
    varying("epsilon"),
    steps(0.1, 1.0, 0.1),
    "ε",
    measured={"lines": (GLOBAL, LOCAL, *ALL_LINES)},
    repeat=40,
    seconds=0.2,
)
forests = Grid(
    varying("epsilon"), steps(0.025, 0.25, 0.025), "ε", {"Covertype, types 1 and 2": {}},
    Setting("covertype", regularization=1e-7, rows=42_762, aggregator=42_762), 10, seconds=5.0,
)  # fmt: skip
