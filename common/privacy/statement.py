"""The budget that is left, in words and in runs."""

from __future__ import annotations

import math

from parley.common.privacy.account import MICRO, Account, Cost, cost_of, delta_units
from parley.common.privacy.calibration import gaussian_mu
from parley.common.privacy.events import ApproximateEvent, GaussianEvent, Release
from parley.common.privacy.filter import cover

SPENT_MEANS = "what the answers cost if no question had depended on an earlier answer; only the limit is a promise"
"""What *spent* means, wherever it is shown.

A filter promises that all answers together stay within the limit, for every way of choosing them. The figure at one
moment is no such promise: a learner that stops where the answers reveal more than it gets up to 14 times the delta in
1,000 rounds (`tests/audit/test_stopping.py`).
"""


def in_words(account: Account, epsilon: float, delta: float) -> list[str]:
    """Describe what an account's charges add up to, and how many more runs of (epsilon, delta) it allows, as sentences.

    Raises InvalidInputError for an epsilon or a delta that no run can have.

    >>> from parley.common.privacy.account import limit
    >>> in_words(limit(5, 1e-5), 0.5, 1e-6)[1]
    'That leaves one Gaussian run of (5, 1e-05), or 81 of (0.5, 1e-06), or 3 of them by methods without Gaussian noise.'
    >>> in_words(limit(5, 1e-5, composition="basic"), 0.5, 1e-6)[1]
    'That leaves one run of (5, 1e-05), or 10 of (0.5, 1e-06), by any method.'
    """
    return [_so_far(account), _left(account, epsilon, delta)]


NOT_A_SUM = (
    "Parts of the account add up, epsilons do not: Gaussian answers together cost less than the sum of their epsilons."
)
"""Why spent, reserved and left do not add up to what is allowed, where a filter counts them."""


def _so_far(account: Account) -> str:
    how = "each added up" if account.composition == "basic" else "counted by a filter"
    spent = f"epsilon {account.epsilon_spent:.3g} of {account.epsilon_limit / MICRO:g}"
    reserved = f"{account.epsilon_reserved:.3g}"
    means = f"That is {SPENT_MEANS}."
    return f"All answers so far have cost {spent}, {how}; what is reserved for approved runs adds {reserved}. {means}"


def _left(account: Account, epsilon: float, delta: float) -> str:
    units = math.ceil(epsilon * MICRO - 1e-6), delta_units(delta)
    one, many = f"({account.epsilon_left:.3g}, {account.delta_left:g})", f"({epsilon:g}, {delta:g})"
    if account.composition == "basic":
        return f"That leaves one run of {one}, or {account.runs_left(Cost(*units))} of {many}, by any method."
    approximate = account.runs_left(_cost(units, ApproximateEvent(epsilon, delta)))
    if account.delta_limit == 0 or delta == 0:
        return f"That leaves {approximate} runs of {many} by purely private methods; no others fit a delta of 0."
    gaussian = account.runs_left(_cost(units, GaussianEvent(gaussian_mu(epsilon, delta))))
    others = f"{approximate} of them by methods without Gaussian noise"
    return f"That leaves one Gaussian run of {one}, or {gaussian} of {many}, or {others}."


def _cost(units: tuple[int, int], release: Release) -> Cost:
    """Return the cost of a run of one release."""
    return cost_of(*units, cover(release))
