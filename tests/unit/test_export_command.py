"""``parley-learner export`` and ``schema``: the guide runs as written, and what fails leaves no file."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from parley.common.data.columns import Category, Feature, Label, RealLabel
from parley.common.data.study import HuberLoss, Study
from parley.common.encoding.number_lines import document_lines
from parley.common.learning.model import Model
from parley.common.runs.model_document import document_schema, model_document
from parley.learner.cli.main import learner_app
from tests.support.cluster import Cluster
from tests.support.models import document_of
from tests.support.rounds import run_spec

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "how-to" / "take-the-model-away.md"
FEATURES = (
    Feature(name="age", lower=0, upper=100, fill=40),
    Feature(name="dose", lower=-1, upper=1),
    Category(name="ward", values=("north", "007"), other=True, fill="north"),
)
LABEL = Label(name="ill", values=("no", "yes"))
STUDY = Study(name="s", features=FEATURES, label=LABEL)
HUBER = Study(name="s", features=FEATURES, label=LABEL, loss=HuberLoss())
REAL = Study(name="s", features=FEATURES, label=RealLabel(name="rate", lower=0, upper=9))
TABLE = "id,age,dose,ward,note\na1,30,0.5,north,x\na2,,-0.25,007,y\na3,999,1,elsewhere,z\na4,70,-1,,z\n"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(study: Study, **more: object) -> None:
    Path("model.json").write_text(json.dumps(document_of(study, 2, **more)), encoding="utf-8")


def parley(*arguments: str, code: int = 0) -> tuple[str, str]:
    """Standard output and error of a command of the learner."""
    result = CliRunner().invoke(learner_app, arguments)
    assert result.exit_code == code, result.stderr
    return result.stdout, result.stderr


def export(to: str, *, code: int = 0) -> str:
    return parley("export", "model.json", "--to", to, "--output", f"model.{to}", code=code)[1 if code else 0]


WORDS = ("NA", "None", "null", "n/a", "NaN", "nan")


@pytest.mark.parametrize(
    "ward",
    [
        STUDY.features[2],
        *(
            Category.model_validate({"name": "ward", "values": values} | more)
            for values in (WORDS, ("north", "007", "elsewhere", "None"))
            for more in ({"other": True}, {"fill": values[0]}, {"other": True, "fill": "other"})
        ),
    ],
)
@pytest.mark.long
def test_the_guide_runs_as_written(ward: Category) -> None:
    save(STUDY.model_copy(update={"features": (*FEATURES[:2], ward)}))
    lines = [f"w{i},{age},0.5,{word},x" for i, word in enumerate(WORDS) for age in ("NA", "", 50)]
    known = [line for line in lines if ward.fill or line.split(",")[3] in ward.values]
    if "north" in ward.values:
        known += TABLE.splitlines()[1:] if ward.fill else TABLE.splitlines()[1:4]
    Path("patients.csv").write_text("\n".join([TABLE.splitlines()[0], *known]) + "\n", encoding="utf-8")
    names: dict[str, Any] = {}
    for language, block in re.findall(
        r"^```(sh|python)\n(.*?)^```$", GUIDE.read_text("utf-8").partition("\n## MLflow\n")[0], re.MULTILINE | re.DOTALL
    ):
        if language == "sh":
            parley(*shlex.split(block)[1:])
        else:
            exec(block, names)  # noqa: S102 -- the document's own example
    with Path("predicted.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    expected = [[float(row["P(no)"]), float(row["P(yes)"])] for row in rows]
    for labels, chances in (("labels", "probabilities"), ("predicted", "chances")):
        assert list(names[labels]) == [row["prediction"] for row in rows]
        assert np.abs(names[chances] - expected).max() < 1e-6


@pytest.mark.parametrize("study", [STUDY, HUBER, REAL])
def test_the_command_says_how_a_file_was_checked_or_is_loaded(study: Study) -> None:
    save(study)
    assert "checked by onnx, and by onnxruntime on made rows" in export("onnx")
    assert "skops.io.load(file, trusted=['numpy.dtype'])" in export("sklearn")


@pytest.mark.parametrize("to", ["onnx", "sklearn"])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "members", "weights": [[0.0] * 6] * 2}, "several models, one a party"),
        ({"kind": "statistics", "weights": [1.0]}, "predict for nobody"),
        ({"weights": [1.0]}, "not of the shape that its study has"),
        ({"format": "parley-model-1"}, "the model's format must be"),
    ],
)
def test_what_cannot_be_exported_leaves_no_file(to: str, change: dict[str, object], why: str) -> None:
    save(STUDY, **change)
    assert why in export(to, code=3)
    assert [path.name for path in Path().iterdir()] == ["model.json"]


def test_a_document_that_is_cut_short_and_a_folder_that_is_absent_are_told() -> None:
    save(STUDY)
    assert "cannot be written" in parley("export", "model.json", "--to", "onnx", "--output", "a/b", code=3)[1]
    Path("model.json").write_text(Path("model.json").read_text("utf-8")[:99], encoding="utf-8")
    assert "not JSON, or cut short" in export("onnx", code=3)


def test_without_onnxruntime_a_file_is_not_compared_and_without_the_extra_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    save(STUDY)
    assert export("onnx") == "model.onnx: checked by onnx; install onnxruntime to compare predictions too\n"
    monkeypatch.setitem(sys.modules, "onnx", None)
    for to, file in (("onnx", "an ONNX file"), ("sklearn", "a skops file")):
        told = export(to, code=3)
        assert told.startswith(f"parley-learner: {file} needs ")
        assert "pip install 'parley-learning[export]'" in told


def test_the_kept_schema_is_that_of_the_types() -> None:
    kept = ROOT / "docs" / "reference" / "model.schema.json"
    printed = parley("schema")[0]
    assert json.loads(printed) == document_schema()
    assert kept.read_text("utf-8") == printed, "parley-learner schema > docs/reference/model.schema.json"


def test_the_schema_is_printed_with_an_indent_of_two() -> None:
    assert parley("schema") == (json.dumps(document_schema(), indent=2) + "\n", "")


@pytest.mark.long
def test_an_export_says_what_was_written_and_how_it_is_used() -> None:
    save(STUDY)
    notes = {
        "onnx": "checked by onnx, and by onnxruntime on made rows",
        "sklearn": ("load it by skops.io.load(file, trusted=['numpy.dtype']): scikit-learn's own parts, no pickle"),
    }
    for to, note in notes.items():
        assert export(to) == f"model.{to}: {note}\n"
        out, err = parley("export", "model.json", "--to", to, "--output", f"model.{to}", "--format", "json")
        assert json.loads(out) == {"file": f"model.{to}", "form": to, "note": note}
        assert err == ""
        assert Path(f"model.{to}").stat().st_size > 1000
    save(Study(name="s", features=FEATURES[1:2], label=LABEL))
    assert "trusted=[])" in export("sklearn")


def test_documents_keep_to_the_schema(tmp_path: Path) -> None:
    import jsonschema  # noqa: PLC0415 -- it takes a second, which each process that collects tests would spend

    schema = document_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    checker = jsonschema.Draft202012Validator(schema)
    spec = run_spec(Cluster(tmp_path, n_parties=2))
    made = model_document(spec, [], Model(np.array([1.0, -2.0, 0.5, 0.25])), spec.names)
    made = json.loads("".join(document_lines(made)))
    checker.validate(made)
    for study in (STUDY, HUBER, REAL):
        save(study)
        checker.validate(json.loads(Path("model.json").read_text("utf-8")))
    for wrong in ({"kind": "tree"}, {"weights": "much"}, {"study": {"name": "x"}}, {"format": "parley-model-1"}):
        assert not checker.is_valid(made | wrong)
