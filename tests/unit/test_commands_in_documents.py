"""Every command of the two tools that a document shows exists, with its arguments and options, as it is written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from parley.learner.cli.main import learner_app
from parley.party.cli.main import party_app

ROOT = Path(__file__).parents[2]
TOOLS = {"parley-learner": learner_app, "parley-party": party_app}
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deployments/**/*.md")])
_MISUSED: type[Exception] = typer.BadParameter.__mro__[1]
_ENDS = re.compile(r"^(\||\|\||&&|;|[12]?>{1,2}(&1)?|<|\)?#.*)$")


def commands(document: Path) -> Iterator[list[str]]:
    """The words of each command of ours in the shell's blocks of a document."""
    for block in re.findall(r"^ *```(?:sh|console)\n(.*?)^ *```", document.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for shown in re.findall(r"parley-(?:learner|party)(?![-:])\b[^$`]*", re.sub(r"\$\(?", "", line)):
                words = shlex.split(shown.strip().removesuffix(")"), comments=True)
                ends = [place for place, word in enumerate(words) if _ENDS.match(word)]
                if len(words) > 1:
                    yield words[: ends[0] if ends else None]


def check(words: list[str]) -> None:
    """Parse a command line as the tool would, and do nothing."""
    tool, *rest = words
    command: Any = typer.main.get_command(TOOLS[tool])
    context = None
    while True:
        context = command.make_context(tool, list(rest), parent=context)
        if not hasattr(command, "resolve_command"):
            return
        tool, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command = found


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_is_one_of_the_tools(document: Path) -> None:
    for words in commands(document):
        try:
            check(words)
        except _MISUSED as error:
            pytest.fail(f"{shlex.join(words)}: {error}")


def test_commands_are_found() -> None:
    found = [words for document in DOCUMENTS for words in commands(document)]
    print(f"{len(found)} commands in {len(DOCUMENTS)} documents")
    assert ["parley-party", "budget", "--config", "hospital-b/party.toml"] in found
    with pytest.raises(_MISUSED, match="--nothing"):
        check(["parley-learner", "list", "--nothing"])
