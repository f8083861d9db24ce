"""Each site's own private model: the *local model* of the three that Xie's thesis compares.

Chaudhuri, Monteleoni & Sarwate, JMLR 2011 (output and objective perturbation); Kifer, Smith & Thakurta, COLT 2012
(generalized objective perturbation); Jain & Thakurta, ICML 2014, eqs. 3 and 4. One round, in which each site releases a
model that is private whoever sees it; nothing is averaged, and each site's budget, size and mechanism are its own.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from parley.common.algorithms._parameters import algorithm
from parley.common.algorithms._releases import Prepared, Releases
from parley.common.arrays import FloatArray, IntArray
from parley.common.learning.model import Model
from parley.common.privacy.events import Event
from parley.common.privacy.noise import Noise
from parley.common.protocol.algorithm import Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

_QUERY = Query(1, "release", np.zeros(0), "each")


@algorithm
class PrivateRelease(Releases):
    """Each site's private minimiser, one model a site."""

    sparse: ClassVar[bool] = True

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """One, of each site."""
        self.check_sites(facts)
        return (Question("release", (0,), facts.n_weights, "each"),)

    def program(self, facts: FederationFacts) -> Program:
        """Collect the releases."""
        reply = yield _QUERY
        return Model(reply.value.reshape(-1, *facts.shape), "members")

    def local(self, query: Query, prepared: Prepared, facts: OwnFacts, noise: Noise) -> IntArray:
        """The private model."""
        return self.release(prepared, facts, noise)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray:
        """`moved`."""
        return self.moved(facts)

    def event(self, round: int, facts: OwnFacts) -> Event:
        """The release's."""
        return self.cost(facts)
