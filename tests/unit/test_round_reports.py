"""What watchers hear about a round, and on what a learner measures the weights of a round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parley.common.client.federation import RoundReport
from parley.common.data.columns import Feature, Label, RealLabel
from parley.common.data.study import Study
from parley.common.errors import InvalidInputError
from parley.common.protocol.messages import Query, Reply
from parley.common.secure_sum.envelope import Signed
from parley.learner.execution.round_report import PublicExamples, Reporter, read_public_data
from parley.learner.runs.plan import Plan
from parley.learner.runs.states import Notice

FEATURES = (Feature(name="age", lower=0, upper=100),)
LOANS = Study(name="loans", features=FEATURES, label=Label(name="repaid", values=("no", "yes")))
RENTS = Study(name="rents", features=FEATURES, label=RealLabel(name="rent", lower=0, upper=10))
KINDS = Study(name="kinds", features=FEATURES, label=Label(name="kind", values=("a", "b", "c")))
PLAN = Plan(2, {"ann": (0.25, 0.5), "bob": (1.0, 2.0), "eve": (3.0, 4.0)}, ())


def table(folder: Path, label: str, *rows: str) -> Path:
    """A table of ages and labels."""
    path = folder / f"{label}.csv"
    path.write_text("\n".join([f"age,{label}", *rows]))
    return path


def notices(round: int, message: list[float], report: RoundReport, public: PublicExamples | None) -> list[Notice]:
    """What watchers hear about a round that ann and eve contributed to."""
    reply = Reply(np.zeros(2), (0, 2))
    return Reporter(("ann", "bob", "eve"), PLAN, public).notices(
        Query(round, "gradient", np.array(message)), reply, report
    )


def test_a_round_is_told_with_who_took_part_and_what_it_has_cost() -> None:
    report = RoundReport(0.12345678, ("eve",), {"bob": "it left"}, {"ann": "it was late"})
    assert notices(1, [0.5], report, None) == [
        Notice("dropped", {"party": "bob", "round": 1, "reason": "it left", "epsilon": 1.0}),
        Notice(
            "round",
            {
                "round": 1,
                "of": 2,
                "ms": 123.457,
                "contributors": ["ann", "eve"],
                "stragglers": ["eve"],
                "missed": ["ann"],
                "epsilon": {"ann": 0.25, "eve": 3.0},
            },
        ),
    ]


def test_a_round_of_a_secure_sum_is_told_with_who_opened_it() -> None:
    (round,) = notices(2, [0.5], RoundReport(opened={"kim": Signed(b"", b"")}), None)
    assert round.data["epsilon"] == {"ann": 0.5, "eve": 4.0}
    assert round.data["opened_by"] == ["kim"]


def test_a_rounds_weights_are_measured_on_the_studys_public_examples(tmp_path: Path) -> None:
    public = PublicExamples.read(table(tmp_path, "repaid", "0,no", "100,yes", "90,yes"), LOANS)
    assert public.majority == pytest.approx(2 / 3)
    (right,) = notices(1, [1.0, 0.0], RoundReport(), public)
    (wrong,) = notices(1, [-1.0, 0.0], RoundReport(), public)
    assert (right.data["accuracy"], wrong.data["accuracy"]) == (1.0, 0.0)
    assert 0 < right.data["objective"] < np.log(2) < wrong.data["objective"]
    assert public.measure(np.zeros(2))["objective"] == pytest.approx(np.log(2)), "the mean loss, without a penalty"
    (other,) = notices(1, [1.0], RoundReport(), public)
    assert {"accuracy", "objective"}.isdisjoint(other.data)
    assert public.measure(np.zeros((1, 2))) == {}


def test_each_kind_of_label_has_measures_of_its_own(tmp_path: Path) -> None:
    rents = PublicExamples.read(table(tmp_path, "rent", "0,0", "100,10"), RENTS)
    assert rents.majority is None
    assert set(rents.measure(np.zeros(2))) == {"objective", "r_squared", "rmse"}
    assert rents.measure(np.zeros(2))["rmse"] == pytest.approx(1.0)
    kinds = PublicExamples.read(table(tmp_path, "kind", "0,a", "100,b", "50,c"), KINDS)
    assert set(kinds.measure(np.zeros((3, 2)))) == {"objective", "accuracy"}
    assert kinds.measure(np.zeros((2, 2))) == {}


def test_values_beyond_their_bounds_are_clipped(tmp_path: Path) -> None:
    within = PublicExamples.read(table(tmp_path, "repaid", "0,no", "100,yes"), LOANS)
    beyond = PublicExamples.read(table(tmp_path, "repaid", "-50,no", "200,yes"), LOANS)
    assert beyond.measure(np.array([1.0, 0.5])) == within.measure(np.array([1.0, 0.5]))


def test_public_examples_are_of_known_studies(tmp_path: Path) -> None:
    path = table(tmp_path, "repaid", "0,no", "100,yes", "90,yes")
    read = read_public_data({"loans": path}, {"loans": LOANS, "rents": RENTS})
    assert list(read) == [LOANS.digest]
    assert read[LOANS.digest].majority == pytest.approx(2 / 3)
    with pytest.raises(InvalidInputError, match="public_data for unknown studies: a, b"):
        read_public_data({"b": path, "a": path, "loans": path}, {"loans": LOANS})
