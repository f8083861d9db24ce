"""``parley-learner export`` and ``schema``: a model for other tools, and the form of its document; nobody is asked."""
# ruff: noqa: PLC0415 -- help comes without numpy

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from parley.common.service.commands import FormatOption, print_result
from parley.learner.models.model_files import read_model_file, written_whole

EXPORTS = "Example: parley-learner export model.json --to onnx --output m.onnx; pip install 'parley-learning[export]'"
SCHEMAS = "Example: parley-learner schema > model.schema.json"


class ExportForm(StrEnum):
    """What a model can be exported to."""

    ONNX = "onnx"
    SKLEARN = "sklearn"


def export_command(
    model: Annotated[Path, typer.Argument(help="a model's document, as the command model saves it")],
    to: Annotated[ExportForm, typer.Option(help="an ONNX graph, or a scikit-learn pipeline in a skops file")],
    save: Annotated[Path, typer.Option("--output", help="file to write")],
    output: FormatOption = "text",
) -> None:
    """Write a model as a file that other tools predict with from raw columns, without Parley.

    What the study makes of a record is in the file: values that stand in for missing ones, bounds, scales, categories,
    random features, division. Texts must be spelt as the study spells them.
    """
    from parley.common.runs.predictions import Predictor
    from parley.learner.models.exported import check_portable, onnx_bytes, skops_bytes

    predictor = Predictor.of(read_model_file(model))
    check_portable(predictor)
    content, said = (onnx_bytes if to is ExportForm.ONNX else skops_bytes)(predictor)
    with written_whole(save) as file:
        file.write_bytes(content)
    print_result(output, f"{save}: {said}", file=str(save), form=to, note=said)


def schema_command() -> None:
    """Print the JSON Schema (draft 2020-12) of a model's document."""
    from parley.common.runs.model_document import document_schema

    typer.echo(json.dumps(document_schema(), indent=2))
