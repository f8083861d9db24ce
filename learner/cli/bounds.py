"""``parley-learner bounds``: a study whose bounds are those of public auxiliary rows."""
# ruff: noqa: PLC0415 -- help comes without numpy

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parley.common.service.commands import CsvOption

BOUNDS = (
    "Example: parley-learner bounds loans.json public-loans.csv --share 0.01 > tight.json   (then owners agree on "
    'tight.json, and clips what lies beyond: out_of_bounds = "clip")'
)
"""How the command is used."""


def bounds_command(
    study: Annotated[Path, typer.Argument(help="a study's JSON file")],
    table: Annotated[Path, typer.Argument(help="a CSV or Parquet file of public rows that are no owner's")],
    share: Annotated[float, typer.Option(help="what part of the rows may lie beyond each bound")] = 0.01,
    csv: CsvOption = None,
) -> None:
    """Print a study with tighter bounds: those of public rows. It names the rows by their file's SHA-256.

    Tight bounds make more of what differs between records, at the same noise. Never take them from private rows: what
    is computed from those must be paid for. No service is asked.
    """
    import hashlib

    from parley.common.data.auxiliary import with_bounds_of
    from parley.common.files.csv_format import said_csv
    from parley.common.files.file_tables import read_columns
    from parley.common.files.studies import read_study

    terms = read_study(study)
    columns = read_columns(table, terms.text_values, said_csv(csv), wanted=terms.table_names)
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    typer.echo(with_bounds_of(terms, columns, share, digest).model_dump_json(indent=2))
