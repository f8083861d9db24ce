"""A cohort's rule: how few, how many, and who of too many."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from parley.common.client.approval import _Turnout
from parley.common.errors import AwaitingOwnerError, InvalidInputError, PartyRefusedError, UnavailableError
from parley.common.runs.specification import Cohort
from parley.learner.api.requests import RunRequest
from parley.learner.storage.public_rows import PublicRowStore
from tests.support.cluster import made_up

NAMES = tuple(f"party-{i}" for i in range(200))
TERMS = {"study": "made-up", "epsilon": 1, "delta": 1e-5}


def draft(folder: Path, names: tuple[str, ...] = NAMES[:5], **terms: Any) -> Any:  # noqa: ANN401 -- a request's fields
    request = RunRequest.model_validate(TERMS | terms)
    return request.draft({"made-up": made_up(3)}, dict.fromkeys(names), PublicRowStore(folder))


def test_of_too_many_those_are_drawn_who_follow_from_the_runs_name() -> None:
    rule = Cohort(least=10, most=50)
    drawn = rule.of("run", NAMES)
    assert len(drawn) == 50
    assert list(drawn) == [name for name in NAMES if name in drawn], "in the order of the roster"
    assert rule.of("run", NAMES[::-1]) == drawn[::-1], "the first to answer is no likelier"
    assert set(rule.of("another", NAMES)) != set(drawn)
    fewer = tuple(name for name in NAMES if name != drawn[0])
    assert set(drawn) - set(rule.of("run", fewer)) == {drawn[0]}, "who stays away changes nobody else's place but one"


def test_a_cohort_without_most_is_all_who_answer() -> None:
    assert Cohort(least=1).of("run", NAMES) == NAMES
    assert Cohort(least=1, most=200).of("run", NAMES) == NAMES


def test_every_sum_needs_the_least_of_a_cohort_unless_said_otherwise(tmp_path: Path) -> None:
    assert draft(tmp_path).minimum_contributors == 5
    assert draft(tmp_path, cohort={"least": 3}).minimum_contributors == 3
    assert draft(tmp_path, cohort={"least": 3}, minimum_contributors=2).minimum_contributors == 2


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"cohort": {"least": 6}}, "cohort.least = 6, and the run names 5 parties"),
        ({"cohort": {"least": 3}, "minimum_contributors": 4}, "minimum_contributors = 4 is above cohort.least = 3"),
    ],
)
def test_a_cohort_that_cannot_be_is_refused(tmp_path: Path, terms: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        draft(tmp_path, **terms)


@pytest.mark.parametrize(
    "cohort",
    [
        {},
        {"least": 0},
        {"least": True},
        {"least": 2, "most": 1},
        {"least": 2, "seconds": 0},
        {"least": 2, "seconds": 1e9},
        {"least": 2, "by": "noon"},
    ],
)
def test_a_cohort_out_of_range_is_refused(cohort: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cohort"):
        RunRequest.model_validate(TERMS | {"cohort": cohort})


def test_a_run_among_no_parties_says_that_none_has_joined(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="this learner has no party yet: owners join by invitations"):
        draft(tmp_path, ())
    with pytest.raises(InvalidInputError, match="at least one party, and none twice"):
        draft(tmp_path, NAMES, parties=())


def test_a_secure_sum_of_too_many_parties_is_refused_by_their_number(tmp_path: Path) -> None:
    names = tuple(f"party-{i}" for i in range(1025))
    with pytest.raises(InvalidInputError, match="a secure sum has at most 1024 parties, and the run names 1025"):
        draft(tmp_path, names, secure_sum="paillier")
    assert len(draft(tmp_path, names[:1024], secure_sum="paillier").parties) == 1024


SILENT = UnavailableError("c cannot be reached", party="c")
REFUSED = PartyRefusedError("b refused: no", party="b")


def test_a_cohort_waits_for_its_owners_as_long_as_its_rule_says() -> None:
    turnout = _Turnout[int].of("abc", [1, AwaitingOwnerError("b asks its owner", party="b"), SILENT])
    rule = Cohort(least=1, owner_hours=1)
    with pytest.raises(AwaitingOwnerError, match=r"^b asks its owner$") as waiting:
        turnout.check_owners(rule, 3599.5)
    assert waiting.value.facts["silent"] == ["b"]
    turnout.check_owners(rule, 3600)
    _Turnout[int].of("ac", [1, SILENT]).check_owners(rule, 0)


def test_a_cohort_that_is_too_small_says_by_when_how_many_and_why() -> None:
    turnout = _Turnout[int].of("abc", [1, REFUSED, SILENT])
    turnout.check(Cohort(least=1), "answered")
    turnout.check(Cohort(least=3), "answered", earlier=2)
    with pytest.raises(UnavailableError) as silent:
        turnout.check(Cohort(least=2), "answered within 5 s")
    count, by, reasons = silent.value.detail.split(", ", 2)
    assert count == "1 of 3 parties answered within 5 s"
    assert abs((datetime.now(UTC) - datetime.fromisoformat(by.removeprefix("by "))).total_seconds()) < 60
    assert reasons == "and the cohort needs at least 2; b refused: no; c cannot be reached"
    assert silent.value.facts == {"silent": ["c"]}
    with pytest.raises(PartyRefusedError, match="the cohort needs at least 3") as refused:
        turnout.check(Cohort(least=3), "answered within 5 s")
    assert (refused.value.facts["party"], refused.value.facts["reason"]) == ("b", "cohort-too-small")


def test_of_many_absent_parties_the_first_are_named_and_the_others_counted() -> None:
    silent = [UnavailableError(f"{name} is away") for name in "abcdefghijklmnopqrstuvwxyz"]
    with pytest.raises(UnavailableError, match=r"a is away; b is away; .*; and \d+ more$") as caught:
        _Turnout[int].of("abcdefghijklmnopqrstuvwxyz", silent).check(Cohort(least=1), "answered")
    named, more = caught.value.detail.count(" is away"), int(caught.value.detail.split("; and ")[1].split()[0])
    assert named + more == 26
