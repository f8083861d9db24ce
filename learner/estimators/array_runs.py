"""Turns a fit on arrays into a simulated run, with its owners, bounds, guarantee, cost and model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils import check_random_state

from parley.common.algorithms import AUTO, settlements
from parley.common.data.columns import Feature
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import build_loss
from parley.common.learning.model import Model
from parley.common.privacy.account import Cost, Price
from parley.common.privacy.guarantee import UNIT_NAMES, Guarantee, delta_caution
from parley.common.privacy.noise import Noise, SeededNoise, SystemNoise
from parley.common.privacy.payer import Fit, Payer
from parley.common.protocol.algorithm import Algorithm, Choice
from parley.common.protocol.cautions import cautions
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from parley.common.runs.pricing import price, transcript
from parley.learner.estimators.budget import EstimatorError, check_number
from parley.learner.experiments.datasets import deal, shard_sizes

if TYPE_CHECKING:
    import numpy.typing as npt

Seed = int | np.random.RandomState | None
"""As in scikit-learn. None is the operating system's randomness; nothing is promised with any other."""
Bounds = tuple["npt.ArrayLike", "npt.ArrayLike"]
"""(lower, upper), each one number or one for each column; public."""

_ASSUMED = (
    "bounds, row_norm, all other parameters, and what became of X before, do not follow from the examples",
    "that fit refuses examples, and how long it takes, are not hidden",
    "the promise is for one fit, and another on the same examples costs as much again; scores on them are not covered",
)


@dataclass(frozen=True, slots=True)
class ArrayRun:
    """A settled run of the algorithm ``name``, of owners who hold the examples in equal parts.

    Nothing in it depends on the examples.
    """

    name: str
    facts: FederationFacts
    algorithm: Algorithm
    choices: dict[str, Choice]

    @classmethod
    def settled(  # noqa: PLR0913 -- the terms of a run, by name
        cls,
        study: Study,
        n_examples: int,
        name: str,
        parameters: Mapping[str, Any],
        *,
        owners: int,
        epsilon: float,
        delta: float,
        budget: Payer | None = None,
    ) -> Self:
        """Return the run of the algorithm ``name``; the parameters that ``parameters`` leaves out are chosen.

        They are chosen among what the ``budget`` pays for, if it pays for any. Raises InvalidInputError for parameters
        that the algorithm cannot take.
        """
        facts = FederationFacts.uniform(
            np.array(shard_sizes(n_examples, owners)),
            parties=tuple(f"owner-{i + 1} of the examples" for i in range(owners)) if owners > 1 else ("the examples",),
            epsilon=epsilon,
            delta=delta,
            n_features=study.n_features,
            loss=build_loss(study),
            study=study,
            secure_sum=owners > 1,
        )
        runs = (cls(name, facts, *settled) for settled in settlements(name, parameters, facts))
        preferred = next(runs)
        run = preferred
        if budget is not None and not preferred.fits(budget):
            run = next((other for other in runs if other.fits(budget)), preferred)
        run.algorithm.check_noise(facts.of(0))
        return run

    def fits(self, budget: Payer) -> bool:
        """Return whether a budget pays for the run."""
        try:
            return budget.account.fits(self.fit().price.total)
        except InvalidInputError:  # it cannot be run
            return False

    def promise(self, *assumptions: str) -> Guarantee:
        """Return the guarantee for each example, under the ``assumptions`` and those of every fit on arrays."""
        return transcript(self.algorithm, self.facts.of(0)).assuming(*_ASSUMED, *assumptions)

    def warn(self, budget: Payer | None) -> None:
        """Warn the caller of ``fit`` about parameters and budgets; warnings depend only on public numbers."""
        hidden = f"{UNIT_NAMES[self.facts.unit]}s"
        of_budget = () if budget is None else delta_caution(budget.delta, self.facts.n_total, hidden)
        alone = ("all rows have one group: they count as one person's, and nothing is learnt",)
        of_groups = alone if self.facts.unit == "person" and self.facts.n_total == 1 else ()
        for caution in dict.fromkeys((*of_groups, *cautions(self.algorithm, self.facts), *of_budget)):
            warnings.warn(caution, UserWarning, stacklevel=4)

    def paid(self, budget: Payer | None, seed: Seed) -> None:
        """Charge a budget, if there is one. The owners' budgets are equal, and so are their noise and their costs.

        Raises BudgetExhaustedError if the fit costs more than the budget has, EstimatorError if a ``seed`` voids the
        guarantee.
        """
        if budget is None:
            return
        if seed is not None:
            raise EstimatorError("a random_state voids the promise that a budget counts: give one of the two")
        budget.pay(self.fit())

    def fit(self) -> Fit:
        """Return what a fit costs its owner, and its public terms."""
        facts = self.facts
        costs = [price(self.algorithm, facts.of(i)).total.units for i in range(len(facts.parties))]
        cost = Cost(*map(max, *costs)) if len(costs) > 1 else Cost(*costs[0])
        terms = {
            "parameters": asdict(self.algorithm),  # type: ignore[call-overload]  # a dataclass, see `Algorithm`
            "n_examples": facts.n_total,
            **({} if facts.unit == "replace_one" else {"most_rows": facts.most_rows}),
            "n_features": facts.n_features,
            "owners": len(facts.parties),
            "epsilon": float(facts.epsilon.max()),
            "delta": float(facts.delta.max()),
        }
        return Fit(self.name, terms, Price.at_once(cost, self.algorithm.adjacency_of(facts.unit)))

    def model(self, examples: Shard, seed: Seed) -> Model:
        """Train on the rows (m, d) of examples, which are dealt to the owners in order, all rows of a person to one."""
        stack = deal(examples, tuple(self.facts.n_examples.tolist()))
        model = simulate(self.algorithm, stack, self.facts, _noise(seed))
        return model.members[0] if model.kind == "members" else model


def check_kinds(estimator: Any) -> None:  # noqa: ANN401 -- one of this package, with parameters of any type
    """Raise EstimatorError, with name and value, for a parameter of a wrong type: parameters are no private data."""
    budget, regularization = estimator.budget, estimator.regularization
    check_number("epsilon", estimator.epsilon)
    check_number("delta", estimator.delta)
    if not (isinstance(regularization, str) and regularization == AUTO):
        check_number("regularization", regularization)
    for name in ("owners", "most_rows"):
        number = getattr(estimator, name)
        if not (isinstance(number, Integral) and int(number) >= 1):
            raise EstimatorError(f"{name} must be a whole number, at least 1, not {number!r}")
    if not isinstance(calibration := getattr(estimator, "calibration", ""), str):
        raise EstimatorError(f"calibration must be a word, not {calibration!r}")
    if not isinstance(budget, Payer | None):
        raise EstimatorError(f"budget must be a PrivacyBudget or a LedgerBudget, not {budget!r}")


def features_of(bounds: Bounds | None, n_features: int) -> tuple[Feature, ...]:
    """Return the columns with their bounds; raises EstimatorError without bounds: no scale is taken from data."""
    if bounds is None:
        raise EstimatorError(
            "bounds are missing: give (lower, upper), public numbers in the units of X; no scale is taken from data"
        )
    try:
        lower, upper = (np.broadcast_to(np.asarray(limit, np.float64), n_features).tolist() for limit in bounds)
    except (OverflowError, TypeError, ValueError):
        raise EstimatorError(
            f"bounds must be (lower, upper), each a number or one for each of the {n_features} columns"
        ) from None
    for i, pair in enumerate(zip(lower, upper, strict=True)):
        if not np.isfinite(pair).all():
            raise EstimatorError(f"bounds must be finite, and those of column 'x{i}' are {pair[0]:g} and {pair[1]:g}")
    return tuple(Feature(name=f"x{i}", lower=lower[i], upper=upper[i]) for i in range(n_features))


def _noise(seed: Seed) -> Noise:
    """Return the operating system's noise, or that of a seed, which hides nothing."""
    return SystemNoise() if seed is None else SeededNoise(int(check_random_state(seed).randint(2**31)))
