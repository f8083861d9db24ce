"""What is to be loaded, as the process that loads it is told: a party's settings would take memory there."""

from __future__ import annotations

from parley.common.data.study import Study
from parley.common.files.sources import DataSource
from parley.common.strict import Strict


class Task(Strict):
    """A source, whose values beyond their bounds are clipped or refused, in a study's terms."""

    study: Study
    source: DataSource
    clip: bool
