"""What the command lines of all services share: how commands are declared, how they end, and how they print.

A command's options may come in groups: a frozen dataclass whose fields are options is one parameter of the command.
`Printer` is such a group; others say where a learner is, and what the terms of a run are.

Help must come at once, so a module of commands imports with `deferred` what only their work needs.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import IntEnum
from functools import wraps
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import LazyLoader
from itertools import chain
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_type_hints

import typer
from typer.core import TyperGroup

from parley.common import parley_version
from parley.common.encoding.canonical_json import NameTwiceError, read_json
from parley.common.errors import InvalidInputError, ParleyError, UnavailableError
from parley.common.extras import extra_missing
from parley.common.service import misuse

_FORMAT = "parley.format"
_ONCE = "say once which table: TABLE, or --data TABLE"
_ALL = 10_000  # characters of a sentence of help, which is folded instead of cut
Command = TypeVar("Command", bound=Callable[..., Any])


class ExitCode(IntEnum):
    """The exit statuses of commands; Typer itself ends with 2 after a misused command line."""

    DONE = 0
    NO = 1
    MISUSED = 2
    FAILED = 3
    UNREACHABLE = 4


Format = Literal["text", "json"]


def _note_format(ctx: typer.Context, chosen: Format) -> Format:
    ctx.meta[_FORMAT] = chosen  # which all of a command line's contexts share
    return chosen


FormatOption = Annotated[
    Format, typer.Option("--format", callback=_note_format, help="text for people, JSON for programs")
]

TableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="NAME=WHERE",
        help="the place of a query's table: a file, folder/*.parquet, file.sqlite::table, or in PostgreSQL "
        "env:VARIABLE::table or file:SECRET::table, which name its connection string; repeat",
    ),
]


CsvOption = Annotated[
    str | None,
    typer.Option(
        "--csv",
        metavar="KEY=VALUE ...",
        help='how CSV files are written, if that is not detected: "separator=; decimal=, thousands=. '
        'encoding=windows-1252 missing=-99 skip=2 end=1"',
    ),
]


ValueOption = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="COLUMN:VALUE=MEANING",
        help="what a value of your table means in the study's words, such as smoker:True=yes; a value with nothing "
        "after = counts as missing, such as age:-999=; repeat",
    ),
]
AsIsOption = Annotated[
    bool, typer.Option("--as-is", help="take the table although some of it is probably read wrongly")
]


def _print_version(ctx: typer.Context, is_given: bool) -> None:  # noqa: FBT001 -- as Typer calls it
    if is_given:
        typer.echo(f"{ctx.command.name} {parley_version()}")
        raise typer.Exit


def tool_options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Take the options that come before a tool's commands."""


class CommandGroup(TyperGroup):
    """The commands of a tool: a foreseen error is one line on standard error, and an `ExitCode`.

    Help lists the commands by ``panels``, which have the names of theirs, and the others after them. A command line
    that cannot be used is answered with what to type instead, as far as that can be known: ``instead`` has it for words
    that are no command or option here, and the nearest name, another place of an option, or the command's own example
    stand for the rest.

    The line is ``tool: what was wrong``, or with ``--format json`` an object with ``error`` and the problem's ``type``.
    Refusals of the operating system, such as a folder that is not the user's or a full disk, are foreseen, and so is a
    missing package of an extra. If the reader of the output has gone (BrokenPipeError), Typer ends without a message.
    """

    panels: ClassVar[Mapping[str, str]] = {}
    instead: ClassVar[Mapping[str, str]] = {}

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 -- Typer's own
        """List the commands by panels, each with the whole first sentence of its help, folded."""
        visible = {name: command for name, command in self.commands.items() if not command.hidden}
        panels = {title: [name for name in names.split() if name in visible] for title, names in self.panels.items()}
        panels["Others" if panels else "Commands"] = [
            name for name in visible if name not in {*chain(*panels.values())}
        ]
        width = max(map(len, visible), default=0)
        for title, names in panels.items():
            if names:
                rows = [(name.ljust(width), visible[name].get_short_help_str(_ALL)) for name in names]
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=width + 2)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 -- as above
        """Parse what comes before the command."""
        with misuse.answered(self):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 -- as above
        """Find the command; for another word, say which command may be meant."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise misuse.no_command(ctx, args[0], self)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 -- Typer's own context, and any value that the command returns
        """Run a command; print a foreseen error, and exit with its status."""
        try:
            with misuse.answered(self):
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
            place = error.filename or "input or output"
            _show(InvalidInputError(f"{place}: {error.strerror or type(error).__name__}"), ctx)
            raise typer.Exit(ExitCode.FAILED) from None


class CommandLine(typer.Typer):
    """A tool, or a group of its commands; a command's parameters may be groups of options.

    A tool that starts imports the modules that PARLEY_EXTENSIONS names, which may add commands to it, and endpoints to
    a learner.
    """

    def __init__(self, help: str, **options: Any) -> None:  # noqa: A002, ANN401 -- Typer's words and options
        options.setdefault("cls", CommandGroup)
        super().__init__(
            help=help, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, **options
        )

    def command(self, name: str | None = None, **options: Any) -> Callable[[Command], Command]:  # noqa: ANN401
        """Add a function as a command, as Typer does."""
        register = super().command(name, **options)

        def add(function: Command) -> Command:
            register(ungrouped(function))
            return function

        return add

    def __call__(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 -- Typer's
        """Import the extensions, then run the tool."""
        load_extensions()
        return super().__call__(*args, **options)


def ungrouped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose parameters are all options, for one that takes dataclasses of options as well."""
    hints = get_type_hints(function, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    if not groups:
        return function
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in groups:
            parameters += _options_of(groups[name])
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @wraps(function)
    def command(**options: Any) -> Any:  # noqa: ANN401 -- what was typed, and what the command returns
        made = {
            name: kind(**{option.name: options.pop(option.name) for option in fields(kind)})
            for name, kind in groups.items()
        }
        return function(**options, **made)

    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _options_of(group: Any) -> Iterator[inspect.Parameter]:  # noqa: ANN401 -- a dataclass
    """Yield the fields of a group of options as parameters."""
    hints = get_type_hints(group, include_extras=True)
    for option in fields(group):
        default = inspect.Parameter.empty if option.default is MISSING else option.default
        yield inspect.Parameter(
            option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[option.name]
        )


EXTENSIONS = "PARLEY_EXTENSIONS"
"""The environment's variable that names the modules to import when a tool starts, with commas between."""


def load_extensions() -> None:
    """Import the modules that the environment names; raises SystemExit, which names a module that does not exist."""
    for name in filter(None, os.environ.get(EXTENSIONS, "").replace(" ", "").split(",")):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            typer.echo(f"parley: {EXTENSIONS} names {name}, and there is no such module", err=True)
            raise SystemExit(ExitCode.FAILED) from None


class _LazyFinder(MetaPathFinder):
    """Finds modules as all others together do, and has them loaded when they are first used."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return a module's specification with a lazy loader, or None if no other finder has the module."""
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def deferred() -> Iterator[None]:
    """Load the modules that are imported within this block only when one of their attributes is first used.

    Import modules, never a name out of one, which would load it at once.
    """
    finder = _LazyFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class AnswerIsNoError(Exception):
    """A command's answer is no, for the reason that an ``error`` gives."""

    def __init__(self, error: ParleyError) -> None:
        super().__init__(error.detail)
        self.error = error


@contextmanager
def refusal_is_no() -> Iterator[None]:
    """Make every ParleyError of this block the command's answer no, instead of a failure of the command."""
    try:
        yield
    except ParleyError as error:
        raise AnswerIsNoError(error) from None


def _show(error: ParleyError, ctx: typer.Context) -> None:
    """Print an error on standard error, as text or as JSON."""
    if ctx.meta.get(_FORMAT) == "json":
        typer.echo(json.dumps({"error": error.detail, "type": error.kind}, ensure_ascii=False), err=True)
    else:
        typer.echo(f"{ctx.find_root().command.name}: {error.detail}", err=True)


@contextmanager
def without_rich() -> Iterator[None]:
    """Import a service's modules within this block without rich, whose 80 modules httpx and structlog would load."""
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # with which an import fails, as both of them expect
    try:
        yield
    finally:
        if sys.modules["rich"] is None:
            del sys.modules["rich"]


TableArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[TABLE]", help="a file, folder/*.parquet, file.sqlite::table, or a query", show_default=False
    ),
]


@dataclass(frozen=True, slots=True)
class TableArguments:
    """The table of a command, as an argument or an option."""

    argument: TableArgument = None
    option: Annotated[str | None, typer.Option("--data", help="the same table, as an option")] = None

    @property
    def named(self) -> str | None:
        """The table that is named, None if there is none; raises a BadParameter if it is named twice."""
        if self.argument is not None and self.option is not None:
            raise typer.BadParameter(_ONCE)
        return self.argument or self.option

    @property
    def required(self) -> str:
        """The table; raises BadParameter unless it is named once."""
        if (named := self.named) is None:
            raise typer.BadParameter(_ONCE)
        return named


@dataclass(frozen=True, slots=True)
class Printer:
    """How a command prints: in words for people, or as JSON for programs."""

    output: FormatOption = "text"

    @property
    def is_json(self) -> bool:
        """Whether the output is JSON, for a program to read."""
        return self.output == "json"

    def result(self, value: object, words: str | Iterable[str] | Callable[[], object]) -> None:
        """Print a result: ``value`` as JSON on a line, or ``words``: a text, lines, or a function that prints them."""
        if self.is_json:
            print_json_line(value)
        elif callable(words):
            words()
        else:
            for line in [words] if isinstance(words, str) else words:
                typer.echo(line)

    def done(self, words: str, /, **facts: object) -> None:
        """Print what the command has done: in words, or as an object."""
        self.result(facts, words)

    def next(self, command: str) -> None:
        """Print the command that helps next, for people."""
        self.aside(f"next: {command}")

    def aside(self, text: str) -> None:
        """Print a line for people, where it disturbs nothing that reads the result."""
        if not self.is_json:
            typer.echo(text, err=True)


def print_json_line(value: object) -> None:
    """Print a JSON value on a line; arrays of NumPy become lists."""
    typer.echo(json.dumps(value, ensure_ascii=False, default=lambda array: array.tolist()))


def read_parameters(texts: list[str] | None) -> dict[str, Any]:
    """Parse texts NAME=VALUE; a value is read as JSON if it can be, and otherwise as text."""
    parameters: dict[str, Any] = {}
    for name, value in map(split_pair, texts or ()):
        try:
            parameters[name] = read_json(value.encode())
        except NameTwiceError:
            raise InvalidInputError(f"{name}: a name is twice in an object of its JSON") from None
        except ValueError:
            parameters[name] = value
    return parameters


def read_budgets(texts: list[str] | None) -> dict[str, dict[str, float]]:
    """Parse texts PARTY=EPSILON,DELTA; raises InvalidInputError."""
    budgets = {}
    for party, value in map(split_pair, texts or ()):
        try:
            epsilon, delta = map(float, value.split(","))
        except ValueError:
            raise InvalidInputError(f"the budget of {party} must be EPSILON,DELTA, not {value!r}") from None
        budgets[party] = {"epsilon": epsilon, "delta": delta}
    return budgets


def read_class_weights(text: str | None) -> dict[str, float] | str | None:
    """Parse CLASS=WEIGHT,..., or the name of a rule; raises InvalidInputError.

    >>> read_class_weights("no=0.1,yes=1")
    {'no': 0.1, 'yes': 1.0}
    """
    if text is None or "=" not in text:
        return text
    weights: dict[str, float] = {}
    for name, value in map(split_pair, text.split(",")):
        if name in weights:
            raise InvalidInputError(f"class_weights: {name!r} is named twice")
        try:
            weights[name] = float(value)
        except ValueError:
            raise InvalidInputError(f"class_weights: the weight of {name!r} must be a number, not {value!r}") from None
    return weights


def read_cohort(text: str | None) -> dict[str, float] | None:
    """Parse LEAST[,MOST[,SECONDS[,HOURS]]]; an empty part is left at its default.

    >>> read_cohort("100,,10")
    {'least': 100, 'seconds': 10.0}
    """
    if text is None:
        return None
    try:
        kinds = {"least": int, "most": int, "seconds": float, "owner_hours": float}
        named = zip(kinds.items(), text.split(","), strict=False)
        rule = {name: kind(value) for (name, kind), value in named if value or name == "least"}
    except ValueError:
        rule = {}
    if not rule or text.count(",") >= len(kinds):
        raise InvalidInputError(f"a cohort must be LEAST[,MOST[,SECONDS[,HOURS]]], not {text!r}")
    return rule


def split_pair(text: str) -> tuple[str, str]:
    """Split NAME=VALUE into its two parts; raises InvalidInputError."""
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise InvalidInputError(f"{text!r} must be NAME=VALUE")
    return name, value
