"""A cohort's rule: how few, how many, and who of too many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parley.common.client.approval import Recruited, _Turnout, propose, recruit, views_of
from parley.common.errors import (
    AwaitingOwnerError,
    InvalidInputError,
    ParleyError,
    PartyRefusedError,
    UnavailableError,
)
from parley.common.runs.specification import CHANGED_STUDY, Cohort
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
    assert caught.value.detail.endswith("a is away; b is away; c is away; d is away; e is away; and 21 more")
    with pytest.raises(UnavailableError, match=r"2; a is away; b is away; c is away; d is away; e is away$"):
        _Turnout[int].of("abcde", silent[:5]).check(Cohort(least=2), "answered")


def test_why_a_party_is_absent_is_said_in_a_hundred_characters() -> None:
    turnout = _Turnout[int].of("abc", [1, PartyRefusedError("r" * 101, party="b"), UnavailableError("s" * 101)])
    assert (turnout.present, turnout.refused, turnout.silent) == ({"a": 1}, {"b": "r" * 100}, {"c": "s" * 100})
    assert (turnout.absent, turnout.asking) == ({"b": "r" * 100, "c": "s" * 100}, [])
    with pytest.raises(ValueError, match="shorter"):
        _Turnout[int].of("abc", [1, 2])
    with pytest.raises(PartyRefusedError) as refused:
        _Turnout[int].of("", []).check(Cohort(least=1), "answered")
    assert refused.value.facts["party"] == ""


class Asked:
    """What parties are asked; each does what its name is given: it returns, or it raises.

    The clock goes on by a pause when one is made.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **does: list[Any]) -> None:
        self.does, self.now = does, 1000.0
        self.asked: list[tuple[list[str], float]] = []
        self.pauses: list[float] = []
        monkeypatch.setattr("parley.common.client.approval.ask_all", self.ask_all)
        monkeypatch.setattr("parley.common.client.approval.time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(asyncio, "sleep", self.pause)

    @property
    def parties(self) -> list[Any]:
        return [SimpleNamespace(name=name, facts=self.doing(name), approve=self.doing(name)) for name in self.does]

    def doing(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def do(*given: object) -> Any:  # noqa: ANN401 -- any answer
            assert given in [(), (PROPOSAL,)]
            done = self.does[name].pop(0)
            if isinstance(done, Exception):
                raise done
            return done

        return do

    async def ask_all(
        self, parties: Sequence[Any], request: Callable[[Any], Awaitable[Any]], seconds: float
    ) -> list[Any]:
        self.asked.append(([party.name for party in parties], seconds))
        outcomes = []
        for party in parties:
            try:
                outcomes.append(await request(party))
            except ParleyError as error:
                outcomes.append(error)
        return outcomes

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


PROPOSAL: Any = SimpleNamespace(run="run-1", spell=lambda: "digest")


def approval(*, prepared: bool = True, **changes: str) -> Any:  # noqa: ANN401 -- stands for one, and its signature
    facts = {"run": "run-1", "spec_digest": "digest"} | changes
    return SimpleNamespace(prepared=prepared, **facts), "signed"


YES, NOT_YET = approval(), approval(prepared=False)


async def test_all_parties_approve_and_those_that_train_first_are_asked_again_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(monkeypatch, a=[YES], b=[*[NOT_YET] * 8, YES], c=[NOT_YET, YES])
    assert await propose(asked.parties, PROPOSAL, 5, 60) == ({"a": YES, "b": YES, "c": YES}, {})
    assert asked.pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
    assert asked.asked == [(["a", "b", "c"], 5), (["b", "c"], 5), *[(["b"], 5)] * 7]


async def test_a_party_that_is_not_prepared_in_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, a=[YES], b=[NOT_YET] * 9, c=[NOT_YET] * 9)
    with pytest.raises(UnavailableError) as late:
        await propose(asked.parties, PROPOSAL, 5, 0.15)
    assert late.value.detail == "not prepared within 0.15 s: b, c"
    assert late.value.facts == {"unprepared": ["b", "c"]}
    assert asked.pauses == pytest.approx([0.05, 0.1, 0.2]), "at the deadline itself it is not late"


@pytest.mark.parametrize("other", [{"run": "run-2"}, {"spec_digest": "other"}])
async def test_an_approval_of_another_run_is_none(monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]) -> None:
    asked = Asked(monkeypatch, a=[YES], b=[approval(**other)])
    with pytest.raises(PartyRefusedError) as refused:
        await propose(asked.parties, PROPOSAL, 5, 60)
    assert refused.value.detail == "b cannot take part: it approved another run than was proposed"
    assert refused.value.facts == {"party": "b", "reason": "wrong-approval"}


async def test_a_cohort_goes_on_without_those_that_refuse_are_silent_or_late(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Cohort(least=2)
    asked = Asked(monkeypatch, a=[YES], b=[REFUSED], c=[SILENT], d=[NOT_YET] * 9, e=[NOT_YET, SILENT], f=[NOT_YET, YES])
    approvals, absent = await propose(asked.parties, PROPOSAL, 5, 0.2, rule)
    assert approvals == {"a": YES, "f": YES}
    assert absent == {
        "b": "b refused: no",
        "c": "c cannot be reached",
        "e": "c cannot be reached",
        "d": "d was not prepared within 0.2 s",
    }
    assert asked.asked == [(list("abcdef"), 5), (["d", "e", "f"], 5), (["d"], 5), (["d"], 5)]


async def test_a_cohort_of_too_few_that_are_prepared_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, a=[YES], b=[NOT_YET] * 9)
    with pytest.raises(UnavailableError, match=r"^not prepared within 0\.01 s: b$"):
        await propose(asked.parties, PROPOSAL, 5, 0.01, Cohort(least=2))
    asked = Asked(monkeypatch, a=[YES], b=[SILENT])
    with pytest.raises(UnavailableError, match=r"^1 of 2 parties approved within 5 s, by .* at least 2; c cannot"):
        await propose(asked.parties, PROPOSAL, 5, 0.01, Cohort(least=2))
    asked = Asked(monkeypatch, a=[NOT_YET, SILENT], b=[YES], c=[YES])
    assert await propose(asked.parties, PROPOSAL, 5, 1, Cohort(least=2)) == (
        {"b": YES, "c": YES},
        {"a": "c cannot be reached"},
    )


async def test_a_cohort_waits_for_its_owners_while_its_rule_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = AwaitingOwnerError("b asks its owner", party="b")
    for waited, hours in ((None, 1e-4), (3599.0, 1), (3600.0, 1)):
        asked, rule = Asked(monkeypatch, a=[YES], b=[waits]), Cohort(least=1, owner_hours=hours)
        given = () if waited is None else (waited,)
        proposed = propose(asked.parties, PROPOSAL, 5, 60, rule, *given)
        if waited == 3600.0:
            assert await proposed == ({"a": YES}, {"b": "b asks its owner"})
            continue
        with pytest.raises(AwaitingOwnerError, match="b asks its owner"):
            await proposed


def facts(spec: Any, name: str, /, **changes: object) -> Any:  # noqa: ANN401 -- stand for a party's
    told: dict[str, object] = {
        "study": None,
        "study_digest": spec.study.digest,
        "n_examples": 100,
        "view": f"as {name}",
    } | changes
    stated, another = SimpleNamespace(**told), SimpleNamespace(study=None, study_digest="1" * 64)
    by_digest = {held.study_digest: held for held in (another, stated)}
    return SimpleNamespace(name=told.get("name", name), studies=(another, stated), stated=stated, about=by_digest.get)


async def test_all_parties_become_members_with_their_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = draft(tmp_path, ("a", "b"))
    answers = {"a": facts(spec, "a"), "b": facts(spec, "b", n_examples=1)}
    asked = Asked(monkeypatch, **{name: [answer] for name, answer in answers.items()})
    recruited = await recruit("run-1", asked.parties, spec, 7)
    assert asked.asked == [(["a", "b"], 7)]
    assert (recruited.facts, recruited.absent) == ({name: answer.stated for name, answer in answers.items()}, {})
    assert [(member.name, member.n_examples) for member in recruited.spec.parties] == [("a", 100), ("b", 1)]
    assert [member.budget for member in recruited.spec.parties] == [member.budget for member in spec.parties]
    assert views_of(recruited.facts) == {"a": "as a", "b": "as b"}
    asked = Asked(monkeypatch, a=[SILENT], b=[answers["b"]])
    with pytest.raises(UnavailableError, match="c cannot be reached"):
        await recruit("run-1", asked.parties, spec, 7)


@pytest.mark.parametrize(
    ("changes", "reason", "detail"),
    [
        ({"name": "c"}, "wrong-name", "it calls itself c"),
        ({"n_examples": 0}, "wrong-facts", "it reports no examples"),
        ({"study_digest": "0" * 64}, "wrong-study", ""),
        (
            {"study_digest": "0" * 64, "study": "made-up"},
            "changed-study",
            CHANGED_STUDY.format("its study 'made-up'"),
        ),
    ],
)
async def test_a_party_whose_facts_are_of_another_takes_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], reason: str, detail: str
) -> None:
    spec = draft(tmp_path, ("a", "b"))
    detail = detail or (
        f"it has no study {spec.study.name!r} for this learner (it has 111111111111, 000000000000): a run names its "
        "parties where not all hold its study"
    )
    asked = Asked(monkeypatch, a=[facts(spec, "a")], b=[facts(spec, "b", **changes)])
    with pytest.raises(PartyRefusedError) as refused:
        await recruit("run-1", asked.parties, spec, 7)
    assert refused.value.detail == f"b cannot take part: {detail}"
    assert refused.value.facts == {"party": "b", "reason": reason}


async def test_a_cohort_is_recruited_from_those_who_answer_in_the_seconds_of_its_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, rule = draft(tmp_path, tuple("abcd")), Cohort(least=1, most=1, seconds=3)
    answers = {name: facts(spec, name) for name in "abcd"}

    async def recruited() -> Recruited:
        asked = Asked(monkeypatch, a=[answers["a"]], b=[REFUSED], c=[SILENT], d=[answers["d"]])
        found = await recruit("run-1", asked.parties, spec, 7, rule)
        assert asked.asked == [(list("abcd"), 3)]
        return found

    found = await recruited()
    (member,) = rule.of("run-1", ("a", "d"))
    (other,) = {"a", "d"} - {member}
    assert (found.facts, found.spec.names) == ({member: answers[member].stated}, (member,))
    not_drawn = {other: "not drawn: the cohort has at most 1 parties"}
    assert found.absent == {"b": "b refused: no", "c": "c cannot be reached"} | not_drawn
    rule = Cohort(least=3, seconds=3)
    with pytest.raises(UnavailableError, match=r"^2 of 4 parties answered within 3 s, by "):
        await recruited()
