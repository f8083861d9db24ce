"""What a tilted risk's minimiser surely costs: Rajkumar & Agarwal 2012, section 5, beside bounds that are sharper.

N examples with |x_i| <= 1, a convex loss of a score with slopes of at most L and curvature of at most c; J is their
mean loss plus (lambda/2)|w|^2, and w* its minimiser. The model is w = argmin J + <eta, w> / N + (Delta/2)|w|^2, eta
being d independent normal numbers of deviation sigma: that of GOP (Algorithm 4), and of PSGD, whose parties' shares of
eta add up to the same law. ``failure`` is delta', the chance that a bound fails, over the draw of eta alone: the
examples may be any. (It has nothing to do with the delta of privacy.)

Nothing here depends on how many parties hold the examples, or who has how many. It is about the exact minimiser: a
descent that is stopped early adds what is left to descend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from scipy.special import chdtri

from parley.common.privacy.calibration import LEAST_EPSILON, sigma_star, slack

FAILURE = 0.05
"""delta' where none is given."""


def squared_length(d: int, sigma: float, failure: float = FAILURE) -> float:
    """Return T^ of Theorem 5.1, which |eta|^2 exceeds with a chance of ``failure`` alone.

    It solves Pr(U <= T^ / sigma^2) = 1 - delta', U having the law chi^2_d.

    >>> round(squared_length(10, 90.3045))
    149292
    """
    return sigma**2 * float(chdtri(d, failure))


@dataclass(frozen=True, slots=True)
class TiltedRisk:
    """The risk of so many examples; ``extra`` is Delta, and ``at_zero`` J(0), the loss at a score of 0."""

    n_examples: int
    regularization: float
    smoothness: float = 0.25
    extra: float = 0.0
    at_zero: float = math.log(2)

    def theorem51(self, t: float) -> float:
        """Return by how much J(w) exceeds J(w*) at most, as printed: (c + lambda) / (2 N^2 lambda^2) T^, for Delta = 0.

        The proof: the Hessian of J is at most c + lambda, its gradient is 0 at w*, and |w - w*| <= |eta| / (N lambda).
        For Delta > 0, which the paper leaves out, it is the same with |w - w*| <= (|eta| / N + Delta |w*|) / (lambda +
        Delta), where |w*|^2 <= 2 J(0) / lambda.

        >>> round(TiltedRisk(1000, 0.1).theorem51(149_292), 4)
        2.6126
        """
        pulled = math.sqrt(t) / self.n_examples + self.extra * math.sqrt(2 * self.at_zero / self.regularization)
        away = pulled / (self.regularization + self.extra)
        return (self.smoothness + self.regularization) / 2 * away**2

    def sharper(self, t: float) -> float:
        """Return the same by strong convexity alone: T^ / (2 N^2 lambda), which is (c + lambda) / lambda times less.

        J(w) - J(w*) <= |grad J(w)|^2 / (2 lambda), and the gradient at w is -eta / N. For Delta > 0 that holds of J +
        (Delta/2)|w|^2 with lambda + Delta, and the least of that exceeds J(w*) by Delta / (lambda + Delta) J(0) at most
        (`parley.common.forecast.dynamics`).

        >>> round(TiltedRisk(1000, 0.1).sharper(149_292), 4)
        0.7465
        """
        convexity = self.regularization + self.extra
        return t / (2 * self.n_examples**2 * convexity) + self.extra / convexity * self.at_zero


# ── Proposition 5.2 ──────────────────────────────────────────────────────────

OF_SIGMA = 8.0
"""C of (6), where epsilon~ is at most R_delta: the paper names none."""
OF_TAIL = 5.0
"""C' of R_t <= C' d log(1/t), for t <= 1/e: the paper names none."""


def chi_square_tail(d: int, chance: float) -> float:
    """Return R_t = d + 2 sqrt(d log(1/t)) + 2 log(1/t), which chi^2_d exceeds with a chance of at most t.

    By Laurent & Massart 2000, Lemma 1.
    """
    rarity = math.log(1 / chance)
    return d + 2 * math.sqrt(d * rarity) + 2 * rarity


@dataclass(frozen=True, slots=True)
class Proposition52:
    """The steps by which T^ = O(d^2 log(1/delta) log(1/delta') / epsilon~^2), for delta and delta' of at most 1/e.

    ``t`` is T^ itself; ``by_tail`` is (5), sigma*^2 R_delta'; ``by_both_tails`` is (7), C R_delta R_delta' /
    epsilon~^2; ``stated`` is (8), C C'^2 d^2 log(1/delta) log(1/delta') / epsilon~^2. ``variance`` is sigma*^2, and
    ``variance_by_tail`` what (6) says of it. Each of (5), (7) and (8) is at least as large as the one before it.
    """

    t: float
    by_tail: float
    by_both_tails: float
    stated: float
    variance: float
    variance_by_tail: float

    @classmethod
    def of(cls, d: int, epsilon_tilde: float, delta: float, failure: float = FAILURE) -> Self:
        """Return the steps for a loss of slope 1, and epsilon~ up to `chi_square_tail` of delta."""
        sigma = sigma_star(d, epsilon_tilde, delta)
        tail, other = chi_square_tail(d, delta), chi_square_tail(d, failure)
        variance_by_tail = OF_SIGMA * tail / epsilon_tilde**2
        rarities = math.log(1 / delta) * math.log(1 / failure)
        return cls(
            t=squared_length(d, sigma, failure),
            by_tail=sigma**2 * other,
            by_both_tails=variance_by_tail * other,
            stated=OF_SIGMA * OF_TAIL**2 * d**2 * rarities / epsilon_tilde**2,
            variance=sigma**2,
            variance_by_tail=variance_by_tail,
        )


# ── Theorem 5.3 ──────────────────────────────────────────────────────────────

_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class Theorem53:
    """How many examples suffice for E loss(w) - E loss(w_0) <= tau with a chance of 1 - 2 delta', for any fixed w_0.

    lambda is tau / |w_0|^2. ``terms`` are those of the maximum: for the sample, for epsilon~ >= epsilon / 2, and for
    the noise. They are multiples of the paper's |w_0|^2 log(1/delta') / tau^2, c |w_0|^2 / (tau epsilon), |w_0|
    sqrt(T^) / tau. T^ depends on N by epsilon~, so they are those of the N that they lead to.
    """

    terms: tuple[float, float, float]
    epsilon_tilde: float
    t: float

    @property
    def n_examples(self) -> float:
        """The number of examples: the largest of the terms."""
        return max(self.terms)


def theorem53(  # noqa: PLR0913 -- the theorem's
    norm: float, tau: float, d: int, epsilon: float, delta: float, *,
    failure: float = FAILURE, smoothness: float = 0.25, explicit: bool = False,
) -> Theorem53:  # fmt: skip
    """Return the terms for a loss of slope 1 and |w_0| = ``norm``: for kappa = 1, which the theorem leaves open.

    Or ``explicit``, for a version of ours, whose constants its proof has: E loss(w) - E loss(w_0) <= 2 (J(w) - J(w*)) +
    16 (32 + log(1/delta')) / (N lambda) + (lambda/2)|w_0|^2, by Sridharan et al. 2009, Theorem 1, as Hamm et al. quote
    it for losses of slope 1. With J(w) - J(w*) <= T^ / (N^2 lambda) each of the first two parts is a quarter of tau,
    and the last is a half.
    """
    rarity = math.log(1 / failure)
    of_sample, of_curvature, of_noise = (64 * (32 + rarity), 4.0, math.sqrt(8.0)) if explicit else (rarity, 1.0, 1.0)
    epsilon_tilde = epsilon
    for _ in range(_ROUNDS):
        t = squared_length(d, sigma_star(d, epsilon_tilde, delta), failure)
        terms = (
            of_sample * norm**2 / tau**2,
            of_curvature * smoothness * norm**2 / (tau * epsilon),
            of_noise * norm * math.sqrt(t) / tau,
        )
        solved = Theorem53(terms, epsilon_tilde, t)
        _, epsilon_tilde = slack(epsilon, tau / norm**2, math.ceil(solved.n_examples), smoothness, "paper")
        if abs(epsilon_tilde - solved.epsilon_tilde) < LEAST_EPSILON:
            break
    return solved


# ── what a forecast says ─────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LikelyBound:
    """By how much J(w) exceeds J(w*) at most, with a chance of ``chance``, if the model is the exact minimiser.

    ``excess`` is `TiltedRisk.sharper`, ``printed`` Theorem 5.1 as the paper has it, None where Delta > 0. ``at_zero``
    is by how much J exceeds J(w*) at most at weights of 0: a bound that is larger says nothing.
    """

    chance: float
    excess: float
    printed: float | None
    at_zero: float
