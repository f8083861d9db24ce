"""``parley-party study check``: whether an owner's table fits a study, before anything is set up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
)
from parley.party.commands import quietly

with deferred():
    from parley.common.files import sources, studies, study_fit

study_fit_app = CommandLine(help="Check your data against a study.")


@study_fit_app.callback()
def study_commands() -> None:
    """Check your data against a study."""


@study_fit_app.command("check")
def party_study_check(
    study: Annotated[Path, typer.Argument(help="The study's JSON file, as the learner gave it.")],
    data: TableArguments,
    table: TableOption = None,
    csv: CsvOption = None,
    value: ValueOption = None,
    clip: Annotated[bool, typer.Option("--clip", help="Values beyond bounds would be clipped.")] = False,
    as_is: AsIsOption = False,
    minimum_rows: Annotated[int, typer.Option("--minimum-rows", min=1, help="Least number of rows to fit.")] = 1,
    *,
    out: Printer,
) -> None:
    """Say what of a table does not fit a study: names of columns and counts of rows, never a value.

    Exit status 0 if it fits, 1 if not, 3 if study or table cannot be read. Nothing is sent to anybody.
    """
    with quietly():
        agreed, signed = studies.read_study_file(study)
        out.aside(studies.describe_signer(signed))
        source = sources.parse_source(data.required, table or (), csv, value or ())
        fit = study_fit.fit_of_source(agreed, source, clip=clip, as_is=as_is, minimum_rows=minimum_rows)
    out.result(fit.to_json(), fit.lines())
    if not fit.fits:
        raise typer.Exit(ExitCode.NO)
