"""Noise scales: as published (``"paper"``, misprints corrected) and the least that a proof supports (``"tight"``).

All scales are for the sum of n clipped gradients, that is for records of norm at most 1 and replace-one adjacency,
where one record moves the sum by at most ``2 L``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import chdtrc, chdtri, log_ndtr, ndtri_exp

from parley.common.arrays import FloatArray
from parley.common.errors import InvalidInputError, check_not_negative

Calibration = Literal["paper", "tight"]
SlackCalibration = Literal["paper", "better_branch", "tight"]
"""The noise of objective perturbation: as published, by the published branch with less of it, or the least proven."""
LEAST_DELTA = 1e-18
"""The least delta that is counted: a ledger's unit."""
LEAST_EPSILON, MOST_EPSILON = 1e-6, 1e12
"""The least epsilon that is counted, a ledger's unit; and the largest that has a meaning."""
ROUNDING = 1e-9
"""A relative error that covers the rounding of the functions of the normal distribution."""
_FOR_THE_NOISE = 5 / 6
"""The least part of epsilon that tight objective perturbation leaves for the noise."""
_LARGEST_POWER = 700.0
_MOST = 1e100  # the largest epsilon or deviation: its square is still a number


WITHOUT_DELTA = (
    "Gaussian noise needs one; average, release, simplex and wu_subgradient train without, and algorithm = auto chooses"
)
"""What to do where a method has Gaussian noise alone, and no delta may be spent."""


def check_epsilon(epsilon: float) -> None:
    """Raise InvalidInputError for an epsilon that is not a positive number."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InvalidInputError(f"epsilon must be positive and finite, not {epsilon}")


def check_budget(epsilon: float, delta: float) -> None:
    """Raise InvalidInputError for a budget that no ledger counts.

    Those are an epsilon below 1e-6 or above 1e12, and a delta below 1e-18. A delta of 0 is a budget for mechanisms that
    need none: those of pure epsilon.
    """
    check_epsilon(epsilon)
    if not LEAST_EPSILON <= epsilon <= MOST_EPSILON:
        raise InvalidInputError(f"epsilon must lie between {LEAST_EPSILON:g} and {MOST_EPSILON:g}, not be {epsilon:g}")
    if not (delta == 0 or LEAST_DELTA <= delta < 1):
        raise InvalidInputError(f"delta must be 0, or at least {LEAST_DELTA:g} and below 1, not {delta}")


def check_epsilon_delta(epsilon: float, delta: float) -> None:
    """Raise InvalidInputError for an epsilon that is not a positive number, or a delta outside (0, 1)."""
    check_epsilon(epsilon)
    if not 0 < delta < 1:
        without = f": {WITHOUT_DELTA}" if delta == 0 else ""
        raise InvalidInputError(f"delta must lie strictly between 0 and 1, not {delta:g}{without}")


def sigma_star(d: int, epsilon: float, delta: float, lipschitz: float = 1.0) -> float:
    """Return the deviation per coordinate of Rajkumar & Agarwal 2012, Procedure 3, for d features.

    Its misprint is corrected: it is the large root of ((sigma^2 eps - 2 L^2) / (2 L sigma))^2 = q, q the (1 - delta)
    quantile of chi^2_d. ``epsilon`` is the part of the total that `slack` leaves. The small root is not private.

    >>> round(sigma_star(10, 0.1, 0.05), 1)
    85.8
    """
    check_epsilon_delta(epsilon, delta)
    check_not_negative(lipschitz=lipschitz)
    if d < 1:
        raise InvalidInputError(f"the number of features must be positive, not {d}")
    q = float(chdtri(d, delta))
    return lipschitz * (math.sqrt(q) + math.sqrt(q + 2 * epsilon)) / epsilon


def delta_of_sigma(d: int, epsilon: float, sigma: float, lipschitz: float = 1.0) -> float:
    """Return the delta that Procedure 3's condition gives a tilt of deviation ``sigma``: `sigma_star` turned round.

    It is Pr(U > ((sigma^2 eps - 2 L^2) / (2 L sigma))^2), U having the law chi^2_d; 1 where nothing is left of epsilon,
    or sigma^2 eps is at most 2 L^2.

    >>> round(delta_of_sigma(10, 0.1, sigma_star(10, 0.1, 0.05)), 4)
    0.05
    """
    root = (sigma**2 * epsilon - 2 * lipschitz**2) / (2 * lipschitz * sigma)
    return float(chdtrc(d, root**2)) if epsilon > 0 and root > 0 else 1.0


def tilt_sigma(  # noqa: PLR0913, PLR0917 -- of persons one more
    d: int,
    epsilon_tilde: float,
    delta: float,
    lipschitz: float,
    calibration: SlackCalibration,
    of_persons: float | None = None,
) -> float:
    """Return the deviation of a tilt: sigma* of Procedure 3, or the tight 2 L / mu(epsilon~, delta), free of d.

    The proof of the tight one (`parley.common.privacy.tilt`) asks for mu^2 <= 4 epsilon~. A larger delta than usual is
    not used up for it. ``of_persons`` is what the determinant costs beside epsilon~, if persons of several rows are
    hidden; None for records. sigma* hides them as it is: they too move the gradient by 2 L at most.
    """
    if calibration == "tight" and of_persons is not None:
        return 2 * lipschitz / person_tilt(epsilon_tilde + of_persons, delta, of_persons)
    if calibration == "tight":
        proven = 2 * lipschitz / (2 * math.sqrt(epsilon_tilde))
        return max(gaussian_sigma(epsilon_tilde, delta, 2 * lipschitz), proven)
    return sigma_star(d, epsilon_tilde, delta, lipschitz)


def determinant_cost(curvature: float, rank: int = 1) -> float:
    """Return the logarithm of the largest factor by which an example changes the determinant of a risk's Hessian.

    It is m log(1 + c / (m Lambda)), ``curvature`` being c / Lambda and ``rank`` m: 1 for a record, and for a person the
    most rows, or features if these are fewer (`parley.common.privacy.tilt`).
    """
    return rank * math.log1p(curvature / rank)


def slack(  # noqa: PLR0913, PLR0917 -- of persons one more
    epsilon: float,
    regularization: float,
    n_examples: int,
    smoothness: float,
    calibration: SlackCalibration = "better_branch",
    rank: int = 1,
) -> tuple[float, float]:
    """Return ``(delta_regularization, epsilon_tilde)``: the extra regularisation and the epsilon left for the noise.

    Chaudhuri et al. 2011, Algorithm 2, as used by Rajkumar & Agarwal's computeSlack. ``regularization`` is lambda of
    (1/n) sum loss + (lambda/2)|w|^2; ``smoothness`` is c. The determinant ratio costs 2 log(1 + c/(n lambda)) in the
    paper and log(1 + c/(n lambda)) by the tight bound (rank one over a common part). Of persons, of a larger ``rank``,
    it costs `determinant_cost`, and no less than the paper's in the paper. The part of epsilon that it leaves
    is for the noise; or lambda is raised until epsilon/2 is left, in the paper, or 5/6 epsilon, by the tight bound.
    Either branch is private for every epsilon, and the choice between them follows from these four public numbers
    alone.

    As published (``"paper"``) lambda is raised only if nothing would be left: a cliff, just above which next to nothing
    is left and noise is nearly infinite. ``"better_branch"`` and ``"tight"`` raise it whenever that leaves more for the
    noise. Where both leave as much, lambda is raised by 0, so both change without a jump.

    With a part t of epsilon for the noise, lambda is about c/((1 - t) n epsilon) then, and noise moves scores by some
    (1 - t)/(t c), for all n and epsilon: with a half it drowns what is learnt, and with nearly all a ridge is left that
    predicts the commonest class alone. *Chosen by looking at data*, between .5 and .98, by accuracy and log loss at
    lambda = .001 and .01 and epsilon .1 to 3: of 208 settings of eight sets 5/6 is better than a half in 114, and worse
    in one, by .003; 15/16 is better still on most, and worse by .14 on addresses in 3,231,961 columns.
    """
    check_epsilon(epsilon)
    if not regularization > 0 or n_examples < 1:
        raise InvalidInputError("regularization and the number of examples must be positive")
    if not math.isfinite(smoothness):
        raise InvalidInputError("objective perturbation needs a loss of bounded curvature: not 'hinge'")
    factor, part = (1.0, _FOR_THE_NOISE) if calibration == "tight" else (2.0, 0.5)
    curvature = smoothness / (n_examples * regularization)
    epsilon_tilde = epsilon - max(factor * math.log1p(curvature), determinant_cost(curvature, rank))
    if epsilon_tilde > (0.0 if calibration == "paper" else part * epsilon):
        return 0.0, epsilon_tilde
    most = (1 - part) * epsilon
    raised = smoothness / (n_examples * min(least_curvature(most / factor), least_curvature(most, rank)))
    return max(0.0, raised - regularization), part * epsilon


def least_curvature(cost: float, rank: int = 1) -> float:
    """Return the c / Lambda whose `determinant_cost` is ``cost``, or less if that is out of range.

    >>> round(determinant_cost(least_curvature(0.3, 5), 5), 12)
    0.3
    """
    return rank * math.expm1(min(cost / rank, _LARGEST_POWER))


def cliff_caution(  # noqa: PLR0913, PLR0917 -- of persons one more
    epsilon: float,
    regularization: float,
    n_examples: int,
    smoothness: float,
    remedy: SlackCalibration,
    rank: int = 1,
) -> tuple[str, ...]:
    """Return a warning with the remedy if `slack` as published leaves more noise than its other branch."""
    if not math.isfinite(smoothness):
        return ()
    _, published = slack(epsilon, regularization, n_examples, smoothness, "paper", rank)
    _, better = slack(epsilon, regularization, n_examples, smoothness, "better_branch", rank)
    if published >= better:
        return ()
    words = (
        f"computeSlack as published (calibration = paper) leaves {published:.2g} of epsilon = {epsilon:.3g} for the "
        f"noise at regularization = {regularization:g}, where its other branch, as private, leaves {better:.2g}: take "
        f"calibration = {remedy}"
    )
    return (words,)


def gaussian_delta(epsilon: float, mu: float, log_factor: float = 0.0) -> float:
    """Return the delta of a Gaussian release of sensitivity/deviation ``mu`` at ``epsilon``, times e^log_factor.

    Balle & Wang 2018, Theorem 8.
    """
    check_not_negative(mu=mu)
    if math.isnan(epsilon):
        raise InvalidInputError("epsilon must be a number, not nan")
    if mu == 0:
        return 0.0
    upper = float(log_ndtr(mu / 2 - epsilon / mu))
    lower = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(upper + log_factor) * -math.expm1(min(lower - upper, 0.0))


@lru_cache(maxsize=4096)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest sensitivity/deviation of a Gaussian release that is (epsilon, delta)-private, rounded down."""
    check_epsilon_delta(epsilon, delta)
    epsilon = min(
        epsilon, _MOST
    )  # what is private at a smaller epsilon is so at a larger one, whose square may overflow
    allowed, _ = bisect(lambda mu: gaussian_delta(epsilon, mu) <= delta)
    return allowed * (1 - 1e-9)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of a Gaussian release of sensitivity/deviation ``mu`` at ``delta``, rounded up.

    It is 0 for mu = 0, and infinite for delta = 0.
    """
    check_not_negative(delta=delta)
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if delta == 0:
        return math.inf
    _, enough = bisect(lambda epsilon: gaussian_delta(epsilon, mu) > delta)
    return enough * (1 + 1e-10)


def pure_mu(epsilon: float) -> float:
    """Return the mu of the Gaussian release that covers every ``epsilon``-private one, rounded up; its slack is 0.

    It is 2 Phi^-1(e^epsilon / (1 + e^epsilon)). The least error of the second kind of an epsilon-private test at level
    alpha is at least max(1 - e^epsilon alpha, e^-epsilon (1 - alpha)): two straight lines from (0, 1) and (1, 0) to a
    corner on the diagonal, alpha = 1 / (1 + e^epsilon). The Gaussian's curve, Phi(Phi^-1(1 - alpha) - mu), has the same
    ends and for this mu passes the corner; it is convex, so it lies below the lines, its chords. For an (epsilon,
    delta)-private release the same holds except for an event of probability delta (Kairouz, Oh & Viswanath, "The
    Composition Theorem for Differential Privacy", 2015): delta is its slack.

    >>> round(pure_mu(0.5), 3)
    0.624
    """
    check_not_negative(epsilon=epsilon)
    return -2.0 * float(ndtri_exp(-epsilon - math.log1p(math.exp(-epsilon)))) * (1 + ROUNDING)


def tilted_mu(mu: float, determinant: float) -> float:
    """Return the mu of the Gaussian release that covers a minimiser with a Gaussian tilt, rounded up; its slack is 0.

    One record moves the gradient by ``mu`` deviations of the tilt at most, and the logarithm of a determinant by
    ``determinant``, D. So delta at every epsilon >= D + mu^2 / 4 is at most that of a Gaussian release at epsilon - D,
    whichever of the two neighbours comes first (`parley.common.privacy.tilt`). Let G be the curve of that release: the
    least error of the second kind of a test at level alpha, Phi(z(alpha) - mu), z being the normal law's upper
    quantile; a = Phi(-3 mu / 4), where its slope is -s, s = e^(mu^2 / 4); and b = (Phi(-mu / 4) + s a) / (1 + s e^D).
    The minimiser's curve lies, for alpha up to b, above

        G(e^D alpha) up to e^D alpha = a, and from there on above its tangent, Phi(-mu / 4) + s (a - e^D alpha),

    which meets the diagonal at b, and beyond b above the reflection in the diagonal. A Gaussian's curve of parameter m
    is its own reflection, and lies below G(e^D alpha) where m >= mu + z(alpha) - z(e^D alpha). This grows with alpha,
    because the derivative of -z by log alpha is Mills' ratio, which falls in z: so it suffices that it holds where
    e^D alpha = a, at the tangent's one end. It is convex, so it lies below the tangent if it does so at both ends: at
    the other, (b, b), if m >= 2 z(b).

    >>> round(tilted_mu(0.1, 0.0), 3), round(tilted_mu(0.1, 0.01), 3)
    (0.1, 0.112)
    """
    check_not_negative(mu=mu, determinant=determinant)
    slope, at_end = mu**2 / 4, float(log_ndtr(-3 * mu / 4))
    on_curve = mu / 4 - float(ndtri_exp(at_end - determinant))
    height = float(np.logaddexp(log_ndtr(-mu / 4), slope + at_end))
    on_diagonal = -2 * float(ndtri_exp(height - float(np.logaddexp(0.0, determinant + slope))))
    return max(on_curve, on_diagonal) * (1 + ROUNDING)


def person_mu(mu: float, determinant: float) -> float:
    """Return the mu of the Gaussian release that covers a minimiser with a Gaussian tilt, for persons, rounded up.

    It is mu + kappa, kappa = Phi^-1(1 - e^-determinant / 2) (`parley.common.privacy.tilt`). A person moves the gradient
    by ``mu`` deviations of the tilt at most, and the logarithm of the determinant by ``determinant``.

    >>> round(person_mu(0.1, 0.0), 4), round(person_mu(0.1, 0.01), 4)
    (0.1, 0.1125)
    """
    check_not_negative(mu=mu, determinant=determinant)
    return (mu + max(0.0, -float(ndtri_exp(-determinant - math.log(2))))) * (1 + ROUNDING)


def person_delta(epsilon: float, mu: float, determinant: float) -> float:
    """Return the delta at ``epsilon``, from 0 up, of a minimiser with a Gaussian tilt, for persons; as `person_mu`.

    With m = mu + kappa and r the determinant it is that of a Gaussian release of m up to m^2 / 2; from r + mu m -
    mu^2 / 2 on e^r times that of a Gaussian release of mu at epsilon - r; and 1/2 - e^epsilon Phi(-m) between these,
    where chances of e^-r / 2 for the one law are best (`parley.common.privacy.tilt`).
    """
    check_not_negative(determinant=determinant)
    both = person_mu(mu, determinant)
    if epsilon <= both**2 / 2:
        return gaussian_delta(epsilon, both)
    if epsilon < determinant + mu * both - mu**2 / 2:
        return 0.5 * -math.expm1(epsilon + math.log(2) + float(log_ndtr(-both)))
    return gaussian_delta(epsilon - determinant, mu, determinant)


def person_tilt(epsilon: float, delta: float, determinant: float) -> float:
    """Return the largest mu for which `person_delta` is at most ``delta``, rounded down.

    Raises InvalidInputError if the determinant alone costs more.

    >>> round(2 / person_tilt(1.0, 1e-5, 0.0), 2), round(2 / person_tilt(1.0, 1e-5, 1 / 6), 2)
    (7.46, 8.9)
    """
    check_epsilon_delta(epsilon, delta)
    allowed, _ = bisect(lambda mu: person_delta(min(epsilon, _MOST), mu, determinant) <= delta)
    if not allowed:
        raise InvalidInputError(f"a determinant that costs {determinant:g} leaves nothing of epsilon = {epsilon:g}")
    return allowed * (1 - ROUNDING)


def person_epsilon(mu: float, delta: float, determinant: float) -> float:
    """Return the least epsilon at which `person_delta` is at most ``delta``, rounded up."""
    check_epsilon_delta(1.0, delta)
    _, enough = bisect(lambda epsilon: person_delta(epsilon, mu, determinant) > delta)
    return enough * (1 + ROUNDING)


def mu_of_draws(spread: float, draws: int) -> float:
    """Return the mu of the Gaussian release that covers so many draws of an index.

    `parley.common.privacy.draws` has the proof.
    """
    check_not_negative(draws=draws)
    return math.sqrt(draws) * pure_mu(spread / 2)


def bisect(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Return neighbouring numbers from 0 up: the last for which ``holds`` and the first for which it does not.

    Bisection says on which side of the root each end lies, so that callers can take the safe one. (Loading
    `scipy.optimize` would take a service half a second.)
    """
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the least deviation that makes a Gaussian release of this 2-norm sensitivity (epsilon, delta)-private.

    >>> round(gaussian_sigma(0.1, 0.05, 2), 2)
    8.97
    """
    return float(gaussian_sigmas(np.array(epsilon), np.array(delta), sensitivity))


def gaussian_sigmas(epsilon: FloatArray, delta: FloatArray, sensitivity: float) -> FloatArray:
    """Return `gaussian_sigma` for each party of a stack, (...); a cache solves each distinct pair of budgets once."""
    budgets = zip(epsilon.ravel().tolist(), delta.ravel().tolist(), strict=True)
    allowed = [gaussian_mu(*budget) for budget in budgets]
    if _positive(sensitivity) > _MOST * min(allowed, default=math.inf):
        raise InvalidInputError(f"a sensitivity of {sensitivity:g} needs more noise than can be drawn")
    return np.array([sensitivity / mu for mu in allowed]).reshape(epsilon.shape)


def _positive(sensitivity: float) -> float:
    """Return a sensitivity. Raises InvalidInputError unless it is positive and finite."""
    if not (math.isfinite(sensitivity) and sensitivity > 0):
        raise InvalidInputError(f"sensitivity must be positive and finite, not {sensitivity}")
    return sensitivity
