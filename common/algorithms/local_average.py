"""LA: the average of local minimisers with noise for the smallest shard.

Pathak, Rane & Raj, "Multiparty Differential Privacy via Aggregation of Locally Trained
Classifiers", NIPS 2010, as in Rajkumar & Agarwal 2012's comparison.

The noise on the average is scaled to the smallest shard: beta = K n_min lambda epsilon / (2 L). It is drawn in K shares
under secure sum (a Gaussian scale mixture; see `parley.common.privacy.noise`), or whole at each party where the learner
sees each answer. For softmax L is sqrt 2, and the noise has the dimension of all classes' weights. So it is the
`average` of output perturbation's minimisers, with noise of density exp(-beta |b|).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from parley.common.algorithms._parameters import Regularization, algorithm
from parley.common.algorithms._releases import Site
from parley.common.algorithms.average import AverageMethod
from parley.common.arrays import FloatArray
from parley.common.protocol.facts import OwnFacts


@algorithm
class LocalAverage(AverageMethod):
    """The average of the parties' regularised minimisers with noise for the smallest shard."""

    regularization: Regularization = 0.01
    mechanism: Annotated[Literal["output"], Field(description="noise on the answers")] = "output"
    law: Annotated[Literal["l2_laplace"], Field(description="noise of density exp(-beta |b|)")] = "l2_laplace"
    calibration: Annotated[Literal["tight"], Field(description="the least noise that is proven")] = "tight"
    noise: Annotated[Literal["once"], Field(description="in shares, under a secure sum")] = "once"
    sites: Annotated[tuple[Site, ...], Field(max_length=0, description="none does otherwise")] = ()
    left_open: ClassVar[frozenset[str]] = frozenset()

    def beta(self, facts: OwnFacts) -> FloatArray:
        """The noise's parameter, (...)."""
        return facts.own_epsilon / self.moved(facts)
