"""What an owner is asked about a run that waits for its decision, and how the question reaches it.

A question has public facts and the learner's words only; writing one looks at no data.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import structlog

from parley.common.encoding.texts import so_many
from parley.common.errors import BudgetExhaustedError, ConflictError, InvalidInputError
from parley.common.forecast.forecast import NoForecast, forecast
from parley.common.privacy.account import DELTA_UNITS, MICRO, Price
from parley.common.privacy.guarantee import (
    EXAMPLE_NAMES,
    NEXT_TO_NOTHING,
    UNIT_NAMES,
    Guarantee,
    Unit,
    as_clause,
    as_sentence,
    hidden_at,
    in_common,
    no_less,
    odds_factor,
)
from parley.common.protocol.cautions import cautions
from parley.common.runs.pricing import guarantees
from parley.common.runs.specification import RunSpec
from parley.common.wire.party_api import RunProposal
from parley.party.ledger.accounts import Accounts, promise_about
from parley.party.settings import Notify, PartySettings

if TYPE_CHECKING:
    from parley.party.ledger.books import OwnerBook
    from parley.party.ledger.ledger import Ledger

_NOT_YET: dict[str, Any] = {"guarantee": None, "you_gain": None}
_MOST_NAMED = 10
_SECONDS = 10.0  # how long a command may run, and a web hook may be silent
_WHOSE: Mapping[Unit, str] = {
    "replace_one": "one record of yours from another",
    "person": "all rows of one person with you from any others",
    "whole_party": "your data from any other",
    "auxiliary_row": "one of the public rows, which are not yours, from another",
}
"""What a guarantee hides, in the words that the owner reads."""


def question_of(
    learner: str, proposal: RunProposal, price: Price, expires: float, compared: Collection[str] = ()
) -> dict[str, Any]:
    """Return who asks for what, at which price and with whom; `terms_in_words` adds what is promised and gained.

    ``compared`` are the parties whose keys count as compared in the learner's sums, its own among them.
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
        **({"hides": whose} if (whose := _hidden_in_words(spec)) else {}),
        **({"class_weights": told} if (told := _weights_in_words(spec)) else {}),
        "contributors": list(spec.names[:1000]),
        "minimum_contributors": spec.minimum_contributors,
        "learner_sees": _seen_by_learner(spec, compared),
        "co_owners_see": "the questions of each round, and so what can be told from them; never your answers",
        "until": datetime.fromtimestamp(expires, UTC).isoformat(timespec="minutes"),
    }


def _hidden_in_words(spec: RunSpec) -> str:
    """Say whose rows are hidden together, and with how many owners one may be; "" if each record is, with one owner."""
    person, words = spec.study.person, []
    if person is not None:
        words.append(
            f"all rows of a person at once: rows with the same {person.column} are one person's, if that column says "
            "whose they are"
        )
    if spec.overlap > 1:
        words.append(
            f"the same {UNIT_NAMES[spec.study.unit]} may be with up to {spec.overlap} owners, and is hidden at all of "
            "these"
        )
    return "; ".join(words)


def _weights_in_words(spec: RunSpec) -> str:
    """Say how much rows of each class count in training; "" if all count alike."""
    weights = [f"{name} {weight:.3g}" for name, weight in (spec.named_class_weights or {}).items()]
    return ", ".join(weights[:_MOST_NAMED]) + (" ..." if len(weights) > _MOST_NAMED else "")


def _seen_by_learner(spec: RunSpec, compared: Collection[str]) -> str:
    """Say what the learner sees of the answers, and which contributors may be the learner itself."""
    if spec.secure_sum == "none":
        return "your noisy answers, one by one"
    strangers = [name for name in spec.names if name not in compared]
    if not strangers:
        return "sums of all contributors' noisy answers"
    more = f" and {len(strangers) - _MOST_NAMED} more" if len(strangers) > _MOST_NAMED else ""
    return (
        f"sums of all contributors' noisy answers; the keys of {', '.join(strangers[:_MOST_NAMED])}{more} were not "
        f"compared (parley-party pin): the price counts {so_many(len(strangers), 'contributor')} as the learner's own"
    )


def terms_in_words(party: str, spec: RunSpec) -> dict[str, Any]:
    """Return a run's guarantees, its cautions, and what ``party`` may gain by it; may take seconds."""
    return {
        "guarantee": promises_in_words(guarantees(spec.build(), spec.facts())),
        "cautions": [*cautions(spec.build(), spec.facts())],
        "you_gain": gain_in_words(spec, party),
    }


def promises_in_words(promises: Sequence[Guarantee]) -> list[str]:
    """Return guarantees as sentences; assumptions that all of them share come once, at the end."""
    bounded = [promise for promise in promises if math.isfinite(promise.epsilon)]
    shared = in_common([promise.assumptions for promise in bounded])
    words = [
        promise_in_words(replace(promise, assumptions=tuple(one for one in promise.assumptions if one not in shared)))
        for promise in promises
    ]
    which = "All of that holds" if len(bounded) > 1 else "That holds"
    return [*words, *([f"{which} only if each of these is true:"] if shared else []), *map(as_sentence, shared)]


def promise_in_words(promise: Guarantee) -> str:
    """Return a guarantee as a sentence.

    >>> promise_in_words(Guarantee(1.0, 1e-5, "transcript", "tight")).partition(" from another ")[::2]
    ('All that the learner sees changes the odds of telling one record of yours', \
'by at most a factor of 2.72 (e to the 1), except with probability 1e-05.')
    >>> promise_in_words(Guarantee(40.0, 1e-5, "transcript", "tight")).partition(" from another ")[2]
    'by at most a factor of e to the 40, except with probability 1e-05. That promises next to nothing.'
    >>> promise_in_words(Guarantee(1.0, 0.0, "model", "paper", "auxiliary_row")).partition(" of telling ")[2]
    'one of the public rows, which are not yours, from another by at most a factor of 2.72 (e to the 1).'
    """
    whose = _whose(promise)
    seen = "all that the learner sees" if promise.view == "transcript" else "the final model, if the learner is trusted"
    if not math.isfinite(promise.epsilon):
        return f"Nothing is promised about {seen}."
    assumed = "".join(f" It holds if {as_clause(assumption)}." for assumption in promise.assumptions)
    colluding = f", even together with {promise.trust} of the others" if promise.trust else ""
    subject = f"{seen[0].upper()}{seen[1:]}{colluding}"
    subject += "," if "," in subject else ""
    exception = f", except with probability {no_less(promise.delta, 2)}" if promise.delta else ""
    little = " That promises next to nothing." if promise.epsilon > NEXT_TO_NOTHING else ""
    changes = f"{subject} changes the odds of telling {whose} by at most {odds_factor(promise.epsilon)}"
    return f"{changes}{exception}.{little}{assumed}"


def _whose(promise: Guarantee) -> str:
    """Return what a guarantee hides of those who are with this owner, and with as many others as it counts on."""
    if promise.owners == 1 or promise.adjacency not in EXAMPLE_NAMES:
        return _WHOSE[promise.adjacency]
    return f"{hidden_at(promise.adjacency, promise.owners).removesuffix(', replaced')}, from any others"


def account_in_words(accounts: Accounts, learner: str, spec: RunSpec, price: Price) -> dict[str, Any]:
    """Return which account pays for a learner's run, and what a yes would leave.

    ``paid_by`` is there if the owner has several accounts, or has set parts of one aside. ``epsilon_left_after_it`` is
    what one more run of the learner about the same rows may cost then. It is None if the account, or the study's part
    of it, does not suffice for the run; then ``cannot_be_approved`` says what is left.
    """
    payer = accounts.payer(spec.study.name)
    paid_by = {"paid_by": payer} if payer else {}
    use = accounts.use(learner, spec.study.name, spec.charged_rows)
    try:
        accounts.require(use, price.total)
    except BudgetExhaustedError as error:
        return paid_by | {"epsilon_left_after_it": None, "cannot_be_approved": error.detail}
    return paid_by | {"epsilon_left_after_it": accounts.epsilon_left(use, price.total)}


def with_promise_about(people: str, terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's terms with what its owner has said of ``people`` who have an account of their own, if any."""
    if not people or terms["guarantee"] is None:
        return {**terms}
    rests = f"The limit of all runs together holds for a person only if {promise_about(people)}."
    return {**terms, "guarantee": [*terms["guarantee"], rests]}


def gain_in_words(spec: RunSpec, party: str) -> str:
    """Say what theory expects of a run for one of its parties, by the sizes and budgets of all; no data are read."""
    try:
        with np.errstate(all="ignore"):
            expected = forecast(spec.build(), spec.facts())
    except InvalidInputError as error:
        return f"no forecast: {error.detail}"
    except (ArithmeticError, ValueError):
        return "no forecast: the run's parameters and budgets cannot be computed with"
    if isinstance(expected, NoForecast):
        return f"no forecast: {expected.reason}"
    owner, common = expected.owners[spec.index(party)], expected.excess
    worth = "expected to be worth it" if owner.worth_joining else "not expected to be worth it"
    return (
        f"joining is {worth} for you: the common model's excess fitness, which is the less the better, is expected to "
        f"be {common.estimate:.3g} (from {common.low:.3g} to {common.high:.3g}), that of a model of your rows alone "
        f"{owner.alone.low:.3g} to {owner.alone.high:.3g}"
    )


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A question without its terms, the run and the price that it is about, and whose keys were ``compared`` for it."""

    question: dict[str, Any]
    spec: RunSpec
    digest: str
    price: Price
    compared: Collection[str]


class WaitingRuns:
    """Each question that the owner has not answered, oldest first, and what a yes would leave of the budget.

    A question does not change while it waits, unless the owner compares keys, so it is read once and kept under the
    number of its ledger entry. The terms of runs with one specification are worked out once. Any thread may ask; of
    several, one waits for the other.
    """

    def __init__(self, store: Ledger, compared: Callable[[str], Collection[str] | None] = lambda _: None) -> None:
        """Take a ledger; ``compared`` returns the parties whose keys count as compared in a learner's sums.

        The party itself is among them. None is for a learner whose sums it does not join.
        """
        self._store, self._compared = store, compared
        self._waiting: dict[int, _Waiting] = {}
        self._terms: dict[str, dict[str, Any]] = {}
        self._lock = Lock()

    def questions(self, seconds: float = math.inf) -> list[dict[str, Any]]:
        """Return the questions, with all that `question_of`, `terms_in_words` and `account_in_words` say.

        New terms are worked out for at most ``seconds``, and for one specification at least; those that are still
        missing are None until a later call. Runs that an older version described in another form are left out: they
        cannot be approved.
        """
        with self._lock:
            end = monotonic() + seconds
            self._store.account()  # ends runs that have expired, which frees what was reserved for them
            self._read_pending()
            specs = {waiting.digest: waiting.spec for waiting in self._waiting.values()}
            self._terms = {digest: self._terms[digest] for digest in specs if digest in self._terms}
            for digest in [digest for digest in specs if digest not in self._terms]:
                self._terms[digest] = terms_in_words(self._store.identity.name, specs[digest])
                if monotonic() >= end:
                    break
            return [self._in_words(waiting) for waiting in self._waiting.values()]

    def _in_words(self, waiting: _Waiting) -> dict[str, Any]:
        """Return a question with its terms, as far as they are worked out, and the account that would pay."""
        accounts, study = self._store.accounts, waiting.spec.study.name
        terms = with_promise_about(accounts.people(study), self._terms.get(waiting.digest, _NOT_YET))
        account = account_in_words(accounts, waiting.question["learner"], waiting.spec, waiting.price)
        return waiting.question | terms | account

    def _read_pending(self) -> None:
        """Read the questions that wait and were not read before, or for whose learner other keys are compared now."""
        pending, before = [*self._store.questions.pending()], self._waiting
        own = {self._store.identity.name}
        compared = {learner: self._compared(learner) or own for learner in {learner for learner, _ in pending}}
        self._waiting = {}
        for learner, book in pending:
            waiting = before.get(book.number)
            with suppress(ConflictError):
                if waiting is None or waiting.compared != compared[learner]:
                    waiting = self._read(learner, book, compared[learner])
                self._waiting[book.number] = waiting

    def _read(self, learner: str, book: OwnerBook, compared: Collection[str]) -> _Waiting:
        """Read a question from the ledger."""
        proposal, price = self._store.questions.read(book)
        question = question_of(learner, proposal, price, book.expires, compared)
        return _Waiting(question, proposal.spec, book.question.spec, price, compared)


class Notifier:
    """Notifies the owner of questions, in a thread that ends with the party; a failure is logged and stops nothing."""

    def __init__(self, settings: Callable[[], PartySettings]) -> None:
        """Take a function that returns the party's present settings."""
        self._settings = settings

    def __call__(self, learner: str, proposal: RunProposal, price: Price, expires: float, accounts: Accounts) -> None:
        """Begin to notify the owner of a learner's question, and of the one of its ``accounts`` that would pay."""
        settings = self._settings()
        if settings.notify.command or settings.notify.url:
            question = question_of(
                learner, proposal, price, expires, settings.known_parties_for(learner) or {settings.name}
            )
            question |= account_in_words(accounts, learner, proposal.spec, price)
            arguments = settings, question, proposal.spec, accounts.people(proposal.spec.study.name)
            Thread(target=_notify, args=arguments, name="notify", daemon=True).start()


def _notify(settings: PartySettings, question: dict[str, Any], spec: RunSpec, people: str) -> None:
    """Send the question with its terms by each configured means; if one fails, the other is still tried."""
    terms = with_promise_about(people, terms_in_words(settings.name, spec))
    text = json.dumps(question | terms).encode()
    for name, tell in (("command", _run), ("url", _post)):
        try:
            tell(settings.notify, text)
        except (OSError, subprocess.SubprocessError, httpx.HTTPError) as error:
            structlog.get_logger().warning("notify", means=name, failed=type(error).__name__)


def _run(means: Notify, text: bytes) -> None:
    """Run the owner's command, if there is one, with a question on its standard input."""
    if not means.command:
        return
    process = subprocess.Popen(  # noqa: S603 -- the owner's command
        means.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0
    )
    with process:
        try:
            process.communicate(text, timeout=_SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # also the processes that it has started
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, means.command[0])


def _post(means: Notify, text: bytes) -> None:
    """Send a question to the owner's URL, if there is one."""
    if means.url:
        headers = {"Content-Type": "application/json"}
        with (
            httpx.Client(trust_env=False, timeout=_SECONDS) as client,
            client.stream("POST", str(means.url), content=text, headers=headers) as answer,
        ):
            answer.raise_for_status()
