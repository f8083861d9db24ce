"""The owner's budget for fits of its own: the account in its party's ledger, which learners' runs are charged to.

A fit is a run of the owner's own. It is approved, charged in full and ended in one transaction, before its noise is
drawn. So a crash loses the fit at most, and its charge stays.

The ledger is opened for each look and each payment, and closed again. So it may be shared with the party's service and
with other processes, such as those of a search with ``n_jobs`` above 1. No process inherits an open file, and a
notebook that is left open keeps nobody from restoring the ledger.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from parley.common.encoding.canonical_json import canonical
from parley.common.errors import ParleyError
from parley.common.privacy.account import Account
from parley.common.privacy.payer import Fit, Payer
from parley.common.service import logs
from parley.party.answers.party import open_store
from parley.party.ledger.books import OWNER, Use
from parley.party.policy import check_cost, only_study, own_policy, rules_of
from parley.party.settings import PartySettings

_FIT = "fit-"
"""The beginning of the name of a fit's run."""


class LedgerBudget(Payer):
    """The budget of an owner's party, from which the owner's own fits pay beside the runs of learners.

    ``config`` is the party's settings file. ``study`` names the study whose people the examples are about: the only
    one if the settings have but one. Without a name the account of all people pays, if nobody has another. Each fit
    must also keep to the policy for one run (``max_epsilon_per_run``). Any process of this machine may fit with a
    copy, or with an estimator that was saved: the ledger counts for all.

    Raises InvalidInputError for unusable settings or an unknown study, and LedgerError where there is no ledger, or
    not the one that the party last wrote. `pay` also raises ForbiddenError where the policy allows no such fit, as that
    of an owner who hides all its data (``whole_party``), and UnavailableError where the ledger cannot be written; a
    fit that is refused costs nothing.
    """

    def __init__(self, config: str | Path, study: str = "") -> None:
        self._config = Path(config).resolve()
        settings = self._settings()
        self._study = study or only_study(settings)
        own_policy(settings, self._study)
        open_store(settings).close()

    @property
    def account(self) -> Account:
        """The account as it is now, or the part of it that is set aside for the study."""
        with open_store(self._settings()) as ledger:
            return ledger.accounts.part(Use(ledger.accounts.people(self._study), self._study, OWNER))

    @property
    def fits(self) -> int:
        """How many fits the ledger has been charged for, of all studies."""
        with open_store(self._settings()) as ledger:
            return sum(learner == OWNER and run.startswith(_FIT) for learner, run in ledger.books.runs)

    def pay(self, fit: Fit) -> None:
        """Charge a fit; raises what the class says, and BudgetExhaustedError, which says what is left."""
        settings = self._settings()
        check_cost(fit.price, rules_of(own_policy(settings, self._study)))
        spec = canonical({"algorithm": fit.algorithm, **fit.terms})
        with open_store(settings) as ledger:
            ledger.consents.charge_fit(f"{_FIT}{uuid.uuid4().hex}", fit.algorithm, spec, fit.price, self._study)

    def __repr__(self) -> str:
        try:
            return super().__repr__()
        except ParleyError:  # an estimator that was saved may be shown where there is no ledger
            return f"{type(self).__name__}({str(self._config)!r}, which cannot be opened)"

    def _settings(self) -> PartySettings:
        """Read the settings as they are now."""
        logs.quiet_by_default()
        return PartySettings.load(self._config)
