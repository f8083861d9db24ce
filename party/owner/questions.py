"""What an owner is asked about a run that waits for its word, public facts and the learner's words; how it hears."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import structlog

from parley.common.encoding.texts import so_many
from parley.common.errors import BudgetExhaustedError, InvalidInputError
from parley.common.forecast.forecast import NoForecast, forecast
from parley.common.privacy.account import DELTA_UNITS, MICRO, Account, Price
from parley.common.privacy.guarantee import NEXT_TO_NOTHING, Guarantee, Unit, as_clause, as_sentence, in_common
from parley.common.protocol.cautions import cautions
from parley.common.runs.pricing import guarantees
from parley.common.runs.specification import RunSpec
from parley.common.wire.party_api import RunProposal
from parley.party.settings import PartySettings

if TYPE_CHECKING:
    from parley.party.ledger.books import OwnerBook
    from parley.party.ledger.ledger import Ledger

_NOT_YET: dict[str, Any] = {"guarantee": None, "you_gain": None}
_MOST_NAMED = 10
_SECONDS = 10.0  # for which a command may run, and a web hook be silent
_WHOSE: Mapping[Unit, str] = {
    "replace_one": "one record of yours from another",
    "whole_party": "your data from any other",
    "auxiliary_row": "one of the public rows, which are not yours, from another",
}
"""What a guarantee hides, as its owner is told."""


def question_of(
    learner: str, proposal: RunProposal, price: Price, expires: float, known: Collection[str] = ()
) -> dict[str, Any]:
    """Who asks for what, at which price and with whom; `terms_in_words` has what is promised and may be gained.

    ``known`` are the parties whose keys the owner has compared, its own among them.
    """
    spec = proposal.spec
    return {
        "learner": learner,
        "run": proposal.run,
        "user": proposal.user,
        "purpose": proposal.purpose,
        "study": spec.study.name,
        "about": " ".join(filter(None, (spec.study.title, spec.study.purpose))) or "the study does not say",
        "algorithm": spec.algorithm,
        "epsilon": price.total.epsilon / MICRO,
        "delta": price.total.delta / DELTA_UNITS,
        "rounds": len(price.epsilon),
        "contributors": list(spec.names[:1000]),
        "minimum_contributors": spec.minimum_contributors,
        "learner_sees": _seen_by_learner(spec, known),
        "co_owners_see": "the questions of each round, and so what can be told from them; never your answers",
        "until": datetime.fromtimestamp(expires, UTC).isoformat(timespec="minutes"),
    }


def _seen_by_learner(spec: RunSpec, known: Collection[str]) -> str:
    """What a learner is shown of answers, and who may be the learner itself."""
    if spec.secure_sum == "none":
        return "your noisy answers, one by one"
    strangers = [name for name in spec.names if name not in known]
    if not strangers:
        return "sums of all contributors' noisy answers"
    more = f" and {len(strangers) - _MOST_NAMED} more" if len(strangers) > _MOST_NAMED else ""
    return (
        f"sums of all contributors' noisy answers; the keys of {', '.join(strangers[:_MOST_NAMED])}{more} were not "
        f"compared (parley-party pin): the price counts {so_many(len(strangers), 'contributor')} as the learner's own"
    )


def terms_in_words(own: str, spec: RunSpec) -> dict[str, Any]:
    """What is promised of a run, and what the party ``own`` may gain by it; may take seconds."""
    return {
        "guarantee": promises_in_words(guarantees(spec.build(), spec.facts())),
        "cautions": [*cautions(spec.build(), spec.facts())],
        "you_gain": gain_in_words(spec, own),
    }


def promises_in_words(promises: Sequence[Guarantee]) -> list[str]:
    """Guarantees as sentences: what all of them assume comes once, after them."""
    bounded = [each for each in promises if math.isfinite(each.epsilon)]
    shared = in_common([each.assumptions for each in bounded])
    words = [
        promise_in_words(replace(each, assumptions=tuple(one for one in each.assumptions if one not in shared)))
        for each in promises
    ]
    which = "All of that holds" if len(bounded) > 1 else "That holds"
    return [*words, *([f"{which} only if each of these is true:"] if shared else []), *map(as_sentence, shared)]


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
    assumed = "".join(f" It holds if {as_clause(each)}." for each in promise.assumptions)
    colluding = f", even together with {promise.trust} of the others" if promise.trust else ""
    little = " That promises next to nothing." if promise.epsilon > NEXT_TO_NOTHING else ""
    promised = f"({promise.epsilon:.3g}, {promise.delta:.1g})"
    return f"Of {seen} nobody{colluding} can tell {whose}, but with {promised}.{little}{assumed}"


def budget_after(account: Account, price: Price) -> dict[str, Any]:
    """What a yes would leave: ``epsilon_left_after_it`` is what one more run may cost then.

    It is None where the budget does not bear the run, and ``cannot_be_approved`` says what is left.
    """
    try:
        return {"epsilon_left_after_it": account.reserve(price.total).epsilon_left}
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


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A question as it is shown, but for its terms, and the run and the price that it is about."""

    shown: dict[str, Any]
    spec: RunSpec
    digest: str
    price: Price


class WaitingRuns:
    """Each question that the owner has not answered, oldest first, and what a yes would leave of the budget.

    A question stays what it is as long as it waits, so it is read once, by the number of the ledger's entry that asks,
    and the terms of runs of one specification are worked out once. For any thread; of several at a time, one is
    answered after the other.
    """

    def __init__(self, store: Ledger, known: Collection[str] | None = None) -> None:
        """``known`` are the parties whose keys the owner has compared, its own among them."""
        self._store, self._compared = store, known or {store.identity.name}
        self._waiting: dict[int, _Waiting] = {}
        self._terms: dict[str, dict[str, Any]] = {}
        self._lock = Lock()

    def questions(self, seconds: float = math.inf) -> list[dict[str, Any]]:
        """As `question_of`, `terms_in_words` and `budget_after` have them.

        Terms of as many as so many ``seconds`` allow are worked out, of one at least; those of others are None until
        it is asked again.
        """
        with self._lock:
            account, end = self._store.account(), monotonic() + seconds
            self._waiting = {
                book.number: self._waiting.get(book.number) or self._read(learner, book)
                for learner, book in self._store.questions.pending()
            }
            specs = {each.digest: each.spec for each in self._waiting.values()}
            self._terms = {digest: self._terms[digest] for digest in specs if digest in self._terms}
            for digest in [digest for digest in specs if digest not in self._terms]:
                self._terms[digest] = terms_in_words(self._store.identity.name, specs[digest])
                if monotonic() >= end:
                    break
            return [
                each.shown | self._terms.get(each.digest, _NOT_YET) | budget_after(account, each.price)
                for each in self._waiting.values()
            ]

    def _read(self, learner: str, book: OwnerBook) -> _Waiting:
        """A question, from the ledger."""
        proposal, price = self._store.questions.read(book)
        shown = question_of(learner, proposal, price, book.expires, self._compared)
        return _Waiting(shown, proposal.spec, book.asked.spec, price)


class Notifier:
    """Tells the owner, in a thread of its own, which ends with the party; what fails is logged, and stops nothing."""

    def __init__(self, settings: PartySettings) -> None:
        self._own, self._means = settings.name, settings.notify
        self._compared = settings.known_parties or {settings.name}

    def __call__(self, learner: str, proposal: RunProposal, price: Price, expires: float, account: Account) -> None:
        """Begin to tell what a learner asks; ``account`` is what it would be paid from."""
        if self._means.command or self._means.url:
            asked = learner, proposal, price, expires, account
            Thread(target=self._tell, args=asked, name="notify", daemon=True).start()

    def _tell(self, learner: str, proposal: RunProposal, price: Price, expires: float, account: Account) -> None:
        """By each means that there is: that one fails says nothing of the other."""
        question = question_of(learner, proposal, price, expires, self._compared)
        question |= terms_in_words(self._own, proposal.spec) | budget_after(account, price)
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
