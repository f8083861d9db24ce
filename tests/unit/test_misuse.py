"""What a stranger plausibly types and no command takes is answered with what to type instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from parley.common.algorithms import build_algorithm
from parley.common.errors import InvalidInputError
from parley.learner.cli.main import LearnerCommands, learner_app
from parley.party.cli.main import PartyCommands, party_app

ASKED = ("submit", "biopsies", "--epsilon", "1")
SUBMIT = "say parley-learner submit STUDY --epsilon 1 --delta 1e-5 --watch"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").mkdir()
    Path("a/party.toml").touch()
    Path("rows.csv").touch()


@pytest.mark.parametrize(
    ("tool", "typed", "told"),
    [
        *((learner_app, (word,), SUBMIT) for word in ("train", "run", "fit")),
        *((learner_app, (word,), "say parley-learner list") for word in ("results", "status", "runs")),
        (learner_app, ("sumbit", "biopsies"), "did you mean submit?"),
        (learner_app, ("zzz",), "parley-learner --help lists those there are"),
        (learner_app, ("help",), "say parley-learner --help"),
        (learner_app, ("join", "a"), "say parley-party join INVITATION --data TABLE   (an owner's command)"),
        (learner_app, ("confirm", "a"), "say parley-learner roster confirm"),
        (learner_app, ("roster", "confim"), "did you mean confirm?"),
        (learner_app, ("roster", "confirm", "a"), "Example: parley-learner roster confirm hospital-b"),
        (learner_app, ("login",), "(set PARLEY_URL and PARLEY_TOKEN_FILE"),
        (learner_app, (*ASKED,), "Missing option '--delta'"),
        (learner_app, (*ASKED,), "Example: parley-learner submit biopsies --epsilon 1 --delta 1e-5 --watch"),
        (learner_app, ("submit", "biopsies", "--eps", "1"), "say --epsilon"),
        (learner_app, (*ASKED, "--rounds", "5"), "say -p n_rounds=NUMBER"),
        (learner_app, (*ASKED, "--parties", "a"), "say --party NAME"),
        (learner_app, (*ASKED, "--budgte", "a=1,0"), "did you mean --budget?"),
        (learner_app, ("--url", "https://a", "list"), "options come after the command"),
        (learner_app, ("simulate", "rows.csv"), "say --data rows.csv"),
        (learner_app, ("study", "init"), "say once which table: TABLE, or --data TABLE"),
        (learner_app, ("study", "init", "rows.csv", "--data", "rows.csv"), "say once which table"),
        (party_app, ("start",), "say parley-party serve --config FILE"),
        (party_app, ("keyholder", "start"), "say parley-party keyholder serve --config FILE"),
        (party_app, ("yes", "5f1c"), "say parley-party approve RUN"),
        (party_app, ("invite", "b"), "say parley-learner invite NAME --study STUDY   (the operator's command)"),
        (party_app, ("serve", "a"), "say --config a/party.toml"),
        (party_app, ("check", "a/party.toml"), "say --config a/party.toml"),
        (party_app, ("join",), "Example: parley-party join hospital-b.invitation.json --data loans.csv"),
    ],
)
def test_a_command_line_that_cannot_be_used_is_answered(tool: Any, typed: tuple[str, ...], told: str) -> None:  # noqa: ANN401
    done = CliRunner().invoke(tool, list(typed), prog_name="parley-learner" if tool is learner_app else "parley-party")
    assert (done.exit_code, told in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("tool", "typed", "told"),
    [
        (party_app, ("serve",), "say --config FILE such as --config a/party.toml"),
        (party_app, ("serve", "--config", "a"), "say --config a/party.toml"),
        (learner_app, ("predict", "5f1c", "rows.csv"), "save it by parley-learner model RUN --save 5f1c"),
        (learner_app, ("list",), "a token is needed"),
        (learner_app, ("study", "check", "rows.csv", "a.json"), "The study's JSON file comes first"),
    ],
)
def test_a_file_that_is_not_there_is_answered(tool: Any, typed: tuple[str, ...], told: str) -> None:  # noqa: ANN401
    done = CliRunner().invoke(tool, list(typed))
    assert (done.exit_code, told in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize(
    ("name", "parameters", "told"),
    [
        ("dp_gd", {"rounds": 5}, "unknown: rounds; there are n_rounds, .*; did you mean n_rounds\\?$"),
        ("dpsgd", {}, "; did you mean psgd\\?$"),
    ],
)
def test_a_name_that_is_near_another_is_answered_with_it(name: str, parameters: dict[str, int], told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        build_algorithm(name, parameters)


@pytest.mark.parametrize(("tool", "commands"), [(learner_app, LearnerCommands), (party_app, PartyCommands)])
def test_help_has_every_command_once_under_a_heading_and_cuts_no_sentence(tool: Any, commands: Any) -> None:  # noqa: ANN401
    done = CliRunner().invoke(tool, ["--help"], env={"COLUMNS": "80"})
    assert "..." not in done.stdout.replace("[ARGS]...", "").replace("OPTIONS", "")
    assert "Others:" not in done.stdout
    assert [line for line in done.stdout.splitlines() if line.rstrip(":") in commands.panels] == [
        f"{title}:" for title in commands.panels
    ]
    names = " ".join(commands.panels.values()).split()
    rows = {name: f"\n  {name.ljust(max(map(len, names)))}  " for name in names}
    assert {name: done.stdout.count(row) for name, row in rows.items()} == dict.fromkeys(names, 1)
