"""What the owner has said yes to and may still take back, as people are shown it."""

from __future__ import annotations

from typing import Any

from parley.common.privacy.account import DELTA_UNITS, MICRO
from parley.party.ledger.books import OWNER
from parley.party.ledger.ledger import Ledger
from parley.party.ledger.records import Approved


def approved(store: Ledger) -> list[dict[str, Any]]:
    """Learners' runs that were approved and have not ended, the newest first."""
    store.account()  # looks at what others have written
    books = [book for (learner, _), book in store.books.unended() if learner != OWNER]
    return [_shown(store.approved(book), book.last) for book in reversed(books)]


def _shown(run: Approved, answered: int) -> dict[str, Any]:
    """One of them, of which so many rounds were answered."""
    return {
        "learner": run.learner,
        "run": run.run,
        "user": run.user,
        "purpose": run.purpose,
        "study": run.study,
        "algorithm": run.algorithm,
        "answered": answered,
        "rounds": run.rounds,
        "epsilon": run.reserved.epsilon / MICRO,
        "delta": run.reserved.delta / DELTA_UNITS,
    }
