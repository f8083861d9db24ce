"""How long a round takes, and how many a user's time holds."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from parley.common.algorithms import MOST_ROUNDS
from parley.common.data.columns import Feature, Label
from parley.common.data.study import Person, Study
from parley.common.errors import PartyRefusedError
from parley.common.protocol.messages import Query, Reply
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.learner.runs.states import Notice
from parley.learner.storage.run_store import RunStore
from parley.learner.storage.timing import UNKNOWN, RoundTime, round_time, work_ms

STUDY = Study(
    name="s",
    features=tuple(Feature(name=f"x{i}", lower=0, upper=1) for i in range(99)),
    label=Label(name="y", values=("a", "b")),
)


def spec(**changes: object) -> RunSpec:
    members = tuple(
        Member(name=name, n_examples=n, budget=Budget(epsilon=1, delta=1e-5)) for name, n in (("a", 10), ("b", 10_000))
    )
    fields = {"study": STUDY, "algorithm": "dp_gd", "parties": members, "minimum_contributors": 2} | changes
    return RunSpec.model_validate(fields)


@pytest.mark.parametrize(
    ("ms", "seconds", "rounds"),
    [
        (100.0, 60.0, 600),
        (100.0, 0.05, 1),
        (1e9, 60.0, 1),
        (0.001, 60.0, MOST_ROUNDS),
        (999.0, 2.0, 2),
        (None, 1.0, MOST_ROUNDS),
    ],
)
def test_as_many_rounds_as_fit(ms: float | None, seconds: float, rounds: int) -> None:
    assert RoundTime(ms, "measured").rounds_in(seconds) == rounds


def test_nothing_is_known_of_owners_who_are_not_asked() -> None:
    assert UNKNOWN.ms is None
    assert "owners are not those of the roster" in UNKNOWN.basis


def test_work_grows_with_the_largest_shard_and_with_ciphertexts() -> None:
    assert work_ms(spec()) == pytest.approx((10_000 * 100 * 2e-6, 0.0))
    summed = work_ms(spec(secure_sum="paillier"))
    assert summed == pytest.approx((10_000 * 100 * 2e-6, 3 * 30.0)), "100 numbers are three ciphertexts"


class Greeted:
    """A party that is there, or refuses."""

    role = "party"

    def __init__(self, name: str, *, refuses: bool = False) -> None:
        self.name, self.refuses, self.greetings = name, refuses, 0

    async def greet(self) -> None:
        self.greetings += 1
        if self.refuses:
            raise PartyRefusedError("no", party=self.name)


def completed(store: RunStore, draft: RunSpec, *ms: float) -> str:
    """A completed run whose rounds took so long."""
    run = store.add(draft, "alice").id
    for state in ("recruiting", "running"):
        store.enter(run, state)
    for round, took in enumerate(ms, 1):
        notices = [Notice("dropped", {"ms": 1e9}), Notice("round", {"ms": took})]
        store.append(run, Query(round, "gradient", np.zeros(1)), Reply(np.zeros(1), (0,)), notices, [])
    store.complete(store.run(run), {"kind": "linear", "weights": None}, np.zeros(1), {})
    return run


async def test_a_rounds_time_is_the_median_of_the_newest_run_like_it(tmp_path: Path) -> None:
    parties = [Greeted("a"), Greeted("b")]
    with closing(RunStore(tmp_path / "learner.sqlite")) as store:
        completed(store, spec(), 7.0)
        newest = completed(store, spec(), 1.0, 2.0, 9.0)
        for other in (
            {"secure_sum": "paillier"},
            {"algorithm": "psgd"},
            {"study": STUDY.model_copy(update={"title": "t"})},
            {"parties": spec().parties[::-1]},
        ):
            completed(store, spec(**other), 100.0)
        store.add(spec(), "alice")
        found = await round_time(spec(), cast("Any", parties), store, 5.0)
        assert found == RoundTime(2.0, f"the median round of run {newest}")
        assert [party.greetings for party in parties] == [0, 0]
        with store._database.transaction() as connection:
            connection.execute("UPDATE events SET data = '{' WHERE run = ?", (newest,))
        assert (await round_time(spec(), cast("Any", parties), store, 5.0)).ms == 7.0, "a damaged run stops no other"


async def test_without_a_run_like_it_round_trips_and_work_are_an_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, now = [Greeted("a"), Greeted("b")], iter([0.0, 0.001, 1.0, 1.002, 2.0, 2.009])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    with closing(RunStore(tmp_path / "learner.sqlite")) as store:
        found = await round_time(spec(), cast("Any", parties), store, 5.0)
        assert found.ms == pytest.approx(2.0 + sum(work_ms(spec())))
        assert found.basis == (
            "an estimate: 3 bare round trips to all parties at once, just now, and the work of a usual machine"
        )
        assert [party.greetings for party in parties] == [3, 3]
        monkeypatch.undo()
        refused = await round_time(spec(), cast("Any", [*parties, Greeted("c", refuses=True)]), store, 5.0)
        assert refused == RoundTime(None, "not known: not all parties can be reached")


async def test_of_persons_a_guess_of_their_rows_lengthens_an_estimate_and_no_round_that_was_measured(
    tmp_path: Path,
) -> None:
    of_persons = spec(study=STUDY.model_copy(update={"person": Person(column="patient")}))
    with closing(RunStore(tmp_path / "learner.sqlite")) as store:
        estimated = await round_time(of_persons, cast("Any", [Greeted("a"), Greeted("b")]), store, 5.0)
        records = await round_time(spec(), cast("Any", [Greeted("a"), Greeted("b")]), store, 5.0)
    longer = estimated.if_each_has(6)
    assert estimated.ms is not None
    assert longer.ms == pytest.approx(estimated.ms + 5 * 10_000 * 100 * 2e-6)
    assert longer.basis == f"{estimated.basis}, at a guess of 6 rows a person"
    assert estimated.if_each_has(1).basis == f"{estimated.basis}, at a guess of 1 row a person"
    for measured in (records, UNKNOWN, RoundTime(2.0, "measured")):
        assert measured.if_each_has(6) == measured
