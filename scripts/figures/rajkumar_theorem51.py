"""Rajkumar & Agarwal's section 5: Theorem 5.1 on draws of the noise, Proposition 5.2, Theorem 5.3, and a party alone.

What is proven is in `parley.common.forecast.tilted_risk`, as printed and sharper. Each setting is tried on 40 data sets
with 10 draws of eta each; the settings are the paper's own sizes and budgets, with a lambda that is ours, and one of
many rows, at which the printed bound tells something. At the paper's own it exceeds log 2, which J(0) - J(w*)
does not, but for N = 1,000 and epsilon = .2.

Theorem 5.3 is tried on points in the ball, labelled by w_0: with the number of rows that it asks for where kappa is 1,
which it does not say; and with that of our explicit version.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from parley.common.algorithms.psgd import Psgd
from parley.common.arrays import FloatArray
from parley.common.forecast.tilted_risk import FAILURE, Proposition52, Theorem53, TiltedRisk, squared_length, theorem53
from parley.common.learning.losses import Logistic
from parley.common.privacy.calibration import sigma_star, slack
from parley.common.protocol.facts import FederationFacts
from parley.learner.experiments.datasets import sizes_by_shares
from scripts.figures.frame import Figure, Ruling, Sweep, Verdict, power
from scripts.figures.point import Point
from scripts.figures.rajkumar import DELTA, PAPER, REGULARIZATION, SHARES
from scripts.figures.rajkumar_runs import comparisons, excesses

SETS, DRAWS, QUICK_SETS = 40, 10, 4
FEW_SETS, FEW_DRAWS = 10, 4
"""Of Theorem 5.3's explicit version, whose data sets have 900,000 rows."""
NORM, TAU = 2.0, 0.1
AT_ZERO = math.log(2)
"""By how much J exceeds J(w*) at most at weights of 0."""
_SLOPE = 0.1


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of Theorem 5.1."""

    data: str
    n: int
    d: int
    regularization: float
    epsilon: float
    delta: float = DELTA

    @property
    def name(self) -> str:
        """The setting in words."""
        return f"N = {self.n:,}, d = {self.d}, λ = {self.regularization:g}, ε = {self.epsilon:g}, δ = {self.delta:g}"

    @property
    def sigma(self) -> float:
        """The deviation of eta."""
        _, epsilon_tilde = slack(self.epsilon, self.regularization, self.n, Logistic().smoothness, "paper")
        return sigma_star(self.d, epsilon_tilde, self.delta)

    @property
    def bounds(self) -> tuple[float, float]:
        """The bound as printed, and the sharper one."""
        risk, t = TiltedRisk(self.n, self.regularization), squared_length(self.d, self.sigma)
        return risk.theorem51(t), risk.sharper(t)


SETTINGS = (
    Setting("ball", 1000, 10, REGULARIZATION, 0.1),
    Setting("ball", 1000, 10, REGULARIZATION, 0.2),
    Setting("wdbc", 455, 31, REGULARIZATION, 0.2),
    Setting("ball", 1000, 10, 0.01, 0.1),
    Setting("ball", 100_000, 10, 0.01, 1.0, 1e-5),
)
PRINTED, EXPLICIT = "kappa = 1", "explicit"


def needed(label: str) -> Theorem53:
    """Return how many rows Theorem 5.3 asks for at epsilon = .5."""
    return theorem53(NORM, TAU, 10, 0.5, DELTA, explicit=label == EXPLICIT)


def _sweep(sets: int, few_sets: int, few_draws: int) -> Sweep:
    """Return the draws of all settings and of both versions of Theorem 5.3."""
    points = {
        setting.name: Point.of(
            excesses, about_seconds=sets * setting.n / 90_000, data=setting.data, n_examples=setting.n,
            regularization=setting.regularization, sigma=setting.sigma, sets=sets, draws=DRAWS, seed=51,
        )
        for setting in SETTINGS
    }  # fmt: skip
    for label, repeats in ((PRINTED, (sets, DRAWS)), (EXPLICIT, (few_sets, few_draws))):
        version = needed(label)
        n = math.ceil(version.n_examples)
        points[label] = Point.of(
            comparisons, about_seconds=math.prod(repeats) * n / 700_000, n_examples=n, d=10, norm=NORM,
            regularization=TAU / NORM**2, sigma=math.sqrt(version.t / squared_length(10, 1.0)), sets=repeats[0],
            draws=repeats[1], seed=53,
        )  # fmt: skip
    return Sweep(points, f"{sets * DRAWS}; of {EXPLICIT} {few_sets * few_draws}")


Draws = Mapping[str, FloatArray]
"""What was measured, (runs,), by the label of its point."""


def _read(results: Mapping[Any, Any]) -> Draws:
    return {label: np.array(values) for label, values in results.items()}


def write(runs: Draws, path: Path) -> None:
    """The quantiles of each setting beside its bounds, as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["setting", "runs", "mean", "median", "quantile_95", "largest", "printed", "sharper"])
        for label, values in runs.items():
            figures = values.mean(), *np.quantile(values, [0.5, 0.95, 1.0])
            bounds = next((setting.bounds for setting in SETTINGS if setting.name == label), (TAU, TAU))
            writer.writerow([label, len(values), *(f"{each:.6g}" for each in (*figures, *bounds))])


def draw(title: str, runs: Draws, path: Path) -> None:
    """All draws of each setting of Theorem 5.1 beside its two bounds."""
    with mpl.rc_context({"backend": "agg", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        canvas, axis = plt.subplots(figsize=(8.4, 4.2), layout="constrained")
        for row, setting in enumerate(SETTINGS):
            values = runs[setting.name]
            scatter = row + np.linspace(-0.25, 0.25, len(values))
            axis.plot(values, scatter, ".", color="#0072B2", markersize=3, label=None if row else "a draw of η")
            for bound, mark, colour, name in zip(
                setting.bounds, "|x", ("#D55E00", "#009E73"), ("Theorem 5.1 as printed", "sharper"), strict=True
            ):
                axis.plot(bound, row, mark, color=colour, markersize=14, label=None if row else name)
        axis.axvline(AT_ZERO, color="0.6", linestyle=":", label="log 2: weights of 0 are no further off")
        axis.set_yticks(range(len(SETTINGS)), [setting.name.replace(", λ", ",\nλ") for setting in SETTINGS])
        axis.set_xscale("log")
        axis.set_xlabel("by how much the regularised risk exceeds the best")
        axis.set_title(title, loc="left")
        canvas.legend(loc="outside lower center", ncols=4, frameon=False)
        canvas.savefig(path, dpi=150)
        plt.close(canvas)


# ── claims ───────────────────────────────────────────────────────────────────


def judge(runs: Draws) -> Iterator[Verdict]:
    """Judge Theorem 5.1 and what else section 5 and the footnote to Theorem 4.1 state."""
    for setting in SETTINGS:
        yield _within(setting, runs[setting.name])
    yield _within_sharper(runs)
    yield _flat()
    yield _chain()
    yield _rates()
    yield from _generalises(runs)
    yield _alone()


def _within(setting: Setting, values: FloatArray) -> Verdict:
    """Judge whether enough draws are within the printed bound, and whether that says anything."""
    printed, _ = setting.bounds
    share = float((values <= printed).mean())
    ruling = Ruling.FAILS if share < 1 - FAILURE else Ruling.VACUOUS if printed >= AT_ZERO else Ruling.HOLDS
    words = f"bound {printed:.3g}; within it {share:.1%}; mean {values.mean():.3g}, largest {values.max():.3g}"
    examples = "breast cancer, five folds" if setting.data == "wdbc" else "uniform in the ball"
    sizes = "" if setting.delta == DELTA else f"N, ε and δ = {setting.delta:g}; "
    ours = f"{sizes}λ = {setting.regularization:g}; {examples}"
    return Verdict("rajkumar.theorem51", setting.name, ruling, words, ours)


def _within_sharper(runs: Draws) -> Verdict:
    """Judge whether enough draws of each setting are within the sharper bound."""
    shares = [float((runs[setting.name] <= setting.bounds[1]).mean()) for setting in SETTINGS]
    telling = sum(setting.bounds[1] < AT_ZERO for setting in SETTINGS)
    words = f"within it from {min(shares):.1%}; below log 2 in {telling} of {len(SETTINGS)} settings"
    return Verdict("rajkumar.theorem51-sharper", "all settings", Ruling.of(min(shares) >= 1 - FAILURE), words)


def _flat() -> Verdict:
    """Judge whether the bound of PSGD's run is the same to the last bit for all splits of 1,000 rows."""
    splits = [*SHARES, (1.0,), *((1 / k,) * k for k in (2, 10, 15, 100))]
    bounds = {_bound_of_split(shares) for shares in splits}
    words = f"{len(splits)} splits among 1 to 100 parties: {len(bounds)} value{'s' * (len(bounds) > 1)}"
    return Verdict("rajkumar.theorem51-flat", SETTINGS[0].name, Ruling.of(len(bounds) == 1), words)


def _bound_of_split(shares: tuple[float, ...]) -> float:
    sizes = np.array(sizes_by_shares(1000, shares))
    facts = FederationFacts.uniform(
        sizes, epsilon=0.1, delta=DELTA, n_features=10, loss=Logistic(), secure_sum=len(shares) > 1
    )
    sigma, _ = Psgd(regularization=REGULARIZATION, calibration="paper").scales(facts)
    return TiltedRisk(facts.n_total, REGULARIZATION).theorem51(squared_length(10, sigma))


def _chain() -> Verdict:
    """Judge whether each step of the proposition's proof bounds the one before."""
    grid = list(product((1, 3, 10, 100, 1000), (1e-3, 0.1, 1.0, 5.0), (1 / math.e, 0.05, 1e-5)))
    chains = [Proposition52.of(d, epsilon_tilde, delta, delta) for d, epsilon_tilde, delta in grid]
    steps = [(chain.t, chain.by_tail, chain.by_both_tails, chain.stated) for chain in chains]
    holds = all(one <= other for each in steps for one, other in pairwise(each))
    factors = [each[-1] / each[0] for each in steps]
    words = f"{len(grid)} of d, ε̃ and δ = δ′; (8) is {min(factors):.3g} to {max(factors):.3g} times T̂"
    return Verdict("rajkumar.proposition52", "each step bounds the one before", Ruling.of(holds), words)


def _rates() -> Verdict:
    """Judge whether T^ grows no faster than d^2, and as epsilon~^-2."""
    dimensions, epsilons = np.geomspace(1e3, 1e5, 5), np.geomspace(0.01, 1, 5)
    over_d = power(dimensions, [Proposition52.of(round(d), 0.1, DELTA).t for d in dimensions])
    over_epsilon = power(epsilons, [Proposition52.of(10, float(epsilon), DELTA).t for epsilon in epsilons])
    holds = abs(over_d - 2) < _SLOPE and abs(over_epsilon + 2) < _SLOPE
    words = f"slope {over_d:.2f} over d = 1,000 to 100,000, {over_epsilon:.2f} over ε̃ = .01 to 1"
    return Verdict("rajkumar.proposition52", "T̂ goes as d² / ε̃²", Ruling.of(holds), words)


def _generalises(runs: Draws) -> Iterator[Verdict]:
    """Judge how often the loss of w exceeds that of w_0 by tau at most, with the rows that Theorem 5.3 asks for."""
    for label, claim in ((PRINTED, "rajkumar.theorem53"), (EXPLICIT, "rajkumar.theorem53-explicit")):
        values, version = runs[label], needed(label)
        share = float((values <= TAU).mean())
        terms = " / ".join(f"{term:,.0f}" for term in version.terms)
        words = f"terms {terms}; within τ in {share:.1%} of {len(values)}, mean {values.mean():.3g}"
        ruling = Ruling.OPEN if label == PRINTED else Ruling.of(share >= 1 - 2 * FAILURE)
        case = f"‖w₀‖ = 2, τ = .1, d = 10, ε = .5, N = {math.ceil(version.n_examples):,}"
        yield Verdict(claim, case + (", κ = 1" if label == PRINTED else ""), ruling, words)


def _alone() -> Verdict:
    """Judge whether one party has less privacy than all have together, without a secure sum."""
    words, least = [], 1.0
    for parties in (2, 5, 15):
        sizes = np.array(sizes_by_shares(1000, (1 / parties,) * parties))
        deltas = []
        for epsilon in (0.1, 0.2):
            facts = FederationFacts.uniform(sizes, epsilon=epsilon, delta=DELTA, n_features=10, loss=Logistic())
            deltas.append(Psgd(regularization=REGULARIZATION).delta_alone(facts.of(0)))
        least = min(least, *deltas)
        words.append(f"K = {parties}: {deltas[0]:.3f} and {deltas[1]:.3f}")
    case = f"N = 1,000, d = 10, λ = {REGULARIZATION:g}, δ = {DELTA:g}, even shares, ε = 0.1 and 0.2"
    return Verdict("rajkumar.delta-alone", case, Ruling.of(least > DELTA), "; ".join(words))


FIGURES = (
    Figure(
        PAPER, "rajkumar_theorem51", "Theorem 5.1 on draws of the noise", _sweep(SETS, FEW_SETS, FEW_DRAWS),
        _sweep(QUICK_SETS, 1, 1), _read, write, draw, judge,
    ),
)  # fmt: skip
