"""One class against the rest: of K classes, K models of two, each by objective perturbation for a K-th of the budget.

No proof covers noise inside a softmax's minimisation. For each class, its rows against all others under the logistic
loss have one (`parley.common.privacy.mechanisms.objective`). A record is in all K models; their epsilons and deltas add
up. The K weights are scores of classes as a softmax's are: logarithms of odds, so that the largest is the likeliest
class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Logistic, Softmax
from parley.common.privacy.events import TiltEvent
from parley.common.privacy.mechanisms.objective import ObjectivePerturbation, objective
from parley.common.privacy.mechanisms.site import SiteRelease, SiteTerms
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import NoiseInside


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
        """The event of K single models in sequence."""
        part = self.of_class.epsilon / self.of_class.terms.epsilon  # 1, unless the noise falls short of a paper's claim
        epsilon, delta = self.terms.epsilon * part, self.terms.spent[1]
        return replace(self.of_class.event, epsilon=epsilon, delta=delta, times=self.terms.loss.outputs)

    @classmethod
    def proof(cls, sites: Sequence[Self]) -> NoiseInside:
        """Return the proof of a tilt for each class, by a K-th of the budget."""
        return replace(ObjectivePerturbation.proof([sites[0].of_class]), noise_of=sites[0].tilts_of)

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
    of_class = objective(replace(terms, loss=Logistic(), epsilon=terms.epsilon / k, delta=terms.delta / k))
    return OneAgainstRest(terms, of_class)
