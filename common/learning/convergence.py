"""How near its minimiser a solver surely comes, from public numbers alone: a bound for every shard of a size.

Noise and price of a private minimiser are fixed before any data are touched, so its proof may not lean on how well the
solver fared on the shard that there is. With n examples, Lambda the regularization on the sum scale, b = n c + Lambda
the largest curvature and kappa = b / Lambda, take F's gradient g at some w:

- *In exact arithmetic* a gradient step of 1 / b leads to (I - H / b) g, H the mean of F's Hessians on the way, whose
  eigenvalues lie in [Lambda, b]: a gradient shorter by the factor 1 - 1 / kappa, whatever the examples are. `minimise`
  ends with such steps, from an iterate whose gradient is no longer than n L + |t|, t being the linear term: that
  at w = 0, or at w = -t / Lambda, is not.
- *In floating point* let e(w) bound the rounding of a gradient and of a step, the latter times b. A gradient step that
  does not shorten the computed gradient, where they end, then proves |g| <= 4 kappa e. While |g| > 8 kappa e, each
  step shortens it by the factor 1 - 1 / (2 kappa) at least. So after 2 kappa ln(|g_0| / (8 kappa e)) steps, if not
  before, |g| <= 8 kappa e has come true, and it stays true.
- e(w) <= A + B |w|, and |w| <= |w*| + |g| / Lambda by strong convexity, where |w*| <= sqrt(2 n loss(0) / Lambda) from
  F(w*) <= F(0), and a linear term t moves it by at most |t| / Lambda. With 8 kappa B <= Lambda / 2 therefore
  |g| <= 16 kappa (A + B |w*|).

*Sparse rows.* A row of at most m entries has a score of m products, whatever the columns are: what is added for the
others is zero, and adding it exact, in any order. And its score hangs on the weights of its own columns alone. There a
dense linear term is no longer than some t_m, which is much less than |t| of millions of columns. With
v = w + t / Lambda, F is the sum of the losses plus Lambda |v|^2 / 2, but for a constant, so F(w*) <= F(-t / Lambda)
gives |v*| <= sqrt(2 n (loss(0) + L t_m / Lambda) / Lambda): the weights that a score hangs on are no longer than that
plus t_m / Lambda. So B is the sum of two parts: of scores, times this length, and of the weights themselves.

Where only the columns that occur in the rows are solved for, and the others are -t / Lambda at once, the bound stands:
the gradient in the latter is what rounding makes of |t|, at right angles to that in the former.

By strong convexity again, the answer lies within |g| / Lambda of the minimiser. So where one record moves the minimiser
by 2 L / Lambda, it moves the answer by at most 2 (L + |g|) / Lambda, solved well or badly.
"""

from __future__ import annotations

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import SUMMED_ROWS, rows_of_a_block
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Loss, bounded_slope, loss_at_zero

TOLERANCE = 1e-9
"""The norm of the objective's gradient, on the sum scale, at which a private minimiser counts as solved."""
MOST_STEPS = 10**6
"""How many gradient steps a private minimiser may take after Newton's, which commonly leave nothing to do."""
_MOST_LEFT = 0.1
"""The longest gradient that may be left, in parts of L: the noise is by as much larger."""
_U = 2.0**-53
"""Half the distance from 1 to the next larger float."""


def gradient_left(  # noqa: PLR0913 -- public numbers, of which sparse rows have more
    loss: Loss,
    n_examples: IntArray,
    n_features: int,
    regularization: FloatArray,
    tilt: float = 0.0,
    *,
    row_entries: int | None = None,
    row_tilt: float | None = None,
) -> FloatArray:
    """The largest norm (...) of F's gradient, on the sum scale, where `minimise` ends with `TOLERANCE`, `MOST_STEPS`.

    ``n_examples`` (...), of one party each; ``regularization`` (...) on the sum scale; ``tilt`` is the largest norm of
    the linear term, and ``row_tilt`` that of its part in the columns of any row. ``row_entries`` is the most entries of
    a row that are not zero; None for all. Raises InvalidInputError where the bound is no small part of the loss's L or
    takes too many steps.
    """
    slope, n = bounded_slope(loss), n_examples.astype(np.float64)
    kappa = 1 + n * loss.smoothness / regularization
    entries = n_features if row_entries is None else min(row_entries, n_features)
    fixed, by_score, by_weight = _rounding(loss, n, n_features, entries, regularization, tilt)
    at_zero = loss_at_zero(loss)
    radius = np.sqrt(2 * n * at_zero / regularization) + tilt / regularization
    pull = (tilt if row_tilt is None else min(row_tilt, tilt)) / regularization
    reach = np.minimum(radius, np.sqrt(2 * n * (at_zero + slope * pull) / regularization) + pull)
    left = TOLERANCE + 16 * kappa * (fixed + by_score * reach + by_weight * radius)
    steps = 2 * kappa * np.log(np.maximum((n * slope + tilt) / left, 1.0))
    sure = (left <= _MOST_LEFT * slope) & (steps < MOST_STEPS) & (16 * kappa * (by_score + by_weight) <= regularization)
    if not bool(np.all(sure)):
        raise InvalidInputError(
            "no solver surely finds the minimiser for this regularization, loss and number of examples, whatever the "
            "examples are: take a larger regularization, or a smoother loss"
        )
    return np.asarray(left)


def _rounding(  # noqa: PLR0913, PLR0917 -- public numbers
    loss: Loss, n: FloatArray, n_features: int, entries: int, regularization: FloatArray, tilt: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """``(A, B of scores, B of weights)``, each (...): what rounding may do to a gradient and to a step.

    A score of m products is off by m u |w|, its slope by c times that and by some u of its own. A sum of k terms is off
    by k u times the sum of their sizes: k rows in a sum, then these sums, of which the last of a block may be shorter,
    then the three parts of the gradient.
    """
    slope, bend = bounded_slope(loss), loss.smoothness
    block = rows_of_a_block(n_features)
    rows = np.minimum(n, min(block, SUMMED_ROWS))
    added = rows + n / rows + n // block + 8
    fixed = n * (8 + loss.outputs) * (slope + bend) + added * (n * slope + tilt)
    return 2 * _U * fixed, 2 * _U * n * bend * (entries + 8), 2 * _U * 8 * regularization
