"""Runs that wait for the owner's word, in the ledger's chain: what was asked, yes, no, and a yes taken back."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING

from parley.common.errors import ConflictError, ForbiddenError, NotFoundError
from parley.party.ledger.records import Ended, OwnerAsked, OwnerDenied, packed_price, read_price, to_json

if TYPE_CHECKING:
    from parley.common.privacy.account import Price
    from parley.common.storage.chain import SignedChain
    from parley.common.wire.party_api import RunProposal
    from parley.party.ledger.books import Books, OwnerBook
    from parley.party.ledger.ledger import Consent

MOST_PENDING = 100
"""Questions to the owner of one learner's at a time."""


class OwnerQuestions:
    """What a ledger's owner is asked; a yes is a run's ordinary consent, by ``approve``, which ``consent`` finds again.

    ``read`` reads a proposal that was kept as JSON.
    Every method raises what those of the ledger raise while its database cannot be written or is damaged.
    """

    def __init__(
        self,
        chain: SignedChain,
        books: Books,
        approve: Callable[[str, RunProposal, Price], Consent],
        consent: Callable[[str, str], Consent | None],
        read: Callable[[bytes], RunProposal],
    ) -> None:
        self._chain = chain
        self._books = books
        self._approve = approve
        self._consent = consent
        self._read_proposal = read

    def ask(self, learner: str, proposal: RunProposal, price: Price, lasts: float) -> OwnerBook:
        """What the owner was asked about a run, and has said; asked now, for so many seconds, where it was not.

        Raises ConflictError for another specification than the owner was asked about, who may be about to say yes to
        what it has read; ForbiddenError where it has `MOST_PENDING` questions of this learner before it.
        """
        key = learner, proposal.run
        with self._chain.transaction() as chain:
            found = self._books.owner.get(key)
            if found is not None and found.asked.spec != proposal.spec.digest:
                raise ConflictError(
                    f"the owner was asked about run {proposal.run} with another specification: ask as another run"
                )
            if found is None:
                if sum(who == learner for (who, _), _ in self._books.pending(int(time()))) >= MOST_PENDING:
                    raise ForbiddenError(f"{MOST_PENDING} runs of {learner} wait for the owner already", rule="owner")
                asked = OwnerAsked(learner, proposal.run, proposal.spec.digest, price.total, int(lasts))
                attachments = {"proposal": proposal.model_dump_json().encode(), "price": packed_price(price)}
                chain.append(to_json(asked, int(time())), attachments)
        return self._books.owner[key]

    def pending(self) -> list[tuple[str, OwnerBook]]:
        """What the owner has not answered: who asks, and what `read` reads; oldest first."""
        self._chain.look()
        return [(learner, book) for (learner, _), book in self._books.pending(int(time()))]

    def read(self, book: OwnerBook) -> tuple[RunProposal, Price]:
        """What a question asks about: the proposal, and its price."""
        proposal = self._read_proposal(self._chain.attachment(book.number, "proposal"))
        return proposal, read_price(self._chain.attachment(book.number, "price"))

    def allow(self, learner: str, run: str) -> Consent:
        """The owner's yes: consent to a run as it was asked about, with its price reserved; twice is once.

        Raises NotFoundError, ConflictError where it is too late, BudgetExhaustedError.
        """
        self._chain.look()
        if (learner, run) not in self._books.runs:
            book = self._asked(learner, run)
            if book.denied is not None:
                raise ConflictError(f"run {run} was denied, and its learner told so")
            if book.expires <= int(time()):
                raise ConflictError(f"run {run} waited for an answer until it was too late")
            return self._approve(learner, *self.read(book))
        if (ended := self._books.runs[learner, run].ended) is not None:
            raise ConflictError(f"run {run} has ended ({ended})")
        consent = self._consent(learner, run)
        assert consent is not None  # noqa: S101 -- it is among the runs
        return consent

    def deny(self, learner: str, run: str, reason: str = "") -> bool:
        """The owner's no; of a run that was approved its end. Whether it was. Raises NotFoundError, ConflictError."""
        with self._chain.transaction() as chain:
            if (learner, run) in self._books.runs:
                if self._books.runs[learner, run].ended is None:
                    chain.append(to_json(Ended(learner, run, "owner"), int(time())))
                return True
            if self._asked(learner, run).denied is None:
                chain.append(to_json(OwnerDenied(learner, run, reason), int(time())))
            return False

    def _asked(self, learner: str, run: str) -> OwnerBook:
        """What the owner was asked about a run; raises NotFoundError."""
        if (found := self._books.owner.get((learner, run))) is None:
            raise NotFoundError(f"nothing was asked about run {run}")
        return found
