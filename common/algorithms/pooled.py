"""The non-private ceiling: the minimiser on all data, pooled at a trusted curator, without noise."""

from __future__ import annotations

from parley.common.algorithms._minimisers import Curated, Exact
from parley.common.algorithms._parameters import Regularization, algorithm


@algorithm
class Pooled(Curated, Exact):
    """What one could learn if the owners pooled their data and nobody cared for privacy."""

    regularization: Regularization = 0.001
