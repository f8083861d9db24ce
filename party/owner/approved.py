"""What the owner has said yes to and may still take back, as people are shown it."""

from __future__ import annotations

from typing import Any

from common.privacy.account import DELTA_UNITS, MICRO
from party.ledger.books import OWNER
from party.ledger.ledger import Ledger


def approved(store: Ledger) -> list[dict[str, Any]]:
    """Learners' runs that were approved and have not ended, the newest first."""
    store.account()  # looks at what others have written
    found = [
        {
            "learner": learner,
            "run": run,
            "user": book.approved.user,
            "purpose": book.approved.purpose,
            "study": book.approved.study,
            "algorithm": book.approved.algorithm,
            "answered": book.last,
            "rounds": book.approved.rounds,
            "epsilon": book.approved.reserved.epsilon / MICRO,
            "delta": book.approved.reserved.delta / DELTA_UNITS,
        }
        for (learner, run), book in store.books.unended()
        if learner != OWNER
    ]
    return found[::-1]
