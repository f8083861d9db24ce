"""What the command lines of all services share: how commands end, and how they print for people and for programs.

How a command line spells a run's terms.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from parley.common import parley_version
from parley.common.encoding.canonical_json import NameTwiceError, read_json
from parley.common.errors import InvalidInputError, ParleyError, UnavailableError
from parley.common.extras import extra_missing

_FORMAT = "parley.format"


class ExitCode(IntEnum):
    """What commands end with; 2, a misused command line, is Typer's own."""

    DONE = 0
    NO = 1
    MISUSED = 2
    FAILED = 3
    UNREACHABLE = 4


Format = Literal["text", "json"]


def _note_format(ctx: typer.Context, given: Format) -> Format:
    ctx.meta[_FORMAT] = given  # which all of a command line's contexts share
    return given


FormatOption = Annotated[
    Format, typer.Option("--format", callback=_note_format, help="text for people, JSON for programs")
]

TableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="NAME=WHERE",
        help="where a table of a query is: a file, folder/*.parquet, file.sqlite::table, or in PostgreSQL "
        "env:VARIABLE::table or file:SECRET::table, by where its connection string is; repeat",
    ),
]


CsvOption = Annotated[
    str | None,
    typer.Option(
        "--csv",
        metavar="KEY=VALUE ...",
        help='how CSV files are written, where that is not detected: "separator=; decimal=, thousands=. '
        'encoding=windows-1252 missing=-99 skip=2 end=1"',
    ),
]


ValueOption = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="COLUMN:VALUE=MEANING",
        help="what a value of your table means in the study's words, such as smoker:True=yes; with nothing after = it "
        "is a missing one, as in age:-999=. Repeat for more",
    ),
]
AsIsOption = Annotated[
    bool, typer.Option("--as-is", help="Take the table although some of it is most likely read wrongly.")
]


def _print_version(ctx: typer.Context, asked: bool) -> None:  # noqa: FBT001 -- as Typer calls it
    if asked:
        typer.echo(f"{ctx.command.name} {parley_version()}")
        raise typer.Exit


def tool_options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """What a tool takes before its commands."""


class CommandGroup(TyperGroup):
    """The commands of a tool: a foreseen error is one line on standard error, and an `ExitCode`.

    The line is ``tool: what was wrong``, or with ``--format json`` an object with ``error`` and the problem's ``type``.
    What the operating system refuses, a folder that is not the user's or a full disk, is foreseen, and so is a package
    of an extra that is not installed; that who reads has gone is for Typer, which ends then without a word.
    """

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 -- Typer's own context, and whatever the command returns
        """Run a command."""
        try:
            return super().invoke(ctx)
        except AnswerIsNoError as no:
            _show(no.error, ctx)
            raise typer.Exit(ExitCode.NO) from None
        except ParleyError as error:
            _show(error, ctx)
            is_away = isinstance(error, UnavailableError)
            raise typer.Exit(ExitCode.UNREACHABLE if is_away else ExitCode.FAILED) from None
        except ModuleNotFoundError as error:
            if (missing := extra_missing(error)) is None:
                raise
            _show(missing, ctx)
            raise typer.Exit(ExitCode.FAILED) from None
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            what = error.filename or "input or output"
            _show(InvalidInputError(f"{what}: {error.strerror or type(error).__name__}"), ctx)
            raise typer.Exit(ExitCode.FAILED) from None


class AnswerIsNoError(Exception):
    """A command's answer is no, for the reason that an ``error`` gives."""

    def __init__(self, error: ParleyError) -> None:
        super().__init__(error.detail)
        self.error = error


@contextmanager
def refusal_is_no() -> Iterator[None]:
    """Where whatever is refused makes the answer no, rather than a failure of the command."""
    try:
        yield
    except ParleyError as error:
        raise AnswerIsNoError(error) from None


def _show(error: ParleyError, ctx: typer.Context) -> None:
    """An error on standard error, as people or programs read it."""
    if ctx.meta.get(_FORMAT) == "json":
        typer.echo(json.dumps({"error": error.detail, "type": error.kind}, ensure_ascii=False), err=True)
    else:
        typer.echo(f"{ctx.find_root().command.name}: {error.detail}", err=True)


@contextmanager
def without_rich() -> Iterator[None]:
    """Import what a service is made of without rich: 80 modules, which httpx and structlog load where they find it."""
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # with which an import fails, as both of them expect
    try:
        yield
    finally:
        if sys.modules["rich"] is None:
            del sys.modules["rich"]


def print_json_line(value: object) -> None:
    """A JSON value on a line; its arrays of NumPy are lists."""
    typer.echo(json.dumps(value, ensure_ascii=False, default=lambda array: array.tolist()))


def print_result(output: Format, text: str, **facts: object) -> None:
    """What a command has done: in words, or as an object."""
    typer.echo(json.dumps(facts, ensure_ascii=False) if output == "json" else text)


def print_next(output: Format, command: str) -> None:
    """The command that helps next, for people."""
    print_aside(output, f"next: {command}")


def print_aside(output: Format, text: str) -> None:
    """A line for people, where it disturbs nothing that reads the result."""
    if output == "text":
        typer.echo(text, err=True)


def read_parameters(given: list[str] | None) -> dict[str, Any]:
    """Pairs NAME=VALUE; a value is JSON where it can be, else text."""
    parameters: dict[str, Any] = {}
    for name, value in map(pair, given or ()):
        try:
            parameters[name] = read_json(value.encode())
        except NameTwiceError:
            raise InvalidInputError(f"{name}: a name is twice in an object of its JSON") from None
        except ValueError:
            parameters[name] = value
    return parameters


def read_budgets(given: list[str] | None) -> dict[str, dict[str, float]]:
    """Pairs PARTY=EPSILON,DELTA."""
    budgets = {}
    for party, value in map(pair, given or ()):
        try:
            epsilon, delta = map(float, value.split(","))
        except ValueError:
            raise InvalidInputError(f"the budget of {party} must be EPSILON,DELTA, not {value!r}") from None
        budgets[party] = {"epsilon": epsilon, "delta": delta}
    return budgets


def read_cohort(given: str | None) -> dict[str, float] | None:
    """LEAST[,MOST[,SECONDS[,HOURS]]], where an empty one is left at its default.

    >>> read_cohort("100,,10")
    {'least': 100, 'seconds': 10.0}
    """
    if given is None:
        return None
    try:
        kinds = {"least": int, "most": int, "seconds": float, "owner_hours": float}
        named = zip(kinds.items(), given.split(","), strict=False)
        rule = {name: kind(value) for (name, kind), value in named if value or name == "least"}
    except ValueError:
        rule = {}
    if not rule or given.count(",") >= len(kinds):
        raise InvalidInputError(f"a cohort must be LEAST[,MOST[,SECONDS[,HOURS]]], not {given!r}")
    return rule


def pair(given: str) -> tuple[str, str]:
    """The parts of NAME=VALUE; raises InvalidInputError."""
    name, separator, value = given.partition("=")
    if not (name and separator):
        raise InvalidInputError(f"{given!r} must be NAME=VALUE")
    return name, value
