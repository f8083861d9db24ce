"""What users and the learner say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, Field, JsonValue, ValidationError

from common.data.study import Study
from common.encoding.fixed_point import MAX_EXAMPLES
from common.errors import InvalidInputError
from common.privacy.calibration import check_budget
from common.privacy.guarantee import Adjacency
from common.runs.specification import Budget, Member, PublicRows, RunSpec, SecureSumKind
from common.secure_sum.envelope import Signed
from common.secure_sum.messages import Opened, Roster, RosterKeyHolder
from common.strict import Digest, Identifier, Name, Strict, faults
from common.wire.party_api import PartyFacts
from learner.run import Run, RunState
from learner.storage.public_rows import PublicRowStore
from learner.storage.session_store import Opening


class RunRequest(Strict):
    """What to train. Unless said otherwise: on all parties of the roster, all of which must contribute to every sum."""

    study: Annotated[Name | Study, Field(description="the name of a study the learner knows, or a study")]
    algorithm: Annotated[Name, Field(description="see GET /v1/algorithms")] = "dp_gd"
    parameters: Annotated[dict[str, JsonValue], Field(default_factory=dict, description="of the algorithm")]
    epsilon: Annotated[float, Field(description="what the run may cost each party")]
    delta: Annotated[float, Field(description="what the run may cost each party")]
    budgets: Annotated[dict[str, Budget], Field(default_factory=dict, description="by party: other than the above")]
    parties: Annotated[tuple[str, ...] | None, Field(description="names from GET /v1/parties")] = None
    minimum_contributors: Annotated[int | None, Field(ge=1, description="least number of parties in a sum")] = None
    colluders: Annotated[int, Field(ge=0, description="parties whose noise may be subtracted")] = 0
    secure_sum: Annotated[
        SecureSumKind, Field(description="paillier: the learner sees the sum of the answers alone")
    ] = "none"
    adjacency: Annotated[
        Adjacency,
        Field(description="what the run must hide: one record (replace_one), or all data of a party (whole_party)"),
    ] = "replace_one"
    public: Annotated[
        Digest | None, Field(description="digest of the public rows to ask about; see PUT /v1/public")
    ] = None
    answer_every: Annotated[
        int,
        Field(
            ge=1,
            description="asynchronous rounds, above 1: a round goes on without the silent parties, which are asked "
            "again, and dropped when they miss so many rounds in a row; their ledgers charge the rounds that they "
            "missed with the next one that they answer. Needs minimum_contributors below the number of parties",
        ),
    ] = 1

    imagines_curator: ClassVar[bool] = False
    """Whether a curator's algorithm may be meant for several parties, who would hand their data over."""

    def draft(self, studies: Mapping[str, Study], roster: Mapping[str, object], rows: PublicRowStore) -> RunSpec:
        """The run's specification but for the sizes of the shards, which stand as 1.

        Raises InvalidInputError that names whatever is unknown or contradicts itself, and the values out of range.
        """
        check_budget(self.epsilon, self.delta)
        names = self._members(roster)
        common = Budget(epsilon=self.epsilon, delta=self.delta)
        try:
            draft = RunSpec(
                study=self._study(studies),
                algorithm=self.algorithm,
                parameters=self.parameters,
                parties=tuple(Member(name=name, n_examples=1, budget=self.budgets.get(name, common)) for name in names),
                minimum_contributors=self.minimum_contributors or len(names),
                colluders=self.colluders,
                secure_sum=self.secure_sum,
                answer_every=self.answer_every,
                adjacency=self.adjacency,
                public=None if self.public is None else rows.find(self.public),
            )
        except ValidationError as error:
            raise InvalidInputError(faults(error)) from None
        self._check_program(draft)
        return draft

    def _check_program(self, draft: RunSpec) -> None:
        """Raise InvalidInputError where the algorithm cannot be run among these parties as they are asked to answer."""
        questions, facts, algorithm = draft.questions(), draft.facts(), draft.build()
        if draft.answer_every > 1 and draft.minimum_contributors == len(draft.parties):
            raise InvalidInputError("answer_every above 1 needs minimum_contributors below the number of parties")
        if algorithm.curator and len(draft.parties) > 1 and not self.imagines_curator:
            raise InvalidInputError(f"{self.algorithm} needs a trusted curator who holds all data: name one party")
        if facts.secure_sum and any(question.reveal != "sum" for question in questions):
            raise InvalidInputError(f"{self.algorithm} asks for each party's answer, which a secure sum never shows")
        if not facts.delta.all():
            algorithm.event(1, facts.of(int(facts.delta.argmin())))  # refused where its noise needs a delta

    def _study(self, studies: Mapping[str, Study]) -> Study:
        if isinstance(self.study, Study):
            return self.study
        if self.study not in studies:
            raise InvalidInputError(f"unknown study {self.study!r}; there are {', '.join(sorted(studies)) or 'none'}")
        return studies[self.study]

    def _members(self, roster: Mapping[str, object]) -> tuple[str, ...]:
        names = tuple(roster) if self.parties is None else self.parties
        if not names or len(set(names)) != len(names):
            raise InvalidInputError("parties must name at least one party, and none twice")
        for field, given, known in (("parties", names, roster), ("budgets", self.budgets, names)):
            if unknown := sorted(set(given) - set(known)):
                raise InvalidInputError(f"{field} names unknown parties: {', '.join(unknown[:5])}")
        return names


class ForecastRequest(RunRequest):
    """A run that may be asked for, and who would take part: by default the parties of the roster, who are asked."""

    imagines_curator: ClassVar[bool] = True

    owners: Annotated[
        dict[Identifier, Annotated[int, Field(ge=1, le=MAX_EXAMPLES)]] | None,
        Field(min_length=1, description="by name: how many examples each owner holds; then no party is asked"),
    ] = None


class RoundsView(BaseModel):
    """How far a run is."""

    done: int
    of: int


class RunView(BaseModel):
    """A run as users see it; ``problem`` is the problem document of a failed run."""

    id: str
    user: str
    created: str
    state: RunState
    study: str
    algorithm: str
    parameters: dict[str, JsonValue]
    parties: tuple[str, ...]
    epsilon: dict[str, float]
    minimum_contributors: int
    answer_every: int
    secure_sum: SecureSumKind
    key_holders: tuple[str, ...]
    adjacency: Adjacency
    public: PublicRows | None
    spec_digest: str
    rounds: RoundsView
    problem: dict[str, Any] | None

    @classmethod
    def of(cls, run: Run) -> Self:
        """The view of a run."""
        spec = run.spec
        return cls(
            id=run.id,
            user=run.user,
            created=run.created,
            state=run.state,
            study=spec.study.name,
            algorithm=spec.algorithm,
            parameters=spec.parameters,
            parties=spec.names,
            epsilon={member.name: member.budget.epsilon for member in spec.parties},
            minimum_contributors=spec.minimum_contributors,
            answer_every=spec.answer_every,
            secure_sum=spec.secure_sum,
            key_holders=run.key_holders,
            adjacency=spec.build().adjacency,
            public=spec.public,
            spec_digest=spec.digest,
            rounds=RoundsView(done=run.rounds, of=len(spec.questions())),
            problem=None if run.problem is None else dict(run.problem),
        )


class SignedReceipt(BaseModel):
    """What a key holder signed of a round: Ed25519 over the ``tag``, a zero byte and the ``statement``."""

    key_holder: str
    public_key: str
    tag: str
    statement: str
    signature: str

    @classmethod
    def of(cls, holder: RosterKeyHolder, receipt: Signed) -> Self:
        """The receipt of a key holder of the roster."""
        return cls(
            key_holder=holder.name,
            public_key=holder.key,
            tag=Opened.TAG,
            statement=receipt.body.decode(),
            signature=receipt.signature.hex(),
        )


class OpenedRound(BaseModel):
    """A round whose sum the key holders opened."""

    round: int
    contributors: tuple[str, ...]
    receipts: tuple[SignedReceipt, ...]

    @classmethod
    def of(cls, opening: Opening, parties: tuple[str, ...], roster: Roster) -> Self:
        """The view of an opening in a run of these parties."""
        return cls(
            round=opening.round,
            contributors=tuple(parties[index] for index in opening.contributors),
            receipts=tuple(SignedReceipt.of(holder, opening.receipts[holder.name]) for holder in roster.key_holders),
        )


class PartyView(BaseModel):
    """A party of the roster: its public facts, or the problem that keeps it from telling them."""

    name: Identifier
    url: str
    facts: PartyFacts | None
    problem: dict[str, Any] | None


class AlgorithmView(BaseModel):
    """An algorithm: what it is, whether a trusted curator must hold all data, the JSON Schema of its parameters."""

    summary: str
    curator: bool
    parameters: dict[str, Any]


class PredictionRequest(Strict):
    """Records {feature: value} to predict for; a category's value is text, and null is missing."""

    records: Annotated[tuple[dict[str, float | str | None], ...], Field(min_length=1, max_length=100_000)]


class Prediction(BaseModel):
    """The label that a record predicts, its score, and its probability if the loss fits one; see `predict`."""

    label: str | float
    score: float
    probability: float | None
    probabilities: dict[str, float] | None
