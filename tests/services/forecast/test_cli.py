"""The command ``parley-learner forecast``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner, Result

from parley.common.runs.pricing import RunCosts
from parley.learner.api.app import create_learner_app
from parley.learner.cli.client import LearnerClient
from parley.learner.cli.forecast import costly
from parley.learner.cli.main import learner_app
from parley.learner.cli.options import LearnerOptions
from tests.services.forecast.conftest import Owners
from tests.support.cluster import USER

FRAUD = (
    "forecast", "made-up", "--algorithm", "wu_strongly_convex", "-p", "n_rounds=20", "-p", "regularization=0.1",
    "--epsilon", "10", "--delta", "1e-5", "--owner", "bank-a=2900", "--owner", "bank-b=2900", "--owner", "shop=200",
    "--budget", "shop=0.1,1e-6",
)  # fmt: skip


class Commands:
    """Runs commands as a user of the learner would."""

    def __call__(self, *arguments: str, status: int = 0) -> Result:
        result = CliRunner().invoke(learner_app, list(arguments), env={"PARLEY_TOKEN": USER, "COLUMNS": "160"})
        assert result.exit_code == status, result.output
        return result

    def json(self, *arguments: str) -> Any:  # noqa: ANN401 -- a JSON value
        return json.loads(self(*arguments, "--format", "json").stdout)


@pytest.fixture
def command(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """Commands to a learner in this process, whose parties are not there."""
    with TestClient(create_learner_app(owners.learner_settings(deadline_seconds=0.2))) as http:
        client = LearnerClient("http://learner", USER, http._transport)
        monkeypatch.setattr(LearnerOptions, "open", lambda _: nullcontext(client))
        yield Commands()


def test_tells_people_who_should_be_left_out(command: Commands) -> None:
    stdout = command(*FRAUD).stdout
    assert "excess fitness with all" in stdout
    assert "in 90% of runs" in stdout
    assert "with the best coalition" in stdout
    assert ": bank-a, bank-b" in stdout
    assert "leave out shop" in " ".join(stdout.split())
    assert "it drops the dimension" in stdout
    assert "worth it" in stdout
    assert "not known: the owners are not those of the roster" in stdout
    assert next(line for line in stdout.splitlines() if "shop" in line and "200" in line).rstrip(" │").endswith("no")


def test_tells_programs_the_same(command: Commands) -> None:
    answer = command.json(*FRAUD)
    assert answer["outcome"]["left_out"] == ["shop"]
    assert [owner["n_examples"] for owner in answer["owners"]] == [2900, 2900, 200]
    assert [owner["epsilon"] for owner in answer["owners"]] == pytest.approx([10, 10, 0.1])
    assert not any(owner["worth_joining"] for owner in answer["owners"]), "alone they may regularise less"
    assert answer["owners"][2]["alone"]["estimate"] < answer["outcome"]["best"]["estimate"]


def test_says_that_there_is_none(command: Commands) -> None:
    terms = ("forecast", "made-up", "--algorithm", "local", "--epsilon", "1", "--delta", "1e-5", "--owner", "a=10")
    assert "no forecast every owner keeps a model of its own" in " ".join(command(*terms).stdout.split())


@pytest.mark.parametrize("fits", [True, False])
def test_mentions_a_limit_only_where_its_default_is_too_low(fits: bool) -> None:  # noqa: FBT001 -- a parameter
    costs = RunCosts(
        asked=0, answered=10**6, round_bytes=8_000_256, bytes=8_000_256, all_bytes=16_000_512, memory_bytes=40_000_000,
        learner_bytes=64_000_000,
        noise_seconds=0.4, limit="limits.round_bytes", longest=8_000_128, fits=fits,
    )  # fmt: skip
    limits = list(costly({"costs": asdict(costs)}))
    assert limits[0].startswith("an answer has 1,000,000 numbers: 8 MB on the wire a party and round, 16 MB in all")
    needs = "warning: a party's limits.round_bytes must be 8,000,128 or more, which its default is not"
    assert limits[1:] == ([] if fits else [needs])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--owner", "bank-a=many"), "the size of bank-a must be a number of examples, not 'many'"),
        (("--owner", "bank-a"), "'bank-a' must be NAME=VALUE"),
        (("--owner", "a=1", "--budget", "b=1,1e-5"), "budgets: unknown parties: b"),
        (("--owner", "a=1", "-p", "overlap=0"), "overlap"),
        (("--owner", "a=1", "-p", "rho=-1"), "rho"),
        ((), "party-1 cannot be reached"),
    ],
)
def test_says_what_is_wrong(command: Commands, arguments: tuple[str, ...], word: str) -> None:
    terms = ("--algorithm", "wu_strongly_convex", "--epsilon", "1", "--delta", "1e-5", *arguments)
    assert word in command("forecast", "made-up", *terms, status=4 if "reached" in word else 3).stderr


def test_help_teaches_by_examples() -> None:
    stdout = Commands()("forecast", "--help").stdout
    assert "parley-learner forecast fraud.json" in stdout
    assert "Costs no privacy" in stdout


@pytest.fixture
def told(owners: Owners) -> None:
    """The study tells that one of its classes is rare."""
    label = owners.study.label.model_copy(update={"shares": (0.9, 0.1)})
    owners.study_path.write_text(owners.study.model_copy(update={"label": label}).model_dump_json())


@pytest.mark.usefixtures("told")
def test_of_a_study_that_tells_shares_it_says_what_no_feature_would_come_to(command: Commands) -> None:
    few = ("forecast", "made-up", "--algorithm", "dp_gd", "--epsilon", "0.1", "--delta", "1e-6", "--owner", "a=30")
    answer = command.json(*few)
    assert answer["majority"] == pytest.approx(0.9)
    constant = answer["outcome"]["constant"]
    assert 0 < constant["estimate"] < answer["outcome"]["excess"]["estimate"]
    output = " ".join(command(*few).stdout.split())
    assert "without any feature" in output
    assert "a model that looks at no feature is expected to come as close" in output
    many = " ".join(command(*few[:-1], "a=1000000").stdout.split())
    assert "without any feature" in many
    assert "expected to come as close" not in many
