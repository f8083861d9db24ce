"""The process that loads an owner's data, ``python -m parley.party.data.loader``; it reads a `Task` from its input.

The libraries that reading needs, pyarrow and DuckDB above all, leave memory when it ends; see
`parley.common.service.child`. While it works it also holds the shard, so it imports no more than it needs: not the
party's settings, and only that part of SciPy that sparse rows use.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import numpy as np

from parley.common.data.study import Study
from parley.common.files.sources import DataSource
from parley.common.service.child import AnyArray, send_arrays
from parley.common.strict import Strict


class Task(Strict):
    """What to load: a source, for a study; ``clip`` says whether values beyond their bounds are clipped or refused.

    ``first`` is the place of the first row that is kept, ``end`` that after the last; None for all.
    """

    study: Study
    source: DataSource
    clip: bool
    first: int = 0
    end: int | None = None


def _arrays() -> Iterator[AnyArray]:
    """Yield a shard and what its owner may know about it.

    That is its rows and y; which rows begin a person, and what weights rows have, each empty if the study has none; the
    shares of clipped and dropped values, contents, and in JSON how it was read.
    """
    from parley.common.files.examples import load_source  # noqa: PLC0415 -- not for the parent, which takes `Task`
    from parley.common.files.tables import table_contents  # noqa: PLC0415

    task = Task.model_validate_json(sys.stdin.buffer.read())
    loaded = load_source(task.source, task.study, clip=task.clip, places=(task.first, task.end))
    contents = table_contents(task.source)
    if task.study.sparse:
        from parley.common.data.sparse import SparseShard  # noqa: PLC0415 -- loads SciPy

        assert isinstance(loaded.shard, SparseShard)  # noqa: S101 -- of sparse features
        yield from (loaded.shard.rows.data, loaded.shard.rows.indices, loaded.shard.rows.indptr)
    else:
        yield loaded.shard.X
    yield loaded.shard.y
    weighing = loaded.shard.weighing
    for values in (weighing.begins, weighing.row_weights) if weighing else (None, None):
        yield np.zeros(0) if values is None else values
    yield np.array([loaded.clipped_share, loaded.dropped_share])
    for shares in (loaded.clipped, loaded.others):
        yield np.array([shares.get(name, 0.0) for name in task.study.table_names])
    yield np.frombuffer(b"".join(contents), dtype=np.uint8)
    yield np.frombuffer(json.dumps(loaded.notes).encode(), dtype=np.uint8)


if __name__ == "__main__":
    send_arrays(_arrays)
