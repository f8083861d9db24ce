"""The messages of a round: what a program asks its parties, and the reply."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.encoding.fixed_point import MAX_NORM
from parley.common.encoding.npy import pack_array
from parley.common.errors import InvalidInputError

Reveal = Literal["sum", "each"]


@dataclass(frozen=True, eq=False)
class Query:
    """The question to every party in one round: public values only.

    ``round`` counts from 1; ``step`` names the party's step that answers; ``message`` is a float64 array; ``reveal`` is
    what the learner needs to see: the ``sum`` of the answers, or ``each`` of them.
    """

    round: int
    step: str
    message: FloatArray
    reveal: Reveal = "sum"

    @cached_property
    def body(self) -> bytes:
        """The message as an ``.npy`` body, packed once for all parties."""
        return pack_array(self.message)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the query's canonical bytes, in hexadecimal."""
        message = np.ascontiguousarray(self.message, dtype="<f8")
        head = f"{self.round}\0{self.step}\0{self.reveal}\0{message.shape}\0"
        digest = hashlib.sha256(head.encode())
        digest.update(message.data)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Question:
    """What a round may ask, as an algorithm declares it before a run: a query without its numbers.

    ``message`` is the shape of the query's message, of one axis or two; ``answer`` is the number of integers in a
    party's answer. ``public`` says that the message is the run's public rows, which parties know by their digest, or
    begins with them.
    """

    step: str
    message: tuple[int, ...]
    answer: int
    reveal: Reveal = "sum"
    public: bool = False

    def check(self, query: Query) -> None:
        """Raise InvalidInputError, naming the difference, unless a query asks this question, in finite numbers."""
        if (query.step, query.reveal) != (self.step, self.reveal):
            raise InvalidInputError(f"round {query.round} asks for step={self.step}, reveal={self.reveal}")
        if query.message.shape != self.message:
            raise InvalidInputError(f"the message must have shape {self.message}, not {query.message.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            sane = float(np.linalg.norm(query.message)) <= MAX_NORM
        if not sane:
            raise InvalidInputError(f"the message must be finite and of norm at most {MAX_NORM:g}")


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What the learner sees of a round, in reals: ``value`` (m,) for a sum, (contributors, m) for each.

    ``m`` is the question's ``answer``. ``contributors`` are indices into the federation's parties, ascending.
    """

    value: FloatArray
    contributors: tuple[int, ...]
