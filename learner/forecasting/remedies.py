"""What helps where owners would refuse a run: options of ``parley-learner submit`` with which they would not.

An evaluation has a budget of its own alone; its other terms are those of the run that trained its model.

Each is tried before it is offered: by the rules that owners state, and by their accounts as far as they are told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from parley.common.algorithms import REGISTRY
from parley.common.encoding.texts import first_names
from parley.common.errors import BudgetExhaustedError, ForeseenRefusalError, InvalidInputError
from parley.common.privacy.account import Account, Cost
from parley.common.privacy.calibration import LEAST_EPSILON
from parley.common.runs.evaluation import EVALUATE
from parley.common.runs.specification import RunSpec
from parley.common.wire.party_api import StudyFacts

Refusals = Mapping[str, Mapping[str, str]]
"""Why parties would refuse a run, by party and by the owner's rule."""
Reviewed = tuple[Mapping[str, Cost | BudgetExhaustedError], Refusals]
"""What a run, with all chosen, would be charged to each party, and what parties object to, by party and rule."""
_MOST_PARTIES = 10
_DIGITS = 3  # of an epsilon that is offered
_BUDGET_RULES = frozenset({"max_epsilon_per_run", "max_delta_per_run", BudgetExhaustedError.kind})
_PARTS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
"""Parts of a run's epsilon to try, where what it costs is not its epsilon."""


@dataclass(frozen=True, slots=True)
class RefusedRun:
    """A run that parties would refuse, with what it leaves open, and what is known of these parties, by name.

    ``refusals`` say why; ``facts`` are the rules that they state, and ``accounts`` those of the parties that tell, but
    where others have spent too much. ``review`` reviews another run among the same parties, in each way to choose what
    it leaves open. ``roomy`` is the run at a smaller epsilon that the others leave room for.
    """

    spec: RunSpec
    refusals: Refusals
    facts: Mapping[str, StudyFacts]
    accounts: Mapping[str, Account]
    review: Callable[[RunSpec], Iterable[Reviewed]]
    roomy: RunSpec | None = None

    def error(self) -> ForeseenRefusalError:
        """Return the error that says who would refuse the run, why, and what helps."""
        helps = self.helpful_options()
        reasons_of = {name: _worth_saying(reasons) for name, reasons in self.refusals.items()}
        by_reason: dict[str, list[str]] = {}
        for name, words in reasons_of.items():
            for reason in words:
                by_reason.setdefault(reason, []).append(name)
        detail = "; ".join(
            f"{first_names(names)} would refuse the run: {reason}" for reason, names in by_reason.items()
        )
        if helps:
            detail += f"; what helps: {', or '.join(helps)}"
        refusals = [{"party": name, "reasons": words} for name, words in reasons_of.items()]
        return ForeseenRefusalError(detail, refusals=refusals, helps=[*helps])

    def helpful_options(self) -> tuple[str, ...]:
        """Return the options that help, each by itself, the most useful first; none if nothing is known to help."""
        spec = self.spec
        rules = {rule for reasons in self.refusals.values() for rule in reasons}
        helps = [*self._other_terms()]
        if not helps and "max_delta_per_run" in rules:
            helps += self._pure_algorithms()
        if "algorithms" in rules:
            helps += _other_algorithm(spec, self.facts)
        if any(rule.startswith(f"{EVALUATE}.") for rule in rules):
            helps.append("to leave --evaluate out")
        rest = tuple(name for name in spec.names if name not in self.refusals)
        fewest = 1 if spec.secure_sum == "none" else 2  # a sum of one hides nothing
        if fewest <= len(rest) <= _MOST_PARTIES and spec.algorithm != EVALUATE and self._may_run(rest):
            helps.append(" ".join(f"--party {name}" for name in rest))
        return tuple(helps)

    def _other_terms(self) -> Iterator[str]:
        """Yield the options that meet all rules together, if they are known to."""
        changed: RunSpec | None = self.spec
        for name, reasons in self.refusals.items():
            for rule in reasons:
                changed = changed and _met(rule, changed, self.facts[name], self.accounts.get(name))
        if changed is None and self.roomy and self._meets(self.roomy, set(self.refusals), self.accounts):
            changed = self.roomy
        if changed is None:
            return
        if changed.secure_sum != self.spec.secure_sum:  # whose keys parties pin is not known yet
            changed = changed if self._can_be(changed) else None
        elif not self._meets(changed, set(self.refusals), self.accounts):
            changed = self._smaller(changed)
        if changed is not None:
            yield self._said(changed)

    def _said(self, changed: RunSpec) -> str:
        """Return what makes the run one on other terms: options, for an evaluation in part those of another run."""
        own, shared = (" ".join(options(self.spec, changed)) for options in (_own_options, _shared_options))
        if self.spec.algorithm != EVALUATE or not shared:
            return f"{own} {shared}".strip()
        evaluated = f"evaluate that with {own}" if own else "evaluate that"
        why = "an evaluation takes such terms from the run that trained its model"
        return f"to train a model with {shared} and {evaluated}, because {why}"

    def _pure_algorithms(self) -> Iterator[str]:
        """Yield the options that name algorithms that owners would not refuse without a delta, if there are such."""
        pure = _at_most(self.spec, math.inf, 0.0)
        if pure is None or not REGISTRY[self.spec.algorithm].trains:
            return
        names = set(self.refusals)
        fit = (
            name
            for name in _allowed_algorithms(self.spec, self.facts)
            if self._meets(pure.model_copy(update={"algorithm": name, "parameters": {}}), names, self.accounts)
        )
        if named := [*islice(fit, 2)]:
            yield f"--delta 0 --algorithm {' or '.join(named)}"

    def _smaller(self, spec: RunSpec) -> RunSpec | None:
        """Return the run at the largest of a few parts of its epsilon that meets all rules; None if none does."""
        if _BUDGET_RULES.isdisjoint(rule for reasons in self.refusals.values() for rule in reasons):
            return None
        refused = set(self.refusals)
        return next((run for run in smaller_runs(spec) if self._meets(run, refused, self.accounts)), None)

    def _can_be(self, spec: RunSpec) -> bool:
        """Say whether there is such a run."""
        try:
            return any(True for _ in self.review(spec))
        except InvalidInputError:
            return False

    def _meets(self, spec: RunSpec, names: set[str], accounts: Mapping[str, Account]) -> bool:
        """Say whether these parties would not refuse a run, as far as their ``accounts`` tell."""
        try:
            return any(
                all(isinstance(c := charges[name], Cost) and accounts[name].fits(c) for name in names & accounts.keys())
                and not any(objected.get(name) for name in names)
                for charges, objected in self.review(spec)
            )
        except InvalidInputError:
            return False

    def _may_run(self, rest: tuple[str, ...]) -> bool:
        """Say whether the rest of the parties would not refuse the run among themselves."""
        changes = {
            "minimum_contributors": min(self.spec.minimum_contributors, len(rest)),
            "colluders": min(self.spec.colluders, len(rest) - 1),
        }
        return self._meets(self.spec.among(rest).model_copy(update=changes), set(rest), {})


def _worth_saying(reasons: Mapping[str, str]) -> list[str]:
    """Return the reasons to say: that the budget is too small is no news beside a rule that is broken."""
    broken = [reason for rule, reason in reasons.items() if rule != BudgetExhaustedError.kind]
    return broken or [*reasons.values()]


def _met(rule: str, spec: RunSpec, stated: StudyFacts, account: Account | None) -> RunSpec | None:
    """Return the run on terms that meet one rule of an owner; None if it is not known which do."""
    update: dict[str, Any] = {}
    match rule:
        case "max_epsilon_per_run" | "max_delta_per_run":
            return _at_most(spec, stated.max_epsilon_per_run, stated.max_delta_per_run)
        case BudgetExhaustedError.kind if account is not None:
            return _at_most(spec, _rounded(account.epsilon_left), account.delta_left)
        case "minimum_contributors" if stated.minimum_contributors <= len(spec.parties):
            update = {rule: max(spec.minimum_contributors, stated.minimum_contributors)}
        case "colluders":
            update = {rule: max(spec.colluders, stated.colluders)}
        case "overlap":
            update = {rule: max(spec.overlap, min(stated.overlap, len(spec.parties)))}
        case "max_rounds" if "n_rounds" in spec.parameters:
            update = {"parameters": spec.parameters | {"n_rounds": stated.max_rounds}}
        case "require_secure_sum":
            update = {"secure_sum": "paillier"}
    return spec.model_copy(update=update) if update else None


def smaller_runs(spec: RunSpec) -> Iterator[RunSpec]:
    """Yield a run at a few parts of its epsilon, the largest first; none if its parties have unlike budgets."""
    parts = (_at_most(spec, _rounded(spec.parties[0].budget.epsilon * part), math.inf) for part in _PARTS)
    return (run for run in parts if run is not None)


def _at_most(spec: RunSpec, epsilon: float, delta: float) -> RunSpec | None:
    """Return the run at a budget within these limits; None if there is none, or its parties have unlike budgets."""
    budgets = {member.budget for member in spec.parties}
    budget = budgets.pop()
    epsilon, delta = min(budget.epsilon, epsilon), min(budget.delta, delta)
    if budgets or epsilon < LEAST_EPSILON:
        return None
    lower = budget.model_copy(update={"epsilon": epsilon, "delta": max(delta, 0.0)})
    return spec.with_budgets(dict.fromkeys(spec.names, lower))


def _rounded(epsilon: float) -> float:
    """Round an epsilon down to a few digits, or to 0."""
    if epsilon <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - _DIGITS + 1)
    return float(f"{math.floor(epsilon / unit + 1e-9) * unit:.12g}")


def _own_options(before: RunSpec, after: RunSpec) -> tuple[str, ...]:
    """Return the options that change what any run has for itself, its budget and rounds, into another's."""
    budgets = before.parties[0].budget, after.parties[0].budget
    options = [
        f"--{name} {value:.12g}"
        for name in ("epsilon", "delta")
        if getattr(budgets[0], name) != (value := getattr(budgets[1], name))
    ]
    if before.parameters != after.parameters:
        options.append(f"-p n_rounds={after.parameters['n_rounds']}")
    return tuple(options)


def _shared_options(before: RunSpec, after: RunSpec) -> tuple[str, ...]:
    """Return the options that change the terms that an evaluation shares with the run that trained its model."""
    return tuple(
        f"--{name.replace('_', '-')} {value}"
        for name in ("minimum_contributors", "colluders", "overlap", "secure_sum")
        if getattr(before, name) != (value := getattr(after, name))
    )


def _other_algorithm(spec: RunSpec, facts: Mapping[str, StudyFacts]) -> Iterator[str]:
    """Yield the option that names algorithms that all owners allow, if some train on the study's rows."""
    named = [*islice(_allowed_algorithms(spec, facts), 2)]
    if named and REGISTRY[spec.algorithm].trains:
        yield f"--algorithm {' or '.join(named)}"


def _allowed_algorithms(spec: RunSpec, facts: Mapping[str, StudyFacts]) -> Iterator[str]:
    """Yield the algorithms that all owners allow, and that train on the study's rows."""
    for name, kind in REGISTRY.items():
        suits = kind.trains and not kind.curator and kind.takes(spec.study.norm, sparse=spec.study.sparse is not None)
        if suits and all(name in stated.algorithms for stated in facts.values()):
            yield name
