"""What Wu, Farokhi, Smith & Kaafar 2020 prove, beside what comes out: Theorems 2 and 3, Remark 2, and the average.

*Theorem 2* bounds the fitness above the least by 8 Xi^2 rho / (L n^2) sum 1 / epsilon^2, for a horizon that is long
enough, by steps rho / (T^2 k). These steps add up to rho (1 + ln T) / T^2, so the model stays where it began: the gap
is drawn over the horizon beside the bound, for loans, n = 2,100, epsilon = 10, Xi = 2, rho = 1, L = .1.

*Theorem 3* has a constant c_2 that nobody can compute. What it would have to be at least, in units of the least
fitness, is what is measured over sqrt(sum 1 / epsilon^2) / n.

*Remark 2*: one owner who holds all examples is a central learner. What three of a third cost beside it is measured.

*Algorithm 2* takes a round's old iterate into the average or its new one: the print can be read either way. Both
averages of the same runs are compared.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from parley.common.algorithms.wu import theorem_2, theorem_3
from parley.common.arrays import FloatArray
from scripts.figures.frame import Figure, Ruling, Sweep, Verdict, standard_error
from scripts.figures.point import Point
from scripts.figures.wu import EPSILONS, PAPER, QUICK_REPEAT, REPEAT, SIZES, SUBJECTS
from scripts.figures.wu_plots import two_digits
from scripts.figures.wu_runs import FRAUDS, LOANS, Owners, gaps_of_printed_steps, psi_of_averages, psi_of_models

HORIZONS = (1, 10, 100, 1_000)
OWNERS = Owners.equal(2_100, 10.0)
RHO = 1.0
CENTRAL = (Owners.equal(4_500, 1.0), Owners.equal(4_500, 1.0, owners=1))
"""Three owners, and one, of as many examples and the same budget."""
SIZE = SIZES[FRAUDS.folder][-2]
AVERAGED = {e: Owners.equal(SIZE, e) for e in EPSILONS}
PASSES = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Theorems:
    """Gaps by horizon, (runs,) each; psi of three owners and of one; psi of averages of (old, new), (runs, 2) each."""

    gaps: Mapping[int, FloatArray]
    central: Sequence[FloatArray]
    averages: Mapping[float, FloatArray]

    @property
    def bound(self) -> float:
        """What Theorem 2 prints."""
        terms = LOANS.parameters
        epsilons, n = np.array(OWNERS.epsilons), sum(OWNERS.sizes)
        return theorem_2(terms["l1_clip"], RHO, terms["regularization"], n, epsilons)

    @property
    def constants(self) -> FloatArray:
        """What Theorem 3's c_2 is at least, in units of the least fitness, by budget (EPSILONS,)."""
        units = [theorem_3(SIZE, np.array(owners.epsilons)) for owners in AVERAGED.values()]
        return np.array([psi[:, 1].mean() for psi in self.averages.values()]) / units


def sweep(repeat: int) -> Sweep:
    """All that is measured: printed steps, three owners and one, and two averages."""
    gaps = {
        ("gap", T): Point.of(
            gaps_of_printed_steps, LOANS.folder, sizes=OWNERS.sizes, epsilons=OWNERS.epsilons, n_rounds=T, rho=RHO,
            repeat=max(1, repeat // 10),
        )
        for T in HORIZONS
    }  # fmt: skip
    central = {
        ("central", len(one.sizes)): Point.of(
            psi_of_models, LOANS.folder, setting=LOANS.name, sizes=one.sizes, epsilons=one.epsilons, repeat=repeat
        )
        for one in CENTRAL
    }
    averages = {
        ("average", e): Point.of(
            psi_of_averages, FRAUDS.folder, setting=FRAUDS.name, sizes=one.sizes, epsilons=one.epsilons, repeat=repeat
        )
        for e, one in AVERAGED.items()
    }
    return Sweep(gaps | central | averages, f"{repeat}")


def read(results: Mapping[Any, Any]) -> Theorems:
    """All results as arrays."""
    arrays = {label: np.asarray(result, dtype=np.float64) for label, result in results.items()}
    return Theorems(
        {T: arrays["gap", T] for T in HORIZONS},
        [arrays["central", len(one.sizes)] for one in CENTRAL],
        {e: arrays["average", e] for e in AVERAGED},
    )


def judge(table: Theorems) -> Iterable[Verdict]:
    """Theorem 2 is false, Theorem 3 cannot be judged, and a central learner has a share of the noise."""
    gaps = {T: float(gap.mean()) for T, gap in table.gaps.items()}
    evidence = f"bound {table.bound:.2g}; gap {', '.join(f'{gap:.3g} after T = {T:,}' for T, gap in gaps.items())}"
    yield Verdict("wu.theorem-2", "loans, n = 2,100, ε = 10", Ruling.of(gaps[HORIZONS[-1]] <= table.bound), evidence)
    constants = (f"{two_digits(least)} at ε = {e:g}" for least, e in zip(table.constants, EPSILONS, strict=True))
    evidence = f"n = {SIZE:,}: for the mean ψ to be within the bound, c₂ / f* is at least {', '.join(constants)}"
    yield Verdict("wu.theorem-3", SUBJECTS[FRAUDS.name], Ruling.OPEN, evidence)
    three, one = (float(psi.mean()) for psi in table.central)
    ratio, expected = three / one, len(CENTRAL[0].sizes) / len(CENTRAL[1].sizes)
    evidence = f"ψ {three:.3g} of three owners, {one:.3g} of one who holds all: {ratio:.2f} times, 3 by the bounds"
    holds = abs(ratio / expected - 1) <= PASSES
    yield Verdict("wu.remark-2", "loans, n = 4,500, ε = 1", Ruling.of(holds), evidence)
    apart = {e: psi[:, 0] - psi[:, 1] for e, psi in table.averages.items()}
    differences = ", ".join(
        f"{gap.mean():+.2g} ± {2 * standard_error(gap):.1g} of {table.averages[e][:, 1].mean():.3g} at ε = {e:g}"
        for e, gap in apart.items()
    )
    yield Verdict("wu.old-or-new", SUBJECTS[FRAUDS.name], Ruling.OPEN, f"ψ by the old less ψ by the new: {differences}")


def write(table: Theorems, path: Path) -> None:
    """One line a mean: what it is of, where, and what it is."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["what", "x", "mean"])
        writer.writerow(["Theorem 2's bound", "", f"{table.bound:.6g}"])
        writer.writerows(["gap by the printed steps", T, f"{gap.mean():.6g}"] for T, gap in table.gaps.items())
        writer.writerows(
            ["psi of owners", len(one.sizes), f"{psi.mean():.6g}"]
            for one, psi in zip(CENTRAL, table.central, strict=True)
        )
        for column, name in enumerate(("old", "new")):
            writer.writerows(
                [f"psi, average of the {name} iterates", e, f"{psi[:, column].mean():.6g}"]
                for e, psi in table.averages.items()
            )


def draw(title: str, table: Theorems, path: Path) -> None:
    """The gap over the horizon beside Theorem 2's bound; psi over the budget by either average."""
    with mpl.rc_context({"backend": "agg", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8), layout="constrained")
        figure.suptitle(title, fontsize=11, x=0.01, ha="left")
        left.plot(list(table.gaps), [gap.mean() for gap in table.gaps.values()], "o-", label="measured, printed steps")
        left.axhline(table.bound, linestyle="--", color="#D55E00", label="Theorem 2 as printed")
        left.set(xlabel="horizon T", ylabel="f - f*", xscale="log", yscale="log")
        for column, (name, marker) in enumerate((("old", "s--"), ("new", "o-"))):
            means = [psi[:, column].mean() for psi in table.averages.values()]
            right.plot(list(table.averages), means, marker, label=f"average of the {name} iterates", fillstyle="none")
        right.set(xlabel="ε", ylabel="relative fitness ψ", xscale="log", yscale="log")
        for axes in (left, right):
            axes.grid(color="0.92")
            axes.legend(frameon=False)
        figure.savefig(path, dpi=150)
        plt.close(figure)


FIGURES = (
    Figure(
        PAPER, "wu_theorems", "Theorem 2 (left), and Algorithm 2's two averages (right)", sweep(REPEAT),
        sweep(QUICK_REPEAT), read, write, draw, judge,
    ),
)  # fmt: skip
