"""What the process that reads an uploaded table is told, and may take: without what it reads with, which is large."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from parley.common.data.study import Study
from parley.common.service.child import ChildBounds
from parley.common.strict import Strict

Kind = Literal["rows", "labelled", "start"]
"""What is wanted of a table: its rows, or with their labels, or weights of a model that fits them."""

TABLE_BOUNDS = ChildBounds(memory=112 * 2**20, processor_seconds=3, seconds=60.0)
"""What reading may take: several times what it takes of the largest table that may be kept."""


class TableTask(Strict):
    """A file of rows in a study's terms, what is wanted of it, and the most numbers that it may have."""

    path: Path
    study: Study
    kind: Kind
    most: int
