"""Generalized objective perturbation: Kifer, Smith & Thakurta, COLT 2012, Algorithm 1; Xie's Algorithm 3.

The same tilted risk as Chaudhuri's, for a regulariser of no strong convexity of its own: a ridge of
Delta >= 2 c / epsilon on the sum scale spends half of epsilon on the determinants (1 + c / Delta <= e^(epsilon/2)), and
the tilt has the other half, with zeta = 2 L where one record is replaced by another:

    density exp(-epsilon |b| / (2 zeta)), or sigma = zeta sqrt(8 log(2/delta) + 4 epsilon) / epsilon.

``"thesis"`` bounds the Hessian of one example's loss as Xie's thesis does, by the Frobenius norm of a matrix whose d^2
entries are bounded one by one, by |l'| + l'': d (L + c) instead of c. That is d times too much ridge, and nothing less
private. ``"tight"`` is what both mechanisms become with the least noise that is proven: a determinant costs
log(1 + c / Lambda), the tilt has what is left, and no more than a sixth is spent on the former.
"""

from __future__ import annotations

import math
from functools import lru_cache

from parley.common.learning.erm import check_smooth
from parley.common.learning.losses import bounded_slope
from parley.common.privacy.mechanisms.objective import FOR_THE_SOLVER, ObjectivePerturbation, objective, tilted
from parley.common.privacy.mechanisms.site import SiteTerms


@lru_cache(maxsize=4096)
def generalized(terms: SiteTerms) -> ObjectivePerturbation:
    """Kifer's mechanism for a site; raises InvalidInputError as `objective` does."""
    if terms.calibration == "tight":
        return objective(terms)
    terms.check("tight", "paper", "thesis")
    check_smooth(terms.loss)
    epsilon, delta = ((1 - FOR_THE_SOLVER) * part for part in terms.spent)
    zeta = 2 * bounded_slope(terms.loss)
    strength = max(terms.strength, 2 * hessian_bound(terms) / epsilon)
    if terms.law == "l2_laplace":
        return tilted(terms, strength, epsilon / (2 * zeta))
    return tilted(terms, strength, zeta * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon)


def hessian_bound(terms: SiteTerms) -> float:
    """The largest eigenvalue of the Hessian of one example's loss: c; or the thesis's bound, about d times as much."""
    if terms.calibration == "thesis":
        return terms.n_features * (bounded_slope(terms.loss) + terms.loss.smoothness)
    return terms.loss.smoothness
