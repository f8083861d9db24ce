"""The facts that all parties of a run agree on (`FederationFacts`), and one party's view of them (`OwnFacts`)."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields, replace
from itertools import compress
from types import EllipsisType
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from parley.common.arrays import FloatArray, IntArray
from parley.common.encoding.fixed_point import Norm, wire_shift
from parley.common.errors import InvalidInputError
from parley.common.privacy.overlap import for_one_owner

_T = TypeVar("_T")
_NO_PUBLIC_ROWS = (
    "the algorithm asks about public rows, and the run names none: upload some, by parley-learner public TABLE --study "
    "STUDY, and name the digest that it prints, by --public"
)

if TYPE_CHECKING:
    from parley.common.data.study import Study
    from parley.common.learning.classifiers import LocalClassifier
    from parley.common.learning.losses import Loss


@dataclass(frozen=True, slots=True, eq=False)
class FederationFacts:
    """The public facts that all agree on before a run: who takes part, with how much data and budget, and the trust.

    ``n_examples``, ``epsilon``, ``delta`` are (K,) for K parties. ``minimum_contributors`` is m_min, the least number
    of parties in a sum; ``colluders`` is t, those whose noise may be subtracted. ``secure_sum`` says that the learner
    sees nothing but sums, so noise may be added in shares. ``public_shape`` is (rows, width) of the run's public rows,
    if it has any; only the learner has the rows themselves, ``public``, beforehand. ``study`` describes the columns of
    the parties' rows, if they are a study's; if it holds rows out, examples are those that the run is about. ``run`` is
    the specification's digest, so that random numbers in training are drawn the same again. ``norm`` is that by which
    rows are at most 1; ``row_entries`` is the most numbers of a row that are not zero, if rows are sparse.
    ``classifiers`` (K,) are the kinds that owners chose to train, where they are known: each party knows its own, a
    simulation all. ``unit`` is what counts as an example, a record or a person of at most ``most_rows`` rows;
    ``overlap`` is the most owners that have rows of the same person; then ``epsilon`` and ``delta`` are those for
    which each owner sets its noise, and ``agreed`` has the budgets (K,), (K,) that all their answers keep together
    (`with_overlap`).
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
    public_shape: tuple[int, int] | None = None
    public: FloatArray | None = None
    study: Study | None = None
    run: str = ""
    classifiers: tuple[LocalClassifier | None, ...] = ()
    norm: Norm = "euclidean"
    row_entries: int | None = None
    unit: Literal["replace_one", "person"] = "replace_one"
    most_rows: int = 1
    overlap: int = 1
    agreed: tuple[FloatArray, FloatArray] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.minimum_contributors <= len(self.parties):
            raise InvalidInputError(
                f"minimum_contributors must lie between 1 and {len(self.parties)}, not {self.minimum_contributors}"
            )
        if not 0 <= self.colluders < self.minimum_contributors:
            raise InvalidInputError(f"colluders must lie between 0 and minimum_contributors - 1, not {self.colluders}")
        if not 1 <= self.overlap <= len(self.parties):
            raise InvalidInputError(
                f"overlap must lie between 1 and the {len(self.parties)} parties, not {self.overlap}: it says with how "
                "many of them the same person may have rows"
            )

    @classmethod
    def uniform(
        cls, n_examples: IntArray, *, epsilon: float, delta: float, n_features: int, loss: Loss, **terms: object
    ) -> FederationFacts:
        """Build facts of parties with equal budgets; ``terms`` are the remaining fields.

        By default all parties must contribute, and examples and their rows are as the ``study`` has them, if it is one.
        """
        k, study = len(n_examples), terms.get("study")
        of_study = {name: getattr(study, name) for name in ("row_entries", "unit", "most_rows")} if study else {}
        defaults = {"parties": tuple(f"party-{i + 1}" for i in range(k)), "minimum_contributors": k} | of_study | terms
        return FederationFacts(
            n_examples=np.asarray(n_examples, dtype=np.int64),
            epsilon=np.full(k, epsilon),
            delta=np.full(k, delta),
            n_features=n_features,
            loss=loss,
            **defaults,  # type: ignore[arg-type]
        )

    def with_overlap(self, overlap: int, *, is_gaussian: bool) -> FederationFacts:
        """Return the facts if the same person may be with so many owners, of noise that is Gaussian alone or not.

        If one owner allows no delta, noise is pure at all of them. Raises InvalidInputError for more owners than there
        are.
        """
        if overlap == 1:
            return self
        is_gaussian = is_gaussian and bool(self.delta.all())
        budgets = zip(self.epsilon.tolist(), self.delta.tolist(), strict=True)
        parts = [
            for_one_owner(*budget, overlap, is_gaussian=is_gaussian, in_one_sum=self.secure_sum) for budget in budgets
        ]
        epsilon, delta = np.array(parts).T
        return replace(self, epsilon=epsilon, delta=delta, overlap=overlap, agreed=(self.epsilon, self.delta))

    def of(self, index: int | slice | EllipsisType) -> OwnFacts:
        """Return the facts as one party of the run sees them, or as several or (``...``) all do.

        Those of several are stacked like their shards.
        """
        agreed = {field.name: getattr(self, field.name) for field in fields(FederationFacts)}
        return OwnFacts(**agreed, index=index)

    @property
    def everyone(self) -> OwnFacts:
        """The facts as all parties see them, stacked like their shards."""
        return self.of(...)

    def curated(self) -> FederationFacts:
        """Return the facts if one trusted curator holds all shards.

        It is a federation of one party, with the strictest budget. Raises InvalidInputError if the same person may be
        with several owners.
        """
        if self.overlap > 1:
            raise InvalidInputError(
                "overlap: a curator's rows of a person who is with several owners would have to be joined first; run "
                "baselines without overlap"
            )
        return replace(
            self,
            parties=("curator",),
            n_examples=self.n_examples.sum(keepdims=True),
            epsilon=self.epsilon.min(keepdims=True),
            delta=self.delta.min(keepdims=True),
            minimum_contributors=1,
            colluders=0,
            secure_sum=False,
            classifiers=(),
        )

    def coalition(self, members: npt.NDArray[np.bool_]) -> FederationFacts:
        """Return the facts of a run among these parties, (K,), alone; as many may be missing from a sum as before.

        Raises InvalidInputError if too few parties would be left for the missing ones and the colluders.
        """
        missing = len(self.parties) - self.minimum_contributors
        return replace(
            self,
            parties=tuple(compress(self.parties, members.tolist())),
            n_examples=self.n_examples[members],
            epsilon=self.epsilon[members],
            delta=self.delta[members],
            minimum_contributors=max(1, int(members.sum()) - missing),
            classifiers=(),
            overlap=min(self.overlap, int(members.sum())),
            agreed=self.agreed and (self.agreed[0][members], self.agreed[1][members]),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a model's weights: (d,), or (K, d) for a loss of K scores."""
        return (self.n_features,) if self.loss.outputs == 1 else (self.loss.outputs, self.n_features)

    @property
    def most_entries(self) -> int:
        """The largest number of a row's entries that are not zero: all, unless rows are sparse."""
        return self.n_features if self.row_entries is None else min(self.row_entries, self.n_features)

    @property
    def n_weights(self) -> int:
        """The number of weights of a model."""
        return math.prod(self.shape)

    @property
    def rows_of_weights(self) -> tuple[int, int]:
        """The (rows, width) of public rows that are a model's weights, a row for each score."""
        return self.loss.outputs, self.n_features

    @property
    def public_size(self) -> tuple[int, int]:
        """The (rows, width) of the run's public rows. Raises InvalidInputError if the run has none."""
        if self.public_shape is None:
            raise InvalidInputError(_NO_PUBLIC_ROWS)
        return self.public_shape

    @property
    def public_rows(self) -> FloatArray:
        """The run's public rows, (rows, width), at the learner. Raises InvalidInputError if the run has none."""
        if self.public is None:
            raise InvalidInputError(_NO_PUBLIC_ROWS)
        return self.public

    @property
    def columns(self) -> Study:
        """The study whose columns the rows have. Raises InvalidInputError if there is none."""
        if self.study is None:
            raise InvalidInputError("the algorithm asks about a study's columns, and the rows are of no study")
        return self.study

    def examples(self, contributors: tuple[int, ...]) -> int:
        """Return how many examples these parties hold together."""
        return int(self.n_examples[list(contributors)].sum())

    @property
    def share(self) -> float:
        """The part of a sum's noise variance that each party adds: 1 / (m_min - t) under a secure sum, or 1."""
        return 1.0 / (self.minimum_contributors - self.colluders) if self.secure_sum else 1.0

    def deviation_of_sum(self, sigmas: FloatArray) -> float:
        """Return the deviation of the noise on a sum of answers.

        ``sigmas`` (m,) are the deviations that each answer would need if it were alone.
        """
        return math.sqrt(self.share * float((sigmas**2).sum()))

    @property
    def wire_shift(self) -> int:
        """The bits that answers lose on the wire, so that the largest party's fits: none up to 2^20 examples."""
        return wire_shift(int(self.n_examples.max()))

    @property
    def n_total(self) -> int:
        """The number of examples of all parties."""
        return int(self.n_examples.sum())


@dataclass(frozen=True, slots=True, eq=False)
class OwnFacts(FederationFacts):
    """The agreed facts, from the view of one party, by its ``index``, or of several stacked.

    Values of a party's own are arrays of shape () for one party, and (K,) for K stacked ones, stacked like the shard:
    those of a slice, or (``...``) all.
    """

    index: int | slice | EllipsisType = ...

    @property
    def own_classifiers(self) -> tuple[LocalClassifier | None, ...]:
        """The classifier that each party of this view has chosen to train; None for the run's."""
        return self._own(self.classifiers or (None,) * len(self.parties))

    @property
    def seeds(self) -> tuple[int, ...]:
        """A seed for each party of this view, 32 bits, from the run and the party's name: no secret."""
        return tuple(
            int(hashlib.sha256(f"{self.run}\0{name}".encode()).hexdigest()[:8], 16) for name in self._own(self.parties)
        )

    @property
    def own_examples(self) -> IntArray:
        """The number of examples of the party, or of each party of the stack."""
        return np.asarray(self.n_examples[self.index])

    @property
    def own_epsilon(self) -> FloatArray:
        """The epsilon that the party's noise must keep: its own, or the strictest if noise is added in shares."""
        return np.asarray(self._strictest(self.epsilon)[self.index])

    @property
    def own_delta(self) -> FloatArray:
        """The delta that the party's noise must keep, chosen as `own_epsilon`."""
        return np.asarray(self._strictest(self.delta)[self.index])

    @property
    def own_agreed(self) -> tuple[float, float]:
        """The (epsilon, delta) of one party that a run may cost, at all owners of a person together."""
        epsilon, delta = (self.epsilon, self.delta) if self.agreed is None else self.agreed
        return float(self._strictest(epsilon)[self.index]), float(self._strictest(delta)[self.index])

    @property
    def strictest(self) -> tuple[float, float]:
        """The strictest ``(epsilon, delta)`` in this view."""
        return float(self.own_epsilon.min()), float(self.own_delta.min())

    def _own(self, values: tuple[_T, ...]) -> tuple[_T, ...]:
        if isinstance(self.index, EllipsisType):
            return values
        return values[self.index] if isinstance(self.index, slice) else (values[self.index],)

    def _strictest(self, budget: FloatArray) -> FloatArray:
        return np.full_like(budget, budget.min()) if self.secure_sum else budget
