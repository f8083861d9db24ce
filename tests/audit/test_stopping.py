"""A learner that stops a run by what it sees gets no more than the budget, for every composition and end.

The adversary watches the privacy loss of its canary, a random walk of Gaussian steps, and after each answer may stop
the run and spend what is left of the budget on a second one, pure or Gaussian. Its delta at the budget's epsilon is the
value of an optimal stopping problem, solved backwards on a grid of losses. The law of the loss is the worst that a
Gaussian release has, so what is computed is the true delta and no estimate: nothing is sampled here.

So it is with what an account says is spent: the adversary stops where the loss is above it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.special import log_ndtr

from parley.common.algorithms import build_algorithm
from parley.common.arrays import FloatArray
from parley.common.errors import BudgetExhaustedError
from parley.common.learning.losses import Logistic
from parley.common.privacy.account import MICRO, SQUARE_UNITS, Account, Cost, Price, limit
from parley.common.privacy.calibration import gaussian_epsilon, gaussian_mu
from parley.common.privacy.events import GaussianEvent, LaplaceEvent
from parley.common.privacy.guarantee import Composition
from parley.common.privacy.odometer import odometer
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.pricing import price, price_at_once
from parley.common.wire.party_api import RunProposal
from parley.party.ledger.audit import export, verify
from parley.party.ledger.books import Books
from parley.party.ledger.ledger import Ask
from parley.party.ledger.records import Answered, Approved, Begun, Ended, Entry, LedgerRecord, Limited, Released
from tests.support.cluster import Cluster
from tests.support.ledgers import open_ledger
from tests.support.rounds import run_spec

EPSILON, DELTA = 1.0, 1e-5
LOSSES = np.arange(-1.6, 2.2, 2.5e-4)
"""The canary's losses, on a grid."""
PURE = np.arange(0, MICRO + 1, 2_500)
"""The epsilons of a second, pure run that are tried, in micro-units."""
QUADRATURE = 1e-3
"""Relative, of all steps on the grid."""

Value = Callable[[int], FloatArray]
"""The delta of stopping after so many rounds, by loss so far."""


# ── the adversary ────────────────────────────────────────────────────────────


def delta_of(step: float, rounds: int, stopped: Value) -> float:
    """The delta of a learner that sees up to ``rounds`` Gaussian answers of this mu, and stops where it pays best."""
    value = stopped(rounds)
    for round in range(rounds - 1, -1, -1):
        value = np.maximum(expected(value, step, LOSSES[1] - LOSSES[0]), stopped(round))
    return float(np.interp(0.0, LOSSES, value))


def expected(value: FloatArray, step: float, width: float) -> FloatArray:
    """The mean of what follows after a Gaussian answer of this mu, by the loss before it, on a grid of this width."""
    reach = math.ceil(12 * step / width)
    moves = width * np.arange(-reach, reach + 1)
    law = np.exp(-((moves + step**2 / 2) ** 2) / (2 * step**2))  # of minus a step: a convolution turns it round
    law /= law.sum()
    return fftconvolve(np.concatenate([np.full(reach, value[0]), value, np.full(reach, value[-1])]), law, mode="valid")


def with_laplace(epsilon: float) -> FloatArray:
    """The delta at the budget's epsilon after a pure run of ``epsilon``, by the loss before it."""
    left = EPSILON - LOSSES
    inside = -np.expm1((left - epsilon) / 2)
    return np.clip(np.where(left <= -epsilon, -np.expm1(left), inside), 0.0, 1.0)


def with_gaussian(mu: float) -> FloatArray:
    """The same after a Gaussian run."""
    if mu == 0:
        return with_laplace(0.0)
    left = EPSILON - LOSSES
    return np.exp(log_ndtr(mu / 2 - left / mu)) - np.exp(left + log_ndtr(-mu / 2 - left / mu))


# ── the ledger ───────────────────────────────────────────────────────────────

Stop = Literal["learner", "owner", "expired", "failed", "released", "paused"]
STOPS: tuple[Stop, ...] = get_args(Stop)
"""How a run stops: it is ended by one of four, its reservation is released, or nothing more is asked."""
PURE_COSTS = [price_at_once(LaplaceEvent(float(each) / MICRO), 1e9, 0.0).total if each else Cost(0, 0) for each in PURE]


def facts(epsilon: float, delta: float) -> FederationFacts:
    """Of two parties."""
    sizes = np.array([200, 200])
    return FederationFacts.uniform(sizes, epsilon=epsilon, delta=delta, n_features=4, loss=Logistic())


def run_of(rounds: int, epsilon: float, delta: float) -> tuple[float, Price]:
    """The mu of a round of descent for a budget, and the run's price."""
    algorithm, own = build_algorithm("dp_gd", {"n_rounds": rounds}), facts(epsilon, delta).of(0)
    event = algorithm.event(1, own)
    assert isinstance(event, GaussianEvent)
    return event.mu, price(algorithm, own)


def running(mu: float, rounds: int, delta: float = DELTA) -> float:
    """The epsilon of so many rounds at a run's delta."""
    return gaussian_epsilon(mu * math.sqrt(rounds), delta)


def accounts(due: Price, composition: Composition, stop: Stop) -> tuple[Account, ...]:
    """The account after each count of a run's answers, if it stops then; from the books of a ledger."""
    whole = limit(EPSILON, DELTA, composition=composition)
    begun = Begun("party", "key", "nonce", {}, Cost(0, 0), "replace_one")
    limited = Limited(whole.epsilon_limit, whole.delta_limit, "replace_one", composition)
    run = Approved("ann", "run", "", "", "", "dp_gd", "", "none", len(due.epsilon), due.total, "replace_one", 50)
    found = []
    for count in range(len(due.epsilon) + 1):
        answers = [
            Answered("ann", "run", round, "", "", due.step(round, round - 1), "replace_one")
            for round in range(1, count + 1)
        ]
        ends: list[LedgerRecord] = []
        if stop == "released":
            ends = [Released("ann", "run")]
        elif stop != "paused":
            ends = [Ended("ann", "run", stop, due.remaining(count) if stop == "failed" else Cost(0, 0))]
        books = Books()
        for number, record in enumerate([begun, limited, run, *answers, *ends], 1):
            books.add(Entry(number, number, record))
        found.append(books.account)
    return tuple(found)


def best_after(account: Account) -> FloatArray:
    """The delta of stopping where an account stands, by the loss so far: a pure run, or a Gaussian one."""
    pure = max(i for i, cost in enumerate(PURE_COSTS) if not i or account.fits(cost))
    epsilon, delta = account.epsilon_left, account.delta_left
    mu = gaussian_mu(epsilon, delta) if epsilon > 0 and delta > 0 else 0.0
    return np.maximum(with_laplace(PURE[pure] / MICRO), with_gaussian(mu))


# ── audits ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("rounds", "times"), [(2, 1.34), (10, 2.63), (100, 5.0), (1000, 7.0)])
def test_this_finds_that_a_refund_of_the_running_epsilon_breaks_the_budget(rounds: int, times: float) -> None:
    """The control: basic composition as it was, where each round was charged what it added to epsilon."""
    mu, _ = run_of(rounds, EPSILON, DELTA)
    found = delta_of(mu, rounds, lambda round: with_laplace(EPSILON - running(mu, round))) / DELTA
    print(f"{rounds} rounds: {found:.3f} x delta")
    assert found == pytest.approx(times, rel=0.01)


def beyond(readings: Sequence[float]) -> Value:
    """The delta of a learner that reads the account when it stops: what the reading does not cover, by loss so far."""
    return lambda round: np.maximum(0, -np.expm1(readings[round] - LOSSES))


@pytest.mark.parametrize(("rounds", "times"), [(100, 9.7), (1000, 13.8)])
def test_a_nonadaptive_figure_is_no_promise(rounds: int, times: float) -> None:
    """To a learner that stops above it: hence the words beside that figure, and an odometer."""
    mu, _ = run_of(rounds, EPSILON, DELTA)
    found = delta_of(mu, rounds, beyond([running(mu, round) for round in range(rounds + 1)])) / DELTA
    print(f"{rounds} rounds: {found:.3f} x delta")
    assert found == pytest.approx(times, rel=0.01)


@pytest.mark.parametrize("composition", ["filter", "basic"])
@pytest.mark.parametrize("rounds", [2, 100, 1000])
def test_what_an_account_says_is_spent_holds_whenever_it_is_read(composition: Composition, rounds: int) -> None:
    mu, due = run_of(rounds, EPSILON, DELTA)
    empty = limit(EPSILON, DELTA, composition=composition)
    standing = [empty.charge(due.total - due.remaining(round)) for round in range(rounds + 1)]
    readings = [account.epsilon_spent for account in standing]
    found = delta_of(mu, rounds, beyond(readings)) / DELTA
    halved = delta_of(mu, rounds, beyond([reading / 2 for reading in readings])) / DELTA
    print(f"{composition}, {rounds} rounds: {found:.3f} x delta, and {halved:.0f} x delta by half of the reading")
    assert found <= 1 + QUADRATURE
    assert halved > 10
    if composition == "filter":
        assert readings[-1] < 1.21 * standing[-1].epsilon_nonadaptive, "and it is not much more than that figure"


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 1.19), (5.0, 1.16)])
def test_no_odometer_is_much_closer(epsilon: float, least: float) -> None:
    """If it is the same multiple of the nonadaptive figure, from 1 % to 100 % of the budget."""
    square, sizes = gaussian_mu(epsilon, DELTA) ** 2, np.geomspace(0.01, 1.0, 181)
    readings = [least * gaussian_epsilon(math.sqrt(square * size), DELTA) for size in sizes]
    losses = np.arange(-2.0, 2 * readings[-1], 0.002)
    value = np.maximum(0, -np.expm1(readings[-1] - losses))
    for number in range(len(sizes) - 1, -1, -1):
        value = np.maximum(value, -np.expm1(readings[number] - losses))
        step = math.sqrt(square * (sizes[number] - (sizes[number - 1] if number else 0.0)))
        value = expected(value, step, 0.002)
    found = float(np.interp(0.0, losses, value)) / DELTA
    print(f"{least} x the nonadaptive figure of ({epsilon}, {DELTA}): {found:.3f} x delta")
    assert found > 1


@pytest.mark.parametrize("epsilon", [0.002, 0.02, 0.05])
def test_it_holds_for_pure_answers_that_a_gaussian_run_may_follow(epsilon: float) -> None:
    """Randomized responses, whose losses are the worst; a Gaussian answer ends what simply adds up, and their sum."""
    due, mu = price_at_once(LaplaceEvent(epsilon), epsilon, 0.0).total, 0.1
    then = price_at_once(GaussianEvent(mu), gaussian_epsilon(mu, DELTA / 2), DELTA / 2).total
    standing: list[Account] = []
    empty = limit(EPSILON, DELTA)
    while empty.fits(due * len(standing) + then) and len(standing) < 300:
        standing.append(replace(empty, spent=due * len(standing)))
    assert len(standing) > 3
    assert standing[1].epsilon_spent == due.epsilon / MICRO < odometer(due.gdp / SQUARE_UNITS, DELTA)

    def found(part: float) -> float:
        value = np.zeros(len(standing))
        for count in range(len(standing) - 1, -1, -1):
            losses = epsilon * (2 * np.arange(count + 1) - count)
            answered = standing[count].charge(then).epsilon_spent * part - losses
            stopped = -np.expm1(standing[count].epsilon_spent * part - losses)
            asked = np.exp(log_ndtr(mu / 2 - answered / mu)) - np.exp(answered + log_ndtr(-mu / 2 - answered / mu))
            likely = 1 / (1 + math.exp(-epsilon))  # that the loss grows
            more = likely * value[1:] + (1 - likely) * value[:-1] if count + 1 < len(standing) else 0.0
            value = np.maximum(np.maximum(stopped, asked), more)
        return float(value[0]) / DELTA

    print(f"pure answers of {epsilon}: {found(1):.3f} x delta, and {found(0.5):.0f} x delta by half of the reading")
    assert found(1) <= 1 + QUADRATURE
    assert found(0.5) > 10


@pytest.mark.parametrize("composition", ["filter", "basic"])
@pytest.mark.parametrize("rounds", [2, 10, 100])
@pytest.mark.parametrize("part", [1.0, 0.5])
def test_who_stops_by_what_it_sees_gets_no_more_than_the_budget(
    composition: Composition, rounds: int, part: float
) -> None:
    mu, due = run_of(rounds, EPSILON * part, DELTA * part)
    totals = tuple(math.ceil(running(mu, round, DELTA * part) * MICRO) for round in range(1, rounds + 1))
    older = replace(due, epsilon=totals)  # as older versions priced it, in a ledger that they wrote
    assert older.total.epsilon == pytest.approx(due.total.epsilon, abs=1)
    results: dict[tuple[Account, ...], float] = {}
    for stop, price_list in product(STOPS, (due, older)):
        standing = accounts(price_list, composition, stop)
        if standing in results:
            continue
        values = {account: best_after(account) for account in set(standing)}
        results[standing] = delta_of(mu, rounds, [values[account] for account in standing].__getitem__) / DELTA
        print(f"{composition}, {rounds} rounds of {part} of the budget, {stop}: {results[standing]:.4f} x delta")
    assert max(results.values()) <= 1 + QUADRATURE


@pytest.mark.parametrize("composition", ["filter", "basic"])
@pytest.mark.parametrize("stop", STOPS)
def test_a_ledger_refuses_to_spend_elsewhere_what_a_stopped_run_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, composition: Composition, stop: Stop
) -> None:
    mu, due = run_of(100, EPSILON, DELTA)
    saved = EPSILON - running(mu, 10)
    assert saved == pytest.approx(0.7155, abs=1e-3)
    spec = run_spec(Cluster(tmp_path / "cluster", n_parties=2))
    budget = limit(EPSILON, DELTA, composition=composition)
    with open_ledger(tmp_path / "ledger", budget) as ledger:
        ledger.consents.approve("ann", RunProposal(run="run", spec=spec), due)
        for round in range(1, 11):
            ledger.rounds.answer(Ask("ann", "run", round, "query"), lambda kept: (b"answer", kept))
        match stop:
            case "learner" | "owner":
                ledger.consents.end("ann", "run", stop)
            case "expired":
                monkeypatch.setattr("parley.party.ledger.ledger._now", lambda: int(time.time()) + 400 * 86_400)
                ledger.chain.expire()
            case "failed":
                ledger.consents.fail("ann", "run")
            case "released":
                ledger.consents.release("ann", "run")
        assert ledger.books.runs["ann", "run"].ended == (None if stop in {"released", "paused"} else stop)
        pure = price_at_once(LaplaceEvent(saved), saved, 0.0)
        with pytest.raises(BudgetExhaustedError):
            ledger.consents.approve("ann", RunProposal(run="second", spec=spec), pure)


def test_a_ledger_that_charged_round_by_round_opens_and_gives_nothing_back(tmp_path: Path) -> None:
    """As older versions wrote it: the run goes on at its old price, an audit of it holds, and what it saved is gone."""
    mu, due = run_of(100, EPSILON, DELTA)
    older = replace(due, epsilon=tuple(math.ceil(running(mu, round) * MICRO) for round in range(1, 101)))
    spec, budget = run_spec(Cluster(tmp_path / "cluster", n_parties=2)), limit(EPSILON, DELTA, composition="basic")
    second = price_at_once(LaplaceEvent(0.7), 0.7, 0.0)
    with open_ledger(tmp_path / "ledger", budget) as ledger:
        ledger.consents.approve("ann", RunProposal(run="run", spec=spec), older)
        for round in range(1, 11):
            ledger.rounds.answer(Ask("ann", "run", round, "query"), lambda kept: (b"answer", kept))
        assert sum(each.cost.epsilon for each in ledger.answers()) == older.epsilon[9] < 0.3 * MICRO
    with open_ledger(tmp_path / "ledger", budget) as ledger:
        assert (ledger.account().spent.epsilon, ledger.account().reserved.epsilon) == (older.total.epsilon, 0)
        ledger.rounds.answer(Ask("ann", "run", 11, "query"), lambda kept: (b"answer", kept))
        ledger.consents.end("ann", "run")
        assert ledger.account().spent.epsilon == older.total.epsilon
        with pytest.raises(BudgetExhaustedError):
            ledger.consents.approve("ann", RunProposal(run="second", spec=spec), second)
        assert verify(export(ledger), ledger.identity.key)[0]
