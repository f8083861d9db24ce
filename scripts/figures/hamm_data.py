"""Parties, public rows and test rows of Hamm, Cao & Belkin's experiments, drawn again for each trial.

Human activities (HAR): 1,000 parties of 6 windows, six classes; 1,000 other windows are public, and their 50 first
principal components, mean and radius map all rows. The test is the publisher's, of other people.

Intrusions (KDD99, 10 % file): up to 20,000 parties of 22 connections, normal or attack, and 43,000 public ones, as the
paper has them. No two parties hold one line of the file, but seven lines in ten repeat an earlier one, so two may hold
the same row. The test is the corrected test file, 311,029 connections of another law. *Reduced*, 2,000 are public and
5,000 tested.

Malicious addresses: of the subset's 5,700 rows of 3.2 million sparse features 400 parties hold 9 each, and 1,000 are
public: their 1,000 most frequent features are kept and mapped to the 50 first components. The rest is the test.

All but KDD99's rows are without an intercept. Files are looked for in the folder that $PARLEY_DATA names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.auxiliary import with_projection_of
from parley.common.data.columns import Columns, Feature, Label
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.files.tables import read_columns
from parley.common.learning.losses import Loss, build_loss
from scripts.utility import examples

COMPONENTS = 50
_FREQUENT = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A trial's rows: the parties', stacked (M, n, d), public ones (N, d), and those to test on, in random order."""

    loss: Loss
    parties: Shard
    public: FloatArray
    test: Shard


Draw = Callable[[int], Split]
"""A split by the number of the trial."""


def har(trial: int, *, intercept: bool = False) -> Split:
    """Deal rows of HAR to 1,000 parties, 6 each."""
    train, test = (_table("har-smartphones", f"har-{part}") for part in ("train", "test"))
    owned, public, remaining = _dealt(trial, len(train["activity"]), (1000 * 6, 1000))
    del remaining  # of those who train; the test is of others
    tested = np.random.default_rng([trial, 2]).permutation(len(test["activity"]))
    study = with_projection_of(
        examples.HAR.model_copy(update={"intercept": intercept}), _some(train, public), COMPONENTS
    ).study
    return _split(study, 6, _some(train, owned), _some(train, public), _some(test, tested))


def kdd99(parties: int, public_rows: int = 43_000, tests: int | None = None) -> Draw:
    """Deal rows of KDD99 to so many parties, 22 each; without a number, all rows of the test file are tested."""

    def draw(trial: int) -> Split:
        rows, corrected = _connections()
        owned, public, _ = _dealt(trial, len(rows.y), (parties * 22, public_rows))
        tested = np.random.default_rng([trial, 2]).permutation(len(corrected.y))[:tests]
        return Split(
            build_loss(examples.KDD99),
            Shard(rows.X[owned].reshape(parties, 22, -1), rows.y[owned].reshape(parties, 22)),
            rows.X[public],
            examples.some(corrected, tested),
        )

    return draw


def url(trial: int) -> Split:
    """Deal rows of the URL data to 400 parties, 9 each."""
    table = _table("url-subset", "url-subset")
    owned, public, test = _dealt(trial, len(table["label"]), (400 * 9, 1000))
    row, index, value = _entries()
    frequent = _most_frequent(index[np.isin(row, public)])
    dense = np.zeros((len(table["label"]), len(frequent)))
    place = np.minimum(np.searchsorted(frequent, index), len(frequent) - 1)
    is_kept = frequent[place] == index
    dense[row[is_kept], place[is_kept]] = value[is_kept]
    columns: Columns = {f"f{j}": dense[:, i] for i, j in enumerate(frequent.tolist())}
    columns = {**columns, "label": np.where(table["label"] == 1, "malicious", "benign").astype(object)}
    unmapped = Study(
        name="url",
        features=tuple(Feature(name=f"f{j}", lower=-1, upper=1) for j in frequent.tolist()),
        label=Label(name="label", values=("benign", "malicious")),
        intercept=False,
    )
    study = with_projection_of(unmapped, _some(columns, public), COMPONENTS).study
    return _split(study, 9, *(_some(columns, rows) for rows in (owned, public, test)))


DRAWS: Mapping[str, Draw] = {
    "har": har,
    "har with an intercept": partial(har, intercept=True),
    "url": url,
    **{f"kdd99 of {parties}": kdd99(parties) for parties in (5000, 10_000, 20_000)},
    **{f"kdd99 of {parties}, reduced": kdd99(parties, 2000, 5000) for parties in (4000, 5000, 10_000, 20_000)},
}


def _split(study: Study, rows: int, *tables: Columns) -> Split:
    """Tables of the parties' rows, so many each, of public rows and of the test's, under a study."""
    owned, public, test = (shard_of(study, table, clip=True) for table in tables)
    stack = Shard(owned.X.reshape(-1, rows, owned.n_features), owned.y.reshape(-1, rows))
    return Split(build_loss(study), stack, public.X, test)


def _dealt(trial: int, n: int, sizes: tuple[int, ...]) -> list[IntArray]:
    """Rows in random order, in parts of these sizes and what is left."""
    return np.split(np.random.default_rng([trial, 1]).permutation(n), np.cumsum(sizes))


def _most_frequent(features: IntArray) -> IntArray:
    """The features that occur most often, in order of their numbers."""
    names, often = np.unique(features, return_counts=True)
    return np.sort(names[np.argsort(-often, kind="stable")[:_FREQUENT]])


def _some(table: Columns, rows: IntArray) -> Columns:
    return {name: column[rows] for name, column in table.items()}


@cache
def _table(folder: str, name: str) -> Columns:
    return read_columns(examples.data_path(folder, f"{name}.parquet"))


@cache
def _entries() -> tuple[IntArray, IntArray, FloatArray]:
    """The rows, features and values of the entries of the subset of addresses."""
    table = _table("url-subset", "url-subset")
    row = np.repeat(np.arange(len(table["index"])), [len(index) for index in table["index"]])
    return row, np.concatenate(table["index"]).astype(np.int64), np.concatenate(table["value"]).astype(np.float64)


@cache
def _connections() -> tuple[Shard, Shard]:
    """The 10 % file's connections, and those of the corrected test file."""
    train, test = (
        shard_of(examples.KDD99, examples.connections(_table("kdd99", name)), clip=True)
        for name in ("train-10pct", "test-corrected")
    )
    return train, test
