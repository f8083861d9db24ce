"""An owner pins whose rows are whose; what its ledger charged for records never counts as if it hid persons."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

import pytest

from parley.common.algorithms import REGISTRY
from parley.common.data.columns import Feature, Label
from parley.common.data.study import Person, Study
from parley.common.errors import InvalidInputError
from parley.common.privacy.account import MICRO, SQUARE_UNITS, Account, Cost, Price, delta_units, limit
from parley.common.privacy.calibration import gaussian_delta, gaussian_epsilon
from parley.common.privacy.filter import largest_square
from parley.common.privacy.guarantee import Adjacency, hides
from parley.common.protocol.receipts import read_receipt
from parley.common.runs.consent import ReviewedRun, dear
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.secure_sum.session import Identity
from parley.common.service.tokens import hash_token
from parley.party.cli.join import StudyOptions, _pinned_person
from parley.party.ledger.accounts import StudyTerms
from parley.party.ledger.ledger import Ledger
from parley.party.ledger.merging import Owned, merge
from parley.party.ledger.records import DataPin, Pinned, from_json, to_json
from parley.party.ledger.recovery import of_receipt, recover
from parley.party.policy import rules_of
from parley.party.settings import Data, PartySettings, Policy, StudySettings
from parley.party.settings_text import spell_study
from tests.support.ledgers import KEY, open_ledger

ADJACENCIES: tuple[Adjacency, ...] = get_args(Adjacency)
VISITS = Study(
    name="visits", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("no", "yes"))
)
PATIENTS = VISITS.model_copy(update={"name": "patients", "person": Person(column="patient_nbr", most_rows=6)})
ONE = largest_square(1.0, 1e-5, 1 / SQUARE_UNITS)
"""mu^2 of a Gaussian release at (1, 1e-5)."""
GAUSSIAN = Cost(MICRO, delta_units(1e-5), ONE)
PURE = Cost(MICRO // 2, 0, ONE)
LIMIT = limit(100.0, 1e-5)
OWNERS: dict[str, Any] = {
    "epsilon": 10,
    "delta": 1e-3,
    "max_epsilon_per_run": 2,
    "max_delta_per_run": 1e-4,
    "algorithms": tuple(REGISTRY),
}


def charged(directory: Path, *charges: tuple[str, Cost, Adjacency], account: Account = LIMIT) -> Ledger:
    """A ledger that pins both studies of one table, and these charges to it: study, cost, and what they hide."""
    open_ledger(directory, account).close()
    ledger = Ledger(directory, Identity("party", KEY), account, {"visits": StudyTerms(), "patients": StudyTerms()})
    for study in (VISITS, PATIENTS):
        ledger.pin(DataPin("rows.csv", {}, study, "", 9, study.name.encode(), (b"table",)))
    for number, (one, cost, adjacency) in enumerate(charges):
        ledger.consents.charge_fit(f"fit-{number}", "fit", b"{}", Price.at_once(cost, adjacency), one)
    return ledger


# ── whose rows are whose ─────────────────────────────────────────────────────


def reasons(
    study: Study, person: str | None, algorithm: str = "dp_gd", overlap: int = 1, **policy: object
) -> list[str]:
    """The rules that a run of the study would break, by name and in words."""
    members = tuple(Member(name=name, n_examples=100, budget=Budget(epsilon=1, delta=1e-5)) for name in ("a", "b"))
    spec = RunSpec.model_construct(
        study=study, algorithm=algorithm, parameters={}, minimum_contributors=2, overlap=overlap, parties=members,
        secure_sum="none", public=None, colluders=0, answer_every=1, adjacency="replace_one", class_weights=None,
    )  # fmt: skip
    review = ReviewedRun(spec, REGISTRY[algorithm].__new__(REGISTRY[algorithm]), 1, reveals_each=False, longest=(1, 1))
    rules = rules_of(Policy.model_validate(OWNERS | policy), person=person)
    return [f"{rule}: {reason}" for rule, reason in review.objections(members[0], rules, None)]


def test_the_owner_alone_says_whose_a_row_is() -> None:
    assert reasons(VISITS, None) == reasons(PATIENTS, "patient_nbr") == []
    (not_pinned,) = reasons(PATIENTS, None)
    assert not_pinned.startswith("person: the study patients takes 'patient_nbr'")
    assert 'data.person = "patient_nbr"' in not_pinned
    rows_as_persons = PATIENTS.model_copy(update={"person": Person(column="encounter_id")})
    (another,) = reasons(rows_as_persons, "patient_nbr")
    assert another.startswith("person: ")
    assert "'encounter_id'" in another
    assert "pins 'patient_nbr'" in another
    (none,) = reasons(VISITS, "patient_nbr")
    assert none.startswith("person: ")
    assert 'person = {"column": "patient_nbr"}' in none


@pytest.mark.parametrize(
    ("study", "algorithm", "overlap", "demanded", "words"),
    [
        (VISITS, "dp_gd", 1, "replace_one", None),
        (VISITS, "dp_gd", 1, "person", "dp_gd protects one record: agree with the owners on a study that says whose"),
        (VISITS, "ensemble_vote", 1, "person", None),
        (VISITS, "ensemble_vote", 2, "person", "who may have rows with up to 2 of the owners"),
        (VISITS, "ensemble_vote", 2, "whole_party", None),
        (PATIENTS, "dp_gd", 2, "person", None),
        (PATIENTS, "dp_gd", 1, "whole_party", "all its data at once, and dp_gd protects one person"),
    ],
)  # fmt: skip
def test_a_policy_demands_that_runs_hide_persons(
    study: Study, algorithm: str, overlap: int, demanded: str, words: str | None
) -> None:
    column = study.person.column if study.person else None
    broken = [
        reason
        for reason in reasons(study, column, algorithm, overlap, adjacency=demanded)
        if reason.startswith("adjacency")
    ]
    assert len(broken) == (words is not None)
    assert words is None or words in broken[0]


def test_a_price_too_must_hide_persons() -> None:
    """Also that of a fit of the owner's own, which no specification states."""
    rules = rules_of(Policy.model_validate(OWNERS | {"adjacency": "person"}))
    assert [rule for rule, _ in dear(Cost(1, 0), "replace_one", rules)] == ["adjacency"]
    assert not [*dear(Cost(1, 0), "person", rules)]


def test_settings_pin_one_column_for_a_table_and_no_period_in_it() -> None:
    with pytest.raises(ValueError, match="a person may have rows before and after them"):
        Data(source="rows.csv", person="patient_nbr", earlier_rows=1)

    def settings(*persons: str | None) -> PartySettings:
        studies = [
            {"name": f"study-{at}", "study": "s.json", "data": {"source": "rows.csv", "person": person}}
            for at, person in enumerate(persons)
        ]
        learners = [{"name": "learner", "token_hash": hash_token("token")}]
        return PartySettings(name="a", state="a", studies=studies, policy=OWNERS, learners=learners)

    assert settings("patient_nbr", None, "patient_nbr")
    with pytest.raises(ValueError, match="study-0 and study-1 has one column"):
        settings("patient_nbr", "encounter_id")
    entry = StudySettings(name="s", study="s.json", data=Data(source="rows.csv", person='a "b"'))
    assert 'person = "a \\"b\\""\n' in spell_study(entry)
    assert "person" not in spell_study(StudySettings(name="s", study="s.json", data=Data(source="rows.csv")))


def test_an_owner_that_joins_says_whose_a_row_is() -> None:
    assert _pinned_person(VISITS, StudyOptions()) is None
    assert _pinned_person(PATIENTS, StudyOptions(person="patient_nbr")) == "patient_nbr"
    for other in (None, "encounter_id"):
        with pytest.raises(InvalidInputError, match='say --person "patient_nbr"'):
            _pinned_person(PATIENTS, StudyOptions(person=other))


# ── what a ledger's charges hide ─────────────────────────────────────────────


@pytest.mark.parametrize("demanded", ADJACENCIES)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_charges_count_against_no_budget_for_more(tmp_path: Path, adjacency: Adjacency, demanded: Adjacency) -> None:
    first, other = tmp_path / "first", tmp_path / "other"
    with charged(first, ("visits", PURE, adjacency)) as ledger:
        receipt = ledger.chain.receipt()
        assert ledger.books.hides() == read_receipt(receipt).totals["adjacency"] == adjacency
        assert of_receipt(read_receipt(receipt)).adjacency == adjacency
    open_ledger(other, LIMIT, "other").close()
    wanted = limit(100.0, 1e-5, demanded)
    owned = Owned(first, Identity("party", KEY)), Owned(other, Identity("other", KEY))
    if hides(adjacency, demanded):
        open_ledger(first, wanted).close()
        merge(*owned, demanded, commit=False)
    else:
        unit = {"replace_one": "record", "person": "person"}[adjacency]
        words = f"1 answers in the ledger protect one {unit} each: they cannot count.*keep {adjacency}"
        with pytest.raises(InvalidInputError, match=words):
            open_ledger(first, wanted)
        with pytest.raises(InvalidInputError, match=f"protect one {unit} each.*say {adjacency}"):
            merge(*owned, demanded, commit=False)
    made = recover(first, Identity("party", KEY), wanted, (), [receipt], commit=False)
    assert hides(adjacency, made.adjacency), "a ledger in its place counts for no more either"


def test_a_pin_of_records_is_written_as_it_was() -> None:
    pins = [DataPin("rows.csv", {}, study, "", 9, b"", ()).pinned(b"salt") for study in (VISITS, PATIENTS)]
    assert "most_rows" not in to_json(pins[0], 1)
    assert [from_json(1, to_json(pin, 1)).record for pin in pins] == pins
    assert [pin.most_rows for pin in pins if isinstance(pin, Pinned)] == [0, 6]


# ── what an account promises to a person ─────────────────────────────────────


def loss(directory: Path, *charges: tuple[str, Cost, Adjacency], account: Account = LIMIT) -> Any:  # noqa: ANN401
    """What the account of all promises to a person."""
    with charged(directory, *charges, account=account) as ledger:
        (statement,) = ledger.statements()
        assert (statement.to_json().get("to_a_person") is None) == (statement.to_a_person is None)
        return statement.to_a_person


def test_a_gaussian_run_of_records_promises_a_person_what_its_rows_multiply(tmp_path: Path) -> None:
    lost = loss(tmp_path / "one", ("visits", GAUSSIAN, "replace_one"))
    assert dict(lost.rows) == {"visits": 6}
    assert lost.nonadaptive == pytest.approx(7.67, abs=0.005)
    assert lost.nonadaptive == pytest.approx(gaussian_epsilon(6 * math.sqrt(ONE / SQUARE_UNITS), 1e-5))
    assert gaussian_delta(1.0, 6 * math.sqrt(ONE / SQUARE_UNITS)) == pytest.approx(0.36, abs=0.005)
    assert lost.epsilon > lost.nonadaptive
    assert "at most 6 in the table of visits" in str(lost)
    both = loss(tmp_path / "two", ("visits", GAUSSIAN, "replace_one"), ("patients", GAUSSIAN, "person"))
    assert both.nonadaptive == pytest.approx(gaussian_epsilon(math.sqrt(37 * ONE / SQUARE_UNITS), 1e-5))


def test_a_person_of_forty_rows_has_next_to_nothing() -> None:
    assert gaussian_epsilon(math.sqrt(GAUSSIAN.to_group(40).gdp / SQUARE_UNITS), 1e-5) == pytest.approx(102, abs=0.5)
    assert PURE.to_group(40).epsilon == 40 * PURE.epsilon
    assert GAUSSIAN.to_group(1) == GAUSSIAN


def test_pure_runs_of_records_multiply_by_rows(tmp_path: Path) -> None:
    lost = loss(tmp_path, ("visits", PURE, "replace_one"), account=limit(100.0, 0.0))
    assert (lost.epsilon, lost.nonadaptive) == (3.0, 3.0)


def test_of_claims_and_of_tables_without_a_bound_nothing_is_promised(tmp_path: Path) -> None:
    slack = Cost(MICRO, delta_units(1e-6), ONE, delta_units(1e-6))
    claimed = loss(tmp_path / "one", ("visits", slack, "replace_one"))
    assert math.isinf(claimed.epsilon)
    assert "no more is known" in str(claimed)
    unbounded = loss(tmp_path / "two", ("", PURE, "replace_one"))
    assert math.isinf(unbounded.epsilon)
    assert "no study in particular" in str(unbounded)


def test_what_hides_persons_is_what_it_says(tmp_path: Path) -> None:
    lost = loss(tmp_path / "one", ("patients", GAUSSIAN, "person"), ("visits", PURE, "whole_party"))
    assert str(lost) == "All that was charged hides each person, all rows at once."
    assert loss(tmp_path / "two", ("patients", GAUSSIAN, "person"), account=limit(100.0, 1e-5, "person")) is None


def test_owners_without_persons_are_told_nothing_of_them(tmp_path: Path) -> None:
    with open_ledger(tmp_path, LIMIT) as ledger:
        ledger.pin(DataPin("rows.csv", {}, VISITS, "", 9, b"rows", (b"table",)))
        ledger.consents.charge_fit("fit", "fit", b"{}", Price.at_once(PURE), "visits")
        assert [statement.to_a_person for statement in ledger.statements()] == [None]
