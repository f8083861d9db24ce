"""Hamm, Cao & Belkin's figures on made-up parties: what a trial keeps, what noise it draws; that claims can fail."""

from __future__ import annotations

import asyncio
import csv
import json
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt

from parley.common.algorithms.ensemble import Ensemble
from parley.common.algorithms.parameter_average import ParameterAverage
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes, encode_classes
from parley.common.encoding.fixed_point import UNIT
from parley.common.learning.losses import Logistic, Loss, Softmax
from parley.common.privacy.calibration import gaussian_sigmas
from parley.common.privacy.noise import NoNoise, SeededNoise
from parley.common.protocol.driver import MemoryLog, drive
from parley.common.protocol.messages import Query
from parley.common.protocol.simulation import simulate
from scripts.figures import hamm, hamm_runs
from scripts.figures.claims.table import claims, items
from scripts.figures.curves import Curve, write
from scripts.figures.frame import Ruling
from scripts.figures.hamm import EPSILONS, KDD, KDD_PARTIES, PARTIES, PRINTED, RISKY_EPSILONS, Size, judge_theorem
from scripts.figures.hamm_data import Split, _dealt
from scripts.figures.hamm_plots import LINES
from scripts.figures.hamm_runs import (
    DELTA,
    LAMBDA,
    METHODS,
    Kept,
    Trial,
    accuracies,
    averages,
    excess_risks,
    noise_term,
    sampling_term,
)

FIGURES = {figure.name: figure for figure in hamm.FIGURES}
LOSSES = {"two classes": Logistic(), "three": Softmax(3)}


def made_up(loss: Loss, parties: int = 30, rows: int = 6) -> Split:
    """Rows about the corners of a simplex, one a class."""
    k, rng = max(2, loss.outputs), np.random.default_rng(1)

    def drawn(n: int) -> Shard:
        classes = rng.integers(k, size=n)
        X = 0.6 * np.eye(k + 1)[classes] + rng.normal(0, 0.15, (n, k + 1))
        return Shard(X, encode_classes(classes, k))

    owned = drawn(parties * rows)
    stack = Shard(owned.X.reshape(parties, rows, -1), owned.y.reshape(parties, rows))
    return Split(loss, stack, drawn(40).X, drawn(50))


@pytest.fixture(params=list(LOSSES.values()), ids=list(LOSSES))
def trial(request: pytest.FixtureRequest) -> Trial:
    return Trial(made_up(request.param))


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_what_is_kept_gives_the_models_that_a_simulation_gives(trial: Trial, name: str) -> None:
    method = METHODS[name]
    for epsilon in (1.0, 10.0):
        facts = trial.facts(epsilon)
        algorithm = method.build(facts)
        simulated = simulate(algorithm, trial.split.parties, facts, NoNoise())
        assert (trial.run(algorithm, epsilon, NoNoise()).weights == simulated.weights).all()


@pytest.mark.parametrize("name", ["vote, paper", "soft, paper", "soft, output_tight"])
def test_a_model_that_was_fitted_once_gets_the_noise_that_its_program_adds(trial: Trial, name: str) -> None:
    facts = trial.facts(1.0)
    algorithm = METHODS[name].build(facts)
    assert isinstance(algorithm, Ensemble)
    kept = Kept(algorithm, facts, trial.votes[0].reshape(-1), SeededNoise(3))
    model = asyncio.run(drive(algorithm.program(facts), kept, "figure", MemoryLog()))
    assert (trial.run(algorithm, 1.0, SeededNoise(3)).weights == model.weights).all()
    assert (trial.run(algorithm, 1.0, SeededNoise(4)).weights != model.weights).any()


def test_the_noise_of_all_is_drawn_at_once(trial: Trial) -> None:
    facts = trial.facts(1.0)
    algorithm = METHODS["vote, tight"].build(facts)
    assert isinstance(algorithm, Ensemble)
    total = trial.votes[0].reshape(-1)
    kept = Kept(algorithm, facts, total, SeededNoise(2))
    noise = [
        asyncio.run(kept.answer("", Query(1, "votes", trial.split.public))).value - total / UNIT for _ in range(30)
    ]
    times = 1 if facts.loss.outputs == 1 else 2
    needed = gaussian_sigmas(np.array(1.0), np.array(DELTA), math.sqrt(times * len(trial.split.public)))
    assert np.std(noise) == pytest.approx(needed, rel=0.15)  # of at least 1,200 draws: 7 deviations


def test_a_trial_has_all_lines_at_all_epsilons(trial: Trial) -> None:
    found = {(name, x) for name, x, value in accuracies(trial, 0, EPSILONS[:2], 1) if 0 <= value <= 1}
    private = LINES.keys() - {"batch", "individual"}
    assert found == {(name, x) for name in private for x in (0.0, *(1 / epsilon for epsilon in EPSILONS[:2]))} | {
        ("batch", 0.0),
        ("individual", 0.0),
    }


def test_both_alternatives_are_majorities_of_the_parties(trial: Trial) -> None:
    X, y = trial.split.test.X, trial.split.test.y
    facts = trial.facts(1.0)
    weights = trial.prepared(ParameterAverage(1e-4))[:, : facts.n_weights].reshape(-1, *facts.shape)
    scores = weights @ X.T
    chosen = scores.argmax(axis=1) if weights.ndim == 3 else (scores > 0).astype(int)
    k = max(2, trial.split.loss.outputs)
    winners = (chosen[..., None] == np.arange(k)).sum(axis=0)
    expected = ((winners[:, 1] >= winners[:, 0]) if k == 2 else winners.argmax(axis=1)) == decode_classes(y, k)
    assert trial.released(1e4, NoNoise()) == expected.mean()
    assert trial.answered(1e4, NoNoise()) == pytest.approx(expected.mean(), abs=0.1)  # votes for classes that are known
    assert trial.answered(0.01, SeededNoise(1)) < 0.8


def test_averages_differ_where_parties_lack_classes() -> None:
    ways = dict(averages(Trial(made_up(Softmax(3), rows=3))))
    assert {"batch", "individual", "vote", "soft", "average"} < ways.keys()
    assert ways["batch"] > ways["individual"]


@pytest.mark.slow
def test_the_excess_risk_falls_as_the_theorem_says() -> None:
    found = np.array(list(excess_risks(made_up(Logistic(), parties=64), 0, (16, 64), (1.0, 10.0), 200)))
    excess, bound = found[:, 2].reshape(2, 2, 200).mean(axis=-1), found[:, 3].reshape(2, 2, 200)[..., 0]
    assert (found[:, 2] >= 0).all()
    assert (found[:, 2] <= found[:, 3]).all()
    assert bound[0] == pytest.approx(16 * bound[1])
    assert bound[:, 0] == pytest.approx(100 * bound[:, 1])
    assert excess[0] == pytest.approx(16 * excess[1], rel=0.5)
    assert excess[:, 0] == pytest.approx(100 * excess[:, 1], rel=0.5)


def test_rows_are_dealt_once() -> None:
    parts = _dealt(3, 100, (30, 20))
    assert [len(part) for part in parts] == [30, 20, 50]
    assert sorted(np.concatenate(parts)) == list(range(100))
    assert (parts[0] != _dealt(4, 100, (30, 20))[0]).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_a_table_and_a_picture(name: str, tmp_path: Path) -> None:
    figure = replace(FIGURES[name], read=lambda _: CURVES[name]())
    assert {verdict.ruling for verdict in figure.redraw({}, tmp_path)} <= {Ruling.HOLDS, Ruling.VACUOUS}
    with (tmp_path / f"{name}.csv").open() as file:
        assert len(list(csv.DictReader(file))) == sum(len(curve.runs) for curve in CURVES[name]())
    assert len(np.unique(plt.imread(tmp_path / f"{name}.png")[..., :3].reshape(-1, 3), axis=0)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_what_trials_return_is_read_panel_by_panel(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    figure = FIGURES[name]
    split = made_up(Logistic() if "theorem4" in name else Softmax(3))
    monkeypatch.setattr(hamm_runs, "DRAWS", defaultdict(lambda: lambda _: split))
    arguments = {label: json.loads(point.arguments) for label, point in figure.quick.points.items()}
    fewer = {"epsilons": EPSILONS[:1], "repeat": 2, "parties": [10, 30]}
    results = {
        label: getattr(hamm_runs, figure.quick.points[label].function.split(":")[1])(
            **each | {key: value for key, value in fewer.items() if key in each}
        )
        for label, each in arguments.items()
    }
    curves = figure.read(results)
    assert {curve.panel for curve in curves} <= {panel for panel, _ in results} | {"HAR"}
    trials = len({number for _, number in results})
    assert all(len(runs) % trials == 0 for curve in curves for runs in curve.runs.values())


def test_the_table_has_mean_and_deviation(tmp_path: Path) -> None:
    write("1/epsilon", [Curve("p", "l", {0.0: np.array([0.5, 0.7])})], tmp_path / "table.csv")
    with (tmp_path / "table.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["runs"], row["mean"], row["sd"], row["bound"]) == ("2", "0.6", "0.141421", "")


def as_printed(panel: str, soft: float = 0.89) -> list[Curve]:
    """Made-up curves that confirm the claims: published noise harms votes, and neither soft labels nor averages."""
    private = {"vote, paper": 0.2, "soft, paper": soft, "average, paper": soft}
    curves = []
    for name in LINES:
        runs = {0.0: PRINTED.get(name, 0.8)}
        if name not in {"batch", "individual"}:
            runs |= dict.fromkeys((1 / epsilon for epsilon in EPSILONS), private.get(name, 0.95))
        curves.append(Curve(panel, name, {x: np.full(3, value) for x, value in runs.items()}))
    return curves


def as_printed_of_intrusions() -> list[Curve]:
    """The curves of each number of parties: the more there are, the better."""
    return [curve for i, m in enumerate(KDD_PARTIES) for curve in as_printed(f"KDD99, M = {m:,}", 0.885 + 0.005 * i)]


def risks(power: float = -2.0, bound: float = 1e3) -> list[Curve]:
    return [
        Curve(
            "",
            f"ε = {e:g}",
            {float(m): np.array([(m * e) ** power]) for m in PARTIES},
            {float(m): bound * (m * e) ** power for m in PARTIES},
        )
        for e in RISKY_EPSILONS
    ]


def ways() -> list[Curve]:
    named = {"average": 0.66, "average, one against the rest": 0.83, "average, intercept": 0.6, "batch": 0.9}
    return [Curve("HAR", name, {0.0: np.full(3, value)}) for name, value in named.items()]


CURVES: dict[str, Callable[[], list[Curve]]] = {
    "hamm_fig2": lambda: as_printed("HAR, M = 1,000"),
    "hamm_fig3": as_printed_of_intrusions,
    "hamm_fig4": lambda: as_printed("URL subset, M = 400"),
    "hamm_average": ways,
    "hamm_theorem4": risks,
}


def changed(name: str, line: str, value: float, x: float | None = None, panel: str = "") -> list[Curve]:
    """The curves of a figure, one of them at this value everywhere, or at one x."""
    return [
        replace(curve, runs={at: np.full(3, value) if x in {None, at} else runs for at, runs in curve.runs.items()})
        if curve.name == line and panel in curve.panel
        else curve
        for curve in CURVES[name]()
    ]


@pytest.mark.parametrize(
    ("name", "curves", "claim", "case"),
    [
        *(("hamm_fig2", changed("hamm_fig2", line, printed + 0.04, 0.0), "har-no-noise", line.split(",")[0])
          for line, printed in PRINTED.items()),
        ("hamm_fig2", changed("hamm_fig2", "soft, paper", 0.4, 1.0), "har-one", "soft"),
        ("hamm_fig2", changed("hamm_fig2", "soft, paper", 0.4, 0.1), "har-one", "soft"),
        ("hamm_fig2", changed("hamm_fig2", "average, paper", 0.4, 0.3), "har-one", "average"),
        ("hamm_fig2", changed("hamm_fig2", "vote, paper", 0.6, 0.1), "votes-too-sensitive", "HAR, M = 1,000"),
        ("hamm_fig2", changed("hamm_fig2", "average, tight", 0.6), "default-average", "HAR, M = 1,000"),
        ("hamm_fig2", changed("hamm_fig2", "vote, tight", 0.4, 10.0), "tight-vote", "HAR, M = 1,000"),
        ("hamm_fig3", changed("hamm_fig3", "soft, paper", 0.78, 10.0, KDD), "kdd-soft", "M = 20,000"),
        ("hamm_fig3", changed("hamm_fig3", "soft, paper", 0.78, 0.1, KDD), "kdd-soft", "M = 20,000"),
        ("hamm_fig3", changed("hamm_fig3", "soft, paper", 0.78, 1.0, KDD), "large-m", "no loss at ε = 1, M = 20,000"),
        ("hamm_fig3", changed("hamm_fig3", "soft, paper", 0.88, 1.0, "M = 10,000"), "large-m",
         "a larger M loses less, ε = 1"),
        ("hamm_fig3", changed("hamm_fig3", "soft, paper", 0.9, 10.0, "M = 5,000"), "large-m",
         "a larger M loses less, ε = 0.1"),
        ("hamm_fig3", changed("hamm_fig3", "vote, paper", 0.6, 0.3, KDD), "votes-too-sensitive", KDD),
        ("hamm_fig3", changed("hamm_fig3", "vote, tight", 0.4, 10.0, KDD), "tight-vote", KDD),
        ("hamm_fig4", changed("hamm_fig4", "vote, tight", 0.4, 1.0), "tight-vote", "URL, M = 400 (of 5,700 rows)"),
        ("hamm_average", changed("hamm_average", "average, one against the rest", 0.7), "averages", "HAR, M = 1,000"),
        ("hamm_theorem4", risks(-1.5), "order", "over M, ε = 1"),
        ("hamm_theorem4", risks(-1.5), "order", "over ε, M = 250"),
        ("hamm_theorem4", changed("hamm_theorem4", "ε = 1", 2e-6, 1000.0), "order", "over M, ε = 1"),
        ("hamm_theorem4", changed("hamm_theorem4", "ε = 1", 2e-6, 1000.0), "order", "over ε, M = 1,000"),
        ("hamm_theorem4", risks(bound=0.5), "theorem4-proof", "all M and ε"),
    ],
)  # fmt: skip
def test_each_claim_can_fail(name: str, curves: list[Curve], claim: str, case: str) -> None:
    before, after = (
        {(verdict.claim, verdict.case): verdict.ruling for verdict in FIGURES[name].judge(each)}
        for each in (CURVES[name](), curves)
    )
    assert before[f"hamm.{claim}", case] == Ruling.HOLDS
    assert after[f"hamm.{claim}", case] == Ruling.FAILS


def test_all_noise_up_to_the_printed_one_is_judged_and_none_beyond_it() -> None:
    curves = changed("hamm_fig2", "soft, paper", 0.4, 10.0)
    (verdict,) = [each for each in FIGURES["hamm_fig2"].judge(curves) if each.case == "soft" and "one" in each.claim]
    assert verdict.ruling == Ruling.HOLDS
    assert verdict.evidence == "0.890, 0.890, 0.890 at 1/ε = 0.1, 0.3, 1; individual 0.470"


def test_theorem_4_has_the_numbers_of_its_formula_and_says_nothing_at_the_experiments_settings() -> None:
    assert noise_term(300, 1000, 10.0, LAMBDA) == pytest.approx(6.8e6, rel=0.01)
    assert noise_term(300, 1000, 1.0, LAMBDA) == pytest.approx(6.8e8, rel=0.01)
    assert noise_term(123, 20_000, 10.0, LAMBDA) == pytest.approx(2307, abs=0.5)
    assert noise_term(123, 20_000, 1.0, LAMBDA) == pytest.approx(2.3e5, rel=0.01)
    assert sampling_term(1000, LAMBDA) == pytest.approx(5599, abs=0.5)
    assert sampling_term(43_000, LAMBDA) == pytest.approx(130, abs=0.5)
    by_hand = 4 * 300**2 * (0.25 + 1e-4) * math.log(300 / 0.05) ** 2 / (1e-4**2 * 1000**2 * 10**2)
    assert noise_term(300, 1000, 10.0, LAMBDA) == pytest.approx(by_hand)
    verdicts = list(judge_theorem())
    assert {verdict.ruling for verdict in verdicts} == {Ruling.VACUOUS}
    assert [verdict.case for verdict in verdicts] == ["HAR, ε = 10", "HAR, ε = 1", "KDD99, ε = 10", "KDD99, ε = 1"]


def test_a_bound_that_says_something_is_not_called_vacuous_nor_said_to_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hamm, "THEOREM", (Size("large", 123, 10**8, 10**9, 2),))
    assert not list(judge_theorem())


@pytest.mark.parametrize(
    ("losses", "spread", "ruling"),
    [
        ((0.3, 0.2, 0.1), 0.05, Ruling.HOLDS),
        ((0.3, 0.2, 0.1), 0.2, Ruling.UNTOLD),
        ((0.1, 0.2, 0.3), 0.05, Ruling.FAILS),
        ((0.3, 0.3, 0.3), 0.05, Ruling.UNTOLD),
        ((0.3, 0.4, 0.1), 0.05, Ruling.FAILS),
        ((0.3, 0.32, 0.1), 0.05, Ruling.HOLDS),
        ((0.1, 0.15, 0.2), 0.05, Ruling.FAILS),
    ],
)
def test_a_loss_falls_or_rises_by_more_than_two_standard_errors_or_it_cannot_be_told(
    losses: tuple[float, ...], spread: float, ruling: Ruling
) -> None:
    batch = Curve("", "batch", {0.0: np.full(3, 0.9)})
    errors = np.array([-spread, 0.0, spread])  # of a mean of three: spread / sqrt 3
    lines = [(batch, Curve("", "soft, paper", {1.0: 0.9 - loss + errors})) for loss in losses]
    verdict = hamm._over_parties(1.0, lines)
    assert (verdict.ruling, verdict.cause) == (ruling, "parley" if ruling == Ruling.UNTOLD else "")
    assert bool(verdict.why) == (ruling == Ruling.UNTOLD)
    fall, error = losses[0] - losses[2], spread * math.sqrt(2 / 3)
    assert verdict.evidence.endswith(f"it falls by {fall:.3f}, with a standard error of {error:.3f}")


def test_little_is_a_quarter_of_the_gap_from_individual_to_batch() -> None:
    little = (0.9 - PRINTED["individual"]) / 4
    for loss, ruling in ((little - 0.001, Ruling.HOLDS), (little + 0.001, Ruling.FAILS)):
        verdicts = list(FIGURES["hamm_fig3"].judge(changed("hamm_fig3", "soft, paper", 0.9 - loss, 1.0, KDD)))
        by_case = {(verdict.claim, verdict.case): verdict for verdict in verdicts}
        nearly = by_case["hamm.kdd-soft", "M = 20,000"]
        assert by_case["hamm.large-m", "no loss at ε = 1, M = 20,000"].ruling == nearly.ruling == ruling
        assert nearly.evidence.startswith("batch 0.900, individual 0.470, a quarter of the gap 0.1075; soft labels 0.8")
        assert nearly.evidence.endswith(f": 0.005, 0.005, {loss:.3f}, 0.005, 0.005 below batch")


def test_each_verdict_is_of_an_entry_and_each_entry_has_one_or_waits() -> None:
    entries = {key: claim for key, claim in claims().items() if claim.paper == "hamm"}
    judged = {verdict.claim for name, figure in FIGURES.items() for verdict in figure.judge(CURVES[name]())}
    assert judged == {key for key, claim in entries.items() if not claim.waits}
    assert {key.split(".")[1] for key, claim in entries.items() if claim.by == "parley"} == {
        "averages", "default-average", "tight-vote",
    }  # fmt: skip


def test_the_papers_items_stand_where_they_are() -> None:
    mine = [item for item in items() if item.paper == "hamm"]
    assert len(mine) == 24
    assert [item.item.split(":")[0] for item in mine if item.standing not in {"works", "vacuous"}] == ["URL"]


def test_the_papers_sizes_are_measured_in_full_and_fewer_rows_in_a_quick_run() -> None:
    figure = FIGURES["hamm_fig3"]
    for sweep, ending in ((figure.full, ""), (figure.quick, ", reduced")):
        splits = {json.loads(point.arguments)["split"] for point in sweep.points.values()}
        assert splits == {f"kdd99 of {m}{ending}" for m in KDD_PARTIES}
