"""A leader that rarely draws: its actions have the same chances, and what it promises holds of whole transcripts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from parley.common.arrays import FloatArray, IntArray
from parley.common.errors import InvalidInputError
from parley.common.online import Leader
from parley.common.privacy.accountant import epsilon_after
from parley.common.privacy.calibration import gaussian_delta, gaussian_epsilon, mu_of_draws
from parley.common.privacy.events import DrawEvent, GaussianEvent
from parley.common.privacy.mechanisms.leader import (
    COST_UNIT,
    Adversary,
    Dartboard,
    LeaderTerms,
    best_scale,
    least_dartboard,
    spread_of_a_draw,
)
from parley.common.privacy.noise import SeededNoise
from parley.common.runs.pricing import price_at_once
from tests.support.noises import Relay

DELTA = 1e-6
WHOLE = 2**52
KEPT = -1


def chances(totals: IntArray, scale: float) -> FloatArray:
    weights = np.exp(-(totals - totals.min(axis=-1, keepdims=True)) / (COST_UNIT * scale))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def transcripts(board: Dartboard, costs: IntArray) -> dict[tuple[int, ...], float]:
    """The chances of all that an attacker may see of rounds with these costs (T, p): what was drawn, or kept."""
    actions = costs.shape[1]
    law: dict[tuple[int, ...], tuple[int, float]] = {(a,): (a, 1 / actions) for a in range(actions)}
    for t in range(1, len(costs)):
        new = chances(costs[:t].sum(axis=0), board.scale)
        longer: dict[tuple[int, ...], tuple[int, float]] = {}
        for seen, (action, chance) in law.items():
            kept = board.keep_chance(int(costs[t - 1, action])) / WHOLE
            longer[*seen, KEPT] = action, chance * kept
            longer |= {(*seen, a): (a, chance * (1 - kept) * float(new[a])) for a in range(actions)}
        law = longer
    return {seen: chance for seen, (_, chance) in law.items()}


def actions_of(law: dict[tuple[int, ...], float], actions: int) -> FloatArray:
    """The chances (p,) of the last action."""
    result = np.zeros(actions)
    for seen, chance in law.items():
        result[next(a for a in reversed(seen) if a != KEPT)] += chance
    return result


def pairs(rng: np.random.Generator, rounds: int, actions: int, n: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Costs (T, p), two of them that differ in one vector: at random, and as far as it goes."""
    for i in range(n):
        costs = rng.integers(-COST_UNIT, COST_UNIT + 1, (rounds, actions))
        other, place = costs.copy(), int(rng.integers(rounds - 1))
        other[place] = rng.integers(-COST_UNIT, COST_UNIT + 1, actions)
        if i % 2:
            costs[place] = COST_UNIT * rng.choice([-1, 1], actions)
            other[place] = -costs[place]
        yield costs, other


# ── chances ──────────────────────────────────────────────────────────────────


def test_each_action_has_the_chances_of_one_that_is_drawn_again() -> None:
    rng = np.random.default_rng(3)
    for scale, chance in ((2.0, 0.1), (30.0, 0.4), (1.0, 2.0**-20)):
        board = Dartboard(5, scale, chance)
        costs = rng.integers(-COST_UNIT, COST_UNIT + 1, (5, 3))
        for rounds in range(1, 6):
            expected = chances(costs[: rounds - 1].sum(axis=0), scale)
            assert actions_of(transcripts(board, costs[:rounds]), 3) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("scale", "chance"), [(1.0, 0.5), (486.0, 0.0093), (1e9, 2.0**-40), (1.0, 2.0**-40)])
def test_the_chance_of_keeping_lies_between_public_ends_that_are_attained(scale: float, chance: float) -> None:
    board = Dartboard(10, scale, chance)
    least, most = board.chances
    kept = [board.keep_chance(cost) for cost in range(-COST_UNIT, COST_UNIT + 1, 997)]
    assert kept == sorted(kept, reverse=True), "what cost more is kept less"
    assert all(most >= 1 - each / WHOLE >= least > 0 for each in kept)
    assert (1 - board.keep_chance(-COST_UNIT) / WHOLE, 1 - board.keep_chance(COST_UNIT) / WHOLE) == (least, most)
    assert least == pytest.approx(chance, rel=2e-3)
    assert most == pytest.approx(1 - (1 - chance) * math.exp(-2 / scale), rel=1e-3)
    for beyond in (-2 * COST_UNIT, 5 * COST_UNIT):
        assert least <= 1 - board.keep_chance(beyond) / WHOLE <= most, "in every round"


def test_the_coin_is_tossed_with_just_that_chance() -> None:
    class Watched(Relay):
        def categorical(self, mantissas: IntArray, exponents: IntArray, n: int) -> IntArray:
            self.weights = [int(m) * 2.0 ** int(e) for m, e in zip(mantissas, exponents, strict=True)]
            assert n == 1
            return super().categorical(mantissas, exponents, n)

    for scale, chance, cost in ((1.0, 0.5, COST_UNIT), (486.0, 0.0093, 5), (1e9, 2.0**-40, -COST_UNIT)):
        board, noise = Dartboard(10, scale, chance), Watched(SeededNoise(1))
        board.keeps(cost, noise)
        assert noise.weights == [board.keep_chance(cost), WHOLE - board.keep_chance(cost)]
    noise = Watched(SeededNoise(2))
    kept = sum(Dartboard(10, 5.0, 0.3).keeps(0, noise) for _ in range(4000))
    assert stats.binomtest(kept, 4000, 0.7 * math.exp(-1 / 5)).pvalue > 1e-6


# ── privacy ──────────────────────────────────────────────────────────────────


def exceeds(one: dict[tuple[int, ...], float], other: dict[tuple[int, ...], float], epsilon: float) -> float:
    """The delta of two laws at epsilon."""
    return sum(max(0.0, chance - math.exp(epsilon) * other[seen]) for seen, chance in one.items())


@pytest.mark.parametrize(("scale", "chance"), [(2.0, 0.3), (8.0, 0.1), (20.0, 0.05)])
@pytest.mark.parametrize("actions", [2, 3])
def test_no_cost_vector_shows_in_whole_transcripts_by_more_than_is_proven(
    scale: float, chance: float, actions: int
) -> None:
    """Sums over all that can be seen of five rounds, exactly; at the first coin the bound is all but attained."""
    board, nearest = Dartboard(5, scale, chance), 0.0
    for costs, other in pairs(np.random.default_rng(actions), 5, actions, 40):
        one, changed = transcripts(board, costs), transcripts(board, other)
        for epsilon in (0.0, 0.2, 0.5, 1.0, 2.0):
            bound = gaussian_delta(epsilon, board.mu)
            for here, there in ((one, changed), (changed, one)):
                delta = exceeds(here, there, epsilon)
                assert delta <= bound
                nearest = max(nearest, delta / bound)
    print(f"lambda {scale:g}, gamma {chance:g}, {actions} actions: delta is up to {nearest:.2f} of its bound")
    assert nearest > 0.3


def losses(board: Dartboard, mine: Dartboard, rounds: int, paths: int) -> FloatArray:
    """The losses of so many transcripts of a leader, ``mine``, whose first cost vector is replaced by its opposite.

    All other costs are as large as they may be, so that it draws as often as it may.
    """
    rng, loss = np.random.default_rng(5), np.zeros(paths)
    action = rng.integers(2, size=paths)
    first, worst = np.array([COST_UNIT, -COST_UNIT]), np.full(2, COST_UNIT)
    here, there = (chances(sign * first, board.scale) for sign in (1, -1))
    for t in range(rounds):
        cost, opposite = (first, -first) if t == 0 else (worst, worst)
        kept, other = (
            np.array([mine.keep_chance(int(each)) / WHOLE for each in vector]) for vector in (cost, opposite)
        )
        keeps = rng.random(paths) < kept[action]
        loss += np.log(np.where(keeps, kept[action] / other[action], (1 - kept[action]) / (1 - other[action])))
        drawn = (rng.random(paths) >= here[0]).astype(np.int64)
        loss += np.where(keeps, 0.0, np.log(here / there)[drawn])
        action = np.where(keeps, action, drawn)
    return loss


def test_halving_what_hides_a_cost_is_caught_and_the_board_itself_is_not() -> None:
    """Losses of transcripts of 300 rounds, whose first vector differs as far as it goes."""
    epsilon, delta, rounds, paths = 1.0, 0.01, 300, 20_000
    board = least_dartboard(rounds, epsilon, delta)
    assert board is not None
    found = {}
    for name, mine in {
        "whole": board,
        "next to no gamma": Dartboard(rounds, board.scale, board.chance / 50),
        "half of lambda": Dartboard(rounds, board.scale / 2, board.chance),
    }.items():
        excess = np.maximum(0.0, -np.expm1(epsilon - losses(mine, mine, rounds, paths)))
        found[name] = float(excess.mean()), float(excess.std() / math.sqrt(paths))
    print({name: f"{mean:.4f} ± {error:.4f}" for name, (mean, error) in found.items()}, f"allowed: {delta}")
    assert found["whole"][0] <= delta
    assert all(mean - 4 * error > delta for name, (mean, error) in found.items() if name != "whole")


def test_an_action_is_kept_for_good_as_rarely_as_is_said() -> None:
    for horizon, scale, chance in ((2, 3.0, 0.5), (40, 30.0, 0.1), (1000, 130.0, 0.04), (10**6, 987.0, 0.004)):
        board = Dartboard(horizon, scale, chance)
        assert 2 * horizon * stats.binom.sf(board.draws - 1, horizon - 1, board.chances[1]) <= 1
        assert board.draws <= horizon
    terms = LeaderTerms(3, 300, 1.0, DELTA, adversary="oblivious")
    assert terms.board is not None
    noise = SeededNoise(1)
    assert all(terms.keeps(COST_UNIT, terms.board.draws, noise) for _ in range(500))
    assert not all(terms.keeps(COST_UNIT, terms.board.draws - 1, noise) for _ in range(500))


def test_a_coin_and_draws_cost_what_the_gaussian_release_that_covers_them_does() -> None:
    board = Dartboard(1000, 130.0, 0.04)
    coin, draws = board.event.events
    assert isinstance(coin, GaussianEvent)
    assert draws == DrawEvent(spread_of_a_draw(130.0, 1000), board.draws)
    p, q = board.chances
    for epsilon in np.linspace(0, 3, 31):
        for here, there in ((p, q), (q, p)):
            delta = sum(max(0.0, a - math.exp(epsilon) * b) for a, b in ((here, there), (1 - here, 1 - there)))
            assert delta <= gaussian_delta(epsilon, coin.mu)
    assert board.mu == pytest.approx(math.hypot(coin.mu, mu_of_draws(draws.spread, draws.draws)))
    assert board.epsilon(DELTA) <= gaussian_epsilon(board.mu, DELTA)
    assert epsilon_after([board.event], DELTA) == pytest.approx(board.epsilon(DELTA), rel=1e-9), "as a ledger charges"


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-4, DELTA), (1e-6, DELTA), (1e-6, 1e-12)])
def test_two_chances_that_are_all_but_one_are_told_apart_by_no_less_than_they_differ(
    epsilon: float, delta: float
) -> None:
    """Of quantiles that agree in eight digits, rounding takes what matters of the rest."""
    board = least_dartboard(2**30, epsilon, delta)
    assert board is not None
    least, most = board.chances
    coin = board.event.events[0]
    assert isinstance(coin, GaussianEvent)
    middle = stats.norm.ppf((least + most) / 2)  # where the quantile's slope is the mean one, but for parts in 10^9
    difference = (most - least) / stats.norm.pdf(middle)
    assert difference * (1 - 1e-10) <= coin.mu <= difference * (1 + 1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, DELTA), (10.0, 1e-3), (0.1, 0.01)])
@pytest.mark.parametrize("horizon", [100, 10_000, 10**6])
def test_the_least_lambda_is_private_and_less_is_not_known_to_be(horizon: int, epsilon: float, delta: float) -> None:
    board = least_dartboard(horizon, epsilon, delta)
    assert board is not None
    assert board.epsilon(delta) <= epsilon
    for other in np.geomspace(0.2, 5, 21) * board.chance * board.scale:
        scale = 0.99 * board.scale
        if other / scale <= 0.5:
            assert Dartboard(horizon, scale, other / scale).epsilon(delta) > epsilon, "of any gamma"
    floored = least_dartboard(horizon, epsilon, delta, 2 * board.scale)
    assert floored is not None
    assert floored.scale == pytest.approx(2 * board.scale)
    assert floored.mu < board.mu, "more of lambda than privacy needs costs less"


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-3, 1e-12), (1.0, 0.5), (1e4, 0.5), (1e9, 1e-12)])
def test_gamma_lies_where_it_may_for_every_budget(epsilon: float, delta: float) -> None:
    for horizon in (1, 3, 1000, 2**30):
        board = least_dartboard(horizon, epsilon, delta)
        assert board is not None
        assert 2.0**-40 <= board.chance <= 0.5
        assert board.scale >= 1
        assert board.epsilon(delta) <= epsilon


def test_where_no_board_is_private_there_is_none() -> None:
    assert least_dartboard(2**30, 1e-18, 1e-18) is None


# ── terms ────────────────────────────────────────────────────────────────────


def test_a_leader_draws_rarely_only_where_that_is_asked_for_and_gains() -> None:
    afresh = LeaderTerms(10, 100_000, 1.0, DELTA)
    rarely = LeaderTerms(10, 100_000, 1.0, DELTA, adversary="oblivious")
    assert afresh.board is None
    assert isinstance(afresh.event, DrawEvent)
    assert rarely.board is not None
    assert rarely.scale == rarely.board.scale
    assert rarely.event == rarely.board.event
    assert 0.999 < rarely.guarantee.epsilon <= 1.0
    assert rarely.guarantee.delta == DELTA
    assert price_at_once(rarely.event, 1.0, DELTA).total.slack == 0, "so it fits beside Gaussian runs"
    assert "no cost depends on any action" in rarely.guarantee.assumptions[0]
    assert "before its action is seen" in afresh.guarantee.assumptions[0]
    print(f"regret {afresh.regret:,.0f} drawn each time, {rarely.regret:,.0f} drawn rarely")
    assert rarely.regret < afresh.regret / 5
    for horizon, epsilon, delta, calibration in (
        (100_000, 1.0, 0.0, "tight"),
        (100_000, 1.0, DELTA, "paper"),
        (100_000, 1e3, DELTA, "tight"),
        (2, 1.0, DELTA, "tight"),
    ):
        one, other = (
            LeaderTerms(10, horizon, epsilon, delta, calibration, adversary)  # type: ignore[arg-type]
            for adversary in ("adaptive", "oblivious")
        )
        assert other.board is None
        assert (one.scale, one.event, one.regret) == (other.scale, other.event, other.regret)


def test_a_leader_that_privacy_does_not_bind_has_the_least_regret_and_says_what_it_costs() -> None:
    terms = LeaderTerms(100_000, 100_000, 10.0, DELTA, adversary="oblivious")
    assert terms.scale > best_scale(100_000, 100_000) * 0.999
    terms = LeaderTerms(10, 100_000, 10.0, DELTA, adversary="oblivious")
    assert terms.scale == pytest.approx(best_scale(10, 100_000))
    assert terms.regret == pytest.approx(1 + math.sqrt(2 * 100_000 * math.log(10)))
    assert terms.guarantee.epsilon < 6, "and less than was allowed"


def test_regret_grows_as_the_root_of_t_log_p_where_epsilon_is_ten() -> None:
    for actions, horizon in itertools.product((10, 1_000, 100_000), (10_000, 100_000, 10**6)):
        terms = LeaderTerms(actions, horizon, 10.0, DELTA, adversary="oblivious")
        assert terms.regret <= 1.25 * math.sqrt(2 * horizon * math.log(actions))


# ── use ──────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_leader_keeps_its_action_for_many_rounds_and_pays_what_one_that_always_draws_pays() -> None:
    rounds, runs = 400, 60
    costs = np.where(np.arange(3) == 1, -1.0, np.ones((rounds, 3)))
    paid, draws = dict[Adversary, float](adaptive=0.0, oblivious=0.0), 0
    adversaries: tuple[Adversary, ...] = ("adaptive", "oblivious")
    for adversary in adversaries:
        for seed in range(runs):
            leader = Leader(3, rounds, 1.0, 1.0, DELTA, noise=SeededNoise(seed), adversary=adversary)
            actions = []
            for cost in costs:
                actions.append(leader.act())
                leader.observe(cost)
            paid[adversary] += float(costs[np.arange(rounds), actions].sum()) / runs
            draws += int((np.diff(actions) != 0).sum()) if adversary == "oblivious" else 0
    print(f"{draws / runs:.0f} changes in {rounds} rounds; paid {paid}")
    assert draws / runs < rounds / 8
    assert paid["oblivious"] < paid["adaptive"] - 50, "as its lambda is less"


def test_a_leader_that_is_taken_up_again_keeps_what_it_kept() -> None:
    rng = np.random.default_rng(2)
    costs = rng.uniform(-1, 1, (100, 3))

    def acts(stop: int) -> list[int]:
        noise = SeededNoise(8)
        leader, actions = Leader(3, 100, 1.0, 1.0, DELTA, noise=noise, adversary="oblivious"), []
        for round, cost in enumerate(costs):
            if round == stop:
                leader = Leader(3, 100, 1.0, 1.0, DELTA, noise=noise, adversary="oblivious", state=leader.state)
            actions.append(leader.act())
            leader.observe(cost)
        return actions

    assert acts(1) == acts(50) == acts(-1)


def test_a_leader_counts_its_draws_and_then_keeps_its_action_for_good() -> None:
    leader = Leader(3, 300, 1.0, 1.0, DELTA, noise=SeededNoise(8), adversary="oblivious")
    assert leader.terms.board is not None
    leader.act()
    assert leader.state.draws == 1
    leader.observe([1, 1, 1])
    leader.state = replace(leader.state, action=2, draws=leader.terms.board.draws)
    for _ in range(299):
        assert leader.act() == 2
        assert leader.state.draws == leader.terms.board.draws
        leader.observe([-1, -1, 1])


def test_spreads_of_draws_are_those_of_the_boards_own_lambda() -> None:
    terms = LeaderTerms(10, 10_000, 1.0, DELTA, adversary="oblivious")
    assert terms.board is not None
    assert spread_of_a_draw(terms.scale, 10_000) <= spread_of_a_draw(terms.board.scale, 10_000)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
def test_a_delta_that_is_no_probability_below_1_is_refused(delta: float) -> None:
    with pytest.raises(InvalidInputError, match=f"^delta must be at least 0 and below 1, not {delta}$"):
        LeaderTerms(3, 300, 1.0, delta)
