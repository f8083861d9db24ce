"""The benchmark of many small fits: what its lines say, when it fails, and what it does without data."""

from __future__ import annotations

import json

import numpy as np
import pytest

from parley.common.data.shard import Shard
from parley.common.learning.losses import Logistic, Loss, Softmax
from scripts.benchmarks import local_fits
from scripts.benchmarks.local_fits import Case


def case(loss: Loss) -> Case:
    """Thirty parties of five rows, whose first column tells two classes apart; each party has both."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(70, 5, 8)) / 8
    X[:, 0, 0], X[:, 1, 0] = 0.5, -0.5
    y = np.where(X[..., 0] > 0, 1.0, -1.0)
    return Case(loss, Shard(X[:30], y[:30]), Shard(X[30:], y[30:]).pooled())


@pytest.mark.slow
@pytest.mark.parametrize("loss", [Logistic(), Softmax(2)], ids=repr)
def test_a_line_compares_the_same_fits(loss: Loss) -> None:
    figures = local_fits.measured(case(loss))
    print(json.dumps(figures))
    assert (figures["parties"], figures["rows"], figures["features"], figures["classes"]) == (30, 5, 8, 2)
    assert figures["sample"] == 30
    assert abs(figures["difference"]) <= local_fits.APART, "scikit-learn fits the same"
    assert figures["accuracy"] > 0.5


@pytest.mark.parametrize(("goal", "status"), [(0.0, 0), (1e9, 1)])
@pytest.mark.slow
def test_a_goal_that_is_missed_fails(
    goal: float, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, loss in (("har", Softmax(2)), ("kdd99", Logistic())):
        monkeypatch.setattr(local_fits, name, lambda loss=loss: case(loss))
    monkeypatch.setattr(local_fits, "GOAL", goal)
    with pytest.raises(SystemExit) as raised:
        local_fits.main()
    assert int(raised.value.code or 0) == status
    assert [json.loads(line)["case"] for line in capsys.readouterr().out.splitlines()] == ["har", "kdd99"]


def test_sets_that_are_not_here_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PARLEY_DATA", "/nowhere")
    with pytest.raises(SystemExit) as raised:
        local_fits.main()
    assert not raised.value.code
    output = capsys.readouterr()
    assert not output.out
    assert output.err.count("is left out: PARLEY_DATA has no ") == 2
