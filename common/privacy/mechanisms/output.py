"""Output perturbation, a minimiser plus noise for how far one record moves it; and Kifer's mechanism.

*Output perturbation.* Chaudhuri, Monteleoni & Sarwate, JMLR 2011, Algorithm 1; Xie's Algorithm 1; Jain & Thakurta,
ICML 2014, eq. 3. By strong convexity one record moves the minimiser by at most 2 L / (n lambda), for every curvature of
the loss; the gradient that a solver may leave adds to L (`parley.common.learning.erm`). So the hinge is allowed too: it
is solved as the Huber loss of the least half-width whose minimiser a solver surely finds, which lies as near to the
hinge's as this is narrow.

*By how much less than 2 L / (n lambda)* (``"tight"``; the proof is ours). Let w be the minimiser for some rows, w' that
for rows in which a record z is replaced by z', F' the latter's risk on the sum scale, Lambda = n lambda. The gradient
of F' at w is that of z' less that of z, *both at the same w*, because w is a minimiser. F' is Lambda-strongly convex
and has its minimum at w', so

    |w - w'| <= |gradient of z' at w - gradient of z at w| / Lambda,

and |w| <= r, as `parley.common.learning.losses.largest_minimiser` bounds any minimiser from public terms. A solver
that leaves gradients of up to gamma moves both answers by up to gamma / Lambda; w is the exact minimiser, so r
stays. What is left is how far apart the gradients of two records can be at one w in a ball
(`parley.common.learning.losses.gradients_apart`). A dropped row is one of zeros. Class weights in [0, 1] make two
gradients no further apart: the norm of alpha p - beta q is convex in alpha and beta, and where one of them is 0 stands
for a row of zeros.

- *Logistic loss*: at most max over c in [0, 1] of 2 sigma(r c) sqrt(1 - c^2), sigma(t) = 1 / (1 + e^-t), which two rows
  attain. This is 1 at r = 0, and 2 where r has no bound. With u = y x and v = y' x' the gradients are -p u and -q v for
  p = sigma(-w.u), q = sigma(-w.v). Let rho = |w|, a + b = -w.u and a - b = -w.v. For these scores the rows' parts along
  w are given, and those across it may as well be opposite and as long as norms of 1 allow. Let a, b >= 0: to swap the
  rows changes the sign of b, and to change that of a leaves |p - q|, and p q is no less where a >= 0. In angles from
  the plane across w, rho sin A = a + b and rho sin B = a - b, with kappa = cos^2((A + B) / 2),

      G(a, b) = |p u - q v|^2 = p^2 + q^2 + 2 p q cos(A + B) = kappa (p + q)^2 + (1 - kappa) (p - q)^2,
      a^2 / (1 - kappa) + b^2 / kappa = rho^2,    hence a + b <= rho.

  G(a, b) <= G(a, 0), which is (2 sigma(rho c) sqrt(1 - c^2))^2 for c = a / rho, and grows with rho. To see it, let C =
  cosh a + cosh b, S = p + q - 1 = sinh(a) / C, T = tanh(a / 2) (S at b = 0), D = p - q = sinh(b) / C, and k = 1 - a^2 /
  rho^2 (kappa at b = 0). Then 4 p q = (1 + S)^2 - D^2 = 2 e^a / C, kappa <= k, and k - kappa = (b^2 / rho^2)
  (1 - kappa) / kappa >= (b^2 / rho^2) (1 - k) / k. If a = 0, G = kappa + (1 - kappa) D^2 <= 1. Otherwise, with t =
  k / (1 - k) = rho^2 / a^2 - 1,

      (G(a, 0) - G(a, b)) / (1 - k) >= t X + Y / t - D^2,   X = (T - S) (2 + T + S),   Y = (2 e^a / C) b^2 / a^2,

  where T - S = T (cosh b - 1) / C, and D^2 <= (cosh b - 1) / C as C >= cosh b + 1. If T (2 + T) b (2 a + b) >= a^2,
  then t X >= D^2, as t >= b (2 a + b) / a^2. If not, then 4 X Y >= D^4, so t X + Y / t >= D^2 too: that is,
  16 T e^a b^2 >= a^2 (cosh b - 1). For T >= a / (2 + a), so (a + b)^2 < a + 1.5 a^2 and b < .225 a + .41; and
  cosh b - 1 <= b^2 e^b / 2; it remains that 32 e^(a - b) >= 21 e^(.775 a) >= a (2 + a).
- *Softmax* of K classes: a gradient is (p - e_y) times x, p being the classes' probabilities at the scores s of x. Its
  length is at most the root of P^2 + sum over k other than y of p_k^2 <= P (P + max p_k), P = 1 - p_y. Scores have a
  norm of up to r. The logarithm of the odds of P, log sum over k other than y of e^(s_k) less s_y, is log(K - 1) at
  s = 0, with slopes of norm up to sqrt 2, so P <= sigma(sqrt 2 r + log(K - 1)). That of the odds of p_k is at most s_k
  less the mean of the others and log(K - 1), so p_k <= sigma(sqrt(K / (K - 1)) r - log(K - 1)). Two gradients are at
  most twice as far apart. Of two classes it is the logistic loss of (w_1 - w_2).x, where |w_1 - w_2| <= sqrt 2 r, and a
  gradient is sqrt 2 times as long.
- *Huber loss*, h <= 1: 2 L. Two rows at right angles to w have slopes of 1.

*Persons of several rows.* A person's rows have weights a_i in [0, 1] that add up to at most 1
(`parley.common.data.weighing`), and the risk on the sum scale has a_i times the loss of each row. Fill the weights up
to 1 with a row of zeros, whose gradient is 0. Then the gradient of a person at w is a convex combination of those of
rows, sum_i a_i g_i, and that of another person sum_j b_j h_j. Their distance is that of sum_ij a_i b_j (g_i - h_j), no
more than the largest |g_i - h_j|: two persons' gradients at the same w are no further apart than two rows' are, and
no longer than L. The risk is convex as before, and n persons' weights add up to at most n. So in the mean over n the
pull along a minimiser, which bounds r, is a convex combination of rows' pulls too. All that is said here of a record
replaced by another then holds of a person, with the same numbers, whichever rows and however many each has. Only what
a solver leaves is bounded by the number of rows as well (`parley.common.learning.erm`).

Noise of density exp(-beta |b|), beta = epsilon / sensitivity, is pure; Jain & Thakurta's beta is half of that, and so
is what a release by it is charged. Gaussian noise is the least that is (epsilon, delta) private, or Jain & Thakurta's
sigma = 4 L sqrt(log(1/delta) + epsilon) / (n lambda epsilon): valid, and more than is needed (1.9 times at epsilon = 1,
delta = 1e-5; 7.8 times at .1, .05).

*Generalized objective perturbation* (`generalized`). Kifer, Smith & Thakurta, COLT 2012, Algorithm 1; Xie's Algorithm
3. The same tilted risk as Chaudhuri's, for a regulariser without strong convexity of its own: a ridge of Delta >= 2 c /
epsilon on the sum scale spends half of epsilon on the determinants (1 + c / Delta <= e^(epsilon/2)), and the tilt has
the other half, with zeta = 2 L if one record is replaced by another:

    density exp(-epsilon |b| / (2 zeta)), or sigma = zeta sqrt(8 log(2/delta) + 4 epsilon) / epsilon.

Both published calibrations print the ridge as a sum: the site's own on the sum scale, Lambda = n lambda, plus Delta, so
the risk has Lambda + Delta. The proof asks for Delta alone, and a stronger ridge only lowers the determinants, so the
sum is private too. ``"paper"`` has Delta = 2 c / epsilon. ``"thesis"`` bounds the Hessian of one
example's loss as Xie's (3.8) does, by the Frobenius norm of a matrix, which for the Huber loss of half-width h is

    sqrt(d^2 / (4 h^2) + d (1 + 1/h)),

or sqrt((d c)^2 + d (L^2 + 2 L c)) where L = 1 and c = 1 / (2 h); for other losses this form is our reading of it. It is
at least d c, and the largest eigenvalue is at most c: some d times too much ridge, and nothing less private.
``"tight"`` is what both mechanisms become with the least noise that is proven: a determinant costs log(1 + c /
Lambda), the tilt has the remaining epsilon, and no more than a sixth is spent on the former.

*Persons* of several rows keep these bounds: the determinant costs (c / Lambda at most, however many rows there are) and
a pure tilt by the triangle inequality. Of a Gaussian one, Kifer's deviation and the least that is proven for
persons (`parley.common.privacy.calibration.person_tilt`) at this ridge the larger is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import FRACTION_BITS, MAX_NORM, UNIT, WEIGHT_BITS, to_integers, weights_on_grid
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import MOST_STEPS, TOLERANCE, check_smooth, minimise
from parley.common.learning.losses import Hinge, Huber, Loss, bounded_slope, gradients_apart, largest_minimiser
from parley.common.privacy.calibration import determinant_cost, gaussian_sigma, person_tilt
from parley.common.privacy.events import Event, GaussianEvent, L2LaplaceEvent, NonPrivateEvent
from parley.common.privacy.mechanisms.additive import add_gaussian, add_l2_laplace, fitting, l2_laplace_deviation
from parley.common.privacy.mechanisms.objective import FOR_THE_SOLVER, ObjectivePerturbation, objective, tilted
from parley.common.privacy.mechanisms.site import SiteRelease, SiteTerms, left_by_solver, stacked
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Additive, Proof

_LARGEST = MAX_NORM - 1.0
"""The largest norm of weights that leaves room for their rounding."""
_NARROW = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Half-widths of the Huber losses that may replace the hinge."""


def solve(loss: Loss, shard: Shard, strength: FloatArray | float, most_steps: int = MOST_STEPS) -> FloatArray:
    """Return the regularised minimiser (..., m) of a shard, or of each shard of a stack."""
    weights = minimise(loss, shard, strength, tolerance=TOLERANCE, most_steps=most_steps)
    return weights.reshape(*shard.y.shape[:-1], loss.outputs * shard.n_features)


def projected(weights: FloatArray) -> FloatArray:
    """Project weights (..., m) onto the ball of the largest weights.

    So there is an answer for all examples, and no two answers are brought further apart.
    """
    lengths = np.linalg.norm(weights, axis=-1, keepdims=True)
    return np.asarray(weights * np.minimum(1.0, _LARGEST / np.maximum(lengths, 1.0)))


def on_grid(weights: FloatArray) -> IntArray:
    """Round weights (..., m), `projected`, to their grid of 2^-20, on which scores are exact, as integers."""
    return to_integers(weights_on_grid(projected(weights)))


def within(radius: FloatArray | float, weights: IntArray) -> IntArray:
    """Scale weights (..., m) in units of 2^-32 into a ball about 0 of a radius (..., 1), and round them toward 0."""
    lengths = np.linalg.norm(weights.astype(np.float64), axis=-1, keepdims=True) * (1 + 2.0**-40)
    inside = np.minimum(1.0, radius * UNIT / np.maximum(lengths, 1.0))
    step = 2.0 ** (FRACTION_BITS - WEIGHT_BITS)
    return np.asarray(np.trunc(weights * inside / step) * step).astype(np.int64)


def solvable(terms: SiteTerms) -> Loss:
    """Return the loss that is solved for.

    It is the loss itself, or for the hinge the narrowest Huber loss that a solver surely solves, or the widest.
    """
    if not isinstance(terms.loss, Hinge):
        return terms.loss
    for half_width in _NARROW:
        smoothed = replace(terms, loss=Huber(half_width, class_weights=terms.loss.class_weights))
        try:
            left_by_solver(smoothed, smoothed.strength)
        except InvalidInputError:
            continue
        return smoothed.loss
    return Huber(_NARROW[-1], class_weights=terms.loss.class_weights)


@dataclass(frozen=True, slots=True)
class OutputPerturbation(SiteRelease):
    """The mechanism for one site: the loss that is solved, how far a record moves the answer, and its noise."""

    terms: SiteTerms
    loss: Loss
    reach: float
    scale: float
    """The deviation of Gaussian noise, or beta."""

    @classmethod
    def prepare(cls, sites: Sequence[Self], shard: Shard) -> IntArray:
        """Return the minimisers, in integers of 2^-32."""
        strengths = stacked([site.terms.strength for site in sites], shard.y)
        return to_integers(projected(solve(sites[0].loss, shard, strengths)))

    @classmethod
    def answer(cls, sites: Sequence[Self], prepared: IntArray, noise: Noise) -> IntArray:
        """Return the minimisers plus noise."""
        return cls.hide(sites, prepared, 1.0, noise)

    @classmethod
    def hide(cls, sites: Sequence[Self], prepared: IntArray, share: float, noise: Noise) -> IntArray:
        """Return the minimisers plus a share of the noise: this part of its variance."""
        scale = stacked([site.scale for site in sites], prepared)
        if sites[0].terms.law == "gaussian":
            return add_gaussian(prepared, scale, share, noise)
        return add_l2_laplace(prepared, scale, 1 / share, noise)

    @property
    def event(self) -> Event:
        """The event of a Gaussian release, or of noise of density exp(-beta |b|)."""
        if self.terms.law == "gaussian":
            return GaussianEvent(self.reach / self.scale)
        return L2LaplaceEvent(self.terms.pure_on_answer, self.terms.n_weights)

    @classmethod
    def proof(cls, sites: Sequence[Self]) -> Proof:  # noqa: ARG003
        """Return the proof of a minimiser plus noise."""
        return Additive()

    @property
    def deviation(self) -> float:
        """The deviation of the noise on each weight."""
        if self.terms.law == "gaussian":
            return self.scale
        return float(l2_laplace_deviation(self.scale, self.terms.n_weights))

    def check_noise(self) -> None:
        """Raise InvalidInputError if the noise does not fit on the wire."""
        fitting(self.deviation)

    @property
    def output_sensitivity(self) -> float:
        """How far a record moves the answer, which is ``reach``."""
        return self.reach

    @property
    def kind(self) -> tuple[object, ...]:
        """The type, the law and the loss that is solved for."""
        return type(self), self.terms.law, self.loss


@lru_cache(maxsize=4096)
def output(terms: SiteTerms) -> OutputPerturbation:
    """Set output perturbation for a site. Raises InvalidInputError if no solver surely is near enough."""
    terms.check("tight", "paper", "jain_thakurta")
    loss = solvable(terms)
    residual = left_by_solver(replace(terms, loss=loss), terms.strength)
    if terms.calibration == "tight":
        apart = gradients_apart(loss, largest_minimiser(loss, terms.regularization))
    else:
        apart = 2 * bounded_slope(loss)
    reach = (apart + 2 * residual) / terms.strength + math.sqrt(terms.n_weights) * 2.0**-FRACTION_BITS
    return hiding(terms, loss, reach)


def hiding(terms: SiteTerms, loss: Loss, reach: float) -> OutputPerturbation:
    """Set the mechanism whose noise hides that an answer moves by ``reach``."""
    if terms.law == "l2_laplace":
        scale = terms.pure_on_answer / reach
    elif terms.calibration == "tight":
        scale = gaussian_sigma(terms.epsilon, terms.delta, reach)
    else:
        scale = 2 * reach * math.sqrt(math.log(1 / terms.delta) + terms.epsilon) / terms.epsilon
    return OutputPerturbation(terms, loss, reach, scale)


@dataclass(frozen=True, slots=True)
class ExactMinimiser(SiteRelease):
    """No mechanism: the minimiser without noise, for an owner's own use and for simulations."""

    terms: SiteTerms
    loss: Loss

    @classmethod
    def prepare(cls, sites: Sequence[Self], shard: Shard) -> IntArray:
        """Return the minimisers, in integers of 2^-32."""
        strengths = stacked([site.terms.strength for site in sites], shard.y)
        return to_integers(projected(solve(sites[0].loss, shard, strengths, most_steps=0)))

    @classmethod
    def answer(cls, sites: Sequence[Self], prepared: IntArray, noise: Noise) -> IntArray:  # noqa: ARG003
        """Return the minimisers without noise."""
        return prepared

    @property
    def event(self) -> Event:
        """The event of an answer without any privacy."""
        return NonPrivateEvent()

    @classmethod
    def proof(cls, sites: Sequence[Self]) -> None:
        """Return None: nothing is claimed."""

    @property
    def deviation(self) -> float:
        """The deviation of the noise, which is 0."""
        return 0.0

    def check_noise(self) -> None:
        """Accept: there is no noise."""

    @property
    def kind(self) -> tuple[object, ...]:
        """The type, the law and the loss that is solved for."""
        return type(self), self.terms.law, self.loss


def exact(terms: SiteTerms) -> ExactMinimiser:
    """Set no noise for a site. Raises InvalidInputError for a loss without a minimiser, or a site without examples."""
    terms.check_examples()
    loss = solvable(terms)
    check_smooth(loss)
    return ExactMinimiser(terms, loss)


@lru_cache(maxsize=4096)
def generalized(terms: SiteTerms) -> ObjectivePerturbation:
    """Set Kifer's mechanism for a site. Raises InvalidInputError as `objective` does."""
    if terms.calibration == "tight":
        return objective(terms)
    terms.check("tight", "paper", "thesis")
    check_smooth(terms.loss)
    epsilon, delta = ((1 - FOR_THE_SOLVER) * part for part in terms.spent)
    zeta = 2 * bounded_slope(terms.loss)
    strength = terms.strength + 2 * hessian_bound(terms) / epsilon
    if terms.law == "l2_laplace":
        return tilted(terms, strength, epsilon / (2 * zeta))
    sigma = zeta * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
    if terms.persons:
        determinant = determinant_cost(terms.loss.smoothness / strength, terms.rank)
        sigma = max(sigma, zeta / person_tilt(epsilon, delta, determinant))
    return tilted(terms, strength, sigma)


def hessian_bound(terms: SiteTerms) -> float:
    """Return the largest eigenvalue of the Hessian of one example's loss.

    It is c, or the thesis's bound (3.8), about d times as much: 81.49 for d = 80 and h = 1/2.
    """
    c = terms.loss.smoothness
    if terms.calibration == "thesis":
        d, slope = terms.n_features, bounded_slope(terms.loss)
        return math.sqrt((d * c) ** 2 + d * (slope**2 + 2 * slope * c))
    return c
