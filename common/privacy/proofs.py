"""The proofs that algorithms give for their events, which the contract suite can run.

An event is a claim about the noise in an answer, and code that draws less noise looks no different. So an algorithm
says for each question why its event holds (`Algorithm.proof`), as one of these. `tests.contracts.proving` runs them: it
refuses noise that is less than the event says, and shows that each proof would notice half of the noise.

If nothing is claimed (`NonPrivateEvent`), no proof is needed. If an answer costs nothing (`NoEvent`), the suite checks
that it does not depend on the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.learning.losses import Loss
from parley.common.privacy.events import GaussianEvent, L2LaplaceEvent, LaplaceEvent
from parley.common.privacy.noise import Noise

NoiseLaw = GaussianEvent | LaplaceEvent | L2LaplaceEvent
"""An event that gives the law of the noise on a vector, relative to the sensitivity."""


@dataclass(frozen=True, slots=True)
class Additive:
    """The answer (..., m) is an exact one plus noise, whose scale is the algorithm's sensitivity by ``law``.

    ``law`` is the event by default. If another event is declared, it must cost at least as much.

    ``moves`` says more about the sensitivity, of noise that is not Gaussian: a neighbour moves numbers of the answer,
    or of several vectors their norms, by no more than one of these lists, the largest first, says. Each list adds up to
    the sensitivity. Then the event need only cost as much as moves of each list do, each by its own part of ``law``.
    """

    law: NoiseLaw | None = None
    moves: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Draws:
    """The answer is a function of indices from `Noise.categorical` alone, for a `DrawEvent`.

    A later round that costs nothing, because the event counts its draws too, has this proof as well.
    """


@dataclass(frozen=True, slots=True)
class NoiseInside:
    """The noise is inside a minimisation, and the data and the answer together determine it.

    ``noise_of`` takes what was prepared of one shard, and answers (runs, m) in reals, to the noise (runs, k, d) that
    led to them: k draws of ``law``, for a sensitivity of ``reach``. A neighbour's data and the same answer lead to
    noise that differs by at most ``reach``. The density of answers has another factor beside the noise's, the
    determinant of ``noise_of``; ``spent`` (epsilon, delta) is the cost of that and of all else, for each draw. Draws
    add up.

    Unless there is ``besides``: then each draw determines its own part of an answer, is Gaussian, and is covered with
    its determinant, which is all that ``spent`` is, by a Gaussian release
    (`parley.common.privacy.calibration.tilted_mu`, or `person_mu` if ``persons`` of several rows are hidden); these
    compose, and ``besides`` is the cost of all else together.
    """

    noise_of: Callable[[Any, FloatArray], FloatArray]
    law: GaussianEvent | L2LaplaceEvent
    reach: float
    spent: tuple[float, float]
    besides: tuple[float, float] | None = None
    persons: bool = False


@dataclass(frozen=True, slots=True)
class PostProcessing:
    """The answer is ``function`` of a ``release``, which has a proof of its own, ``of``, and the sensitivity.

    ``release`` takes what was prepared, and the noise; ``function`` takes the release alone. With `Additive` L2-Laplace
    noise a release may have the shape (..., k, m): then each of k vectors has noise of its own, and the norms of their
    moves add up to at most the sensitivity. ``places_only`` says that the function changes no number of the release,
    but puts them into places among zeros.
    """

    release: Callable[[Any, Noise], IntArray]
    function: Callable[[IntArray], IntArray]
    of: Additive | NoiseInside
    places_only: bool = False


@dataclass(frozen=True, slots=True)
class Audit:
    """Two neighbouring shards that a test distinguishes better than the event allows, if half the noise is missing.

    The audit is of the same algorithm, with other numbers for some ``parameters``, at a budget and a loss that make the
    neighbours distinguishable. The question is the one that the proof is of, with another ``message`` if that is not
    None. ``score`` takes answers (runs, m) in reals to numbers (runs,), larger if ``other`` is likelier. The suite adds
    a score of its own, so a test that sees nothing proves nothing, and attacks extreme neighbours in every number, sum
    and bit of an answer. At ``epsilon`` and ``delta`` the event's delta is at most 0.01.
    """

    one: Shard
    other: Shard
    score: Callable[[FloatArray], FloatArray]
    loss: Loss
    epsilon: float
    delta: float
    parameters: Mapping[str, float]
    message: FloatArray | None = None


Proof = Additive | PostProcessing | Draws | NoiseInside | Audit


def applied_after(prepare: Callable[[Any], Any], proof: Proof | None) -> Proof | None:
    """Return the proof of an answer that is made from ``prepare`` of the prepared value, instead of from itself."""
    match proof:
        case NoiseInside():
            return replace(proof, noise_of=lambda prepared, answers: proof.noise_of(prepare(prepared), answers))
        case PostProcessing():
            of = cast("Additive | NoiseInside", applied_after(prepare, proof.of))
            return replace(proof, release=lambda prepared, noise: proof.release(prepare(prepared), noise), of=of)
        case _:
            return proof


def read_after(
    proof: Proof | None,
    release: Callable[[Any, Noise], IntArray],
    function: Callable[[IntArray], IntArray],
    *,
    places_only: bool = False,
) -> Proof | None:
    """Return the proof of ``function`` applied to what ``release`` answers, which has a ``proof``."""
    match proof:
        case Additive() | NoiseInside():
            return PostProcessing(release, function, proof, places_only)
        case PostProcessing():
            return replace(proof, function=lambda released: function(proof.function(released)))
        case _:
            return proof
