"""The card of a document: complete, readable, and never taken for Markdown or HTML that a study brought along."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from parley.common.data.columns import Category, Feature, Label, RealLabel, SparseFeatures
from parley.common.data.study import Study
from parley.learner.cli.main import learner_app
from parley.learner.models.card import card_page, model_card
from tests.support.models import document_of

HOSTILE = (
    "<script>alert(1)</script> | [x](javascript:alert(1)) `code` *bold* _it_ <img src=x> &amp; \\ ![i](http://e) $x$"
)
STUDY = Study(
    name="readmissions",
    title="Readmission within 30 days",
    purpose="Plan home visits.",
    features=(
        Feature(name="age", lower=18, upper=100, unit="years", missing="value", fill=60, description="at admission"),
        Category(name="ward", values=("north", "south"), other=True),
    ),
    label=Label(name="readmitted", values=("no", "yes")),
)
PROMISE = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "view": "transcript",
    "calibration": "tight",
    "adjacency": "replace_one",
    "trust": 0,
    "assumptions": ["the numbers of examples of all parties are public"],
}


def card_of(study: Study, **changes: Any) -> str:  # noqa: ANN401 -- fields of a document
    return model_card(document_of(study) | {"guarantees": [PROMISE]} | changes, None)


def test_tells_what_a_reader_asks() -> None:
    card = card_of(STUDY, parameters={"n_rounds": 30}, chosen={"n_rounds": "noise is least"})
    for told in (
        "# Readmission within 30 days: model card",
        "Plan home visits.",
        "| Predicts | readmitted: no, yes |",
        "| age | 18 to 100 years | at admission; where it is missing: 60.0 |",
        "| ward | one of north, south, or other |  |",
        "| n_rounds | 30 | noise is least |",
        "at most a factor of 2.72",
        "- the numbers of examples of all parties are public",
        "Nobody has evaluated this model",
        "who stands in many records",
        "nobody has signed what it says",
    ):
        assert told in card, told


@pytest.mark.parametrize(
    ("promise", "told"),
    [
        ({"epsilon": None}, "No promise is made"),
        ({"epsilon": 50.0}, "promises next to nothing"),
        ({"calibration": "paper", "view": "model"}, "noise as the algorithm's paper sets it"),
        ({"adjacency": "whole_party", "assumptions": []}, "all the data of a party replaced"),
    ],
)
def test_promises_are_told_as_they_are(promise: dict[str, Any], told: str) -> None:
    assert told in card_of(STUDY, guarantees=[PROMISE | promise])


def test_a_model_that_may_be_no_better_than_the_commonest_class_is_reported() -> None:
    figure = {"estimate": 0.8, "low": 0.7, "high": 0.9, "sampling": None}
    found = {"deviation": 3.0, "accuracy": figure, "majority": figure | {"estimate": 0.75}, "run": None, "rows": 50}
    found |= {"contributors": ["a", "b"], "epsilon": 0.5, "delta": 1e-6}
    card = card_of(STUDY, evaluation=found)
    assert "| Accuracy | 0.8 | 0.7 to 0.9 |" in card
    assert "On 50 rows that 2 owners held out" in card
    assert "not surely better than always telling the commonest class" in card
    found["accuracy"] = figure | {"low": 0.76}
    assert "not surely better" not in card_of(STUDY, evaluation=found)


@pytest.mark.parametrize("place", ["title", "name", "purpose", "description", "value", "why"])
def test_any_name_of_a_study_stays_text(place: str) -> None:
    words = HOSTILE[:190]
    feature = Feature(name="age", lower=0, upper=1, description=words if place == "description" else "")
    values = (words, "b") if place == "value" else ("a", "b")
    told = {each: words for each in ("title", "name", "purpose") if each == place}
    study = Study(**({"name": "s"} | told), features=(feature, Category(name="c", values=values)), label=STUDY.label)
    card = card_of(study, parameters={"n_rounds": 3}, chosen={"n_rounds": words} if place == "why" else {})
    page = card_page(card)
    assert "<script>" not in page
    assert "<img" not in page
    assert "<a " not in page
    assert "<em>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    plain = MarkdownIt("commonmark").render(card)
    assert "<script>" not in plain, "a reader that takes HTML gets none either"


@pytest.mark.parametrize(
    "study",
    [
        Study(name="s", features=STUDY.features, label=RealLabel(name="cost", lower=0, upper=5, unit="euro")),
        Study(name="s", features=STUDY.features, label=Label(name="y", values=tuple("abcdefghijklmn"))),
        Study(name="s", features=(SparseFeatures(name="entries", columns=9, entries=3),), label=STUDY.label),
        Study(name="s", features=tuple(Feature(name=f"x{i}", lower=0, upper=1) for i in range(150)), label=STUDY.label),
    ],
    ids=["regression", "many classes", "sparse", "many columns"],
)
def test_every_kind_of_study_has_a_card(study: Study) -> None:
    page = card_page(card_of(study))
    assert page.count("<table>") == page.count("</table>") == page.count('<div class="wide">')
    assert "None" not in page


def test_a_simulated_model_without_guarantees_has_one_too() -> None:
    assert "No promise is made" in card_of(STUDY, guarantees=[])


def parley(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(learner_app, ["card", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_the_command_writes_either(tmp_path: Path) -> None:
    model, page = tmp_path / "model.json", tmp_path / "card.html"
    model.write_text(json.dumps(document_of(STUDY) | {"guarantees": [PROMISE]}))
    assert parley(str(model)).startswith("# Readmission within 30 days: model card\n")
    assert parley(str(model), "--to", "html", "--output", str(page)) == ""
    assert "<title>Readmission within 30 days: model card</title>" in page.read_text()
    model.write_text("{")
    assert "cut short" in parley(str(model), code=3)
    model.write_text('{"format": "parley-model-2", "certificate": 3}')
    assert "unknown kind of model" in parley(str(model), code=3)
