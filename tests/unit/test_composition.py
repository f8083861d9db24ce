"""Answers of several releases: in sequence, in parallel, and of nothing at all."""

from __future__ import annotations

import math
import tracemalloc

import pytest

from parley.common.errors import InvalidInputError
from parley.common.privacy.accountant import added_epsilon, epsilon_after, pure_epsilons
from parley.common.privacy.calibration import gaussian_epsilon
from parley.common.privacy.composition import branches, releases
from parley.common.privacy.events import (
    ApproximateEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NoEvent,
    NonPrivateEvent,
    ParallelEvent,
    Release,
    SequentialEvent,
)

DELTA = 1e-5
SMALL, LARGE = GaussianEvent(0.3), GaussianEvent(0.5)
PURE = LaplaceEvent(0.4)


def test_a_sequence_costs_what_its_parts_cost_one_after_the_other() -> None:
    together = SequentialEvent((SMALL, LARGE, PURE))
    assert branches([together]) == [((SMALL, LARGE, PURE),)]
    assert epsilon_after([together], DELTA) == epsilon_after([SMALL, LARGE, PURE], DELTA)
    squares = math.hypot(0.3, 0.5)
    assert epsilon_after([SequentialEvent((SMALL, LARGE))], DELTA) == pytest.approx(gaussian_epsilon(squares, DELTA))
    print(f"in sequence: mu .3 and .5 cost epsilon {gaussian_epsilon(squares, DELTA):.3f} at delta {DELTA:g}")


@pytest.mark.parametrize(
    ("worst", "other"),
    [
        (LARGE, SMALL),
        (LaplaceEvent(0.5), PURE),
        (L2LaplaceEvent(0.5, 7), L2LaplaceEvent(0.4, 7)),
        (ApproximateEvent(0.5, 1e-6), ApproximateEvent(0.5, 1e-7)),
    ],
    ids=lambda event: type(event).__name__,
)
def test_of_parallel_releases_of_one_kind_the_worst_counts(worst: Release, other: Release) -> None:
    for parts in ((worst, other), (other, worst), (other, worst, other)):
        assert branches([ParallelEvent(parts)] * 30) == [((worst,),) * 30], "one branch, however many rounds"
        assert epsilon_after([ParallelEvent(parts)], DELTA) == epsilon_after([worst], DELTA)


def test_a_longer_part_is_worse_than_what_it_begins_with() -> None:
    longer = SequentialEvent((LARGE, PURE))
    assert branches([ParallelEvent((SMALL, longer))]) == [((LARGE, PURE),)]


@pytest.mark.parametrize(
    "release",
    [LARGE, PURE, L2LaplaceEvent(0.5, 7), ApproximateEvent(0.5, 1e-6), NonPrivateEvent()],
    ids=lambda event: type(event).__name__,
)
def test_what_a_longer_part_begins_with_is_not_followed_by_itself(release: Release) -> None:
    """Else rounds of such parts would soon have more branches than can be followed."""
    mixed = ParallelEvent((release, SequentialEvent((release, SMALL))))
    assert branches([mixed] * 30) == [((release, SMALL),) * 30]


def test_noise_in_other_dimensions_is_no_worse_and_no_better() -> None:
    one, other = L2LaplaceEvent(0.5, 7), L2LaplaceEvent(0.4, 3)
    assert branches([ParallelEvent((one, other))]) == [((one,),), ((other,),)]


def test_more_epsilon_with_less_delta_is_no_worse_and_no_better() -> None:
    one, other = ApproximateEvent(0.5, 1e-7), ApproximateEvent(0.4, 1e-6)
    assert branches([ParallelEvent((one, other))]) == [((one,),), ((other,),)]


def test_parallel_releases_that_differ_in_words_alone_both_count() -> None:
    """Each covers the other, and one of them must be paid for."""
    one, other = (ApproximateEvent(0.5, 1e-6, (words,)) for words in ("the solver is exact", "the graph is simple"))
    for parts in ((one, other), (one, other, GaussianEvent(0.01)), (ParallelEvent((one, other)), NoEvent())):
        assert epsilon_after([ParallelEvent(parts)], DELTA) == epsilon_after([one], DELTA) > 0.49
        assert epsilon_after([ParallelEvent(parts)] * 2, DELTA) == epsilon_after([one, other], DELTA) > 0.98
        assert {one, other} <= set(releases(ParallelEvent(parts))), "their words are kept"


def test_of_different_kinds_both_branches_are_followed() -> None:
    """Which is worse depends on the rest: alone the Gaussian release is, composed with many others the Laplace one."""
    mixed = ParallelEvent((GaussianEvent(0.2), LaplaceEvent(0.7)))
    assert branches([mixed]) == [((GaussianEvent(0.2),),), ((LaplaceEvent(0.7),),)]
    for before, worst in (([], 0), ([GaussianEvent(0.5)] * 20, 1)):
        ways = [epsilon_after([*before, part], DELTA) for part in mixed.events]
        assert ways[worst] > ways[1 - worst]
        assert epsilon_after([*before, mixed], DELTA) == max(ways)
        print(f"after {len(before)} Gaussian rounds: Gaussian {ways[0]:.4f}, Laplace {ways[1]:.4f}: the larger counts")
    assert added_epsilon([ParallelEvent((PURE, ApproximateEvent(0.3, 1e-6)))], DELTA) == 0.4


def test_more_branches_than_can_be_followed_are_refused() -> None:
    mixed = ParallelEvent((SMALL, PURE))
    assert len(branches([mixed] * 6)) == 64
    with pytest.raises(InvalidInputError, match="parallel releases of too many kinds: more than 64 ways"):
        branches([mixed] * 7)
    with pytest.raises(InvalidInputError, match="more than 64 ways"):
        epsilon_after([SequentialEvent((mixed,) * 7)], DELTA)


def test_more_branches_than_can_be_followed_are_not_even_listed() -> None:
    """There are 65,536 of them."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match="more than 64 ways"):
            branches([ParallelEvent((SMALL, PURE))] * 16)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("nothing", [NoEvent(), SequentialEvent(()), SequentialEvent((NoEvent(), NoEvent()))])
def test_nothing_costs_nothing(nothing: Event) -> None:
    assert branches([nothing]) == [((),)]
    assert list(releases(nothing)) == []
    assert epsilon_after([nothing] * 3, DELTA) == 0
    assert epsilon_after([nothing, LARGE, nothing], DELTA) == epsilon_after([LARGE], DELTA)
    assert pure_epsilons([nothing, PURE, nothing]).tolist() == [0, *[epsilon_after([PURE], 0.0)] * 2]
    assert branches([ParallelEvent((nothing, LARGE))]) == [((LARGE,),)], "who has a part in it pays"
