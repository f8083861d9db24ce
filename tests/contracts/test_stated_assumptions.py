"""What every promise leans on is said in it: how noise is drawn, and what holds of any run."""

from __future__ import annotations

import math
from typing import Any

import pytest

from parley.common.arrays import FloatArray, IntArray
from parley.common.privacy.mechanisms.objective import ASSUMED
from parley.common.privacy.noise import Scale, SeededNoise, Shape
from parley.common.runs.model_document import Promise
from parley.common.runs.pricing import ALWAYS, guarantees, is_of_sums
from parley.learner.models.verification import _agree
from tests.contracts.algorithms import CASES, conversation, federation


class WatchedNoise(SeededNoise):
    """Noise that remembers whether any of it was drawn, or its chances were rounded, in floating point."""

    inexact = False

    def gaussian(self, sigma: Scale, shape: Shape) -> FloatArray:
        """Draw continuous noise."""
        self.inexact = True
        return super().gaussian(sigma, shape)

    def laplace(self, scale: Scale, shape: Shape) -> FloatArray:
        """Draw continuous noise."""
        self.inexact = True
        return super().laplace(scale, shape)

    def l2_laplace(self, beta: Scale, shape: Shape, parts: float = 1) -> FloatArray:
        """Draw continuous noise."""
        self.inexact = True
        return super().l2_laplace(beta, shape, parts)

    def discrete_laplace(self, scale: Scale, shape: Shape, parts: float = 1) -> IntArray:
        """An integer, whose chances are rounded where it is drawn in parts."""
        self.inexact |= parts != 1
        return super().discrete_laplace(scale, shape, parts)


@pytest.mark.parametrize("label", CASES)
def test_noise_that_is_drawn_in_floating_point_is_said_to_be(label: str) -> None:
    case: Any = CASES[label]
    shard, facts = federation(case)
    noise = WatchedNoise(3)
    for query in conversation(case, facts, seed=2)[0]:
        case.answer(query, shard, facts, noise)
    if noise.inexact:
        for promise in guarantees(case.algorithm, facts):
            is_stated = any("floating point" in words for words in promise.assumptions)
            assert is_stated or promise.epsilon == math.inf, promise.view


@pytest.mark.parametrize("label", CASES)
def test_every_promise_says_what_holds_of_any_run(label: str) -> None:
    _, facts = federation(CASES[label])
    for promise in guarantees(CASES[label].algorithm, facts):
        assert set(ALWAYS) <= set(promise.assumptions)


@pytest.mark.parametrize("label", [label for label in CASES if label.startswith("gop")])
def test_a_curators_tilt_is_said_to_be_bounded_as_a_sites_is(label: str) -> None:
    _, facts = federation(CASES[label])
    for promise in guarantees(CASES[label].algorithm, facts):
        assert set(ASSUMED) <= set(promise.assumptions)


@pytest.mark.parametrize("label", ["psgd-sum", "gop-each", "dp_gd-sum"])
def test_a_document_that_was_written_before_these_words_still_agrees(label: str) -> None:
    """But none from which other words were taken."""
    _, facts = federation(CASES[label])
    for guarantee in guarantees(CASES[label].algorithm, facts):
        promise = Promise.model_validate(guarantee.to_json())
        older = [words for words in promise.assumptions if not is_of_sums(words) and words not in {*ALWAYS, *ASSUMED}]
        assert older
        assert _agree(promise, promise.model_copy(update={"assumptions": tuple(older)}))
        assert not _agree(promise, promise.model_copy(update={"assumptions": tuple(older[1:])}))
