"""The average method: the mean of the sites' private models (Xie's thesis, Section 5; Pathak, Rane & Raj 2010).

If the noise is added to the answers (``mechanism="output"``), not every site must add all of it. Under a secure sum the
sites draw it in shares, once, for the site whose answer one record moves furthest, which is the smallest
(``noise="once"``, the thesis's scenario 2 without its trusted aggregator; beta = K n_min lambda epsilon / 2 on the
average). In all other cases, and with ``noise="sites"``, the sum is one of each site's own release (scenario 1).

`LocalAverage` is the algorithm LA of Rajkumar & Agarwal 2012's comparison: the average of local minimisers with noise
for the smallest shard, after Pathak, Rane & Raj, "Multiparty Differential Privacy via Aggregation of Locally Trained
Classifiers", NIPS 2010. The noise on the average is scaled to the smallest shard: beta = K n_min lambda epsilon / (2 L)
as published (``calibration="paper"``), or by how far one record moves a minimiser
(`parley.common.privacy.mechanisms.output`). It is drawn in K shares under a secure sum (a Gaussian scale mixture; see
`parley.common.privacy.noise`), or in full by each party if the learner sees each answer. For softmax L is sqrt 2, and
the noise has the dimension of all classes' weights. So it is the `average` of output perturbation's minimisers, with
noise of density exp(-beta |b|).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
from pydantic import Field

from parley.common.algorithms._parameters import Regularization, algorithm
from parley.common.algorithms.release import (
    Mechanism,
    MechanismChoice,
    Prepared,
    Releases,
    Site,
    own_indices,
    set_site,
    suited_mechanism,
    usable_mechanisms,
)
from parley.common.arrays import FloatArray, IntArray
from parley.common.learning.model import Model
from parley.common.privacy.events import Event
from parley.common.privacy.mechanisms.output import OutputPerturbation, hiding
from parley.common.privacy.mechanisms.site import SiteRelease
from parley.common.privacy.noise import Noise
from parley.common.protocol.algorithm import Choice, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question

_QUERY = Query(1, "release", np.zeros(0))


@algorithm
class AverageMethod(Releases):
    """The average of the sites' private minimisers."""

    mechanism: MechanismChoice = "output"
    noise: Annotated[
        Literal["once", "sites"],
        Field(
            description="under a secure sum: noise in shares on the sum (of output alone), or all of it at each site"
        ),
    ] = "once"
    sparse: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True
    persons: ClassVar[bool] = True

    @classmethod
    def mechanism_for(cls, facts: FederationFacts, given: Mapping[str, Any]) -> Choice:
        """Choose output perturbation under a secure sum, and otherwise the mechanism that suits the loss."""
        if facts.secure_sum:
            return Choice("output", "under a secure sum its noise is drawn once, in shares, and not at every site")
        return suited_mechanism(cls, facts, given)

    @classmethod
    def mechanisms_for(cls, facts: FederationFacts) -> tuple[Mechanism, ...]:
        """Return the mechanisms that `mechanism_for` chooses among."""
        return ("output",) if facts.secure_sum else usable_mechanisms(facts)

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask one question, for the sum of the models."""
        self.check_sites(facts)
        return (Question("release", (0,), facts.n_weights),)

    def program(self, facts: FederationFacts) -> Program:
        """Ask for the sum of the models; return their average."""
        reply = yield _QUERY
        return Model((reply.value / len(reply.contributors)).reshape(facts.shape))

    def local(self, query: Query, prepared: Prepared, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the private model, or the minimiser plus the party's share of the noise."""
        if not self.in_shares(facts):
            return self.release(prepared, facts, noise)
        sites = cast("tuple[OutputPerturbation, ...]", self.own_sites(facts))
        if len(prepared.parts) == 1:
            return OutputPerturbation.hide(sites, prepared.parts[0], facts.share, noise)
        alone = enumerate(zip(sites, prepared.parts, strict=True))
        return np.stack([site.hide([site], part, facts.share, noise.member(i)) for i, (site, part) in alone])

    def in_shares(self, facts: FederationFacts) -> bool:
        """Whether each party adds a share of one noise on the sum."""
        return facts.secure_sum and not self.whole_noise(1)

    def whole_noise(self, round: int) -> bool:
        """Whether every site adds all of its noise: unless the noise is on the answers and drawn once for all."""
        is_uniform = len(self.at_sites("law")) == len(self.at_sites("calibration")) == 1
        return self.noise == "sites" or self.at_sites("mechanism") != {"output"} or not is_uniform

    def own_sites(self, facts: OwnFacts) -> tuple[SiteRelease, ...]:
        """Return the mechanisms of the parties that the facts are about.

        If the noise is in shares, each is set for the strictest budget and for the answer that one record moves
        furthest.
        """
        if not self.in_shares(facts):
            return Releases.own_sites(self, facts)
        furthest = max(self._alone(facts, index).reach for index in self._kinds(facts))
        alone = [self._alone(facts, index) for index in own_indices(facts)]
        return tuple(hiding(site.terms, site.loss, furthest) for site in alone)

    def _alone(self, facts: FederationFacts, index: int) -> OutputPerturbation:
        """Return a site's mechanism as if it added all of its noise."""
        return cast("OutputPerturbation", set_site(*self.terms(facts, index), facts.parties[index]))

    def _kinds(self, facts: FederationFacts) -> set[int]:
        """Return the index of every site with parameters of its own, and of one site of each size among the others."""
        overridden = {facts.parties.index(site.party) for site in self.sites if site.party in facts.parties}
        others = np.array([index for index in range(len(facts.parties)) if index not in overridden], dtype=np.int64)
        return overridden | set(others[np.unique(facts.n_examples[others], return_index=True)[1]].tolist())

    def noise_of_model(self, facts: FederationFacts) -> float:
        """Return the deviation of the noise on each weight of the average."""
        deviations = np.array([site.deviation for site in self.own_sites(facts.everyone)])
        share = facts.share if self.in_shares(facts) else 1.0
        return math.sqrt(share * float(np.square(deviations).sum())) / len(deviations)

    def sensitivity(self, query: Query, facts: OwnFacts) -> FloatArray:
        """Return `output_sensitivity`."""
        return self.output_sensitivity(facts)

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of the site's release, or that of the sum."""
        return self.cost(facts)


@algorithm
class LocalAverage(AverageMethod):
    """The average of the parties' regularised minimisers with noise for the smallest shard."""

    regularization: Regularization = 0.01
    mechanism: Annotated[Literal["output"], Field(description="noise on the answers")] = "output"
    law: Annotated[Literal["l2_laplace"], Field(description="noise of density exp(-beta |b|)")] = "l2_laplace"
    calibration: Annotated[
        Literal["tight", "paper"], Field(description="the least noise that is proven, or as published")
    ] = "tight"
    noise: Annotated[Literal["once"], Field(description="in shares, under a secure sum")] = "once"
    sites: Annotated[tuple[Site, ...], Field(max_length=0, description="none does otherwise")] = ()
    left_open: ClassVar[frozenset[str]] = frozenset()

    def beta(self, facts: OwnFacts) -> FloatArray:
        """Return the noise's parameter, (...)."""
        return facts.own_epsilon / self.output_sensitivity(facts)
