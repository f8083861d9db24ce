"""A run's forecast as users see it, and the choice of an algorithm by forecasts, without parties."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from parley.common.algorithms import REGISTRY, build_algorithm
from parley.common.client.affordable import Candidate, ask_room, charged, charges_of
from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.errors import BudgetExhaustedError, InvalidInputError, PartyRefusedError
from parley.common.forecast.excess_risk import Interval
from parley.common.forecast.forecast import ASSUMPTIONS, Bound, Forecast, NoForecast, OwnerForecast, forecast
from parley.common.forecast.label_figures import LabelFigure
from parley.common.forecast.tilted_risk import LikelyBound
from parley.common.privacy.account import DELTA_UNITS, MICRO, Cost, exhausted, limit
from parley.common.runs.consent import ReviewedRun
from parley.common.runs.pricing import RunCosts, costs_of, highest_charge, limit_of
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.service.settings import Limits
from parley.common.wire.party_api import BudgetReport
from parley.learner.forecasting import report, selection
from parley.learner.forecasting.views import (
    BoundView,
    CostsView,
    ForecastView,
    IntervalView,
    OutcomeView,
    OwnerView,
    RunTime,
)
from parley.learner.storage.timing import UNKNOWN, RoundTime

STUDY = Study(
    name="s",
    features=(Feature(name="x", lower=0, upper=1), Feature(name="z", lower=0, upper=1)),
    label=Label(name="y", values=("no", "yes")),
)


def spec_of(epsilons: Sequence[float] = (1.0, 2.0), **terms: Any) -> RunSpec:  # noqa: ANN401 -- terms of a run
    """A run of owners of these budgets."""
    parties = tuple(
        Member(name=f"owner-{i}", n_examples=1000 * (i + 1), budget=Budget(epsilon=epsilon, delta=1e-5))
        for i, epsilon in enumerate(epsilons)
    )
    given = {"algorithm": "dp_gd", "parameters": {"n_rounds": 5, "step": 1.0}, "minimum_contributors": 1} | terms
    return RunSpec(study=STUDY, parties=parties, **given)


# ── views ────────────────────────────────────────────────────────────────────

EXCESS, BEST, ALONE = Interval(0.1, 0.2, 0.3), Interval(0.05, 0.06, math.inf), Interval(0.3, 0.4, math.nan)
FORECAST = Forecast(
    EXCESS,
    BEST,
    (OwnerForecast("a", 0.5, True, ALONE, False), OwnerForecast("b", -0.25, False, EXCESS, True)),  # noqa: FBT003
    Bound(0.7, 0.8),
    Bound(0.9, None, "Theorem 1"),
    LikelyBound(0.95, 0.4, None, 0.69),
    error_lost=0.01,
    rmse_lost=0.02,
    r_squared_lost=0.03,
    constant=Interval(0.15, 0.16, 0.17),
    figures=(LabelFigure("rmse", "RMSE", "g", Interval(5.1, 5.3, 5.6), 6.0, Interval(5.2, 5.5, 5.9)),),
    cautions=("take care",),
)


def test_an_outcome_is_shown_with_each_of_its_figures() -> None:
    warning = FORECAST.warning
    assert warning is not None
    assert OutcomeView.of(FORECAST).model_dump() == {
        "excess": {"low": 0.1, "estimate": 0.2, "high": 0.3},
        "best": {"low": 0.05, "estimate": 0.06, "high": None},
        "rate": 0.9,
        "error_lost": 0.01,
        "rmse_lost": 0.02,
        "r_squared_lost": 0.03,
        "constant": {"low": 0.15, "estimate": 0.16, "high": 0.17},
        "figures": (
            {
                "name": "rmse",
                "title": "RMSE",
                "unit": "g",
                "low": 5.1,
                "estimate": 5.3,
                "high": 5.6,
                "constant": 6.0,
                "alone": 5.5,
            },
        ),
        "unstated": None,
        "warning": warning,
        "coalition": ("a",),
        "left_out": ("b",),
        "proven": {"noise_energy": 0.7, "excess": 0.8, "stated": ""},
        "printed": {"noise_energy": 0.9, "excess": None, "stated": "Theorem 1"},
        "likely": {"chance": 0.95, "excess": 0.4, "printed": None, "at_zero": 0.69},
        "assumptions": ASSUMPTIONS,
    }
    less = OutcomeView.of(replace(FORECAST, constant=None, printed=None, likely=None, cautions=()))
    assert (less.constant, less.printed, less.likely, less.warning) == (None, None, None, None)


def test_a_figure_that_is_not_finite_is_none() -> None:
    assert IntervalView.of(ALONE).model_dump() == {"low": 0.3, "estimate": 0.4, "high": None}
    assert BoundView.of(Bound(math.inf, -math.inf)).model_dump() == {"noise_energy": None, "excess": None, "stated": ""}


def test_the_time_of_all_rounds_is_in_seconds() -> None:
    assert RunTime.of(RoundTime(250.0, "measured"), 8).model_dump() == {
        "seconds": 2.0, "ms_per_round": 250.0, "basis": "measured",
    }  # fmt: skip
    assert RunTime.of(UNKNOWN, 8).model_dump() == {
        "seconds": None, "ms_per_round": None, "basis": "not known: the owners are not those of the roster",
    }  # fmt: skip


def test_costs_are_shown_as_they_are() -> None:
    costs = RunCosts(1, 2, 3, 4, 5, 6, 7, 8.0, "limits.round_bytes", 9, fits=True)
    assert CostsView.of(costs).model_dump() == {
        "asked": 1, "answered": 2, "round_bytes": 3, "bytes": 4, "all_bytes": 5, "memory_bytes": 6,
        "learner_bytes": 7, "noise_seconds": 8.0, "limit": "limits.round_bytes", "longest": 9, "fits": True,
    }  # fmt: skip


# ── reports ──────────────────────────────────────────────────────────────────


def owners(spec: RunSpec, outcome: Forecast | NoForecast, **answers: Any) -> list[OwnerView]:  # noqa: ANN401
    """What a report says of each owner."""
    room, said = answers.pop("room", {}), report.PartyAnswers(**answers)
    charges = charged(spec, said.facts)
    objected = report._objected(spec, charges, said)
    review = report.Review(spec, {}, charges, objected, room, said, spec, 50)
    return list(report._owners(review, spec.facts(), outcome))


def test_an_owner_that_was_not_asked_is_told_what_the_run_costs_and_brings() -> None:
    spec = spec_of()
    outcome = replace(FORECAST, owners=(*FORECAST.owners[:1], replace(FORECAST.owners[1], alone=EXCESS)))
    first, second = owners(spec, outcome)
    most = highest_charge(spec.build(), spec.facts().of(0))
    assert first.model_dump() == {
        "name": "owner-0",
        "n_examples": 1000,
        "epsilon": most.epsilon / MICRO,
        "delta": most.delta / DELTA_UNITS,
        "epsilon_now": None,
        "epsilon_left": None,
        "more_runs": None,
        "fits": None,
        "exhausted": None,
        "objections": (),
        "away": None,
        "value": 0.5,
        "recommended": True,
        "alone": {"low": 0.3, "estimate": 0.4, "high": None},
        "worth_joining": False,
    }
    assert (second.name, second.n_examples, second.value, second.recommended) == ("owner-1", 2000, -0.25, False)
    assert second.epsilon == highest_charge(spec.build(), spec.facts().of(1)).epsilon / MICRO
    nothing, _ = owners(spec, NoForecast("of this kind"))
    assert (nothing.value, nothing.recommended, nothing.alone, nothing.worth_joining) == (None,) * 4
    assert nothing.epsilon == first.epsilon


def test_a_run_without_noise_costs_what_no_budget_allows() -> None:
    spec = spec_of(algorithm="local", parameters={})
    charges = charges_of(spec.build(), spec.facts(), {})
    assert all(isinstance(charge, BudgetExhaustedError) for charge in charges.values())
    first, _ = owners(spec, NoForecast("x"), budgets={"owner-0": BudgetReport.of(limit(5.0, 1e-5))})
    assert (first.epsilon, first.fits, first.epsilon_left, first.exhausted) == (None, None, None, None)
    assert (first.delta, first.epsilon_now) == (1e-5, 5.0)


@pytest.mark.long
def test_a_charge_is_of_the_view_that_the_party_fears() -> None:
    spec = spec_of(algorithm="psgd", parameters={"n_rounds": 2})
    charges: Mapping[str, Any] = charges_of(spec.build(), spec.facts(), {"owner-1": "model"})
    algorithm, facts = spec.build(), spec.facts()
    assert charges["owner-0"] == highest_charge(algorithm, facts.of(0), "transcript")
    assert charges["owner-1"] == highest_charge(algorithm, facts.of(1), "model")
    assert charges["owner-1"] != highest_charge(algorithm, facts.of(1), "transcript")


def test_what_a_ledger_has_left_is_told_now_and_after() -> None:
    spec = spec_of()
    most = highest_charge(spec.build(), spec.facts().of(0))
    large, small = limit(10.0, 1e-4), limit(0.1, 1e-5)
    budgets = {"owner-0": BudgetReport.of(large), "owner-1": BudgetReport.of(small)}
    room = {"owner-0": True, "owner-1": False}
    first, second = owners(spec, NoForecast("x"), budgets=budgets, room=room)
    assert (first.fits, first.exhausted) == (True, None)
    assert first.epsilon_now == large.epsilon_left
    assert first.epsilon_left == large.charge(most).epsilon_left
    assert first.more_runs is not None
    assert first.more_runs == large.charge(most).runs_left(most) > 0
    assert second.more_runs is None
    assert (second.fits, second.epsilon_left, second.epsilon_now) == (False, None, small.epsilon_left)
    refusal = exhausted(small, highest_charge(spec.build(), spec.facts().of(1)))
    assert second.exhausted == f"as far as your own runs go, {refusal.detail}"
    unasked, _ = owners(spec, NoForecast("x"), budgets=budgets)
    assert (unasked.fits, unasked.epsilon_left, unasked.exhausted) == (None, None, None)


def test_a_run_that_fits_beside_the_learners_own_runs_alone_is_said_to_find_no_room() -> None:
    spec = spec_of()
    large = limit(10.0, 1e-4)
    first, second = owners(
        spec,
        NoForecast("x"),
        budgets={"owner-0": BudgetReport.of(large)},
        room={"owner-0": False, "owner-1": False},
    )
    assert (first.fits, first.epsilon_now, first.epsilon_left) == (False, large.epsilon_left, None)
    rest = "other studies or learners of this owner have spent or reserved what your own runs have left"
    assert first.exhausted is not None
    assert second.exhausted is not None
    assert first.exhausted.endswith(rest)
    assert second.exhausted.endswith(rest), "a party that reports no budget may still say that a run does not fit"
    late = {"owner-0": BudgetReport.of(limit(0.1, 1e-5))}  # the account was reported before another run ended
    first, _ = owners(spec, NoForecast("x"), budgets=late, room={"owner-0": True})
    assert (first.fits, first.epsilon_left, first.exhausted) == (True, None, None)


def test_each_party_with_a_charge_is_asked_once_whether_it_fits() -> None:
    asked: list[Any] = []

    class Saying:
        role = "party"

        def __init__(self, name: str, answer: object) -> None:
            self.name, self.answer = name, answer

        async def room(self, *terms: object) -> object:
            asked.append((self.name, *terms))
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    parties: Any = [Saying("a", True), Saying("b", False), Saying("c", PartyRefusedError("no")), Saying("d", True)]  # noqa: FBT003
    run = spec_of().model_copy(update={"study": STUDY.model_copy(update={"hold_out": 0.25})})
    charges = {name: Cost(index, 0) for index, name in enumerate("abc")} | {"d": BudgetExhaustedError("none allows it")}
    assert asyncio.run(ask_room(parties, 1.0, run, charges)) == {"a": True, "b": False}
    assert asked == [(name, run.study.digest, charges[name], "training") for name in "abc"]


def foreseen(draft: RunSpec, said: report.PartyAnswers, time: RoundTime, settle: Any) -> ForecastView:  # noqa: ANN401
    """The forecast of a run whose rounds may take two seconds."""

    async def foresee() -> ForecastView:
        return await report._foresee(await report._review(draft, said, time, 2.0, settle=settle), time)

    return asyncio.run(foresee())


def test_a_forecast_is_made_of_all_its_parts() -> None:
    draft = spec_of()
    limits: list[Any] = []

    def settle(spec: RunSpec, facts: object, most_rounds: int) -> Iterator[Candidate]:
        limits.append((spec, facts, most_rounds))
        yield Candidate(spec, {"step": "it is known"})

    time = RoundTime(100.0, "measured")
    view = foreseen(draft, report.PartyAnswers(), time, settle)
    expected = forecast(draft.build(), draft.facts())
    assert isinstance(expected, Forecast)
    assert limits == [(draft, None, 20)]
    assert (view.algorithm, view.parameters, view.chosen) == ("dp_gd", draft.parameters, {"step": "it is known"})
    assert (view.rounds, view.no_forecast, view.key_holders, view.majority) == (5, None, (), None)
    assert view.outcome == OutcomeView.of(expected)
    assert view.owners == tuple(owners(draft, expected))
    assert view.run_time == RunTime.of(time, 5)
    assert view.costs == CostsView.of(costs_of(draft, getattr(Limits(), limit_of(draft))))
    none = spec_of(algorithm="local", parameters={})
    view = foreseen(none, report.PartyAnswers(), UNKNOWN, settle)
    reason = forecast(none.build(), none.facts())
    assert isinstance(reason, NoForecast)
    assert (view.outcome, view.no_forecast) == (None, reason.reason)


def test_key_holders_are_told_how_long_sums_are_and_of_how_many() -> None:
    def settle(spec: RunSpec, *_: object) -> Iterator[Candidate]:
        yield Candidate(spec, {})

    sums: Any = SimpleNamespace(hindrances_of=lambda answered, parties: (f"{answered} numbers of {parties}",))
    view = foreseen(spec_of(), report.PartyAnswers(foreseen=sums), UNKNOWN, settle)
    assert view.key_holders == (f"{view.costs.answered} numbers of 2",)


def test_owners_of_given_sizes_are_asked_nothing() -> None:
    def settle(spec: RunSpec, *_: object) -> Iterator[Candidate]:
        yield Candidate(spec, {})

    view = asyncio.run(report.foresee_owners(spec_of(), {"owner-0": 70, "owner-1": 80}, 9.0, settle=settle))
    assert [(owner.name, owner.n_examples) for owner in view.owners] == [("owner-0", 70), ("owner-1", 80)]
    assert view.run_time == RunTime.of(UNKNOWN, 5)


def test_each_rule_gives_one_objection(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of()
    broken = [("algorithms", "the first"), ("rows", "too few"), ("algorithms", "the second")]
    asked: list[Any] = []

    def objections(_: object, *terms: object) -> list[tuple[str, str]]:
        asked.append(terms)
        return broken

    monkeypatch.setattr(ReviewedRun, "objections", objections)
    run, (first, _) = ReviewedRun.of(spec), spec.parties
    spent = BudgetExhaustedError("no budget allows it")
    facts: Any = SimpleNamespace()
    assert report.objections(run, first, facts, spent, None) == {
        "algorithms": "the first",
        "rows": "too few",
        "budget-exhausted": "no budget allows it",
    }
    assert asked == [(first, facts, ())]
    pins = {"owner-0": SimpleNamespace(known={"owner-1"})}
    sums: Any = SimpleNamespace(pins=pins, objections=lambda *given: [("pins", f"an unknown key of {given[0]}")])
    assert report.objections(run, first, facts, spent, sums)["pins"] == "an unknown key of owner-0"
    report.objections(run, spec.parties[1], facts, spent, sums)
    assert [terms[2] for terms in asked] == [(), {"owner-1"}, ("owner-0", "owner-1")]


def test_a_charge_is_judged_by_the_rules_of_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def dear(*terms: object) -> list[tuple[str, str]]:
        asked.append(terms)
        return [("cost", "too dear")]

    monkeypatch.setattr(report, "dear", dear)
    monkeypatch.setattr(ReviewedRun, "objections", lambda *_: [])
    run, facts, charge = ReviewedRun.of(spec_of()), SimpleNamespace(), Cost(1, 2)
    rules: Any = facts
    assert report.objections(run, spec_of().parties[0], rules, charge, None) == {"cost": "too dear"}
    assert asked == [(charge, "replace_one", facts)]


def test_the_party_of_each_owner_that_answered_is_asked_what_it_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, asked = spec_of(), list[Any]()

    def objections(run: ReviewedRun, *terms: object) -> dict[str, str]:
        asked.append((run.spec, *terms))
        return {"rule": "no"}

    monkeypatch.setattr(report, "objections", objections)
    rules, sums = SimpleNamespace(view="transcript"), SimpleNamespace()
    first, second = owners(spec, NoForecast("x"), facts={"owner-1": rules}, foreseen=sums)
    assert (first.objections, second.objections) == ((), ("no",))
    charge = highest_charge(spec.build(), spec.facts().of(1))
    assert asked == [(spec, spec.parties[1], rules, charge, sums)]


# ── choices ──────────────────────────────────────────────────────────────────


@pytest.fixture
def excesses(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What is expected of each algorithm."""
    found = {"a": 0.3, "b": 0.123456, "c": math.inf, "d": 0.5, "e": 0.4, "f": 0.6}
    monkeypatch.setattr(selection, "_expected", lambda _, name: found[name])
    return found


def test_the_algorithm_of_the_least_excess_is_taken_and_three_others_are_named(excesses: dict[str, float]) -> None:
    unused: Any = None
    assert selection.most_promising(excesses, unused) == (
        "b",
        "an excess fitness of 0.123 is expected of it, of others more: a 0.3, e 0.4, d 0.5",
    )
    assert selection.most_promising(["a", "c"], unused) == ("a", "an excess fitness of 0.3 is expected of it")
    for names, told in ((["c"], "c"), ([], "nothing in common")):
        with pytest.raises(InvalidInputError) as refused:
            selection.most_promising(names, unused)
        assert refused.value.detail == (
            f"there is no forecast of what the parties allow ({told}): name an algorithm and its parameters"
        )


def test_what_cannot_be_run_among_owners_is_expected_of_nothing() -> None:
    def proposed(name: str, **terms: Any) -> selection.Proposal:  # noqa: ANN401 -- terms of a run
        candidate, _ = spec_of(algorithm=name, parameters={}, **terms).settled(50)
        return candidate.build(), candidate.facts(), candidate.questions()

    assert math.isfinite(selection._expected(proposed, "dp_gd"))
    for name in ("pooled", "local", "gop", "describe"):
        assert selection._expected(proposed, name) == math.inf
    average = selection._expected(lambda name: proposed(name, secure_sum="paillier", minimum_contributors=2), "average")
    assert average > selection._expected(proposed, "average")

    def refusing(_: str) -> selection.Proposal:
        raise InvalidInputError("it cannot be run")

    assert selection._expected(refusing, "dp_gd") == math.inf


@pytest.mark.parametrize(
    ("curator", "trains", "parties", "secure_sum", "reveals", "is_possible"),
    [
        (False, True, 2, True, ("sum", "sum"), True),
        (False, True, 2, True, ("sum", "each"), False),
        (False, True, 2, False, ("each", "each"), True),
        (True, True, 2, False, ("sum",), False),
        (True, True, 1, False, ("sum",), True),
        (False, False, 1, False, ("sum",), False),
    ],
)
def test_an_algorithm_is_possible_where_nobody_must_be_trusted(  # noqa: PLR0913 -- parameters of the test
    *,
    curator: bool,
    trains: bool,
    parties: int,
    secure_sum: bool,
    reveals: tuple[str, ...],
    is_possible: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    priced: list[tuple[int, int]] = []
    algorithm: Any = SimpleNamespace(curator=curator, trains=trains, event=lambda r, index: priced.append((r, index)))
    facts: Any = SimpleNamespace(parties=("a", "b")[:parties], of=lambda index: index, secure_sum=secure_sum)
    questions: Any = [SimpleNamespace(reveal=reveal) for reveal in reveals]
    monkeypatch.setattr(selection, "expected_excess", lambda *given: 0.5 if given == (algorithm, facts) else math.nan)
    found = selection._expected(lambda _: (algorithm, facts, questions), "any")
    assert found == (0.5 if is_possible else math.inf)
    assert priced == [(1, index) for index in range(parties)], "each owner's cost of the first round is known"


def test_a_run_has_no_more_rounds_than_each_party_allows() -> None:
    spec = spec_of(parameters={})
    facts: Any = {"a": SimpleNamespace(max_rounds=7, algorithms=("dp_gd", "psgd")), "b": SimpleNamespace(max_rounds=9)}
    for asked, most in ((facts, 7), ({"b": facts["b"]}, 9), ({}, 11), (None, 11)):
        expected, choices = spec.settled(most)
        (way,) = selection.candidates(spec, asked, 11, any_algorithm=False)
        found, reasons = way.spec, way.reasons
        assert found == expected
        assert reasons == {name: choice.why for name, choice in choices.items()}
        assert reasons.keys() == {*expected.parameters}
    (way,) = selection.candidates(spec, facts, 3, any_algorithm=False)
    assert len(way.spec.questions()) <= 3


def test_an_algorithm_that_all_parties_allow_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (SimpleNamespace(max_rounds=6, algorithms=names) for names in (("psgd", "dp_gd"), ("dp_gd", "ftrl")))
    both: Any = {"a": one, "b": other}
    assert list(selection._allowed(both)) == ["dp_gd"]
    assert selection._allowed(None) is REGISTRY
    seen: list[Any] = []

    def first(names: Any, proposed: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 -- names, and a function
        seen.extend([list(names), proposed("dp_gd")])
        yield "dp_gd", "it is allowed"

    monkeypatch.setattr(selection, "ranked", first)
    spec = spec_of(algorithm="psgd", parameters={"n_rounds": 2})
    (way,) = selection.candidates(spec, both, 50, any_algorithm=True)
    found, reasons = way.spec, way.reasons
    expected, choices = spec_of(parameters={}).settled(6)
    assert found == expected
    assert reasons == {"algorithm": "it is allowed"} | {name: choice.why for name, choice in choices.items()}
    names, (algorithm, facts, questions) = seen
    assert names == ["dp_gd"]
    assert algorithm == expected.build() == build_algorithm("dp_gd", expected.parameters)
    assert (facts.parties, questions) == (("owner-0", "owner-1"), expected.questions())
    assert isinstance(highest_charge(algorithm, facts.of(0)), Cost)


# ── what a delta would buy ───────────────────────────────────────────────────


def bought(
    algorithm: str = "release",
    delta: float = 0.0,
    limits: tuple[float, float] | None = (5.0, 1e-5),
    **parameters: Any,  # noqa: ANN401 -- of an algorithm
) -> str | None:
    """What a forecast says of a delta, for three owners of 2,000 rows in 60 columns and equal accounts."""
    study = STUDY.model_copy(update={"features": tuple(Feature(name=f"x{i}", lower=0, upper=1) for i in range(60))})
    budget = Budget(epsilon=0.5, delta=delta)
    members = tuple(Member(name=f"owner-{i}", n_examples=2000, budget=budget) for i in range(3))
    draft = RunSpec(study=study, algorithm=algorithm, parameters=parameters, parties=members, minimum_contributors=3)
    way = next(selection.candidates(draft, None, 50, any_algorithm=False))
    told = {name: BudgetReport.of(limit(*limits)) for name in draft.names} if limits else {}
    said = report.PartyAnswers(budgets=told)
    return report._bought(report.Review(way.spec, way.reasons, {}, {}, {}, said, draft, 50))


def test_a_run_without_a_delta_is_told_what_one_would_buy() -> None:
    told = bought()
    assert told is not None
    assert told.startswith("with delta 1e-06: noise x 0.5")
    assert " runs of the budget instead of " in told
    assert "runs" not in (bought(limits=None) or ""), "no account is known"


def test_nothing_is_told_where_a_delta_buys_little_or_may_not_be_spent() -> None:
    assert bought(delta=1e-6) is None, "it spends one"
    assert bought(limits=(5.0, 0.0)) is None, "no owner allows one"
    assert bought(law="l2_laplace") is None, "the request wants none"
    assert bought("wu_subgradient") is None, "its noise needs none"
    assert bought("wu_subgradient", n_rounds=50, calibration="paper") is None, "the request wants the paper's noise"
    gaussian = bought("wu_subgradient", n_rounds=50)
    assert gaussian is not None
    assert gaussian.startswith("with delta 1e-06 and calibration = tight: noise x 0.4")
    small = bought(limits=(5.0, 1e-8))
    assert small is not None
    assert small.startswith("with delta 1e-09"), "a tenth of what an account has"
