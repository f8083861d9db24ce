"""Loads data to try a study on, and splits and deals them to parties: breast cancer, digits, simulated data, or a file.

This is for simulation, where one process sees all the data; in a real run no process does.

*Breast cancer* (``wdbc``): the Wisconsin diagnostic set, 569 biopsies, 30 measurements (Street, Wolberg & Mangasarian
1993; UCI Machine Learning Repository; scikit-learn's copy, read without a network). The bounds of its study are typed
below and agree with the mean +- one standard deviation of the whole set, test examples included, rounded. The set is
public, so this serves a demonstration; it is *not* private, the guarantees do not count it, and the accuracies here are
better than bounds fixed without the data would give. An owner of private data takes bounds from the literature, never
from its records. The width was chosen by test accuracy among 1, 1.5, 2 and 3 deviations. Values beyond the bounds,
about a quarter, are clipped. The width matters: dp_gd at epsilon = 1, delta = 1e-5 under a secure sum reaches a
mean accuracy of .95 with these bounds, and .90 with those of `BIOPSIES`, which hold every value of the set.

*Digits* (``digits``): 1,797 handwritten digits of ten classes in 8 x 8 pixels, each a count from 0 to 16 (Alpaydin &
Kaynak 1998; UCI Machine Learning Repository; scikit-learn's copy).

*Simulated data*: N examples in the unit ball of d = 10 dimensions, linearly separable through the origin, as in the
experiments of Rajkumar & Agarwal, "A Differentially Private Stochastic Gradient Descent Algorithm for Multiparty
Classification", AISTATS 2012. The laws within the ball are ours: uniform on the sphere around it (``simulated``) or in
its interior (``simulated-ball``). The label is the side of a random hyperplane, which is drawn again for every data
set; N test examples come from the same law.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from parley.common.data.columns import Columns, Feature, Label, RealLabel
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.data.study import Study, StudyKind
from parley.common.errors import InvalidInputError
from parley.common.extras import require_extra
from parley.common.files.sources import parse_source
from parley.common.files.studies import read_study
from parley.common.learning.losses import Logistic, Loss, build_loss

TEST_FRACTION = 0.25

_WDBC_SCALES = (  # name, centre, typical spread, and bounds of every value
    ("mean_radius", 14.1, 3.5, 6.9, 29),
    ("mean_texture", 19.3, 4.3, 9.7, 40),
    ("mean_perimeter", 92.0, 24.0, 43, 190),
    ("mean_area", 650.0, 350.0, 140, 2600),
    ("mean_smoothness", 0.096, 0.014, 0.052, 0.17),
    ("mean_compactness", 0.10, 0.05, 0.019, 0.35),
    ("mean_concavity", 0.09, 0.08, 0, 0.43),
    ("mean_concave_points", 0.05, 0.04, 0, 0.21),
    ("mean_symmetry", 0.18, 0.03, 0.1, 0.31),
    ("mean_fractal_dimension", 0.063, 0.007, 0.049, 0.098),
    ("radius_error", 0.4, 0.3, 0.11, 2.9),
    ("texture_error", 1.2, 0.55, 0.36, 4.9),
    ("perimeter_error", 2.9, 2.0, 0.75, 22),
    ("area_error", 40.0, 45.0, 6.8, 550),
    ("smoothness_error", 0.007, 0.003, 0.0017, 0.032),
    ("compactness_error", 0.025, 0.018, 0.0022, 0.14),
    ("concavity_error", 0.03, 0.03, 0, 0.4),
    ("concave_points_error", 0.012, 0.006, 0, 0.053),
    ("symmetry_error", 0.02, 0.008, 0.0078, 0.079),
    ("fractal_dimension_error", 0.0038, 0.0026, 0.00089, 0.03),
    ("worst_radius", 16.3, 4.8, 7.9, 37),
    ("worst_texture", 25.7, 6.1, 12, 50),
    ("worst_perimeter", 107.0, 34.0, 50, 260),
    ("worst_area", 880.0, 570.0, 180, 4300),
    ("worst_smoothness", 0.13, 0.023, 0.071, 0.23),
    ("worst_compactness", 0.25, 0.16, 0.027, 1.1),
    ("worst_concavity", 0.27, 0.21, 0, 1.3),
    ("worst_concave_points", 0.115, 0.066, 0, 0.3),
    ("worst_symmetry", 0.29, 0.06, 0.15, 0.67),
    ("worst_fractal_dimension", 0.084, 0.018, 0.055, 0.21),
)

WDBC = Study(
    name="wdbc",
    features=tuple(
        Feature(name=name, lower=round(centre - spread, 6), upper=round(centre + spread, 6))
        for name, centre, spread, _, _ in _WDBC_SCALES
    ),
    label=Label(name="diagnosis", values=("benign", "malignant")),
)
"""The breast cancer study: 30 measurements, each with public bounds; malignant is positive."""

BIOPSIES = Study(
    name="biopsies",
    features=tuple(Feature(name=name, lower=lower, upper=upper) for name, _, _, lower, upper in _WDBC_SCALES),
    label=WDBC.label,
)
"""The same measurements within bounds that hold every value of the public set, rounded outwards."""

DIGITS = Study(
    name="digits",
    features=tuple(Feature(name=f"pixel_{row}_{column}", lower=0, upper=16) for row in range(8) for column in range(8)),
    label=Label(name="digit", values=tuple(map(str, range(10)))),
)
"""The digits study: 64 pixels, ten classes, softmax."""

BUILT_IN = ("wdbc", "digits", "simulated", "simulated-ball")
"""The data sets that need no file."""


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Data that can be drawn repeatedly: each draw is a training and a test shard, (n, d) and (m, d).

    ``kind`` says what a model predicts, and so how it is measured; ``unit`` is the value of 1 in a real label's units.
    ``fold`` draws in the same way, but holds out the i-th of k parts of the examples in the generator's order; it is
    None if each draw makes new examples, which have no parts. ``study`` is the study of the columns, if there is one.
    Of ``n_rows`` rows, 0 if they are new in each draw, ``n_dropped`` miss a value and are empty; ``missing`` counts
    them by column, the largest count first. ``notes`` say how a file was read, and what is odd about its
    persons.
    """

    loss: Loss
    draw: Callable[[np.random.Generator], tuple[Shard, Shard]]
    kind: StudyKind = "binary"
    unit: float = 1.0
    fold: Callable[[np.random.Generator, int, int], tuple[Shard, Shard]] | None = None
    study: Study | None = None
    n_rows: int = 0
    n_dropped: int = 0
    missing: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def load_dataset(name: str, study: Path | None = None, tables: Sequence[str] = (), csv: str | None = None) -> Dataset:
    """Load the data set of this name: one of `BUILT_IN`, or a source for `parse_source` with its study (JSON).

    Raises InvalidInputError for a study that cannot be read, InvalidDataError for a file that does not fit it.
    """
    if name == "wdbc":
        return examples(WDBC, shard_of(WDBC, wdbc_columns(), clip=True))
    if name == "digits":
        return examples(DIGITS, shard_of(DIGITS, digits_columns()))
    if name in {"simulated", "simulated-ball"}:
        return simulated(interior=name == "simulated-ball")
    if study is None:
        raise InvalidInputError(
            f"data {name!r} is none of {', '.join(BUILT_IN)}; a file of data, or a query, needs a study"
        )
    from parley.common.files.examples import load_source  # noqa: PLC0415 -- pyarrow, which only files need
    from parley.common.files.study_fit import odd_persons  # noqa: PLC0415 -- which needs it too

    terms = read_study(study)
    loaded = load_source(parse_source(name, tables, csv), terms, clip=True)
    dropped = round(loaded.dropped_share * len(loaded.shard.y))
    notes = [*loaded.notes]
    if terms.person is not None and loaded.persons is not None:
        notes += odd_persons(loaded.persons, terms.person.column, terms.person.most_rows)
    return replace(examples(terms, loaded.shard), n_dropped=dropped, missing=loaded.missing, notes=tuple(notes))


def examples(study: Study, shard: Shard) -> Dataset:
    """Return a study's examples, rows (m, d): each draw holds out a random quarter, each fold one of the parts.

    All rows of a person are for the test, or none. Raises InvalidInputError for too few rows, and so does a fold.
    """
    n = int(shard.n_examples)
    n_test = int(n * TEST_FRACTION)
    if not 0 < n_test < n:
        raise InvalidInputError(f"{n} examples are too few to hold some out for a test")

    def draw(rng: np.random.Generator) -> tuple[Shard, Shard]:
        order = rng.permutation(n)
        return shard.take_examples(order[n_test:]), shard.take_examples(order[:n_test])

    def fold(rng: np.random.Generator, index: int, folds: int) -> tuple[Shard, Shard]:
        if folds > n:
            raise InvalidInputError(f"{n} examples are too few for {folds} folds")
        parts = np.array_split(rng.permutation(n), folds)
        held_out = parts.pop(index)
        return shard.take_examples(np.concatenate(parts)), shard.take_examples(held_out)

    label = study.label
    unit = (label.upper - label.lower) / 2 if isinstance(label, RealLabel) else 1.0
    return Dataset(build_loss(study), draw, study.kind, unit, fold, study, len(shard.y))


def simulated(n_examples: int = 1000, n_features: int = 10, *, interior: bool = False) -> Dataset:
    """Return N training and N test examples, separated by a random hyperplane, new in every draw.

    They are uniform on the unit sphere or, if ``interior``, in the unit ball.
    """

    def draw(rng: np.random.Generator) -> tuple[Shard, Shard]:
        normal = rng.standard_normal(n_features)
        X = rng.standard_normal((2, n_examples, n_features))
        X /= np.linalg.norm(X, axis=-1, keepdims=True)
        if interior:
            X *= rng.random((2, n_examples, 1)) ** (1 / n_features)
        y = np.where(X @ normal > 0, 1.0, -1.0)
        return Shard(X[0], y[0]), Shard(X[1], y[1])

    return Dataset(Logistic(), draw)


def wdbc_columns() -> Columns:
    """Load the breast cancer set by column, unscaled, in the names and label values of `WDBC`; (569,) each."""
    require_extra("sklearn", "the data set wdbc")
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415 -- a second to import, for one data set

    data = load_breast_cancer()
    columns = {name.replace(" ", "_"): data.data[:, i] for i, name in enumerate(data.feature_names)}
    return columns | {WDBC.label.name: data.target_names[data.target]}


def digits_columns() -> Columns:
    """Load the digits by column, in the names and label values of `DIGITS`; (1797,) each."""
    require_extra("sklearn", "the data set digits")
    from sklearn.datasets import load_digits  # noqa: PLC0415 -- as above

    data = load_digits()
    columns = dict(zip(DIGITS.feature_names, data.data.T, strict=True))
    return columns | {DIGITS.label.name: data.target}


def shard_sizes(n_examples: int, parties: int, skew: float = 0.0) -> tuple[int, ...]:
    """Return how many of n examples each of K parties gets: the k-th party's share is proportional to k^skew.

    The sizes add up to n. A skew of 0 deals evenly; 1 deals in the proportions 1 : 2 : ... : K.

    >>> shard_sizes(1000, 5)
    (200, 200, 200, 200, 200)
    >>> shard_sizes(1000, 5, skew=1)
    (67, 133, 200, 267, 333)

    Raises InvalidInputError when there is no party, skew is negative, or a party would get nothing.
    """
    if parties < 1 or not 0 <= skew < math.inf:
        raise InvalidInputError(f"parties must be positive and skew not negative, not {parties} and {skew}")
    if parties > n_examples:
        raise InvalidInputError(f"{n_examples} examples are too few for that many parties: each needs one")
    return sizes_by_shares(n_examples, (np.arange(1, parties + 1, dtype=np.float64) ** skew).tolist())


def sizes_by_shares(n_examples: int, shares: Sequence[float]) -> tuple[int, ...]:
    """Return how many of n examples each of K parties gets by shares (K,) in any unit; the sizes add up to n.

    >>> sizes_by_shares(1000, (0.01, 0.29, 0.2, 0.25, 0.25))
    (10, 290, 200, 250, 250)

    Raises InvalidInputError when a party would get nothing.
    """
    ends = np.cumsum(shares)
    sizes = np.diff(np.rint(ends / ends[-1] * n_examples).astype(np.int64), prepend=0)
    if sizes.min() < 1:
        raise InvalidInputError(f"{n_examples} examples are too few for {len(sizes)} parties of such shares")
    return tuple(sizes.tolist())


def random_sizes(n_examples: int, parties: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Draw sizes (K,) uniformly from all ways to give each of K parties at least one of n examples.

    The shares are uniform on the simplex, on the grid of 1/n. Raises InvalidInputError if there are too few examples.
    """
    if not 1 <= parties <= n_examples:
        raise InvalidInputError(f"{n_examples} examples are too few for {parties} parties")
    cuts = np.sort(rng.choice(n_examples - 1, parties - 1, replace=False)) + 1
    return tuple(np.diff(cuts, prepend=0, append=n_examples).tolist())


def deal(shard: Shard, sizes: tuple[int, ...]) -> Shard:
    """Deal examples of rows (m, d) in order to K parties of these sizes, each with all its rows, as a stack of shards.

    The stack is (K, r, d), where r is the most rows of a party: max(sizes) unless examples are persons.
    """
    ends = np.cumsum(sizes)
    return Shard.stack([shard.examples(end - size, end) for size, end in zip(sizes, ends.tolist(), strict=True)])
