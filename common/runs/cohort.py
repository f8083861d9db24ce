"""Who takes part in a run of parties that are not always there: so many at least, so many at most, and by when."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from parley.common.strict import Strict


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
        """The members of a run among those who answered, in their order.

        Anyone who knows the names can draw them again: they follow from the run's name, which is older than any answer.
        """
        if self.most is None or len(names) <= self.most:
            return tuple(names)
        drawn = set(sorted(names, key=lambda name: hashlib.sha256(f"{run} {name}".encode()).digest())[: self.most])
        return tuple(name for name in names if name in drawn)
