"""How long a round takes, and how many a user's time holds."""

from __future__ import annotations

import pytest

from parley.common.algorithms import MOST_ROUNDS
from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.learner.storage.timing import UNKNOWN, RoundTime, work_ms

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
    plain = work_ms(spec())
    assert plain == pytest.approx(10_000 * 100 * 2e-6)
    summed = work_ms(spec(secure_sum="paillier"))
    assert summed == pytest.approx(plain + 3 * 30.0), "100 numbers are three ciphertexts"
