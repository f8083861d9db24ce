"""What waits for the owner's word, and what may still be taken back, as people are shown it."""

from __future__ import annotations

from typing import Any

import numpy as np

from common.errors import BudgetExhaustedError, InvalidInputError
from common.forecast.forecast import NoForecast, forecast
from common.privacy.account import DELTA_UNITS, MICRO
from common.runs.specification import RunSpec
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
        question["you_gain"] = gain_in_words(proposal.spec, store.identity.name)
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


def gain_in_words(spec: RunSpec, own: str) -> str:
    """What theory expects of a run for one of its parties, by the sizes and budgets of all: no data are looked at."""
    try:
        with np.errstate(all="ignore"):
            told = forecast(spec.build(), spec.facts())
    except InvalidInputError as error:
        return f"no forecast: {error.detail}"
    if isinstance(told, NoForecast):
        return f"no forecast: {told.reason}"
    alone, common = told.owners[spec.index(own)].alone, told.excess
    worth = "expected to be worth it" if told.owners[spec.index(own)].worth_joining else "not expected to be worth it"
    return (
        f"joining is {worth} for you: of the common model excess fitness {common.estimate:.3g} is expected (from "
        f"{common.low:.3g} to {common.high:.3g}; less is better), of one of your rows alone {alone.low:.3g} to "
        f"{alone.high:.3g}"
    )
