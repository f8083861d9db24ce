"""What a program asks of its parties in a round, and what it is answered."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import numpy as np

from common.arrays import FloatArray

Reveal = Literal["sum", "each"]


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """What every party is asked in one round: public values only.

    ``round`` counts from 1; ``step`` names the party's step that answers; ``message`` is a float64 array; ``reveal`` is
    what the learner needs to see: the ``sum`` of the answers, or ``each`` of them.
    """

    round: int
    step: str
    message: FloatArray
    reveal: Reveal = "sum"

    @property
    def digest(self) -> str:
        """SHA-256 over the query's canonical bytes, in hexadecimal."""
        message = np.ascontiguousarray(self.message, dtype="<f8")
        head = f"{self.round}\0{self.step}\0{self.reveal}\0{message.shape}\0"
        return hashlib.sha256(head.encode() + message.tobytes()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What the learner gets to see of a round: ``value`` (d,) for a sum, (contributors, d) for each; in reals.

    ``contributors`` are indices into the federation's parties, ascending.
    """

    value: FloatArray
    contributors: tuple[int, ...]
