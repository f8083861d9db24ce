"""The examples of Jain & Thakurta's figures, 70 % to train on and 30 % to test, split again in each run.

*cod-rna*: the columns of `scripts.utility.examples.COD_RNA`, scaled by bounds that are quantiles of the public set,
which no epsilon counts, and an intercept. *cod-rna, bloated* has so many columns more, of zeros. *url*: 5,700 rows of
the URL set in 3,231,961 columns; some 118 of a row are not zero. By the Euclidean norm each row is divided by its own;
by the max norm none is. What the paper does to the columns beforehand it does not say.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.sparse import csr_array

from parley.common.arrays import FloatArray
from parley.common.data.sparse import SparseShard
from parley.common.encoding.fixed_point import Norm
from parley.common.files.examples import load_examples
from scripts.utility import examples

FOLDER = {"cod-rna": "cod-rna", "url": "url-subset"}
"""The folder of ``$PARLEY_DATA`` that each set is read from."""
URL_COLUMNS = 3_231_961
_TRAIN = 0.7


@cache
def every_row(data: str, norm: Norm, columns: int = 0) -> SparseShard:
    """All rows of a set, of so many columns where it has fewer; raises AbsentError where it is not here."""
    rows, y = _url() if data == "url" else _cod_rna()
    wide = csr_array((rows.data, rows.indices, rows.indptr), shape=(len(y), max(columns, rows.shape[1])))
    if norm == "euclidean":
        lengths = np.sqrt(np.bincount(np.repeat(np.arange(len(y)), np.diff(wide.indptr)), wide.data**2, len(y)))
        wide.data = wide.data / np.repeat(lengths, np.diff(wide.indptr))
    return SparseShard(wide, y, norm=norm)


def split(data: str, run: int, norm: Norm = "euclidean", columns: int = 0) -> tuple[SparseShard, SparseShard]:
    """Return the training and test rows of a run."""
    rows = every_row(data, norm, columns)
    order = np.random.default_rng([4, run]).permutation(len(rows.y))
    first, test = np.split(order, [int(_TRAIN * len(order))])
    return some(rows, first), some(rows, test)


def some(rows: SparseShard, which: np.ndarray[tuple[int], np.dtype[np.int64]]) -> SparseShard:
    """Return some rows of one party."""
    return SparseShard(rows.rows[which], rows.y[which], norm=rows.norm)


def _cod_rna() -> tuple[csr_array[np.float64, tuple[int, int]], FloatArray]:
    study = examples.COD_RNA.model_copy(update={"norm": "max", "row_norm": "largest"})
    shard = load_examples(examples.data_path("cod-rna", "cod-rna-train.parquet"), study, clip=True).shard
    return csr_array(shard.X), shard.y


def _url() -> tuple[csr_array[np.float64, tuple[int, int]], FloatArray]:
    from pyarrow.parquet import read_table  # noqa: PLC0415 -- large

    table = read_table(examples.data_path("url-subset", "url-subset.parquet"), columns=["index", "value", "label"])
    index, value = (table[name].combine_chunks() for name in ("index", "value"))
    data, places = (column.flatten().to_numpy(zero_copy_only=False) for column in (value, index))
    starts = index.offsets.to_numpy()
    rows = csr_array((data.astype(np.float64), places - 1, starts), shape=(len(index), URL_COLUMNS))
    return rows, 2.0 * table["label"].to_numpy() - 1.0
