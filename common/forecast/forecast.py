"""What a run will achieve, before it is run, from public facts alone: who should take part, and is it worth it?

*Excess fitness* is f - f*, by how much the model's fitness (the mean loss plus (lambda/2)|w|^2, on the population of
which the owners' examples are samples) exceeds the best. `common.forecast.dynamics` says how each algorithm trains,
`common.forecast.excess_risk` what excess that makes of noise and sample, `common.forecast.coalitions` who should take
part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from common.forecast.coalitions import CoalitionRun, Coalitions, Members
from common.forecast.dynamics import Load, Problem, Tilt
from common.forecast.excess_risk import RATE, Interval, response_of
from common.forecast.forecasters import forecaster_of
from common.protocol.algorithm import Algorithm
from common.protocol.facts import FederationFacts

ASSUMPTIONS = (
    "the owners' examples are samples of one population",
    "clipping and projection hardly ever bind",
    "the columns spread evenly over their bounds (the estimate, not the interval)",
    "labels of a regression are as noisy as their bounds allow (the estimate, not the interval)",
)


@dataclass(frozen=True, slots=True)
class OwnerForecast:
    """What a run means to one owner.

    ``value`` is by how much the excess of the best coalition would be worse without this owner (positive), or with it
    added (negative: it should stay out). ``alone`` is the excess of the owner's own model, trained without noise on its
    own examples; joining is worth it where the best coalition, this owner included, is expected to do better.
    """

    name: str
    value: float
    recommended: bool
    alone: Interval
    worth_joining: bool


@dataclass(frozen=True, slots=True)
class Bound:
    """E|noise|^2 on the mean answer of a round, and the bound on the expected excess, None where nothing is proven.

    That excess is over the best on the owners' own examples, whatever they are: theorems know no population. Of an
    average of local models alone it is the mean over samples of one population.
    """

    noise_energy: float
    excess: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What to expect of a run with all owners, and of the best coalition among them.

    ``excess`` and ``best`` are excess fitness, whose interval holds the outcome at ``rate``. ``proven`` is what can be
    proven where all answer; ``printed``, where a paper states a bound, is what that says, which lacks the dimension.
    """

    excess: Interval
    best: Interval
    owners: tuple[OwnerForecast, ...]
    proven: Bound
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


def forecast(algorithm: Algorithm, facts: FederationFacts) -> Forecast | NoForecast:
    """The forecast of a run; raises InvalidInputError for one that cannot be run."""
    algorithm.questions(facts.curated() if algorithm.curator else facts)
    if facts.loss.outputs > 1:
        return NoForecast("no bound on the excess fitness of a model with one score a class is known")
    forecaster = forecaster_of(algorithm)
    if isinstance(forecaster, str):
        return NoForecast(forecaster)
    coalitions, everyone = Coalitions(forecaster, facts), CoalitionRun.of(forecaster, facts)
    members = coalitions.best()
    best = coalitions.run(members).outcome
    return Forecast(
        excess=everyone.outcome,
        best=best,
        owners=tuple(_owners(coalitions, best.estimate, members, everyone.method.regularization)),
        proven=_bound(everyone, everyone.problem),
        printed=_bound(everyone, Problem(1, facts.loss)) if everyone.method.printed else None,
    )


def _owners(coalitions: Coalitions, excess: float, members: Members, regularization: float) -> Iterator[OwnerForecast]:
    """What the run means to each, the best coalition's excess being ``excess``."""
    facts, values = coalitions.facts, coalitions.values(members).tolist()
    minimiser = response_of(Tilt(regularization), Problem(facts.n_features, facts.loss))
    rows = zip(facts.parties, facts.n_examples.tolist(), values, members.tolist(), strict=True)
    for name, n_examples, value, recommended in rows:
        alone = minimiser.excess(Load(sample=1 / n_examples))
        joined = excess if recommended else excess - value
        yield OwnerForecast(name, value, recommended, alone, joined < alone.estimate)


def _bound(run: CoalitionRun, problem: Problem) -> Bound:
    """What is proven where all parties answer; a problem of one feature takes the noise of one for that of all."""
    load = run.load(len(run.weights), 1)
    excess = run.method.bound(problem, load)
    return Bound(problem.n_features * (load.fresh + load.once), excess if math.isfinite(excess) else None)
