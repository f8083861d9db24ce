"""What waits for the owner's word, and what may still be taken back, as people are shown it."""

from __future__ import annotations

from typing import Any

from common.errors import BudgetExhaustedError
from common.privacy.account import DELTA_UNITS, MICRO
from party.ledger.books import OWNER
from party.ledger.ledger import Ledger
from party.policy.questions import question_of


def waiting(store: Ledger) -> list[dict[str, Any]]:
    """Each question that the owner has not answered, oldest first, and what a yes would leave of the budget.

    ``epsilon_left_after_it`` is what one more run may cost then; None where the budget does not bear the run, and
    ``cannot_be_approved`` says what is left.
    """
    account, questions = store.account(), []
    for learner, proposal, price, book in store.pending():
        question = question_of(learner, proposal, price, book.expires)
        try:
            question["epsilon_left_after_it"] = account.reserve(price.whole).epsilon_left
        except BudgetExhaustedError as error:
            question["epsilon_left_after_it"] = None
            question["cannot_be_approved"] = error.detail
        questions.append(question)
    return questions


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
        for (learner, run), book in list(store.books.unended())
        if learner != OWNER
    ]
    return found[::-1]
