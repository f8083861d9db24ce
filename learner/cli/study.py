"""``parley-learner study``: a study from a table, and whether a table fits a study."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from parley.common.encoding.texts import shortened, so_many
from parley.common.errors import ConflictError, InvalidInputError
from parley.common.service.commands import (
    AsIsOption,
    CommandLine,
    CsvOption,
    ExitCode,
    Printer,
    TableArguments,
    TableOption,
    ValueOption,
    deferred,
    read_class_weights,
)
from parley.learner.cli.options import ClassWeightsOption, ConfigOption
from parley.learner.models.model_files import written_whole

with deferred():
    from parley.common.encoding import key_words
    from parley.common.files import sources, studies, study_fit
    from parley.common.runs import certificate
    from parley.learner import settings
    from parley.learner.cli import drafting

if TYPE_CHECKING:
    from parley.common.data.study import Study
    from parley.common.files.sources import DataSource
    from parley.learner.cli.drafting import AuthorChoices, Prompt, PublicRowsFit, StudyDraft

DEFAULT_HOLD_OUT = 0.1

study_app = CommandLine(
    help="Make a study of a table, or check a table against one.",
    epilog="Example: parley-learner study init adult.csv --public --label income --positive '>50K'",
)


@dataclass(frozen=True, slots=True)
class AuthorOptions:
    """The choices of a study's author, as options."""

    name: Annotated[str | None, typer.Option("--name", help="what the study is called; the file's name if not")] = None
    title: Annotated[str, typer.Option("--title", help="the study in a few words")] = ""
    purpose: Annotated[str, typer.Option("--purpose", help="what it is for, as owners read before they approve")] = ""
    label: Annotated[str | None, typer.Option("--label", help="the column to be learnt")] = None
    positive: Annotated[str | None, typer.Option("--positive", help="which of two classes is the positive one")] = None
    bounds: Annotated[
        list[str] | None, typer.Option("--bounds", metavar="COLUMN=LOWER:UPPER", help="public bounds; repeat")
    ] = None
    values: Annotated[
        list[str] | None, typer.Option("--values", metavar="COLUMN=A,B", help="public values; repeat")
    ] = None
    unit: Annotated[list[str] | None, typer.Option("--unit", metavar="COLUMN=UNIT", help="a number's unit; repeat")] = (
        None
    )
    describe: Annotated[
        list[str] | None, typer.Option("--describe", metavar="COLUMN=TEXT", help="what it means; repeat")
    ] = None
    column: Annotated[
        list[str] | None, typer.Option("--column", help="take this column, even if it looks like an identifier; repeat")
    ] = None
    leave_out: Annotated[list[str] | None, typer.Option("--leave-out", help="leave this column out; repeat")] = None
    missing: Annotated[
        Literal["refuse", "drop", "value"],
        typer.Option(
            "--missing", help="rows that miss a value are refused, kept as empty ones, or have a value filled in"
        ),
    ] = "drop"
    fill: Annotated[
        list[str] | None,
        typer.Option(
            "--fill",
            metavar="COLUMN=VALUE",
            help="what stands in for a missing value; with --missing value the median of a public file, the middle of "
            "the bounds, or 'other', if not given; repeat",
        ),
    ] = None
    share: Annotated[
        list[str] | None,
        typer.Option(
            "--share",
            metavar="VALUE=PART",
            help="the share of a class in the population, if it is public knowledge; repeat for each",
        ),
    ] = None
    class_weights: ClassWeightsOption = None
    mean: Annotated[
        float | None, typer.Option("--mean", help="the mean of a label that is a number, if it is public knowledge")
    ] = None
    deviation: Annotated[float | None, typer.Option("--deviation", help="its standard deviation, in its units")] = None
    hold_out: Annotated[
        float,
        typer.Option(
            "--hold-out",
            metavar="SHARE",
            help="the share of each owner's rows, or persons, that no run trains on, so that models can be evaluated "
            "on them; 0 for none",
        ),
    ] = DEFAULT_HOLD_OUT
    person: Annotated[
        str | None,
        typer.Option(
            "--person",
            metavar="COLUMN",
            help="the column that says whose a row is: all rows of a person are then hidden together",
        ),
    ] = None
    most_rows: Annotated[
        int | None,
        typer.Option("--most-rows", min=1, help="so many rows of a person count at most; 1000 if not given"),
    ] = None
    person_missing: Annotated[
        Literal["refuse", "alone"] | None,
        typer.Option(
            "--person-missing",
            help="rows without an identifier are refused, or are a person each (alone); refuse if not given, and said "
            "or asked for where a public file has such rows",
        ),
    ] = None
    other: Annotated[
        bool | None,
        typer.Option(
            "--other/--no-other",
            help="categories take values that are not declared; default: those whose values are a public file's do, "
            "because owners may have more",
        ),
    ] = None
    public: Annotated[bool, typer.Option("--public", help="the file is public: its values and ranges may be used")] = (
        False
    )

    def choices(self, names: Sequence[str], name: str) -> AuthorChoices:
        """Return the choices by column; ``names`` are the table's columns, ``name`` the study's unless one was chosen.

        Raises InvalidInputError for an option that cannot be read.
        """
        if not 0 <= self.hold_out < 1:
            raise InvalidInputError(f"--hold-out {self.hold_out:g}: say a share below 1, such as 0.1, or 0 for none")
        bounds, values = _pairs("--bounds", self.bounds, names), _pairs("--values", self.values, names)
        return drafting.AuthorChoices(
            name=self.name or name,
            label=self.label,
            bounds={key: drafting.split_bounds(key, text) for key, text in bounds},
            values={key: tuple(drafting.split_values(text)) for key, text in values},
            positive=self.positive,
            columns=frozenset(self.column or ()),
            left_out=frozenset(self.leave_out or ()),
            units=dict(_pairs("--unit", self.unit, names)),
            descriptions=dict(_pairs("--describe", self.describe, names)),
            title=self.title,
            purpose=self.purpose,
            missing=self.missing,
            fills=dict(_pairs("--fill", self.fill, names)),
            other=self.other,
            public=self.public,
            shares={key: _parse_share(key, text) for key, text in _pairs("--share", self.share, ())},
            class_weights=read_class_weights(self.class_weights),
            mean=self.mean,
            deviation=self.deviation,
            hold_out=self.hold_out or None,
            person=self.person,
            most_rows=self.most_rows,
            person_missing=self.person_missing,
        )

    def draft(self, source: DataSource, out: Printer, ask: Prompt | None) -> Drafted:
        """Draft a study of a table; what is missing is asked for, or without ``ask`` named in an InvalidInputError."""
        columns = study_fit.survey_table(source, public=self.public, person=self.person, show_note=out.aside)
        choices = self.choices([column.name for column in columns], drafting.study_name(source))
        draft = drafting.draft_study(columns, choices, ask)
        return Drafted(draft, drafting.fit_public_rows(draft.study, source, columns) if self.public else None)


@dataclass(frozen=True, slots=True)
class Drafted:
    """A study that was drafted, and how a public table fits it."""

    draft: StudyDraft
    rows: PublicRowsFit | None

    @property
    def study(self) -> Study:
        """The study."""
        return self.draft.study

    @property
    def summary(self) -> str:
        """The study in a line."""
        study = self.study
        return f"{study.name}, {study.kind}, {len(study.features)} columns to learn {study.label.name!r} from"

    @property
    def facts(self) -> dict[str, object]:
        """What was drafted, for programs."""
        facts = {"left_out": dict(self.draft.left_out), "doubtful": dict(self.draft.doubtful)}
        return {"name": self.study.name, **facts, **(self.rows.to_json() if self.rows else {})}

    @property
    def owners_options(self) -> str:
        """What owners of tables like a public one add to their commands, for a shell, each after a blank."""
        return self.rows.owners_options if self.rows else ""

    @property
    def clip_option(self) -> str:
        """The one of these options that an owner may give for tables of other studies too."""
        return self.rows.clip_option if self.rows else ""

    def print_notes(self, out: Printer) -> None:
        """Print what the author should look at, for people."""
        for name, reason in self.draft.left_out.items():
            out.aside(f"  left out {shortened(name)!r}: {reason}")
        if self.draft.left_out:
            out.aside("  take one all the same by --column NAME; --leave-out NAME leaves another out")
        for name in self.draft.whose:
            out.aside(
                f"  warning: {shortened(name)!r} may say whose a row is, and each row is hidden alone: if persons have "
                "several rows, say --person with it"
            )
        for name, reason in self.draft.doubtful.items():
            out.aside(f"  warning: {shortened(name)!r} {reason}")
        if self.study.kind == "binary":
            positive = self.study.label.model_dump()["values"][1]
            out.aside(f"  {positive!r} is the positive class: --positive takes the other")
        for line in self.rows.lines() if self.rows else ():
            out.aside(f"  {line}")
        if self.rows and (open_ones := drafting.open_categories(self.study)):
            out.aside(
                f"  {open_ones}: a value that the study does not name counts as 'other', as does 'other' itself; if "
                "owners have no more values than this file, say --no-other"
            )
        if self.study.person is not None:
            most = so_many(self.study.most_rows, "row")
            out.aside(f"  all rows of a person are hidden together, by {self.study.person.column!r}; {most} at most")
            if self.rows is not None:
                out.aside("  what this file says of the label counts each person once, as owners' descriptions do")
        out.aside(f"  {_held_out(self.study)}")
        out.aside("  read every bound, value and description: owners approve them as they stand")


@study_app.command(
    "init",
    epilog="Examples:\n\n"
    "parley-learner study init adult.csv --public --label income --positive '>50K'\n\n"
    "parley-learner study init patients.csv --label ill --values ill=no,yes --bounds age=0:120 --unit age=years "
    "--values sex=Female,Male",
)
def study_init_command(
    data: TableArguments,
    *,
    table: TableOption = None,
    csv: CsvOption = None,
    target: Annotated[
        Path, typer.Option("--out", show_default=False, help="file to write; study.json if not given")
    ] = Path("study.json"),
    words: AuthorOptions,
    ask: Annotated[
        bool | None, typer.Option("--ask/--no-ask", help="ask for what is missing; default: at a terminal")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="write over a file that is there")] = False,
    out: Printer,
) -> None:
    """Write a study of a table: its columns with bounds or values, and a description each. No service is asked.

    Unless the file is --public, only names and kinds of its columns are read: you give the bounds and values, and what
    is public knowledge about the label, which scales runs and makes forecasts closer. Columns that look like
    identifiers are left out unless you name them.
    """
    where = data.required
    if target.exists() and not force:
        raise ConflictError(f"{target} is there already: say --force to write over it, or --out")
    source = sources.parse_source(where, table or (), csv)
    is_asked = sys.stdin.isatty() if ask is None else ask
    drafted = words.draft(source, out, prompt if is_asked else None)
    rows = drafted.rows
    write_study(target, drafted.study)
    out.done(f"{target}: {drafted.summary}", file=str(target), **drafted.facts)
    drafted.print_notes(out)
    out.next(f"parley-learner study check {quote(str(target))} --data TABLE{drafted.owners_options}")
    if rows and rows.fit.fits:
        tables = "".join(f" --table {quote(text)}" for text in table or ())
        tables += f" --csv {quote(csv)}" if csv else ""
        tried = f"parley-learner simulate --data {quote(where)}{tables} --study {quote(str(target))}"
        out.aside(f"or try it at once, on this file: {tried}")


@study_app.command("sign", epilog="Example: parley-learner study sign study.json --config learner.toml")
def study_sign_command(
    study: Annotated[Path, typer.Argument(help="a study's JSON file")],
    config: ConfigOption = None,
    file: Annotated[Path | None, typer.Option("--out", help="file to write; STUDY.signed.json if not given")] = None,
    *,
    out: Printer,
) -> None:
    """Sign a study with the learner's key, for owners who are to read it before they are invited.

    Invitations carry their studies signed. A party takes a signed study only as it was signed, and only of its learner.
    """
    learner = settings.LearnerSettings.load(config)
    signed = certificate.SignedStudy.sign(studies.read_study(study), learner.name, learner.signing_key())
    target = file or study.with_suffix(".signed.json")
    _write_whole(target, signed.model_dump_json(indent=2))
    words = " ".join(key_words.words_of(signed.public_key))
    out.done(str(target), file=str(target), words=words)
    out.aside(f"owners compare the words of {signed.learner}'s key: {words}")
    out.next(f"parley-party study check {quote(str(target))} --data TABLE")


@study_app.command("check", epilog="Example: parley-learner study check study.json --data rows.csv")
def study_check_command(
    study: Annotated[Path, typer.Argument(help="a study's JSON file")],
    data: TableArguments,
    table: TableOption = None,
    csv: CsvOption = None,
    value: ValueOption = None,
    clip: Annotated[bool, typer.Option("--clip", help="values beyond bounds would be clipped")] = False,
    as_is: AsIsOption = False,
    *,
    out: Printer,
) -> None:
    """Print what does not fit a study in a table: names of columns and counts of rows, never a value.

    Exit status 0 if it fits, 1 if not, 3 if study or table cannot be read.
    """
    agreed, signed = studies.read_study_file(study)
    out.aside(studies.describe_signer(signed))
    fit = study_fit.fit_of_source(
        agreed, sources.parse_source(data.required, table or (), csv, value or ()), clip=clip, as_is=as_is
    )
    out.result(fit.to_json(), fit.lines())
    if not fit.fits:
        raise typer.Exit(ExitCode.NO)


def write_study(target: Path, study: Study) -> None:
    """Write a study's file, whole or not at all; raises InvalidInputError if it cannot be written."""
    _write_whole(target, study.model_dump_json(indent=2, exclude_none=True))


def _write_whole(target: Path, text: str) -> None:
    """Write a file, whole or not at all; raises InvalidInputError if it cannot be written."""
    with written_whole(target) as file:
        file.write_text(f"{text}\n", encoding="utf-8")


def _pairs(option: str, texts: list[str] | None, names: Iterable[str]) -> list[tuple[str, str]]:
    """Split texts COLUMN=... into pairs; a column's name may hold an equals sign. Raises InvalidInputError."""
    pairs = []
    for text in texts or ():
        fitting = [name for name in names if text.startswith(f"{name}=")]
        key = max(fitting, key=len, default=text.partition("=")[0])
        if "=" not in text:
            raise InvalidInputError(f"{option}: {key!r} must be COLUMN=...")
        pairs.append((key, text[len(key) + 1 :]))
    return pairs


def _parse_share(value: str, text: str) -> float:
    """Parse a share of the population; raises InvalidInputError."""
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(f"--share {value}: it must be a number between 0 and 1") from None


def prompt(question: str, proposed: str) -> str:
    """Ask at the terminal; Enter takes what is proposed."""
    answer: str = typer.prompt(question, default=proposed or None, err=True)
    return answer


def _held_out(study: Study) -> str:
    """Say which rows are kept for evaluation."""
    if study.hold_out is None:
        return "no row is held out: nobody can evaluate a model on rows that it was not trained on"
    units = "rows" if study.person is None else "persons"
    return (
        f"{study.hold_out:.3g} of each owner's {units} are held out: no run trains on them, so that models can be "
        "evaluated on them (--hold-out 0: none); once owners have joined, this cannot change"
    )
