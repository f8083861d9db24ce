"""Describes a run as the store holds it, its terms in short, and the error of a damaged row.

The terms are a summary that is written beside the specification: lists of runs show them, and a study of many columns
takes milliseconds to read. So a specification is read only if a run's work needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import Field, JsonValue

from parley.common.errors import DamagedError
from parley.common.privacy.guarantee import Adjacency
from parley.common.runs.specification import Cohort, PublicRows, RunSpec, SecureSumKind
from parley.common.storage.sqlite import decoding
from parley.common.strict import Setting
from parley.learner.runs.states import RunState

_REMEDY = "stop the learner and put back a copy of its state, or start the run again; all other runs go on"
_FILE_REMEDY = "stop the learner and put back a copy of its state"


class DamagedStoreError(DamagedError):
    """The learner's database, or a part of it that belongs to no run, cannot be read."""

    def __init__(self, detail: str, **facts: object) -> None:
        super().__init__(f"{detail}: {_FILE_REMEDY}", **facts)


@contextmanager
def decoding_row(table: str, run: str) -> Iterator[None]:
    """Decode a row of a run within this context; raises DamagedError that names the table and the run."""
    with decoding(f"the row of run {readable(run)[:100]!r} in the table {table!r} of the learner's database", _REMEDY):
        yield


def readable(text: str) -> str:
    """Return a text with each byte that was not UTF-8 replaced by a question mark."""
    return text.encode(errors="replace").decode()


DEFAULT_SECONDS = 60.0
"""How long a run's rounds may take, unless its user says otherwise."""


class RunTerms(Setting):
    """A run's specification in short, as lists of runs show it; computed once."""

    study: str
    algorithm: str
    parameters: dict[str, JsonValue]
    parties: tuple[str, ...]
    epsilon: Annotated[dict[str, float], Field(description="by party: what the run may cost it")]
    minimum_contributors: int
    colluders: int
    answer_every: int
    secure_sum: SecureSumKind
    adjacency: Adjacency
    overlap: Annotated[int, Field(description="with how many of the parties the same person may be")] = 1
    public: PublicRows | None
    spec_digest: str
    n_rounds: int
    seconds: Annotated[float, Field(description="how long the rounds may take, where nothing says how many")]
    any_algorithm: Annotated[bool, Field(description="whether the algorithm is open, until the run is settled")]
    chosen: Annotated[dict[str, str], Field(description="which parameters were chosen for the user, and why")]
    cohort: Annotated[Cohort | None, Field(description="who takes part; if null, all parties must")] = None
    absent: Annotated[
        dict[str, str], Field(default_factory=dict, description="by party: why one that was asked takes no part")
    ]
    class_weights: Annotated[
        dict[str, float] | None, Field(description="by class, the weight of its rows in training; null: all are 1")
    ] = None
    cautions: Annotated[
        tuple[str, ...],
        Field(description="what parameters and budgets do that may not be meant"),
    ] = ()
    may_evaluate: Annotated[
        bool, Field(description="whether a part of the budget is kept for an evaluation, if that is of use")
    ] = False
    evaluation: Annotated[
        str | None, Field(description="what evaluates the model, or why nothing does; null until the run is settled")
    ] = None

    @classmethod
    def of(  # noqa: PLR0913 -- terms beside the specification, by name
        cls,
        spec: RunSpec,
        seconds: float,
        chosen: Mapping[str, str],
        *,
        any_algorithm: bool = False,
        cohort: Cohort | None = None,
        absent: Mapping[str, str] = MappingProxyType({}),
        cautions: tuple[str, ...] = (),
        may_evaluate: bool = False,
        evaluation: str | None = None,
    ) -> Self:
        """Return the terms of a specification; raises InvalidInputError if they contradict each other."""
        return cls(
            cautions=cautions,
            may_evaluate=may_evaluate,
            evaluation=evaluation,
            seconds=seconds,
            any_algorithm=any_algorithm,
            chosen=dict(chosen),
            cohort=cohort,
            absent=dict(absent),
            study=spec.study.name,
            algorithm=spec.algorithm,
            parameters=spec.parameters,
            parties=spec.names,
            epsilon={member.name: member.budget.epsilon for member in spec.parties},
            minimum_contributors=spec.minimum_contributors,
            colluders=spec.colluders,
            answer_every=spec.answer_every,
            secure_sum=spec.secure_sum,
            adjacency=spec.adjacency if any_algorithm else spec.build().adjacency_of(spec.study.unit),
            overlap=spec.overlap,
            public=spec.public,
            class_weights=spec.named_class_weights,
            spec_digest=spec.digest,
            n_rounds=0 if any_algorithm else len(spec.settled()[0].questions()),
        )


@lru_cache(maxsize=16)
def _read_spec(text: str, digest: str) -> RunSpec:
    """Read a stored specification; raises ValueError unless it has this digest. Many columns take milliseconds."""
    return RunSpec.read(text, digest)


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a run stands still: a ``reason`` in words, ``who`` causes it, and ``since`` when (ISO 8601, UTC).

    ``who`` has names of parties and key holders. A run is paused while something is out of use; it recruits while
    owners have not decided whether they take part.
    """

    reason: str
    who: tuple[str, ...]
    since: str

    def to_json(self) -> dict[str, Any]:
        """Return the pause as a JSON object."""
        return {"reason": self.reason, "who": list(self.who), "since": self.since}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Read the pause that `to_json` wrote."""
        return cls(fields["reason"], tuple(fields["who"]), fields["since"])


@dataclass(frozen=True, slots=True)
class Run:
    """A run as the store holds it.

    Until the run is settled (it has a plan), ``spec`` is a draft: the sizes of the shards are not known yet, and are
    written as 1. ``purpose`` is the user's words, for the owners' logs; ``stage`` is the last state that is no pause;
    ``rounds`` counts the logged rounds; ``problem`` says why the run failed, ``pause`` why it stands still;
    ``key_holders`` are the names of the key holders asked to open its sums. ``evaluates`` is the run whose model this
    one evaluates, or None; ``evaluations`` are the runs that evaluate this one's model, oldest first. ``threshold`` is
    the rule by which the model's threshold is chosen, or None.
    """

    id: str
    user: str
    purpose: str
    created: str
    state: RunState
    stage: RunState
    spec_text: str
    terms: RunTerms
    rounds: int
    problem: Mapping[str, Any] | None
    pause: Pause | None = None
    key_holders: tuple[str, ...] = ()
    evaluates: str | None = None
    evaluations: tuple[str, ...] = ()
    threshold: str | None = None

    @property
    def spec(self) -> RunSpec:
        """The specification, which is read here and not for lists of runs. Raises DamagedError."""
        with decoding_row("runs", self.id):
            return _read_spec(self.spec_text, self.terms.spec_digest)

    @property
    def members(self) -> tuple[str, ...]:
        """The parties that the rounds ask: those of the specification without the ones that did not approve it."""
        return tuple(name for name in self.terms.parties if name not in self.terms.absent)

    def asked(self, roster: Iterable[str]) -> tuple[str, ...]:
        """Return those of the roster that the run was queued for, in its order."""
        return tuple(name for name in roster if name in {*self.terms.parties, *self.terms.absent})
