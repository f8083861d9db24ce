"""A study drafted from columns and choices, without a file: each term, question and message, to the letter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from parley.common.data.columns import Category, Feature, Label
from parley.common.data.study import Study
from parley.common.errors import InvalidInputError
from parley.common.files.sources import DataSource
from parley.common.files.study_fit import StudyFit, SurveyedColumn
from parley.learner.cli.drafting import AuthorChoices, PublicRowsFit, draft_study, fit_public_rows, study_name

AGE = SurveyedColumn("age", "number", bounds=(18.0, 90.0), median=44.4, values=None, blank=0.0)
WARD = SurveyedColumn("ward", "text", values=("east", "west, upper", "other"), shares=(0.5, 0.25, 0.25), blank=0.0)
ILL = SurveyedColumn("ill", "text", values=("no", "yes"), shares=(0.71236, 0.28764), blank=0.0)
COST = SurveyedColumn("cost", "number", bounds=(0.0, 5e4), mean=1234.5678, deviation=98.765, blank=0.0)
KEY = SurveyedColumn("key", "number", bounds=(0.0, 9.0), named_identifier=True)
PRIVATE = (SurveyedColumn("age", "number"), SurveyedColumn("ward", "text"), SurveyedColumn("ill", "text"))


def drafted(*columns: SurveyedColumn, ask: Any = None, **choices: Any) -> dict[str, Any]:  # noqa: ANN401 -- any choice
    """A study's terms, those alone that are set."""
    given: dict[str, Any] = {"name": "my_first-study", "label": "ill", "public": True} | choices
    return draft_study(columns, AuthorChoices(**given), ask).study.model_dump(exclude_none=True, mode="json")


def refused(*columns: SurveyedColumn, **choices: Any) -> str:  # noqa: ANN401 -- any choice
    """The message for choices that make no study."""
    with pytest.raises(InvalidInputError) as error:
        drafted(*columns, **choices)
    return error.value.detail


def test_a_public_table_gives_every_term() -> None:
    whole = drafted(AGE, WARD, KEY, ILL)
    own = {name: whole[name] for name in ("name", "title", "features", "label", "missing")}
    assert own == {
        "name": "my_first-study",
        "title": "My first study",
        "missing": "drop",
        "features": [
            {
                "name": "age",
                "description": "a number from 18 to 90",
                "lower": 18.0,
                "upper": 90.0,
            },
            {
                "name": "ward",
                "description": "one of 2 values, or another",
                "values": ["east", "west, upper"],
                "other": True,
            },
        ],
        "label": {
            "name": "ill",
            "description": "to be learnt: one of 2 classes",
            "values": ["no", "yes"],
            "shares": [0.712, 0.288],
        },
    }
    assert "purpose" not in whole


def test_what_the_author_says_comes_before_what_the_table_shows() -> None:
    terms = drafted(
        AGE,
        WARD,
        ILL,
        title="Illness",
        purpose="to see",
        bounds={"age": (0.0, 123456789012.0)},
        units={"age": "days"},
        values={"ward": ("north", "south")},
        descriptions={"ill": "at discharge"},
        positive="no",
        shares={"yes": 0.25, "no": 0.75},
        missing="value",
        fills={"age": "7", "ward": "south"},
    )
    assert (terms["title"], terms["purpose"], terms["missing"]) == ("Illness", "to see", "value")
    age, ward = terms["features"]
    assert (age["unit"], age["description"]) == ("days", "a number from 0 to 123456789012 days")
    assert (age["lower"], age["upper"], age["fill"]) == (0.0, 123456789012.0, 7.0)
    assert (ward["values"], ward["description"], ward["fill"]) == (["north", "south"], "one of 2 values", "south")
    assert ward.get("other", False) is False
    label = terms["label"]
    assert (label["values"], label["shares"]) == (["yes", "no"], [0.25, 0.75])
    assert label["description"] == "at discharge"
    told = drafted(AGE, WARD, ILL, descriptions={"age": "at admission", "ward": "of admission"})["features"]
    assert [feature["description"] for feature in told] == ["at admission", "of admission"]


def test_a_number_to_be_learnt_has_its_mean_and_deviation() -> None:
    shown = drafted(AGE, COST, label="cost")["label"]
    assert (shown["mean"], shown["deviation"], shown["upper"]) == (1230.0, 99.0, 5e4)
    said = drafted(AGE, COST, label="cost", mean=5.0, deviation=20.0)["label"]
    assert (said["mean"], said["deviation"]) == (5.0, 20.0)
    for column, choices in (
        (COST, {"bounds": {"cost": (0.0, 9e4)}}),
        (SurveyedColumn("cost", "number", bounds=(0.0, 5e4)), {}),
        (SurveyedColumn("cost", "number", bounds=(0.0, 5e4), mean=1.0), {}),
        (SurveyedColumn("cost", "number", bounds=(0.0, 5e4), mean=1.0, deviation=0.0), {}),
    ):
        label = drafted(AGE, column, label="cost", **choices)["label"]
        assert label.keys().isdisjoint({"mean", "deviation"})


@pytest.mark.parametrize(("n", "is_classes"), [(10, True), (11, False)])
def test_a_number_of_ten_values_or_fewer_is_of_classes(n: int, *, is_classes: bool) -> None:
    few = SurveyedColumn("ill", "number", values=tuple(map(str, range(n))), bounds=(0.0, n - 1.0))
    assert ("values" in drafted(AGE, few)["label"]) == is_classes
    assert "values" in drafted(AGE, few, values={"ill": ("1", "2")})["label"]


def test_a_number_is_of_classes_if_one_is_positive() -> None:
    many = SurveyedColumn("ill", "number", bounds=(0.0, 99.0))
    assert drafted(AGE, many, values={"ill": ("0", "1")}, positive="0")["label"]["values"] == ["1", "0"]
    assert refused(AGE, many, positive="1").startswith("not said; add these with what is true of each: --values ill=")


@pytest.mark.parametrize(
    "shares", [(0.5, 0.4996), (1.0, 0.0), (0.9999, 0.0001), None], ids=["rounded", "one", "nearly", "unknown"]
)
def test_shares_are_told_where_no_class_has_none(shares: tuple[float, float] | None) -> None:
    label = drafted(AGE, SurveyedColumn("ill", "text", values=("no", "yes"), shares=shares))["label"]
    assert label.get("shares") == ([0.5, 0.5] if shares == (0.5, 0.4996) else None)


def test_missing_values_are_filled_by_medians_middles_and_others() -> None:
    columns = (
        AGE,
        SurveyedColumn("low", "number", bounds=(10.0, 20.0), median=5.0),
        SurveyedColumn("high", "number", bounds=(10.0, 20.0), median=25.0),
        SurveyedColumn("none", "number", bounds=(10.0, 20.0)),
        WARD,
        ILL,
    )
    filled = drafted(*columns, missing="value", fills={"age": "30"})["features"]
    assert [feature["fill"] for feature in filled] == [30.0, 10.0, 20.0, 15.0, "other"]
    dropped = drafted(*columns, fills={"age": "30"})["features"]
    assert [feature.get("fill") for feature in dropped] == [30.0, None, None, None, None]
    blank = SurveyedColumn("ill", "text", values=("no", "yes"), blank=0.1)
    assert drafted(AGE, blank, missing="value")["missing"] == "drop"
    assert drafted(AGE, blank, missing="refuse")["missing"] == "refuse"
    assert drafted(AGE, ILL, missing="value")["missing"] == "value"
    said: dict[str, Any] = {"values": {"ward": ("a", "b")}}
    assert "--fill ward=VALUE" in refused(AGE, WARD, ILL, missing="value", **said)


def test_other_is_a_value_only_of_itself() -> None:
    alone = SurveyedColumn("ward", "text", values=("other",), shares=(1.0,))
    (ward,) = drafted(alone, ILL)["features"]
    assert (ward["values"], ward["other"], ward["description"]) == (["other"], False, "one of 1 values")
    (ward,) = drafted(WARD, ILL, values={"ward": ("other", "x")}, other=True)["features"]
    assert (ward["values"], ward["other"]) == (["x"], True)


class Author:
    """An author who answers questions in turn; notes what was asked and proposed."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), list[tuple[str, str]]()

    def __call__(self, question: str, proposed: str) -> str:
        self.asked.append((question, proposed))
        return self.answers.pop(0)


def test_an_author_is_asked_with_what_the_table_shows() -> None:
    author = Author("nothing", "ill", "old", "0:99.5", 'east,"west, upper"', "no,yes")
    terms = drafted(AGE, WARD, ILL, label=None, ask=author)
    assert author.asked == [
        ("the column to be learnt", "ill"),
        ("the table has no column 'nothing'; it has 'age', 'ward', 'ill'\nthe column to be learnt", "ill"),
        ("bounds of age, LOWER:UPPER", "18:90"),
        ("bounds of 'age': two numbers, LOWER:UPPER\nbounds of age, LOWER:UPPER", "18:90"),
        ("values of ward, with commas between", 'east,"west, upper",other'),
        ("values of ill, with commas between", "no,yes"),
    ]
    assert terms["features"][0]["upper"] == 99.5
    assert terms["features"][1]["values"] == ["east", "west, upper"]
    author = Author("0:9", "a,b", "a", "no,yes")
    terms = drafted(*PRIVATE, ask=author, missing="value")
    assert author.asked == [
        ("bounds of age, LOWER:UPPER", ""),
        ("values of ward, with commas between", ""),
        ("fill of ward, in place of a missing value", ""),
        ("values of ill, with commas between", ""),
    ]
    assert [feature["fill"] for feature in terms["features"]] == [4.5, "a"]
    assert (
        drafted(*PRIVATE, ask=Author("12345678901.25:12345678902", "a,b", "no,yes"))["features"][0]["upper"]
        == 12345678902.0
    )
    author = Author("1:2")
    near = SurveyedColumn("age", "number", bounds=(0.1234567890123, 1e15))
    drafted(near, ILL, ask=author, values={"ill": ("a", "b")})
    assert author.asked == [("bounds of age, LOWER:UPPER", "0.123456789012:1e+15")]


def test_all_that_is_missing_is_told_at_once() -> None:
    start = "not said; add these with what is true of each: --bounds age=LOWER:UPPER --values ward=VALUE,VALUE "
    assert refused(*PRIVATE, public=False) == (
        f"{start}--values ill=VALUE,VALUE; or be asked, by --ask; or say --public, if the file is"
    )
    assert refused(*PRIVATE) == (
        f"{start}--values ill=VALUE,VALUE; or --leave-out NAME what holds more than 200 different texts"
    )
    numbers = (SurveyedColumn("age", "number"), SurveyedColumn("my cost", "number"), KEY)
    assert refused(*numbers, label="my cost") == (
        "not said; add these with what is true of each: --bounds age=LOWER:UPPER --bounds 'my cost=LOWER:UPPER'; or "
        "--values 'my cost=VALUE,VALUE', if the label 'my cost' is of classes; left out, unless you say --column NAME: "
        "'key'"
    )
    assert "left out" not in refused(*PRIVATE, KEY, left_out=frozenset({"key"}))


def test_columns_that_are_left_out_or_doubtful_have_a_reason() -> None:
    date = SurveyedColumn("born", "date")
    draft = draft_study(
        (AGE, KEY, date, WARD, ILL),
        AuthorChoices(name="s", label="ill", left_out=frozenset({"ward", "ill"}), columns=frozenset({"key"})),
    )
    assert draft.left_out == {
        "born": "is a date: make a number of it, such as an age in years",
        "ward": "as you said",
    }
    assert draft.doubtful == {"key": "looks like an identifier: by its name"}
    assert [feature.name for feature in draft.study.named] == ["age", "key"]
    for choices in ({"bounds": {"key": (0.0, 1.0)}}, {"values": {"key": ("a", "b")}}, {"fills": {"key": "1"}}):
        more: dict[str, Any] = choices
        assert "key" in draft_study((AGE, KEY, ILL), AuthorChoices(name="s", label="ill", **more)).doubtful
    label = SurveyedColumn("ill", "text", values=("a", "b"), named_identifier=True)
    assert list(draft_study((AGE, label), AuthorChoices(name="s", label="ill")).doubtful) == ["ill"]


@pytest.mark.parametrize(
    ("columns", "choices", "message"),
    [
        ((AGE, ILL), {"columns": frozenset({"Age"})}, "the table has no column 'Age'; say 'age', as it does"),
        (
            (AGE, ILL),
            {"units": {f"u{i}": "m" for i in range(7)}},
            "the table has no column 'u0', 'u1', 'u2', 'u3', 'u4'; it has 'age', 'ill'",
        ),
        ((AGE, ILL), {"descriptions": {"x": "y"}}, "the table has no column 'x'; it has 'age', 'ill'"),
        ((AGE, ILL), {"left_out": frozenset({"x"})}, "the table has no column 'x'; it has 'age', 'ill'"),
        ((AGE, ILL), {"label": None}, "--label: say which column is to be learnt; there are 'age', 'ill'"),
        ((AGE, ILL), {"label": "sick"}, "the table has no column 'sick'; it has 'age', 'ill'"),
        ((AGE, ILL), {"fills": {"ill": "no"}}, "--fill ill: nothing stands in for a label that is missing"),
        ((KEY, ILL), {}, "no column is left to learn from: ask for some by --column"),
        (
            (WARD, ILL),
            {"bounds": {"ward": (0.0, 1.0)}},
            "--bounds ward: column 'ward' does not hold numbers: say --values, or leave it out",
        ),
        (
            (SurveyedColumn("born", "date"), ILL),
            {"bounds": {"born": (0.0, 1.0)}},
            "--bounds born: column 'born' does not hold numbers: say --values, or leave it out",
        ),
        (
            (AGE, ILL),
            {"fills": {"age": "old"}},
            "--fill age: column 'age' holds numbers, so a number must stand in",
        ),
        (
            (AGE, WARD),
            {"label": "ward", "positive": "east"},
            (
                "--positive must be one of two values of the label, which has 'east', 'west, upper', 'other'"
            ),
        ),
        (
            (AGE, SurveyedColumn("ill", "text", values=tuple("abcdefgh"))),
            {"positive": "x"},
            "--positive must be one of two values of the label, which has 'a', 'b', 'c', 'd', 'e' and 3 more",
        ),
        ((AGE, ILL), {"mean": 1.0}, "--mean, --deviation: the label 'ill' is of classes: say --share"),
        ((AGE, ILL), {"deviation": 1.0}, "--mean, --deviation: the label 'ill' is of classes: say --share"),
        (
            (AGE, ILL),
            {"shares": {"no": 0.5}},
            "--share: say one of each value of the label, which has 'no', 'yes'",
        ),
        (
            (AGE, COST),
            {"label": "cost", "shares": {"a": 0.5}},
            "--share: the label 'cost' is a number: say --mean and --deviation",
        ),
        ((AGE, ILL), {"units": {"age": "x" * 51}}, "column 'age': unit: String should have at most 50 characters"),
        (
            (AGE, ILL),
            {"descriptions": {"ill": "x" * 5000}, "title": "y" * 5000},
            (
                "title: String should have at most 200 characters; "
                "label: description: String should have at most 500 characters"
            ),
        ),
        (
            (AGE, WARD, ILL),
            {"bounds": {"age": (9.0, 1.0)}, "values": {"ward": ()}},
            (
                "column 'age': lower must be below upper, and upper - lower finite"
            ),
        ),
        (
            (AGE, ILL),
            {"bounds": {"age": (9.0, 1.0)}, "descriptions": {"ill": "x" * 501}},
            (
                "column 'age': lower must be below upper, and upper - lower finite; "
                "label: description: String should have at most 500 characters"
            ),
        ),
        ((AGE, ILL), {"shares": {"no": 0.5, "yes": 0.1}}, "label 'ill': its shares must add up to 1, not 0.6"),
        ((AGE, ILL), {"name": ""}, "name: String should have at least 1 character"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_full(
    columns: Sequence[SurveyedColumn], choices: dict[str, Any], message: str
) -> None:
    assert refused(*columns, **choices) == message


# ── public rows ──────────────────────────────────────────────────────────────


def fit(n_rows: int | None = 100, **more: Any) -> StudyFit:  # noqa: ANN401 -- fields of a fit
    """How a table fits a study."""
    return StudyFit("s", n_rows, 1, **more)


def test_public_rows_that_would_be_empty_are_told_by_their_share() -> None:
    blanks = {f"c{i}": 0.5 - i / 100 for i in range(7)}
    assert PublicRowsFit(fit(), blanks, "ill").lines() == []
    advice = "--leave-out NAME does without a column, --fill NAME=VALUE fills one, --missing value fills all"
    dropping = fit(dropped=0.12345)
    warning = (
        "warning: 12.35% of the rows of this file miss a value: they would be kept as empty ones, and teach nothing"
    )
    assert PublicRowsFit(dropping, blanks, "ill").lines() == [
        warning,
        "most blanks: 'c0' 50.00%, 'c1' 49.00%, 'c2' 48.00%, 'c3' 47.00%, 'c4' 46.00%, and 2 more",
        advice,
    ]
    assert PublicRowsFit(dropping, {"ill": 0.1}, "ill").lines() == [warning, "most blanks: 'ill' (the label) 10.00%"]
    assert PublicRowsFit(dropping, {}, "ill").lines() == [warning]
    five = dict(list(blanks.items())[:5])
    assert PublicRowsFit(dropping, five, "ill").lines()[1].endswith(", 'c4' 46.00%")
    assert PublicRowsFit(dropping, five | {"ill": 0.01}, "ill").lines()[1].endswith(", and 1 more")


def test_public_rows_that_do_not_fit_are_told_by_column_and_kind() -> None:
    faults: Any = {f"c{i}": {"not numeric": 1, "missing": 2000} for i in range(3)}
    unfit = PublicRowsFit(fit(None, faults=faults, dropped=0.5), {"c0": 0.25}, "ill")
    assert unfit.lines() == [
        "warning: this file does not fit the study itself",
        "c0: not numeric: 1 row",
        "c0: missing: 2,000 rows",
        "c1: not numeric: 1 row",
        "c1: missing: 2,000 rows",
        "c2: not numeric: 1 row",
        "and 1 more",
        "most blanks: 'c0' 25.00%",
        "--leave-out NAME does without a column, --fill NAME=VALUE fills one, --missing value fills all",
    ]
    assert unfit.to_json() == {"fits": False, "dropped": 0.5, "blanks": {"c0": 0.25}}


def test_blanks_are_those_of_columns_that_the_study_reads_and_does_not_fill(tmp_path: Any) -> None:  # noqa: ANN401
    path = tmp_path / "t.csv"
    path.write_text("a,b,c,d,ill\n" + "1,1,,1,no\n,1,x,1,yes\n,,x,1,\n1,1,x,1,yes\n")
    study = Study(
        name="s",
        missing="drop",
        features=(
            Feature(name="b", lower=0, upper=9),
            Feature(name="a", lower=0, upper=9),
            Category(name="c", values=("x",), missing="value", fill="x"),
        ),
        label=Label(name="ill", values=("no", "yes")),
    )
    shares = {"a": 0.5, "b": 0.25, "c": 0.25, "d": 0.75, "ill": 0.25, "e": None}
    columns = [SurveyedColumn(name, "number", blank=share) for name, share in shares.items()]
    found = fit_public_rows(study, DataSource(source=str(path)), columns)
    assert list(found.blanks.items()) == [("a", 0.5), ("b", 0.25), ("ill", 0.25)]
    assert (found.label, found.fit.dropped) == ("ill", 0.5)


@pytest.mark.parametrize(
    ("source", "name"),
    [("loans.csv", "loans"), ("visits/*.csv", "visits"), ("*.csv", "study"), ("a/b/loans.2020.csv", "loans.2020")],
)
def test_a_study_is_named_after_its_file_or_folder(source: str, name: str) -> None:
    assert study_name(DataSource(source=source)) == name
