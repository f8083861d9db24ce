"""Losses of a linear score s = w.x against a label y, and the exact sum of their clipped gradients.

Each loss gives its value, its slope dl/ds and its curvature d2l/ds2, all elementwise, with the constants that the
privacy proofs need: ``lipschitz`` L bounds |slope|, ``smoothness`` c bounds the curvature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import expit

from common.arrays import FloatArray
from common.errors import InvalidInputError


class Loss(Protocol):
    """A convex loss of the score."""

    @property
    def lipschitz(self) -> float:
        """L: the largest |slope|; infinite where there is none."""

    @property
    def smoothness(self) -> float:
        """c: the largest curvature; infinite where there is none."""

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The loss, elementwise."""

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The derivative by the score, elementwise."""

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The second derivative by the score, elementwise."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """log(1 + exp(-y s)): L = 1, c = 1/4."""

    lipschitz: float = 1.0
    smoothness: float = 0.25

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The loss, elementwise."""
        return np.logaddexp(0.0, -y * score)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The derivative by the score, elementwise."""
        slope: FloatArray = -y * expit(-y * score)
        return slope

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The second derivative by the score, elementwise."""
        p = expit(y * score)
        curvature: FloatArray = y * y * p * (1.0 - p)
        return curvature


@dataclass(frozen=True, slots=True)
class Huber:
    """The hinge smoothed over a band of half-width h (Chaudhuri et al. 2011, eq. 7): L = 1, c = 1/(2h)."""

    h: float = 0.5

    @property
    def lipschitz(self) -> float:
        """L = 1."""
        return 1.0

    @property
    def smoothness(self) -> float:
        """C = 1/(2h)."""
        return 1.0 / (2.0 * self.h)

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """0 beyond the margin 1 + h, linear below 1 - h, a parabola between."""
        gap = 1.0 + self.h - y * score
        return np.where(gap <= 0, 0.0, np.where(gap <= 2 * self.h, gap**2 / (4 * self.h), 1.0 - y * score))

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The derivative by the score, elementwise."""
        return -y * np.clip((1.0 + self.h - y * score) / (2.0 * self.h), 0.0, 1.0)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The second derivative by the score, elementwise."""
        return np.where(np.abs(1.0 - y * score) <= self.h, y * y / (2.0 * self.h), 0.0)


@dataclass(frozen=True, slots=True)
class Squared:
    """(s - y)^2 / 2, for regression: c = 1, and no L; clipping its gradient makes it Huber's robust regression."""

    lipschitz: float = math.inf
    smoothness: float = 1.0

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The loss, elementwise."""
        return (score - y) ** 2 / 2

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The derivative by the score, elementwise."""
        return score - y

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The second derivative by the score, elementwise."""
        return np.ones_like(y * score)


@dataclass(frozen=True, slots=True)
class Hinge:
    """max(0, 1 - y s), the support vector machine's: L = 1, and no c. The slope at the kink is a subgradient, 0."""

    lipschitz: float = 1.0
    smoothness: float = math.inf

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The loss, elementwise."""
        return np.maximum(0.0, 1.0 - y * score)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """A subderivative by the score, elementwise."""
        return np.where(y * score < 1.0, -y, 0.0)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The second derivative wherever there is one: 0."""
        return np.zeros_like(y * score)


def bounded_slope(loss: Loss) -> float:
    """L; raises InvalidInputError where there is none: then one record moves a minimiser without bound."""
    if math.isinf(loss.lipschitz):
        raise InvalidInputError("a private minimiser needs a loss of bounded slope: not 'squared'")
    return loss.lipschitz
