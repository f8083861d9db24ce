"""What to type instead of a command line that cannot be used: the nearest name, a known other word, or an example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

import typer

from parley.common.encoding.texts import did_you_mean

UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
"""What Typer raises for a command line that cannot be used; it exports the subclass alone."""


class Tool(Protocol):
    """A tool or a group of its commands; ``instead`` has what to type for words that are no command or option."""

    commands: Any
    instead: ClassVar[Mapping[str, str]]


def no_command(ctx: Any, word: str, tool: Tool) -> typer.BadParameter:  # noqa: ANN401 -- Typer's own
    """Return the error for a word that is no command."""
    path, instead = ctx.command_path, tool.instead
    if ctx.parent is not None:  # what its tool has for the word, if it is a command here too
        of_all = getattr(ctx.find_root().command, "instead", {})
        instead = {other: words for other, words in of_all.items() if words.split(" ")[0] in tool.commands}
    groups = (name for name, command in tool.commands.items() if word in getattr(command, "commands", ()))
    if word == "help":
        told = f"; say {path} --help"
    elif word in instead:
        told = _to_type(instead[word], f"{path} ")
    elif (group := next(groups, None)) is not None:
        told = f"; say {path} {group} {word}"
    else:
        told = did_you_mean(word, tool.commands) or f"; {path} --help lists those there are"
    return UsageError(f"there is no command {word!r}{told}", ctx=ctx)


@contextmanager
def answered(tool: Tool) -> Iterator[None]:
    """Add to an error of usage from this block what to type instead, once, as far as the ``tool`` knows."""
    try:
        yield
    except UsageError as error:
        misuse = cast("Any", error)
        is_help = misuse.message.startswith("Usage")  # of a group without a command
        if not is_help and misuse.ctx is not None and misuse.ctx.find_root().command is tool:
            misuse.message = f"{misuse.message.removesuffix('.')}{_told(misuse, tool)}"
        raise


def _told(misuse: Any, tool: Tool) -> str:  # noqa: ANN401 -- Typer's own error
    """Return words that say what to type instead; an option's possibilities become part of them."""
    command, told = misuse.ctx.command, ""
    options = [name for parameter in command.params for name in parameter.opts if name.startswith("-")]
    if hasattr(misuse, "possibilities"):  # there is no such option
        misuse.possibilities = None
        told = _for_option(misuse.option_name, [name for name in options if name != "--help"], misuse.ctx, tool)
    elif "unexpected extra argument" in misuse.message:
        told = _for_argument(misuse.message.rpartition("(")[2].rstrip(")").split(" ")[0], options)
    return f"{told}{'' if hasattr(command, 'commands') else _example(misuse.ctx)}"


def _example(ctx: Any) -> str:  # noqa: ANN401 -- Typer's own
    """Return a line with an example of the command, if it or its group has one."""
    for place in (ctx, ctx.parent):
        epilog = (place.command.epilog if place else None) or ""
        example = epilog.removeprefix("Examples:").removeprefix("Example:").strip().split("\n")[0]
        if example.startswith(ctx.command_path):
            return f"\nExample: {example}"
    return ""


def _for_option(option: str, options: Sequence[str], ctx: Any, tool: Tool) -> str:  # noqa: ANN401 -- as above
    """Return words that say what to type for an option that the command does not have."""
    owned = (option in parameter.opts for each in tool.commands.values() for parameter in each.params)
    if ctx.command is tool and any(owned):
        return f"; options come after the command: {ctx.command_path} COMMAND {option} ..."
    if (words := tool.instead.get(option)) is not None and words.split("=")[0].split(" ")[0].rstrip(",") in options:
        return _to_type(words, "")
    return did_you_mean(option, options)


def _for_argument(text: str, options: Sequence[str]) -> str:
    """Return words that name the option to which a text seems to belong, which stands alone; none if none is known."""
    path = Path(text)
    if "--config" in options and (path.suffix == ".toml" or path.is_dir()):
        return f"; say --config {next(path.glob('*.toml'), path) if path.is_dir() else path}"
    return f"; say --data {text}" if "--data" in options and path.exists() else ""


def _to_type(words: str, tool: str) -> str:
    """Return what to type: a command of the tool or of another one, or words in parentheses."""
    return f"; {words}" if words.startswith("(") else f"; say {'' if words.startswith('parley-') else tool}{words}"
