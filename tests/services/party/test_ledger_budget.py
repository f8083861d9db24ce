"""An owner's own fits pay from its party's ledger: once each, in full, before any noise, from any process."""

from __future__ import annotations

import copy
import json
import pickle  # noqa: TID251 -- as users save estimators
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from typer.testing import CliRunner

from parley import LedgerBudget, PrivateClassifier, PrivateLinearRegression, PrivateLogisticRegression
from parley.common.errors import (
    BudgetExhaustedError,
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    LedgerError,
    UnavailableError,
)
from parley.common.privacy.account import Cost, Price
from parley.common.privacy.payer import Fit
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.wire.party_api import RunProposal
from parley.learner.estimators.array_runs import ArrayRun
from parley.learner.estimators.budget import EstimatorError, PrivacyBudget
from parley.party.answers.party import open_store
from parley.party.cli.main import party_app
from parley.party.ledger.audit import export, verify
from parley.party.ledger.books import OWNER
from parley.party.ledger.ledger import Ledger
from parley.party.ledger.records import Answered, Approved, Ended
from parley.party.settings import PartySettings
from tests.support.cluster import Cluster
from tests.support.fits import FIT, PRICE, examples, fitted, start_dying, start_paying
from tests.support.ledgers import make_ledger
from tests.support.nightly import nightly
from tests.support.toml import write

DOCUMENT = Path(__file__).parents[3] / "docs" / "how-to" / "python.md"
POLICY = {"epsilon": 3.0, "delta": 1e-5, "max_epsilon_per_run": 1.5, "max_delta_per_run": 1e-5}


@pytest.fixture
def config(cluster: Cluster) -> Path:
    return settings_file(cluster)


def settings_file(cluster: Cluster, **policy: object) -> Path:
    """The first party's settings, whose ledger there is."""
    settings: PartySettings = make_ledger(cluster.party_settings("party-1"))
    dumped = settings.model_dump(mode="json", exclude_none=True, include={"name", "state", "study", "data", "learners"})
    return write(cluster.root / "party.toml", dumped | {"policy": POLICY | policy})


def opened(config: Path) -> Ledger:
    return open_store(PartySettings.load(config))


def no_model(*_: object) -> None:
    pytest.fail("noise would be drawn")


# ── what a fit pays ──────────────────────────────────────────────────────────


def test_each_fit_is_a_run_of_the_owners_own_charged_at_once(config: Path) -> None:
    budget, memory = LedgerBudget(config), PrivacyBudget(3.0, 1e-5)
    X, y = examples()
    for pays in (budget, memory):
        PrivateLogisticRegression(0.5, (-1, 1), delta=1e-6, budget=pays).fit(X, y)
        PrivateLinearRegression(0.25, (-1, 1), (0, 1), delta=1e-6, budget=pays).fit(X, y)
        PrivateClassifier(bounds=(-1, 1), epsilon=0.125, budget=pays).fit(X, y)
        PrivateClassifier(bounds=(-1, 1), epsilon=0.5, delta=1e-6, owners=3, budget=pays).fit(X, y)
    assert (budget.account.spent, budget.fits) == (memory.account.spent, 4)
    assert (budget.epsilon_left, budget.delta_left) == (memory.epsilon_left, memory.delta_left)
    assert repr(budget) == repr(memory).replace("PrivacyBudget", "LedgerBudget")
    with opened(config) as ledger:
        runs = [entry for entry in ledger.entries() if isinstance(entry.record, Approved)]
        assert [run.record.algorithm for run in runs if isinstance(run.record, Approved)] == [
            "dp_gd", "dp_gd", "release", "dp_gd",
        ]  # fmt: skip
        terms = json.loads(ledger.chain.attachment(runs[0].number, "spec"))
        assert ledger.account().reserved == Cost(0, 0)
        assert verify(export(ledger), ledger.identity.key)
    parameters = terms.pop("parameters")
    assert parameters["n_rounds"] > 0
    assert terms == {
        "algorithm": "dp_gd", "n_examples": 60, "n_features": 5, "owners": 1, "epsilon": 0.5, "delta": 1e-6,
    }  # fmt: skip


def test_a_fit_is_three_records(config: Path) -> None:
    LedgerBudget(config).pay(FIT)
    with opened(config) as ledger:
        records: list[Any] = [entry.record for entry in ledger.entries()][-3:]
        (book,) = ledger.books.runs.values()
    approved, answered, ended = records
    assert [type(record) for record in records] == [Approved, Answered, Ended]
    assert re.fullmatch("fit-[0-9a-f]{32}", approved.run)
    assert {(record.learner, record.run) for record in records} == {(OWNER, approved.run)}
    assert (approved.study, approved.people, approved.rounds, approved.reserved) == ("made-up", "", 1, PRICE.total)
    assert (answered.step, answered.cost, answered.adjacency, ended.cost) == (
        "fit", PRICE.total, "replace_one", Cost(0, 0),
    )  # fmt: skip
    assert (book.ended, book.charged) == ("owner", PRICE.total.epsilon)
    with opened(config) as ledger, pytest.raises(ConflictError, match=r"there is a run fit-\w+ already"):
        ledger.consents.charge_fit(approved.run, "dp_gd", b"{}", PRICE)


def test_the_commands_show_it(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    fitted(LedgerBudget(config))
    shown = {
        words: CliRunner().invoke(party_app, [*words.split(), "--config", str(config)]).stdout
        for words in ("budget", "log", "log --by-run")
    }
    assert re.search(rf"^spent +{LedgerBudget(config).epsilon_spent:g} ", shown["budget"], re.MULTILINE)
    assert re.search(r"\(owner\) +fit-[0-9a-f]{32} +1 +0\.5 +1e-06$", shown["log"], re.MULTILINE)
    assert re.search(r"\(owner\) +fit-.* dp_gd .* 1 noisy answer \(fit\)", shown["log --by-run"])


def test_what_the_documents_show_runs(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = re.findall(
        r"^```python\n(from parley import LedgerBudget.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL
    )
    monkeypatch.chdir(config.parent)
    X, y = examples()
    given = {"X": X, "y": y}
    exec(source.replace("biopsies", "made-up"), given)  # noqa: S102 -- a document of this repository
    assert LedgerBudget(config).fits == 1


# ── what is refused costs nothing ────────────────────────────────────────────


def refused(config: Path, error: type[Exception], words: str, **parameters: object) -> None:
    """A fit is refused in these words before its noise is drawn, and nothing is written."""
    with opened(config) as ledger:
        before = len(ledger.entries())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ArrayRun, "model", no_model)
        with pytest.raises(error, match=words):
            fitted(LedgerBudget(config), **parameters)
    with opened(config) as ledger:
        assert len(ledger.entries()) == before


def test_a_fit_that_costs_more_than_is_left_is_refused(cluster: Cluster) -> None:
    config = settings_file(cluster, epsilon=1.5)
    budget = LedgerBudget(config)
    fitted(budget, epsilon=1.5)
    left = budget.epsilon_left
    refused(config, BudgetExhaustedError, rf"are asked for; epsilon {left:g}, delta 1e-05 are left", epsilon=1.5)
    with pytest.raises(BudgetExhaustedError, match="this delta is slack"):
        budget.pay(Fit("release", {}, Price.at_once(Cost(1, 1, 0, 1))))
    fitted(budget, epsilon=left / 2)


def test_what_is_reserved_for_a_learners_run_is_not_to_be_spent(cluster: Cluster, config: Path) -> None:
    member = Member(name="party-1", n_examples=40, budget=Budget(epsilon=3, delta=1e-5))
    spec = RunSpec(study=cluster.study, algorithm="dp_gd", parameters={}, parties=(member,), minimum_contributors=1)
    with opened(config) as ledger:
        account = ledger.account()
        all_of_it = Cost(account.epsilon_limit, account.delta_limit, account.square_limit(slack=False))
        ledger.consents.approve(
            "learner", RunProposal(run="first", spec=spec, user="ann", purpose=""), Price.at_once(all_of_it)
        )
        refused(config, BudgetExhaustedError, "epsilon 0, delta 1e-05 are left")
        ledger.consents.end("learner", "first")
    fitted(LedgerBudget(config))


def test_the_policy_for_one_run_holds(cluster: Cluster) -> None:
    config = settings_file(cluster, max_epsilon_per_run=0.75)
    refused(
        config, ForbiddenError, "the run costs epsilon 1 in the owner's transcript view; one may cost 0.75", epsilon=1
    )
    fitted(LedgerBudget(config), epsilon=0.75)


def test_an_owner_who_hides_all_its_data_is_told_that_a_fit_hides_a_record(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1, policy={"adjacency": "whole_party"})
    refused(
        settings_file(cluster, adjacency="whole_party"),
        ForbiddenError,
        "the owner protects all its data at once, and the run protects one record",
    )


def test_a_random_state_pays_nothing(config: Path) -> None:
    refused(config, EstimatorError, "a random_state voids the promise", random_state=0)


def test_a_disk_that_is_full_is_foreseen(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise UnavailableError("the ledger cannot be written: its disk is full")

    budget = LedgerBudget(config)
    with monkeypatch.context() as broken:
        broken.setattr("parley.party.ledger.ledger._append", full)
        with pytest.raises(UnavailableError, match="its disk is full"):
            fitted(budget)
    assert budget.fits == 0


def test_what_is_no_budget_is_told_at_once(config: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="there is no study ward-9; the settings name made-up"):
        LedgerBudget(config, study="ward-9")
    with pytest.raises(InvalidInputError, match=r"absent\.toml"):
        LedgerBudget(tmp_path / "absent.toml")
    (PartySettings.load(config).state / "ledger.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(LedgerError, match=r"of the ledger in .* only ledger\.head is left: run parley-party recover"):
        LedgerBudget(config)


# ── which study ──────────────────────────────────────────────────────────────


def config_of_two(cluster: Cluster, people: str | None = "ward-7", **first: object) -> Path:
    """Settings of a second study, "beside", of other people, next to "made-up", whose settings are ``first``."""
    settings = make_ledger(cluster.party_settings("party-1"))
    dumped = settings.model_dump(mode="json", exclude_none=True, include={"name", "state", "learners"})
    study = cluster.study.model_copy(update={"name": "beside"})
    (cluster.root / "beside.json").write_text(study.model_dump_json())
    studies: list[dict[str, Any]] = [
        {"name": "made-up", "study": cluster.study_path, "data": {"source": cluster.root / "party-1.csv"}, **first},
        {
            "name": "beside",
            "study": cluster.root / "beside.json",
            "data": {"source": cluster.root / "party-2.csv"},
            "policy": {"max_epsilon_per_run": 0.75},
            **({"people": people} if people else {}),
        },
    ]
    return write(cluster.root / "party.toml", dumped | {"policy": POLICY, "studies": studies})


def test_the_people_of_a_study_pay_for_it(cluster: Cluster) -> None:
    config = config_of_two(cluster)
    with pytest.raises(InvalidInputError, match="say whose account pays, by the name of the study: made-up, beside"):
        LedgerBudget(config)
    budgets = {study: LedgerBudget(config, study) for study in ("made-up", "beside")}
    fitted(budgets["beside"], epsilon=0.75)
    assert budgets["beside"].epsilon_left < budgets["made-up"].epsilon_left == 3
    with pytest.raises(ForbiddenError, match=r"one may cost 0\.75"):
        fitted(budgets["beside"], epsilon=1)
    fitted(budgets["made-up"], epsilon=1)
    with opened(config) as ledger:
        approvals = [entry.record for entry in ledger.entries() if isinstance(entry.record, Approved)]
    assert [(record.study, record.people) for record in approvals] == [("beside", "ward-7"), ("made-up", "")]


def test_a_share_that_is_set_aside_is_for_its_study(cluster: Cluster) -> None:
    config = config_of_two(cluster, people=None, policy={"share": 0.5})
    of_study, of_none = LedgerBudget(config, "made-up"), LedgerBudget(config)
    assert 0 < of_study.epsilon_left < 3
    for _ in range(2):
        with pytest.raises(BudgetExhaustedError):
            of_study.pay(
                Fit("dp_gd", {}, Price.at_once(Cost(10**6, 10**12, of_study.account.square_limit(slack=False) + 1)))
            )
        of_study, of_none = of_none, of_study
    before = of_none.account
    fitted(of_study)
    assert of_none.account == before


# ── copies, and other processes ──────────────────────────────────────────────


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda budget: clone(budget, safe=False)])
def test_a_copy_is_the_budget_itself(config: Path, copied: Callable[[LedgerBudget], LedgerBudget]) -> None:
    budget = LedgerBudget(config)
    assert copied(budget) is budget
    assert clone(PrivateClassifier(budget=budget)).budget is budget


def test_a_saved_estimator_pays_again_and_predicts_without_a_ledger(config: Path, tmp_path: Path) -> None:
    saved = pickle.dumps(fitted(LedgerBudget(config)))
    model = pickle.loads(saved)  # noqa: S301 -- saved above
    model.fit(*examples())
    assert LedgerBudget(config).fits == model.budget.fits == 2
    assert b"PRIVATE KEY" not in saved
    config.rename(tmp_path / "moved.toml")
    model = pickle.loads(saved)  # noqa: S301 -- saved above
    assert len(model.predict(examples()[0])) == 60
    assert repr(model.budget) == f"LedgerBudget('{config}', which cannot be opened)"
    with pytest.raises(InvalidInputError, match=r"party\.toml"):
        model.fit(*examples())


@pytest.mark.long
def test_two_processes_that_pay_at_once_never_overspend(cluster: Cluster) -> None:
    """Of a budget for exactly 20 fits that add up."""
    config = settings_file(cluster, epsilon=2.0, delta=1e-5, composition="basic")
    budget, granted = LedgerBudget(config), [cluster.root / name for name in ("one", "other")]
    processes = [start_paying(budget, place) for place in granted]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    counts = [int(place.read_text()) for place in granted]
    print(f"two processes paid for {counts[0]} and {counts[1]} fits of a budget for 20")
    assert sum(counts) == budget.fits == 20
    with opened(config) as ledger:
        assert ledger.account().spent == PRICE.total * 20


@pytest.mark.long
def test_a_crash_after_the_charge_loses_the_fit_and_keeps_the_charge(config: Path) -> None:
    budget, once = LedgerBudget(config), PrivacyBudget(3.0, 1e-5)
    process = start_dying(budget)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    fitted(once)
    assert (budget.fits, budget.account.spent) == (1, once.account.spent)
    fitted(budget)
    assert budget.fits == 2


@nightly
def test_a_search_in_several_processes_pays_for_each_fit(config: Path) -> None:
    estimator = PrivateClassifier(bounds=(-1, 1), classes=(0, 1), epsilon=0.2, delta=1e-6, budget=LedgerBudget(config))
    search = GridSearchCV(estimator, {"fit_intercept": [True, False]}, cv=3, n_jobs=2).fit(*examples())
    assert search.best_estimator_.budget.fits == 2 * 3 + 1
