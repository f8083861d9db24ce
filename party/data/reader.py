"""The owner's file as a shard, read by a child process: ``python -m party.data.reader STUDY FILE refuse|clip``.

What reading needs, pyarrow above all, leaves memory with the child; see `party.data.child`. The parent adopts the
arrays that it receives, so that each process holds the shard once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from common.data.loading import Loaded
from common.data.shard import Shard
from common.data.study import Study
from common.files.studies import read_study
from party.data.child import AnyArray, receive_arrays, send_arrays


def load_here(path: Path, study: Study, *, clip: bool) -> Loaded:
    """What `load_examples` loads, in this process, which then keeps what reading takes."""
    from common.files.examples import load_examples  # noqa: PLC0415 -- pyarrow, for as long as the process lives

    return load_examples(path, study, clip=clip)


def load_apart(path: Path, study_path: Path, study: Study, *, clip: bool) -> Loaded:
    """What `load_examples` loads from a file, loaded by a child; ``study`` is what the file ``study_path`` holds.

    Raises InvalidDataError as `load_examples`, and ParleyError where the child died.
    """
    X, y, shares, clipped = receive_arrays(__name__, str(study_path), str(path), "clip" if clip else "refuse")
    by_column = {name: float(share) for name, share in zip(study.table_names, clipped, strict=True) if share}
    return Loaded(Shard.adopt(X, y, study.norm), by_column, *shares.tolist())


def _arrays() -> Iterator[AnyArray]:
    """The shard's X and y and the shares of what was clipped or dropped, for the file that the command line names."""
    study_path, path, out_of_bounds = sys.argv[1:]
    study = read_study(Path(study_path))
    loaded = load_here(Path(path), study, clip=out_of_bounds == "clip")
    yield loaded.shard.X
    yield loaded.shard.y
    yield np.array([loaded.clipped_share, loaded.dropped_share])
    yield np.array([loaded.clipped.get(name, 0.0) for name in study.table_names])


if __name__ == "__main__":
    send_arrays(_arrays)
