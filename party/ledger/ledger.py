"""The ledger on disk: what was approved, what was answered, what it cost, and the one-time noise, in one chain.

An answer is released only when it is committed: charge, answer, one-time noise and the chain's new link are one
transaction, which is read back before anything is sent. So a crash at any moment leaves either nothing, and the round
may be asked again, or everything, and the same question gets the same bytes at no cost.

A run's whole price is reserved when it is approved: two runs that do not fit together never exhaust each other.

`LedgerChain` is the one chain, with the books that follow from its records. Three classes write into it: `Consents`
the runs that may be answered, `AnsweredRounds` the answers, `OwnerQuestions` the questions to the owner and its
decisions. `Ledger` opens the chain, and writes the owner's limit and the data that all answers are about.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ValidationError

from parley.common.data.study import ChargedRows, Study
from parley.common.encoding.npy import pack_array
from parley.common.errors import (
    ConflictError,
    DataChangedError,
    ForbiddenError,
    InvalidInputError,
    LedgerError,
    NotFoundError,
    ParleyError,
)
from parley.common.privacy.account import Account, Cost, Price
from parley.common.privacy.guarantee import UNIT_NAMES, Adjacency, hides
from parley.common.protocol.receipts import Answer, Binding, Head, Receipt
from parley.common.runs.pricing import lengths
from parley.common.runs.specification import RunSpec
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.messages import Roster
from parley.common.secure_sum.session import Identity
from parley.common.storage.chain import (
    Appending,
    SignedChain,
    begin_chain,
    chain_schema,
    check_begun,
    has_begun,
    next_link,
)
from parley.common.wire.party_api import RunProposal
from parley.party.ledger.accounts import Accounts, Statement, StudyTerms, whose
from parley.party.ledger.books import (
    ALL,
    NO_END,
    NOTHING,
    ONCE,
    OWNER,
    Books,
    OwnerBook,
    RunBook,
    RunKey,
    is_accounted,
    is_used,
    learner_day,
)
from parley.party.ledger.records import (
    Answered,
    Approved,
    Begun,
    DataPin,
    Ended,
    EndReason,
    Entry,
    Joined,
    LedgerRecord,
    Limited,
    Merged,
    OwnerAsked,
    OwnerDenied,
    Pinned,
    Refused,
    Released,
    from_json,
    packed_price,
    read_price,
    to_json,
)
from parley.party.ledger.sealing import Seal, own_ledger, totals_of, visible_claim

_Described = TypeVar("_Described", bound=BaseModel)
OneTimeNoise = Mapping[str, npt.NDArray[Any]]
Compute = Callable[[OneTimeNoise], tuple[bytes, OneTimeNoise]]
"""One answer: from the one-time noise kept so far to the body, and all one-time noise there is now."""

_READ_NO_MORE = (
    "Read what it has spent with the Parley that wrote it (parley-party budget), put its files into another folder, "
    "take that off policy.epsilon and policy.delta, and run parley-party init"
)
LEDGER = chain_schema("ledger", 0x504C4731, _READ_NO_MORE)
MOST_REFUSALS = 1000
"""How many refusals of one learner are noted in a day: a learner must not fill the owner's disk."""
MOST_PENDING = 100
"""How many questions of one learner may wait for the owner at a time."""
BUDGETED: Mapping[Adjacency, str] = {
    "replace_one": "each record",
    "person": "each person, all rows at once",
    "whole_party": "all of the owner's data",
}
"""What a budget is for, in words."""
OWNER_INPUT = "told"
"""The attachment of an answer in a run of the owner's own: the data that the owner gave to it."""
SALT = "salt"
"""The attachment that keys digests of data: anyone who has both can confirm a guess of the data."""
_DAY = 86_400
_FOR_EVER = 10**11
_WAY_OUT = "Run parley-party recover: what the old one charged stays charged"


SaltedPin = tuple[Pinned, bytes]
"""A record that pins data, and the salt that keys its digests."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One round as a learner asks it; ``query`` is the digest of its question, ``step`` the step that answers.

    ``owner_input`` is stored beside the answer: the data that an owner gives to a run of its own.
    """

    learner: str
    run: str
    round: int
    query: str
    step: str = ""
    owner_input: bytes = b""


@dataclass(frozen=True, slots=True)
class Consent:
    """A run that the party approved, and the price it named."""

    spec: RunSpec
    price: Price


class LedgerChain(SignedChain):
    """The chain of a ledger's records, and the books that follow from them.

    Within it, the records about each learner are a chain of their own, which is all that a receipt shows this learner.
    """

    def __init__(self, directory: Path, identity: Identity, *, alone: bool = False) -> None:
        """Read the chain in ``directory``; ``alone`` keeps all other processes out. Raises what `Chain` raises."""
        self.books = Books()
        self._heads: dict[str, tuple[int, bytes]] = {}
        """The count and the last link of each learner's own chain."""
        self._seal = Seal(identity.signing_key)
        self.accounts = Accounts(self.books)
        self.about: dict[str, int] = {}
        """By study, the entry that pins the data which this process has loaded, once it is known."""
        self.price = lru_cache(256)(self._read_price)
        """The price of the run that an entry approved, by the entry's number."""
        super().__init__(directory / "ledger", LEDGER, self._add_record, identity, _WAY_OUT, alone=alone)

    def totals(self) -> dict[str, Any]:
        """Return the totals of all accounts for receipts."""
        return totals_of(dict(self.books.accounts), self.books.hides(), self.books.at)

    def note(self, record: bytes, content: dict[str, Any]) -> None:
        """Add a record to the chain of the learner that it is about.

        The end of a run that has expired is left out: anybody's question may have it written.
        """
        learner = content.get("learner")
        if learner is not None and (content["kind"], content.get("by")) != ("ended", "expired"):
            count, link = self._own(learner)
            self._heads[learner] = count + 1, next_link(link, record)

    def statement(self, to: str) -> dict[str, Any]:
        """Return what a receipt says: to a learner of its own chain, the rest sealed; to the owner ("") of all."""
        whole = super().statement(to)
        if not to:
            return whole
        count, link = self._own(to)
        ledger, head = own_ledger(self.origin, to), Head(count, link.hex())
        sealed = self._seal.close(visible_claim(self._identity.name, to, ledger, head), **whole)
        return {"ledger": ledger, "head": head, "sealed": sealed}

    def whole(self, receipt: Receipt) -> Receipt:
        """Open a receipt that the party's present key signed; raises InvalidReceiptError as `Seal.open` does."""
        return self._seal.open(receipt) if receipt.sealed and receipt.key == self._identity.key else receipt

    def has_replaced(self, receipt: Receipt) -> bool:
        """Say whether another ledger's history up to this receipt was accounted for when this ledger began."""
        assert self.books.begun is not None  # noqa: S101 -- a ledger that opens has begun
        at, recovered = receipt.totals.get("at", 0 if receipt.sealed else None), self.books.begun.recovered
        return isinstance(at, int) and is_accounted(recovered, receipt.ledger, receipt.head.count, at)

    def run(self, learner: str, run: str) -> RunBook:
        """Return a run's book. Raises NotFoundError."""
        if (book := self.books.runs.get((learner, run))) is None:
            raise self.unknown(run)
        return book

    def unknown(self, run: str) -> NotFoundError:
        """Return the error for a run that no record is about; one of a ledger that this one replaces has ended."""
        is_new = self.books.begun is not None and self.books.begun.recovered
        lost = ": its ledger was lost and begun again, which ended all runs. Begin the run again"
        return NotFoundError(f"run {run} is not known here{lost if is_new else ''}")

    def expire(self) -> None:
        """End the runs that were not asked about for as long as the owner reserves budget for them."""
        with self.transaction() as appending:
            for (learner, run), book in self.books.unended():
                if book.expires <= _now():
                    _append(appending, Ended(learner, run, "expired"))

    def end(self, merged: Merged) -> None:
        """End all runs, and the ledger itself, which counts in another from now on; nothing if it has ended."""
        with self.transaction() as appending:
            if self.books.merged is None:
                for key, _ in self.books.unended():
                    _append(appending, Ended(*key, "owner"))
                _append(appending, merged)

    def check_owner(self) -> None:
        """Raise LedgerError unless the ledger is that of this identity."""
        if (begun := self.books.begun) is None:
            raise LedgerError("the ledger is empty: it was not made by parley-party init")
        if (begun.party, begun.key) != (self._identity.name, self._identity.key):
            raise LedgerError(f"the ledger is one of {begun.party} with another key: restore its identity key")

    def end_if_expired(self, learner: str, run: str) -> None:
        """End a run whose reservation has expired, so that a late question does not prolong it."""
        book = self.books.runs.get((learner, run))
        if book is not None and book.ended is None and book.expires <= _now():
            self.expire()

    def check_data(self, study: str) -> None:
        """Raise DataChangedError where the owner has accepted other data than this process has loaded for a study."""
        about, pins = self.about.get(study), self.books.pins.get(study)
        if about is not None and pins and pins[-1][0] != about:
            raise DataChangedError(
                f"the owner has accepted other data since this service loaded its own: it loads those of {study} now"
            )

    def _own(self, learner: str) -> tuple[int, bytes]:
        """Return the count and the last link of a learner's own chain."""
        return self._heads.get(learner) or (0, bytes.fromhex(own_ledger(self.origin, learner)))

    def _add_record(self, number: int, record: dict[str, Any]) -> None:
        self.books.add(from_json(number, record))

    def require(self, learner: str, study: str, cost: Cost, rows: ChargedRows | None = None) -> str:
        """Return the people whose account pays for a new run. Raises BudgetExhaustedError where too little is left.

        The run is about these ``rows`` of the study, or about any. Raises ForbiddenError if another account pays for
        runs of the study already.
        """
        use = self.accounts.use(learner, study, rows)
        if study and self.books.pays_for(study) - {use.people}:
            raise ForbiddenError(
                "the owner's settings name other people for this study than its account has paid for", rule="people"
            )
        self.accounts.require(use, cost)
        return use.people

    def salted_pins(self) -> list[SaltedPin]:
        """Return all records that pin data, in their order, with their salts."""
        return [(pinned, self.attachment(number, SALT)) for number, pinned in self.books.pinned]

    def _read_price(self, number: int) -> Price:
        return read_price(self.attachment(number, "price"))


class Consents:
    """The consents in a ledger, and the ends of their runs. Methods raise what those of `Ledger` raise."""

    def __init__(self, chain: LedgerChain, reservation: int) -> None:
        """Keep budget reserved for a run until ``reservation`` seconds after its last answer."""
        self._chain, self._books = chain, chain.books
        self._reservation = reservation
        self._consents = lru_cache(256)(self._read)
        self._study: Study | None = None

    def approve(self, learner: str, proposal: RunProposal, price: Price) -> Consent:
        """Store the consent to a run and reserve its price; an earlier consent to the run remains as it is.

        Raises BudgetExhaustedError where too little is left.
        """
        self._chain.expire()  # first, which frees reservations that have expired
        with self._chain.transaction() as appending:
            if (learner, proposal.run) not in self._books.runs:
                spec = proposal.spec
                self._chain.check_data(spec.study.name)
                rows = None if price.adjacency == "whole_party" else spec.charged_rows
                people = self._chain.require(learner, spec.study.name, price.total, rows)
                approved = Approved(
                    learner=learner,
                    run=proposal.run,
                    user=proposal.user,
                    purpose=proposal.purpose,
                    study=spec.study.name,
                    algorithm=spec.algorithm,
                    spec=spec.digest,
                    secure_sum=spec.secure_sum,
                    rounds=len(price.epsilon),
                    reserved=price.total,
                    adjacency=price.adjacency,
                    lasts=self._reservation,
                    people=people,
                    rows=rows or "",
                )
                attachments = {"spec": spec.model_dump_json().encode(), "price": packed_price(price)}
                _append(appending, approved, attachments)
        consent = self.find(learner, proposal.run)
        assert consent is not None  # noqa: S101 -- written above
        return consent

    def begin_own(  # noqa: PLR0913, PLR0917 -- what its record says
        self, run: str, algorithm: str, spec: bytes, rounds: int, price: Price, study: str = ""
    ) -> RunBook:
        """Return the book of a run of the owner's own; a new one is stored, and its price reserved.

        The account of the people in its ``study`` pays; that of all if it is about no study. It never expires, and has
        a `SALT`. Raises ConflictError where it has another specification, or has ended; BudgetExhaustedError where too
        little is left.
        """
        digest = hashlib.sha256(spec).hexdigest()
        self._chain.expire()
        with self._chain.transaction() as appending:
            if (OWNER, run) not in self._books.runs:
                self._approve_own(appending, run, algorithm, spec, rounds, price, study)
        book = self._books.runs[OWNER, run]
        if self.record(book).spec != digest:
            terms = _other_terms(self._chain.attachment(book.number, "spec"), spec)
            raise ConflictError(f"{run} was begun with {terms}: say the same again, or take another name")
        if book.ended is not None:
            raise ConflictError(f"{run} has ended")
        return book

    def charge_fit(self, run: str, algorithm: str, spec: bytes, price: Price, study: str = "") -> None:
        """Store a fit of the owner's own as a new run: approved, charged in full and ended, in one transaction.

        Its answer is empty: the model is not stored. The account that pays is as in `begin_own`. Raises ConflictError
        where there is such a run, BudgetExhaustedError where too little is left.
        """
        self._chain.expire()
        with self._chain.transaction() as appending:
            if (OWNER, run) in self._books.runs:
                raise ConflictError(f"there is a run {run} already")
            self._approve_own(appending, run, algorithm, spec, 1, price, study)
            query = hashlib.sha256(spec).hexdigest()
            _append(appending, Answered(OWNER, run, 1, query, "fit", price.total, price.adjacency), {"body": b""})
            _append(appending, Ended(OWNER, run, "owner"))

    def find(self, learner: str, run: str) -> Consent | None:
        """Return the consent to a run, or None."""
        self._chain.look()
        book = self._books.runs.get((learner, run))
        return self._consents(book.number) if book else None

    def record(self, book: RunBook) -> Approved:
        """Return the record of a run's approval."""
        record = from_json(book.number, self._chain.record(book.number)).record
        assert isinstance(record, Approved)  # noqa: S101 -- a book begins with one
        return record

    def end(self, learner: str, run: str, by: EndReason = "learner") -> None:
        """Answer no more rounds of a run. Raises NotFoundError if there is no such run."""
        with self._chain.transaction() as appending:
            if self._chain.run(learner, run).ended is None:
                _append(appending, Ended(learner, run, by))

    def fail(self, learner: str, run: str) -> None:
        """End a run whose work on the data ended in an unforeseen error. Raises NotFoundError.

        The failure may reveal something about the data, and no noise hides it. So all that is left of the run's price
        is charged, once, even beyond the limit, and even if the run was ended before the work was.
        """
        with self._chain.transaction() as appending:
            book = self._chain.run(learner, run)
            if book.ended != "failed":
                price = self._chain.price(book.number)
                _append(appending, Ended(learner, run, "failed", price.remaining(book.last), price.adjacency))

    def has_failed(self, learner: str, run: str) -> bool:
        """Say whether a run ended by `fail`."""
        self._chain.look()
        return self._books.runs[learner, run].ended == "failed"

    def release(self, learner: str, run: str) -> None:
        """Free what is still reserved for a run, which goes on while the budget suffices. Raises NotFoundError."""
        with self._chain.transaction() as appending:
            if self._chain.run(learner, run).reserved != NOTHING:
                _append(appending, Released(learner, run))

    def refuse(self, learner: str, run: str, algorithm: str, rule: str, reason: str) -> None:
        """Note a refusal by one of the owner's rules, up to `MOST_REFUSALS` for a learner a day."""
        with self._chain.transaction() as appending:
            if self._books.refusals.get(learner_day(learner, _now()), 0) < MOST_REFUSALS:
                _append(appending, Refused(learner, run, algorithm, rule, reason))

    def approved_today(self, learner: str) -> int:
        """Return how many runs of a learner were approved since midnight, by UTC."""
        self._chain.look()
        return self._books.approvals.get(learner_day(learner, _now()), 0)

    def open_runs(self) -> list[RunKey]:
        """Return the learners' runs that have not ended, oldest first."""
        self._chain.look()
        return [key for key, _ in self._books.open_runs()]

    def _approve_own(  # noqa: PLR0913, PLR0917 -- what its record says
        self, appending: Appending, run: str, algorithm: str, spec: bytes, rounds: int, price: Price, study: str
    ) -> None:
        """Store a new run of the owner's own, and reserve its price. Raises BudgetExhaustedError."""
        people = self._chain.require(OWNER, study, price.total)
        approved = Approved(
            learner=OWNER,
            run=run,
            user="",
            purpose="",
            study=study,
            algorithm=algorithm,
            spec=hashlib.sha256(spec).hexdigest(),
            secure_sum="none",
            rounds=rounds,
            reserved=price.total,
            adjacency=price.adjacency,
            lasts=_FOR_EVER,
            people=people,
        )
        _append(appending, approved, {"spec": spec, "price": packed_price(price), SALT: secrets.token_bytes(32)})

    def _read(self, number: int) -> Consent:
        """Read the consent that an entry holds. Raises ConflictError if an older version described it otherwise."""
        spec = _as_described(RunSpec, self._chain.attachment(number, "spec"), "approved")
        if self._study is not None and spec.study.digest == self._study.digest:
            # The study is nearly all of a specification, and equal in all runs: it is kept in memory once.
            spec = spec.model_copy(update={"study": self._study})
        self._study = spec.study
        return Consent(spec, self._chain.price(number))


class AnsweredRounds:
    """The answers in a ledger, and the secure sums that its runs joined. Methods raise what those of `Ledger` raise."""

    def __init__(self, chain: LedgerChain) -> None:
        self._chain, self._books = chain, chain.books

    def answer(self, ask: Ask, compute: Compute) -> Answer:
        """Return the stored answer to ``ask``, at no cost, or a new one: charged, computed, committed, read back.

        Raises ConflictError if the round was asked another question or is over, or if the run has ended or expired,
        which ends it; NotFoundError for an unknown run; BudgetExhaustedError if the budget does not suffice. If it
        raises, nothing was charged.
        """
        try:
            with self._chain.transaction() as appending:
                run = self._chain.run(ask.learner, ask.run)
                last = run.last
                number = run.answers.get(ask.round) if ask.round <= last else None
                if number is None:
                    self._chain.check_data(run.use.study)
                    number = self._add(appending, ask, run, last, compute)
        except ConflictError:
            self._chain.end_if_expired(ask.learner, ask.run)
            raise
        return self._read(ask, number)

    def recall(self, ask: Ask) -> Answer | None:
        """Return the stored answer to ``ask``, or None. Raises ConflictError if another question was asked."""
        run = self._books.runs.get((ask.learner, ask.run))
        if run is None or (number := run.answers.get(ask.round)) is None:
            return None
        return self._read(ask, number)

    def last_answer(self, learner: str, run: str) -> bytes | None:
        """Return the answer to a run's last answered round, or None."""
        self._chain.look()
        book = self._books.runs.get((learner, run))
        return self._chain.attachment(book.answers[book.last], "body") if book and book.last else None

    def join(self, learner: str, run: str, invitation: bytes) -> None:
        """Store the invitation to a run's secure sum, unless there is one. Raises ConflictError for an ended run."""
        try:
            with self._chain.transaction() as appending:
                if (book := self._chain.run(learner, run)).joined is None:
                    _check_open(run, book)
                    _append(appending, Joined(learner, run), {"invitation": invitation})
        except ConflictError:
            self._chain.end_if_expired(learner, run)
            raise

    def invitation(self, learner: str, run: str) -> bytes | None:
        """Return the accepted invitation to a run's secure sum, or None."""
        self._chain.look()
        book = self._books.runs.get((learner, run))
        return None if book is None or book.joined is None else self._chain.attachment(book.joined, "invitation")

    def joined(self) -> list[RunKey]:
        """Return all runs that joined a secure sum and have not ended."""
        self._chain.look()
        return [key for key, run in self._books.unended() if run.joined is not None]

    def _add(self, appending: Appending, ask: Ask, run: RunBook, last: int, compute: Compute) -> int:
        """Charge a new round, compute its answer, and store it with its one-time noise; return the entry's number.

        ``last`` is the last round that was answered. Raises what `answer` says.
        """
        _check_open(ask.run, run)
        if ask.round <= last:
            raise ConflictError(f"round {ask.round} of run {ask.run} is over; round {last} was answered")
        price = self._chain.price(run.number)
        cost = price.step(ask.round, last)
        self._chain.accounts.require_charge(run, cost)
        earlier = {name: _array(self._chain.attachment(number, ONCE + name)) for name, number in run.once.items()}
        body, now = compute(earlier)
        once = {ONCE + name: pack_array(value) for name, value in now.items() if name not in earlier}
        answered = Answered(ask.learner, ask.run, ask.round, ask.query, ask.step, cost, price.adjacency)
        return _append(
            appending, answered, {"body": body, **once} | ({OWNER_INPUT: ask.owner_input} if ask.owner_input else {})
        )

    def _read(self, ask: Ask, number: int) -> Answer:
        """Read the answer in an entry from the disk. Raises ConflictError if it answers another question."""
        record, body = self._chain.read(number, "body")
        if record["query"] != ask.query:
            raise ConflictError(f"round {ask.round} of run {ask.run} was asked another question before")
        return Answer(body, Binding(ask.run, ask.round, ask.query, record["attached"]["body"]))


class OwnerQuestions:
    """The questions to the owner about runs, and its decisions: yes, no, and a yes that is withdrawn.

    A yes is a run's ordinary consent. Methods raise what those of `Ledger` raise.
    """

    def __init__(self, chain: LedgerChain, consents: Consents) -> None:
        self._chain, self._books, self._consents = chain, chain.books, consents

    def ask(self, learner: str, proposal: RunProposal, price: Price, lasts: float) -> OwnerBook:
        """Return the question about a run and the owner's decision; a new question waits for ``lasts`` seconds.

        Raises ConflictError for another specification than the owner was asked about, because the owner may be about
        to say yes to the one that it has read; ForbiddenError if `MOST_PENDING` questions of this learner wait.
        """
        key = learner, proposal.run
        with self._chain.transaction() as appending:
            book = self._books.owner.get(key)
            if book is not None and not self._asked_about(book, proposal.spec.digest):
                raise ConflictError(
                    f"the owner was asked about run {proposal.run} with another specification: ask as another run"
                )
            if book is None:
                if sum(other == learner for (other, _), _ in self._books.pending(_now())) >= MOST_PENDING:
                    raise ForbiddenError(f"{MOST_PENDING} runs of {learner} wait for the owner already", rule="owner")
                question = OwnerAsked(learner, proposal.run, proposal.spec.digest, price.total, int(lasts))
                attachments = {"proposal": proposal.model_dump_json().encode(), "price": packed_price(price)}
                _append(appending, question, attachments)
        return self._books.owner[key]

    def pending(self) -> list[tuple[str, OwnerBook]]:
        """Return the learner and the book of each question that the owner may still answer, oldest first."""
        self._chain.look()
        return [(learner, book) for (learner, _), book in self._books.pending(_now())]

    def read(self, book: OwnerBook) -> tuple[RunProposal, Price]:
        """Read a question: the proposal, and its price.

        Raises ConflictError if an older version described the run otherwise.
        """
        proposal = _as_described(RunProposal, self._chain.attachment(book.number, "proposal"), "asked about")
        return proposal, read_price(self._chain.attachment(book.number, "price"))

    def allow(self, learner: str, run: str) -> Consent:
        """Store the owner's yes: consent to the run and reserve its price, unless the owner has said so before.

        Raises NotFoundError, ConflictError where it is too late, BudgetExhaustedError.
        """
        self._chain.look()
        if (learner, run) not in self._books.runs:
            book = self._asked(learner, run)
            if book.denied is not None:
                raise ConflictError(f"run {run} was denied, and its learner has been told")
            if book.expires <= _now():
                raise ConflictError(f"run {run} waited too long for an answer: its question has expired")
            return self._consents.approve(learner, *self.read(book))
        if (ended := self._books.runs[learner, run].ended) is not None:
            raise ConflictError(f"run {run} has ended ({ended})")
        consent = self._consents.find(learner, run)
        assert consent is not None  # noqa: S101 -- it is among the runs
        return consent

    def deny(self, learner: str, run: str, reason: str = "") -> bool:
        """Store the owner's no, which ends a run that was approved; return whether it was. Raises NotFoundError."""
        with self._chain.transaction() as appending:
            if (learner, run) in self._books.runs:
                if self._books.runs[learner, run].ended is None:
                    _append(appending, Ended(learner, run, "owner"))
                return True
            if self._asked(learner, run).denied is None:
                _append(appending, OwnerDenied(learner, run, reason))
            return False

    def _asked_about(self, book: OwnerBook, digest: str) -> bool:
        """Say whether a question is about the specification of this digest; an older version's record has its own."""
        return book.question.spec == digest or self.read(book)[0].spec.digest == digest

    def _asked(self, learner: str, run: str) -> OwnerBook:
        """Return the book of the question about a run. Raises NotFoundError."""
        if (book := self._books.owner.get((learner, run))) is None:
            raise NotFoundError(f"the owner was not asked about run {run}")
        return book


class Ledger:
    """One party's ledger. Threads take turns; several processes may share the directory.

    Every method, and every method of its parts, raises UnavailableError while the database cannot be written, and
    LedgerError when it is damaged or is not the one that the party last wrote.
    """

    def __init__(  # noqa: PLR0913 -- by name
        self,
        directory: Path,
        identity: Identity,
        limit: Account,
        terms: Mapping[str, StudyTerms] = MappingProxyType({}),
        *,
        reservation_days: float = 30.0,
        to_read: bool = False,
    ) -> None:
        """Open the ledger in ``directory``; ``limit`` is the owner's budget from now on, in each of its accounts.

        ``terms`` say, by the names of studies, which account pays for which study, and what is set aside for it.

        If the limit is below what is spent, nothing is left; what is spent stays spent. Raises LedgerError where there
        is no ledger, or only a part of one: `create_ledger` makes one. One that has ended is opened only ``to_read``.
        """
        check_exists(directory)
        self.identity = identity
        self.chain = LedgerChain(directory, identity)
        self.books = self.chain.books
        self.accounts = self.chain.accounts
        self.consents = Consents(self.chain, int(reservation_days * _DAY))
        self.rounds = AnsweredRounds(self.chain)
        self.questions = OwnerQuestions(self.chain, self.consents)
        try:
            if not self._has_ended(to_read=to_read):
                self.allot(limit, terms)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database and the head file."""
        self.chain.close()

    def allot(self, limit: Account, terms: Mapping[str, StudyTerms]) -> None:
        """Make ``limit`` the owner's budget, in each account, and have accounts pay by these terms from now on.

        Raises InvalidInputError where a budget for all that the owner holds cannot count what was charged.
        """
        self._check_beginning(limit)
        self.accounts.terms = terms
        with self.chain.transaction() as appending:
            for people in sorted({*self.books.accounts, *(study.people for study in terms.values())}):
                limited = Limited(limit.epsilon_limit, limit.delta_limit, limit.adjacency, limit.composition, people)
                if people not in self.books.accounts or limited != _limited(self.books.accounts[people], people):
                    _append(appending, limited)
        self.chain.expire()

    def account(self, study: str = "") -> Account:
        """Return the account that pays for a study, that of all if none is named, after expired runs have ended."""
        self.chain.expire()
        return self.accounts.of(study)

    def statements(self) -> list[Statement]:
        """Return what each use has had of each account, that of all first, after expired runs have ended."""
        self.chain.expire()
        return self.accounts.statements()

    def pin(self, data: DataPin, *, accept: bool = False) -> list[str]:
        """Return what has changed in a study's data since they were pinned, in words; pin them if none were.

        If the owner says to ``accept`` changed data, they are pinned. Then all learners' runs of the study end: later
        answers would be about other data than earlier ones, and noise that is drawn once a run would hide neither,
        because it cancels in their difference. What was charged stays charged. From then on this process approves and
        answers runs of the study only while the pinned data are ``data``, which it has loaded.

        Raises InvalidInputError if the same people would get a second account, or rows that were asked about would get
        the budget of a new period.
        """
        books, study = self.books, data.study.name
        if accept:  # before the transaction, for it reads the table again
            self.chain.look()
            self._check_period(data)
        with self.chain.transaction() as appending:
            self.check_people(data, self.chain.about)
            earlier = self._pin_before(data)
            changes = [] if earlier is None else data.changes_since(earlier[1], self._salt(earlier[0]))
            if accept and changes and earlier is not None:
                self._end_runs(appending, lambda name: name == study or self._replaces(name, earlier[1].name))
            is_complete = earlier is not None and earlier[1].name == study and earlier[1].people == data.people
            if (accept or not changes) and not (is_complete and not changes):
                salt = secrets.token_bytes(32)
                _append(appending, data.pinned(salt), {SALT: salt})
        if accept or not changes:
            self.chain.about[study] = books.pins[study][-1][0]
        return changes

    def has_loaded(self, study: str) -> bool:
        """Say whether the data of a study that this process has pinned are those that are pinned now."""
        pins = self.books.pins.get(study, [])
        return self.chain.about.get(study) in {number for number, _ in pins[-1:]}

    def withdraw(self, study: str) -> list[RunKey]:
        """End all learners' runs of a study in which the owner takes part no more; return them."""
        self.chain.about.pop(study, None)
        with self.chain.transaction() as appending:
            return self._end_runs(appending, lambda name: name == study)

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""
        return [from_json(number, json.loads(record)) for number, record in self.records()]

    def answers(self) -> list[Answered]:
        """Return all answers, oldest first."""
        return [entry.record for entry in self.entries() if isinstance(entry.record, Answered)]

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield all records as the chain holds them, with their numbers."""
        self.chain.look()
        return self.chain.records()

    def probe(self, room: int) -> None:
        """Raise UnavailableError unless an answer of ``room`` bytes could be stored next."""
        self.chain.look()
        self.chain.probe(room)

    def _end_runs(self, appending: Appending, is_over: Callable[[str], bool]) -> list[RunKey]:
        """End the learners' open runs of the studies that are over, by name; return them."""
        keys = [key for key, run in self.books.open_runs() if is_over(run.use.study)]
        for key in keys:
            _append(appending, Ended(*key, "owner"))
        return keys

    def _pin_before(self, data: DataPin) -> tuple[int, Pinned] | None:
        """Return the entry that pins a study's data now, and its number; None if there is none.

        That of an older version, which has no name, is of the study that it names by its digest. A study that the
        settings name by its file alone replaces the last one that they do not name.
        """
        pins, terms, study = self.books.pins, self.accounts.terms, data.study
        if study.name in pins:
            return pins[study.name][-1]
        if "" in pins and study.has_digest(pins[""][-1][1].study):
            return pins[""][-1]
        if study.name in terms:
            return None
        return max((pins[name][-1] for name in pins if name not in terms), key=lambda pin: pin[0], default=None)

    def _replaces(self, study: str, pinned: str) -> bool:
        """Say whether the runs of a study were about data that were pinned by this name; older pins have none."""
        return study == pinned or (not pinned and study not in self.accounts.terms)

    def check_people(self, data: DataPin, held: Container[str]) -> None:
        """Raise InvalidInputError if the people in a table have another account already, at any path to it.

        It is enough that another of the studies that are ``held`` now says so; of all others, that they were charged.
        """
        for name, pins in self.books.pins.items():
            for number, pinned in pins:
                is_other_now = name != data.study.name and name in held and pinned is pins[-1][1]
                if (
                    pinned.people != data.people
                    and (is_other_now or self.books.is_charged(pinned.people, name))
                    and (
                        name == data.study.name
                        or (not name and data.study.has_digest(pinned.study))
                        or data.reads_tables_of(pinned, self._salt(number))
                    )
                ):
                    raise InvalidInputError(
                        f"studies: {data.study.name}: people: this table is {name or 'the earlier study'}'s too, which "
                        f"the account of {whose(pinned.people)} pays for: the same people have one account, so it "
                        f"cannot be that of {whose(data.people)}"
                    )

    def _check_period(self, data: DataPin) -> None:
        """Raise InvalidInputError unless rows that runs were about in earlier periods are where they were.

        That is how the party knows that no record in them is among the later ones, which have a budget of their own.
        """
        name, uses = data.study.name, list(self.books.uses)
        latest = {pinned.first: (number, pinned) for number, pinned in self.books.pins.get(name, [])}
        ends: dict[int, int] = {}
        for places in (use.places for use in uses if use.study == name and use.places.since):
            ends[places.first] = max(places.end, ends.get(places.first, 0))
        for first, end in sorted(ends.items()):
            number, pinned = latest[first]
            if first < data.first < end:
                raise InvalidInputError(
                    f"studies: {name}: data.earlier_rows = {data.first}, and runs were about rows after these: a new "
                    f"period begins after all of them{f', so earlier_rows must be at least {end}' * (end < NO_END)}"
                )
            if first < data.first and not data.has_in_place(pinned, self._salt(number)):
                raise InvalidInputError(
                    f"studies: {name}: data.earlier_rows = {data.first}, and rows {first + 1} to "
                    f"{first + pinned.n_examples} are not what they were when runs were about them, or their study has "
                    "changed: later rows have a budget of their own only after rows that stay where they are"
                )

    def _salt(self, number: int) -> bytes:
        return self.chain.attachment(number, SALT)

    def _has_ended(self, *, to_read: bool) -> bool:
        """Return whether the ledger was joined to another. Raises LedgerError if it is not opened ``to_read``."""
        if (ended := self.books.merged) is not None and not to_read:
            raise LedgerError(ended_in_words(ended, self.identity))
        return ended is not None

    def _check_beginning(self, limit: Account) -> None:
        """Raise an error if this is not the party's ledger, or a ``limit`` for all data would hide what it cannot."""
        self.chain.look()
        self.chain.check_owner()
        charged = self.books.hides()
        if not hides(charged, limit.adjacency):
            answers = f"{self.books.charges[charged]} answers in the ledger protect one {UNIT_NAMES[charged]} each"
            raise InvalidInputError(
                f"policy.adjacency is {limit.adjacency}, and {answers}: they cannot count against a budget for "
                f"{BUDGETED[limit.adjacency]}; keep {charged}, or begin a new ledger"
            )
        others = [people for people, account in self.books.accounts.items() if people and is_used(account)]
        if limit.adjacency == "whole_party" and others:
            raise InvalidInputError(
                f"policy.adjacency is whole_party, which is one account, and {', '.join(others)} have one of their own "
                "that was charged: keep replace_one, or begin a new ledger"
            )


def create_ledger(  # noqa: PLR0913 -- what it begins with, by name
    directory: Path,
    identity: Identity,
    adjacency: Adjacency,
    *,
    costs: Mapping[str, Cost] = MappingProxyType({}),
    recovered: Mapping[str, Sequence[int]] | None = None,
    merged: Sequence[Mapping[str, str]] = (),
    pins: Sequence[SaltedPin] = (),
    nonce: str = "",
) -> None:
    """Begin a party's ledger in a directory. Raises LedgerError where there is a ledger, or a part of one.

    With ``recovered``, which names the ledgers that it replaces, the new one may do so: what is there is put aside.
    ``costs`` are what these may have cost, by people; ``pins`` are theirs, so that a table that an account has paid for
    gets no other. The ``nonce`` is random unless ledgers that have ended name it.
    """
    groups = {people: cost.units for people, cost in costs.items() if people != ALL}
    begun = Begun(
        party=identity.name,
        key=identity.key,
        nonce=nonce or secrets.token_hex(32),
        recovered=recovered or {},
        spent=costs.get(ALL, NOTHING),
        adjacency=adjacency,
        groups=groups,
        merged=merged,
    )
    more = [(to_json(pinned, _now()), {SALT: salt}) for pinned, salt in pins]
    begin_chain(directory / "ledger", LEDGER, to_json(begun, _now()), replaces=recovered is not None, more=more)


def ended_in_words(merged: Merged, identity: Identity) -> str:
    """Say where the ledger of this identity went that has ended."""
    words = f"this ledger has ended: it was merged into that of {merged.into}, which counts what it has spent. "
    if (merged.into, merged.key) == (identity.name, identity.key):
        return f"{words}That one has not begun yet: run the same parley-party merge again"
    return f"{words}It can be read still (parley-party log, budget, audit export), and answers nothing"


def has_ledger(directory: Path) -> bool:
    """Say whether a directory has a ledger, or a part of one."""
    return has_begun(directory / "ledger")


def check_exists(directory: Path) -> None:
    """Raise LedgerError, which says what to do, where a directory has no ledger or only a part of one."""
    check_begun(
        directory / "ledger",
        LEDGER,
        missing="make a new party's with parley-party init; if there was one, run parley-party recover, "
        "or parley-party restore where there is a backup, for what it had spent stays spent",
        recover="parley-party recover",
    )


def _as_described(form: type[_Described], content: bytes, did: str) -> _Described:
    """Read the description of a run that an entry holds; ``did`` is what was done to the run, in the past tense.

    Raises ConflictError if an older version described it otherwise.
    """
    try:
        return form.model_validate_json(content)
    except ValidationError:
        raise ConflictError(
            f"an older version of Parley {did} this run, and described it in a form that this one does not read: "
            "begin it again; what it was charged stays charged"
        ) from None


def _check_open(run: str, book: RunBook) -> None:
    """Raise ConflictError for a run that has ended, or whose reservation has expired."""
    if book.ended == "expired" or book.expires <= _now():
        raise ConflictError(
            f"run {run} has ended: nothing was asked for so long that its reservation expired; propose it as another"
        )
    if book.ended is not None:
        raise ConflictError(f"run {run} has ended")


def _other_terms(begun: bytes, present: bytes) -> str:
    """Say how the terms that a run of the owner's was begun with differ from the present ones."""
    was, now = json.loads(begun), json.loads(present)
    differ = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    return "other terms, " + ", ".join(f"{name} {was.get(name)}, not {now.get(name)}" for name in differ)


def _limited(account: Account, people: str) -> Limited:
    """Return the record of an account's limit."""
    return Limited(account.epsilon_limit, account.delta_limit, account.adjacency, account.composition, people)


def _append(appending: Appending, record: LedgerRecord, attachments: Mapping[str, bytes] | None = None) -> int:
    """Append a record with the present time; return its number."""
    return appending.append(to_json(record, _now()), attachments)


def _array(packed: bytes) -> npt.NDArray[Any]:
    return np.asarray(np.load(io.BytesIO(packed), allow_pickle=False))


def _now() -> int:
    """Return the time in seconds since 1970."""
    return int(time.time())


_Key = tuple[int, int | None]
"""The entries that say how long a run's answers are: its approval, and its secure sum's roster if it joined one."""


class AnswerRoom:
    """The bytes that the largest possible answer to a ledger's open runs takes on disk; each run is read once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._sizes: dict[_Key, int] = {}

    def needed(self) -> int:
        """Return the bytes, including the one-time noise stored beside an answer, which is as long."""
        sizes = self._sizes
        keys = [(book.number, book.joined) for _, book in self._ledger.books.open_runs()]
        self._sizes = {key: sizes[key] if key in sizes else self._size(*key) for key in keys}
        return 2 * max(self._sizes.values(), default=0)

    def _size(self, approved: int, joined: int | None) -> int:
        """Return the length of a run's longest answer; 0 if the run cannot be read and so cannot be answered."""
        with suppress(ParleyError, ValueError):
            if joined is not None:
                roster = Roster.parse(Signed.from_bytes(self._ledger.chain.attachment(joined, "invitation")).body)
                return len(roster.key_holders) * roster.layout.blob_bytes
            spec = RunSpec.model_validate_json(self._ledger.chain.attachment(approved, "spec"))
            return lengths(spec.questions())[1]
        return 0
