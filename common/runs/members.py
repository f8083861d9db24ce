"""A run's parties as they are written down: in columns, under a digest, so that a long list travels once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from parley.common.encoding.canonical_json import canonical_digest
from parley.common.encoding.fixed_point import MAX_EXAMPLES
from parley.common.errors import InvalidInputError
from parley.common.privacy.calibration import check_budget
from parley.common.strict import Digest, Identifier, Strict

MOST_PARTIES = 100_000


class Budget(Strict):
    """An (epsilon, delta) that one run may cost a party."""

    epsilon: float
    delta: float

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
            raise ValueError(f"the columns of {k} parties must be as long")
        if (max(self.budget_of) if self.budget_of else 0) != len(self.budgets) - 1:
            raise ValueError("budgets must be those that parties have")
        return self

    @classmethod
    def of(cls, parties: Sequence[Member]) -> Self:
        """The columns of members, in their order."""
        places = {budget: place for place, budget in enumerate(dict.fromkeys(each.budget for each in parties))}
        return cls(
            names=tuple(each.name for each in parties),
            n_examples=tuple(each.n_examples for each in parties),
            budgets=tuple(places),
            budget_of=tuple(places[each.budget] for each in parties) if len(places) > 1 else (),
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
