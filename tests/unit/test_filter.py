"""A filter never overspends: what covers a release, how covers add up, and one who chooses by what was answered."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr, ndtri
from scipy.stats import norm

from parley.common.arrays import FloatArray
from parley.common.errors import BudgetExhaustedError
from parley.common.privacy.account import DELTA_UNITS, SQUARE_UNITS, Account, Cost, cost_of, limit
from parley.common.privacy.accountant import _composed
from parley.common.privacy.calibration import gaussian_delta, pure_mu
from parley.common.privacy.company import Cover, of_pure
from parley.common.privacy.events import (
    ApproximateEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NoEvent,
    NonPrivateEvent,
    ParallelEvent,
    Release,
    SequentialEvent,
)
from parley.common.privacy.filter import cover, largest_square

# ── what covers a release ────────────────────────────────────────────────────


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.5, 1.0, 5.0, 30.0])
def test_a_gaussian_curve_lies_below_all_pure_ones_and_touches_them(epsilon: float) -> None:
    """Errors of the second kind by those of the first, on levels (m,) spread over every scale."""
    levels = np.unique(np.concatenate([np.geomspace(1e-300, 0.5, 3000), np.linspace(0, 1, 3000)[1:-1]]))
    mu = pure_mu(epsilon)
    gaussian = ndtr(-ndtri(levels) - mu)
    pure = np.maximum(1 - np.exp(epsilon) * levels, np.exp(-epsilon) * (1 - levels))
    assert (gaussian <= pure + 1e-15).all()
    corner = 1 / (1 + math.exp(epsilon))
    assert ndtr(-ndtri(corner) - mu) == pytest.approx(corner, rel=1e-6)
    print(f"epsilon {epsilon:g}: mu {mu:.4f}, {mu / epsilon:.3f} epsilon")


def test_what_covers_a_pure_release_is_rounded_up() -> None:
    """By more than the functions of the normal distribution err, here Python's own."""
    for epsilon in (0.5, 1.0, 3.0, 8.0):
        exactly = -2 * NormalDist().inv_cdf(1 / (1 + math.exp(epsilon)))
        assert 1e-10 < pure_mu(epsilon) / exactly - 1 < 1e-8


def test_answers_of_several_releases() -> None:
    one, other, nothing = GaussianEvent(0.5), ApproximateEvent(0.1, 1e-6), Cover(0.0, 0.0)
    pure = of_pure(0.1)
    assert cover(one) == Cover(0.25, 0.25)
    assert cover(other) == Cover(pure.alone, pure.variance, pure.excess, 1e-6)
    several = cover(SequentialEvent((one, other, other)))
    assert several.alone == pytest.approx(0.25 + 2 * pure.alone)
    assert several.variance == pytest.approx(0.25 + 2 * pure.variance)
    assert (several.excess, several.slack) == (2 * pure.excess, 2e-6)
    worst = cover(ParallelEvent((one, other, NoEvent())))
    assert worst == Cover(0.25, 0.25, pure.excess, 1e-6), "the worst by each"
    assert cover(SequentialEvent((ParallelEvent((one, one)), one))) == Cover(0.5, 0.5)
    for empty in (NoEvent(), SequentialEvent(()), ParallelEvent(())):
        assert cover(empty) == nothing
    assert cover(LaplaceEvent(0.3)) == cover(L2LaplaceEvent(0.3, 1))
    assert cover(LaplaceEvent(0.3)).alone < cover(ApproximateEvent(0.3)).alone
    with pytest.raises(BudgetExhaustedError, match="without noise"):
        cover(SequentialEvent((one, NonPrivateEvent())))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (5.0, 1e-5), (0.1, 1e-9)])
def test_no_delta_allows_nothing_and_more_delta_more(epsilon: float, delta: float) -> None:
    squares = [largest_square(epsilon, part * delta, 1 / SQUARE_UNITS) for part in (0.0, 0.25, 0.5, 1.0)]
    assert squares[0] == 0
    assert squares == sorted(squares)


# ── what an account allows ───────────────────────────────────────────────────


def cost(event: Event) -> Cost:
    """What an answer costs under a filter; its own (epsilon, delta) does not matter there."""
    return cost_of(1, 1, cover(event))


RELEASES: st.SearchStrategy[Release] = st.one_of(
    st.sampled_from([0.02, 0.05, 0.1, 0.3]).map(GaussianEvent),
    st.sampled_from([0.05, 0.1, 0.2]).map(LaplaceEvent),
    st.sampled_from([0.05, 0.2]).map(lambda epsilon: L2LaplaceEvent(epsilon, 3)),
    st.sampled_from([(0.05, 0.0), (0.1, 1e-6), (0.2, 2e-6)]).map(lambda terms: ApproximateEvent(*terms)),
)


@settings(max_examples=40, deadline=None)
@given(events=st.lists(RELEASES, min_size=1, max_size=30))
def test_all_that_an_account_allows_is_truly_within_its_budget(events: list[Release]) -> None:
    """Composed by `dp_accounting`, which rounds up: by a thousandth of delta at most at this grid."""
    account, allowed = limit(1.0, 1e-5), list[Release]()
    for event in events:
        if account.fits(cost(event)):
            account = account.charge(cost(event))
            allowed.append(event)
    truly = float(_composed(tuple(allowed), 1e-3).get_delta_for_epsilon(1.0))
    assert truly <= 1e-5 * (1 + 1e-3)
    assert float(account.epsilon_nonadaptive) <= 1.0


@settings(deadline=None)
@given(mus=st.lists(st.floats(1e-4, 0.3), min_size=1, max_size=60), last=st.floats(1e-4, 0.3))
def test_gaussian_releases_fill_the_budget_and_no_more(mus: list[float], last: float) -> None:
    account, total = limit(1.0, 1e-5), 0.0
    for mu in [*mus, *[last] * 200]:
        if account.fits(cost(GaussianEvent(mu))):
            account = account.charge(cost(GaussianEvent(mu)))
            total += mu**2
    assert gaussian_delta(1.0, math.sqrt(total)) <= 1e-5
    if account.runs_left(cost(GaussianEvent(last))) == 0:
        assert gaussian_delta(1.0, math.sqrt(total + last**2) * (1 + 1e-4)) > 1e-5, "what is refused would not have fit"


def traded(epsilon: float, first: float, most: float, slack: float) -> float:
    """The delta at ``epsilon`` of mu^2 = ``first``, and then slack or the rest of ``most``: what is worth more by then.

    By the trapezoid rule over the first part's loss, a normal variable of mean ``first`` / 2 and variance ``first``.
    """
    loss = np.linspace(first / 2 - 12 * math.sqrt(first), first / 2 + 12 * math.sqrt(first), 20_001)
    more = math.sqrt(most - first)
    rest = epsilon - loss
    upper, lower = log_ndtr(more / 2 - rest / more), rest + log_ndtr(-more / 2 - rest / more)
    gaussian: FloatArray = np.exp(upper) * -np.expm1(np.minimum(lower - upper, 0))
    given_away = slack + (1 - slack) * np.maximum(0, -np.expm1(np.minimum(rest, 0)))
    density = norm.pdf(loss, first / 2, math.sqrt(first))
    return float(np.trapezoid(np.maximum(gaussian, given_away) * density, loss))


def test_nobody_gains_by_trading_slack_against_the_gaussian_part() -> None:
    """Were slack and the Gaussian part's delta only to add up to delta, whichever is left could go to either."""
    epsilon, delta = 5.0, 1e-5
    account = limit(epsilon, delta)
    whole, half = (account.square_limit(slack=slack) / SQUARE_UNITS for slack in (False, True))
    parts = [0.2, 0.35, 0.5, 0.65, 0.8]
    naive = max(
        traded(epsilon, part * whole, whole, delta - gaussian_delta(epsilon, math.sqrt(part * whole))) for part in parts
    )
    halves = max(traded(epsilon, part * half, half, delta / 2) for part in parts)
    print(f"traded by what was seen: {naive / delta:.2f} delta if parts add up, {halves / delta:.2f} delta of halves")
    assert naive > 1.5 * delta
    assert halves <= delta
    begun = account.charge(Cost(1, 1, round(0.35 * whole * SQUARE_UNITS)))
    assert not begun.fits(Cost(1, 1, 0, 1)), "who began without slack gets none"


@given(
    st.lists(
        st.tuples(st.sampled_from(["reserve", "charge", "release"]), st.booleans(), st.integers(1, 9)), max_size=40
    )
)
def test_the_first_charge_decides_whether_there_is_slack(steps: list[tuple[str, bool, int]]) -> None:
    """In any order of approvals, charges and runs given up: an account has slack from its first charge on, or never."""
    account, held = limit(5.0, 1e-5), list[Cost]()
    slack_at_first: bool | None = None
    for kind, slack, tenths in steps:
        cost = Cost(1, 1, tenths * account.square_limit(slack=True) // 10, tenths * 10**11 if slack else 0)
        if kind == "reserve" and account.fits(cost):
            account = account.reserve(cost)
            held.append(cost)
        elif kind == "charge" and held:
            cost = held.pop(tenths % len(held))
            account = account.release(cost).charge(cost)
            slack_at_first = cost.slack > 0 if slack_at_first is None else slack_at_first
        elif kind == "release" and held:
            account = account.release(held.pop(tenths % len(held)))
        assert (account.spent.slack > 0) == bool(slack_at_first)
        if account.spent.slack:
            assert account.spent.gdp <= account.square_limit(slack=True)
            assert account.spent.slack <= account.delta_limit // 2
    assert account.delta_spent == account.spent.slack / DELTA_UNITS


def test_pure_releases_may_simply_add_up() -> None:
    """A single release of all of epsilon, which no Gaussian part of the same budget covers."""
    release = ApproximateEvent(1.0)
    cost = cost_of(10**6, 0, cover(release))
    for account in (limit(1.0, 1e-5), limit(1.0, 0.0)):
        assert cost.gdp > account.square_limit(slack=False)
        assert account.charge(cost).epsilon_nonadaptive == 1.0
        assert not account.fits(Cost(10**6, 1, cost.gdp)), "of a delta nothing is known to add up"
        assert not account.fits(Cost(10**6 + 1, 0, cost.gdp))
    assert limit(1.0, 0.0).epsilon_left == 1.0
    assert not Account(10**6, 0).fits(Cost(1, 1, 1)), "without a delta no Gaussian release fits"
