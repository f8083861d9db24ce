"""Defines what the learner answers its users."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from fastapi import Path, Query
from pydantic import BaseModel, Field, JsonValue

from parley.common.data.study import Study, StudyKind
from parley.common.encoding.fixed_point import Norm
from parley.common.privacy.guarantee import Adjacency
from parley.common.runs.specification import Cohort, PublicRows, SecureSumKind
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.messages import Opened, Roster, RosterKeyHolder
from parley.common.service.problems import ProblemDocument
from parley.common.strict import Digest, Identifier
from parley.common.wire.party_api import BudgetReport, PartyFacts
from parley.learner.runs.run import Pause, Run
from parley.learner.runs.states import RunState
from parley.learner.settings import UserRole
from parley.learner.storage.session_store import Opening


class UserView(BaseModel):
    """The caller: a user's name in the settings or at the identity provider, its role, and what people call it."""

    name: str
    role: UserRole
    title: str


class NewestReceipt(BaseModel):
    """The newest receipt that the learner holds of a party or key holder."""

    signer: str
    receipt: Annotated[str, Field(description="as it stood in the header Parley-Receipt")]


class RoundsView(BaseModel):
    """How many rounds of a run are done, and of how many."""

    done: int
    of: int


class PauseView(BaseModel):
    """Why a run stands still, which parties and key holders it waits for, since when, and whether this is stored."""

    reason: str
    who: tuple[str, ...]
    since: str
    written: Annotated[bool, Field(description="false while the learner's own store cannot be written")]


class RunView(BaseModel):
    """A run as users see it; ``problem`` is the problem document of a failed run.

    ``pause`` is set while a run stands still: it is paused, or it recruits and waits until owners agree.
    """

    id: str
    user: str
    purpose: str
    created: str
    state: RunState
    study: str
    algorithm: str
    parameters: dict[str, JsonValue]
    parties: tuple[str, ...]
    epsilon: dict[str, float]
    minimum_contributors: int
    colluders: int
    answer_every: int
    secure_sum: SecureSumKind
    key_holders: tuple[str, ...]
    adjacency: Adjacency
    overlap: Annotated[
        int, Field(description="with how many of the parties the same person, or record, may be: hidden at all of them")
    ]
    public: PublicRows | None
    class_weights: Annotated[
        dict[str, float] | None, Field(description="by class, the weight of its rows in training; null: all are 1")
    ]
    evaluates: Annotated[str | None, Field(description="the run whose model this one evaluates")]
    evaluations: Annotated[tuple[str, ...], Field(description="the runs that evaluate this one's model, oldest first")]
    threshold: Annotated[str | None, Field(description="the rule for the model's threshold; null: it is 0")] = None
    spec_digest: str
    seconds: float
    chosen: dict[str, str]
    cohort: Cohort | None
    absent: Annotated[dict[str, str], Field(description="by party: why one that was asked takes no part")]
    cautions: Annotated[tuple[str, ...], Field(description="what parameters and budgets do that may not be meant")] = ()
    evaluation: Annotated[
        str | None,
        Field(
            description="in words: what part of the budget evaluates the model on how many held-out rows or "
            "persons, or why none does. Null until sizes are known, and for a run that has nothing to say of it"
        ),
    ] = None
    rounds: RoundsView
    problem: ProblemDocument | None
    pause: PauseView | None

    @classmethod
    def of(cls, run: Run, unwritten: Pause | None = None) -> Self:
        """Return the view of a run; ``unwritten`` is a pause that the store could not write."""
        pause = unwritten or run.pause
        return cls(
            id=run.id,
            user=run.user,
            purpose=run.purpose,
            created=run.created,
            state="paused" if unwritten else run.state,
            key_holders=run.key_holders,
            evaluates=run.evaluates,
            evaluations=run.evaluations,
            threshold=run.threshold,
            pause=pause and PauseView(**pause.to_json(), written=unwritten is None),
            rounds=RoundsView(done=run.rounds, of=run.terms.n_rounds),
            problem=None if run.problem is None else ProblemDocument.model_validate(run.problem),
            **{name: term for name, term in run.terms if name not in {"n_rounds", "any_algorithm", "may_evaluate"}},
        )


class ListedRun(BaseModel):
    """A run as a list shows it, named as in `RunView`; ``epsilon`` is the largest of what it may cost a party."""

    id: str
    user: str
    purpose: str
    created: str
    state: RunState
    study: str
    algorithm: str
    epsilon: float
    secure_sum: SecureSumKind
    evaluates: str | None
    rounds: RoundsView
    problem: ProblemDocument | None
    pause: PauseView | None

    @classmethod
    def of(cls, run: Run, unwritten: Pause | None = None) -> Self:
        """Return the summary of a run; ``unwritten`` is a pause that the store could not write."""
        pause, terms = unwritten or run.pause, run.terms
        return cls(
            id=run.id,
            user=run.user,
            purpose=run.purpose,
            created=run.created,
            state="paused" if unwritten else run.state,
            study=terms.study,
            algorithm=terms.algorithm,
            epsilon=max(terms.epsilon.values()),
            secure_sum=terms.secure_sum,
            evaluates=run.evaluates,
            rounds=RoundsView(done=run.rounds, of=terms.n_rounds),
            problem=None if run.problem is None else ProblemDocument.model_validate(run.problem),
            pause=pause and PauseView(**pause.to_json(), written=unwritten is None),
        )


PageLimit = Annotated[int, Query(ge=1, le=1000, description="how many at most")]
_NEXT = "``next`` of the page before; the first page without it"
PageStart = Annotated[str | None, Query(max_length=100, description=_NEXT)]
PageStartDigest = Annotated[Digest | None, Query(description=_NEXT)]
RunId = Annotated[Identifier, Path(description="a run's identifier")]
MemberName = Annotated[Identifier, Path(description="the name of a party or key holder")]


class RunPage(BaseModel):
    """Runs, newest first; ``next`` is null on the last page."""

    runs: tuple[RunView, ...]
    next: Annotated[str | None, Field(description="give it as ``after`` to get the next page")]
    damaged: Annotated[
        tuple[str, ...],
        Field(description="runs of this page that cannot be read: the learner's database is damaged there"),
    ] = ()


class PublicRowsPage(BaseModel):
    """Public rows by their digests; ``next`` is null on the last page."""

    rows: tuple[PublicRows, ...]
    next: Annotated[str | None, Field(description="give it as ``after`` to get the next page")]
    damaged: Annotated[
        tuple[str, ...], Field(description="digests of this page whose files are damaged: upload their rows again")
    ] = ()


class StudySummary(BaseModel):
    """A study in short."""

    name: str
    title: Annotated[str, Field(description="what it is, in plain words; empty if it does not say")]
    purpose: Annotated[str, Field(description="what it is for, in plain words; empty if it does not say")]
    digest: Annotated[str, Field(description="SHA-256 of the study's canonical JSON, as parties name it")]
    kind: StudyKind
    label: Annotated[str, Field(description="the column to predict")]
    n_classes: Annotated[int, Field(description="how many values the label has; 0 if it is a number")]
    loss: Annotated[str, Field(description="the kind of its loss")]
    features: Annotated[int, Field(description="columns of a table to predict from")]
    n_features: Annotated[int, Field(description="columns of the design, with one for each value of a category")]
    unit: Annotated[
        Literal["record", "person"], Field(description="what runs hide and sizes count: one record, or one person")
    ]
    person: Annotated[
        str | None, Field(description="the column whose values say which rows are one person's; null: none does")
    ]
    norm: Annotated[Norm, Field(description="by which rows are at most 1: the 2-norm, or the largest number")]
    sparse: Annotated[bool, Field(description="whether rows list their entries that are not zero")]
    divisor: Annotated[float | None, Field(description="what rows are divided by; null: each by its own length")]

    @classmethod
    def of(cls, study: Study) -> Self:
        """Return the summary of a study."""
        return cls(
            name=study.name,
            title=study.title,
            purpose=study.purpose,
            digest=study.digest,
            kind=study.kind,
            label=study.label.name,
            n_classes=study.n_classes,
            loss=study.loss.kind,
            features=len(study.features),
            n_features=study.n_features,
            unit="record" if study.person is None else "person",
            person=study.person and study.person.column,
            norm=study.norm,
            sparse=study.sparse is not None,
            divisor=_divisor(study),
        )


def _divisor(study: Study) -> float | None:
    """Return the number by which every row of a study is divided, None if each row has its own."""
    if study.row_norm == "own":
        return None
    return study.largest_norm if study.row_norm == "largest" else study.row_norm


class SignedReceipt(BaseModel):
    """What a key holder signed for a round: Ed25519 over the ``tag``, a zero byte and the ``statement``."""

    key_holder: str
    public_key: str
    tag: str
    statement: str
    signature: str

    @classmethod
    def of(cls, holder: RosterKeyHolder, receipt: Signed) -> Self:
        """Return the view of the receipt of a key holder on the roster."""
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
        """Return the view of an opening, in a run of these parties under this roster."""
        return cls(
            round=opening.round,
            contributors=tuple(parties[index] for index in opening.contributors),
            receipts=tuple(SignedReceipt.of(holder, opening.receipts[holder.name]) for holder in roster.key_holders),
        )


class PartyView(BaseModel):
    """A party of the roster: its public facts, or the problem that keeps it from stating them.

    Beside a problem, or while the party is ``awaited``, the facts and budgets are those of ``as_of``, if there are any.
    """

    name: Identifier
    url: str | None
    facts: PartyFacts | None
    as_of: Annotated[
        datetime | None,
        Field(description="when it stated them; null if it has not since the learner began, which keeps facts alone"),
    ] = None
    awaited: Annotated[bool, Field(description="whether it has not answered yet, and is still being asked")] = False
    budgets: Annotated[
        dict[Digest, BudgetReport],
        Field(
            description="by the digest of a study that the learner knows: the account that its runs are charged to, as "
            "this learner's own runs have left it; without those that the party does not tell"
        ),
    ]
    problem: ProblemDocument | None


class AlgorithmView(BaseModel):
    """An algorithm: what it is, whether a trusted curator must hold all data, which rows it takes, its parameters.

    ``parameters`` is a JSON Schema.
    """

    summary: str
    curator: bool
    norms: Annotated[tuple[Norm, ...], Field(description="by which the rows of its studies may be bounded")]
    sparse: Annotated[bool, Field(description="whether it takes studies of sparse features")]
    persons: Annotated[bool, Field(description="whether it takes studies whose examples are persons")]
    parameters: dict[str, JsonValue]


class Prediction(BaseModel):
    """The label that a record predicts, its score, and its probability if the loss fits one; see `predict`."""

    label: str | float
    score: float
    probability: float | None
    probabilities: dict[str, float] | None
