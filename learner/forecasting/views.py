"""Defines a forecast as users see it."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, JsonValue

from parley.common.forecast.excess_risk import Interval

if TYPE_CHECKING:
    from parley.common.forecast.forecast import Bound, Forecast
    from parley.common.forecast.label_figures import LabelFigure
    from parley.common.forecast.tilted_risk import LikelyBound
    from parley.common.runs.pricing import RunCosts
    from parley.learner.storage.timing import RoundTime

Figure = Annotated[
    float | None, BeforeValidator(lambda value: value if value is None or math.isfinite(value) else None)
]
"""A number; null if there is none or it is not finite."""


class IntervalView(BaseModel):
    """An interval of excess fitness."""

    low: Annotated[Figure, Field(description="the outcome is rarely below")]
    estimate: Annotated[Figure, Field(description="the expected outcome")]
    high: Annotated[Figure, Field(description="the outcome is rarely above")]

    @classmethod
    def of(cls, interval: Interval) -> Self:
        """Return the view of an interval."""
        return cls(low=interval.low, estimate=interval.estimate, high=interval.high)


class BoundView(BaseModel):
    """A bound that is proven, or that a paper states."""

    noise_energy: Annotated[Figure, Field(description="E|noise|^2 on the mean answer of one round")]
    excess: Annotated[
        Figure,
        Field(
            description="bound on the expected excess of the regularised fitness on the owners' own examples, for "
            "any examples, over the best on those; of an average of local models, in the mean over samples of one "
            "population; null if nothing is proven"
        ),
    ]
    stated: Annotated[str, Field(description="what the paper's theorem says as printed, in words; empty for none")] = ""

    @classmethod
    def of(cls, bound: Bound) -> Self:
        """Return the view of a bound."""
        return cls(noise_energy=bound.noise_energy, excess=bound.excess, stated=bound.stated)


class LikelyView(BaseModel):
    """What the exact minimiser of a risk that is tilted once costs: Rajkumar & Agarwal 2012, Theorem 5.1."""

    chance: Annotated[float, Field(description="with which this holds, over the noise that is drawn once")]
    excess: Annotated[
        Figure,
        Field(
            description="by how much the regularised fitness on the owners' own examples, for any examples, "
            "exceeds the best on those at most, if the model is the exact minimiser"
        ),
    ]
    printed: Annotated[
        Figure,
        Field(description="the same as the theorem prints it; null where computeSlack adds regularization"),
    ]
    at_zero: Annotated[
        Figure,
        Field(description="what weights of zero exceed the best by at most: an excess that is larger says nothing"),
    ]

    @classmethod
    def of(cls, bound: LikelyBound) -> Self:
        """Return the view of a bound."""
        return cls(**asdict(bound))


class OwnerView(BaseModel):
    """What the run costs and brings one owner; the last four fields are null without a forecast."""

    name: str
    n_examples: Annotated[int, Field(description="how many records it has, or persons, by the forecast's `unit`")]
    epsilon: Annotated[
        Figure,
        Field(
            description="the most that all rounds would charge to the owner's ledger, which may be more than the "
            "budget agreed on; for the adversary view of the party's policy, or the whole transcript if no party is "
            "asked. Null for a run without noise"
        ),
    ]
    delta: Annotated[float, Field(description="the delta that the run would charge to the owner's ledger")]
    epsilon_now: Annotated[
        Figure,
        Field(
            description="the largest epsilon of one run that fits the owner's ledger now, by a Gaussian method if a "
            "filter counts its runs, as far as your own runs go: other learners may have spent more. Null if the party "
            "was not reached"
        ),
    ]
    epsilon_left: Annotated[
        Figure, Field(description="the same after the run, at least; null also if the run does not fit")
    ]
    more_runs: Annotated[
        int | None,
        Field(
            description="how many more runs like this one fit the ledger after it, as far as your own runs go: other "
            "learners may spend too. Null where `epsilon_left` is"
        ),
    ] = None
    fits: Annotated[
        bool | None,
        Field(
            description="whether the ledger allows the run beside all that everybody's runs have spent and reserved, "
            "as the party says; if not, it would refuse the run. Null if it does not say, or for a run without noise"
        ),
    ]
    exhausted: Annotated[
        str | None, Field(description="why the ledger does not allow the run, in words; null if it does")
    ]
    objections: Annotated[
        tuple[str, ...],
        Field(description="why the party would refuse the run, in its own words, apart from its ledger (see fits)"),
    ] = ()
    away: Annotated[
        str | None,
        Field(
            description="why the party did not answer: its size and rules are those that it stated last; null if it did"
        ),
    ] = None
    value: Annotated[
        Figure,
        Field(
            description="by how much the excess fitness of the best coalition is worse without the owner; "
            "negative: by how much it would be worse with the owner"
        ),
    ] = None
    recommended: Annotated[bool | None, Field(description="whether the owner is in the best coalition")] = None
    alone: Annotated[
        IntervalView | None,
        Field(
            description="excess fitness of the owner's own model, trained without noise on its own examples, by the "
            "regularisation of a few that is expected to do best"
        ),
    ] = None
    worth_joining: Annotated[
        bool | None,
        Field(description="whether the best coalition, the owner included, is expected to do better than that"),
    ] = None


class FigureView(BaseModel):
    """A figure of the model in the label's own terms: what to show first, such as a row "R² 0.35 (0.1 to 0.7)".

    What all data pooled, without privacy, would reach is not among them: nobody has seen the data.
    """

    name: Annotated[
        str,
        Field(
            description="r_squared, rmse, accuracy, auc; recall: of the rarer class at a probability of .5; "
            "balanced_recall: of both classes at the threshold at which they are equal"
        ),
    ]
    title: Annotated[str, Field(description="the same in words, to show")]
    unit: Annotated[str, Field(description="of rmse, the label's; empty for none")]
    low: Annotated[Figure, Field(description="the outcome is rarely below")]
    estimate: Annotated[Figure, Field(description="the expected outcome")]
    high: Annotated[Figure, Field(description="the outcome is rarely above")]
    constant: Annotated[
        float, Field(description="of a model that looks at no feature: the mean, or the commonest class, for all rows")
    ]
    alone: Annotated[
        Figure,
        Field(description="expected of the model of the owner with most examples alone, trained without noise"),
    ]

    @classmethod
    def of(cls, figure: LabelFigure) -> Self:
        """Return the view of a figure."""
        ends = asdict(figure.interval)
        stated = {name: getattr(figure, name) for name in ("name", "title", "unit", "constant")}
        return cls(alone=figure.alone.estimate, **ends, **stated)


class OutcomeView(BaseModel):
    """What to expect: excess fitness is by how much the population's mean loss exceeds the least of any weights.

    Neither is regularised, so that runs of different regularisations can be compared.
    """

    excess: Annotated[IntervalView, Field(description="of a run with all owners")]
    best: Annotated[IntervalView, Field(description="of a run with the best coalition alone")]
    rate: Annotated[
        float, Field(description="how often an interval holds the outcome, of data like those that it was made by")
    ]
    error_lost: Annotated[
        Figure,
        Field(
            description="with all owners, the share of the population that is classified wrongly exceeds the least "
            "possible share by at most this, if some weights have the population's probabilities and the excess is in "
            "its interval; null for regressions, for losses without probabilities, and if it is .5 or more"
        ),
    ]
    rmse_lost: Annotated[
        Figure,
        Field(
            description="for a regression: the root mean squared error exceeds the least of any weights by at most "
            "this, the label's bounds being -1 and +1, if the excess is in its interval; otherwise null"
        ),
    ]
    r_squared_lost: Annotated[
        Figure,
        Field(
            description="for a regression whose study states the label's deviation: R^2 is below the largest of any "
            "weights by at most this, if the excess is in its interval; otherwise null"
        ),
    ]
    constant: Annotated[
        IntervalView | None,
        Field(
            description="the excess fitness of the best model that uses no feature: a run that is not expected to do "
            "better teaches nothing. Null if the study states neither its classes' shares nor mean and deviation"
        ),
    ]
    figures: Annotated[
        tuple[FigureView, ...],
        Field(
            description="what to expect in the label's own terms, the headline first: R² and RMSE; accuracy, AUC and "
            "recalls; of three classes or more accuracy. Empty if the study does not state enough"
        ),
    ] = ()
    unstated: Annotated[
        str | None, Field(description="in words, what a study has to state for figures; null if it does")
    ] = None
    warning: Annotated[
        str | None,
        Field(description="in words, that a run is not expected to do better than that, or that a parameter is unfit"),
    ]
    coalition: Annotated[tuple[str, ...], Field(description="the owners who should take part")]
    left_out: Annotated[tuple[str, ...], Field(description="the owners who would make the model worse")]
    proven: Annotated[BoundView, Field(description="what can be proven of a run with all owners")]
    printed: Annotated[
        BoundView | None,
        Field(
            description="what the algorithm's paper prints, and the proven bound without the dimension, which that "
            "lacks; null for none"
        ),
    ]
    likely: Annotated[
        LikelyView | None,
        Field(description="for a model that minimises a tilted risk, without class weights; null for any other"),
    ] = None
    assumptions: tuple[str, ...]

    @classmethod
    def of(cls, answer: Forecast) -> Self:
        """Return the view of a forecast."""
        return cls(
            excess=IntervalView.of(answer.excess),
            best=IntervalView.of(answer.best),
            rate=answer.rate,
            error_lost=answer.error_lost,
            rmse_lost=answer.rmse_lost,
            r_squared_lost=answer.r_squared_lost,
            constant=answer.constant and IntervalView.of(answer.constant),
            figures=tuple(map(FigureView.of, answer.figures)),
            unstated=answer.unstated,
            warning=answer.warning,
            coalition=answer.coalition,
            left_out=tuple(owner.name for owner in answer.owners if not owner.recommended),
            proven=BoundView.of(answer.proven),
            printed=answer.printed and BoundView.of(answer.printed),
            likely=answer.likely and LikelyView.of(answer.likely),
            assumptions=answer.assumptions,
        )


class RunTime(BaseModel):
    """How long the run would take, and how that is known."""

    seconds: Annotated[Figure, Field(description="all rounds; null if unknown")]
    ms_per_round: Figure
    basis: Annotated[str, Field(description="what was measured: an earlier run like it, or bare round trips just now")]

    @classmethod
    def of(cls, time: RoundTime, rounds: int) -> Self:
        """Return the view of the time of so many rounds."""
        return cls(seconds=time.ms and rounds * time.ms / 1000, ms_per_round=time.ms, basis=time.basis)


class CostsView(BaseModel):
    """The resources that the run needs, for one party unless said otherwise; sizes are in bytes."""

    asked: Annotated[int, Field(description="numbers in the longest question")]
    answered: Annotated[int, Field(description="numbers in the longest answer")]
    round_bytes: Annotated[int, Field(description="on the wire, of a round's question and answer, at most")]
    bytes: Annotated[int, Field(description="on the wire, of all rounds")]
    all_bytes: Annotated[int, Field(description="on the wire, of all rounds and all parties")]
    memory_bytes: Annotated[int, Field(description="a party's memory for a round's arrays, beside its rows")]
    learner_bytes: Annotated[int, Field(description="about the learner's memory for a round of all parties")]
    noise_seconds: Annotated[float, Field(description="about how long a party draws noise, in all rounds")]
    limit: Annotated[str, Field(description="the setting of a party that the longest question and answer must fit")]
    longest: Annotated[int, Field(description="how many bytes that is")]
    fits: Annotated[bool, Field(description="whether it fits a party of default limits; if not, the party refuses")]

    @classmethod
    def of(cls, costs: RunCosts) -> Self:
        """Return the view of costs."""
        return cls(**asdict(costs))


class ForecastView(BaseModel):
    """A forecast. If no theory gives an ``outcome``, it is null, and ``no_forecast`` says why."""

    algorithm: str
    parameters: dict[str, JsonValue]
    chosen: Annotated[dict[str, str], Field(description="which parameters were chosen, and why")]
    rounds: int
    unit: Annotated[
        Literal["record", "person"], Field(description="what an example is: one record, or all rows of one person")
    ] = "record"
    evaluation: Annotated[
        str | None,
        Field(
            description="in words: what part of the budget would evaluate the model on how many held-out "
            "rows or persons, or why none would. Null if there is nothing to say: the study holds nothing out, or none "
            "was asked for"
        ),
    ] = None
    shared: Annotated[
        str | None,
        Field(
            description="in words, what is promised to a person, or a record, that is with several owners, and to "
            "one that is with one alone; null of a run that counts on one owner each"
        ),
    ] = None
    majority: Annotated[
        Figure,
        Field(description="the commonest class's share: as the study states it, or of the learner's public examples"),
    ] = None
    outcome: OutcomeView | None
    no_forecast: Annotated[str | None, Field(description="why there is no outcome")]
    owners: tuple[OwnerView, ...]
    without: Annotated[
        tuple[str, ...],
        Field(description="parties of the roster that do not hold the study; empty if the request names its parties"),
    ] = ()
    more_runs: Annotated[
        int | None,
        Field(
            description="how many more runs like this one fit after it into the ledgers of all owners that say: the "
            "least of theirs, as far as your own runs go. Null if none says, or the run does not fit "
            "or is refused"
        ),
    ] = None
    instead: Annotated[
        str | None,
        Field(description="in words, what would be more accurate, and whose accounts do not pay for it; often null"),
    ] = None
    delta_buys: Annotated[
        str | None,
        Field(
            description="in words, what a small delta would buy a run that spends none: less noise, and more runs. "
            "Null if it would not be worth it, or owners allow none"
        ),
    ] = None
    helps: Annotated[
        tuple[str, ...],
        Field(description="if parties that answer would refuse the run: options of `submit` with which they would not"),
    ] = ()
    key_holders: Annotated[
        tuple[str, ...],
        Field(description="why key holders would not open the run's sums now: it waits for one that is away"),
    ] = ()
    unused_file: Annotated[
        str | None,
        Field(description="why the study's file, which has changed, is not used: the run is on what it held before"),
    ] = None
    run_time: RunTime
    costs: Annotated[CostsView, Field(description="what the run costs to carry: bytes, memory, seconds of noise")]
