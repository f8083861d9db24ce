"""The profile of a minimiser whose noise is inside the minimisation.

The minimiser w of a risk with a ridge Lambda and a random tilt b tells b: it is minus the gradient at w. So the density
of w is that of b at this place, times the determinant of the gradient's derivative. Let D and D' differ in one record,
x for x', and let E hold both. D' and E, like D and E, differ by one record more, for a loss of one score whose slope
has one sign.

- *The tilt.* For the same w, the tilts of D and E differ by s x', s between 0 and L. The logarithm of the ratio of the
  tilt's densities, at the b of D, is convex in s, for a Gaussian tilt and for density exp(-beta |b|). So it is at most
  max(0, l), l being its value for s = L: the loss of an ordinary release of b that one record moves by L.
- *The determinant* grows with a record, by a factor of 1 + c / Lambda at most. From D to E it lowers the loss; from E
  to D' it adds r = log(1 + c / Lambda) at most.

With d the profile of that ordinary release, that of D against E lies below d at losses y >= 0, and that of E against D'
below d(y - r) at y >= r. Profiles of P against Q against R compose: P(S) - e^(y1 + y2) R(S) is at most delta_PQ(y1) +
e^y1 delta_QR(y2). So for y >= r, and every y1 + y2 = y - r without a negative part,

    delta(y) <= d(y1) + e^y1 d(y2).

For a Gaussian tilt of mu = 2 L / sigma, the best parts are (y - r -+ mu^2 / 4) / 2, and the bound is that of a Gaussian
release of this mu at y - r, wherever y - r >= mu^2 / 4; below that, the smaller part is 0. For the other law
the best parts are taken on a grid, and a chord between its points. D and D' may change places;
so at losses between -r and r the profile, convex in e^y, lies below its chord. For two-sided slopes nothing is proven.

*Persons.* Let D and D' differ in one person, of at most R rows, whose weights a_i add up to at most 1, for another.
That is no record of a longer row: its gradient, sum a_i s_i u_i with each s_i in [0, L] and |u_i| <= 1, has no
direction of its own, and its Hessian has up to m = min(d, R) eigenvalues.

*Their determinant.* A matrix P of rank m and trace c, as a person adds to some K >= Lambda, changes log det by the sum
of log(1 + p_k), the p_k >= 0 being the eigenvalues of K^(-1/2) P K^(-1/2), which add up to c / Lambda at most. So it is
at most r = m log(1 + c / (m Lambda)), as the logarithm is concave; rows at right angles attain it. From t' P to t P,
t > t', it changes by at most what it would if all p_k were c / (m Lambda), because log((1 + t p) / (1 + t' p)) is
concave in p too, and grows. These bounds of steps add up to r.

*Gaussian tilts of persons* (the proof is ours). Let mu = 2 L / sigma, nu = mu / 2, kappa = Phi^-1(1 - e^-r / 2). Then
a Gaussian release of mu + kappa covers the minimiser; and from y = r + mu kappa + mu^2 / 2 on its profile is at most
e^r times that of a Gaussian release of mu at y - r. But for the determinant, persons cost what records cost.

Proof. Give the person of D' weights of 1 - t times its own, 0 <= t <= 1; at t = 1 it is gone; then give the person of D
t - 1 times its own, up to t = 2. Each of these risks has a minimiser, of law P_t. Let z(alpha) = -Phi^-1(alpha) and
f(t) = z(P_t(S)) for any set S of answers, whose chance is neither 0 nor 1 (for one t, and so for all); and let
M(z) = Phi(-z) / phi(z), Mills' ratio, which falls.

1. *A step.* Let A and B be two of these risks, A with h more or h less of one person than B, and eta = h L / sigma. If
   w is B's minimiser, its tilt b is N(0, sigma^2), and A's tilt for this w is b -+ h sum a_i s_i u_i, however the s_i
   depend on w. So the ratio of the tilts' densities, A's over B's, is at most exp(sum a_i eta Z_i^+), with Z_i = +-<b,
   u_i> / sigma, normal of variance 1 at most (a square is dropped). That of determinants is at most e^q, q being the
   bound of this step if A has more of the person, and 0 if it has less. (e^(q + x) - e^y)^+ is convex in x and grows,
   and the a_i add up to at most 1: so A(S) - e^y B(S) <= E (e^(q + eta Z^+) - e^y)^+ for a standard normal Z. If alpha
   = B(S) is at most 1/2, this is, for y = q + eta z(alpha), A(S) <= e^(q + eta^2 / 2) Phi(eta - z(alpha)).
2. *Many steps.* For h to 0, eta^2 is nothing beside eta. So f changes at a bounded rate. Where f > 0, it falls at most
   at the rate nu, and beside that at M(f) times the rate of the determinant's bound if t moves to more of a person.
   Where f < 0, by the same of the complement of S, A and B exchanged: at most at the rate nu, and beside that at M(-f)
   times that rate if t moves to less of a person. Up to t = 1 there is less and less of one, from then on more and
   more: so the determinant costs nothing before t = 1 where f > 0, and nothing after it where f < 0.
3. *All of them.* Let f(0) >= nu. Then f(1) >= f(0) - nu >= 0. From there on, for as long as f > 0, P_t(S) is at most
   e^(r_t) Phi(t nu - f(0)), r_t being the part of r up to t: where P_t(S) is above Phi(t nu - f(0)), its logarithm
   grows no faster than that of this bound, because 1 / M grows. If so up to t = 2, then D(S) <= e^r Phi(mu - f(0)). If
   not, f = 0 at some t >= 1, for the first time where e^r Phi(t nu - f(0)) >= 1/2, so t nu >= f(0) - kappa; and below 0
   it falls at most at the rate nu: then D(S) <= Phi(mu + kappa - f(0)). The former is no larger than this while it is
   at most 1/2, because z(beta) - z(e^r beta) grows with beta, up to kappa at e^r beta = 1/2; and where it is more, this
   is more than 1/2, and D(S) is not.
4. *If f(0) < nu*, the same holds. Were D(S) larger than Phi(mu + kappa - f(0)), the complement of S, with D and D'
   exchanged, would begin at z(1 - D(S)) > mu + kappa - f(0) > nu, and 3 would say that it is not so.

So D(S) <= Phi(mu + kappa - z(D'(S))) for all S; and where z(D'(S)) >= mu + kappa, D(S) <= e^r Phi(mu - z(D'(S))). The
profile is the most that D(S) - e^y D'(S) can be with these (`parley.common.privacy.calibration.person_delta`).

*Tilts of density exp(-beta |b|) of persons.* Pure epsilon is r + 2 L beta, by the triangle inequality. For the profile,
take a single step from D' to D: |b| - |b - x| <= <b, x> / |b|, and the direction of b is uniform on the sphere; so with
V one of its coordinates and T = 2 L beta

    delta(y) <= e^r E (e^(T V^+) - e^(y - r))^+    for y >= r, and below the chord for less.

Slopes of both signs would have |Z| and |V| for Z^+ and V^+, and twice the chance: of them nothing is proven here.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import betainc

from parley.common.arrays import FloatArray
from parley.common.privacy.calibration import person_delta, person_mu
from parley.common.privacy.company import (
    DEVIATIONS,
    Cover,
    Profile,
    gaussian_deltas,
    in_sequence,
    of_profile,
    of_pure,
    square_at_zero,
)
from parley.common.privacy.events import GaussianEvent, L2LaplaceEvent, TiltEvent
from parley.common.privacy.l2_laplace import l2_laplace_delta

_MOST = 300.0  # of larger epsilons nothing is looked at but the claim
_STEPS = 250
"""The parts of a loss that are tried."""
_COORDINATES = 4000
"""The coordinates of a direction at which its law is computed."""


def tilt_profile(law: GaussianEvent | L2LaplaceEvent, determinant: float, *, persons: bool = False) -> Profile:
    """Return the profile, at losses of 0 and more; the arguments are as in `TiltEvent`."""
    if persons and isinstance(law, GaussianEvent):
        return lambda losses: np.array([person_delta(loss, 2 * law.mu, determinant) for loss in losses.tolist()])
    if isinstance(law, GaussianEvent):
        two_moves = _gaussian_moves(law.mu)
    else:
        two_moves = _person_moves(law, determinant) if persons else _vector_moves(law)
    at_factor, factor = float(two_moves(np.zeros(1))[0]), np.exp(determinant)

    def profile(losses: FloatArray) -> FloatArray:
        chord = (factor + at_factor - np.exp(np.minimum(losses, determinant)) * (1 - at_factor)) / (1 + factor)
        beyond = two_moves(np.maximum(losses - determinant, 0.0))
        result: FloatArray = np.where(losses < determinant, chord, beyond)
        return result

    return profile


def _gaussian_moves(mu: float) -> Profile:
    """Return the bound for two moves of mu each, by the best parts of a loss."""

    def bound(losses: FloatArray) -> FloatArray:
        smaller = np.maximum((losses - mu**2) / 2, 0.0)
        first, second = (gaussian_deltas(part, np.full_like(part, mu)) for part in (smaller, losses - smaller))
        return np.asarray(np.minimum(first + np.exp(smaller) * second, 1.0))

    return bound


def _vector_moves(law: L2LaplaceEvent) -> Profile:
    """Return the bound for two moves of density exp(-beta |b|): the best parts on a grid, and chords between."""
    at_zero = square_at_zero(float(l2_laplace_delta(np.zeros(1), law.epsilon, law.dimension)[0]))
    step = min(law.epsilon, DEVIATIONS * math.sqrt(at_zero) + at_zero) / _STEPS
    parts: FloatArray = step * np.arange(_STEPS + 1, dtype=np.float64)
    deltas = l2_laplace_delta(parts, law.epsilon, law.dimension)
    sums = np.full(2 * _STEPS + 1, np.inf)
    for first in range(_STEPS + 1):  # the smaller part
        seconds = np.arange(first, _STEPS + 1)
        both = deltas[first] + math.exp(parts[first]) * deltas[seconds]
        sums[first + seconds] = np.minimum(sums[first + seconds], both)
    ends = np.exp(step * np.arange(len(sums)))
    return lambda losses: np.asarray(np.interp(np.exp(losses), ends, np.minimum(sums, 1.0)))


def _person_moves(law: L2LaplaceEvent, determinant: float) -> Profile:
    """Return e^r E (e^(T V^+) - e^y)^+ of losses y, r being the ``determinant``: bounded on a grid, chords between.

    It is the integral over v from y / T to 1 of T e^(T v) Pr(V > v), and V^2 has a Beta law of 1/2 and (d - 1) / 2.
    """
    reach, d = 2 * law.epsilon, law.dimension
    some = np.linspace(0.0, min(1.0, DEVIATIONS / math.sqrt(d)), _COORDINATES)
    at = np.union1d(some, [1.0])
    tails = betainc((d - 1) / 2, 0.5, 1 - at[:-1] ** 2) / 2 if d > 1 else np.full(len(at) - 1, 0.5)
    ends = np.exp(reach * at)
    sums = np.append(np.cumsum((tails * np.diff(ends))[::-1])[::-1], 0.0) * math.exp(determinant)
    return lambda losses: np.asarray(np.interp(np.exp(losses), ends, np.minimum(sums, 1.0)))


@lru_cache(maxsize=4096)
def cover_of_tilt(event: TiltEvent) -> Cover:
    """Return the cover of the minimisations of an event, without their blur.

    If the profile gives none, it is that of an (epsilon, delta)-private release.
    """
    pure = of_pure(event.epsilon)
    claimed = Cover(*(part / event.times for part in (pure.alone, pure.variance, pure.excess, event.delta)))
    if event.epsilon > _MOST:
        return Cover(pure.alone, pure.variance, pure.excess, event.delta)
    bends, end = [event.determinant], math.inf
    if isinstance(event.law, L2LaplaceEvent):
        end = 2 * event.law.epsilon + event.determinant
    elif event.persons:
        mu = person_mu(2 * event.law.mu, event.determinant)
        claimed, bends = Cover(mu**2, mu**2), [mu**2 / 2, event.determinant + 2 * event.law.mu * (mu - event.law.mu)]
    profile = tilt_profile(event.law, event.determinant, persons=event.persons)
    of_one = of_profile(profile, end, claimed, bends)
    return in_sequence([(of_one, event.times)])
