"""What an owner is asked about a run that waits for its word, public facts and the learner's words; how it hears."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from threading import Thread
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import structlog

from common.errors import BudgetExhaustedError, InvalidInputError
from common.forecast.forecast import NoForecast, forecast
from common.privacy.account import DELTA_UNITS, MICRO, Account, Price
from common.privacy.guarantee import NEXT_TO_NOTHING, Guarantee, Unit
from common.runs.pricing import guarantees
from common.runs.specification import RunSpec
from common.wire.party_api import RunProposal
from party.settings import PartySettings

if TYPE_CHECKING:
    from party.ledger.books import OwnerBook
    from party.ledger.ledger import Ledger

_SECONDS = 10.0  # for which a command may run, and a web hook be silent
_WHOSE: Mapping[Unit, str] = {
    "replace_one": "one record of yours from another",
    "whole_party": "your data from any other",
    "auxiliary_row": "one of the public rows, which are not yours, from another",
}
"""What a guarantee hides, as its owner is told."""


def question_of(own: str, learner: str, proposal: RunProposal, price: Price, expires: float) -> dict[str, Any]:
    """Who asks the party ``own`` for what, at which price, with whom, what is promised, and what it may gain."""
    spec = proposal.spec
    secure = spec.secure_sum != "none"
    return {
        "learner": learner,
        "run": proposal.run,
        "user": proposal.user,
        "purpose": proposal.purpose,
        "study": spec.study.name,
        "about": " ".join(filter(None, (spec.study.title, spec.study.purpose))) or "the study does not say",
        "algorithm": spec.algorithm,
        "epsilon": price.whole.epsilon / MICRO,
        "delta": price.whole.delta / DELTA_UNITS,
        "rounds": len(price.epsilon),
        "contributors": list(spec.names[:1000]),
        "minimum_contributors": spec.minimum_contributors,
        "learner_sees": "sums of all contributors' noisy answers" if secure else "your noisy answers, one by one",
        "co_owners_see": "the questions of each round, and so what can be told from them; never your answers",
        "guarantee": [promise_in_words(each) for each in guarantees(spec.build(), spec.facts())],
        "you_gain": gain_in_words(spec, own),
        "until": datetime.fromtimestamp(expires, UTC).isoformat(timespec="minutes"),
    }


def promise_in_words(promise: Guarantee) -> str:
    """A guarantee as a sentence.

    >>> promise_in_words(Guarantee(1.0, 1e-5, "transcript", "tight"))
    'Of all that the learner sees nobody can tell one record of yours from another, but with (1, 1e-05).'
    >>> promise_in_words(Guarantee(40.0, 1e-5, "transcript", "tight"))[-52:]
    'but with (40, 1e-05). That promises next to nothing.'
    >>> promise_in_words(Guarantee(1.0, 0.0, "model", "paper", "auxiliary_row")).partition(" can tell ")[2]
    'one of the public rows, which are not yours, from another, but with (1, 0).'
    """
    whose = _WHOSE[promise.adjacency]
    seen = (
        "all that the learner sees" if promise.view == "transcript" else "the final model, if the learner is trusted,"
    )
    if not math.isfinite(promise.epsilon):
        return f"Of {seen} nothing is promised."
    assumed = "".join(f" It holds if {each}." for each in promise.assumptions)
    colluding = f", even together with {promise.trust} of the others" if promise.trust else ""
    little = " That promises next to nothing." if promise.epsilon > NEXT_TO_NOTHING else ""
    promised = f"({promise.epsilon:.3g}, {promise.delta:.1g})"
    return f"Of {seen} nobody{colluding} can tell {whose}, but with {promised}.{little}{assumed}"


def budget_after(account: Account, price: Price) -> dict[str, Any]:
    """What a yes would leave: ``epsilon_left_after_it`` is what one more run may cost then.

    It is None where the budget does not bear the run, and ``cannot_be_approved`` says what is left.
    """
    try:
        return {"epsilon_left_after_it": account.reserve(price.whole).epsilon_left}
    except BudgetExhaustedError as error:
        return {"epsilon_left_after_it": None, "cannot_be_approved": error.detail}


def gain_in_words(spec: RunSpec, own: str) -> str:
    """What theory expects of a run for one of its parties, by the sizes and budgets of all: no data are looked at."""
    try:
        with np.errstate(all="ignore"):
            told = forecast(spec.build(), spec.facts())
    except InvalidInputError as error:
        return f"no forecast: {error.detail}"
    except (ArithmeticError, ValueError):
        return "no forecast: the run's parameters and budgets cannot be computed with"
    if isinstance(told, NoForecast):
        return f"no forecast: {told.reason}"
    alone, common = told.owners[spec.index(own)].alone, told.excess
    worth = "expected to be worth it" if told.owners[spec.index(own)].worth_joining else "not expected to be worth it"
    return (
        f"joining is {worth} for you: the common model's excess fitness, which is the less the better, is expected to "
        f"be {common.estimate:.3g} (from {common.low:.3g} to {common.high:.3g}), that of a model of your rows alone "
        f"{alone.low:.3g} to {alone.high:.3g}"
    )


class WaitingRuns:
    """Each question that the owner has not answered, oldest first, and what a yes would leave of the budget.

    A question stays what it is as long as it waits, so it is put into words once: guarantees and forecasts may take
    seconds. They are kept by the number of the ledger's entry that asks.
    """

    def __init__(self, store: Ledger) -> None:
        self._store = store
        self._known: dict[int, tuple[dict[str, Any], Price]] = {}

    def questions(self) -> list[dict[str, Any]]:
        """As `question_of` and `budget_after` have them; may take seconds for what is new."""
        account, known = self._store.account(), self._known
        self._known = {
            book.number: known.get(book.number) or self._in_words(learner, book)
            for learner, book in self._store.questions.pending()
        }
        return [question | budget_after(account, price) for question, price in self._known.values()]

    def _in_words(self, learner: str, book: OwnerBook) -> tuple[dict[str, Any], Price]:
        proposal, price = self._store.questions.read(book)
        return question_of(self._store.identity.name, learner, proposal, price, book.expires), price


class Notifier:
    """Tells the owner, in a thread of its own, which ends with the party; what fails is logged, and stops nothing."""

    def __init__(self, settings: PartySettings) -> None:
        self._own, self._means = settings.name, settings.notify

    def __call__(self, learner: str, proposal: RunProposal, price: Price, expires: float, account: Account) -> None:
        """Begin to tell what a learner asks; ``account`` is what it would be paid from."""
        if self._means.command or self._means.url:
            asked = learner, proposal, price, expires, account
            Thread(target=self._tell, args=asked, name="notify", daemon=True).start()

    def _tell(self, learner: str, proposal: RunProposal, price: Price, expires: float, account: Account) -> None:
        """By each means that there is: that one fails says nothing of the other."""
        question = question_of(self._own, learner, proposal, price, expires) | budget_after(account, price)
        text = json.dumps(question).encode()
        for name, tell in (("command", self._run), ("url", self._post)):
            try:
                tell(text)
            except (OSError, subprocess.SubprocessError, httpx.HTTPError) as error:
                structlog.get_logger().warning("notify", means=name, failed=type(error).__name__)

    def _run(self, text: bytes) -> None:
        if not self._means.command:
            return
        told = subprocess.Popen(self._means.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0)  # noqa: S603 -- the owner's
        with told:
            try:
                told.communicate(text, timeout=_SECONDS)
            except BaseException:
                os.killpg(told.pid, signal.SIGKILL)  # what it has started too
                raise
        if told.returncode:
            raise subprocess.CalledProcessError(told.returncode, self._means.command[0])

    def _post(self, text: bytes) -> None:
        if self._means.url:
            headers = {"Content-Type": "application/json"}
            with (
                httpx.Client(trust_env=False, timeout=_SECONDS) as client,
                client.stream("POST", str(self._means.url), content=text, headers=headers) as answer,
            ):
                answer.raise_for_status()
