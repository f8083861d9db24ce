"""The best of all learners that choose each run by what the earlier ones answered gets no more than the budget.

A learner has a menu of runs, of real algorithms on real facts and of claims about which nothing more is known. Seeing
the privacy loss of its canary so far, it takes any run that the account accepts, switches kinds, or stops. Its delta at
the budget's epsilon is the value of that game, solved backwards: for each number of runs of each kind that the account
accepts, and each loss on a grid. So a menu stands for all learners that have it, those who take large runs where little
was lost, or much, those who save for one large run, and those who stop ahead; nothing is sampled but menus and budgets.
The losses of a run are those of its worst pair, which `scripts.benchmarks.worst_pairs` writes from the mechanisms'
proofs, without the account's code. On a grid they are no smaller than they are, so a value is a bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, product

import numpy as np
import pytest
from scipy.fft import irfft, next_fast_len, rfft

from parley.common.arrays import FloatArray
from parley.common.privacy.account import DELTA_UNITS, MICRO, Account, Cost, limit
from parley.common.privacy.calibration import gaussian_delta
from parley.common.privacy.events import ApproximateEvent
from parley.common.runs.pricing import price_at_once
from scripts.benchmarks.budgets import KINDS
from scripts.benchmarks.worst_pairs import Masses, WorstPair, approximate
from tests.support.nightly import repeats

MENUS, LONG, HALVED = repeats(2_000, 20_000), repeats(10, 200), repeats(100, 1_000)
SIZES = 1.0, 3.0, 8.0, 20.0
"""By which the epsilons of `KINDS` are multiplied."""
STEPS = 25
"""Steps of the grid in the deviation of the smallest loss of a menu, at least; powers of two, so that menus share."""
GRID = 1.01
"""How much larger a value may be on the grid."""
DEVIATIONS = 6.0

Menu = Sequence["Item"]
State = tuple[int, ...]
"""How many runs of each item of a menu were taken."""
Game = Sequence[Mapping[State, Sequence[int]]]
"""After so many runs, the states that there may be, and the items that the account accepts next in each."""


@dataclass(frozen=True, eq=False)
class Item:
    """A run on a menu: its name, what it costs an account, and its worst pair."""

    name: str
    cost: Cost
    pair: WorstPair

    def halved(self) -> Item:
        """The same run at half of its cost, in every unit."""
        return Item(self.name, Cost(*(unit // 2 for unit in self.cost.units)), self.pair)


@lru_cache(maxsize=1)
def items() -> tuple[Item, ...]:
    """All runs that menus are made of."""
    runs = [(size, kind.run(size)) for kind, size in product(KINDS, SIZES)]
    claims = [(epsilon, delta) for epsilon in (0.05, 0.3, 1.0) for delta in (1e-8, 1e-7, 1e-6)]
    return (
        *(Item(f"{run.kind.name} x {size:g}", run.cost, run.pair) for size, run in runs),
        *(
            Item(f"claim of {claim}", price_at_once(ApproximateEvent(*claim), *claim).total, approximate(*claim))
            for claim in claims
        ),
    )


# ── the game ─────────────────────────────────────────────────────────────────


def game_of(budget: Account, menu: Menu) -> Game:
    """All that a learner may have taken of a menu, and may take then."""
    game: list[dict[State, list[int]]] = []
    states = [(0,) * len(menu)]
    while states:
        accounts = [(state, replace(budget, spent=_cost(menu, state))) for state in states]
        game.append({state: [at for at, item in enumerate(menu) if now.fits(item.cost)] for state, now in accounts})
        states = list(dict.fromkeys(_after(state, item) for state, able in game[-1].items() for item in able))
    return game


def _after(state: State, item: int) -> State:
    """What one more run of an item leads to."""
    return (*state[:item], state[item] + 1, *state[item + 1 :])


def _cost(menu: Menu, state: State) -> Cost:
    """What some runs cost together."""
    return sum((item.cost * times for item, times in zip(menu, state, strict=True)), Cost(0, 0))


def best_delta(epsilon: float, menu: Menu, game: Game) -> float:
    """The delta at ``epsilon`` of the best learner.

    Grids of runs end at their largest loss, so that a pure run has none above its epsilon: what a state's runs have
    lost lies on a grid that is shifted by as much as theirs are.
    """
    deviations = np.array([item.pair.deviation for item in menu])
    reach = DEVIATIONS * math.sqrt(max(float((deviations**2) @ state) for states in game for state in states))
    width = 2.0 ** math.floor(math.log2(float(deviations.min()) / STEPS))
    losses = width * np.arange(-math.ceil(reach / width), math.ceil((epsilon + reach) / width) + 1)
    laws = [law_of(item, width) for item in menu]
    tops = [math.floor(law.largest / width) for law in laws]
    shifts = np.array([law.largest - top * width for law, top in zip(laws, tops, strict=True)])
    bottoms = [len(law.chances) - 1 - top for law, top in zip(laws, tops, strict=True)]
    below, above = max(bottoms), max(*tops, 0)
    size = next_fast_len(len(losses) + below + above, real=True)
    spectra = [
        np.conj(rfft(np.pad(law.chances, (below - bottom, above - top)), size))
        for law, bottom, top in zip(laws, bottoms, tops, strict=True)
    ]

    def stopped(states: Iterable[State]) -> FloatArray:
        lost = losses + np.array([np.dot(state, shifts) for state in states])[:, None]
        return np.asarray(np.maximum(0.0, -np.expm1(epsilon - lost)))

    values, place = stopped(game[-1]), {state: at for at, state in enumerate(game[-1])}
    for states in reversed(game[:-1]):
        ends = np.repeat(values[:, :1], below, axis=1), np.ones((len(values), above))
        ahead = rfft(np.concatenate([ends[0], values, ends[1]], axis=1), size)
        values = stopped(states)
        for item, (spectrum, law) in enumerate(zip(spectra, laws, strict=True)):
            moves = [
                (at, place[_after(state, item)]) for at, (state, able) in enumerate(states.items()) if item in able
            ]
            if moves:
                mine, its = np.array(moves).T
                value = irfft(ahead[its] * spectrum, size)[:, : len(losses)] + law.infinite
                values[mine] = np.maximum(values[mine], value)
        place = {state: at for at, state in enumerate(states)}
    return float(np.interp(0.0, losses, values[0]))


@lru_cache(maxsize=4096)
def law_of(item: Item, width: float) -> Masses:
    """The chances of a run's losses on a grid."""
    return item.pair.masses(width)


# ── menus ────────────────────────────────────────────────────────────────────


def a_menu(number: int, fewest: int, most: int, most_states: int) -> tuple[Account, Menu]:
    """A budget, and two to four runs that it allows from ``fewest`` to ``most`` times alone; not too many in all."""
    rng = np.random.default_rng([44, number, most])
    while True:
        budget = limit(float(np.exp(rng.uniform(np.log(0.5), np.log(8)))), float(rng.choice([1e-6, 1e-5, 1e-4])))
        able = (
            item
            for item in (items()[at] for at in rng.permutation(len(items())))
            if budget.fits(item.cost * fewest) and not budget.fits(item.cost * (most + 1))
        )
        menu = list(islice(able, int(rng.integers(2, 5))))
        if len(menu) > 1 and math.prod(budget.runs_left(item.cost) + 1 for item in menu) <= most_states:
            return budget, menu


def part_of_delta(budget: Account, menu: Menu) -> float:
    """The best learner's delta as a part of the budget's."""
    value = best_delta(budget.epsilon_limit / MICRO, menu, game_of(budget, menu))
    return value / (budget.delta_limit / DELTA_UNITS)


# ── audits ───────────────────────────────────────────────────────────────────


def test_the_best_of_learners_with_a_gaussian_run_alone_has_its_closed_form() -> None:
    """The control: it gains nothing by what it sees, and gets what a single release of all has."""
    (item,) = (item for item in items() if item.name == "dp_gd x 3")
    value = best_delta(1.0, [item], [{(times,): [0]} for times in range(11)])
    assert value == pytest.approx(gaussian_delta(1.0, math.sqrt(10) * item.pair.deviation), rel=GRID - 1)


@pytest.mark.parametrize(
    ("menus", "fewest", "most", "states"), [(MENUS, 1, 12, 150), (LONG, 12, 60, 1_500)], ids=["few runs", "many runs"]
)
def test_no_choice_of_runs_by_what_was_answered_gets_more_than_the_budget(
    menus: int, fewest: int, most: int, states: int
) -> None:
    parts = {}
    for number in range(menus):
        budget, menu = a_menu(number, fewest, most, states)
        parts[number] = part_of_delta(budget, menu)
        assert parts[number] <= GRID, (budget, [(item.name, item.cost) for item in menu])
    values = np.array([*parts.values()])
    print(
        f"the best learner of {menus} menus: at most {values.max():.4f} x delta, in the median {np.median(values):.2f}"
    )


def test_half_a_cover_is_noticed() -> None:
    """If runs cost half, the same learners get many times delta from most menus; not where so few runs fit anyhow."""
    parts = []
    for number in range(HALVED):
        budget, menu = a_menu(number, 1, 12, 150)
        parts.append(part_of_delta(budget, [item.halved() for item in menu]))
    noticed = sum(part > GRID for part in parts)
    print(f"half a cover: {noticed} of {HALVED} menus have more than delta, the median {np.median(parts):.1f} x delta")
    assert noticed > HALVED / 2
    assert np.median(parts) > 2
