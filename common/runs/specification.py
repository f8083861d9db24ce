"""What goes over the wire: the run's specification that every party approves by its hash, and the answers about it.

Arrays travel as ``.npy`` bodies (media type ``application/x-npy``: float64 queries, int64 answers in units of 2^-32),
or as JSON lists for whoever asks by hand.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, JsonValue, model_validator

from common.algorithms import build_algorithm
from common.data.study import Study
from common.encoding.canonical_json import canonical, canonical_digest
from common.encoding.fixed_point import MAX_EXAMPLES
from common.errors import InvalidInputError
from common.privacy.calibration import check_epsilon_delta
from common.protocol.algorithm import Algorithm
from common.protocol.facts import FederationFacts
from common.secure_sum.packing import MAX_CONTRIBUTORS
from common.strict import Identifier, Name, Strict

SecureSumKind = Literal["none", "paillier"]
_LEAST_IN_A_SUM = 2


class Budget(Strict):
    """An (epsilon, delta) that one run may cost a party."""

    epsilon: float
    delta: float

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        try:
            check_epsilon_delta(self.epsilon, self.delta)
        except InvalidInputError as error:
            raise ValueError(error.detail) from None
        return self


class Member(Strict):
    """A party of a run: its name, the public size of its shard, and what the run may cost it."""

    name: Identifier
    n_examples: Annotated[int, Field(ge=1, le=MAX_EXAMPLES)]
    budget: Budget


class RunSpec(Strict):
    """All that a run is, public: what the learner proposes and every party approves, named by its hash.

    ``answer_every`` is r: a party that misses r rounds in a row is dropped. Above 1, rounds are asynchronous.
    """

    study: Study
    algorithm: Name
    parameters: Annotated[dict[str, JsonValue], Field(default_factory=dict)]
    parties: Annotated[tuple[Member, ...], Field(min_length=1, max_length=100_000)]
    minimum_contributors: Annotated[int, Field(ge=1)]
    colluders: Annotated[int, Field(ge=0)] = 0
    secure_sum: SecureSumKind = "none"
    answer_every: Annotated[int, Field(ge=1)] = 1

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
            raise ValueError(f"a secure sum has at most {MAX_CONTRIBUTORS} parties")
        return self

    @model_validator(mode="after")
    def _parameters_have_a_spelling(self) -> Self:
        try:
            canonical(self.parameters)
        except ValueError:
            raise ValueError("parameters must be JSON: finite numbers and valid text") from None
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The parties' names in order."""
        return tuple(member.name for member in self.parties)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: the name under which parties approve the run."""
        return canonical_digest(self.model_dump(mode="json"))

    def build(self) -> Algorithm:
        """The algorithm with its parameters; raises InvalidInputError."""
        return build_algorithm(self.algorithm, self.parameters)

    def facts(self) -> FederationFacts:
        """What all agree on; raises InvalidInputError where the terms contradict each other."""
        return FederationFacts(
            parties=self.names,
            n_examples=np.array([member.n_examples for member in self.parties]),
            epsilon=np.array([member.budget.epsilon for member in self.parties]),
            delta=np.array([member.budget.delta for member in self.parties]),
            n_features=self.study.n_features,
            loss=self.study.build_loss(),
            minimum_contributors=self.minimum_contributors,
            colluders=self.colluders,
            secure_sum=self.secure_sum != "none",
            clip_norm=self.study.clip_norm,
        )

    def index(self, party: str) -> int:
        """A party's place; raises InvalidInputError when the run does not name it."""
        if party not in self.names:
            raise InvalidInputError(f"the run does not name the party {party!r}")
        return self.names.index(party)
