"""Lending Club and the credit card data: the publishers' spellings, and the sets themselves where they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from parley.common.data.columns import Feature, RealLabel
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.data.study import LogisticLoss, SquaredLoss, Study
from parley.common.errors import InvalidDataError
from parley.common.learning.erm import minimise
from parley.common.learning.losses import build_loss
from parley.common.learning.metrics import r_squared
from parley.common.learning.model import Model
from scripts.utility.finance import CREDIT_CARD, LENDING_CLUB, LENDING_CLUB_CODED, coded, published, reduced

HEADER = (
    "loan_amnt,term,int_rate,annual_inc,dti,revol_util,delinq_2yrs,inq_last_6mths,open_acc,pub_rec,revol_bal,total_acc,"
    "issue_d,earliest_cr_line,grade"
)


def here(study: Study) -> Shard:
    shard = published(study)
    if shard is None:
        pytest.skip(f"{study.name} is not here: $PARLEY_DATA is not set")
    return shard


def test_the_publishers_spellings(tmp_path: Path) -> None:
    file = tmp_path / "LoanStats3a.csv"
    rows = (
        "5000, 36 months, 10.65%,24000,27.65,83.7%,0,1,3,0,13648,9,Dec-2011,Jan-1985,B",
        "2500, 60 months, 15.27%,30000,1,9.4%,0,5,3,0,1687,4,Dec-2011,Apr-1999,C",
        "2400, 36 months, 15.96%,,8.72,98.5%,0,2,2,0,2956,10,Dec-2011,Nov-2001,C",
    )
    file.write_text("\n".join([HEADER, *rows]) + "\n")
    shard = published(LENDING_CLUB, file)
    assert shard is not None
    assert shard.X.shape == (2, 13)  # the third misses an income
    assert isinstance(LENDING_CLUB.label, RealLabel)
    assert LENDING_CLUB.label.in_units(shard.y) == pytest.approx([0.1065, 0.1527], abs=1e-5)
    years = shard.X[:, LENDING_CLUB.feature_names.index("credit_years")] / shard.X[:, -1] * LENDING_CLUB.constant
    assert years == pytest.approx([(2 * 26 - 30) / 30, (2 * 12 - 30) / 30], abs=1e-3)


def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "loans.csv"
    file.write_text("loan_amnt,int_rate\n5000,10.65%\n")
    with pytest.raises(InvalidDataError, match="earliest_cr_line"):
        published(LENDING_CLUB, file)
    with pytest.raises(InvalidDataError, match="V1"):
        published(CREDIT_CARD, file)


def test_without_path_or_folder_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARLEY_DATA", raising=False)
    assert published(LENDING_CLUB) is None


def test_rates_are_learnt_from_what_is_known_before_issue() -> None:
    shard = here(LENDING_CLUB)
    assert shard.X.shape == (42445, 13)
    fit = r_squared(Model(minimise(build_loss(LENDING_CLUB), shard, 1e-4 * len(shard.y))), shard)
    print(f"Lending Club: {len(shard.y)} loans, R^2 {fit:.3f}")
    assert 0.45 < fit < 0.9  # the grade or the instalment would give it away


def test_categories_become_integers() -> None:
    spelt = {
        "emp_length": ["< 1 year", "10+ years", "n/a"],
        "home_ownership": ["RENT", "MORTGAGE", "OWN"],
        "verification_status": ["Verified", "Not Verified", "Source Verified"],
        "purpose": ["car", "wedding", "medical"],
        "addr_state": ["AK", "WY", "CA"],
    }
    numbers = coded({name: np.array(values, dtype=object) for name, values in spelt.items()})
    assert [numbers[name].tolist()[:2] for name in spelt] == [[0, 10], [0, 2], [2, 0], [0, 13], [0, 50]]
    assert np.isnan(numbers["emp_length"].tolist()[2]), "missing"
    with pytest.raises(InvalidDataError, match="addr_state"):
        coded({})


@pytest.mark.parametrize(
    ("study", "rows"), [(LENDING_CLUB_CODED, 37_202), (CREDIT_CARD, 8_048)], ids=["loans", "frauds"]
)
def test_ten_components_come_from_rows_that_no_owner_has(study: Study, rows: int) -> None:
    here(study)
    found = reduced(study)
    assert found is not None
    terms, shard = found
    assert terms.projection is not None
    assert terms.projection.n_outputs == 10
    assert shard.X.shape == (rows, 11)  # and an intercept
    assert terms.loss == study.loss


def test_without_a_folder_nothing_is_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARLEY_DATA", raising=False)
    assert reduced(CREDIT_CARD) is None


def test_all_frauds_are_there() -> None:
    shard = here(CREDIT_CARD)
    assert shard.X.shape == (8943, 30)
    assert (shard.y > 0).sum() == 492


class TestRealLabels:
    FEATURES = (Feature(name="x", lower=0, upper=1),)

    def study(self, **label: object) -> Study:
        fields = {"name": "s", "features": self.FEATURES, "label": {"name": "y"} | label, "loss": {"kind": "squared"}}
        return Study.model_validate(fields)

    def test_bounds_become_minus_one_and_one(self) -> None:
        study = self.study(lower=10, upper=20)
        shard = shard_of(study, {"x": np.zeros(3), "y": np.array([10.0, 15.0, 20.0])})
        assert shard.y.tolist() == [-1, 0, 1]
        assert isinstance(study.label, RealLabel)
        assert study.label.in_units(shard.y).tolist() == [10, 15, 20]
        assert Study.model_validate_json(study.model_dump_json()) == study

    @pytest.mark.parametrize("value", [9.9, 20.1, np.nan, np.inf])
    def test_a_label_beyond_its_bounds_is_refused_unless_clipped(self, value: float) -> None:
        columns = {"x": np.zeros(1), "y": np.array([value])}
        with pytest.raises(InvalidDataError, match="'y'"):
            shard_of(self.study(lower=10, upper=20), columns)
        if np.isfinite(value):
            assert abs(shard_of(self.study(lower=10, upper=20), columns, clip=True).y[0]) == 1

    @pytest.mark.parametrize("label", [{}, {"lower": 0}, {"lower": 1, "upper": 1}, {"lower": 0, "upper": float("inf")}])
    def test_an_unbounded_label_is_refused(self, label: dict[str, float]) -> None:
        with pytest.raises(ValidationError, match="label"):
            self.study(**label)

    def test_a_real_label_needs_the_squared_loss(self) -> None:
        label = RealLabel(name="y", lower=0, upper=1)
        with pytest.raises(ValidationError, match="squared"):
            Study(name="s", features=self.FEATURES, label=label, loss=LogisticLoss())
        assert Study(name="s", features=self.FEATURES, label=label, loss=SquaredLoss()).n_features == 2
