"""What pays for a fit on the owner's own rows: an account in memory, or one in the ledger of the owner's party."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from parley.common.privacy.account import DELTA_UNITS, Account, Price


@dataclass(frozen=True, slots=True)
class Fit:
    """What a fit costs, all at once, and its public terms by name, as JSON values: parameters, n, d, epsilon, delta."""

    algorithm: str
    terms: Mapping[str, Any]
    price: Price


class Payer(ABC):
    """An account that fits on the same examples pay from; it refuses a fit that would cost more than is left.

    A copy is the payer itself, so that copies of an estimator pay from it.
    """

    @property
    @abstractmethod
    def account(self) -> Account:
        """The account as it is now."""

    @property
    @abstractmethod
    def fits(self) -> int:
        """How many fits have paid."""

    @abstractmethod
    def pay(self, fit: Fit) -> None:
        """Charge a fit, before its noise is drawn.

        Raises BudgetExhaustedError, which says what is left, if the fit costs more.
        """

    @property
    def delta(self) -> float:
        """The delta that all fits may cost together."""
        return self.account.delta_limit / DELTA_UNITS

    @property
    def epsilon_spent(self) -> float:
        """The epsilon of all that was paid so far together, at the budget's delta.

        It holds whenever it is read, however fits depended on earlier results. It may pass the budget's epsilon, which
        holds too.
        """
        return self.account.epsilon_spent

    @property
    def epsilon_nonadaptive(self) -> float:
        """The epsilon of all that was paid so far if no fit depended on an earlier result."""
        return self.account.epsilon_nonadaptive

    @property
    def epsilon_left(self) -> float:
        """The largest epsilon of one more fit at `delta_left`."""
        return self.account.epsilon_left

    @property
    def delta_left(self) -> float:
        """The delta of one more fit."""
        return self.account.delta_left

    def __repr__(self) -> str:
        account = self.account
        remaining = f"epsilon_left={account.epsilon_left:g}, delta_left={account.delta_left:g}"
        return f"{type(self).__name__}({remaining}, fits={self.fits})"

    def __copy__(self) -> Self:
        """Return this payer itself."""
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        """Return this payer itself."""
        return self
