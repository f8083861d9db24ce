"""The cost to a party of one answer, as frozen data.

A *release* is one number, vector or model that leaves a party: its event stands for the privacy-loss distribution of
the worst pair of neighbouring data, in the adjacency that the algorithm declares. Releases of one answer come together
in sequence, if they use the same data, or in parallel, if each uses a part of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from parley.common.errors import check_not_negative

FLOATS = "tilts, and noise of density exp(-beta |b|), are drawn in floating point"


@dataclass(frozen=True, slots=True)
class GaussianEvent:
    """A Gaussian release; ``mu`` is sensitivity / deviation."""

    mu: float

    def __post_init__(self) -> None:
        check_not_negative(mu=self.mu)


@dataclass(frozen=True, slots=True)
class LaplaceEvent:
    """A scalar Laplace release, or one whose 1-norm sensitivity / scale is ``epsilon``.

    A scalar one is the worst of these: 1 - delta(y) is the integral of min(f(x), e^y f(x - move)), which is log-concave
    in x and the move together; so the integral is in the move (Prekopa), and least at a corner of the 1-norm's ball.

    ``in_shares`` says that the parties to a sum draw the noise together; what is left without some of it is no such
    release.
    """

    epsilon: float
    in_shares: bool = False

    def __post_init__(self) -> None:
        check_not_negative(epsilon=self.epsilon)


@dataclass(frozen=True, slots=True)
class L2LaplaceEvent:
    """A release with noise of density exp(-beta |b|) in d dimensions; ``epsilon`` is beta times the sensitivity."""

    assumptions: ClassVar[tuple[str, ...]] = (FLOATS,)
    epsilon: float
    dimension: int

    def __post_init__(self) -> None:
        check_not_negative(epsilon=self.epsilon)


@dataclass(frozen=True, slots=True)
class ApproximateEvent:
    """An (epsilon, delta)-private release, about which nothing more need be known; delta = 0 is pure privacy.

    ``assumptions`` are those of the theorem that proves it, in words.
    """

    epsilon: float
    delta: float = 0.0
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_not_negative(epsilon=self.epsilon, delta=self.delta)


@dataclass(frozen=True, slots=True)
class TiltEvent(ApproximateEvent):
    """A private minimiser whose noise is inside the minimisation; (epsilon, delta) is what its theorem claims.

    ``law`` is the event of the tilt for the move of one record's gradient, which two records make; ``determinant`` is
    the logarithm of the largest factor by which one record changes the density of answers beside that; ``blur`` is
    noise on the answer. All of this happens ``times`` times, on the same data. ``persons`` says that a record here is a
    person of several rows. `parley.common.privacy.tilt` has the profile.
    """

    law: GaussianEvent | L2LaplaceEvent = field(kw_only=True)
    determinant: float = field(kw_only=True)
    blur: GaussianEvent | L2LaplaceEvent = field(kw_only=True)
    times: int = 1
    persons: bool = False


@dataclass(frozen=True, slots=True)
class DrawEvent:
    """``draws`` draws of an index; each may depend on those before it.

    For every index the chances on neighbouring data differ by a factor between e^t and e^(t + spread), for some t of
    each draw (*bounded range*; Dong, Durfee & Rogers 2020). All draws are one event, in closed form.
    """

    spread: float
    draws: int = 1

    def __post_init__(self) -> None:
        check_not_negative(spread=self.spread, draws=self.draws)

    @property
    def epsilon(self) -> float:
        """The pure epsilon of all draws: as 0 lies between t and t + spread, that of one is at most the spread."""
        return self.draws * self.spread


@dataclass(frozen=True, slots=True)
class NonPrivateEvent:
    """A release without noise: epsilon is infinite."""


Release = GaussianEvent | LaplaceEvent | L2LaplaceEvent | ApproximateEvent | DrawEvent | NonPrivateEvent


@dataclass(frozen=True, slots=True)
class NoEvent:
    """A round that costs nothing: the party has no part in it and answers public facts, or has paid before.

    Paid before means that the event of an earlier round covers this answer too, as one of a stream of draws.
    """


@dataclass(frozen=True, slots=True)
class SequentialEvent:
    """Several releases of the same data in one answer."""

    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class ParallelEvent:
    """Releases of disjoint parts of the data, such as the nodes of a tree: they cost as much as the worst of them.

    That holds if the part of a record does not depend on its content (by row, by owner). If replacing a record may move
    it from one part to another, two parts change: put the worst two in sequence.
    """

    events: tuple[Event, ...]


Event = Release | NoEvent | SequentialEvent | ParallelEvent
