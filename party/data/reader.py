"""The owner's file as a shard, read by a child process: ``python -m party.data.reader STUDY FILE refuse|clip``.

What reading needs, pyarrow above all, leaves memory with the child; see `party.data.child`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from common.data.shard import Shard
from common.service.columns_files import read_columns
from common.service.study_files import read_study
from party.data.child import AnyArray, receive_arrays, send_arrays


def read_shard(study: Path, file: Path, *, clip: bool) -> Shard:
    """The examples of a file, whose values beyond the study's bounds are refused, or clipped to them.

    Raises InvalidInputError for a study that cannot be used, InvalidDataError where the data does not fit it, and
    ParleyError where the child died.
    """
    X, y = receive_arrays(__name__, str(study), str(file), "clip" if clip else "refuse")
    return Shard(X, y)


def _arrays() -> Iterator[AnyArray]:
    """The shard's X and y, as the command line says."""
    study, file, out_of_bounds = sys.argv[1:]
    shard = read_study(Path(study)).shard(read_columns(Path(file)), clip=out_of_bounds == "clip")
    yield shard.X
    yield shard.y


if __name__ == "__main__":
    send_arrays(_arrays)
