"""What is measured of private leaders: their expected regret against three adversaries, and that of others.

Actions whose costs are always alike are one group, so that 100,000 of them are quickly added up. The expectation over
the draws of leaders is exact; that of counters, whose noise is drawn, is over rounds in as many equal stretches.

Beside the leader of `parley.common.privacy.mechanisms.leader` stand: one who draws rarely, for an oblivious adversary
as all of these are, each action with the same chances at its lambda; one without privacy (the lambda of the least
regret); one who follows the smallest of private sums, each kept by a counter of its own (Dwork, Naor, Pitassi &
Rothblum 2010), where every node of every action's tree has Laplace noise, all together of the same epsilon; and one
who picks anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.privacy.calibration import bisect
from parley.common.privacy.draws import concentrated_epsilon
from parley.common.privacy.mechanisms.leader import Adversary as Against
from parley.common.privacy.mechanisms.leader import LeaderTerms, best_scale, regret_bound

DELTA = 1e-6
NO_PRIVACY, UNIFORM = "no privacy", "any action"
WAYS: Mapping[str, Against] = {"": "adaptive", ", drawn rarely": "oblivious"}
"""What the names of leaders end with."""
_DISTINCT = 1_000
"""Of more actions than these, several toss one coin."""
_BLOCK = 2**20
_STRETCHES = 200
_EDGE = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Adversary:
    """How many actions each group has, and the costs (n, g) of so many rounds from a first one, by a seed of theirs.

    ``means`` (g,) are the mean costs, where costs are random and independent of those of other rounds: one who
    picks an action then pays as much on average as if it paid these, and an estimate varies less.
    """

    sizes: IntArray
    costs: Callable[[int, int], FloatArray]
    means: FloatArray | None = None

    def blocks(self, rounds: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Costs (n, g) and the sums (n, g) before each of them, all rounds in order."""
        before = np.zeros(len(self.sizes))
        most = max(1, _BLOCK // len(self.sizes))
        for start in range(0, rounds, most):
            costs = self.costs(start, min(most, rounds - start))
            after = before + np.cumsum(costs, axis=0)
            yield costs, after - costs
            before = after[-1]


def one_good(actions: int, rounds: int, seed: int) -> Adversary:  # noqa: ARG001 -- as all adversaries
    """One action never costs anything but -1, and the others 1: what regret is spent on is to find it."""
    return Adversary(np.array([1, actions - 1]), lambda _, n: np.tile([-1.0, 1.0], (n, 1)))


def turning(actions: int, rounds: int, seed: int) -> Adversary:  # noqa: ARG001
    """One action is good for the first half, another for the second."""

    def costs(start: int, n: int) -> FloatArray:
        late = (np.arange(start, start + n) >= rounds // 2)[:, None]
        return np.where(late, [[1.0, -1.0, 1.0]], [[-1.0, 1.0, 1.0]])

    return Adversary(np.array([1, 1, actions - 2]), costs)


def coins(actions: int, rounds: int, seed: int) -> Adversary:  # noqa: ARG001
    """Costs are -1 or 1 by coins; one coin slightly favours its action."""
    distinct = min(actions, _DISTINCT)
    sizes = np.full(distinct, actions // distinct)
    odds = np.full(distinct, 0.5)
    odds[0] += _EDGE

    def costs(start: int, n: int) -> FloatArray:
        rng = np.random.default_rng([seed, start])
        return np.where(rng.random((n, distinct), np.float32) < odds.astype(np.float32), -1.0, 1.0)

    return Adversary(sizes, costs, 1 - 2 * odds)


ADVERSARIES = {"one good": one_good, "turning": turning, "coins": coins}


def regrets(adversary: str, actions: int, rounds: int, epsilons: list[float], seed: int) -> Mapping[str, float]:
    """The expected regret of each method for costs in [-1, 1], and bounds, by ``bound of`` a method."""
    terms = {
        f"ε = {epsilon:g}{ending}": LeaderTerms(actions, rounds, epsilon, DELTA, adversary=against)
        for ending, against in WAYS.items() for epsilon in epsilons
    }  # fmt: skip
    scales = {name: one.scale for name, one in terms.items()} | {NO_PRIVACY: best_scale(actions, rounds)}
    world = ADVERSARIES[adversary](actions, rounds, seed)
    paid, total = dict.fromkeys([*scales, UNIFORM], 0.0), np.zeros(len(world.sizes))
    for costs, before in world.blocks(rounds):
        for name, scale in scales.items():
            weights = world.sizes * np.exp((before.min(axis=1, keepdims=True) - before) / scale)
            paid[name] += float(((weights * costs).sum(axis=1) / weights.sum(axis=1)).sum())
        paid[UNIFORM] += float((costs @ world.sizes).sum()) / actions
        total += costs.sum(axis=0)
    for epsilon in epsilons:
        paid[counters(epsilon)] = _paid_by_counters(world, rounds, epsilon, seed)
    best = float(total.min())
    bounds = {f"bound of {name}": one.regret for name, one in terms.items()}
    bounds[f"bound of {NO_PRIVACY}"] = regret_bound(actions, rounds, scales[NO_PRIVACY])
    return {name: cost - best for name, cost in paid.items()} | bounds


def counters(epsilon: float) -> str:
    """Return the name of the counters of an epsilon."""
    return f"counters, ε = {epsilon:g}"


def counter_scale(actions: int, rounds: int, epsilon: float) -> float:
    """The scale of the Laplace noise on a node: one cost vector moves a node a level, of each action, by 2.

    A node of scale b is 2 / b-private, hence 2 / b^2-zCDP, and there are actions times levels of them.
    """
    rho, _ = bisect(lambda rho: rho == 0 or concentrated_epsilon(rho, DELTA) <= epsilon)
    return math.sqrt(2 * actions * rounds.bit_length() / rho)


def _paid_by_counters(world: Adversary, rounds: int, epsilon: float, seed: int) -> float:
    """The costs of picking the smallest noisy sum, from one round of each stretch."""
    rng, scale = np.random.default_rng([seed, 1]), counter_scale(int(world.sizes.sum()), rounds, epsilon)
    group = np.repeat(np.arange(len(world.sizes)), world.sizes)
    edges = np.linspace(0, rounds, min(rounds, _STRETCHES) + 1).astype(np.int64)
    stretches = {int(rng.integers(low, high)): high - low for low, high in pairwise(edges)}
    paid, start = 0.0, 0
    for costs, before in world.blocks(rounds):
        for round in [first for first in stretches if start <= first < start + len(costs)]:
            nodes = round.bit_count()
            noise = rng.gamma(nodes, scale, len(group)) - rng.gamma(nodes, scale, len(group)) if nodes else 0.0
            picked = group[(before[round - start][group] + noise).argmin()]
            paid += stretches[round] * float((costs[round - start] if world.means is None else world.means)[picked])
        start += len(costs)
    return paid
