"""What a small delta would buy a run that spends none: less noise, or more runs of the same budgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from parley.common.client.affordable import Candidate, charged
from parley.common.errors import InvalidInputError
from parley.common.privacy.account import DELTA_UNITS, Account, Cost
from parley.common.privacy.calibration import LEAST_DELTA
from parley.common.runs.specification import RunSpec
from parley.common.wire.party_api import StudyFacts

_USUAL_DELTA = 1e-6
_PART = 0.1
"""The delta to try is at most this over the number of examples, and this part of an account's."""
_LESS_NOISE, _MORE_RUNS = 0.8, 1.25
"""What a delta must buy to be worth telling: so much less noise, or so many times the runs."""


@dataclass(frozen=True, slots=True)
class RunPayers:
    """What a run's parties state, and their accounts; both by name."""

    facts: Mapping[str, StudyFacts]
    accounts: Mapping[str, Account]

    def runs(self, spec: RunSpec) -> int | None:
        """Return how many such runs the accounts hold: the least of them; None if none is payers."""
        counts = []
        for name, charge in charged(spec, self.facts).items():
            if isinstance(charge, Cost) and name in self.accounts:
                counts.append(runs_left(self.accounts[name], charge))
        return min(counts, default=None)


@lru_cache(maxsize=4096)  # many owners of a run have equal accounts
def runs_left(account: Account, cost: Cost) -> int:
    """Return how many more runs of this cost fit an account."""
    return account.runs_left(cost)


def bought_by_delta(
    spec: RunSpec, given: Mapping[str, Any], payers: RunPayers, ways: Callable[[RunSpec], Iterator[Candidate]]
) -> str | None:
    """Say what a small delta would buy a run that spends none, all else being equal; None if that is not worth it.

    ``given`` are the parameters that were asked for, and ``ways`` yields those to choose what another run leaves open.
    The delta is far below one over the number of examples, and a small part of what any owner allows.
    """
    if any(member.budget.delta for member in spec.parties) or (delta := _small_delta(spec, payers)) < LEAST_DELTA:
        return None
    budgets = {member.name: member.budget.model_copy(update={"delta": delta}) for member in spec.parties}
    taken = {name: value for name, value in spec.build().by_delta.items() if name not in given}
    fixed = {name: value for name, value in spec.parameters.items() if name != "law" or name in given}
    try:
        other = next(ways(spec.model_copy(update={"parameters": fixed | taken}).with_budgets(budgets))).spec
        noise, less = (run.build().noise_of_model(run.facts()) for run in (spec, other))
        before, after = payers.runs(spec), payers.runs(other)
    except InvalidInputError:
        return None
    ratio = less / noise if noise and less else 1.0
    if after == 0 or not (ratio <= _LESS_NOISE or (ratio <= 1 and (after or 0) >= _MORE_RUNS * max(before or 0, 1))):
        return None
    quieter = [f"noise x {ratio:.2g}"] if ratio <= _LESS_NOISE else []
    runs = [] if before is None or after is None else [f"{after:,} runs of the budget instead of {before:,}"]
    conjunction = ", but " if runs and (after or 0) < (before or 0) else ", and "
    options = "".join(f" and {name} = {value}" for name, value in taken.items())
    return f"with delta {delta:g}{options}: {conjunction.join(quieter + runs)}"


def _small_delta(spec: RunSpec, payers: RunPayers) -> float:
    """Return the delta to try, in one digit, rounded down; 0 if an owner allows none."""
    allowed = [stated.max_delta_per_run for stated in payers.facts.values()]
    allowed += [_PART * account.delta_limit / DELTA_UNITS for account in payers.accounts.values()]
    delta = min(_USUAL_DELTA, _PART / spec.facts().n_total, *allowed)
    if delta <= 0:
        return 0.0
    unit = 10.0 ** math.floor(math.log10(delta) + 1e-9)
    return float(f"{math.floor(delta / unit + 1e-9) * unit:.0e}")
