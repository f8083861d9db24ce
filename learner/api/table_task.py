"""Defines the task of the process that reads an uploaded table, and its bounds.

It is apart from `parley.learner.api.tables`, so that the learner need not import the large libraries that read tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from parley.common.data.study import Study
from parley.common.service.child import ChildBounds
from parley.common.strict import Strict

Kind = Literal["rows", "labelled", "start"]
"""What to make of a table: its rows, its rows with their labels, or the weights of a model that fits them."""

TABLE_BOUNDS = ChildBounds(memory=112 * 2**20, processor_seconds=3, seconds=60.0)
"""What reading may take: several times as much as the largest table needs that may be kept."""


class TableTask(Strict):
    """A file of rows in a study's terms, what to make of it, and the most numbers that it may have."""

    path: Path
    study: Study
    kind: Kind
    most: int
