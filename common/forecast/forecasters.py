"""Forecasters: how each algorithm trains and what noise its answers carry, as a forecast sees them.

`FORECASTERS` has an entry by the name that the algorithm has in `parley.common.algorithms.REGISTRY`. Forecasts live
apart from algorithms, so that an algorithm can be added before anybody knows a bound: without an entry it has no
forecast. A package that adds an algorithm adds its forecaster in the same way: ``FORECASTERS.add(name, place)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from parley.common.algorithms import REGISTRY
from parley.common.errors import InvalidInputError
from parley.common.forecast.dynamics import Answers, Average, Descent, Forecaster, Method, Tilt
from parley.common.privacy import calibration
from parley.common.privacy.guarantee import EXAMPLE_NAMES
from parley.common.privacy.mechanisms.objective import FOR_THE_SOLVER
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.registry import Registry

if TYPE_CHECKING:
    from parley.common.algorithms.average import AverageMethod
    from parley.common.algorithms.baselines import Pooled
    from parley.common.algorithms.describe import Describe
    from parley.common.algorithms.dp_gd import DpGd
    from parley.common.algorithms.ensemble import Ensemble
    from parley.common.algorithms.ftrl import PrivateLeader
    from parley.common.algorithms.gop import Gop
    from parley.common.algorithms.psgd import Psgd
    from parley.common.algorithms.wu import WuStronglyConvex, WuSubgradient
    from parley.common.privacy.mechanisms.objective import ObjectivePerturbation


def forecaster_of(algorithm: Algorithm) -> Forecaster | str:
    """Return the forecaster of an algorithm; or, in words, why there is none."""
    entry = _entry_of(algorithm)
    if isinstance(entry, ForecasterEntry):
        return entry.unless(algorithm) or _Bound(algorithm, entry)
    if isinstance(entry, NoForecaster):
        return entry.reason
    return f"no bound on the excess fitness of {type(algorithm).__name__} is known"


def in_place_of_forecast(algorithm: Algorithm, facts: FederationFacts) -> str | None:
    """Return what to expect, in words, of an algorithm that trains no model; None for one that does."""
    entry = _entry_of(algorithm)
    return entry.words(algorithm, facts) if isinstance(entry, Expectation) else None


def stated_by_paper(algorithm: Algorithm, facts: FederationFacts) -> str:
    """Return what the theorem of an algorithm's paper says of a run, in words; empty for none."""
    entry = _entry_of(algorithm)
    return entry.stated(algorithm, facts) if isinstance(entry, ForecasterEntry) else ""


def _entry_of(algorithm: Algorithm) -> ForecasterEntry | NoForecaster | Expectation | None:
    """Return the entry of any name that the algorithm's type is registered by."""
    kind = type(algorithm)
    names = REGISTRY.names_of(f"{kind.__module__}:{kind.__qualname__}")
    return next((FORECASTERS[name] for name in names if name in FORECASTERS), None)


@dataclass(frozen=True, slots=True)
class ForecasterEntry:
    """The dynamics and the answers of an algorithm; see `Forecaster`.

    ``unless`` says, in words, why an algorithm with certain parameters has no forecast; ``stated`` what its paper's
    theorem says of a run, empty for none.
    """

    dynamics: Callable[[Any, FederationFacts], Method]
    answers: Callable[[Any, OwnFacts], Answers]
    coupled: bool = False
    unless: Callable[[Any], str | None] = lambda _algorithm: None
    stated: Callable[[Any, FederationFacts], str] = lambda _algorithm, _facts: ""


@dataclass(frozen=True, slots=True)
class NoForecaster:
    """The reason why an algorithm has no forecast."""

    reason: str


@dataclass(frozen=True, slots=True)
class Expectation:
    """The entry of an algorithm that trains no model: a function that says, in words, what to expect."""

    words: Callable[[Any, FederationFacts], str]


@dataclass(frozen=True, slots=True)
class _Bound:
    """The forecaster of an algorithm, by its entry."""

    algorithm: Algorithm
    entry: ForecasterEntry

    @property
    def curator(self) -> bool:
        return self.algorithm.curator

    @property
    def coupled(self) -> bool:
        return self.entry.coupled

    def dynamics(self, facts: FederationFacts) -> Method:
        return self.entry.dynamics(self.algorithm, facts)

    def answers(self, facts: OwnFacts) -> Answers:
        return self.entry.answers(self.algorithm, facts)


def _dp_gd(algorithm: DpGd, facts: FederationFacts) -> Descent:
    """Return a descent by constant steps, with the mean of the last iterates."""
    rounds, last = algorithm.n_rounds, algorithm.n_averaged
    return Descent(
        (algorithm.step,) * rounds,
        algorithm.regularization,
        algorithm.clip_norm,
        average=(0.0,) * (rounds - last) + (1 / last,) * last if last > 1 else None,
        diameter=2 * algorithm.radius(facts),
        momentum=algorithm.momentum,
    )


def _dp_gd_answers(algorithm: DpGd, facts: OwnFacts) -> Answers:
    return Answers.drawn_each_round(algorithm.sigma(facts) ** 2 * facts.share)


def _psgd(algorithm: Psgd, facts: FederationFacts) -> Descent:
    """Return the descent on the tilted risk."""
    convexity, _ = algorithm.slack(facts)
    steps = tuple(1 / (convexity * round + facts.loss.smoothness) for round in range(1, algorithm.n_rounds + 1))
    return Descent(steps, algorithm.regularization, algorithm.clip_norm, tilt=convexity - algorithm.regularization)


def _psgd_answers(algorithm: Psgd, facts: OwnFacts) -> Answers:
    """Return each party's rho, fresh and whole, and its share of eta, drawn once."""
    sigma, beta = algorithm.scales(facts)
    k = len(facts.parties)
    rho = Answers.l2_laplace(np.full(k, beta), facts.n_features)
    return replace(rho, once=np.full(k, np.square(sigma) * facts.share))


def _wu_strongly_convex(algorithm: WuStronglyConvex, facts: FederationFacts) -> Descent:
    """Return the descent by the steps; Theorem 2 is a bound."""
    steps = tuple(algorithm.steps(facts).tolist())
    return Descent(
        steps,
        algorithm.regularization,
        algorithm.clip_norm,
        slope_l1=algorithm.l1_clip,
    )


def _wu_subgradient(algorithm: WuSubgradient, facts: FederationFacts) -> Descent:
    """Return the descent by the steps and the average; Theorem 3 is a bound."""
    parts = algorithm.parts()
    remaining = np.cumprod(np.concatenate([[1.0], (1 - parts[:0:-1])]))[::-1]
    return Descent(
        tuple(algorithm.steps(facts).tolist()),
        algorithm.regularization,
        algorithm.clip_norm,
        tuple((parts * remaining).tolist()),
        diameter=2 * algorithm.weight_bound * math.sqrt(facts.n_features),
        slope_l1=algorithm.l1_clip,
    )


def _wu_answers(algorithm: WuStronglyConvex | WuSubgradient, facts: OwnFacts) -> Answers:
    if algorithm.calibration == "paper":
        return Answers.drawn_each_round(2 * algorithm.scale(facts) ** 2)
    return Answers.drawn_each_round(algorithm.sigma(facts) ** 2 * facts.share)


def _wu_stated(algorithm: WuStronglyConvex | WuSubgradient, facts: FederationFacts) -> str:
    return algorithm.stated(facts) if algorithm.calibration == "paper" else ""


def _average(algorithm: AverageMethod, facts: FederationFacts) -> Average:
    """Return an average; for noise inside the sites' objectives, with the mean regularisation that proofs add."""
    if algorithm.mechanism == "output":
        return Average(algorithm.regularization)
    ridges = [ridge for ridge, _ in _tilts(algorithm, facts.everyone)]
    return Average(algorithm.regularization, max(float(np.mean(ridges)) - algorithm.regularization, 0.0), inside=True)


def _average_answers(algorithm: AverageMethod, facts: OwnFacts) -> Answers:
    """Return the noise in each party's weights, or in the mean gradient of its objective."""
    if algorithm.mechanism == "output":
        deviations = [site.deviation for site in algorithm.own_sites(facts)]
    else:
        deviations = [deviation for _, deviation in _tilts(algorithm, facts)]
    share = facts.share if algorithm.in_shares(facts) else 1.0
    heaviness = Answers.heaviness_of(facts.n_weights, 1 / share) if algorithm.law == "l2_laplace" else 0.0
    return Answers.drawn_each_round(np.square(deviations) * share, heaviness)


def _tilts(algorithm: AverageMethod, facts: OwnFacts) -> Iterator[tuple[float, float]]:
    """Yield each site's regularisation, and the deviation of the tilt of its mean gradient."""
    for site in cast("tuple[ObjectivePerturbation, ...]", algorithm.own_sites(facts)):
        ridge = site.strength / site.terms.n_examples
        yield ridge, site.deviation * ridge


def _several_mechanisms(algorithm: AverageMethod) -> str | None:
    """Say why an average has no forecast, where it has none."""
    if algorithm.sites:
        return "no bound is known of the average of minimisers of several mechanisms"
    if algorithm.mechanism in {"output", "objective", "generalized"}:
        return None
    return f"no forecast is known of an average of models by mechanism = {algorithm.mechanism}"


def _gop(algorithm: Gop, facts: FederationFacts) -> Tilt:
    """Return the minimiser of the risk with the slack's regularisation."""
    return Tilt(algorithm.regularization, _gop_slack(algorithm, facts.everyone)[0])


def _gop_answers(algorithm: Gop, facts: OwnFacts) -> Answers:
    """Return the noise of the tilt, which the curator draws once."""
    (extra, epsilon_tilde), (_, delta) = _gop_slack(algorithm, facts), facts.strictest
    terms = epsilon_tilde, (1 - FOR_THE_SOLVER) * delta, facts.loss.lipschitz, algorithm.calibration
    of_persons = None
    if facts.most_rows > 1:
        strength = facts.n_total * (algorithm.regularization + extra)
        of_persons = calibration.determinant_cost(facts.loss.smoothness / strength, algorithm.terms(facts).rank)
    sigma = calibration.tilt_sigma(facts.n_features, *terms, of_persons)
    return Answers.drawn_once(float(np.square(sigma)))


def _gop_slack(algorithm: Gop, facts: OwnFacts) -> tuple[float, float]:
    """Return ``(Delta, epsilon~)`` of the mechanism, which keeps a part for the noise that hides the solver's error."""
    epsilon, _ = facts.strictest
    return calibration.slack(
        (1 - FOR_THE_SOLVER) * epsilon,
        algorithm.regularization,
        facts.n_total,
        facts.loss.smoothness,
        algorithm.calibration,
        algorithm.terms(facts).rank,
    )


def _pooled(algorithm: Pooled, _facts: FederationFacts) -> Tilt:
    return Tilt(algorithm.regularization)


def _no_noise(_algorithm: Pooled, _facts: OwnFacts) -> Answers:
    return Answers.drawn_once(0.0)


def _describe(algorithm: Describe, facts: FederationFacts) -> str:
    """Say how wide the interval of each count will be if all contribute."""
    reach, n, examples = (
        1.96 * algorithm.deviation(facts, range(len(facts.parties))),
        facts.n_total,
        EXAMPLE_NAMES[facts.unit],
    )
    reach = min(reach, float(n))
    right = f"± {reach:,.0f} {examples} ({reach / n:.1%})"
    return f"it trains no model: of {n:,} {examples}, each count will be right to {right}"


def _ensemble(algorithm: Ensemble, facts: FederationFacts) -> str:
    """Say how wide the interval of each count of votes will be if they get noise."""
    reason = "no forecast is known of a model that is learnt from votes"
    if not algorithm.hides_votes:
        return reason
    reach, parties = 1.96 * algorithm.deviation_of_votes(facts), len(facts.parties)
    return (
        f"{reason}: of {parties:,} votes on a row, each count will be right to ± {reach:,.0f} ({reach / parties:.0%})"
    )


def _led(algorithm: PrivateLeader, facts: FederationFacts) -> str:
    """State the bound on the regret of the party that it is largest for."""
    try:
        regret = max(algorithm.terms(facts, index).regret for index in range(len(facts.parties)))
    except InvalidInputError as error:
        return f"it trains no model: {error}"
    return (
        f"it trains no model: in {algorithm.n_rounds:,} rounds its actions will cost at most {regret:,.4g} more than "
        "the best column in all of them, on average"
    )


FORECASTERS: Registry[ForecasterEntry | NoForecaster | Expectation] = Registry(
    "forecaster",
    dp_gd=ForecasterEntry(_dp_gd, _dp_gd_answers),
    psgd=ForecasterEntry(_psgd, _psgd_answers, coupled=True),
    wu_strongly_convex=ForecasterEntry(_wu_strongly_convex, _wu_answers, stated=_wu_stated),
    wu_subgradient=ForecasterEntry(_wu_subgradient, _wu_answers, stated=_wu_stated),
    average=ForecasterEntry(_average, _average_answers, unless=_several_mechanisms),
    local_average=ForecasterEntry(_average, _average_answers),
    gop=ForecasterEntry(_gop, _gop_answers, coupled=True),
    pooled=ForecasterEntry(_pooled, _no_noise, coupled=True),
    parameter_average=NoForecaster("no forecast is known of an average that hides parties"),
    release=NoForecaster("each owner releases a model of its own: there is no common one"),
    simplex=NoForecaster("no bound is known of samples but the worst case's"),
    feature=NoForecaster("no bound is known of models that are weighed by a second level"),
    multilevel_feature=NoForecaster("no bound is known of models that climb a tree"),
    matrix_perturbation=NoForecaster("every owner releases a model of its own"),
    local=NoForecaster("every owner keeps a model of its own: no common one is forecast"),
    evaluate=NoForecaster("it trains no model, and says how good one is"),
    describe=Expectation(_describe),
    ftrl=Expectation(_led),
    ensemble_vote=Expectation(_ensemble),
    ensemble_soft=Expectation(_ensemble),
)
"""The entries, by the algorithm's name; of an algorithm with several names, by one of them."""
