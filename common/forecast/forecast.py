"""What a run will achieve, before it is run, from public facts alone: who should take part, and is it worth it?

*Excess fitness* is f - f*, by how much the model's mean loss, on the population that the owners' examples
sample, exceeds the least that any weights have; neither is regularised. `parley.common.forecast.dynamics` says how
each algorithm trains, `parley.common.forecast.plausible_worlds` what the data may be like,
`parley.common.forecast.excess_risk` what excess that makes of noise and sample, `parley.common.forecast.coalitions` who
should take part.

*In the label's own terms.* Of two classes, by the logistic loss, the error exceeds the least that any classifier has by
at most sqrt(2 (f - f*)), if some weights have the population's own probabilities (Zhang 2004, Annals of Statistics 32,
section 3); of more classes the same holds by Pinsker's inequality. Nothing is said where that is .5 or more. Of a
regression f - f* is half of what the mean squared error has over the least, so the root of the error exceeds the least
root by at most sqrt(2 (f - f*)), the label's bounds being -1 and +1; and where the study tells the label's deviation s,
R^2 falls short of the largest that any weights have by 2 (f - f*) / s^2. Where the study tells that, or classes'
shares, the best model that looks at no feature has a forecast too: a run that is not expected to do better teaches
nothing. Where examples are persons, so is the population, in which each counts once, and the sample is as large as
there are persons: how many rows they have is nobody's to know. With class weights all of it is about a population in
which classes are as common as their rows count (`parley.common.forecast.weighted_classes`), and nothing is said of the
error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.forecast.coalitions import CoalitionRun, Coalitions, Members
from parley.common.forecast.dynamics import Descent, Load, Problem, Tilt
from parley.common.forecast.excess_risk import RATE, Interval, Response, excess_of_constant, response_of
from parley.common.forecast.forecasters import forecaster_of, in_place_of_forecast, stated_by_paper
from parley.common.forecast.label_figures import LabelFigure, label_figures, what_to_state
from parley.common.forecast.tilted_risk import FAILURE, LikelyBound, TiltedRisk, squared_length
from parley.common.forecast.weighted_classes import as_unweighted
from parley.common.learning.losses import Logistic, Loss, Softmax, Squared, loss_at_zero
from parley.common.privacy.guarantee import EXAMPLE_NAMES
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.cautions import cautions
from parley.common.protocol.facts import FederationFacts

ASSUMPTIONS = (
    "the owners' examples are samples of one population",
    "the data are like the sets that the forecast's ranges were chosen by; of rare classes the excess may be less",
    "clipping and projection hardly ever bind, but where a 1-norm is clipped",
)
OF_PERSONS = (
    "figures count each person once, by the mean of its rows, and so do the shares, or mean and deviation, that the "
    "study states: where some have many rows, figures of rows differ"
)
"""What the forecast of a run whose examples are persons assumes besides."""
_OWN_LAMBDAS = (1e-4, 1e-3, 1e-2, 1e-1)
"""By which an owner alone may regularise, beside the run's."""
_OF_EACH_CLASS = {"auc", "balanced_recall"}
"""The figures that do not depend on how common classes are: those that are stated for a run with class weights."""
_VACUOUS = 0.5


@dataclass(frozen=True, slots=True)
class OwnerForecast:
    """The forecast for one owner of a run.

    ``value`` is by how much the excess of the best coalition would be worse without this owner (positive), or with it
    added (negative: it should stay out). ``alone`` is the excess of the owner's own model, trained without noise on its
    own examples, with the regularisation of a few that is expected to do best; joining is worth it where the best
    coalition, this owner included, is expected to do better.
    """

    name: str
    value: float
    recommended: bool
    alone: Interval
    worth_joining: bool


@dataclass(frozen=True, slots=True)
class Bound:
    """E|noise|^2 on the mean answer of a round, and the bound on the expected excess, None where nothing is proven.

    That excess is over the best on the owners' own examples, for any examples: theorems know no population. Of an
    average of local models alone it is the mean over samples of one population. ``stated`` is what a paper's theorem
    says itself, in words; empty for none.
    """

    noise_energy: float
    excess: float | None
    stated: str = ""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of a run with all owners, and of the best coalition among them.

    ``excess`` and ``best`` are excess fitness, whose interval holds the outcome at ``rate``. ``proven`` is what can be
    proven where all answer; ``printed``, where a paper states a bound, has that in words, and what is proven without
    the dimension, which it lacks. ``likely`` is for a model that is the exact minimiser of a tilted risk; None for
    others, and with class weights. ``error_lost`` is at most how much more error of classification than the least a run
    with all owners has, ``rmse_lost`` of a regression's root mean squared error, and ``r_squared_lost`` by how much its
    R^2 is less than the largest, as long as the excess is in its interval; None where nothing is known. ``constant`` is
    the excess of the best model that looks at no feature, None where the study does not tell enough of its label.
    ``figures`` are in the label's own terms, with all owners; ``unstated`` says what the study lacks for them.
    ``cautions`` are those of the run's parameters and budgets; ``unit`` is what an example is.
    """

    excess: Interval
    best: Interval
    owners: tuple[OwnerForecast, ...]
    proven: Bound
    printed: Bound | None
    likely: LikelyBound | None = None
    error_lost: float | None = None
    rmse_lost: float | None = None
    r_squared_lost: float | None = None
    constant: Interval | None = None
    figures: tuple[LabelFigure, ...] = ()
    unstated: str | None = None
    cautions: tuple[str, ...] = ()
    rate: float = RATE
    assumptions: tuple[str, ...] = ASSUMPTIONS
    unit: Literal["replace_one", "person"] = "replace_one"

    @property
    def warning(self) -> str | None:
        """The warnings for the user: ``cautions``, and that a run is not expected to beat one without features."""
        words = list(self.cautions)
        if self.constant is not None and self.constant.estimate <= self.excess.estimate:
            words.append(
                f"a model that looks at no feature is expected to come as close ({self.constant.estimate:.3g}): "
                f"more owners, more {EXAMPLE_NAMES[self.unit]} or a larger epsilon are needed"
            )
        return "; ".join(words) or None

    @property
    def coalition(self) -> tuple[str, ...]:
        """The owners who should take part."""
        return tuple(owner.name for owner in self.owners if owner.recommended)

    def to_json(self) -> dict[str, Any]:
        """Return the forecast as JSON values."""
        return asdict(self) | {"warning": self.warning, "coalition": self.coalition}


@dataclass(frozen=True, slots=True)
class NoForecast:
    """A run has no forecast, for this reason."""

    reason: str


_FROM_WEIGHTS = "the run starts from given weights, and nobody knows how good they are"


def forecast(algorithm: Algorithm, facts: FederationFacts, *, has_threshold: bool = False) -> Forecast | NoForecast:
    """Return the forecast of a run; raises InvalidInputError for one that cannot be run.

    ``has_threshold`` says that a rule is given by which the model's threshold is chosen.
    """
    questions = algorithm.questions(facts.curated() if algorithm.curator else facts)
    warnings = cautions(algorithm, facts, has_threshold=has_threshold)
    forecaster = in_place_of_forecast(algorithm, facts) or forecaster_of(algorithm)
    if isinstance(forecaster, str):
        return NoForecast("; but ".join((forecaster, *warnings)))
    if any(question.public for question in questions):
        return NoForecast("; but ".join((_FROM_WEIGHTS, *warnings)))
    is_weighted = bool(facts.loss.class_weights)
    like, facts = as_unweighted(algorithm, facts)
    forecaster = forecaster_of(like)
    assert not isinstance(forecaster, str)  # noqa: S101 -- it is that of the same algorithm
    coalitions, everyone = Coalitions(forecaster, facts), CoalitionRun.of(forecaster, facts)
    members = coalitions.best()
    excess, best = everyone.outcome, coalitions.run(members).outcome
    problem, stated = everyone.problem, stated_by_paper(like, facts)
    return Forecast(
        excess=excess,
        best=best,
        owners=tuple(_owners(coalitions, best.estimate, members, everyone.method.regularization)),
        proven=_bound(everyone, problem),
        printed=replace(_bound(everyone, Problem(1, facts.loss)), stated=stated) if stated else None,
        likely=None if is_weighted else _likely(everyone),
        error_lost=None if is_weighted else _error_lost(facts.loss, excess.high),
        rmse_lost=math.sqrt(2 * excess.high) if isinstance(facts.loss, Squared) else None,
        r_squared_lost=excess.high / problem.constant.loss
        if problem.constant and isinstance(facts.loss, Squared)
        else None,
        constant=excess_of_constant(problem),
        figures=tuple(
            figure for figure in _figures(everyone, problem) if not is_weighted or figure.name in _OF_EACH_CLASS
        ),
        unstated=what_to_state(facts.study),
        cautions=warnings,
        assumptions=(*ASSUMPTIONS, OF_PERSONS) if facts.unit == "person" else ASSUMPTIONS,
        unit=facts.unit,
    )


def _figures(run: CoalitionRun, problem: Problem) -> tuple[LabelFigure, ...]:
    """Return the figures of a run with all owners, in the label's own terms."""
    if run.facts.study is None or what_to_state(run.facts.study) is not None:
        return ()
    least = run.facts.minimum_contributors
    largest = run.facts.n_examples.astype(np.float64).max(keepdims=True)
    (alone,) = _best_alone(problem, largest, run.method.regularization)
    loads = run.load(least, 1), run.load(least, -1)
    own = Load(sample=1 / float(largest[0]))
    return label_figures(run.facts.study, problem, (run.response, *loads), (alone, own))


def _owners(coalitions: Coalitions, excess: float, members: Members, regularization: float) -> Iterator[OwnerForecast]:
    """Yield the forecast of each owner; ``excess`` is that of the best coalition."""
    facts, values = coalitions.facts, coalitions.values(members).tolist()
    alone = _alone(Problem.of(facts), facts.n_examples.astype(np.float64), regularization)
    owners = zip(facts.parties, values, members.tolist(), alone, strict=True)
    for name, value, recommended, by_itself in owners:
        joined = excess if recommended else excess - value
        yield OwnerForecast(name, value, recommended, by_itself, joined < by_itself.estimate)


def _alone(problem: Problem, n_examples: FloatArray, regularization: float) -> list[Interval]:
    """Return the excess of minimisers on so many examples, (K,), each by the regularisation expected to do best."""
    sizes, which = np.unique(n_examples, return_inverse=True)
    chosen = _best_alone(problem, sizes, regularization)
    intervals: dict[int, Interval] = {}
    for minimiser in set(chosen):
        places = [place for place, own in enumerate(chosen) if own is minimiser]
        intervals |= dict(zip(places, minimiser.by_samples(sizes[places]), strict=True))
    return [intervals[place] for place in which.tolist()]


def _best_alone(problem: Problem, sizes: FloatArray, regularization: float) -> list[Response]:
    """Return for so many examples, (K,), the response of the minimiser that is expected to do best."""
    minimisers = [response_of(Tilt(strength), problem) for strength in (regularization, *_OWN_LAMBDAS)]
    none = np.zeros(len(sizes))
    chosen = np.argmin([minimiser.estimate(none, none, 1 / sizes) for minimiser in minimisers], axis=0)
    return [minimisers[index] for index in chosen.tolist()]


def _error_lost(loss: Loss, excess: float) -> float | None:
    """Return the bound on the error of classification for an excess fitness, None where it says nothing.

    Of the softmax loss the excess is the mean of KL(p, q), p being the population's probabilities and q the model's;
    the error exceeds the least by at most the mean of sum |p - q| <= sqrt(2 KL).
    """
    lost = math.sqrt(2 * max(excess, 0.0)) if isinstance(loss, Logistic | Softmax) else math.inf
    return lost if lost < _VACUOUS else None


def _bound(run: CoalitionRun, problem: Problem) -> Bound:
    """Return the proven bound if all parties answer; with a problem of one feature, the bound that a paper prints."""
    load = run.load(len(run.weights), -1)
    excess = run.method.bound(problem, load)
    return Bound(problem.n_weights * (load.fresh + load.once), excess if math.isfinite(excess) else None)


def _likely(run: CoalitionRun) -> LikelyBound | None:
    """Return the bound of a model that minimises a tilted risk if all parties answer; None for another model.

    The loss is to be the one that the theorem names: of one score, with bounded slopes that are not clipped.
    """
    method, loss, once = run.method, run.facts.loss, run.load(len(run.weights), -1).once
    if not isinstance(method, Tilt | Descent) or once == 0 or loss.outputs > 1:
        return None
    if not (loss.lipschitz <= method.slope and math.isfinite(loss.smoothness)):
        return None
    n = run.facts.n_total
    risk = TiltedRisk(n, method.regularization, loss.smoothness, method.tilt, loss_at_zero(loss))
    t = squared_length(run.facts.n_features, n * math.sqrt(once))
    return LikelyBound(1 - FAILURE, risk.sharper(t), None if method.tilt else risk.theorem51(t), risk.at_zero)
