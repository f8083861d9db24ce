"""Releases of sites are as private as they are said to be, by exact densities on a line and by telling real ones apart.

*Computed.* The tilt that leads to a model is a smooth one-to-one map (`tests.audit.test_objective_perturbation`), so of
pure noise the ratio of the densities that neighbours give a model is known everywhere, and of Gaussian noise delta is.
The worst of many neighbours may not be past what the tilt's part of the budget is.

*Played.* Two sites of one row each, 1 and -1, whose Huber slopes are 1 and -1 near w = 0: no others lie further apart.
A distinguisher sees one release of either, 5,000 times each, and guesses by the likelihood ratio. By Clopper and
Pearson's intervals its hits prove a mu (or epsilon) that is wrong once in 10^6 audits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from parley.common.algorithms.release import MECHANISMS, Mechanism
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Huber, Logistic, Loss
from parley.common.privacy.calibration import gaussian_delta, gaussian_mu, tilted_mu
from parley.common.privacy.mechanisms.objective import FOR_THE_SOLVER, ObjectivePerturbation
from parley.common.privacy.mechanisms.output import OutputPerturbation
from parley.common.privacy.mechanisms.site import Law, SiteCalibration, SiteTerms
from parley.common.privacy.noise import SeededNoise
from tests.audit.test_objective_perturbation import Mechanism as Density
from tests.audit.test_objective_perturbation import on_a_line
from tests.support.noises import ScaledNoise
from tests.unit.test_mechanisms import EVERY_KIND, KINDS

ALARM, POWER, TIMES = 1e-6, 0.99, 5000
LAMBDAS = (2.5e-5, 1.0, 1e3)
BUDGETS = ((0.1, 0.05), (1.0, 1e-5), (4.0, 1e-3))
CANARIES = (np.array([[1.0]]), np.array([[-1.0]]))
PAIRS = [CANARIES, *on_a_line()]
INSIDE = [kind for kind in KINDS if kind[0] != "output"]
EVERY_INSIDE = pytest.mark.parametrize(("mechanism", "law", "calibration"), INSIDE)
ATTAINED = {
    ("output", "gaussian", "tight"),
    *(("output", "l2_laplace", calibration) for calibration in ("tight", "paper")),
    ("objective", "gaussian", "tight"),
    ("objective", "gaussian", "jain_thakurta"),  # what it falls short by is in what is said
    *(("objective", "l2_laplace", calibration) for calibration in ("tight", "paper", "jain_thakurta")),
    *(("generalized", law, "tight") for law in ("gaussian", "l2_laplace")),
}
"""Whose noise is no more than the canaries need, so that half of it is too little.

Of the others it is more: the ridges and tilts of the paper and of the thesis are wider than any neighbours need, and so
is Jain & Thakurta's noise on an answer. Of `one_against_rest` with several classes, one row alone moves a logistic
gradient by half of what is stated. So half of their noise may keep the promise, and no audit of answers can tell. That
their noise is what they say is proven by its law: `tests.contracts.test_proofs` reads the tilts off the models, and
refuses half of them.
"""


def log_ratios(site: ObjectivePerturbation, pair: tuple[FloatArray, FloatArray], factor: float) -> FloatArray:
    """The logarithms of the ratio of two neighbours' densities at models, of a pure tilt ``factor`` as wide."""
    loss, beta, n = site.terms.loss, site.tilt / factor, len(pair[0])
    reach = np.arcsinh((n + 40 / beta) / site.strength)
    bends = np.array([1 - 0.5, 1 + 0.5]) if isinstance(loss, Huber) else np.zeros(1)
    edges = np.concatenate(
        [sign * bends / size + nudge for sign in (1, -1) for size in (1, 0.5) for nudge in (-1e-9, 1e-9)]
    )
    models = np.concatenate([np.sinh(np.linspace(-reach, reach, 20_001)), edges])[:, None]
    tilts = Density(loss, site.strength, 1.0)
    one, other = (
        -beta * np.abs(tilts.tilt(records, models)[:, 0])
        + np.log(site.strength + loss.curvature(models @ records.T, np.ones(n)) @ records[:, 0] ** 2)
        for records in pair
    )
    return np.asarray(one - other)


def truly(site: ObjectivePerturbation, pair: tuple[FloatArray, FloatArray], factor: float = 1.0) -> float:
    """What the tilt spends, in parts of what it may: of epsilon if it is pure, of delta if it is Gaussian."""
    epsilon = site.epsilon - FOR_THE_SOLVER * site.terms.epsilon
    if site.terms.law == "l2_laplace":
        return float(np.abs(log_ratios(site, pair, factor)).max()) / epsilon
    density = Density(site.terms.loss, site.strength, factor * site.tilt)
    return density.delta(epsilon, pair) / ((1 - FOR_THE_SOLVER) * site.terms.delta)


def sites(
    mechanism: Mechanism, law: Law, calibration: SiteCalibration, loss: Loss, n: int
) -> list[ObjectivePerturbation]:
    """A mechanism for each budget and lambda for which it can be set."""
    found = []
    for (epsilon, delta), strength in ((budget, strength) for budget in BUDGETS for strength in LAMBDAS):
        try:
            site = MECHANISMS[mechanism](SiteTerms(loss, n, 1, strength, epsilon, delta, law, calibration))
        except InvalidInputError:
            continue
        assert isinstance(site, ObjectivePerturbation)
        found.append(site)
    return found


@EVERY_INSIDE
@pytest.mark.slow
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)], ids=["logistic", "huber"])
def test_on_a_line_a_release_is_as_private_as_is_said(
    mechanism: Mechanism, law: Law, calibration: SiteCalibration, loss: Loss
) -> None:
    spent = [truly(site, pair) for pair in PAIRS for site in sites(mechanism, law, calibration, loss, len(pair[0]))]
    print(f"{mechanism}, {law}, {calibration}, {loss}: of {len(spent)} audits the worst spends {max(spent):.4f}")
    assert len(spent) > 50
    assert max(spent) <= 1 + 1e-9


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)], ids=["logistic", "huber"])
def test_on_a_line_a_gaussian_tilt_is_covered_at_every_epsilon(loss: Loss) -> None:
    """By exact densities, also at epsilons below the determinants', where the proof uses that neighbours may swap."""
    worst = 0.0
    for strength, tilt in ((0.2, 2.0), (1.0, 1.0), (1.0, 20.0), (30.0, 5.0)):
        cover = tilted_mu(2 / tilt, math.log1p(loss.smoothness / strength))
        for epsilon in (0.0, 0.01, 0.1, 0.5, 2.0):
            spent = max(Density(loss, strength, tilt).delta(epsilon, pair) for pair in PAIRS)
            if spent > 1e-12:
                worst = max(worst, spent / gaussian_delta(epsilon, cover))
    print(f"{loss}: the worst spends {worst:.3f} of its cover's delta")
    assert worst <= 1 + 1e-6


@EVERY_INSIDE
def test_half_of_the_tilt_breaks_what_is_said(mechanism: Mechanism, law: Law, calibration: SiteCalibration) -> None:
    spent = [truly(site, CANARIES, 0.5) for site in sites(mechanism, law, calibration, Huber(0.5), 1)]
    print(f"{mechanism}, {law}, {calibration}: with half the tilt the canaries spend {max(spent):.3g}")
    if (mechanism, law, calibration) in ATTAINED:
        assert max(spent) > 1.5


def canary(mechanism: Mechanism, law: Law, calibration: SiteCalibration) -> Any:  # noqa: ANN401 -- either kind
    """The mechanism of the two sites that are told apart."""
    return MECHANISMS[mechanism](SiteTerms(Huber(0.5), 1, 1, 1e3, 1.0, 1e-5, law, calibration))


def told_apart(site: Any) -> float:  # noqa: ANN401 -- either kind
    """The mu or epsilon of the two sites, as their noise is set."""
    apart, scale = (site.reach, site.scale) if isinstance(site, OutputPerturbation) else (2.0, site.tilt)
    return float(apart / scale if site.terms.law == "gaussian" else apart * scale)


def seen(site: Any, factor: float) -> tuple[FloatArray, FloatArray]:  # noqa: ANN401 -- either kind
    """Releases of both sites, (times,) each, in parts of where the first one's minimiser lies."""
    noise = ScaledNoise(SeededNoise(31), factor)
    stacks = (Shard(np.ones((TIMES, 1, 1)), np.full((TIMES, 1), y)) for y in (1.0, -1.0))
    one, other = (site.answer([site] * TIMES, site.prepare([site] * TIMES, stack), noise) for stack in stacks)
    return to_reals(one[:, 0]) * site.terms.strength, to_reals(other[:, 0]) * site.terms.strength


def surely(law: Law, right: int, wrong: int) -> float:
    """The mu or epsilon that so many hits prove: the second site's are false."""
    low = float(stats.beta.ppf(ALARM / 2, right, TIMES - right + 1)) if right else 0.0
    high = float(stats.beta.isf(ALARM / 2, wrong + 1, TIMES - wrong)) if wrong < TIMES else 1.0
    return float(stats.norm.ppf(low) - stats.norm.ppf(high)) if law == "gaussian" else math.log(low / high)


def power(law: Law, halved: float, promised: float) -> float:
    """How often noise with ``halved`` mu or epsilon is found out, by the binomial laws of its hits."""
    if law == "gaussian":
        chances = float(stats.norm.cdf(halved / 2)), float(stats.norm.sf(halved / 2))
    else:
        chances = 0.5, 0.5 * math.exp(-halved)
    drawn = np.random.default_rng(32).binomial(TIMES, chances, (1000, 2))
    return float(np.mean([surely(law, *draw) > promised for draw in drawn.tolist()]))


@EVERY_KIND
def test_two_sites_are_told_apart_as_promised_and_half_the_noise_is_found_out(
    mechanism: Mechanism, law: Law, calibration: SiteCalibration
) -> None:
    site, proven = canary(mechanism, law, calibration), {}
    epsilon = site.event.epsilon if isinstance(site, ObjectivePerturbation) else 1.0
    promised = gaussian_mu(epsilon, 1e-5) if law == "gaussian" else epsilon
    for factor in (1.0, 0.5):
        right, wrong = (int((each >= (law == "l2_laplace")).sum()) for each in seen(site, factor))
        proven[factor] = surely(law, right, wrong)
    sure = power(law, 2 * told_apart(site), promised)
    print(
        f"{mechanism}, {law}, {calibration}: promised {promised:.3f}, proven {proven[1.0]:.3f}, with half the noise "
        f"{proven[0.5]:.3f}; power {sure:.4f} at a false alarm of {ALARM:g}"
    )
    assert proven[1.0] <= promised
    if (mechanism, law, calibration) in ATTAINED:
        assert proven[1.0] > promised / 4
        assert sure >= POWER
        assert proven[0.5] > promised
