"""What one answer of one party costs it, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GaussianEvent:
    """A Gaussian release; ``mu`` is sensitivity / deviation."""

    mu: float


@dataclass(frozen=True, slots=True)
class LaplaceEvent:
    """A scalar Laplace release, or one whose 1-norm sensitivity / scale is ``epsilon``."""

    epsilon: float


@dataclass(frozen=True, slots=True)
class L2LaplaceEvent:
    """A release with noise of density exp(-beta |b|) in d dimensions; ``epsilon`` is beta times the sensitivity."""

    epsilon: float
    dimension: int


@dataclass(frozen=True, slots=True)
class ApproximateEvent:
    """Any (epsilon, delta)-private release of which nothing more is known; delta = 0 is pure privacy.

    ``assumptions`` are those of the theorem that says so, in words.
    """

    epsilon: float
    delta: float = 0.0
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NonPrivateEvent:
    """A release without noise: epsilon is infinite."""


Event = GaussianEvent | LaplaceEvent | L2LaplaceEvent | ApproximateEvent | NonPrivateEvent
