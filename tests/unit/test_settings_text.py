"""Settings are edited as text: what their owner wrote stays, and what cannot be edited so is refused."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from parley.common.errors import InvalidInputError
from parley.party.settings import Data, StudyPolicy, StudySettings
from parley.party.settings_text import (
    appended,
    in_long_form,
    spell_study,
    with_learners,
    with_pins_for,
    without_study,
)

SHORT = """\
name = "a"  # as the operator says
study = "old.json"  # signed

# where my rows are
[data]  # mine
source = "SELECT * FROM rows"
[data.tables]
rows = "rows.csv"

# what I allow
[policy]
epsilon = 5.0
"""
SEVERAL = """\
name = "a"

# the first
[[studies]]
name = "one"
study = "1.json"
[studies.data]
source = "1.csv"

# the second
[[studies]]
name = "two"
[studies.policy]  # mine
share = 0.5
learners = ["x"]

# the clinic's learner
[[learners]]
name = "x"
"""


def entry(**terms: Any) -> StudySettings:  # noqa: ANN401 -- all that a study takes
    given = {"name": 'a "b"', "study": "s.json", "data": Data(source="r.csv")} | terms
    return StudySettings.model_validate(given)


def test_a_study_is_appended_as_it_is_spelt() -> None:
    tables = {"rows": "rows.csv", "labs": {"postgres": "env:LABS", "table": "labs"}}
    data = Data.model_validate({"source": "SELECT 1 FROM rows, labs", "tables": tables, "out_of_bounds": "clip"})
    policy = StudyPolicy(share=0.25, learners=("x",), approval="policy", algorithms=("dp_gd",))
    for study in (entry(), entry(data=data, people="ward-7", policy=policy)):
        text = appended(SEVERAL, spell_study(study))
        assert text.startswith(SEVERAL)
        assert StudySettings.model_validate(tomllib.loads(text)["studies"][2]) == study


@pytest.mark.parametrize(
    "spelling", ["studies = []\n", 'studies = [{ name = "one" }]\n', 'study = "1.json"\nstudies=[]\n']
)
def test_a_list_in_brackets_is_left_to_its_owner(spelling: str) -> None:
    with pytest.raises(
        InvalidInputError, match=r"spell studies in another way than commands do, who write \[\[studies\]\]"
    ):
        appended(spelling, spell_study(entry()))


def test_the_short_form_becomes_the_long_one() -> None:
    text = in_long_form(SHORT, "old")
    assert tomllib.loads(text) == {
        "name": "a",
        "policy": {"epsilon": 5.0},
        "studies": [
            {
                "name": "old",
                "study": "old.json",
                "data": {"source": "SELECT * FROM rows", "tables": {"rows": "rows.csv"}},
            }
        ],
    }
    for comment in SHORT.split("\n"):
        assert comment.partition("#")[2] in text
    assert "# what I allow\n[policy]" in text
    assert in_long_form(SEVERAL, "one") == SEVERAL
    with pytest.raises(InvalidInputError, match=r"study and data in another way"):
        in_long_form('study = "1.json"\ndata = { source = "1.csv" }\n', "one")


def test_learners_are_said_of_a_study_with_and_without_a_policy() -> None:
    text = with_learners(with_learners(SEVERAL, "one", ["x", "y"]), "two", ["y"])
    one, two = tomllib.loads(text)["studies"]
    assert one["policy"] == {"learners": ["x", "y"]}
    assert two["policy"] == {"learners": ["y"], "share": 0.5}
    assert "# the second\n[[studies]]" in text
    assert "[studies.policy]  # mine" in text
    inline = SEVERAL.replace("[studies.policy]  # mine\n", "[studies.data]\nsource = 'x'\n").replace(
        'name = "two"', 'name = "two"\npolicy = { share = 0.5 }'
    )
    with pytest.raises(InvalidInputError, match=r"\[studies.policy\]"):
        with_learners(inline, "two", ["y"])


def test_a_study_leaves_with_its_tables_alone() -> None:
    text = without_study(SEVERAL, "two")
    assert [each["name"] for each in tomllib.loads(text)["studies"]] == ["one"]
    assert "# the clinic's learner\n[[learners]]" in text
    assert "studies" not in tomllib.loads(without_study(text, "one"))
    with pytest.raises(InvalidInputError, match=r"\[\[studies\]\]"):
        without_study('studies = [{ name = "one" }]\n', "one")


PINS = """
[secure_sum]
[[secure_sum.key_holders]]  # our notary
name = "notary"
public_key = "aa"
compared = true

[[secure_sum.parties]]
name = "north"
learners = ["ann"]
public_key = "bb"
# the next one
[[secure_sum.parties]]
name = "south"
public_key = "cc"
"""


def test_pins_count_for_the_learners_that_know_the_key() -> None:
    text = with_pins_for(PINS, ["ann"], "bob", ["aa", "bb", "dd"])
    sums = tomllib.loads(text)["secure_sum"]
    assert [pin["learners"] for pin in sums["key_holders"]] == [["ann", "bob"]]
    assert [pin["learners"] for pin in sums["parties"]] == [["ann", "bob"], ["ann"]]
    assert "# our notary" in text
    assert "# the next one" in text
    assert with_pins_for('name = "a"\n', ["ann"], "bob", []) == 'name = "a"\n'
    with pytest.raises(InvalidInputError, match="spell secure_sum in another way"):
        with_pins_for('[secure_sum]\nkey_holders = [{name = "notary", public_key = "aa"}]\n', ["ann"], "bob", [])
