"""An owner's rules for one run, and which of them a run breaks: one reading, for party and learner.

A party reads them when a run is proposed, and refuses by the first that is broken; a learner reads them as the party
reports them, and says which it would refuse by, before anyone is asked. Pure, and in public terms alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveInt

from parley.common.encoding.texts import so_many
from parley.common.privacy.account import DELTA_UNITS, MICRO, Cost, limit
from parley.common.privacy.guarantee import UNIT_NAMES, Adjacency, View, hides
from parley.common.runs.pricing import lengths, limit_of
from parley.common.strict import Digest, Name, PlainName, Strict

if TYPE_CHECKING:
    from parley.common.data.study import Study
    from parley.common.protocol.algorithm import Algorithm
    from parley.common.runs.specification import Member, RunSpec

NO_SUMS = "the owner pins no public key of {}, so there is no secure sum"
NO_KEY_HOLDER = NO_SUMS.format("key holders") + (
    ": ask a key holder's operator for its six words, by telephone, and say parley-party pin NAME WORDS"
)

Objection = tuple[str, str]
"""The rule that a run breaks, by its name in a party's settings, and the reason in words."""


class OwnerRules(Strict):
    """An owner's rules for one run, by the names that its settings have for them.

    Telling them harms no owner: they say what it wants, nothing about its data, and a learner that may ask finds the
    figures by runs that are refused, for nothing. ``public_rows`` are digests, which reveal only to someone who has the
    rows that these are allowed. What the owner alone decides, such as the classifier that it trains, is not among them,
    nor is whom it trusts. ``person`` is the column of its table that says whose a row is, if the owner has pinned one;
    it is left out where there is none. ``overlap`` is with how many of a run's owners the same person may be, as the
    owner says; it is left out where that is one.
    """

    algorithms: tuple[PlainName, ...]
    view: View
    adjacency: Adjacency
    minimum_contributors: NonNegativeInt
    colluders: NonNegativeInt
    require_secure_sum: bool
    max_epsilon_per_run: FiniteFloat
    max_delta_per_run: FiniteFloat
    max_rounds: PositiveInt
    public_rows: tuple[Digest, ...] | None
    round_bytes: NonNegativeInt
    body_bytes: NonNegativeInt
    person: Annotated[Name | None, Field(exclude_if=lambda column: column is None)] = None
    overlap: Annotated[PositiveInt, Field(exclude_if=lambda owners: owners == 1)] = 1


@dataclass(frozen=True, slots=True)
class ReviewedRun:
    """A run as owners review it; ``longest`` are the bytes of its longest question and answer."""

    spec: RunSpec
    algorithm: Algorithm
    n_rounds: int
    reveals_each: bool
    longest: tuple[int, int]

    @classmethod
    def of(cls, spec: RunSpec) -> Self:
        """Build a review. Raises InvalidInputError if the run's terms contradict each other."""
        questions = spec.questions()
        reveals_each = any(question.reveal != "sum" for question in questions)
        return cls(spec, spec.build(), len(questions), reveals_each, lengths(questions))

    def objections(self, member: Member, rules: OwnerRules, compared: Collection[str] | None) -> Iterator[Objection]:
        """Yield which of its owner's rules the run would break at a party that is a ``member`` of it.

        ``compared`` are the parties whose keys the owner has compared; None if it has no secure sums. `dear` judges the
        run's cost.
        """
        spec, name = self.spec, self.spec.algorithm
        is_sum = spec.secure_sum != "none"
        if is_sum and compared is None:
            yield "secure_sum", NO_KEY_HOLDER
        if name not in rules.algorithms:
            yield "algorithms", f"the owner does not allow {name}"
        if self.algorithm.curator and len(spec.parties) > 1:
            yield "algorithms", f"{name} needs a curator who holds all data"
        if reason := _hides_others(spec.study, rules):
            yield "person", reason
        hidden = self.algorithm.adjacency_of(spec.study.unit)
        if reason := _hides_too_little(hidden, rules, name, spec.overlap):
            yield "adjacency", reason
        if spec.overlap < (least := min(rules.overlap, len(spec.parties))):
            whose = f"the same {UNIT_NAMES[spec.study.unit]} may be with {least} of the run's owners"
            yield "overlap", f"{whose}, as this one says, and the run counts on {spec.overlap} at most"
        if spec.public and rules.public_rows is not None and spec.public.digest not in rules.public_rows:
            yield "public_rows", "the owner does not allow these public rows"
        if self.n_rounds > rules.max_rounds:
            yield "max_rounds", f"a run may have at most {so_many(rules.max_rounds, 'round')}"
        if is_sum and self.reveals_each:
            yield "secure_sum", f"{name} reveals each answer, so it has no secure sum"
        yield from self._weak_terms(member, rules, spec.names if compared is None else compared)
        yield from self._long_bodies(rules)

    def _weak_terms(self, member: Member, rules: OwnerRules, compared: Collection[str]) -> Iterator[Objection]:
        """Yield terms by which a run promises too little, or hides too few among too few.

        The learner may be behind all parties whose keys the owner has not compared.
        """
        spec, budget = self.spec, member.budget
        is_sum = spec.secure_sum != "none"
        strangers = len(set(spec.names) - {member.name, *compared}) if is_sum else 0
        reason = (
            f": the keys of {strangers} of its parties are not pinned, so each may be the learner's (parley-party pin)"
            if strangers
            else ""
        )
        fewest, colluders = rules.minimum_contributors + strangers, rules.colluders + strangers
        if budget.epsilon > rules.max_epsilon_per_run:
            yield "max_epsilon_per_run", f"one run may cost at most epsilon {rules.max_epsilon_per_run:g}"
        if budget.delta > rules.max_delta_per_run:
            yield "max_delta_per_run", f"one run may cost at most delta {rules.max_delta_per_run:g}"
        if spec.minimum_contributors < fewest:
            yield "minimum_contributors", f"each sum needs at least {fewest} contributors{reason}"
        if rules.require_secure_sum and not is_sum:
            yield "require_secure_sum", "the owner requires a secure sum"
        if is_sum and spec.colluders < colluders:
            yield "colluders", f"shared noise must tolerate at least {colluders} colluders{reason}"

    def _long_bodies(self, rules: OwnerRules) -> Iterator[Objection]:
        """Yield questions or answers that are longer than the party accepts or gives."""
        name = limit_of(self.spec)
        most = getattr(rules, name)
        if max(self.longest) > most:
            question_bytes, answer_bytes = self.longest
            reason = f"the run's questions have up to {question_bytes} bytes and its answers {answer_bytes}"
            yield f"limits.{name}", f"{reason}, and this party's limits.{name} is {most}"


def dear(cost: Cost, adjacency: Adjacency, rules: OwnerRules) -> Iterator[Objection]:
    """Yield which of its owner's rules a run breaks by its cost, also a party's own runs; it hides by ``adjacency``."""
    if reason := _hides_too_little(adjacency, rules, "the run"):
        yield "adjacency", reason
    most = limit(rules.max_epsilon_per_run, rules.max_delta_per_run)
    for name, costs, may, unit in (
        ("epsilon", cost.epsilon, most.epsilon_limit, MICRO),
        ("delta", cost.delta, most.delta_limit, DELTA_UNITS),
    ):
        if costs > may:
            reason = f"the run costs {name} {costs / unit:g} in the owner's {rules.view} view"
            yield f"max_{name}_per_run", f"{reason}; one may cost {may / unit:g}"


def _hides_too_little(adjacency: Adjacency, rules: OwnerRules, subject: str, overlap: int = 1) -> str | None:
    """Return why the owner does not accept a run that hides by this adjacency, or None."""
    if hides(adjacency, rules.adjacency, overlap):
        return None
    if rules.adjacency == "whole_party":
        return f"the owner protects all its data at once, and {subject} protects one {UNIT_NAMES[adjacency]}"
    if adjacency == "whole_party":
        return (
            f"the owner protects each person, who may have rows with up to {overlap} of the owners, and {subject} "
            "hides all that one of them holds: take an algorithm that hides persons, or an overlap of 1 if it is true"
        )
    column = "..." if rules.person is None else rules.person
    return (
        f"the owner protects each person, all rows at once, and {subject} protects one record: agree with the owners "
        f'on a study that says whose a row is, person = {{"column": "{column}"}}'
    )


def refuses_study(study: Study, rules: OwnerRules) -> str | None:
    """Return why the owner refuses all runs about a study that hide what the study says, or None.

    An owner who hides all of its data takes runs that do so, of any study.
    """
    if (reason := _hides_others(study, rules)) or rules.adjacency == "whole_party":
        return reason
    return _hides_too_little(study.unit, rules, f"a run about {study.name}")


def _hides_others(study: Study, rules: OwnerRules) -> str | None:
    """Return why the owner does not accept whom a study takes for a person, or None.

    The owner alone says which column of its table that is: a learner that names the number of a row as the person would
    make persons of rows, and their promise that to a record.
    """
    column = study.person.column if study.person else None
    if column == rules.person:
        return None
    if column is None:
        return (
            f"the owner's rows belong to persons by the column {rules.person!r}, and the study {study.name} names no "
            f'person: agree with the owners on one with person = {{"column": "{rules.person}"}}'
        )
    if rules.person is None:
        return (
            f"the study {study.name} takes {column!r} for the column that says whose a row is, and the owner has not "
            f'pinned it: if it is that, the owner says data.person = "{column}" in its settings'
        )
    return (
        f"the study {study.name} takes {column!r} for the column that says whose a row is, and the owner pins "
        f"{rules.person!r}: agree with the owners on a study with that"
    )
