"""What a mechanism that releases a linear model gets to know about a site, and what it must provide.

A site holds n examples, records or persons of several rows each, and releases the minimiser of (1/n) sum loss +
(lambda/2) |w|^2 with noise inside it or on it. All noise is set from public terms before any example is touched.
Mechanisms work on one shard or on a stack of them, each with terms of its own; answers are integers. The tilt of an
objective, and noise of density exp(-beta |b|), are drawn in floating point: every guarantee says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import gradient_left
from parley.common.learning.losses import Loss
from parley.common.privacy.calibration import SlackCalibration, check_epsilon
from parley.common.privacy.events import Event
from parley.common.privacy.noise import Noise
from parley.common.privacy.proofs import Proof

Law = Literal["gaussian", "l2_laplace"]
"""The law of the noise: Gaussian, for a delta above 0; or of density exp(-beta |b|), for pure epsilon."""
SiteCalibration = Literal["tight", "paper", "jain_thakurta", "thesis"]
"""Whose noise: the least that a proof supports; the mechanism's own paper's; Jain & Thakurta's; or Xie's thesis's."""


@dataclass(frozen=True, slots=True)
class SiteTerms:
    """Public numbers of one site: n, d, lambda of (1/n) sum loss + (lambda/2) |w|^2, and its release's budget.

    ``row_entries`` is the largest number of entries of a row that are not zero; None if all d may be. ``most_rows`` is
    the largest number of rows of an example: 1, unless it is a person.
    """

    loss: Loss
    n_examples: int
    n_features: int
    regularization: float
    epsilon: float
    delta: float
    law: Law = "gaussian"
    calibration: SiteCalibration | SlackCalibration = "tight"
    row_entries: int | None = None
    most_rows: int = 1

    @property
    def strength(self) -> float:
        """The regularization on the sum scale."""
        return self.n_examples * self.regularization

    @property
    def n_weights(self) -> int:
        """The number of weights of the model."""
        return self.loss.outputs * self.n_features

    @property
    def persons(self) -> bool:
        """Whether an example may have several rows."""
        return self.most_rows > 1

    @property
    def rank(self) -> int:
        """The most directions in which an example bends the risk, for a loss of one score."""
        return min(self.n_features, self.most_rows)

    @property
    def spent(self) -> tuple[float, float]:
        """``(epsilon, delta)`` of the release: noise of density exp(-beta |b|) needs no delta."""
        return self.epsilon, 0.0 if self.law == "l2_laplace" else self.delta

    @property
    def pure_on_answer(self) -> float:
        """The epsilon that noise of density exp(-beta |b|) on an answer spends.

        Jain & Thakurta's beta = epsilon lambda / (4 L R) on the sum scale (eq. 3) is half of what epsilon allows.
        """
        return self.epsilon / 2 if self.calibration == "jain_thakurta" else self.epsilon

    def check(self, *calibrations: SiteCalibration | SlackCalibration) -> None:
        """Raise InvalidInputError for an invalid budget, a law without its delta, or another calibration."""
        check_epsilon(self.epsilon)
        self.check_examples()
        if self.law == "gaussian" and self.delta == 0:
            raise InvalidInputError("Gaussian noise needs a delta above 0: take law = l2_laplace")
        if self.calibration not in calibrations:
            valid = ", ".join(calibrations)
            raise InvalidInputError(f"calibration is {self.calibration}, but must be one of: {valid}")

    def check_examples(self) -> None:
        """Raise InvalidInputError if the site has no examples."""
        if self.n_examples < 1:
            raise InvalidInputError("a site without examples has no model to release")


def left_by_solver(terms: SiteTerms, strength: float, tilt: float = 0.0, row_tilt: float | None = None) -> float:
    """Return the largest gradient that a solver may leave. Raises InvalidInputError as `gradient_left` does."""
    n, ridge = np.asarray(terms.n_examples), np.asarray(strength)
    residual = gradient_left(
        terms.loss,
        n,
        terms.n_features,
        ridge,
        tilt,
        row_entries=terms.row_entries,
        row_tilt=row_tilt,
        most_rows=terms.most_rows,
    )
    return float(residual)


class SiteRelease(ABC):
    """A mechanism, set for one site: its cost, and its answer for a shard or, with other sites, for a stack."""

    __slots__ = ()

    terms: SiteTerms

    @classmethod
    @abstractmethod
    def prepare(cls, sites: Sequence[Self], shard: Shard) -> Any:  # noqa: ANN401 -- the type that `answer` takes
        """Compute all that `answer` needs except noise, from a shard, or from a stack with a site each."""

    @classmethod
    @abstractmethod
    def answer(cls, sites: Sequence[Self], prepared: Any, noise: Noise) -> IntArray:  # noqa: ANN401 -- as above
        """Return the private models (..., m), in integers of 2^-32."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """The release's cost."""

    @classmethod
    @abstractmethod
    def proof(cls, sites: Sequence[Self]) -> Proof | None:
        """Return why the events of these sites, which answer together, hold, for `output_sensitivity`."""

    @property
    @abstractmethod
    def deviation(self) -> float:
        """About how far the noise moves each weight, ignoring the curvature of the loss."""

    @property
    def blur_deviation(self) -> float:
        """The deviation of noise on each weight that hides the solver's error; 0 if there is none.

        No curvature of the loss reduces it.
        """
        return 0.0

    @abstractmethod
    def check_noise(self) -> None:
        """Raise InvalidInputError if the noise on the answer does not fit its integers."""

    @property
    def kind(self) -> tuple[object, ...]:
        """What sites must have in common to answer together, as a stack."""
        return type(self), self.terms.law, self.terms.loss

    @property
    def output_sensitivity(self) -> float:
        """How far a neighbour's answer differs before its noise; infinite if the noise is inside a minimisation."""
        return float("inf")


def stacked(values: Sequence[float], like: FloatArray | IntArray) -> FloatArray:
    """Return a value for each site as an array, (), or (K,) for a stack of shards whose labels are ``like`` (K, n)."""
    return np.array(values, dtype=np.float64).reshape(like.shape[:-1])
