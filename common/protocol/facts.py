"""What all parties of a run agree on, and how one party sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import compress
from types import EllipsisType

import numpy as np
import numpy.typing as npt

from common.arrays import FloatArray, IntArray
from common.encoding.fixed_point import wire_shift
from common.errors import InvalidInputError
from common.learning.losses import Loss


@dataclass(frozen=True, slots=True, eq=False)
class FederationFacts:
    """What all agree on before a run, public: who takes part, how much data and budget each brings, what trust holds.

    ``n_examples``, ``epsilon``, ``delta`` are (K,) for K parties. ``minimum_contributors`` is m_min, the least number
    of parties in a sum; ``colluders`` is t, those whose noise may be subtracted. ``secure_sum`` says that the learner
    sees nothing but sums, so noise may be added in shares. ``index`` says whose facts these are: one party's, or
    (``...``) those of all parties stacked; the ``own_`` properties are () arrays or (K,) arrays accordingly, stacked
    like the shard.
    """

    parties: tuple[str, ...]
    n_examples: IntArray
    epsilon: FloatArray
    delta: FloatArray
    n_features: int
    loss: Loss
    minimum_contributors: int
    colluders: int = 0
    secure_sum: bool = False
    clip_norm: float = 1.0
    index: int | EllipsisType = ...

    def __post_init__(self) -> None:
        if not 1 <= self.minimum_contributors <= len(self.parties):
            raise InvalidInputError(
                f"minimum_contributors must lie between 1 and {len(self.parties)}, not {self.minimum_contributors}"
            )
        if not 0 <= self.colluders < self.minimum_contributors:
            raise InvalidInputError(f"colluders must lie between 0 and minimum_contributors - 1, not {self.colluders}")

    @classmethod
    def uniform(
        cls, n_examples: IntArray, *, epsilon: float, delta: float, n_features: int, loss: Loss, **terms: object
    ) -> FederationFacts:
        """Facts of parties with equal budgets; ``terms`` are the remaining fields (by default all must contribute)."""
        k = len(n_examples)
        given = {"parties": tuple(f"party-{i + 1}" for i in range(k)), "minimum_contributors": k} | terms
        return cls(
            n_examples=np.asarray(n_examples, dtype=np.int64),
            epsilon=np.full(k, epsilon),
            delta=np.full(k, delta),
            n_features=n_features,
            loss=loss,
            **given,  # type: ignore[arg-type]
        )

    def of(self, index: int) -> FederationFacts:
        """The facts as one party of the run sees them."""
        return replace(self, index=index)

    def curated(self) -> FederationFacts:
        """The facts when one trusted curator holds all shards: a federation of one party, with the strictest budget."""
        return replace(
            self,
            parties=("curator",),
            n_examples=self.n_examples.sum(keepdims=True),
            epsilon=self.epsilon.min(keepdims=True),
            delta=self.delta.min(keepdims=True),
            minimum_contributors=1,
            colluders=0,
            secure_sum=False,
            index=...,
        )

    def coalition(self, members: npt.NDArray[np.bool_]) -> FederationFacts:
        """The facts of a run among these parties, (K,), alone; as many may be missing from a sum as before.

        Raises InvalidInputError when the others are too few to bear the missing and the colluders.
        """
        missing = len(self.parties) - self.minimum_contributors
        return replace(
            self,
            parties=tuple(compress(self.parties, members.tolist())),
            n_examples=self.n_examples[members],
            epsilon=self.epsilon[members],
            delta=self.delta[members],
            minimum_contributors=max(1, int(members.sum()) - missing),
            index=...,
        )

    @property
    def own_examples(self) -> IntArray:
        """The number of examples of the party, or of each party of the stack."""
        return np.asarray(self.n_examples[self.index])

    @property
    def own_epsilon(self) -> FloatArray:
        """The epsilon that the party's noise must honour: its own; the strictest where noise is added in shares."""
        return np.asarray(self._strictest(self.epsilon)[self.index])

    @property
    def own_delta(self) -> FloatArray:
        """The delta that the party's noise must honour, as `own_epsilon`."""
        return np.asarray(self._strictest(self.delta)[self.index])

    def examples(self, contributors: tuple[int, ...]) -> int:
        """How many examples these parties hold together."""
        return int(self.n_examples[list(contributors)].sum())

    @property
    def share(self) -> float:
        """The part of a sum's noise variance that each party adds: 1 / (m_min - t) under secure sum, else all of it."""
        return 1.0 / (self.minimum_contributors - self.colluders) if self.secure_sum else 1.0

    @property
    def n_total(self) -> int:
        """The number of examples of all parties."""
        return int(self.n_examples.sum())

    @property
    def wire_shift(self) -> int:
        """How many bits answers lose on the wire, so that the largest party's fits: none up to 2^20 examples."""
        return wire_shift(int(self.n_examples.max()))

    def _strictest(self, budget: FloatArray) -> FloatArray:
        return np.full_like(budget, budget.min()) if self.secure_sum else budget
