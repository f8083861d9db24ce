"""What a run costs to carry, before it is run: bytes on the wire, memory, seconds of noise; from public terms alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parley.common.secure_sum.packing import DEFAULT_KEY_BITS, MAX_D, Layout

if TYPE_CHECKING:
    from parley.common.protocol.messages import Question
    from parley.common.runs.specification import RunSpec

NUMBER = 8
"""Bytes of a number on the wire."""

NOISE_SECONDS = 4e-7
"""About how long an exact integer of noise takes: 3,231,961 discrete Gaussians took 1.25 s, as many discrete Laplaces
1.20 s, on one core of a server (2026)."""

_HEAD = 128  # bytes before an array's: `parley.common.encoding.npy` writes no more
_ANSWER_AT_LEARNER = 4 * NUMBER  # bytes of a number of each answer: in pieces, whole, checked, and as a real
_QUESTION_AT_LEARNER = 14 * NUMBER  # of a question's, once: what `dp_gd` steps by, and sends; measured (2026)
_ROUND_IN_MEMORY = 5 * NUMBER  # bytes of a number: as computed, as noise, as sent, as stored, and in stock for the next


@dataclass(frozen=True, slots=True)
class RunCosts:
    """Numbers, bytes and seconds of a run, of one party unless said otherwise.

    ``asked`` and ``answered`` are the numbers of the longest question and answer; ``round_bytes`` is the most that a
    round's question and answer have together, ``bytes`` what all rounds have, ``all_bytes`` at all parties.
    ``memory_bytes`` is what a round's arrays take at a party, beside its rows, ``learner_bytes`` about what those of
    all parties take at the learner. ``noise_seconds`` is about how long all noise takes to draw. ``limit`` is the
    setting that a party's limits must allow, ``longest`` how many bytes of it the run needs, and ``fits`` says whether
    the parties' allow it, and the secure sum its width.
    """

    asked: int
    answered: int
    round_bytes: int
    bytes: int
    all_bytes: int
    memory_bytes: int
    learner_bytes: int
    noise_seconds: float
    limit: str
    longest: int
    fits: bool


def longest_body(shapes: Iterable[tuple[int, ...]]) -> int:
    """Bytes of the longest ``.npy`` body of arrays of these shapes."""
    return max((math.prod(shape) * NUMBER + _HEAD for shape in shapes), default=0)


def lengths(questions: Sequence[Question]) -> tuple[int, int]:
    """Bytes of the longest of a run's questions, and of its longest answer."""
    return (
        longest_body(question.message for question in questions),
        longest_body((question.answer,) for question in questions),
    )


def limit_of(spec: RunSpec) -> str:
    """The limit of a party that a run's questions and answers must fit, by name.

    A secure sum's messages hold more than the numbers, and are bounded as all others are.
    """
    return "round_bytes" if spec.secure_sum == "none" else "body_bytes"


def costs_of(spec: RunSpec, most: int) -> RunCosts:
    """What a run costs to carry, at parties whose `limit_of` it is ``most``.

    Raises InvalidInputError where its terms contradict each other.

    A secure sum's answers are counted as ciphertexts for one key holder, of keys of the default size.
    """
    questions, limit = spec.questions(), limit_of(spec)
    longest = max(lengths(questions))
    asked = [math.prod(question.message) for question in questions]
    answered = [question.answer for question in questions]
    plain = spec.secure_sum == "none"
    sent = [each * NUMBER if plain else Layout(max(each, 1), DEFAULT_KEY_BITS).blob_bytes for each in answered]
    rounds = [one * NUMBER + other + 2 * _HEAD for one, other in zip(asked, sent, strict=True)]
    fits = longest <= most and (plain or max(answered) <= MAX_D)
    return RunCosts(
        asked=max(asked),
        answered=max(answered),
        round_bytes=max(rounds),
        bytes=sum(rounds),
        all_bytes=sum(rounds) * len(spec.parties),
        memory_bytes=max(asked) * NUMBER + max(answered) * _ROUND_IN_MEMORY,
        learner_bytes=max(answered) * len(spec.parties) * _ANSWER_AT_LEARNER + max(asked) * _QUESTION_AT_LEARNER,
        noise_seconds=sum(answered) * NOISE_SECONDS,
        limit=f"limits.{limit}",
        longest=longest,
        fits=fits,
    )
