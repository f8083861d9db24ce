"""All that a run is, in public terms: the specification that a learner proposes and every party approves by its hash.

`MemberColumns` are a run's parties as they are written: in columns, under a digest, so that a long list travels once. A
`Cohort` says who takes part in a run of parties that are not always there: how many at least and at most, and by when.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, JsonValue, field_serializer, field_validator, model_validator

from parley.common.algorithms import MOST_ROUNDS, build_algorithm, settlements
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.class_weights import ClassWeights, resolved_weights
from parley.common.data.columns import Label
from parley.common.data.study import ChargedRows, Study, count_held_out
from parley.common.encoding.canonical_json import canonical, canonical_digest, own_json
from parley.common.encoding.fixed_point import MAX_EXAMPLES
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import build_loss
from parley.common.privacy.calibration import LEAST_EPSILON, MOST_EPSILON, check_budget
from parley.common.privacy.guarantee import UNIT_NAMES, Adjacency, hides
from parley.common.protocol.algorithm import Algorithm, Choice
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Question
from parley.common.secure_sum.packing import MAX_CONTRIBUTORS
from parley.common.strict import Digest, Identifier, Name, Strict

MOST_PARTIES = 100_000


RunEpsilon = Annotated[float, Field(json_schema_extra={"minimum": LEAST_EPSILON, "maximum": MOST_EPSILON})]
RunDelta = Annotated[float, Field(json_schema_extra={"minimum": 0, "exclusiveMaximum": 1})]
"""Parts of a budget, with bounds that schemas state; `check_budget` holds them, and says in words what is wrong."""


class Budget(Strict):
    """An (epsilon, delta) that one run may cost a party."""

    epsilon: RunEpsilon
    delta: RunDelta

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        try:
            check_budget(self.epsilon, self.delta)
        except InvalidInputError as error:
            raise ValueError(error.detail) from None
        return self


Size = Annotated[int, Field(ge=1, le=MAX_EXAMPLES)]


class Member(Strict):
    """A party of a run: its name, the public size of its shard, and what the run may cost it."""

    name: Identifier
    n_examples: Size
    budget: Budget


class MemberColumns(Strict):
    """The members of a run by columns, each as long as there are members.

    ``budgets`` has each budget once, and ``budget_of`` the place there of each member's; of one budget that is all of
    them, ``budget_of`` is empty.
    """

    names: Annotated[tuple[Identifier, ...], Field(min_length=1, max_length=MOST_PARTIES)]
    n_examples: Annotated[tuple[Size, ...], Field(max_length=MOST_PARTIES)]
    budgets: Annotated[tuple[Budget, ...], Field(min_length=1, max_length=MOST_PARTIES)]
    budget_of: Annotated[tuple[Annotated[int, Field(ge=0, lt=MOST_PARTIES)], ...], Field(max_length=MOST_PARTIES)] = ()

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        k = len(self.names)
        if len(set(self.names)) != k:
            raise ValueError("a party is named twice")
        if len(self.n_examples) != k or len(self.budget_of) not in {0, k}:
            raise ValueError(f"columns of {k} parties must have {k} entries each")
        if (max(self.budget_of) if self.budget_of else 0) != len(self.budgets) - 1:
            raise ValueError("budgets must be those that parties have")
        return self

    @classmethod
    def of(cls, parties: Sequence[Member]) -> Self:
        """Return the columns of members, in their order."""
        places = {budget: place for place, budget in enumerate(dict.fromkeys(member.budget for member in parties))}
        return cls(
            names=tuple(member.name for member in parties),
            n_examples=tuple(member.n_examples for member in parties),
            budgets=tuple(places),
            budget_of=tuple(places[member.budget] for member in parties) if len(places) > 1 else (),
        )

    @property
    def parties(self) -> tuple[Member, ...]:
        """The members, in order; their fields were checked in the columns."""
        budgets = map(self.budgets.__getitem__, self.budget_of or (0,) * len(self.names))
        return tuple(
            Member.model_construct(name=name, n_examples=n, budget=budget)
            for name, n, budget in zip(self.names, self.n_examples, budgets, strict=True)
        )

    @cached_property
    def digest(self) -> Digest:
        """SHA-256 of the canonical JSON."""
        return canonical_digest(self.model_dump(mode="json"))


SecureSumKind = Literal["none", "paillier"]
MAX_WIDTH = 2**24
"""The widest public row."""
_LEAST_IN_A_SUM = 2


class PublicRows(Strict):
    """Rows that are no secret and that a run asks about: how many, of how many numbers, and which.

    ``digest`` is SHA-256, in hexadecimal, over the rows as little-endian float64 in C order, in the study's design.
    """

    digest: Digest
    rows: Annotated[int, Field(ge=1, le=MAX_EXAMPLES)]
    width: Annotated[int, Field(ge=1, le=MAX_WIDTH)]

    @classmethod
    def of(cls, rows: FloatArray) -> Self:
        """Return the name of rows (n, width)."""
        return cls(digest=digest_of_rows(rows), rows=rows.shape[0], width=rows.shape[1])


def _hides_too_little(outline: RunOutline, hidden: Adjacency) -> str:
    """Return why an algorithm does not hide what a run must hide."""
    name, unit = outline.algorithm, UNIT_NAMES[hidden]
    if outline.adjacency == "whole_party":
        return (
            f"the run must hide whole parties, and {name} hides one {unit} each: its noise is scaled to the norm of "
            f"one {unit}'s part, not to all that a party holds"
        )
    if hidden == "whole_party":
        return (
            f"the run must hide persons who have rows with up to {outline.overlap} owners, and {name} hides all that "
            "one owner holds: with two of them a person is two owners' data"
        )
    return (
        f"the run must hide persons, and the study {outline.study.name} names no column that says whose a row is: it "
        'needs person = {"column": ...}, which its owners agree on'
    )


_OF_WU = frozenset({"wu_strongly_convex", "wu_subgradient"})


def digest_as_written(text: str) -> str:
    """Return the digest that a specification had for the version that wrote it; the first versions listed members."""
    content: dict[str, Any] = own_json(text)
    if isinstance(content["parties"], dict):
        content["parties"] = canonical_digest(content["parties"])
    return canonical_digest(content)


def digest_of_rows(rows: FloatArray) -> str:
    """Return SHA-256 of rows as `PublicRows` names them."""
    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<f8").data).hexdigest()


class RunOutline(Strict):
    """What a run is, without its parties.

    ``answer_every`` is r: a party that misses r rounds in a row is dropped. Above 1, rounds are asynchronous.
    ``adjacency`` is the least that the run must hide: an algorithm that hides whole parties hides records too.
    ``public`` names the public rows that the run asks about, if it does. ``class_weights`` replace those of the study.
    ``overlap`` is s: the same person, or record, may be with so many of the owners, and is hidden at all of them.
    """

    study: Study
    algorithm: Name
    parameters: Annotated[dict[str, JsonValue], Field(default_factory=dict)]
    minimum_contributors: Annotated[int, Field(ge=1)]
    colluders: Annotated[int, Field(ge=0)] = 0
    secure_sum: SecureSumKind = "none"
    answer_every: Annotated[int, Field(ge=1)] = 1
    adjacency: Adjacency = "replace_one"
    public: PublicRows | None = None
    class_weights: Annotated[ClassWeights | None, Field(exclude_if=lambda stated: stated is None)] = None
    overlap: Annotated[
        int,
        Field(ge=1, le=MOST_PARTIES, description="with how many of the owners the same person may have rows"),
        Field(exclude_if=lambda stated: stated == 1),
    ] = 1

    @model_validator(mode="before")
    @classmethod
    def _take_kappa(cls, values: object) -> object:
        """Read Wu et al.'s kappa, a parameter of their algorithms in earlier versions, as the run's overlap."""
        if not isinstance(values, dict):
            return values
        parameters = values.get("parameters")
        if not isinstance(parameters, dict) or "overlap" not in parameters or values.get("overlap", 1) != 1:
            return values
        others = {name: value for name, value in parameters.items() if name != "overlap"}
        return values | {"overlap": parameters["overlap"], "parameters": others}

    @model_validator(mode="after")
    def _class_weights_fit(self) -> Self:
        resolved_weights(self.class_weights, self.study.label)
        return self

    @property
    def weights_of_classes(self) -> tuple[float, ...]:
        """The weight in training of each class of the label, in order; empty if all are 1."""
        own = self.class_weights
        return self.study.weights_of_classes if own is None else resolved_weights(own, self.study.label)

    @property
    def named_class_weights(self) -> dict[str, float] | None:
        """The weight in training of each class, by name; None if all are 1, and for a real label."""
        label, weights = self.study.label, self.weights_of_classes
        return dict(zip(label.values, weights, strict=True)) if isinstance(label, Label) and weights else None

    @model_validator(mode="after")
    def _parameters_have_a_spelling(self) -> Self:
        try:
            canonical(self.parameters)
        except ValueError:
            raise ValueError("parameters must be JSON: finite numbers and valid text") from None
        return self

    @property
    def charged_rows(self) -> ChargedRows | None:
        """The rows to which the run is charged: a record elsewhere loses nothing by it. None for any that a party has.

        A run that hides all that a party holds is charged to any.
        """
        algorithm = build_algorithm(self.algorithm)
        if algorithm.adjacency == "whole_party":
            return None
        return "all" if self.study.hold_out is None else algorithm.rows

    def digest_among(self, members: Digest) -> str:
        """Return SHA-256 of the canonical JSON, with the ``members``' digest in place of the members.

        Of Wu et al.'s algorithms the overlap is among the parameters, as it was for earlier versions: what was signed
        of such runs still holds.
        """
        content = self.model_dump(mode="json", exclude={"parties"}) | {"parties": members}
        if self.algorithm in _OF_WU and "overlap" in content:
            content["parameters"] |= {"overlap": content.pop("overlap")}
        return canonical_digest(content)


class RunSpec(RunOutline):
    """All that a run is, public: what the learner proposes and every party approves, named by its hash.

    As JSON its ``parties`` are `MemberColumns`.
    """

    parties: Annotated[tuple[Member, ...], Field(min_length=1, max_length=MOST_PARTIES)]

    @field_validator("parties", mode="before")
    @classmethod
    def _read_columns(cls, value: object) -> object:
        return MemberColumns.model_validate(value).parties if isinstance(value, dict) else value

    @field_serializer("parties")
    def _write_columns(self, _: tuple[Member, ...]) -> dict[str, Any]:
        return self.members.model_dump(mode="json")

    @model_validator(mode="after")
    def _parties_distinct(self) -> Self:
        names = self.names
        if len(set(names)) != len(names):
            raise ValueError("a party is named twice")
        return self

    @model_validator(mode="after")
    def _sums_hide(self) -> Self:
        if self.secure_sum == "none":
            return self
        if self.minimum_contributors < _LEAST_IN_A_SUM:
            raise ValueError(f"a secure sum hides nothing below minimum_contributors = {_LEAST_IN_A_SUM}")
        if len(self.parties) > MAX_CONTRIBUTORS:
            raise ValueError(
                f"a secure sum has at most {MAX_CONTRIBUTORS} parties, and the run names {len(self.parties)}"
            )
        return self

    @cached_property
    def members(self) -> MemberColumns:
        """The parties in columns."""
        return MemberColumns.of(self.parties)

    @property
    def names(self) -> tuple[str, ...]:
        """The parties' names in order."""
        return tuple(member.name for member in self.parties)

    @cached_property
    def digest(self) -> str:
        """The name under which parties approve the run; see `digest_among`."""
        return self.digest_among(self.members.digest)

    @classmethod
    def read(cls, text: str, digest: str) -> Self:
        """Read a stored specification. Raises ValueError unless it has this digest, now or when it was written.

        A field that a later version added is not in the text of an older one, whose digest is without it.
        """
        spec = cls.model_validate_json(text)
        if spec.digest != digest != digest_as_written(text):
            raise ValueError("digest")
        return spec

    def build(self) -> Algorithm:
        """Build the algorithm with its parameters. Raises InvalidInputError, also if it hides less than it must."""
        algorithm = build_algorithm(self.algorithm, self.parameters)
        hidden = algorithm.adjacency_of(self.study.unit)
        if not hides(hidden, self.adjacency, self.overlap):
            raise InvalidInputError(_hides_too_little(self, hidden))
        return algorithm

    def settled(self, most_rounds: int = MOST_ROUNDS) -> tuple[Self, dict[str, Choice]]:
        """Return the run with all open parameters chosen, in at most ``most_rounds`` rounds; and the choices, by name.

        Raises InvalidInputError for parameters that are wrong, or that nothing chooses.
        """
        return next(self.candidates(most_rounds))

    def candidates(self, most_rounds: int = MOST_ROUNDS) -> Iterator[tuple[Self, dict[str, Choice]]]:
        """Yield what `settled` returns, and then the run with other choices, the most accurate first.

        The first raises what `settled` does.
        """
        for _, choices in settlements(self.algorithm, self.parameters, self.facts(), most_rounds):
            chosen = self.parameters | {name: choice.value for name, choice in choices.items()}
            yield self.model_copy(update={"parameters": chosen}), choices

    def questions(self) -> tuple[Question, ...]:
        """Return what each round asks, (rounds,).

        Raises InvalidInputError if algorithm and terms contradict each other.
        """
        algorithm = self.build()
        if algorithm.rows == "held_out" and self.study.hold_out is None:
            raise InvalidInputError(f"{self.algorithm} is about held-out rows, and the study's hold_out is not set")
        facts = self.facts()
        algorithm.check_rows(facts)
        questions = algorithm.questions(facts)
        asks = algorithm.public_rows != "none" or any(question.public for question in questions)
        if self.public is not None and not asks:
            raise InvalidInputError(f"the run names public rows, and {self.algorithm} asks about none of their shape")
        return questions

    def facts(self, public: FloatArray | None = None) -> FederationFacts:
        """Return the facts that all agree on, with the ``public`` rows if they are at hand.

        Raises InvalidInputError if the terms contradict each other.
        """
        facts = FederationFacts(
            parties=self.names,
            n_examples=self._sizes(),
            epsilon=np.array([member.budget.epsilon for member in self.parties]),
            delta=np.array([member.budget.delta for member in self.parties]),
            n_features=self.study.n_features,
            loss=build_loss(self.study, self.weights_of_classes),
            minimum_contributors=self.minimum_contributors,
            colluders=self.colluders,
            secure_sum=self.secure_sum != "none",
            public_shape=(self.public.rows, self.public.width) if self.public else None,
            public=public,
            study=self.study,
            norm=self.study.norm,
            row_entries=self.study.row_entries,
            unit=self.study.unit,
            most_rows=self.study.most_rows,
        )
        if self.overlap == 1:
            return facts
        return facts.with_overlap(
            self.overlap, is_gaussian=build_algorithm(self.algorithm, self.parameters).noise_is_gaussian
        )

    def with_sizes(self, sizes: Mapping[str, int]) -> Self:
        """Return the run with the sizes of its parties' shards, by name.

        Raises InvalidInputError if too few rows can be held out.
        """
        members = (Member(name=m.name, n_examples=sizes[m.name], budget=m.budget) for m in self.parties)
        sized = self.model_copy(update={"parties": tuple(members)})
        sized.check_hold_out()
        return sized

    def with_budgets(self, budgets: Mapping[str, Budget]) -> Self:
        """Return the run with other budgets of its parties, by name."""
        members = (member.model_copy(update={"budget": budgets[member.name]}) for member in self.parties)
        return self.model_copy(update={"parties": tuple(members)})

    def check_hold_out(self) -> None:
        """Raise InvalidInputError that names a party, of known size, which holds out none of the rows of this run.

        Every party has rows left to train on, because a share is below 1.
        """
        if (share := self.study.hold_out) is None or build_algorithm(self.algorithm).rows != "held_out":
            return
        for member in self.parties:
            if not count_held_out(member.n_examples, share):
                raise InvalidInputError(
                    f"the study's hold_out = {share:g} leaves none of the {member.n_examples} rows of {member.name} to "
                    "evaluate on"
                )

    def _sizes(self) -> IntArray:
        """Return how many rows the run is about at each party, (K,); for drafts, with sizes of 1, it may be none."""
        sizes = np.array([member.n_examples for member in self.parties])
        if self.study.hold_out is None:
            return sizes
        held_out = count_held_out(sizes, self.study.hold_out)
        return held_out if build_algorithm(self.algorithm).rows == "held_out" else sizes - held_out

    def among(self, names: Collection[str]) -> Self:
        """Return the run among those of its parties that are named: a person is with no more owners than these."""
        parties = tuple(member for member in self.parties if member.name in names)
        return self.model_copy(update={"parties": parties, "overlap": min(self.overlap, max(len(parties), 1))})

    def index(self, party: str) -> int:
        """Return a party's index. Raises InvalidInputError if the run does not name it."""
        if party not in self.names:
            raise InvalidInputError(f"the run does not name the party {party!r}")
        return self.names.index(party)


CHANGED_STUDY = (
    "{} has other settings than this learner's: they changed (hold_out, a bound, a value ...) after owners had agreed. "
    "Give the changed study a new name and invite owners to it, or put its old file back"
)
"""The refusal of a study, named by ``{}``, that is no longer what an owner agreed on."""


class Cohort(Strict):
    """A rule by which those who answer while a run recruits become its members; who does not is asked nothing later.

    >>> Cohort(least=2, most=2).of("run-1", ("ann", "bob", "eve"))
    ('ann', 'eve')
    """

    least: Annotated[int, Field(ge=1, description="how many parties must answer for the run to begin")]
    most: Annotated[
        int | None,
        Field(ge=1, description="of more than so many, those whose SHA-256 over 'RUN NAME' comes first take part"),
    ] = None
    seconds: Annotated[float, Field(gt=0, le=3600, description="how long those who do not answer are waited for")] = 30
    owner_hours: Annotated[
        float,
        Field(
            ge=0, le=8760, description="how long owners who are asked for their yes are waited for; 0 waits for none"
        ),
    ] = 24

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.most is not None and self.most < self.least:
            raise ValueError(f"most = {self.most} is below least = {self.least}")
        return self

    def of(self, run: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return the members of a run among those who answered, in their order.

        Anyone who knows the names can draw them again: they follow from the run's name, which is older than any answer.
        """
        if self.most is None or len(names) <= self.most:
            return tuple(names)
        drawn = set(sorted(names, key=lambda name: hashlib.sha256(f"{run} {name}".encode()).digest())[: self.most])
        return tuple(name for name in names if name in drawn)
