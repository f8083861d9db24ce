"""The JSON that a learner and a party exchange."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import (
    Field,
    FiniteFloat,
    ModelWrapValidatorHandler,
    NonNegativeInt,
    ValidationError,
    model_validator,
)

from parley.common.encoding.canonical_json import canonical
from parley.common.encoding.fixed_point import MAX_EXAMPLES
from parley.common.errors import ForbiddenError, InvalidInputError, UnknownMembersError
from parley.common.privacy.account import DELTA_UNITS, MICRO, Account, Cost
from parley.common.privacy.guarantee import Adjacency, Composition
from parley.common.runs.certificate import SignedApproval
from parley.common.runs.consent import NO_KEY_HOLDER, NO_SUMS, OwnerRules
from parley.common.runs.specification import MemberColumns, RunOutline, RunSpec
from parley.common.secure_sum.party import PartyPolicy
from parley.common.strict import Digest, Identifier, OneLine, PlainName, PublicKey, Strict, faults


class StudyFacts(OwnerRules):
    """Facts that a party states about one study to a learner that may ask about it, with the rules for its runs.

    None is private but the declared size of the shard. ``people`` is the owner's word for the people in its rows, if it
    knows that none of them is in its other tables; see `Approval`.
    """

    study_digest: Digest
    study: Annotated[PlainName | None, Field(description="its name; null from parties of older versions")] = None
    n_examples: Annotated[int, Field(le=MAX_EXAMPLES)]
    people: PlainName | None


class PartyFacts(Strict):
    """Facts that a party states to a learner it knows, of no other studies than those that this learner may ask about.

    So a learner sees the same if other learners have studies and runs here, or none.
    """

    name: Identifier
    version: PlainName
    studies: tuple[StudyFacts, ...]

    def about(self, study_digest: str) -> StudyFacts | None:
        """Return the facts about the study with this digest, or None."""
        return next((facts for facts in self.studies if facts.study_digest == study_digest), None)


class PinnedKeys(Strict):
    """The public keys that an owner accepts in secure sums with one learner, by name, and their least size.

    Separate from the other facts, which a learner shows its users. Stating them harms no owner: keys are public, and a
    pin is as hard to forge when it is known.
    """

    learner: PublicKey | None
    key_holders: dict[Identifier, PublicKey]
    parties: dict[Identifier, PublicKey]
    minimum_key_bits: NonNegativeInt

    @property
    def known(self) -> Collection[str] | None:
        """The other parties that a sum may hide this one among; None where it has no key holders, and so no sums."""
        return self.parties.keys() if self.key_holders else None

    def policy(self, rules: OwnerRules) -> PartyPolicy:
        """Return the owner's conditions for a secure sum.

        Raises ForbiddenError where it pins no key of the learner, or none of key holders.
        """
        if self.learner is None or not self.key_holders:
            reason = NO_SUMS.format("the learner") if self.key_holders else NO_KEY_HOLDER
            raise ForbiddenError(reason, rule="secure_sum")
        return PartyPolicy(
            learner=self.learner,
            key_holders=self.key_holders,
            parties=self.parties,
            minimum_contributors=rules.minimum_contributors,
            colluders=rules.colluders,
            minimum_key_bits=self.minimum_key_bits,
        )


WholeUnits = Annotated[int, Field(ge=0, le=10**30)]
"""Whole units, in a range that allows exact arithmetic."""
Units = Annotated[tuple[WholeUnits, ...], Field(min_length=4, max_length=6)]
"""A `Cost` as `Cost.units`; those of earlier versions are the first four."""


class AccountUnits(Strict):
    """An account in whole units: limits of epsilon in micro-units and of delta in 1e-18, and `Units`.

    ``share`` is the part of the account that counts, in millionths; see `Account`.
    """

    epsilon_limit: WholeUnits
    delta_limit: WholeUnits
    spent: Units
    reserved: Units
    share: Annotated[int, Field(ge=1, le=MICRO)] = MICRO


class BudgetReport(Strict):
    """A party's account in short: (epsilon, delta) allowed in total, spent, reserved for approved runs, and left.

    To a learner a party reports the account as this learner's own runs have left it. What other learners and the owner
    itself have spent is not told, so less may be left: `Room` says whether a run fits.

    Spent holds, with the budget's delta, whenever it is read and however questions depended on answers; it may pass the
    limit, which holds too. Nonadaptive is what the same answers cost if no question had depended on one. Spent is None
    if more delta was charged than is allowed. Reserved is what reservations would add to nonadaptive. Left is what one
    more run may cost: under a filter, a Gaussian one. ``units`` are the account's own figures, from which `account`
    computes for any other run whether it fits.
    """

    epsilon_limit: FiniteFloat
    delta_limit: FiniteFloat
    epsilon_spent: FiniteFloat | None
    epsilon_nonadaptive: FiniteFloat | None = None
    delta_spent: FiniteFloat
    epsilon_reserved: FiniteFloat
    epsilon_left: FiniteFloat
    delta_left: FiniteFloat
    adjacency: Adjacency
    composition: Composition
    units: AccountUnits

    @classmethod
    def of(cls, account: Account) -> Self:
        """Return the report of an account."""
        return cls(
            epsilon_limit=account.epsilon_limit / MICRO,
            delta_limit=account.delta_limit / DELTA_UNITS,
            epsilon_spent=_spent(account),
            epsilon_nonadaptive=account.epsilon_nonadaptive,
            delta_spent=account.delta_spent,
            epsilon_reserved=account.epsilon_reserved,
            epsilon_left=account.epsilon_left,
            delta_left=account.delta_left,
            adjacency=account.adjacency,
            composition=account.composition,
            units=AccountUnits(
                epsilon_limit=account.epsilon_limit,
                delta_limit=account.delta_limit,
                spent=account.spent.units,
                reserved=account.reserved.units,
                share=account.share,
            ),
        )

    @model_validator(mode="wrap")
    @classmethod
    def _from_an_older_party(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:  # noqa: ANN401
        """Accept a report that has no such field: what it says is spent is the nonadaptive figure."""
        report = handler(values)
        if report.epsilon_nonadaptive is not None:
            return report
        figures = {"epsilon_spent": _spent(report.account), "epsilon_nonadaptive": report.epsilon_spent}
        return report.model_copy(update=figures)

    @property
    def account(self) -> Account:
        """The account that this report describes."""
        spent, reserved = Cost.of_units(self.units.spent), Cost.of_units(self.units.reserved)
        limits = self.units.epsilon_limit, self.units.delta_limit
        return Account(*limits, spent, reserved, self.adjacency, self.composition, self.units.share)


def _spent(account: Account) -> float | None:
    """Return what is spent, or None if it is infinite, which JSON has no number for."""
    return account.epsilon_spent if math.isfinite(account.epsilon_spent) else None


class Room(Strict):
    """Whether a run of a price fits into what is left for it, of all that everybody has spent: yes or no, no more."""

    fits: bool


class OfferedSpec(RunOutline):
    """A specification whose parties may be the digest of their columns, for a party that has these already."""

    parties: Digest | MemberColumns

    @property
    def members(self) -> Digest:
        """The digest of the parties' columns."""
        return self.parties if isinstance(self.parties, str) else self.parties.digest

    @cached_property
    def digest(self) -> str:
        """The specification's digest, the same whether its parties are listed or not."""
        return self.digest_among(self.members)

    def listed(self, stored: MemberColumns | None) -> RunSpec:
        """Return the specification with its parties listed: its own, or those ``stored`` here.

        Raises UnknownMembersError where neither lists them, InvalidInputError where terms contradict each other.
        """
        members = stored if isinstance(self.parties, str) else self.parties
        if members is None:
            raise UnknownMembersError("these members are not known here: propose the run with its parties listed")
        outline = {name: getattr(self, name) for name in RunOutline.model_fields}
        try:
            return RunSpec(**outline, parties=members.parties)
        except ValidationError as error:
            raise InvalidInputError(faults(error)) from None


class RunOffer(Strict):
    """The body that a learner sends a party to approve; ``user`` and ``purpose`` are for the owner's log."""

    run: Identifier
    spec: OfferedSpec
    user: Annotated[OneLine, Field(max_length=100)] = ""
    purpose: Annotated[OneLine, Field(max_length=500)] = ""


class RunProposal(Strict):
    """A run as a learner plans it and a party approves it: a `RunOffer` whose parties are listed.

    The bodies that state it are made once for all parties.
    """

    run: Identifier
    spec: RunSpec
    user: Annotated[OneLine, Field(max_length=100)] = ""
    purpose: Annotated[OneLine, Field(max_length=500)] = ""

    def spell(self) -> str:
        """Make all bodies, which takes long for many columns: call it in a thread. Returns the digest."""
        return self.spec.digest if self.listing and self.naming else ""

    @cached_property
    def listing(self) -> bytes:
        """The offer that lists the parties."""
        return self.model_dump_json().encode()

    @cached_property
    def naming(self) -> bytes:
        """The offer with the parties' digest, which has the same length for any number of them."""
        offer = self.model_dump(mode="json", exclude={"spec": {"parties"}})
        offer["spec"]["parties"] = self.spec.members.digest
        return canonical(offer)


class Approval(Strict):
    """A party's consent to answer the rounds of a run at this price, once it is ``prepared``.

    ``people`` is the owner's word for the people in the rows, where they have an account of their own: then what all
    runs promise a person together holds only if nobody of them is in the owner's other tables, as the owner says. If
    the rows are of a later period, with a budget of its own, ``earlier_rows`` is how many there are before them.
    """

    run: Identifier
    spec_digest: str
    rounds: NonNegativeInt
    epsilon: Annotated[FiniteFloat, Field(ge=0)]
    delta: Annotated[FiniteFloat, Field(ge=0, le=1)]
    adjacency: Adjacency
    prepared: bool
    people: PlainName | None = None
    earlier_rows: Annotated[NonNegativeInt, Field(exclude_if=lambda rows: rows == 0)] = 0


_NOBODY = "nobody among "
_NO_RECORD = "no record that earlier runs were about is among the rows of "
_RESTS = ", as the owner says: what all runs together promise a person rests on it"


def assumptions_of(approvals: Mapping[str, SignedApproval]) -> tuple[str, ...]:
    """Return what owners say of people who have an account of their own, and of records that have a budget of theirs.

    It is in words, in the order of parties' names.

    Raises ValidationError for an approval that cannot be read.
    """
    read = {name: Approval.model_validate_json(approvals[name].approval) for name in sorted(approvals)}
    of_people = (
        f"{_NOBODY}{approval.people}, of {name}, is in its owner's tables of other people{_RESTS}"
        for name, approval in read.items()
        if approval.people is not None
    )
    of_periods = (
        f"{_NO_RECORD}{name} after its first {approval.earlier_rows:,}, which have a budget of their own{_RESTS}"
        for name, approval in read.items()
        if approval.earlier_rows
    )
    return (*of_people, *of_periods)


def is_of_people(assumption: str) -> bool:
    """Return whether an assumption is one of `assumptions_of`."""
    return assumption.startswith((_NOBODY, _NO_RECORD)) and assumption.endswith(_RESTS)
