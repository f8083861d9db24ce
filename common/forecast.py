"""What a run will achieve and cost, before it is run, from public facts alone: who should take part?

*Excess fitness* is f - f*, by how much the model's fitness (the mean loss plus (lambda/2)|w|^2, on the population of
which the owners' examples are samples) exceeds the best. It has three causes (`common.descent`):

    excess(C) = start + noise * V_C / n_C^2 + sample / n_C,

where a coalition C brings n_C examples and noise of variance V_C to each sum of gradients. Dividing by n_C^2 is why a
small, conservative owner makes the model worse: it adds much to V_C and little to n_C.

*The best coalition* is found among K, not 2^K. Where each owner adds its own noise, {(V, n): excess >= c} is convex,
so the least excess is at a vertex of the set of all (V_C, n_C); its vertices are sums over the owners whose V_l / n_l
is least. Where noise is shared under a secure sum, the strictest budget sets V, so of the owners at most as strict all
should come. Either way the best is the first so many owners in an order, and all K of them are tried.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from common.arrays import FloatArray
from common.descent import RATE, Descent, Interval, Response, bound, respond
from common.protocol import Algorithm, FederationFacts

Masks = npt.NDArray[np.bool_]
ASSUMPTIONS = (
    "the owners' examples are samples of one population",
    "clipping and projection hardly ever bind",
    "the columns spread evenly over their bounds (the estimate, not the interval)",
)


@runtime_checkable
class Forecastable(Protocol):
    """What an algorithm adds to be forecast: its noise, and its learner's half as a descent.

    A run must cost each owner its declared budget at most, and an owner's noise depend on its own budget alone, or
    under a secure sum on the strictest.
    """

    def noise_variance(self, facts: FederationFacts) -> FloatArray:
        """The variance of the noise that each owner adds to each coordinate of its sum, (K,)."""

    def descent(self, facts: FederationFacts) -> Descent:
        """The learner's half."""


@dataclass(frozen=True, slots=True)
class OwnerForecast:
    """What a run means to one owner: what it costs at most, and leaves at least; what the owner is worth.

    ``value`` is by how much the excess of the best coalition would be worse without this owner (positive), or with it
    added (negative: it should stay out).
    """

    name: str
    epsilon: float
    delta: float
    epsilon_left: float | None
    value: float
    recommended: bool


@dataclass(frozen=True, slots=True)
class Bound:
    """E|noise|^2 on the mean gradient of a round, and the bound on the expected excess, None where nothing is proven.

    That excess is over the best on the owners' own examples: theorems know no population.
    """

    noise_energy: float
    excess: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What to expect of a run with all owners, and of the best coalition among them.

    ``excess`` and ``best`` are excess fitness, whose interval holds the outcome at ``rate``. ``mended`` is what can be
    proven where all answer; ``printed``, where a paper states a bound, is what that says, which lacks the dimension.
    """

    excess: Interval
    best: Interval
    owners: tuple[OwnerForecast, ...]
    mended: Bound
    printed: Bound | None
    rate: float = RATE
    assumptions: tuple[str, ...] = ASSUMPTIONS

    @property
    def coalition(self) -> tuple[str, ...]:
        """The owners who should take part."""
        return tuple(owner.name for owner in self.owners if owner.recommended)

    def to_json(self) -> dict[str, Any]:
        """The forecast as JSON values."""
        return asdict(self) | {"coalition": self.coalition}


@dataclass(frozen=True, slots=True)
class NoForecast:
    """That there is none, and why."""

    reason: str


def forecast(
    algorithm: Algorithm, facts: FederationFacts, epsilon_left: FloatArray | None = None
) -> Forecast | NoForecast:
    """The forecast of a run; ``epsilon_left`` (K,) is what each owner has left now, where it is known."""
    if not isinstance(algorithm, Forecastable):
        return NoForecast(f"no bound on the excess fitness of {type(algorithm).__name__} is known")
    facts = replace(facts, index=...)
    descent = algorithm.descent(facts)
    response = respond(descent, facts.n_features, facts.loss, facts.clip_norm)
    best = _best(algorithm, facts, response)
    variance = float(algorithm.noise_variance(facts).sum()) / facts.n_total**2
    return Forecast(
        excess=_outcome(algorithm, facts, response),
        best=_outcome(algorithm, facts.coalition(best), response),
        owners=_owners(facts, best, _values(algorithm, facts, response, best), epsilon_left),
        mended=_bound(descent, facts, facts.n_features * variance),
        printed=_bound(descent, facts, variance) if descent.calibration == "paper" else None,
    )


def _outcome(algorithm: Forecastable, facts: FederationFacts, response: Response) -> Interval:
    """The excess of a run with all of these owners; the ends allow for rounds in which only m_min of them answer."""
    variance, n = np.sort(algorithm.noise_variance(facts)), np.sort(facts.n_examples)
    some = slice(facts.minimum_contributors - 1, None)
    quietest = (np.cumsum(variance) / np.cumsum(n[::-1]) ** 2)[some].min()
    loudest = (np.cumsum(variance[::-1]) / np.cumsum(n) ** 2)[some].max()
    fewest = float(n[: facts.minimum_contributors].sum())
    return Interval(
        low=response.excess(quietest * facts.n_total**2, facts.n_total).low,
        estimate=response.excess(variance.sum(), facts.n_total).estimate,
        high=response.excess(loudest * fewest**2, fewest).high,
    )


def _best(algorithm: Forecastable, facts: FederationFacts, response: Response) -> Masks:
    """The members of the best coalition, (K,): the best of the prefixes of the two orders."""
    own = algorithm.noise_variance(replace(facts, secure_sum=False))
    orders = [own / facts.n_examples, own] if facts.secure_sum else [own / facts.n_examples]
    ranks = [np.argsort(np.argsort(order, kind="stable"), kind="stable") for order in orders]
    masks = np.concatenate([rank <= np.arange(len(own))[:, None] for rank in ranks])
    return np.asarray(masks[np.argmin(_excesses(algorithm, facts, response, masks))])


def _values(algorithm: Forecastable, facts: FederationFacts, response: Response, best: Masks) -> FloatArray:
    """By how much the best coalition's excess is worse when an owner of it leaves, or better when one joins, (K,).

    Where too few are left to run, what is left is a model of zeros.
    """
    here = _excesses(algorithm, facts, response, best[None])
    changed = _excesses(algorithm, facts, response, best ^ np.eye(len(best), dtype=np.bool_))
    changed = np.where(np.isfinite(changed), changed, response.gap)
    return np.where(best, changed - here, here - changed)


def _owners(
    facts: FederationFacts, best: Masks, values: FloatArray, epsilon_left: FloatArray | None
) -> tuple[OwnerForecast, ...]:
    """What the run means to each."""
    left = [None] * len(best) if epsilon_left is None else (epsilon_left - facts.epsilon).tolist()
    columns = (facts.parties, facts.epsilon.tolist(), facts.delta.tolist(), left, values.tolist(), best.tolist())
    return tuple(OwnerForecast(*row) for row in zip(*columns, strict=True))


def _bound(descent: Descent, facts: FederationFacts, energy: float) -> Bound:
    """What is proven for noise of this energy."""
    excess = bound(descent, facts.loss, facts.clip_norm, energy)
    return Bound(energy, excess if math.isfinite(excess) else None)


def _excesses(algorithm: Forecastable, facts: FederationFacts, response: Response, masks: Masks) -> FloatArray:
    """The estimated excess of coalitions (M, K), (M,); infinite where they are too few to run."""
    least = 1 + len(facts.parties) - facts.minimum_contributors + facts.colluders
    fit = masks.sum(axis=1) >= (least if facts.secure_sum else 1)
    excesses = np.full(len(masks), np.inf)
    if facts.secure_sum:
        variances = np.array([algorithm.noise_variance(facts.coalition(mask)).sum() for mask in masks[fit]])
    else:
        variances = masks[fit] @ algorithm.noise_variance(facts)
    excesses[fit] = response.estimate(variances, masks[fit] @ facts.n_examples.astype(np.float64))
    return excesses
