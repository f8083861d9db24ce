"""What people are shown of several guarantees: each assumption once, as a sentence, and none is lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from parley.common.algorithms import build_algorithm
from parley.common.privacy.guarantee import Guarantee, as_clause, in_common
from parley.common.runs.pricing import guarantees
from parley.learner.cli.display import promises
from parley.party.owner.questions import promises_in_words
from tests.contracts.algorithms import Case

Words = Callable[[Sequence[Guarantee]], list[str]]


def of_a_run(name: str, *, secure: bool) -> tuple[Guarantee, ...]:
    """What a run of five parties promises."""
    case = Case(name, build_algorithm(name), secure)
    return guarantees(case.algorithm, case.equal_facts(5, 50, minimum_contributors=5))


def on_the_terminal(shown: Sequence[Guarantee]) -> list[str]:
    return list(promises([each.to_json() for each in shown]))


@pytest.mark.parametrize("words", [on_the_terminal, promises_in_words])
@pytest.mark.parametrize(
    ("name", "secure"), [("dp_gd", True), ("psgd", True), ("release", False), ("psgd", False), ("feature", True)]
)
def test_each_assumption_is_shown_and_what_all_share_is_shown_once(words: Words, name: str, secure: bool) -> None:  # noqa: FBT001 -- a parameter of the test
    shown = of_a_run(name, secure=secure)
    lines = words(shown)
    text = "\n".join(lines).casefold()
    shared = in_common([each.assumptions for each in shown])
    assert shared
    assert max(map(len, lines)) < 600
    for each in dict.fromkeys(assumption for one in shown for assumption in one.assumptions):
        times = text.count(as_clause(each).casefold())
        assert times == 1 if each in shared else times >= 1, each


@pytest.mark.parametrize("words", [on_the_terminal, promises_in_words])
def test_a_run_without_noise_assumes_nothing(words: Words) -> None:
    (line,) = words([Guarantee(math.inf, 0.0, "transcript", "tight", assumptions=("anything",))])
    assert "anything" not in line
