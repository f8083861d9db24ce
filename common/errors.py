"""The one exception tree: every error has its HTTP status and its problem type (RFC 9457).

A message names what was wrong. It may repeat public parts of the request (a name, a round, an epsilon); it never holds
a value of private data.
"""

from __future__ import annotations

from typing import ClassVar


class ParleyError(Exception):
    """The root of every error Parley raises on purpose.

    ``status`` is the HTTP status a service answers with; ``kind`` is the last part of the problem's ``type`` URI;
    ``facts`` are public values that go into the problem document beside ``detail``.
    """

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "internal"

    def __init__(self, detail: str, **facts: object) -> None:
        super().__init__(detail)
        self.detail = detail
        self.facts = facts

    @property
    def title(self) -> str:
        """The problem's kind in words: ``budget-exhausted`` becomes ``Budget exhausted``."""
        return self.kind.replace("-", " ").capitalize()


class InvalidInputError(ParleyError):
    """The request is wrong for every caller: a number out of its range, an unknown name, a wrong shape."""

    status = 422
    kind = "invalid-input"


class InvalidDataError(InvalidInputError):
    """The owner's data does not fit the study.

    It is shown to the owner alone; it names columns and counts rows, and shows no value.
    """

    kind = "invalid-data"


class ForeseenRefusalError(InvalidInputError):
    """Owners would refuse the run, by what their parties say of their rules, budgets and rows.

    The fact ``refusals`` has the reasons by party, ``helps`` the options with which they would not.
    """

    kind = "foreseen-refusal"


class UnauthorizedError(ParleyError):
    """There is no token, or an unknown one."""

    status = 401
    kind = "unauthorized"


class ForbiddenError(ParleyError):
    """The caller is known, and the owner's policy does not allow the request."""

    status = 403
    kind = "policy-refusal"


class BudgetExhaustedError(ForbiddenError):
    """The answer would cost more privacy than is left. The message says how much is left; the refusal costs nothing."""

    kind = "budget-exhausted"


class NotFoundError(ParleyError):
    """There is no such run, party or model here."""

    status = 404
    kind = "not-found"


class NotAcceptableError(ParleyError):
    """The header Accept excludes every media type of the answer: the fact ``offered`` lists them."""

    status = 406
    kind = "not-acceptable"


class ConflictError(ParleyError):
    """The request contradicts one already accepted: another body for the same round, another state."""

    status = 409
    kind = "conflict"


class WorkFailedError(ConflictError):
    """Work on private data ended in an unforeseen error: the run is over, and charged as if it had not failed."""

    kind = "work-failed"

    def __init__(
        self,
        detail: str = "work on the data ended in an error, and with it the run; what was left of its price is charged",
        **facts: object,
    ) -> None:
        super().__init__(detail, **facts)


class UnknownMembersError(ConflictError):
    """A run is proposed among members named by a digest that is not known here."""

    kind = "unknown-members"


class TooLargeError(ParleyError):
    """The body is larger than the service reads."""

    status = 413
    kind = "too-large"


class UnsupportedMediaError(ParleyError):
    """The body has a media type, or a content encoding, that the service does not read."""

    status = 415
    kind = "unsupported-media-type"


class ShareUsedUpError(ParleyError):
    """The caller has all that one caller may have of something: the fact ``share`` names it, ``most`` is how much.

    The fact ``retry_after`` says in how many seconds it may have more: the header Retry-After says so too.
    """

    status = 429
    kind = "share-used-up"


class UnavailableError(ParleyError):
    """Something this service depends on did not answer: a party, a key holder, the ledger."""

    status = 503
    kind = "unavailable"


class AwaitingOwnerError(UnavailableError):
    """A party's owner has been asked whether it takes part, and has not answered yet."""

    kind = "awaiting-owner"


class RefusedError(ParleyError):
    """Another service refused, or did not answer as it should; the message names the service and its reason."""

    status = 502
    kind = "refused"


class PartyRefusedError(RefusedError):
    """A party refused."""

    kind = "party-refused"


class KeyHolderRefusedError(RefusedError):
    """A key holder refused."""

    kind = "key-holder-refused"


class QuorumLostError(UnavailableError):
    """Fewer parties answered than the run's guarantee needs; the silent ones are named."""

    kind = "quorum-lost"


class ReplayMismatchError(ParleyError):
    """The log holds another query than the program asks: the run cannot be continued from this log."""

    status = 409
    kind = "replay-mismatch"


class DataChangedError(ParleyError):
    """The owner's data are not those of the ledger's answers: the owner has to confirm the change."""

    status = 503
    kind = "data-changed"


class VersionError(ParleyError):
    """A file was written by a version of Parley that this one does not know."""

    kind = "unknown-version"


class DamagedError(ParleyError):
    """A file or row that a service wrote cannot be read any more; the message names it and the remedy."""

    kind = "damaged"


class LedgerError(ParleyError):
    """The ledger on disk is not the one this party last wrote: refuse to answer rather than to overspend."""

    status = 503
    kind = "ledger-refused"


class InvalidReceiptError(LedgerError):
    """The text is no receipt, or another key signed it: it says nothing about any ledger."""

    status = 422
    kind = "invalid-receipt"


class SecureSumError(ParleyError):
    """A message of the secure sum was refused; ``reason`` says which check it failed."""

    status = 409
    kind = "secure-sum-refused"

    def __init__(self, detail: str, *, reason: str, **facts: object) -> None:
        super().__init__(detail, reason=reason, **facts)
        self.reason = reason


def check_not_negative(**numbers: float) -> None:
    """Raise InvalidInputError for numbers that are negative or NaN, by their names: NaN is below no bound."""
    for name, number in numbers.items():
        if not number >= 0:
            raise InvalidInputError(f"{name} must be at least 0, not {number}")
