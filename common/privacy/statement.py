"""The budget that is left, in words and in runs."""

from __future__ import annotations

import math

from parley.common.privacy.account import MICRO, Account, Cost, cost_of, delta_units
from parley.common.privacy.calibration import gaussian_mu
from parley.common.privacy.events import ApproximateEvent, GaussianEvent, Release
from parley.common.privacy.filter import cover

SPENT_MEANS = (
    "Spent holds, with the budget's delta, whenever it is read and however questions depended on answers; it may pass "
    "the limit, which holds too. Nonadaptive is what the same answers cost if no question had depended on one."
)
"""What *spent* and *nonadaptive* mean, wherever they are shown.

A learner that stops where the answers reveal more than the nonadaptive figure gets up to 14 times the delta in 1,000
rounds, and no more than the delta by what is spent (`tests/audit/test_stopping.py`).
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
    spent = f"epsilon {spent_in_words(account.epsilon_spent, account.epsilon_nonadaptive)}"
    limit, reserved = f"{account.epsilon_limit / MICRO:g}", f"{account.epsilon_reserved:.3g}"
    adds = f"what is reserved for approved runs adds {reserved} to the latter"
    return f"All answers so far have cost {spent}, of {limit}, {how}; {adds}. {SPENT_MEANS}"


def spent_in_words(spent: float | None, nonadaptive: float | None) -> str:
    """Return both figures of what is spent; None and infinity are of no figure.

    >>> spent_in_words(1.2064, 1.0), spent_in_words(None, 1.0)
    ('1.21 (nonadaptive 1)', 'beyond the allowed delta (nonadaptive 1)')
    """
    holds = spent is not None and math.isfinite(spent)
    return f"{f'{spent:.3g}' if holds else 'beyond the allowed delta'} (nonadaptive {nonadaptive:.3g})"


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
