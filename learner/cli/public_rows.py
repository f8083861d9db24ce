"""``parley-learner bounds``: a study whose bounds are those of public auxiliary rows.

``parley-learner project``: a study whose columns are projected onto principal components of public rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parley.common.service.commands import CsvOption

# ruff: noqa: PLC0415 -- help comes without numpy


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
    from parley.common.files.file_tables import read_columns
    from parley.common.files.sources import said_csv
    from parley.common.files.studies import read_study

    terms = read_study(study)
    columns = read_columns(table, terms.text_values, said_csv(csv), wanted=terms.table_names)
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    typer.echo(with_bounds_of(terms, columns, share, digest).model_dump_json(indent=2))


# ruff: noqa: PLC0415 -- help comes without numpy


PROJECTIONS = (
    "Example: parley-learner project public-rows.csv --study wide.json --components 50 --output narrow.json   (then "
    "owners agree on narrow.json)"
)
"""How the command is used."""


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
    projection to private rows, for what is computed from those must be paid for. What part of the rows' variance the
    components hold, and what part of the rows lies beyond the radius, is said on standard error. No service is asked.
    """
    import hashlib

    from parley.common.data.auxiliary import with_projection_of
    from parley.common.files.file_tables import read_columns
    from parley.common.files.sources import said_csv
    from parley.common.files.studies import read_study

    terms = read_study(study)
    columns = read_columns(table, terms.text_values, said_csv(csv), wanted=terms.table_names)
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    made = with_projection_of(terms, columns, components, radius_quantile, digest)
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
        "The rows must be public: a projection of private rows would tell of them, and no guarantee counts it.",
        err=True,
    )
