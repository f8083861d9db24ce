"""Gradient differences break a one-time noise: ``python -m scripts.demonstrations.differences``, in half a minute.

Rajkumar & Agarwal 2012, Section 3: where eta is all the noise, it cancels in the difference of two answers, which is
that of two exact sums. So PSGD adds rho to each. What the paper does not say: a learner who averages at each of two
weights, then subtracts, is rid of both. PSGD's claim is for those who see the final model alone; what the learner sees
has the price of its rounds, composed, which is what a party's ledger charges.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from parley.common.algorithms.psgd import Psgd
from parley.common.arrays import FloatArray
from parley.common.runs.pricing import transcript
from scripts.demonstrations.attempts import BROKEN, CHANCE, D, Finding, Neighbours, OneTimeNoise, report

EPSILON = 1.0
LAMBDA = 0.4
LENGTH = 8.0
"""How far from 0 the second weights are: there the first record's slope is nearly 0."""
MANY = 10_000


def findings() -> Iterator[Finding]:
    """How often an adversary tells the neighbours who subtracts answers about two weights."""
    neighbours = Neighbours.drawn(EPSILON)
    draft, psgd = OneTimeNoise(n_rounds=2, regularization=LAMBDA), Psgd(n_rounds=2, regularization=LAMBDA)
    right = neighbours.guessed_right(draft, two_weights(2), difference)
    yield Finding(
        "η alone: two answers tell neighbours apart for certain", right == 1, f"right {right:.0%} of the time"
    )
    right = neighbours.guessed_right(psgd, two_weights(2), difference)
    yield Finding("PSGD, η and ρ: two answers do not", right < CHANCE, f"right {right:.0%} of the time")
    many = Psgd(n_rounds=MANY, regularization=LAMBDA)
    right = neighbours.guessed_right(many, two_weights(MANY), difference)
    honest = transcript(many, neighbours.facts.of(0)).epsilon
    evidence = f"right {right:.0%} of the time; ε = {EPSILON:g} claimed of the model, {honest:.3g} of {MANY:,} rounds"
    yield Finding("PSGD: many answers about both weights, averaged and subtracted, do", right > BROKEN, evidence)


def two_weights(rounds: int) -> FloatArray:
    """Half of the rounds about 0, then half about a point along the first axis, (T, d)."""
    return np.repeat(np.stack([np.zeros(D), LENGTH * np.eye(D)[0]]), rounds // 2, axis=0)


def difference(answers: FloatArray) -> FloatArray:
    """The mean of the second half of the answers less that of the first, (..., d)."""
    half = len(answers) // 2
    return np.asarray(answers[half:].mean(axis=0) - answers[:half].mean(axis=0))


if __name__ == "__main__":
    sys.exit(report("differences", findings()))
