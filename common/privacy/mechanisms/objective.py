"""Objective perturbation: the minimiser of a randomly tilted, regularised risk.

Chaudhuri, Monteleoni & Sarwate 2011, Algorithm 2 (tilts of density exp(-beta |b|)); Rajkumar & Agarwal 2012, Procedures
1-3 (Gaussian tilts); Xie's Algorithm 2; Jain & Thakurta 2014, eq. 4, whose noise falls short of what they claim, so
that its cost is computed here, and reported.

*Persons.* An example may be a person of several rows, whose weights add up to at most 1. It moves the gradient by 2 L
at most, as a record does, and the determinant by a larger factor than a record does (`determinant_cost`, whose bound
takes the place of log(1 + c / Lambda) in each calibration where it is larger). The theorems of Chaudhuri and of
Rajkumar & Agarwal need no more than these two bounds. The least Gaussian tilt, and the cost of Jain & Thakurta's,
follow from the theorem on persons of `parley.common.privacy.tilt`.

Their theorems are about the exact minimiser w* of the tilted risk, and a solver finds some w near it. As in Iyengar et
al. 2019 ("Towards Practical Differentially Private Convex Optimization", approximate minima perturbation), a hundredth
of the budget goes to noise on the answer: given w*, the tilt follows from the data, so w - w* is a function of w* and
the data, and |w - w*| <= |gradient left| / Lambda (`parley.common.learning.erm`) on any data. Released with noise for
twice that, it composes with w*, and their sum is post-processing. That bound relies on a limit on the tilt's length,
which fails only once in 10^17 draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self, cast

import numpy as np
from scipy.special import gammainccinv

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import FRACTION_BITS, MAX_NORM, to_integers
from parley.common.learning.erm import MOST_STEPS, TOLERANCE, check_smooth, minimise
from parley.common.learning.losses import bounded_slope, check_one_sided, check_single_score
from parley.common.privacy.calibration import (
    SlackCalibration,
    cliff_caution,
    determinant_cost,
    gaussian_epsilon,
    gaussian_sigma,
    person_epsilon,
    slack,
    tilt_sigma,
)
from parley.common.privacy.events import FLOATS, GaussianEvent, L2LaplaceEvent, TiltEvent
from parley.common.privacy.mechanisms.additive import add_gaussian, add_l2_laplace, fitting, l2_laplace_deviation
from parley.common.privacy.mechanisms.site import SiteRelease, SiteTerms, left_by_solver, stacked
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import NoiseInside

FOR_THE_SOLVER = 0.01
"""The part of epsilon and of delta that hides the solver's error."""
_TILT_DEVIATIONS = 9.0
_UNLIKELY = 1e-17
ASSUMED = (
    FLOATS,
    "the tilt is no longer than it is but once in 10^17 draws, as the bound of the solver's error takes it",
)
"""How noise is drawn, and how the solver's error is bounded, in words."""


@dataclass(frozen=True, slots=True)
class ObjectivePerturbation(SiteRelease):
    """The mechanism for one site: its ridge on the sum scale, its tilt and the blur on its answer.

    ``tilt`` and ``blur`` are deviations of Gaussian noise, or betas; ``apart`` is how far the solver's error moves an
    answer, which the blur hides. ``epsilon`` is the release's cost.
    """

    terms: SiteTerms
    strength: float
    tilt: float
    blur: float
    apart: float
    epsilon: float
    assumed: tuple[str, ...] = ()

    @classmethod
    def prepare(cls, sites: Sequence[Self], shard: Shard) -> Shard:  # noqa: ARG003
        """Return the shard: the noise comes before the minimisation."""
        return shard

    @classmethod
    def answer(cls, sites: Sequence[Self], prepared: Shard, noise: Noise) -> IntArray:
        """Return the minimisers of tilted risks, blurred, (..., d).

        A minimiser outside the cube of the largest weights is projected onto it, which brings no two answers further
        apart.
        """
        law, loss = sites[0].terms.law, sites[0].terms.loss
        strength, tilt, blur = (
            stacked([getattr(site, name) for site in sites], prepared.y) for name in ("strength", "tilt", "blur")
        )
        shape = (*strength.shape, prepared.n_features)
        slant = (
            noise.gaussian(tilt[..., None], shape) if law == "gaussian" else noise.l2_laplace(tilt[..., None], shape)
        )
        weights: FloatArray = minimise(loss, prepared, strength, slant, tolerance=TOLERANCE, most_steps=MOST_STEPS)
        exact = to_integers(np.clip(weights, -MAX_NORM, MAX_NORM))
        return add_gaussian(exact, blur, 1.0, noise) if law == "gaussian" else add_l2_laplace(exact, blur, 1.0, noise)

    @property
    def event(self) -> TiltEvent:
        """The theorem's claim, and the laws that are behind it."""
        terms, slope = self.terms, bounded_slope(self.terms.loss)
        law, blur = (
            GaussianEvent(reach / scale) if terms.law == "gaussian" else L2LaplaceEvent(reach * scale, terms.n_features)
            for reach, scale in ((slope, self.tilt), (self.apart, self.blur))
        )
        return TiltEvent(
            self.epsilon,
            terms.spent[1],
            (*ASSUMED, *self.assumed),
            law=law,
            determinant=self.determinant,
            blur=blur,
            persons=terms.persons,
        )

    @property
    def determinant(self) -> float:
        """The logarithm of the largest factor by which an example changes the determinant of the Hessian."""
        return determinant_cost(self.terms.loss.smoothness / self.strength, self.terms.rank)

    @classmethod
    def proof(cls, sites: Sequence[Self]) -> NoiseInside:
        """Return the proof: the tilt is minus the gradient, at the answer, of the risk and its ridge.

        A record moves the gradient by 2 L, and the determinant of its derivative by a factor of 1 + c / Lambda; so does
        a person, but for the factor, which is (1 + c / (m Lambda))^m.
        """
        site = sites[0]
        terms, (epsilon, delta) = site.terms, site.terms.spent
        reach = 2 * bounded_slope(terms.loss)
        gaussian = terms.law == "gaussian"
        law = GaussianEvent(reach / site.tilt) if gaussian else L2LaplaceEvent(reach * site.tilt, terms.n_features)
        spent = site.determinant + FOR_THE_SOLVER * epsilon, FOR_THE_SOLVER * delta
        return NoiseInside(site.tilts_of, law, reach, spent, persons=terms.persons)

    def tilts_of(self, shard: Shard, answers: FloatArray) -> FloatArray:
        """Return the tilts (runs, 1, d) that led to answers (runs, d) on a shard, without the blur."""
        slopes = self.terms.loss.slope(answers @ shard.X.T, shard.y) * shard.weights
        return np.asarray(-(self.strength * answers + slopes @ shard.X))[:, None]

    @property
    def deviation(self) -> float:
        """The deviation of the tilt divided by the ridge."""
        return self._spread(self.tilt) / self.strength

    @property
    def blur_deviation(self) -> float:
        """The deviation of the noise on each weight that hides the solver's error."""
        return self._spread(self.blur)

    def check_noise(self) -> None:
        """Raise InvalidInputError if the blur does not fit on the wire."""
        fitting(self.blur_deviation)

    def _spread(self, scale: float) -> float:
        """Return the deviation of noise of this scale."""
        return scale if self.terms.law == "gaussian" else float(l2_laplace_deviation(scale, self.terms.n_features))


@lru_cache(maxsize=4096)
def objective(terms: SiteTerms) -> ObjectivePerturbation:
    """Set objective perturbation for a site, by Chaudhuri's slack.

    Raises InvalidInputError for a loss of several scores or kinks, and if no solver surely is near enough.
    """
    terms.check("tight", "paper", "better_branch", "jain_thakurta")
    main_part, (epsilon, delta) = 1 - FOR_THE_SOLVER, terms.spent
    by = cast("SlackCalibration", "paper" if terms.calibration == "jain_thakurta" else terms.calibration)
    check_smooth(terms.loss)
    extra, epsilon_for_tilt = slack(
        main_part * epsilon, terms.regularization, terms.n_examples, terms.loss.smoothness, by, terms.rank
    )
    strength = terms.n_examples * (terms.regularization + extra)
    if terms.law == "l2_laplace":
        return tilted(terms, strength, epsilon_for_tilt / (2 * bounded_slope(terms.loss)))
    slope, determinant = bounded_slope(terms.loss), determinant_cost(terms.loss.smoothness / strength, terms.rank)
    if terms.calibration != "jain_thakurta":
        of_persons = determinant if terms.persons else None
        sigma = tilt_sigma(terms.n_features, epsilon_for_tilt, main_part * delta, slope, by, of_persons)
        return tilted(terms, strength, sigma)
    tilt = 2 * slope * math.sqrt(math.log(1 / delta) + epsilon) / epsilon
    mu = 2 * slope / tilt
    if terms.persons:
        spent = person_epsilon(mu, main_part * delta, determinant)
    else:
        spent = max(gaussian_epsilon(mu, main_part * delta), mu**2 / 4) + determinant  # proven from mu^2 / 4 on
    return tilted(terms, strength, tilt, spent + FOR_THE_SOLVER * epsilon)


def branch_cautions(terms: SiteTerms, remedy: SlackCalibration) -> tuple[str, ...]:
    """Return the warning of `cliff_caution` about the published slack near its cliff.

    It is empty for any other calibration.
    """
    if terms.calibration != "paper":
        return ()
    part = (1 - FOR_THE_SOLVER) * terms.epsilon
    return cliff_caution(part, terms.regularization, terms.n_examples, terms.loss.smoothness, remedy, terms.rank)


def tilted(terms: SiteTerms, strength: float, tilt: float, spent: float | None = None) -> ObjectivePerturbation:
    """Set the mechanism of this ridge and tilt, with the blur that hides the solver's error.

    ``spent`` is the epsilon that is proven, if it is not the requested one. Raises InvalidInputError as `objective`
    does.
    """
    loss, d, (epsilon, delta) = terms.loss, terms.n_features, terms.spent
    check_single_score(loss)
    check_smooth(loss)
    check_one_sided(loss)
    gaussian = terms.law == "gaussian"
    residual = left_by_solver(terms, strength, *_longest(terms, tilt))
    apart = 2 * residual / strength + math.sqrt(d) * 2.0**-FRACTION_BITS
    if gaussian:
        blur = gaussian_sigma(FOR_THE_SOLVER * epsilon, FOR_THE_SOLVER * delta, apart)
    else:
        blur = FOR_THE_SOLVER * epsilon / apart
    short = () if spent is None else (_falls_short(terms, spent),)
    return ObjectivePerturbation(terms, strength, tilt, blur, apart, epsilon if spent is None else spent, short)


def _longest(terms: SiteTerms, tilt: float) -> tuple[float, float]:
    """Return the largest norm of a tilt, and of its part in the columns of any row, except once in 10^17 draws.

    There are as many rows as n examples may have. A tilt of density exp(-beta |b|) is sqrt(V) times a Gaussian one, V
    of a Gamma law, as `Noise.l2_laplace` draws it.
    """
    d, n = terms.n_features, terms.n_examples * terms.most_rows
    entries = d if terms.row_entries is None else min(terms.row_entries, d)
    of_a_row = math.sqrt(entries) + math.sqrt(_TILT_DEVIATIONS**2 + 2 * math.log(n))
    if terms.law == "gaussian":
        return tilt * (math.sqrt(d) + _TILT_DEVIATIONS), tilt * of_a_row
    tail = _UNLIKELY if entries == d else _UNLIKELY / 4  # of sparse rows, for three bounds together
    spread = math.sqrt(2 * float(gammainccinv((d + 1) / 2, tail)))
    return float(gammainccinv(d, tail)) / tilt, of_a_row * spread / tilt


def _falls_short(terms: SiteTerms, spent: float) -> str:
    return (
        f"Jain & Thakurta's noise, said to be ({terms.epsilon:.3g}, {terms.delta:.1g})-private, is "
        f"({spent:.3g}, {terms.delta:.1g})-private: no less is proven of one {'person' if terms.persons else 'record'} "
        "replaced by another"
    )
