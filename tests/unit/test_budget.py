"""What a run costs a party, round by round, and what an account bears."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.algorithms import REGISTRY, build_algorithm
from common.errors import BudgetExhaustedError, InvalidInputError
from common.learning.losses import Logistic
from common.privacy.account import DELTA_UNITS, MICRO, Account, Cost, limit
from common.privacy.accountant import epsilon_after, epsilons_after_each
from common.privacy.co_owner import with_part
from common.privacy.events import ApproximateEvent, L2LaplaceEvent
from common.privacy.guarantee import View
from common.protocol.facts import FederationFacts
from common.runs.pricing import events, guarantees, highest_charge, schedule, transcript
from common.runs.specification import Budget


def facts(epsilon: float = 1.0, delta: float = 1e-5, **terms: object) -> FederationFacts:
    terms = {"public_shape": (4, 10)} | terms
    return FederationFacts.uniform(
        np.array([2000, 3000]), epsilon=epsilon, delta=delta, n_features=10, loss=Logistic(), **terms
    )


def spent(costs: tuple[Cost, ...]) -> int:
    return sum(cost.epsilon for cost in costs)


# ── a run's schedule ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("view", ["transcript", "model"])
@pytest.mark.parametrize("name", REGISTRY)
def test_the_charge_is_the_most_that_the_schedule_costs(name: str, view: View) -> None:
    algorithm, of = build_algorithm(name), facts()
    own = (of.curated() if algorithm.curator else of).of(0)
    if name in {"pooled", "local"}:
        with pytest.raises(BudgetExhaustedError, match="without noise"):
            highest_charge(algorithm, own, view)
    else:
        cost = spent(schedule(algorithm, own, view)) / MICRO
        unit = len(algorithm.questions(own)) / MICRO
        assert cost - unit <= highest_charge(algorithm, own, view) <= max(cost, float(own.own_epsilon)) + unit
        if name in {"dp_gd", "psgd"}:
            assert highest_charge(algorithm, own, view) == pytest.approx(cost, abs=unit)


@pytest.mark.parametrize("epsilon", [1e-4, 1e-3, 1.0])
def test_the_charge_of_many_rounds_falls_short_by_a_micro_unit_a_round_at_most(epsilon: float) -> None:
    algorithm, own = build_algorithm("dp_gd", {"n_rounds": 500}), facts(epsilon).of(0)
    short = spent(schedule(algorithm, own)) / MICRO - highest_charge(algorithm, own)
    assert -1e-12 <= short <= 500 / MICRO


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 3.0, 17.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.05])
@pytest.mark.parametrize("rounds", [1, 10, 77])
def test_the_rounds_add_up_to_the_epsilon_of_the_run(epsilon: float, delta: float, rounds: int) -> None:
    costs = schedule(build_algorithm("dp_gd", {"n_rounds": rounds}), facts(epsilon, delta).of(0))
    assert len(costs) == rounds
    assert spent(costs) == round(epsilon * MICRO)
    assert [cost.delta for cost in costs] == [round(delta * DELTA_UNITS), *[0] * (rounds - 1)]
    assert min(cost.epsilon for cost in costs) >= 1


@pytest.mark.parametrize("name", ["dp_gd", "psgd", "local_average"])
def test_at_every_round_what_was_charged_covers_what_was_seen(name: str) -> None:
    algorithm, own = build_algorithm(name), facts(0.3).of(1)
    charged = np.cumsum([cost.epsilon for cost in schedule(algorithm, own)])
    delta = transcript(algorithm, own).delta
    assert delta == (0.0 if name == "local_average" else 1e-5)
    truly = epsilons_after_each(events(algorithm, own), delta) * MICRO
    assert (charged >= truly - 1e-3).all()
    assert charged[-1] <= truly[-1] + len(charged)
    assert charged[-1] == pytest.approx(epsilon_after(events(algorithm, own), delta) * MICRO, abs=len(charged))


def test_each_of_more_rounds_than_micro_units_costs_one() -> None:
    costs = schedule(build_algorithm("dp_gd", {"n_rounds": 500}), facts(1e-4, 0.05).of(0))
    assert min(cost.epsilon for cost in costs) == 1
    assert spent(costs) >= 500


def test_who_fears_the_model_alone_pays_the_claim_with_the_first_round() -> None:
    algorithm, own = build_algorithm("psgd", {"n_rounds": 50}), facts(0.1).of(0)
    model, whole = (schedule(algorithm, own, view) for view in ("model", "transcript"))
    assert spent(model) == 100_000
    assert [cost.epsilon for cost in model] == [100_000 - 49, *[1] * 49]
    assert sum(cost.delta for cost in model) == 10**13
    assert spent(whole) == pytest.approx(transcript(algorithm, own).epsilon * MICRO, abs=50)
    assert spent(whole) > 2 * spent(model)  # what Theorem 4.2 does not cover


def test_without_a_claim_a_view_costs_what_the_transcript_costs() -> None:
    algorithm, own = build_algorithm("dp_gd"), facts().of(0)
    assert schedule(algorithm, own, "model") == schedule(algorithm, own, "transcript")


@pytest.mark.parametrize("name", ["pooled", "local"])
@pytest.mark.parametrize("view", ["model", "transcript"])
def test_no_budget_bears_a_run_without_noise(name: str, view: View) -> None:
    with pytest.raises(BudgetExhaustedError, match="without noise"):
        schedule(build_algorithm(name), facts().of(0), view)


# ── promises ─────────────────────────────────────────────────────────────────


ALWAYS = (
    "the numbers of examples of all parties are public",
    (
        "the promise is to each record: a person with several, in one shard or in two, is hidden at each, not at all "
        "at once (group privacy)"
    ),
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
    assert each.assumptions == ALWAYS


def test_noise_in_shares_honours_the_strictest_party_and_says_what_it_leans_on() -> None:
    (promise,) = guarantees(build_algorithm("dp_gd"), facts(0.5, secure_sum=True, colluders=1))
    assert promise.epsilon == pytest.approx(0.5, rel=1e-6)
    assert promise.trust == 1
    assert promise.assumptions == (
        *ALWAYS,
        "at least 2 parties contribute to each sum",
        "at most 1 of them collude",
        "not both the learner and all key holders are corrupt",
    )


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
        assert [(round(each.epsilon, 2), each.trust) for each in guarantees(algorithm, reckoned)] == [(1.0, 1)]


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


# ── accounts ─────────────────────────────────────────────────────────────────

COSTS = st.builds(Cost, st.integers(1, 1000), st.integers(0, 1000))


@given(limits=st.tuples(st.integers(0, 5000), st.integers(0, 5000)), costs=st.lists(COSTS, max_size=20))
def test_an_account_charges_what_fits_and_nothing_else(limits: tuple[int, int], costs: list[Cost]) -> None:
    account = Account(*limits)
    for cost in costs:
        fits = (
            account.epsilon_spent + cost.epsilon <= account.epsilon_limit
            and account.delta_spent + cost.delta <= account.delta_limit
        )
        if fits:
            before, account = account, account.charge(cost)
            assert account.epsilon_spent == before.epsilon_spent + cost.epsilon
            assert account.delta_spent == before.delta_spent + cost.delta
        else:
            with pytest.raises(BudgetExhaustedError):
                account.charge(cost)
    assert 0 <= account.epsilon_spent <= account.epsilon_limit
    assert 0 <= account.delta_spent <= account.delta_limit


def test_a_refusal_says_what_is_left() -> None:
    account = limit(1.0, 1e-4).charge(Cost(900_000, 9 * 10**13))
    with pytest.raises(
        BudgetExhaustedError, match=r"epsilon 0\.2, delta 0 are asked for; epsilon 0\.1, delta 1e-05 are left"
    ) as e:
        account.charge(Cost(200_000, 0))
    assert e.value.facts == {"epsilon_left": pytest.approx(0.1), "delta_left": pytest.approx(1e-5)}
    assert e.value.status == 403


def test_a_budget_of_decimals_is_whole_units() -> None:
    for decimals in (0.1, 0.3, 0.7, 1.1, 2.3, 1e-6, 0.29, 0.57):
        assert limit(decimals, 1e-5).epsilon_limit == round(decimals * MICRO)
    assert limit(1.0, 1e-5).delta_limit == 10**13
    assert limit(1.0000009, 1e-5).epsilon_limit == MICRO  # rounded down
    assert limit(1e-7, 1e-19) == Account(0, 0)


@pytest.mark.parametrize(("epsilon", "delta"), [(-1, 5), (5, -1)])
def test_a_cost_is_not_negative(epsilon: int, delta: int) -> None:
    with pytest.raises(InvalidInputError, match="a cost must not be negative"):
        Cost(epsilon, delta)


def test_costs_fit_a_database_of_64_bits() -> None:
    assert math.ceil(1.0 * DELTA_UNITS) < 2**63
