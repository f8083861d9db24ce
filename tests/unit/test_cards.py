"""The card of a document: complete, readable, and never taken for Markdown or HTML that a study brought along."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from parley.common.data.columns import Category, Feature, Label, RealLabel, SparseFeatures
from parley.common.data.study import Person, RowWeights, Study
from parley.common.runs.certificate import Certificate, signed_certificate
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.learner.cli.main import learner_app
from parley.learner.models.card import CARD_SOURCES, _short, _template, card_page, model_card
from parley.learner.models.verification import PublicKeys, Verification, verify_document
from tests.support.models import document_of
from tests.support.secure_cluster import signing_key

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
PERSON = Person(column="patient_nbr", most_rows=40)
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
    for low, majority, is_told in ((0.75, 0.75, True), (0.76, 0.75, False), (None, 0.75, True), (0.1, None, False)):
        found |= {"accuracy": figure | {"low": low}, "majority": figure | {"estimate": majority}}
        assert ("not surely better" in card_of(STUDY, evaluation=found)) == is_told
    for name in ("accuracy", "majority"):
        assert "not surely better" not in card_of(STUDY, evaluation=found | {name: None})
    assert "not surely better" not in card_of(STUDY, evaluation=found, kind="statistics")


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


@pytest.mark.parametrize(("algorithm", "counted"), [("dp_gd", "count up to one clip norm"), ("release", "counts 1/r")])
def test_a_card_says_that_its_model_is_of_persons(algorithm: str, counted: str) -> None:
    person = PERSON
    study = STUDY.model_copy(
        update={"person": person, "hold_out": 0.25, "label": Label(name="y", values=("no", "yes"))}
    )
    alone = PROMISE | {"adjacency": "person"}
    promises = [alone | {"owners": 2}, alone]
    figure = {"estimate": 0.8, "low": None, "high": 0.9}
    found = {"deviation": 3.0, "accuracy": figure, "majority": figure, "rows": 50, "contributors": ["owner-1"]}
    certificate = certified(study, overlap=2).model_dump(mode="json")
    terms = {"algorithm": algorithm, "adjacency": "person", "guarantees": promises, "certificate": certificate}
    for evaluation in (None, found | {"epsilon": 0.5, "delta": 1e-6}):
        card = card_of(study, evaluation=evaluation, **terms)
        assert "| Population | persons: all rows with one patient_nbr, 40 at most;" in card
        assert counted in card
        assert "4,500 persons for training" in card
        assert "Beside them, 1,500 are held out, 25% of each owner's persons." in card
        assert "| Owner | Persons |" in card
        assert "all rows of one person, with up to 2 owners, replaced, against" in card
        assert "all rows of one person, with one owner, replaced, against" in card
        assert "a run with all rows of one person, with up to 2 owners, replaced by at most" in card
        assert "The same person may be with up to 2 of the owners" in card
        assert "A person is hidden as far as one column says whose a row is" in card
        assert "A record is hidden" not in card
        assert ("On 50 persons that 1 owners" in card) == (evaluation is not None)
        assert not re.search(r"\d rows|[Hh]eld-out rows|on rows that|on the rows of|owner's rows", card)


@pytest.mark.parametrize(("person", "counted"), [(None, "rows count by their"), (PERSON, "persons count by the")])
def test_a_card_says_that_rows_are_weighed(person: Person | None, counted: str) -> None:
    study = STUDY.model_copy(update={"row_weights": RowWeights(column="weight"), "person": person, "hold_out": 0.25})
    figure = {"estimate": 0.8, "low": None, "high": 0.9}
    found = {"deviation": 3.0, "accuracy": figure, "rows": 50, "contributors": ["a"], "epsilon": 0.5, "delta": 1e-6}
    text = card_of(study, evaluation=found)
    assert text.lower().count(counted) == 2, "of the population, and of the evaluation"
    assert text.count("in the column weight: a count is a sum of weights, at most 1 of each") == 2


def test_a_simulated_model_without_guarantees_has_one_too() -> None:
    assert "- Nobody has measured how good it is on rows that it was not trained on.\n" in card_of(STUDY, guarantees=[])
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


# ── to the letter ────────────────────────────────────────────────────────────

WARDS = tuple("abcdefghijkl")
FULL = Study(
    name="stays",
    features=(
        Feature(name="age", lower=0, upper=1e6, unit="days"),
        Category(name="ward", values=WARDS, fill="b", missing="value", description="of admission"),
    ),
    label=Label(name="ill", values=("no", "yes")),
    hold_out=0.25,
)


def certified(study: Study, n_owners: int = 3, **terms: Any) -> Certificate:  # noqa: ANN401 -- terms of a run
    """A certificate of a run that no owner approved; the last of the owners has the most rows."""
    budget = Budget(epsilon=1.23456, delta=1.2345e-5)
    owners = tuple(Member(name=f"owner-{i}", n_examples=1000 * (i + 1), budget=budget) for i in range(n_owners))
    terms = {"algorithm": "dp_gd", "parameters": {}, "minimum_contributors": 2} | terms
    specification = RunSpec(study=study, parties=owners, **terms).model_dump(mode="json")
    signed: dict[str, Any] = {"specification": specification, "approvals": {}, "sums": None, "digests": {}}
    return signed_certificate(signing_key("learner"), run="5f" * 16, **signed)


def test_the_card_of_a_certified_model_is_complete() -> None:
    figure = {"estimate": 0.81234, "low": None, "high": 0.91234, "sampling": None}
    certificate = certified(FULL, secure_sum="paillier")
    found = {"deviation": 3.0, "accuracy": figure, "majority": figure | {"estimate": None, "low": 0.5}, "run": None}
    found |= {"rows": 50, "contributors": ["owner-1", "owner-2"], "epsilon": 0.54321, "delta": 1.2345e-6}
    stated = [
        PROMISE | {"epsilon": 0.98765, "delta": 1.2345e-5, "trust": 2},
        PROMISE | {"view": "model", "calibration": "paper", "adjacency": "whole_party", "assumptions": []},
        PROMISE | {"epsilon": None, "delta": 0.0, "assumptions": ["a", "b"]},
    ]
    document = document_of(FULL) | {
        "guarantees": stated,
        "evaluation": found,
        "certificate": certificate.model_dump(mode="json"),
        "contributors": ["owner-1", "owner-2"],
        "rounds": 7,
        "parameters": {"step": 0.123456789, "loss": "x" * 301, "n_rounds": 7},
        "chosen": {"algorithm": "it does best", "step": "by its theorem"},
    }
    keys = PublicKeys(learner="ab" * 32, parties={"owner-0": "cd" * 32}, key_holders={"notary": "ef" * 32})
    verified = Verification(("a weight was altered",), ("the learner signed", "all agree"), keys, assumed=True)
    card = model_card(document, verified).replace(certificate.issued, "TIME").replace(FULL.digest[:16], "DIGEST")
    lines = card.split("\n")
    assert lines == [
        "# stays: model card",
        "",
        "| | |",
        "|---|---|",
        "| Predicts | ill: no, yes |",
        "| Model | a linear model, 14 columns |",
        "| Population | rows: who has several counts several times |",
        "| Study | stays, digest DIGEST… |",
        "| Trained by | dp_gd, 7 rounds, on the rows of 2 owners |",
        "| Run | 5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f, certified TIME |",
        "",
        "## Data",
        "",
        (
            "4,500 rows for training, of 3 owners, who keep them. Beside them, 1,500 are held out, "
            "25% of each owner's rows."
        ),
        "",
        "| Owner | Rows | ε it allowed | δ it allowed | In the last round |",
        "|---|--:|--:|--:|---|",
        "| owner-2 | 3,000 | 1.235 | 1.23e-05 | yes |",
        "| owner-1 | 2,000 | 1.235 | 1.23e-05 | yes |",
        "| owner-0 | 1,000 | 1.235 | 1.23e-05 | no |",
        "",
        "| Column | Holds | About it |",
        "|---|---|---|",
        "| age | 0 to 1e+06 days |  |",
        "| ward | one of a, b, c, d, e, f, g, h, i, j and 2 more | of admission; where it is missing: b |",
        "| ill | one of no, yes | what is predicted |",
        "",
        "## Training",
        "",
        "| Parameter | Value | Chosen |",
        "|---|---|---|",
        "| algorithm | dp_gd | it does best |",
        "| step | 0.123457 | by its theorem |",
        f"| loss | {'x' * 300}… | by the user, or by default |",
        "| n_rounds | 7 | by the user, or by default |",
        "",
        "The owners' answers came as sums, which key holders opened: the learner saw no single one.",
        "",
        "## Privacy",
        "",
        (
            "In words: for anyone who sees all of the run, the odds of any conclusion differ from those after a "
            "run with one record replaced by at most a factor of 2.69 (e to the 0.988), except with probability "
            "1.3e-05. A promise whose noise is set as in a paper is that paper's own claim."
        ),
        "",
        (
            "ε = 0.988, δ = 1.3e-05: one record replaced, against anyone who sees all that the learner sees, "
            "with the help of 2 of the owners; noise the least that a proof allows. It holds if"
        ),
        "",
        "- the numbers of examples of all parties are public",
        "",
        (
            "ε = 1, δ = 1e-05: all the data of a party replaced, against anyone who sees the model; noise as the "
            "algorithm's paper sets it. It holds if"
        ),
        "",
        "- nothing else: it needs no assumption.",
        "",
        (
            "none: one record replaced, against anyone who sees all that the learner sees; noise the least that "
            "a proof allows. It holds if"
        ),
        "",
        "- a",
        "- b",
        "",
        "## Evaluation",
        "",
        (
            "On 50 rows that 2 owners held out and training did not see, with noise of their own: ε = 0.543, δ = "
            "1.2e-06. An interval holds the true figure of these rows in 95 % of cases."
        ),
        "",
        "| Figure | Estimate | Between |",
        "|---|--:|---|",
        "| Accuracy | 0.812 | −∞ to 0.912 |",
        "| Commonest class alone | not known | 0.5 to 0.912 |",
        "",
        "## Limits",
        "",
        "- A record is hidden, not a person: who stands in many records, or with many owners, is hidden less.",
        "- Nobody has examined how good it is for groups of people; noise affects groups with few rows most.",
        "- Numbers beyond a column's bounds count as the bound, in training and in predictions.",
        (
            "- It shows which values occur together in these owners' rows, not what causes them; for other rows "
            "it may be wrong."
        ),
        "- On held-out rows it is not surely better than always telling the commonest class.",
        "",
        "## Certificate",
        "",
        (
            "Checked when this card was made, with the keys that the document names; `parley-learner verify` "
            "checks it again."
        ),
        "",
        "- the learner signed",
        "- all agree",
        "- **Altered:** a weight was altered",
        "",
        "| Key of | Public key |",
        "|---|---|",
        "| the learner | abababababababababababababababababababababababababababababababab |",
        "| owner-0 | cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd |",
        "| notary | efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef |",
        "",
    ]
    known = Verification((), (), keys, assumed=False)
    assert "Checked when this card was made, with known keys; `parley-learner" in model_card(document, known)


def test_a_card_of_little_says_so() -> None:
    label = RealLabel(name="cost", lower=0, upper=5e6, unit="euro")
    study = Study(
        name="costs", features=(SparseFeatures(name="entries", columns=1009, entries=3, bound=0.5),), label=label
    )
    more = {"kind": "statistics", "adjacency": "whole_party", "contributors": [f"p{i}" for i in range(11)], "rounds": 1}
    lines = card_of(study, **more).replace(study.digest[:16], "DIGEST").split("\n")
    assert lines == [
        "# costs: model card",
        "",
        "| | |",
        "|---|---|",
        "| Predicts | nothing: the run counted and summed |",
        "| Model | no model, but noisy counts and sums, 1,010 columns |",
        "| Population | rows: who has several counts several times |",
        "| Study | costs, digest DIGEST… |",
        "| Trained by | dp_gd, 1 round, on the rows of 11 owners |",
        "",
        "## Data",
        "",
        "The last round was answered by p0, p1, p2, p3, p4, p5, p6, p7, p8, p9 and 1 more.",
        "",
        "| Column | Holds | About it |",
        "|---|---|---|",
        "| entries | 1,009 numbers, few of them not zero, up to 0.5 |  |",
        "| cost | 0 to 5e+06 euro | what is predicted |",
        "",
        "## Training",
        "",
        "| Parameter | Value | Chosen |",
        "|---|---|---|",
        "| algorithm | dp_gd | by the user, or by default |",
        "",
        "## Privacy",
        "",
        (
            "In words: for anyone who sees all of the run, the odds of any conclusion differ from those after a "
            "run with one record replaced by at most a factor of 2.72 (e to the 1), except with probability "
            "1e-05. A promise whose noise is set as in a paper is that paper's own claim."
        ),
        "",
        (
            "ε = 1, δ = 1e-05: one record replaced, against anyone who sees all that the learner sees; noise the "
            "least that a proof allows. It holds if"
        ),
        "",
        "- the numbers of examples of all parties are public",
        "",
        "## Evaluation",
        "",
        "Nobody has evaluated this model on rows that it was not trained on.",
        "",
        "## Limits",
        "",
        "",
        "## Certificate",
        "",
        "The document has no certificate: nobody has signed what it says.",
        "",
    ]
    assert "| Predicts | cost, 0 to 5e+06 euro |" in card_of(study)


@pytest.mark.parametrize("n", [100, 101, 102])
def test_a_hundred_owners_and_columns_are_shown_and_the_others_counted(n: int) -> None:
    features = tuple(Feature(name=f"x{i}", lower=0, upper=1) for i in range(n))
    study = Study(name="s", features=features, label=STUDY.label)
    card = card_of(study, certificate=certified(study, n).model_dump(mode="json"))
    rows = 1000 * n * (n + 1) // 2
    beyond = "" if n == 100 else " The 100 largest owners are shown."
    assert f"\n{rows:,} rows for training, of {n} owners, who keep them.{beyond}\n" in card
    assert card.count("| owner-") == card.count("| x") == 100
    assert ("columns more, which the document names" in card) == (n > 100)
    assert n == 100 or f"\nAnd {n - 100} columns more, which the document names.\n" in card
    assert f"| owner-{n - 1} | {1000 * n:,} |" in card


def test_long_values_are_cut_at_three_hundred_characters() -> None:
    assert _short("x" * 300) == "x" * 300
    assert _short("x" * 301) == "x" * 300 + "…"


@pytest.mark.parametrize("n", [10, 11])
def test_ten_names_are_told_and_the_others_counted(n: int) -> None:
    told = card_of(STUDY, contributors=[f"p{i}" for i in range(n)])
    more = "" if n == 10 else " and 1 more"
    names = ", ".join(f"p{i}" for i in range(10))
    assert f"\nThe last round was answered by {names}{more}.\n" in told


def test_the_epsilon_beyond_which_nothing_is_promised_is_twenty() -> None:
    most, more = (card_of(STUDY, guarantees=[PROMISE | {"epsilon": epsilon}]) for epsilon in (20.0, 20.1))
    assert "at most a factor of 4.86e+08 (e to the 20), except with" in most
    assert "In words: an ε of 20.1 promises next to nothing." in more


def test_a_template_without_a_value_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        _template("card.md").render()


def test_a_page_is_whole_and_loads_nothing() -> None:
    page = card_page("# A \\*b\\* & c\n\n| x | y |\n|---|--:|\n| 1 | 2 |\n")
    head, _, rest = page.partition("<style>")
    style, _, rest = rest.partition("</style>")
    assert "<" not in style
    assert head.splitlines()[3:] == [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"""<meta http-equiv="Content-Security-Policy" content="default-src 'none'; {CARD_SOURCES}">""",
        "<title>A *b* &amp; c</title>",
    ]
    lines = rest.split("\n")
    assert lines == [
        "",
        "</head>",
        "<body>",
        "<main>",
        "<h1>A *b* &amp; c</h1>",
        '<div class="wide"><table>',
        "<thead>",
        "<tr>",
        "<th>x</th>",
        '<th class="number">y</th>',
        "</tr>",
        "</thead>",
        "<tbody>",
        "<tr>",
        "<td>1</td>",
        '<td class="number">2</td>',
        "</tr>",
        "</tbody>",
        "</table></div>",
        "",
        "</main>",
        "</body>",
        "</html>",
        "",
    ]


def test_what_an_earlier_version_made_is_referred_to_it() -> None:
    """An evaluation had `bins`."""
    study = Study(
        name="s",
        features=(Feature(name="x", lower=0, upper=1),),
        label=Label(name="y", values=("a", "b")),
        hold_out=0.5,
    )
    certificate = certified(study, algorithm="evaluate", parameters={"bins": 10})
    faults = verify_document(document_of(study, certificate=certificate.model_dump(mode="json"))).faults
    referred = "specification: parameters of evaluate: unknown: bins; there are largest_error "
    assert f"{referred}(if an earlier version of Parley made it, that one can check it)" in faults
