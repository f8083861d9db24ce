"""The command ``parley-learner``, against services that run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner, Result

from parley.common.service.tokens import hash_token
from parley.learner.cli.display import evaluation_lines
from parley.learner.cli.main import learner_app
from parley.learner.settings import LearnerSettings
from tests.support.cluster import USER, Cluster
from tests.support.processes import free_port, party_processes, start_learner, stopped_at_exit, wait_until_ready


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A learner with two parties."""
    allowed = ("dp_gd", "psgd", "local_average", "evaluate")
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), n_parties=2, hold_out=0.25, algorithms=allowed)
    url = f"http://127.0.0.1:{free_port()}"
    with party_processes(cluster) as urls:
        settings = cluster.learner_settings(urls, port=httpx.URL(url).port)
        with stopped_at_exit(start_learner(settings)):
            wait_until_ready(url)
            yield url


class Commands:
    """Runs commands as a user of the learner would."""

    def __init__(self, url: str) -> None:
        self.env = {"PARLEY_URL": url, "PARLEY_TOKEN": USER, "COLUMNS": "200"}

    def __call__(self, *arguments: str, status: int = 0, **env: str | None) -> Result:
        result = CliRunner().invoke(learner_app, list(arguments), env=self.env | env)
        assert result.exit_code == status, result.output
        return result

    def json(self, *arguments: str) -> Any:  # noqa: ANN401 -- a JSON value
        return json.loads(self(*arguments, "--format", "json").stdout)


@pytest.fixture
def command(url: str) -> Commands:
    return Commands(url)


PROGRAMS = {"serve", "bounds", "project", "schema", "card"}
"""What writes JSON alone, a card, or a log."""
SUBMIT = ("submit", "made-up", "--epsilon", "1", "--delta", "1e-5", "-p", "n_rounds=3")


def test_resumes_only_what_has_not_ended(command: Commands) -> None:
    run = command(*SUBMIT).stdout.strip()
    command("watch", run)
    assert f"run {run} is completed and cannot be resumed" in command("resume", run, status=3).output


def test_submits_watches_and_saves_a_model(command: Commands, tmp_path: Path) -> None:
    submitted = command(*SUBMIT)
    run = submitted.stdout.strip()
    assert submitted.stderr.splitlines()[-1] == f"next: parley-learner watch {run}"
    done = command("watch", run)
    assert done.stderr == f"next: parley-learner model {run}\n"
    watched = done.stdout
    assert watched.splitlines()[-1] == "completed after 3 rounds"
    saved = command("model", run, "--save", str(tmp_path / "model.json")).stdout
    assert "epsilon 1, delta 1e-05 for one record replaced, against anyone who sees the transcript" in saved
    document = json.loads((tmp_path / "model.json").read_text())
    assert document == command.json("model", run)
    assert run in command("list").stdout


def test_watches_several_runs_at_once(command: Commands) -> None:
    good = [command(*SUBMIT).stdout.strip() for _ in range(2)]
    lines = command("watch", *good).stdout.splitlines()
    for run in good:
        news = [line.removeprefix(f"{run} ") for line in lines if line.startswith(run)]
        assert (news[0], news[-1]) == ("queued", "completed")
        assert news[-2].startswith("round 3 of 3, epsilon spent at most ")
    assert len(lines) == 2 * 7
    bad = command(*SUBMIT[:-1], "n_rounds=3000").stdout.strip()
    command("cancel", bad)
    events = [
        json.loads(line) for line in command("watch", good[0], bad, "--format", "json", status=1).stdout.splitlines()
    ]
    ends = {event["run"]: event["state"] for event in events if event["kind"] == "state"}
    assert ends == {good[0]: "completed", bad: "cancelled"}
    assert "there is no run 'nobody'" in command("watch", good[0], "nobody", status=3).stderr
    assert command("watch").stdout == "", "no run is active"


def test_speaks_json(command: Commands) -> None:
    lines = [json.loads(line) for line in command(*SUBMIT, "--watch", "--format", "json").stdout.splitlines()]
    run = lines[0]["id"]
    assert [line["kind"] for line in lines[1:]] == ["state"] * 3 + ["round"] * 3 + ["state"]
    events = [json.loads(line) for line in command("watch", run, "--format", "json").stdout.splitlines()]
    assert events == lines[1:]
    assert command.json("list", "--limit", "1")[0]["id"] == run
    first, *others = command.json("list", "--all")
    assert (first["id"], len({other["id"] for other in others})) == (run, len(others))


def test_submits_a_study_from_a_file_with_all_terms(command: Commands, tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    path.write_text(Cluster(tmp_path / "cluster", n_parties=1, hold_out=0.25).study.model_dump_json())
    terms = ("--algorithm", "psgd", "--party", "party-2", "--budget", "party-2=2,1e-6", "--minimum-contributors", "1")
    first, again = (
        command.json("submit", str(path), "--epsilon", "1", "--delta", "1e-5", *terms, "--idempotency-key", "key")
        for _ in range(2)
    )
    assert first["id"] == again["id"]
    assert (first["algorithm"], first["parties"], first["epsilon"]) == ("psgd", ["party-2"], {"party-2": 2.0})
    command("watch", first["id"])


def test_evaluates_a_model_by_the_rest_of_the_budget_or_later(command: Commands) -> None:
    watched = command(*SUBMIT, "--evaluate", "0.5", "--watch").stdout
    assert watched.index("completed after 3 rounds") < watched.index("completed after 2 rounds")
    heading = "on 20 rows held out by 2 parties, at epsilon 0.5, delta 0:"
    assert heading in watched
    follower, run = (view["id"] for view in command.json("list", "--limit", "2"))
    saved = command("model", run, "--save", os.devnull).stdout
    assert f"  {heading}\n    accuracy " in saved
    assert saved.count(" at 95%") == 12  # six of both classes; precision, recall and F1 of each
    assert command.json("model", run)["evaluation"]["run"] == follower
    again = command("evaluate", run, "--epsilon", "10", "--delta", "0.01", "-p", "largest_error=0.5", "--watch").stdout
    assert "at epsilon 10, delta 0:" in again
    queued = command.json("evaluate", run, "--epsilon", "0.1", "--delta", "1e-6", "--idempotency-key", "evaluated")
    assert queued["evaluates"] == run
    assert len(command("evaluate", run, "--epsilon", "0.1", "--delta", "1e-6").stdout.strip()) == len(run)
    refused = command("evaluate", follower, "--epsilon", "1", "--delta", "1e-6", status=3)
    assert "predicts for nobody" in refused.output
    assert "evaluate" in command(*SUBMIT, "--evaluate", "1.5", status=3).output
    assert "say a share of the budget such as 0.1, 0 for none" in command(*SUBMIT, "--evaluate", "x", status=3).output


def test_says_what_an_evaluation_does_not_know() -> None:
    unknown = {"estimate": None, "low": None, "high": 1.0}
    figures = dict.fromkeys(("accuracy", "majority", "auc", "rmse"))
    evaluation = figures | {"r_squared": unknown, "recall": None, "rate": 0.95, "epsilon": 1.0, "delta": 0.0, "rows": 3}
    lines = list(evaluation_lines(evaluation | {"contributors": ["a"]}))
    assert lines[1:] == ["  R² not known, between -∞ and 1 at 95%"]
    assert list(evaluation_lines(None)) == []


def test_who_stops_to_watch_is_told_how_to_go_on(command: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is watched from its submission on has not been named before."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("parley.learner.cli.display.follow", interrupted)
    stopped = command(*SUBMIT, "--watch", status=130)
    run = command.json("list")[0]["id"]
    assert f"the run goes on: parley-learner watch {run}, or cancel {run}" in stopped.stderr
    monkeypatch.undo()
    assert "completed after 3 rounds" in command("watch", run).stdout


def test_a_run_that_owners_would_refuse_is_a_failed_command_and_no_run(command: Commands) -> None:
    before = command.json("list")
    result = command("submit", "made-up", "--epsilon", "1000", "--delta", "1e-5", "--watch", status=3)
    assert result.stderr.startswith("warning: an epsilon of 1000 promises next to nothing")  # before all else
    words = "would refuse the run: one run may cost at most epsilon 100; what helps: --epsilon "
    assert words in result.stderr.splitlines()[-1]
    error = command("submit", "made-up", "--epsilon", "1000", "--delta", "1e-5", "--format", "json", status=3)
    assert json.loads(error.stderr.splitlines()[-1])["type"] == "foreseen-refusal"
    assert command.json("list") == before
    mistyped = command(*SUBMIT, "--party", "party-9", status=3).stderr
    assert mistyped.endswith("unknown parties: party-9; there are party-1, party-2\n")


def test_reads_the_token_from_a_file(command: Commands, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(USER + "\n")
    (tmp_path / "token").chmod(0o644)
    stderr = command("list", "--token-file", str(tmp_path / "token"), PARLEY_TOKEN="another").stderr
    assert stderr == f"parley-learner: warning: others can read your token: chmod 600 {tmp_path / 'token'}\n"
    (tmp_path / "token").chmod(0o600)
    assert not command("list", "--token-file", str(tmp_path / "token"), PARLEY_TOKEN=None).stderr
    command("list", PARLEY_TOKEN=None, PARLEY_TOKEN_FILE=str(tmp_path / "token"))


def test_takes_no_token_as_an_argument(command: Commands) -> None:
    assert "No such option: --token" in command("list", "--token", USER, status=2).stderr


@pytest.mark.parametrize(
    ("arguments", "env", "word"),
    [
        (("list",), {"PARLEY_TOKEN": None}, "a token is needed"),
        (("list", "--token-file", "/missing"), {"PARLEY_TOKEN": None}, "/missing cannot be read"),
        (("list",), {"PARLEY_TOKEN": "wrong"}, "not known here"),
        (("list",), {"PARLEY_URL": "http://127.0.0.1:1"}, "no learner answers at http://127.0.0.1:1"),
        (("model", "nobody"), {}, "there is no run 'nobody'"),
        (("watch", "nobody"), {}, "there is no run 'nobody'"),
        ((*SUBMIT, "-p", "step"), {}, "'step' must be NAME=VALUE"),
        ((*SUBMIT, "-p", "step=far"), {}, "step: Input should be a valid number"),
        ((*SUBMIT, "--budget", "party-1=1"), {}, "must be EPSILON,DELTA"),
        ((*SUBMIT, "--colluders", "2"), {}, "colluders"),
        (("submit", "missing.json", "--epsilon", "1", "--delta", "1e-5"), {}, "missing.json"),
        (("submit", "unknown", "--epsilon", "1", "--delta", "1e-5"), {}, "unknown study 'unknown'; there are made-up"),
        (("simulate", "--epsilon", "-1"), {}, "epsilon must be positive"),
        (("simulate", "--algorithm", "sgd"), {}, "unknown algorithm 'sgd'"),
        (("simulate", "--data", "digits", "--algorithm", "psgd"), {}, "proof is for a loss of one score"),
        (("serve", "--config", "/missing.toml"), {}, "/missing.toml"),
    ],
)
def test_says_what_is_wrong_in_a_line(
    command: Commands, arguments: tuple[str, ...], env: dict[str, str | None], word: str
) -> None:
    result = command(*arguments, status=4 if "no learner answers" in word else 3, **env)
    assert word in result.stderr
    assert result.stderr.startswith("parley-learner: ")
    assert len(result.stderr.splitlines()) == 1


def test_simulates(command: Commands) -> None:
    arguments = ("simulate", "--data", "wdbc", "--repeat", "2", "--seed", "7", "--reveal", "each")
    document = command.json(*arguments)
    assert len(document["accuracy"]["values"]) == 2
    assert document["guarantees"][0]["view"] == "transcript"
    assert f"accuracy {document['accuracy']['mean']:.4f}" in command(*arguments).stdout


@pytest.mark.slow
def test_simulates_digits(command: Commands) -> None:
    arguments = ("simulate", "--data", "digits", "--repeat", "2", "-p", "step=4")
    document = command.json(*arguments)
    assert (document["kind"], set(document["accuracy"])) == ("multiclass", {"mean", "sd", "values"})
    assert f"accuracy {document['accuracy']['mean']:#.4g}, sd" in command(*arguments).stdout


def test_makes_tokens(command: Commands) -> None:
    made = command.json("token")
    assert made["token_hash"] == hash_token(made["token"])


def test_help_teaches() -> None:
    group = typer.main.get_command(learner_app)
    names = group.commands  # type: ignore[attr-defined]
    assert {"serve", "submit", "watch", "list", "cancel", "model", "evaluate", "simulate"} <= set(names)
    for name in names:
        stdout = CliRunner().invoke(learner_app, [name, "--help"], env={"COLUMNS": "200"}).stdout
        assert "Example" in stdout, name
        assert f"parley-learner {name}" in stdout, name
        for subcommand in getattr(group.commands[name], "commands", {"": None}):  # type: ignore[attr-defined]
            words = [name, subcommand] if subcommand else [name]
            stdout = CliRunner().invoke(learner_app, [*words, "--help"], env={"COLUMNS": "200"}).stdout
            assert ("--format" in stdout) == (name not in PROGRAMS), words


def test_says_what_to_expect_before_it_asks(command: Commands) -> None:
    result = command("submit", "made-up", "--epsilon", "1", "--delta", "1e-5", "--explain")
    lines = result.stderr.splitlines()
    assert len(result.stdout.split()) == 1, "the run's identifier alone"
    assert any(line.startswith("n_rounds = ") and "as many as" in line for line in lines)
    assert any(line.startswith("step = ") for line in lines)
    assert any(line.startswith("1 round, about ") for line in lines)
    assert any(line.startswith("excess fitness to expect ") for line in lines)
    assert any(line.startswith("excess fitness of an owner alone, without noise: ") for line in lines)
    command("watch", result.stdout.strip())
    quiet = command(
        "submit", "made-up", "--epsilon", "1e-3", "--delta", "1e-5", "--algorithm", "psgd", "-p", "n_rounds=2"
    )
    assert "joining is not worth it for party-1" in quiet.stderr
    assert "n_rounds = " not in quiet.stderr


def test_explains_a_forecast_and_a_simulation(command: Commands) -> None:
    foreseen = command("forecast", "made-up", "--epsilon", "1", "--delta", "1e-5", "--explain").stdout
    assert "momentum = " in foreseen
    private = ("made-up", "--epsilon", "8", "--delta", "1e-5", "--algorithm", "average", "--explain")
    assert "mechanism = o" in command("forecast", *private).stdout, "a word, not a number"
    assert "mechanism = o" in command("submit", *private, status=3).stderr
    tried = command("simulate", "--data", "wdbc", "--repeat", "2", "--explain").stdout
    assert "clip_norm = 0.5: noise is scaled to it" in tried
    assert "beside it, over 2 repetitions: the majority 0." in tried
    assert "best at this budget, " in tried
    assert "beside it" not in command("simulate", "--data", "wdbc", "--repeat", "1", "--no-baselines").stdout


def test_seconds_limit_the_rounds_of_a_run(command: Commands) -> None:
    hasty = command.json("submit", "made-up", "--epsilon", "4", "--delta", "1e-5", "--seconds", "0.001")
    command("watch", hasty["id"])
    view = next(run for run in command.json("list") if run["id"] == hasty["id"])
    assert view["rounds"]["of"] == 1
    assert "would be more than time or owners allow" in view["chosen"]["n_rounds"]


def test_a_learner_may_begin_in_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / 'the "first"\\ \U0001f3e5\x7f'
    made = CliRunner().invoke(learner_app, ["init", "https://learner.example.org:8100", "--out", str(folder)])
    assert made.exit_code == 0, made.output
    settings = LearnerSettings.load(folder / "learner.toml")
    assert (settings.state, settings.tls and settings.tls.key) == (folder / "state", folder / "secrets" / "tls.key")


@pytest.mark.parametrize(
    ("url", "options", "host"),
    [
        ("https://[::1]:8100", (), "::1"),
        ("https://[2001:db8::1]:8100", (), "::"),
        ("https://[2001:db8::1]:8100", ("--listen", "[2001:db8::1]"), "2001:db8::1"),
        ("https://localhost:8100", (), "127.0.0.1"),
        ("https://127.0.0.2:8100", (), "127.0.0.2"),
        ("https://learner.example", (), "0.0.0.0"),  # noqa: S104 -- as a learner is reached
    ],
)
def test_a_learner_listens_where_its_url_reaches_it(
    tmp_path: Path, url: str, options: tuple[str, ...], host: str
) -> None:
    made = CliRunner().invoke(learner_app, ["init", url, "--out", str(tmp_path / "learner"), *options])
    assert made.exit_code == 0, made.output
    assert LearnerSettings.load(tmp_path / "learner" / "learner.toml").host == host


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://[::1", "is not https://host:port"),
        ("https://[::1]:port", "is not https://host:port"),
        ("https://[::1]:99999", "a port is a number from 1 to 65535"),
        ("https://[fe80::1%25eth0]:8100", "has a meaning on one machine only"),
        ("https://[fe80::1%eth0]", "has a meaning on one machine only"),
    ],
)
def test_what_is_no_address_for_all_is_refused_in_words(tmp_path: Path, url: str, told: str) -> None:
    refused = CliRunner().invoke(learner_app, ["init", url, "--out", str(tmp_path / "learner")])
    assert refused.exit_code == 3
    assert told in refused.output
    assert not (tmp_path / "learner").exists()
