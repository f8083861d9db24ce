"""The best that other parameters reach, searched on the test examples: what the choice from public facts gives away."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from operator import itemgetter
from statistics import fmean

from parley.common.algorithms.dp_gd import DpGd
from parley.common.errors import InvalidInputError
from scripts.utility.trial import Trial

WAYS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)
CLIPS = (0.5, 1.0, 2.0)
NEAR = WAYS[2:5], CLIPS
ROUNDS = (0.25, 1.0, 4.0)
MOST_ROUNDS = 1000
LAMBDAS = (1e-4, 1e-2)
AVERAGES = (0.0, 0.9)
SEARCH_DRAWS = 10
_SEARCHED = 1e7
"""Numbers of a model times examples that a candidate may be tried on."""


def best(trial: Trial, chosen: DpGd, draws: Sequence[int], value: float) -> tuple[DpGd, float]:
    """The best of the grid, and what it is worth over draws.

    The search has draws of its own, fewer of large sets, so that a lucky noise is not taken for a good choice; then
    what it found is measured on the draws on which the choice is worth ``value``. Where a model takes minutes, ways and
    clip norms a factor of 2 from the choice's are all that is tried.
    """
    first = max(draws) + 1
    search = range(first, first + min(SEARCH_DRAWS, max(1, int(_SEARCHED // trial.size))))
    tried = list(neighbours(chosen, *NEAR) if trial.is_large else candidates(chosen))
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # for there may be but one draw
        worth = list(pool.map(lambda algorithm: _worth(trial, algorithm, search), tried))
    parameters, _ = max(zip(tried, worth, strict=True), key=itemgetter(1))
    reached = value if parameters == chosen else _worth(trial, parameters, draws)
    return (parameters, reached) if reached > value else (chosen, value)


def candidates(chosen: DpGd) -> Iterator[DpGd]:
    """The choice and its variations: by way and clip norm, by rounds and momentum, by regularization, by averaging.

    The way is what a constant gradient of norm 1 moves the model by: rounds * step / (1 - momentum).
    """
    yield chosen
    yield from neighbours(chosen, WAYS, CLIPS)
    for way, rounds, heavy in product(WAYS[2:5], ROUNDS, (True, False)):
        n_rounds = min(max(1, round(chosen.n_rounds * rounds)), MOST_ROUNDS)
        momentum = max(0.0, 1 - 10 / n_rounds) if heavy else 0.0
        length = way * chosen.n_rounds * chosen.step / (1 - chosen.momentum)
        yield replace(chosen, n_rounds=n_rounds, momentum=momentum, step=length * (1 - momentum) / n_rounds)
    yield from (replace(chosen, regularization=strength) for strength in LAMBDAS)
    yield from (replace(chosen, averaging=strength) for strength in AVERAGES)


def neighbours(chosen: DpGd, ways: Sequence[float], clips: Sequence[float]) -> Iterator[DpGd]:
    """The choice with its way and its clip norm times these."""
    for way, clip in product(ways, clips):
        yield replace(_going(chosen, way), clip_norm=min(chosen.clip_norm * clip, math.sqrt(2)))


def _going(chosen: DpGd, way: float) -> DpGd:
    """The choice with its way times this: shorter by shorter steps, longer by more rounds."""
    if way <= 1:
        return replace(chosen, step=chosen.step * way)
    n_rounds = min(MOST_ROUNDS, math.ceil(chosen.n_rounds * (math.sqrt(way) if chosen.momentum else way)))
    momentum = max(0.0, 1 - 10 / n_rounds) if chosen.momentum else 0.0
    length = way * chosen.n_rounds * chosen.step / (1 - chosen.momentum)
    return replace(chosen, n_rounds=n_rounds, momentum=momentum, step=length * (1 - momentum) / n_rounds)


def _worth(trial: Trial, algorithm: DpGd, draws: Sequence[int]) -> float:
    """The mean over draws; of a descent that is refused, no more than any model's."""
    try:
        return fmean(trial.values(algorithm, draws))
    except InvalidInputError:
        return -float("inf")
