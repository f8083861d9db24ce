"""Extensions as CONTRIBUTING.md describes them, followed to the letter in a copy of the packages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.learning.evaluation import NoisyCounts
from parley.common.learning.noise_law import SummedLaplace
from parley.common.runs.evaluation import RunEvaluation, statistics_of
from parley.common.runs.model_document import read_document
from tests.support.checkout import ROOT, Checkout
from tests.support.models import document_of

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
STUDY = Study(
    name="made-up", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("no", "yes"))
)
SHOW = """
import json, sys
from parley.common.runs.evaluation import RunEvaluation
from parley.common.runs.model_document import read_document
from parley.learner.api.page import statistics_script
from parley.learner.cli.display import evaluation_lines
from parley.learner.models.card import model_card
new, old = json.load(open("new.json")), json.load(open("old.json"))
print(json.dumps({
    "terminal": list(evaluation_lines(new["evaluation"])),
    "card": model_card(new, None),
    "page": statistics_script().decode(),
    "old": list(evaluation_lines(old["evaluation"])),
    "digest": read_document(old).digests["evaluation"],
}))
"""


def block(first_line: str) -> str:
    """The Python block that begins with a comment, after it."""
    (source,) = re.findall(rf"^```python\n# {re.escape(first_line)}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return str(source)


def document() -> dict[str, object]:
    """A model's document with an evaluation of this version's."""
    values = np.array([6.0, 2.0, 3.0, 9.0])
    counts = statistics_of(NoisyCounts(values, SummedLaplace.of([1e-6]), ("no", "yes"), np.zeros(1)))
    run = {"rows": 20, "contributors": ("a", "b"), "epsilon": 0.5, "delta": 1e-6}
    evaluation = RunEvaluation(**dict(counts), **run)
    return document_of(STUDY) | {"evaluation": evaluation.model_dump(mode="json")}


@pytest.mark.long
def test_a_statistic_is_three_files(tmp_path: Path) -> None:
    checkout, old = Checkout.copied(tmp_path), document()
    place = "common/learning/statistics.py"
    (entry,) = re.findall(r"`(jaccard=Statistic\(.*?\),)`", TEXT)
    checkout.insert(place, block(f"in {place}") + "\n\n", "STATISTICS: Registry[Statistic] =")
    checkout.insert(place, f"    {entry}\n", ")\n\n\ndef _is_figure(")
    checkout.write("tests/unit/test_jaccard.py", block("tests/unit/test_jaccard.py"))
    assert "1 passed" in checkout.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/test_jaccard.py")
    checkout.write("docs/reference/model.schema.json", checkout.command("schema"))
    changed = checkout.changed()
    print(f"a new statistic of an evaluation changes {len(changed)} files: {', '.join(changed)}")
    assert len(changed) == 3
    schema = json.loads((tmp_path / "docs/reference/model.schema.json").read_text(encoding="utf-8"))
    assert "jaccard" in schema["$defs"]["RunEvaluation"]["properties"]

    figure = {"estimate": 9 / 11, "low": 0.75, "high": 0.9, "sampling": None}
    new = old | {"evaluation": old["evaluation"] | {"jaccard": {"yes": figure}}}  # type: ignore[operator]
    checkout.write("old.json", json.dumps(old))
    checkout.write("new.json", json.dumps(new))
    shown = json.loads(checkout.python("-c", SHOW))
    assert "  Jaccard index of yes 0.8182, between 0.75 and 0.9 at 95%" in shown["terminal"]
    assert "| Jaccard index of yes | 0.818 | 0.75 to 0.9 |" in shown["card"]
    assert '"name": "jaccard", "title": "Jaccard index of {}", "shown": "percent"' in shown["page"]
    assert not any("Jaccard" in line for line in shown["old"])
    assert shown["digest"] == read_document(old).digests["evaluation"], "certificates of older documents hold"


@pytest.mark.long
def test_an_algorithm_is_two_files(tmp_path: Path) -> None:
    checkout, place = Checkout.copied(tmp_path), "common/algorithms/class_means.py"
    (entry,) = re.findall(r'`(class_means=".*?",)`', TEXT)
    checkout.write(place, block(place))
    checkout.insert("common/algorithms/__init__.py", f"    {entry}\n", ')\n\n\nAUTO = "auto"')
    changed = checkout.changed()
    print(f"a new algorithm changes {len(changed)} files: {', '.join(changed)}; beside them its row in the reference")
    assert len(changed) == 2
    terms = ("--data", "wdbc", "--algorithm", "class_means", "--repeat", "2", "--format", "json")
    result = json.loads(checkout.command("simulate", *terms))
    assert result["accuracy"]["mean"] > 0.8
