"""``parley-learner bounds``: a study whose bounds are those of public auxiliary rows.

``parley-learner project``: a study whose columns are projected onto principal components of public rows.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.service.commands import CsvOption, deferred

with deferred():
    from parley.common.data import auxiliary
    from parley.common.files import sources, studies, tables

if TYPE_CHECKING:
    from parley.common.data.columns import Columns
    from parley.common.data.study import Study

BOUNDS = (
    "Example: parley-learner bounds loans.json public-loans.csv --share 0.01 > tight.json   (owners agree on "
    'tight.json, whose out_of_bounds = "clip" clips what lies beyond)'
)
"""The command's example, for its help."""


def bounds_command(
    study: Annotated[Path, typer.Argument(help="a study's JSON file")],
    table: Annotated[Path, typer.Argument(help="a CSV or Parquet file of public rows that are no owner's")],
    share: Annotated[float, typer.Option(help="what part of the rows may lie beyond each bound")] = 0.01,
    csv: CsvOption = None,
) -> None:
    """Print a study with tighter bounds: those of public rows. It names the rows by their file's SHA-256.

    With tight bounds, differences between records are larger beside the same noise. Never take bounds from private
    rows: everything computed from those must be paid for. No service is asked.
    """
    terms, columns, digest = _read(study, table, csv)
    typer.echo(auxiliary.with_bounds_of(terms, columns, share, digest).model_dump_json(indent=2))


PROJECTIONS = (
    "Example: parley-learner project public-rows.csv --study wide.json --components 50 --output narrow.json   (then "
    "owners agree on narrow.json)"
)
"""The command's example, for its help."""


def project_command(
    table: Annotated[Path, typer.Argument(help="a CSV or Parquet file of public rows that are no owner's")],
    study: Annotated[Path, typer.Option(help="a study's JSON file")],
    components: Annotated[int, typer.Option(min=1, help="how many principal components to keep")] = 50,
    radius_quantile: Annotated[
        float, typer.Option(help="what part of the public rows lies within the radius; longer rows are scaled onto it")
    ] = 1.0,
    csv: CsvOption = None,
    output: Annotated[Path | None, typer.Option(help="file to write; standard output if not given")] = None,
) -> None:
    """Make a study with a projection: on principal components of public rows, which it names by their file's SHA-256.

    With fewer columns there is less noise in an answer of the same cost. The rows must be public: never fit a
    projection to private rows, because everything computed from those must be paid for. The command prints on standard
    error the share of the rows' variance that the components hold, and the share of the rows beyond the radius. No
    service is asked.
    """
    terms, columns, digest = _read(study, table, csv)
    made = auxiliary.with_projection_of(terms, columns, components, radius_quantile, digest)
    text = made.study.model_dump_json(indent=2)
    if output is None:
        typer.echo(text)
    else:
        output.write_text(text + "\n", encoding="utf-8")
    projection = made.study.projection
    assert projection is not None  # noqa: S101 -- it was just made
    typer.echo(
        f"{components} of {projection.n_inputs} dimensions hold {made.explained:.1%} of the variance of "
        f"{made.n_rows:,} public rows; {made.beyond:.1%} of them lie beyond the radius {projection.radius:.4g}. "
        "The rows must be public: a projection of private rows would reveal them in part, and no guarantee counts it.",
        err=True,
    )


def _read(study: Path, table: Path, csv: str | None) -> tuple[Study, Columns, str]:
    """Return a study, the columns of a public table that it names, and the SHA-256 of the table's file."""
    terms = studies.read_study(study)
    columns = tables.read_columns(table, terms.text_values, sources.parse_csv_format(csv), wanted=terms.table_names)
    return terms, columns, hashlib.sha256(table.read_bytes()).hexdigest()
