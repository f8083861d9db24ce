"""Shells complete the commands of both tools."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from parley.learner.cli.main import learner_app
from parley.party.cli.main import party_app

TOOLS = {"parley-learner": learner_app, "parley-party": party_app}


def asked(tool: str, shell: str, **env: str) -> str:
    """What the tool tells a shell."""
    name = f"_{tool.replace('-', '_').upper()}_COMPLETE"
    return CliRunner().invoke(TOOLS[tool], [], prog_name=tool, env={name: shell, **env}).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("tool", TOOLS)
def test_a_completion_script_is_printed(tool: str, shell: str) -> None:
    script = asked(tool, f"source_{shell}")
    assert tool in script
    assert f"complete_{shell}" in script


@pytest.mark.parametrize(
    ("tool", "typed", "found"),
    [
        ("parley-learner", "wat", "watch"),
        ("parley-learner", "roster con", "confirm"),
        ("parley-party", "acc", "accept-data"),
        ("parley-party", "keyholder rec", "recover"),
    ],
)
def test_commands_are_completed(tool: str, typed: str, found: str) -> None:
    words = f"{tool} {typed}"
    told = asked(tool, "complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    assert told.split() == [found]


@pytest.mark.parametrize("tool", TOOLS)
def test_help_says_how_to_install_it(tool: str) -> None:
    stdout = CliRunner().invoke(TOOLS[tool], ["--help"], prog_name=tool).stdout
    assert "--install-completion" in stdout
    assert "--show-completion" in stdout
