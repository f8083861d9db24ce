"""Averaging breaks Attempt 1: ``python -m scripts.demonstrations.averaging``, in half a minute.

Rajkumar & Agarwal 2012, Section 3: a learner who asks about the same weights again and again averages away what
is fresh in each round, and so an eta that is redrawn. An eta that is drawn once stays: that is what PSGD has it for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from parley.common.algorithms.psgd import Psgd
from parley.common.arrays import FloatArray
from scripts.demonstrations.attempts import BROKEN, CHANCE, D, Finding, FreshNoise, Neighbours, RedrawnNoise, report

EPSILON = 1.0
LAMBDA = 0.4
ROUNDS = (1, 100, 10_000)


def findings() -> Iterator[Finding]:
    """How often an adversary tells the neighbours who averages the answers about weights 0."""
    neighbours = Neighbours.drawn(EPSILON)
    for kind, name in ((FreshNoise, "Attempt 1, ρ alone"), (RedrawnNoise, "η redrawn")):
        right = [_right(neighbours, kind(n_rounds=n, regularization=LAMBDA)) for n in ROUNDS]
        claim = f"{name}: averaging tells neighbours apart at ε = {EPSILON:g} a round"
        yield Finding(claim, right[0] < CHANCE and right[-1] > BROKEN, _evidence(right))
    right = [_right(neighbours, Psgd(n_rounds=n, regularization=LAMBDA)) for n in ROUNDS]
    yield Finding("PSGD, η kept: averaging does not", max(right) < CHANCE, _evidence(right))


def _right(neighbours: Neighbours, draft: Psgd) -> float:
    return neighbours.guessed_right(draft, np.zeros((draft.n_rounds, D)), mean)


def mean(answers: FloatArray) -> FloatArray:
    """Return the mean answer, (..., d)."""
    return np.asarray(answers.mean(axis=0))


def _evidence(right: list[float]) -> str:
    return ", ".join(f"right {share:.0%} of the time after {n:,}" for n, share in zip(ROUNDS, right, strict=True))


if __name__ == "__main__":
    sys.exit(report("averaging", findings()))
