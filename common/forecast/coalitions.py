"""Who should take part in a run: the excess fitness of coalitions of owners, and the best among them.

A coalition C whose answers weigh w_l, with noise of variance v_l, on n_l examples, has the excess
(`parley.common.forecast.excess_risk`)

    excess(C) = start + psi(A_C / W_C^2),  A_C = sum over l of (noise v_l + sample w_l^2 / n_l),  W_C = sum of w_l,

psi a rising function. For sums of gradients w_l = n_l, so A_C / W_C^2 is noise V_C / n_C^2 + sample / n_C. Dividing by
n_C^2 is why a small, conservative owner makes the model worse: it adds much to V_C and little to n_C. For an average of
local models w_l = 1.

*The best coalition* is found among K, not 2^K, where owners only add to A and W: {(A, W): A / W^2 >= c} is convex, so
the least excess is at a vertex of the set of all (A_C, W_C); its vertices are sums over the owners whose A_l / w_l is
least, so the best is the first so many in that order.

Where owners are *coupled*, by noise shared under a secure sum or set by the strictest budget of all, all coalitions of
a few are tried. Of more, the first so many in that order, by own noise and by size, and for each least epsilon and
least delta all who are no stricter; then single owners are moved in or out while that helps. Of what this finds nothing
is proven: more examples may even harm, where the slack as published leaves next to no epsilon for the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from parley.common.arrays import FloatArray
from parley.common.forecast.dynamics import Answers, Forecaster, Load, Method, Problem
from parley.common.forecast.excess_risk import Interval, Response, response_of
from parley.common.forecast.forecasters import forecaster_of
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts

Members = npt.NDArray[np.bool_]
_FEW = 8
"""Up to so many coupled owners, all coalitions are tried."""
_LEVELS = 32
"""How many least epsilons, and least deltas, are tried; if there are more, their quantiles are."""
_SWEEPS = 3
"""How often each owner is tried in and out of a coalition, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class CoalitionRun:
    """A run of one coalition; ``facts`` are those that its parties get."""

    facts: FederationFacts
    method: Method
    answers: Answers

    @classmethod
    def of(cls, algorithm: Forecaster, facts: FederationFacts) -> CoalitionRun:
        """Return the run of an algorithm among all parties that the facts name."""
        run_facts = facts.curated() if algorithm.curator else facts
        return cls(run_facts, algorithm.dynamics(run_facts), algorithm.answers(run_facts.everyone))

    @property
    def problem(self) -> Problem:
        """The problem that the run solves."""
        return Problem.of(self.facts)

    @property
    def response(self) -> Response:
        """The response of the run to its noise."""
        return response_of(self.method, self.problem)

    @property
    def weights(self) -> FloatArray:
        """The weight of each answer in their mean, (K,)."""
        n = self.facts.n_examples.astype(np.float64)
        return n if self.method.joint else np.ones_like(n)

    def estimates(self, masks: Members) -> FloatArray:
        """Return the estimated excess of coalitions (M, K) of uncoupled parties, (M,)."""
        return self.response.estimate(*self._loads(masks))

    def disturbances(self, masks: Members) -> FloatArray:
        """Return the quantity (M,) that the estimates rise with."""
        return self.response.disturbance(*self._loads(masks))

    def _loads(self, masks: Members) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return fresh noise, noise drawn once and the error of the sample in the mean answer, (M,) each."""
        members = masks.astype(np.float64)
        weight = members @ self.weights
        parts = (self.answers.fresh, self.answers.once, self.weights**2 / self.facts.n_examples)
        fresh, once, sample = (members @ part / weight**2 for part in parts)
        return fresh, once, sample

    @property
    def estimate(self) -> float:
        """The estimated excess when all answer."""
        return float(self.estimates(np.ones((1, len(self.weights)), dtype=np.bool_))[0])

    @property
    def outcome(self) -> Interval:
        """The excess; the ends allow for rounds in which only m_min of the parties answer."""
        least = self.facts.minimum_contributors
        quiet, loud = self.response.excess(self.load(least, 1)), self.response.excess(self.load(least, -1))
        return Interval(quiet.low, self.estimate, loud.high)

    def load(self, least: int, order: Literal[1, -1]) -> Load:
        """Return the load when any ``least`` or more parties answer: the least for ``order`` 1, the largest for -1.

        Each part is taken by itself, as if the parties with the most noise were those with the fewest examples. The
        error of an average of models is at most the mean of their errors, by Jensen's inequality: the largest load has
        that. The least load has the error of independent models.
        """
        weights = np.cumsum(np.sort(self.weights)[::-order])[least - 1 :]

        def extreme(variance: FloatArray) -> float:
            of_means = np.cumsum(np.sort(variance)[::order])[least - 1 :] / weights**2
            return float(of_means.min() if order == 1 else of_means.max())

        heaviness = self._heaviness(least)
        return Load(extreme(self.answers.fresh), extreme(self.answers.once), heaviness, self._sample(least, order))

    def _sample(self, least: int, order: Literal[1, -1]) -> float:
        """Return the error of the sample when all answer, for ``order`` 1, or the smallest ``least`` alone."""
        n = np.sort(self.facts.n_examples.astype(np.float64))
        if self.method.joint:
            return float(1 / n.sum() if order == 1 else 1 / n[:least].sum())
        return float((1 / n).sum() / len(n) ** 2 if order == 1 else (1 / n[:least]).mean())

    def _heaviness(self, least: int) -> float:
        """Return the heaviness of the sum of the parties' fresh noise: sum v^2 / (sum v)^2 times one party's."""
        fresh = np.sort(self.answers.fresh)
        if not self.answers.heaviness:
            return 0.0
        return self.answers.heaviness * min(1.0, float((fresh[-least:] ** 2).sum() / fresh[:least].sum() ** 2))


def expected_excess(algorithm: Algorithm, facts: FederationFacts) -> float:
    """Return the estimate of a forecast of the excess fitness of all owners together; infinite where there is none."""
    forecaster = forecaster_of(algorithm)
    if isinstance(forecaster, str) or not algorithm.is_private(facts):
        return math.inf
    with np.errstate(all="ignore"):
        estimate = CoalitionRun.of(forecaster, facts).outcome.estimate
    return estimate if math.isfinite(estimate) else math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Coalitions:
    """The coalitions of the owners whom the facts name, as masks (K,)."""

    algorithm: Forecaster
    facts: FederationFacts
    _remembered: dict[bytes, float] = field(default_factory=dict)

    def run(self, members: Members) -> CoalitionRun:
        """Return the run of one of the coalitions."""
        return CoalitionRun.of(self.algorithm, self.facts.coalition(members))

    def best(self) -> Members:
        """Return the members of the best coalition, (K,)."""
        k = len(self.facts.parties)
        if self._coupled and k <= _FEW:
            return self._least((np.arange(1, 2**k)[:, None] >> np.arange(k) & 1).astype(np.bool_))
        ranks = np.argsort(np.argsort(self._keys(), axis=-1, kind="stable"), axis=-1, kind="stable")
        first = (ranks[:, None] <= np.arange(k)[:, None]).reshape(-1, k)
        if not self._coupled:
            return self._least(first)
        return self._improved(self._least(np.concatenate([first, self._no_stricter()])))

    def values(self, best: Members) -> FloatArray:
        """Return by how much the best coalition's excess rises if an owner leaves it, or falls if one joins, (K,).

        Where too few are left to run, what is left is a model of zeros.
        """
        unchanged = self._excesses(best[None])
        changed = self._excesses(best ^ np.eye(len(best), dtype=np.bool_))
        changed = np.where(np.isfinite(changed), changed, self.run(best).problem.gap)
        return np.where(best, changed - unchanged, unchanged - changed)

    @property
    def _coupled(self) -> bool:
        return self.algorithm.coupled or self.facts.secure_sum

    def _keys(self) -> FloatArray:
        """Return the keys that order owners, (orders, K): A_l / w_l; for coupled owners also own noise, and size."""
        terms = {"secure_sum": False, "colluders": 0, "minimum_contributors": len(self.facts.parties)}
        apart = replace(self.facts, **terms)  # type: ignore[arg-type]
        everyone = np.eye(len(self.facts.parties), dtype=np.bool_)
        if not self.algorithm.coupled:
            run = CoalitionRun.of(self.algorithm, apart)
            noise, weights = run.answers.fresh + run.answers.once, run.weights
            ratio = run.disturbances(everyone) * weights  # of one alone A_l / w_l^2, times w_l
        else:
            runs = [CoalitionRun.of(self.algorithm, apart.coalition(mask)) for mask in everyone]
            noise = np.array([float((run.answers.fresh + run.answers.once).sum()) for run in runs])
            ratio = noise / self.facts.n_examples
        return np.stack([ratio, noise, -self.facts.n_examples]) if self._coupled else ratio[None]

    def _least(self, masks: Members) -> Members:
        """Return the coalition of these, (M, K), that has the least excess, (K,)."""
        return np.asarray(masks[np.argmin(self._excesses(masks))])

    def _no_stricter(self) -> Members:
        """Return all whose budgets are no stricter, for each least epsilon and least delta, (M, K)."""
        epsilon, delta = (
            budget >= np.unique(np.quantile(budget, np.linspace(0, 1, _LEVELS), method="nearest"))[:, None]
            for budget in (self.facts.epsilon, self.facts.delta)
        )
        return np.asarray((epsilon[:, None] & delta).reshape(-1, len(self.facts.parties)))

    def _improved(self, best: Members) -> Members:
        """Return a coalition that is no better without any one of its members or with any one more, or nearly such."""
        excess = float(self._excesses(best[None])[0])
        for _ in range(_SWEEPS):
            before = best
            for change in np.eye(len(best), dtype=np.bool_):
                other = float(self._excesses((best ^ change)[None])[0])
                if other < excess:
                    best, excess = best ^ change, other
            if best is before:
                break
        return best

    def _excesses(self, masks: Members) -> FloatArray:
        """Return the estimated excess of coalitions (M, K), (M,); infinite where they are too few to run."""
        facts = self.facts
        sums = facts.secure_sum and not self.algorithm.curator
        least = 1 + len(facts.parties) - facts.minimum_contributors + facts.colluders if sums else 1
        fit = masks.sum(axis=1) >= least
        excesses = np.full(len(masks), np.inf)
        if self._coupled:
            excesses[fit] = [self._excess(mask) for mask in masks[fit]]
        else:
            excesses[fit] = CoalitionRun.of(self.algorithm, facts).estimates(masks[fit])
        return excesses

    def _excess(self, members: Members) -> float:
        """Return the estimated excess of one coalition, from memory if it was asked before."""
        key = members.tobytes()
        if key not in self._remembered:
            self._remembered[key] = self.run(members).estimate
        return self._remembered[key]
