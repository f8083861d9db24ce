"""What a run costs a party, round by round, and what an account allows."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.common.algorithms import REGISTRY, build_algorithm
from parley.common.errors import BudgetExhaustedError, InvalidInputError
from parley.common.learning.losses import Logistic
from parley.common.privacy.account import DELTA_UNITS, MICRO, SQUARE_UNITS, Account, Cost, Price, limit
from parley.common.privacy.accountant import epsilon_after, pure_epsilons
from parley.common.privacy.calibration import gaussian_delta, gaussian_mu, pure_mu
from parley.common.privacy.co_owner import with_part
from parley.common.privacy.events import ApproximateEvent, L2LaplaceEvent
from parley.common.privacy.filter import cover, largest_square
from parley.common.privacy.guarantee import Composition, View
from parley.common.privacy.statement import in_words
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.pricing import (
    ALWAYS,
    events,
    guarantees,
    highest_charge,
    is_of_sums,
    price,
    schedule,
    transcript,
)
from parley.common.runs.specification import Budget
from parley.common.wire.party_api import BudgetReport
from tests.support.studies import numbers_study


def facts(epsilon: float = 1.0, delta: float = 1e-5, **terms: object) -> FederationFacts:
    terms = {"public_shape": (4, 10), "study": numbers_study(10)} | terms
    return FederationFacts.uniform(
        np.array([2000, 3000]), epsilon=epsilon, delta=delta, n_features=10, loss=Logistic(), **terms
    )


def spent(costs: tuple[Cost, ...]) -> int:
    return sum(cost.epsilon for cost in costs)


# ── a run's schedule ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("view", ["transcript", "model"])
@pytest.mark.parametrize("name", REGISTRY)
def test_the_charge_is_the_most_that_the_schedule_costs(name: str, view: View) -> None:
    algorithm = build_algorithm(name)
    rows = 1 if algorithm.rows == "held_out" else 4
    of = facts(public_shape=(rows, 10 + (algorithm.public_rows == "labelled")))
    own = (of.curated() if algorithm.curator else of).of(0)
    if name in {"pooled", "local", "batch", "individual", "matrix_perturbation"}:
        with pytest.raises(BudgetExhaustedError, match="without noise"):
            highest_charge(algorithm, own, view)
    else:
        cost = spent(schedule(algorithm, own, view)) / MICRO
        unit = len(algorithm.questions(own)) / MICRO
        most = highest_charge(algorithm, own, view)
        assert cost - unit <= most.epsilon / MICRO <= max(cost, float(own.own_epsilon)) + unit
        assert replace(most, epsilon=0) == replace(price(algorithm, own, view).total, epsilon=0)
        if name in {"dp_gd", "psgd"}:
            assert most.epsilon / MICRO == pytest.approx(cost, abs=unit)


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 3.0, 17.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.05])
@pytest.mark.parametrize("rounds", [1, 10, 77])
def test_the_first_round_pays_for_all_of_a_run_with_a_delta(epsilon: float, delta: float, rounds: int) -> None:
    costs = schedule(build_algorithm("dp_gd", {"n_rounds": rounds}), facts(epsilon, delta).of(0))
    assert len(costs) == rounds
    assert [cost.epsilon for cost in costs] == [round(epsilon * MICRO), *[0] * (rounds - 1)]
    assert [cost.delta for cost in costs] == [round(delta * DELTA_UNITS), *[0] * (rounds - 1)]


@pytest.mark.parametrize("name", ["dp_gd", "psgd", "local_average"])
def test_at_every_round_what_was_charged_covers_what_was_seen(name: str) -> None:
    algorithm, own = build_algorithm(name), facts(0.3).of(1)
    charged = np.cumsum([cost.epsilon for cost in schedule(algorithm, own)])
    delta = transcript(algorithm, own).delta
    assert delta == (0.0 if name == "local_average" else 1e-5)
    if delta == 0:
        truly = pure_epsilons(events(algorithm, own)) * MICRO
        assert (charged >= truly - 1e-3).all()
    else:
        assert (charged == charged[0]).all(), "no part of a run has an epsilon of its own"
    assert charged[-1] == pytest.approx(epsilon_after(events(algorithm, own), delta) * MICRO, abs=len(charged))


def test_each_of_more_pure_rounds_than_micro_units_costs_one() -> None:
    costs = schedule(build_algorithm("wu_subgradient", {"n_rounds": 500}), facts(1e-4, 0.0).of(0))
    assert min(cost.epsilon for cost in costs) == 1
    assert spent(costs) >= 500


def test_who_fears_the_model_alone_pays_the_claim_with_the_first_round() -> None:
    algorithm, own = build_algorithm("psgd", {"n_rounds": 50}), facts(0.1).of(0)
    model, whole = (schedule(algorithm, own, view) for view in ("model", "transcript"))
    assert spent(model) == 100_000
    assert [cost.epsilon for cost in model] == [100_000, *[0] * 49]
    assert sum(cost.delta for cost in model) == 10**13
    assert [cost.slack for cost in model] == [10**13, *[0] * 49]
    assert [cost.gdp for cost in model] == [math.ceil(pure_mu(0.1) ** 2 * SQUARE_UNITS), *[0] * 49]
    assert sum(cost.slack for cost in whole) == 0
    assert spent(whole) == pytest.approx(transcript(algorithm, own).epsilon * MICRO, abs=50)
    assert spent(whole) > 2 * spent(model)  # what Theorem 4.2 does not cover


def test_without_a_claim_a_view_costs_what_the_transcript_costs() -> None:
    algorithm, own = build_algorithm("dp_gd"), facts().of(0)
    assert schedule(algorithm, own, "model") == schedule(algorithm, own, "transcript")


@pytest.mark.parametrize("name", ["pooled", "local", "batch", "individual"])
@pytest.mark.parametrize("view", ["model", "transcript"])
def test_no_budget_allows_a_run_without_noise(name: str, view: View) -> None:
    with pytest.raises(BudgetExhaustedError, match="without noise"):
        schedule(build_algorithm(name), facts().of(0), view)


# ── promises ─────────────────────────────────────────────────────────────────


SAID = (
    "the numbers of examples of all parties are public",
    (
        "the promise is to each record: a person with several, in one shard or in two, is hidden at each, not at all "
        "at once (group privacy)"
    ),
    *ALWAYS,
)


def test_a_run_promises_what_holds_for_the_worst_off_party() -> None:
    mixed = FederationFacts(
        parties=("a", "b", "c"),
        n_examples=np.array([10, 10, 10]),
        epsilon=np.array([0.5, 2.0, 1.0]),
        delta=np.array([1e-5, 1e-5, 1e-6]),
        n_features=3,
        loss=Logistic(),
        minimum_contributors=3,
    )
    (each,) = guarantees(build_algorithm("dp_gd"), mixed)
    assert (round(each.epsilon, 6), each.delta) == (2.0, 1e-5)
    assert each.assumptions == SAID


def test_noise_in_shares_honours_the_strictest_party_and_says_what_it_leans_on() -> None:
    (promise,) = guarantees(build_algorithm("dp_gd"), facts(0.5, secure_sum=True, colluders=1))
    assert promise.epsilon == pytest.approx(0.5, rel=1e-6)
    assert promise.trust == 1
    assert promise.assumptions[:7] == (
        *SAID,
        "at least 2 parties contribute to each sum",
        "at most 1 of them collude",
    )
    assert all(map(is_of_sums, promise.assumptions[7:]))


def test_the_papers_claim_stands_beside_the_honest_transcript() -> None:
    claim, honest = guarantees(build_algorithm("psgd"), facts(0.1))
    assert (claim.view, claim.calibration, claim.epsilon) == ("model", "paper", 0.1)
    assert "the model is the exact minimiser" in claim.assumptions
    assert honest.view == "transcript"
    assert honest.epsilon > 3 * claim.epsilon


def test_a_promise_by_noise_for_the_solver_too_leans_on_no_exact_minimiser() -> None:
    for promise in guarantees(build_algorithm("gop"), facts(0.1, 0.05).curated()):
        assert promise.epsilon == 0.1
        assert not any("exact" in words for words in promise.assumptions)


@pytest.mark.parametrize(("parties", "epsilon"), [(2, 1.47), (3, 1.25), (5, 1.13)])
def test_one_co_owner_who_was_not_reckoned_with_sees_more(parties: int, epsilon: float) -> None:
    """It subtracts its own share of the noise; that is promised beside the transcript, and not charged."""
    budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "n_features": 3, "loss": Logistic(), "secure_sum": True}
    for name, parameters in (("dp_gd", {}), ("wu_subgradient", {"calibration": "tight"})):
        algorithm = build_algorithm(name, parameters)
        shared = FederationFacts.uniform(np.full(parties, 10), **budget)
        outsider, co_owner = guarantees(algorithm, shared)
        print(f"{name}, {parties} parties: epsilon {outsider.epsilon:.2f}, {co_owner.epsilon:.2f} to one co-owner")
        assert (round(outsider.epsilon, 2), outsider.trust) == (1.0, 0)
        assert (round(co_owner.epsilon, 2), co_owner.trust, co_owner.view) == (epsilon, 1, "transcript")
        assert "at most 1 of them collude" in co_owner.assumptions
        assert sum(cost.epsilon for cost in schedule(algorithm, shared.of(0))) == 10**6
        reckoned = FederationFacts.uniform(np.full(parties, 10), **budget, colluders=1)
        assert [(round(guarantee.epsilon, 2), guarantee.trust) for guarantee in guarantees(algorithm, reckoned)] == [
            (1.0, 1)
        ]


def test_noise_that_each_adds_whole_hides_as_much_from_a_co_owner() -> None:
    for name, parameters in (("psgd", {"n_rounds": 2}), ("wu_subgradient", {})):
        *_, outsider, co_owner = guarantees(build_algorithm(name, parameters), facts(1.0, secure_sum=True))
        assert (co_owner.epsilon, co_owner.trust) == (outsider.epsilon, 1)


def test_a_share_of_l2_laplace_noise_leaves_a_co_owner_no_pure_epsilon() -> None:
    """The bound against draws of what is left, for a shift of the sensitivity: no event beats it."""
    terms = facts(1.0, secure_sum=True)
    outsider, co_owner = guarantees(build_algorithm("local_average"), terms)
    assert (round(outsider.epsilon, 6), outsider.delta) == (1.0, 0.0)
    assert (co_owner.delta, co_owner.trust) == (1e-5, 1)
    assert 1.0 < co_owner.epsilon < 100
    print(f"local_average: epsilon {outsider.epsilon:.2f} at delta 0, {co_owner.epsilon:.2f} at 1e-5 to one co-owner")
    rng, d, runs = np.random.default_rng(1), terms.n_features, 400_000
    variance = 2 * rng.gamma((d + 1) / 4, size=(runs, 1))
    left = np.sqrt(variance) * rng.normal(size=(runs, d))  # beta and the sensitivity are 1
    moved = left + np.eye(d)[0]
    for epsilon, delta in ((1.5, 0.02), (0.8, 0.1)):
        bound = with_part(L2LaplaceEvent(1.0, d), 0.5, delta)
        assert isinstance(bound, ApproximateEvent)
        near = [(np.linalg.norm(each - np.eye(d)[0], axis=1) < 0.15).mean() for each in (moved, left)]
        assert near[0] <= np.exp(bound.epsilon) * near[1] + delta + 1e-3, (epsilon, delta)


def test_pure_mechanisms_spend_no_delta_and_need_none() -> None:
    for name in ("local_average", "wu_subgradient", "wu_strongly_convex"):
        algorithm = build_algorithm(name)
        for delta in (1e-5, 0.0):
            own = facts(0.5, delta).of(0)
            assert (round(transcript(algorithm, own).epsilon, 6), transcript(algorithm, own).delta) == (0.5, 0.0)
            costs = schedule(algorithm, own)
            assert sum(cost.delta for cost in costs) == 0
            assert sum(cost.epsilon for cost in costs) in (500_000, 500_001)
    for name in ("dp_gd", "gop"):
        with pytest.raises(InvalidInputError, match="delta"):
            build_algorithm(name).check_noise(facts(0.5, 0.0).curated().of(0))


def test_a_delta_that_no_ledger_counts_is_refused() -> None:
    for delta in (1e-19, 9e-19, 1.0, -1e-5, math.nan):
        with pytest.raises(ValueError, match="delta must be 0"):
            Budget(epsilon=1.0, delta=delta)
    for delta in (0.0, 1e-18, 1e-5):
        assert Budget(epsilon=1.0, delta=delta)
    least = facts(0.5, 1e-25)
    assert schedule(build_algorithm("dp_gd"), least.of(0))[0].delta == 1, "never nothing"


# ── across runs ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "parameters", "view", "least"),
    [
        ("dp_gd", {}, "transcript", 81),
        ("wu_strongly_convex", {"calibration": "tight"}, "transcript", 81),
        ("wu_strongly_convex", {"calibration": "paper"}, "transcript", 32),
        ("local_average", {}, "transcript", 47),
        ("psgd", {"n_rounds": 10}, "transcript", 4),
        ("psgd", {}, "model", 3),
    ],
)
def test_a_budget_allows_many_runs(name: str, parameters: dict[str, object], view: View, least: int) -> None:
    run = price(build_algorithm(name, parameters), facts(0.5, 1e-6).of(0), view).total
    filtered, added = (limit(5, 1e-5, composition=way).runs_left(run) for way in ("filter", "basic"))
    print(f"(5, 1e-5) allows {filtered} runs of (.5, 1e-6) by {name} {parameters}, {view} view; added up, {added}")
    assert filtered >= least
    account = limit(5, 1e-5)
    for _ in range(filtered):
        account = account.charge(run)
    with pytest.raises(BudgetExhaustedError):
        account.charge(run)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("rounds", [1, 77])
def test_a_run_of_all_the_budget_is_allowed_once(epsilon: float, rounds: int) -> None:
    run = price(build_algorithm("dp_gd", {"n_rounds": rounds}), facts(epsilon).of(0)).total
    assert limit(epsilon, 1e-5).runs_left(run) == 1


@pytest.mark.parametrize("name", ["dp_gd", "psgd", "local_average", "wu_strongly_convex"])
def test_the_rounds_add_up_to_the_square_of_the_run_rounded_up(name: str) -> None:
    algorithm, own = build_algorithm(name), facts(0.3).of(1)
    exact = list(accumulate(Fraction(cover(event).alone) for event in events(algorithm, own)))
    charged = list(accumulate(cost.gdp for cost in schedule(algorithm, own)))
    assert all(0 <= whole - square * SQUARE_UNITS < 1 for whole, square in zip(charged, exact, strict=True))


def test_a_price_knows_its_steps_and_what_remains() -> None:
    run = Price((3, 5, 9), (2, 2, 2), (4, 6, 7), (1, 1, 1))
    assert [run.step(round, round - 1) for round in (1, 2, 3)] == [Cost(3, 2, 4, 1), Cost(2, 0, 2, 0), Cost(4, 0, 1, 0)]
    assert run.step(3, 1) == run.remaining(1) == Cost(6, 0, 3, 0)
    assert run.remaining(0) == run.total == run.step(3, 0)
    assert run.remaining(3) == Cost(0, 0)


# ── accounts ─────────────────────────────────────────────────────────────────

LIMIT = limit(1.0, 1e-5)
WHOLE = LIMIT.square_limit(slack=False)
HALF = LIMIT.square_limit(slack=True)
COSTS = st.builds(
    Cost, st.integers(0, MICRO // 2), st.integers(0, 10**13 // 2), st.integers(0, WHOLE // 3), st.just(0)
) | st.builds(Cost, st.integers(0, MICRO), st.sampled_from([0, 10**12]), st.integers(0, WHOLE), st.integers(0, 10**13))
WAYS = st.sampled_from(["filter", "basic"])


@given(composition=WAYS, costs=st.lists(COSTS, max_size=20))
def test_an_account_charges_what_fits_and_nothing_else(composition: Composition, costs: list[Cost]) -> None:
    account = limit(1.0, 1e-5, composition=composition)
    for cost in costs:
        total = account.spent + cost
        adds_up = total.epsilon <= MICRO and total.delta <= 10**13
        began_without = account.spent.gdp > 0 and account.spent.slack == 0
        halves = total.gdp <= HALF and total.slack <= 10**13 // 2 and not began_without
        fits = adds_up and (composition == "basic" or total.delta == 0)
        fits |= composition == "filter" and (total.gdp <= WHOLE if total.slack == 0 else halves)
        assert account.fits(cost) == fits
        if fits:
            account = account.charge(cost)
            assert account.spent == total
        else:
            with pytest.raises(BudgetExhaustedError):
                account.charge(cost)
            with pytest.raises(BudgetExhaustedError):
                account.reserve(cost)


@given(composition=WAYS, costs=st.lists(COSTS, min_size=1, max_size=8), data=st.data())
def test_what_is_reserved_counts_until_it_is_released(
    composition: Composition, costs: list[Cost], data: st.DataObject
) -> None:
    account = limit(1.0, 1e-5, composition=composition)
    held: list[Cost] = []
    for cost in costs:
        if not account.fits(cost):
            continue
        account = account.reserve(cost)
        held.append(cost)
        assert (account.spent, account.reserved) == (Cost(0, 0), sum(held, Cost(0, 0)))
        assert account.release(cost).reserve(cost) == account
    for cost in held:
        before = account
        if data.draw(st.booleans()):
            account = account.release(cost).charge(cost)
            assert account.spent + account.reserved == before.spent + before.reserved, "what is moved fits"
            assert account.epsilon_left == before.epsilon_left or cost.slack > 0, "slack lets others in once charged"
        else:
            account = account.release(cost)
            assert account.spent == before.spent
            assert account.epsilon_left >= before.epsilon_left
    assert account.reserved == Cost(0, 0)
    with pytest.raises(InvalidInputError, match="must not be negative"):
        account.release(Cost(1, 0))


@pytest.mark.parametrize(
    ("account", "whole", "unit"),
    [
        pytest.param(limit(1.0, 1e-5, composition="basic"), Cost(MICRO, 10**13), Cost(1, 0), id="epsilon"),
        pytest.param(limit(1.0, 1e-5, composition="basic"), Cost(MICRO, 10**13), Cost(0, 1), id="delta"),
        pytest.param(LIMIT, Cost(9 * MICRO, 10**14, WHOLE), Cost(0, 0, 1), id="mu^2"),
        pytest.param(LIMIT, Cost(9 * MICRO, 10**14, HALF, 10**13 // 2), Cost(0, 0, 1), id="mu^2 beside slack"),
        pytest.param(LIMIT, Cost(9 * MICRO, 10**14, HALF, 10**13 // 2), Cost(0, 0, 0, 1), id="slack"),
        pytest.param(LIMIT, Cost(MICRO, 0, 2 * WHOLE), Cost(1, 0), id="pure epsilon"),
        pytest.param(LIMIT, Cost(MICRO, 0, 2 * WHOLE), Cost(0, 1), id="pure no more"),
        pytest.param(limit(1.0, 0.0), Cost(MICRO, 0, 2 * WHOLE), Cost(1, 0), id="pure epsilon without delta"),
        pytest.param(limit(1.0, 0.0), Cost(MICRO, 0, 2 * WHOLE), Cost(0, 1), id="no delta"),
    ],
)
def test_the_last_unit_is_allowed_and_one_more_is_not(account: Account, whole: Cost, unit: Cost) -> None:
    full = account.charge(whole)
    assert not account.fits(whole + unit)
    assert not account.reserve(whole).fits(unit)
    with pytest.raises(BudgetExhaustedError):
        full.charge(unit)
    less = whole - unit if unit.epsilon or unit.gdp or unit.slack else whole
    assert account.charge(less).fits(whole - less)
    assert account.runs_left(whole) == 1
    assert full.runs_left(unit) == 0


def test_an_account_that_began_without_slack_allows_none() -> None:
    gaussian, other = Cost(1, 1, WHOLE // 10), Cost(1, 1, 1, 1)
    with pytest.raises(BudgetExhaustedError, match="began with other runs does not accept"):
        LIMIT.charge(gaussian).charge(other)
    both = LIMIT.charge(other).charge(gaussian)
    assert both.spent == gaussian + other
    assert LIMIT.charge(Cost(0, 0)).fits(other), "a round without a part begins nothing"
    waiting = LIMIT.reserve(other)
    assert not waiting.fits(gaussian), "slack must not be given up for more of the Gaussian part"
    assert waiting.fits(other)
    assert waiting.epsilon_left == 0
    assert waiting.release(other).charge(other).fits(gaussian)
    assert waiting.release(other).fits(gaussian)


def test_a_refusal_says_what_is_left() -> None:
    account = limit(1.0, 1e-4, composition="basic").charge(Cost(900_000, 9 * 10**13))
    with pytest.raises(
        BudgetExhaustedError, match=r"epsilon 0\.2, delta 0 are asked for; epsilon 0\.1, delta 1e-05 are left"
    ) as e:
        account.charge(Cost(200_000, 0))
    assert e.value.facts == {"epsilon_left": pytest.approx(0.1), "delta_left": pytest.approx(1e-5)}
    assert e.value.status == 403


def test_a_refusal_by_a_filter_says_what_is_left() -> None:
    run = price(build_algorithm("dp_gd"), facts(0.5).of(0)).total
    account = limit(1.0, 1e-5)
    account = account.charge(run * account.runs_left(run))
    words = r"epsilon 0\.5, delta 1e-05 are asked for; epsilon 0\.\d+, delta 1e-05 are left to a Gaussian run"
    with pytest.raises(BudgetExhaustedError, match=words) as e:
        account.charge(run)
    print(e.value.detail)
    epsilon_left = e.value.facts["epsilon_left"]
    assert epsilon_left == account.epsilon_left < 0.5
    last = price(build_algorithm("dp_gd"), facts(account.epsilon_left).of(0)).total
    assert account.runs_left(last) == 1, "what is said to be left is left"
    assert not account.fits(price(build_algorithm("dp_gd"), facts(account.epsilon_left + 1e-5).of(0)).total)


@given(st.integers(0, WHOLE - 10**6))
def test_a_gaussian_run_of_what_is_left_fits(gdp: int) -> None:
    account = LIMIT.charge(Cost(1, 1, gdp))
    if (epsilon := account.epsilon_left) > 0:
        assert account.fits(Cost(1, 1, math.ceil(gaussian_mu(epsilon, account.delta_left) ** 2 * SQUARE_UNITS)))
    assert account.epsilon_nonadaptive <= 1 + 1e-9


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.05])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 5.0, 1e6])
def test_a_limit_is_the_largest_square_that_its_profile_allows(epsilon: float, delta: float) -> None:
    whole = limit(epsilon, delta).square_limit(slack=False)
    assert gaussian_delta(epsilon, math.sqrt(whole / SQUARE_UNITS)) <= delta
    assert gaussian_delta(epsilon, math.sqrt((whole + 1 + whole * 1e-7) / SQUARE_UNITS)) > delta
    assert whole < 2**63, "fits a database"


def test_a_charge_solves_for_nothing_twice() -> None:
    """What a limit allows is found once; a round after that only adds and compares."""
    run = price(build_algorithm("dp_gd"), facts(0.01, 1e-7).of(0))
    account = limit(5.0, 1e-5).reserve(run.total)
    misses = largest_square.cache_info().misses
    started = time.perf_counter()
    for round in range(1, len(run.gdp) + 1):
        step = run.step(round, round - 1)
        account = account.release(step).charge(step)
    each = (time.perf_counter() - started) / len(run.gdp)
    print(f"a charge takes {each * 1e6:.0f} us")
    assert largest_square.cache_info().misses == misses
    assert account.spent == run.total


def test_an_account_in_words() -> None:
    run = price(build_algorithm("dp_gd"), facts(0.5, 1e-6).of(0)).total
    account = limit(5, 1e-5).charge(run * 10).reserve(run)
    sentences = in_words(account, 0.5, 1e-6)
    print(*sentences)
    assert "0.5, 1e-06), or 0 of them by" in sentences[1], "the account began without slack"
    assert " 70 of " in sentences[1]
    assert "of 5, counted by a filter; what is reserved" in sentences[0]
    assert in_words(limit(5, 0), 0.5, 0)[1].startswith("That leaves 10 runs of (0.5, 0) by purely private methods")


@given(composition=WAYS, spent=COSTS, reserved=COSTS)
def test_a_report_says_all_that_an_account_knows(composition: Composition, spent: Cost, reserved: Cost) -> None:
    account = Account(MICRO, 10**13, spent, reserved, "whole_party", composition)
    report = BudgetReport.of(account)
    assert BudgetReport.model_validate_json(report.model_dump_json()).account == account
    assert (report.epsilon_left, report.delta_left) == (account.epsilon_left, account.delta_left)


def test_a_budget_of_decimals_is_whole_units() -> None:
    for decimals in (0.1, 0.3, 0.7, 1.1, 2.3, 1e-6, 0.29, 0.57):
        assert limit(decimals, 1e-5).epsilon_limit == round(decimals * MICRO)
    assert limit(1.0, 1e-5).delta_limit == 10**13
    assert limit(1.0000009, 1e-5).epsilon_limit == MICRO  # rounded down
    assert limit(1e-7, 1e-19) == Account(0, 0)


@pytest.mark.parametrize("column", range(4))
def test_a_cost_is_not_negative(column: int) -> None:
    with pytest.raises(InvalidInputError, match="a cost must not be negative"):
        Cost(*(-1 if i == column else 5 for i in range(4)))


def test_costs_fit_a_database_of_64_bits() -> None:
    assert math.ceil(1.0 * DELTA_UNITS) < 2**63
    assert pure_mu(1e6) ** 2 * SQUARE_UNITS < 2**63
