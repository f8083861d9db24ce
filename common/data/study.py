"""A study: what is to be learnt, in public terms that every owner agrees on.

    {"format": "parley-study-2", "kind": "binary", "name": "loans", "missing": "drop",
     "features": [{"name": "age", "lower": 17, "upper": 90},
                  {"name": "work", "values": ["private", "state"], "other": true}],
     "label": {"name": "repaid", "values": ["no", "yes"]}}

Columns are scaled by the study's declared bounds and values alone, never by statistics of private data:
`parley.common.data.layout` says how a row becomes one of the unit ball, `parley.common.data.loading` how a table
becomes a shard.

*Held-out rows* are never seen in training, so that a model can be evaluated on them; only their positions decide which.
Of an owner's rows, row i (from 0) is held out if floor((i + 1) s) > floor(i s), s being the study's public share. So an
owner of n rows holds floor(n s) out, spread evenly, and everyone knows how many. A record that replaces another takes
its position: it is trained on or evaluated on as the other was, never both, so each kind of run is as private as if
there were no other rows. The products are float64, the same on every machine; as s stays 2^-20 away from 1, rounding
skips no row. If examples are persons, i counts them in the order in which they first appear, and all rows of one go the
same way; a person that replaces another takes its place in that order, so others stay where they were.

*Maps* take a study's columns into the unit ball: a projection to fewer, random features of a kernel, or both in turn. A
map is public and the same for every row, so it costs no privacy. `Projection` is fitted to public rows
(`parley.common.data.auxiliary`) or comes from elsewhere; `RandomFeatures` follow from a seed (Rahimi & Recht, "Random
Features for Large-Scale Kernel Machines", 2007). `parley.common.data.layout` computes them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from functools import cached_property
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from parley.common.arrays import BoolArray, FloatArray, IntArray
from parley.common.data.class_weights import ClassWeights, resolved_weights
from parley.common.data.columns import (
    AnyFeature,
    AnyLabel,
    Category,
    Feature,
    Label,
    Missing,
    RealLabel,
    RowNorm,
    SparseFeatures,
    constant_of_numbers,
    largest_norm,
    missing_policy,
)
from parley.common.encoding.canonical_json import canonical_digest
from parley.common.encoding.fixed_point import Norm
from parley.common.strict import Digest, Name, PlainName, PlainText, Strict

Rows = Literal["training", "held_out"]
"""Which rows a run is about; all are for training if a study holds none out."""

ChargedRows = Literal["training", "held_out", "all"]
"""Which of its study's pinned rows a run is charged to."""

_NEAREST = 2.0**-20
_BLOCK = 2**14

HoldOut = Annotated[
    float,
    Field(ge=_NEAREST, le=1 - _NEAREST, description="the share of each owner's rows that are kept for evaluation"),
]


def count_held_out(n_rows: IntArray | int, share: float) -> IntArray:
    """Return how many of n rows (...) are held out: floor(n s).

    >>> count_held_out(np.array([1, 4, 10]), 0.25).tolist()
    [0, 1, 2]
    """
    return np.floor(np.asarray(n_rows) * share).astype(np.int64)


def is_held_out(n_rows: int, share: float) -> BoolArray:
    """Return which of n rows are held out, (n,).

    >>> np.flatnonzero(is_held_out(10, 0.25)).tolist()
    [3, 7]
    """
    return np.diff(count_held_out(np.arange(n_rows + 1), share)) > 0


def training_first(n_rows: int, share: float | None) -> IntArray:
    """Return the places of n rows (n,), those for training first and those held out last, in order."""
    is_held = is_held_out(n_rows, share) if share is not None else np.zeros(n_rows, dtype=np.bool_)
    return np.concatenate([np.flatnonzero(~is_held), np.flatnonzero(is_held)])


def move_held_out_last(share: float, *of_rows: FloatArray) -> None:
    """Move what the held-out rows have in arrays (n, ...) after the others, in order and in place.

    Takes a copy of the rows held out and of a block of the others, because a shard may fill the memory.
    """
    is_held = is_held_out(len(of_rows[0]), share)
    for values in of_rows:
        held_out, end = values[is_held], 0
        for start in range(0, len(values), _BLOCK):
            others = values[start : start + _BLOCK][~is_held[start : start + _BLOCK]]
            values[end : end + len(others)] = others
            end += len(others)
        values[end:] = held_out


# ── whose rows are one ───────────────────────────────────────────────────────

MOST_ROWS_OF_A_PERSON = 2**17
"""The most rows of a person that a study may allow: a block of rows holds a person whole."""


class Person(Strict):
    """The column whose values say which rows are one person's, so that all of them are hidden together.

    Of a person's rows in one table the first ``most_rows`` count. This bound is public, and so is the number of
    persons; how many rows a person or an owner has is not. A row without an identifier is refused, or counts as a
    person ``alone``: somebody who has such rows beside others is hidden in pieces.
    """

    column: Name
    most_rows: Annotated[
        int, Field(ge=1, le=MOST_ROWS_OF_A_PERSON, description="of a person's rows, so many count at most")
    ] = 1000
    missing: Annotated[
        Literal["refuse", "alone"],
        Field(description="a row without an identifier is refused, or is a person by itself"),
    ] = "refuse"


class RowWeights(Strict):
    """The column of each row's weight in [0, 1], a public rule such as the part of a region that a survey asked.

    A row counts so much in training and evaluation, truncated to a multiple of 2^-16. The number of examples that is
    public counts a row of weight 0 too.
    """

    column: Name


# ── losses that a study may name ─────────────────────────────────────────────


class LogisticLoss(Strict):
    """The logistic loss."""

    kind: Literal["logistic"] = "logistic"


class HuberLoss(Strict):
    """The Huber loss of half-width h."""

    kind: Literal["huber"] = "huber"
    h: Annotated[float, Field(gt=0, le=1)] = 0.5


class SquaredLoss(Strict):
    """Half the squared error."""

    kind: Literal["squared"] = "squared"


class HingeLoss(Strict):
    """The hinge loss of the support vector machine."""

    kind: Literal["hinge"] = "hinge"


class SoftmaxLoss(Strict):
    """The logistic loss of more than two classes."""

    kind: Literal["softmax"] = "softmax"


AnyLoss = Annotated[LogisticLoss | HuberLoss | SquaredLoss | HingeLoss | SoftmaxLoss, Field(discriminator="kind")]


# ── maps of columns into the unit ball ───────────────────────────────────────

MOST_NUMBERS = 2**19
"""The most numbers of a projection: 2.7 MiB of a study, which travels with each run."""
_MOST_FREQUENCIES = 2**22
_LONGEST = 1 + 2.0**-16
"""The longest that a component of norm 1 can become by rounding."""


def _check_numbers(text: str) -> str:
    """Raise ValueError unless a text is finite numbers, in their one spelling."""
    try:
        packed = b64decode(text, validate=True)
    except ValueError:
        packed = b""
    if not packed or len(packed) % 4 or b64encode(packed).decode() != text:
        raise ValueError("must be base64 of float32 numbers")
    if not np.isfinite(np.frombuffer(packed, dtype="<f4")).all():
        raise ValueError("its numbers must be finite")
    return text


Numbers32 = Annotated[
    str,
    Field(max_length=MOST_NUMBERS * 16 // 3 + 4, description="base64 of little-endian float32, row by row"),
    AfterValidator(_check_numbers),
]
"""Numbers as text, compact and exact."""


class Projection(Strict):
    """x in R^m to P (x - mean) / radius in R^k; where that is longer than 1, to the point of the sphere below it.

    x are the study's columns before they are divided, without the intercept: numbers in [-1, 1], 0 or 1 for each value
    of a category. ``mean`` is m numbers in [-1, 1], ``components`` P row by row: k <= m rows of norm at most 1.
    ``auxiliary`` names the public rows that it was fitted to, if it was, by SHA-256 of their file.
    """

    mean: Numbers32
    components: Numbers32
    radius: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    auxiliary: Digest | None = None

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        mean, numbers = numbers_of(self.mean), numbers_of(self.components)
        if len(numbers) % len(mean):
            raise ValueError(f"components have {len(numbers)} numbers, not a multiple of the {len(mean)} of the mean")
        if self.n_outputs > self.n_inputs:
            raise ValueError(f"there are {self.n_outputs} components, more than {self.n_inputs} columns")
        if np.abs(mean).max() > 1:
            raise ValueError("the mean must lie in [-1, 1], as the columns do")
        if (longest := np.linalg.norm(numbers.reshape(-1, len(mean)), axis=1).max()) > _LONGEST:
            raise ValueError(f"components must have norms of at most 1, and one has {longest:g}")
        return self

    @classmethod
    def of(cls, mean: FloatArray, components: FloatArray, radius: float, auxiliary: str | None = None) -> Self:
        """Build the projection by ``mean`` (m,) and ``components`` (k, m), which are rounded to float32.

        Raises ValueError for shapes that do not fit each other, and for numbers that a projection cannot have.
        """
        if mean.ndim != 1 or components.ndim != 2 or components.shape[1] != len(mean):  # noqa: PLR2004 -- axes
            raise ValueError(f"mean must be (m,) and components (k, m); got {mean.shape} and {components.shape}")
        return cls(mean=_text(mean), components=_text(components), radius=radius, auxiliary=auxiliary)

    @property
    def n_inputs(self) -> int:
        """The number of columns of a row, m."""
        return _count(self.mean)

    @property
    def n_outputs(self) -> int:
        """The number of components of a row, k."""
        return _count(self.components) // self.n_inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the components."""
        return tuple(f"component {i + 1}" for i in range(self.n_outputs))

    def check(self, n_inputs: int) -> None:
        """Raise ValueError unless the projection maps rows of this many columns."""
        if self.n_inputs != n_inputs:
            raise ValueError(f"the projection is of {self.n_inputs} columns, and the features make {n_inputs}")


class RandomFeatures(Strict):
    """x to sqrt(2/n) (cos Wx, sin Wx) in R^n, of norm 1; products are about exp(-gamma |x - x'|^2), Gaussian kernels.

    Row by row, W (n/2, m) is sqrt(2 gamma) times standard normal numbers, put on the grid of 2^-20: the inverse of the
    normal distribution function at (r + 1/2) 2^-53, r being the upper 53 bits of what the counter-based generator
    Philox4x64-10 draws whose key is ``seed`` (Salmon et al. 2011; ``numpy.random.Philox(key=seed).random_raw()``).
    Cosine and sine of each frequency have less variance than the paper's cosines with random phases, and their norm
    needs no bound (Sutherland & Schneider 2015).
    """

    n: Annotated[int, Field(ge=2, le=2**14, multiple_of=2, description="how many, an even number")]
    seed: Annotated[int, Field(ge=0, lt=2**53, description="whose W it is; no secret")]
    gamma: Annotated[float, Field(gt=0, le=2**20, description="of the kernel: 1 / (2 bandwidth^2)")]

    @property
    def n_outputs(self) -> int:
        """The number of random features of a row."""
        return self.n

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the random features."""
        return tuple(f"{name} {i + 1}" for name in ("cosine", "sine") for i in range(self.n // 2))

    def check(self, n_inputs: int) -> None:
        """Raise ValueError if this many columns make W too large."""
        if self.n // 2 * n_inputs > _MOST_FREQUENCIES:
            most = 2 * (_MOST_FREQUENCIES // n_inputs)
            raise ValueError(f"random_features of {n_inputs} columns may be at most {most}, not {self.n}")


RowMap = Projection | RandomFeatures


def _text(numbers: FloatArray) -> str:
    with np.errstate(over="ignore"):  # infinity is refused as such
        return b64encode(np.ascontiguousarray(numbers, dtype="<f4").tobytes()).decode()


def numbers_of(text: Numbers32) -> FloatArray:
    """Return the numbers (n,) of a text."""
    return np.frombuffer(b64decode(text), dtype="<f4").astype(np.float64)


def _count(text: str) -> int:
    """Return how many numbers a text holds: four characters are three bytes, except for the ``=`` at the end."""
    return (len(text) * 3 // 4 - text.count("=")) // 4


# ── the study ────────────────────────────────────────────────────────────────

StudyKind = Literal["binary", "multiclass", "regression"]

_MOST_COLUMNS = 100_000


class UsualLabel(NamedTuple):
    """A real label's mean and deviation, its bounds being -1 and +1, and the intercept's weight that predicts them."""

    mean: float
    deviation: float
    intercept: float


class Study(Strict):
    """What is to be learnt: features and a label with public bounds or values, loss, intercept.

    Its ``kind`` follows from the label, and must fit it if it is given. Without a ``loss`` it is the label's own:
    logistic for two classes, softmax for more, squared for a real number.

    ``row_norm`` is a row's divisor: each its own norm, so that none has less than the signal that the noise is scaled
    to; the largest norm that any row can have; or a public bound, and rows beyond it are projected. By default it is a
    row's own norm for classes, which follow from the sign of a score or the largest, and the largest norm for a real
    number, to which scores add up. ``norm`` is that by which rows are at most 1. By the ``max`` norm numbers lie in
    [-1, 1], values of categories and the intercept are 0 or 1, and no row is divided: ``row_norm`` is "largest", which
    is 1.

    ``auxiliary`` names the public rows from which bounds were taken, if they were (`parley.common.data.auxiliary`), by
    SHA-256 of their file. ``projection`` and ``random_features`` map the columns into the unit ball before the
    intercept joins them and a row is divided, one after the other if a study has both. The largest norm is then that of
    the ball and the intercept, and the default divisor of rows: a radius was chosen to be that.

    Features may be `SparseFeatures`, which are then a study's only ones. ``title`` and ``purpose`` say in plain words
    what it is and what for, as a column's ``description`` and ``unit`` do: all of it is in the digest that parties
    approve, so nobody's words change under them. ``hold_out`` is the share of each owner's rows that is kept for
    evaluation; see `parley.common.data.study`. ``class_weights`` are those of its runs, unless a run states others; see
    `parley.common.data.class_weights`. If ``person`` is stated, examples are persons, each of all its rows. With
    ``row_weights`` each row counts as much as its column says.
    """

    format: Literal["parley-study-2"] = "parley-study-2"
    name: PlainName
    title: Annotated[PlainText, Field(max_length=200)] = ""
    purpose: PlainText = ""
    features: Annotated[
        tuple[AnyFeature, ...],
        Field(min_length=1, max_length=_MOST_COLUMNS),
    ]
    label: AnyLabel
    kind: StudyKind = Field(default_factory=lambda read: _kind_of(read.get("label")))
    loss: AnyLoss = Field(default_factory=lambda read: _default_loss(read.get("label")))
    intercept: bool = True
    missing: Missing = "refuse"
    norm: Norm = "euclidean"
    projection: Projection | None = None
    random_features: RandomFeatures | None = None
    row_norm: RowNorm = Field(
        default_factory=lambda read: _default_norm(
            read.get("label"), read.get("norm"), read.get("projection"), read.get("random_features")
        )
    )
    auxiliary: Digest | None = None
    hold_out: HoldOut | None = None
    class_weights: Annotated[ClassWeights | None, Field(exclude_if=lambda stated: stated is None)] = None
    person: Annotated[Person | None, Field(exclude_if=lambda stated: stated is None)] = None
    row_weights: Annotated[RowWeights | None, Field(exclude_if=lambda stated: stated is None)] = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_older(cls, values: object) -> object:
        if isinstance(values, dict) and "clip_norm" in values:
            raise ValueError(
                "clip_norm is a parameter of runs now, and rows are divided by their own norm: this is the study of an "
                "older version of Parley. Make it again (parley-learner study init) and agree on it with the owners"
            )
        return values

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        names = self.table_names
        if len(set(names)) < len(names):
            twice = [name for name, count in Counter(names).items() if count > 1]
            raise ValueError(f"columns named twice: {', '.join(twice[:5])}")
        if self.sparse:
            self._check_sparse()
        elif self.n_columns > _MOST_COLUMNS:
            raise ValueError(f"the features make {self.n_columns} columns; at most {_MOST_COLUMNS} are possible")
        width = self.n_columns
        for row_map in self.maps:
            row_map.check(width)
            width = row_map.n_outputs
        filled = [feature for feature in self.features if missing_policy(feature, self.missing) == "value"]
        unfilled = [feature.name for feature in filled if feature.fill is None]
        if unfilled:
            raise ValueError(f'missing = "value" needs a fill for each feature; none for {", ".join(unfilled[:5])}')
        return self

    def _check_sparse(self) -> None:
        """Raise ValueError for sparse features with others, or with maps, whose rows are dense."""
        if len(self.features) > 1:
            raise ValueError("sparse features stand alone: put other columns among them, at places of their own")
        if self.maps:
            raise ValueError("sparse features take no projection and no random_features: what is mapped is dense")
        if self.missing == "value":
            raise ValueError('sparse features have no fill: missing must be "refuse" or "drop"')

    @model_validator(mode="after")
    def _norms_fit(self) -> Self:
        if self.norm == "max" and self.row_norm != "largest":
            raise ValueError("by the max norm no row is divided: row_norm must be 'largest', which is 1")
        return self

    @model_validator(mode="after")
    def _loss_fits(self) -> Self:
        kind, classes = self.loss.kind, self.n_classes
        if not classes and kind != "squared":
            raise ValueError(f"label {self.label.name!r} is a real number: its loss must be 'squared'")
        if classes > 2 and kind != "softmax":  # noqa: PLR2004
            raise ValueError(f"label {self.label.name!r} has {classes} values: its loss must be 'softmax'")
        if self.kind != (kind_of_label := _kind_of(self.label)):
            raise ValueError(f"label {self.label.name!r} makes the study's kind {kind_of_label!r}, not {self.kind!r}")
        return self

    @model_validator(mode="after")
    def _class_weights_fit(self) -> Self:
        resolved_weights(self.class_weights, self.label)
        return self

    @model_validator(mode="after")
    def _person_is_no_feature(self) -> Self:
        if self.person is not None and self.person.column in self.table_names:
            raise ValueError(
                f"person: {self.person.column!r} is a feature or the label: a model that has learnt an identifier "
                "knows persons by it"
            )
        return self

    @model_validator(mode="after")
    def _weights_are_a_column(self) -> Self:
        names = (*self.table_names, *([self.person.column] if self.person else []))
        if self.row_weights is not None and self.row_weights.column in names:
            raise ValueError(
                f"row_weights: {self.row_weights.column!r} is a feature, the label or the person's: weights have a "
                "column of their own"
            )
        return self

    @property
    def unit(self) -> Literal["replace_one", "person"]:
        """What its runs hide, and what is counted as an example: a record, or all rows of a person."""
        return "replace_one" if self.person is None else "person"

    @property
    def most_rows(self) -> int:
        """The most rows that an example has: 1 unless it is a person."""
        return 1 if self.person is None else self.person.most_rows

    @property
    def of_rows(self) -> Study:
        """The same columns for rows that are public: each is an example of weight 1, whose it is says nothing."""
        return self.model_copy(update={"person": None, "row_weights": None})

    @property
    def named(self) -> tuple[Feature | Category, ...]:
        """The features that are columns of a table by name: all, or none if they are sparse."""
        return tuple(feature for feature in self.features if not isinstance(feature, SparseFeatures))

    @property
    def n_classes(self) -> int:
        """The number K of classes; 0 for a real label."""
        return len(self.label.values) if isinstance(self.label, Label) else 0

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features in order."""
        return tuple(feature.name for feature in self.features)

    @property
    def table_names(self) -> tuple[str, ...]:
        """The columns of an owner's table: the features in order, then the label."""
        return (*(name for feature in self.features for name in feature.table_names), self.label.name)

    @property
    def columns_beside(self) -> tuple[str, ...]:
        """The columns of an owner's table that are no feature and no label: of the person and of rows' weights."""
        return tuple(stated.column for stated in (self.person, self.row_weights) if stated is not None)

    @property
    def source_names(self) -> tuple[str, ...]:
        """All columns of an owner's table that are read."""
        return (*self.table_names, *self.columns_beside)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns of the design in order, such as ``workclass=Private``; the intercept last.

        They are empty for sparse features.
        """
        if self.sparse:
            return ()
        names = tuple(name for feature in self.features for name in feature.column_names)
        if self.maps:
            names = self.maps[-1].output_names
        return (*names, "intercept") if self.intercept else names

    @property
    def constant(self) -> float:
        """The constant of the intercept's column before a row is divided: 1, or 0 without an intercept.

        For a real label it is a quarter of the largest squared norm: if bounds are wide, most of what there is to learn
        is how far the mean lies from their middle, and that takes the steps that the largest curvature allows.
        """
        if not self.intercept:
            return 0.0
        if self.norm == "max":
            return 1.0
        return 1.0 if self.n_classes else constant_of_numbers(self._n_terms)

    @property
    def majority(self) -> float | None:
        """The share of the commonest class; None if it is unknown."""
        return max(self.class_shares) if self.class_shares else None

    @cached_property
    def class_shares(self) -> tuple[float, ...] | None:
        """The part of the population that each class is; None if it is unknown, and for a real label."""
        return self.label.frequencies if isinstance(self.label, Label) else None

    @cached_property
    def weights_of_classes(self) -> tuple[float, ...]:
        """The weight in training of each class, in order; empty if all are 1."""
        return resolved_weights(self.class_weights, self.label)

    @cached_property
    def usual_label(self) -> UsualLabel | None:
        """The usual values of a real label; None if they are unknown, or no intercept predicts the same everywhere."""
        usual = self.label.usual if isinstance(self.label, RealLabel) else None
        if usual is None or not self.intercept or self.row_norm == "own":
            return None
        norm = self.largest_norm if self.row_norm == "largest" else min(self.largest_norm, self.row_norm)
        return UsualLabel(*usual, usual[0] * norm / self.constant)

    @property
    def largest_norm(self) -> float:
        """The largest norm that a row can have before it is divided."""
        if self.norm == "max":
            return 1.0
        return largest_norm(self._n_terms, self.constant)

    @property
    def row_entries(self) -> int | None:
        """The most numbers of a row that are not zero, if rows are sparse; otherwise None."""
        return self.sparse.entries + self.intercept if self.sparse else None

    @property
    def sparse(self) -> SparseFeatures | None:
        """The sparse features, if the study has such; otherwise None."""
        return next((feature for feature in self.features if isinstance(feature, SparseFeatures)), None)

    @property
    def _n_terms(self) -> int:
        """The number of terms of at most 1 in the squared norm of a row, without the intercept's."""
        if self.sparse:
            return self.sparse.entries
        return 1 if self.maps else len(self.features)

    @property
    def maps(self) -> tuple[RowMap, ...]:
        """The maps of the columns into the unit ball, in turn."""
        return tuple(row_map for row_map in (self.projection, self.random_features) if row_map is not None)

    @property
    def n_columns(self) -> int:
        """The number of columns of the features, m: one for a number, one for each value of a category."""
        return sum(feature.n_columns for feature in self.features)

    @property
    def n_features(self) -> int:
        """The number of columns of the design, d: those of the features, or of their map; and the intercept."""
        return (self.maps[-1].n_outputs if self.maps else self.n_columns) + self.intercept

    @property
    def text_names(self) -> frozenset[str]:
        """The names of the columns whose values are distinguished by their spelling: categories, a label of classes."""
        label = (self.label,) if isinstance(self.label, Label) else ()
        return frozenset(feature.name for feature in (*self.features, *label) if not isinstance(feature, Feature))

    @property
    def text_values(self) -> dict[str, tuple[str, ...]]:
        """The columns of `text_names`, and the values that each declares."""
        return {
            feature.name: () if isinstance(feature, SparseFeatures) else feature.values
            for feature in (*self.features, self.label)
            if isinstance(feature, Category | SparseFeatures | Label)
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the study's canonical JSON."""
        return canonical_digest(self.model_dump(mode="json"))

    def has_digest(self, digest: str) -> bool:
        """Return whether this is the study's digest, or was: older versions left out what a label does not state."""
        if digest == self.digest:
            return True
        content = self.model_dump(mode="json")
        label = {name: value for name, value in content["label"].items() if value is not None}
        return canonical_digest(content | {"label": label}) == digest


def _default_loss(label: object) -> AnyLoss:
    """Return the loss of a study that names none; ``label`` is the validated label, None if that is faulty."""
    if isinstance(label, RealLabel):
        return SquaredLoss()
    return SoftmaxLoss() if isinstance(label, Label) and len(label.values) > 2 else LogisticLoss()  # noqa: PLR2004


def _default_norm(label: object, norm: object, *maps: object) -> RowNorm:
    """Return the divisor of rows in a study without ``row_norm``, by the validated label, norm and maps."""
    return "largest" if norm == "max" or any(maps) or isinstance(label, RealLabel) else "own"


def _kind_of(label: object) -> StudyKind:
    """Return the kind of study for a label: two classes to predict, more, or a real number."""
    if isinstance(label, RealLabel):
        return "regression"
    return "multiclass" if isinstance(label, Label) and len(label.values) > 2 else "binary"  # noqa: PLR2004
