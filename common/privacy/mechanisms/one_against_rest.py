"""One class against the rest: of K classes, K models of two, each by objective perturbation.

No proof covers noise inside a softmax's minimisation. For each class, its rows against all others under the logistic
loss have one (`parley.common.privacy.mechanisms.objective`). A record is in all K models. The K weights are scores of
classes as a softmax's are: logarithms of odds, so that the largest is the likeliest class.

*Pure noise*, and noise as published, is that of a K-th of epsilon and of delta for each model, which add up. (One tilt
of all K d weights, of density exp(-beta |b|), would have the same deviation.)

*Gaussian tilts* (``"tight"``; the proof is ours) need less: the K models are a non-adaptive composition of releases
that are each covered by a Gaussian one (Dong, Roth & Su 2022, "Gaussian Differential Privacy"). A model of ridge Lambda
and tilt sigma is covered by mu = `tilted_mu` of 2 L / sigma and log(1 + c / Lambda), and all of them by sqrt(K) mu,
which is what (epsilon, delta) allows. K tilts of one sigma allow no less: a record that is replaced by one of its class
with the opposite row moves all K gradients by nearly 2, if its scores are large. `_FOR_THE_TILT` of mu at least is left
for the tilt: if Lambda leaves less, it is raised. The blurs that hide the solver's errors are one Gaussian vector, for
errors that are sqrt(K) times as long as one's.

*Persons* of several rows are in all K models too, with the same weights. Each is covered by mu = `person_mu` of 2 L /
sigma and `determinant_cost`, and the models compose as those of records do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Logistic, Softmax
from parley.common.privacy.calibration import (
    bisect,
    determinant_cost,
    gaussian_mu,
    least_curvature,
    person_mu,
    tilted_mu,
)
from parley.common.privacy.events import TiltEvent
from parley.common.privacy.mechanisms.objective import FOR_THE_SOLVER, ObjectivePerturbation, objective, tilted
from parley.common.privacy.mechanisms.site import SiteRelease, SiteTerms
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import NoiseInside

_FOR_THE_TILT = 5 / 6
"""The least part left for a tilt of the mu that needs no ridge, as `parley.common.privacy.calibration.slack` has it."""


@dataclass(frozen=True, slots=True)
class OneAgainstRest(SiteRelease):
    """The mechanism for one site: ``of_class`` is that of every class."""

    terms: SiteTerms
    of_class: ObjectivePerturbation

    @classmethod
    def prepare(cls, sites: Sequence[Self], shard: Shard) -> Shard:  # noqa: ARG003
        """Return the shard: the noise comes before the minimisation."""
        return shard

    @classmethod
    def answer(cls, sites: Sequence[Self], prepared: Shard, noise: Noise) -> IntArray:
        """Return the models of the classes, one after the other."""
        parts, mechanisms = each_against_rest(prepared, sites[0].terms.loss.outputs), [site.of_class for site in sites]
        return np.concatenate([ObjectivePerturbation.answer(mechanisms, part, noise) for part in parts], axis=-1)

    @property
    def event(self) -> TiltEvent:
        """The event of K single models together."""
        part = self.of_class.epsilon / self.of_class.terms.epsilon  # 1, unless the noise falls short of a paper's claim
        epsilon, delta = self.terms.epsilon * part, self.terms.spent[1]
        return replace(self.of_class.event, epsilon=epsilon, delta=delta, times=self.terms.loss.outputs)

    @classmethod
    def proof(cls, sites: Sequence[Self]) -> NoiseInside:
        """Return the proof of a tilt for each class, which compose if they are Gaussian and tight, or add up."""
        site = sites[0]
        proof = replace(ObjectivePerturbation.proof([site.of_class]), noise_of=site.tilts_of)
        if not _compose(site.terms):
            return proof
        epsilon, delta = site.terms.spent
        besides = FOR_THE_SOLVER * epsilon, FOR_THE_SOLVER * delta
        return replace(proof, spent=(site.of_class.determinant, 0.0), besides=besides)

    def tilts_of(self, shard: Shard, answers: FloatArray) -> FloatArray:
        """Return the tilts (runs, K, d) that led to answers (runs, K d) on a shard."""
        k = self.terms.loss.outputs
        models = answers.reshape(len(answers), k, self.terms.n_features)
        parts = enumerate(each_against_rest(shard, k))
        return np.concatenate([self.of_class.tilts_of(part, models[:, one]) for one, part in parts], axis=1)

    @property
    def deviation(self) -> float:
        """The deviation of a class's model."""
        return self.of_class.deviation

    @property
    def blur_deviation(self) -> float:
        """The deviation of a class's blur."""
        return self.of_class.blur_deviation

    def check_noise(self) -> None:
        """Raise InvalidInputError if the blur of a class does not fit on the wire."""
        self.of_class.check_noise()


def each_against_rest(shard: Shard, n_classes: int) -> Iterator[Shard]:
    """Yield for each class the rows with labels of two: +1 for the class, -1 for all others."""
    classes = decode_classes(shard.y, n_classes)
    return (shard.relabelled(np.where(classes == one, 1.0, -1.0)) for one in range(n_classes))


@lru_cache(maxsize=4096)
def one_against_rest(terms: SiteTerms) -> OneAgainstRest | ObjectivePerturbation:
    """Set the mechanism for a site; for a loss of one score, `objective`. Raises InvalidInputError as that does."""
    if not isinstance(terms.loss, Softmax):
        return objective(terms)
    if terms.loss.class_weights:
        raise InvalidInputError("one class against the rest has no weights of the others: take mechanism = output")
    k = terms.loss.outputs
    if _compose(terms):
        return OneAgainstRest(terms, _composed(terms, k))
    of_class = objective(replace(terms, loss=Logistic(), epsilon=terms.epsilon / k, delta=terms.delta / k))
    return OneAgainstRest(terms, of_class)


def _compose(terms: SiteTerms) -> bool:
    """Whether the models of classes compose as Gaussian releases do."""
    return terms.law == "gaussian" and terms.calibration == "tight"


def _composed(terms: SiteTerms, k: int) -> ObjectivePerturbation:
    """Return the mechanism of a class; k of them together keep the budget of the terms."""
    terms.check("tight")
    loss, main_part, (epsilon, delta) = Logistic(), 1 - FOR_THE_SOLVER, terms.spent
    allowed = gaussian_mu(main_part * epsilon, main_part * delta) / math.sqrt(k)
    covering: Callable[[float, float], float] = person_mu if terms.persons else tilted_mu
    most, _ = bisect(lambda mu: covering(mu, 0.0) <= allowed)
    strength, least = terms.strength, _FOR_THE_TILT * most
    determinant = determinant_cost(loss.smoothness / strength, terms.rank)
    moved, _ = bisect(lambda mu: covering(mu, determinant) <= allowed)
    if moved < least:
        determinant, _ = bisect(lambda each: covering(least, each) <= allowed)
        strength, moved = loss.smoothness / least_curvature(determinant, terms.rank), least
    site = tilted(replace(terms, loss=loss), strength, 2 * loss.lipschitz / moved)
    return replace(site, blur=math.sqrt(k) * site.blur)
