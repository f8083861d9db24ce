"""What a run would achieve, cost and take, before it is run: from public facts and figures, no data.

The figures are those of `common.forecast.forecast`, and the charges those of `common.runs.pricing`. The service adds
what it alone can find out: the sizes of its parties' shards, their adversary views, what is left in their ledgers, and
how long a round takes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from statistics import median

import numpy as np

from common.client.approval import gather_facts, with_sizes
from common.client.party import PartyClient
from common.client.peer import ask_all
from common.errors import BudgetExhaustedError, ParleyError
from common.forecast.forecast import Forecast, NoForecast, forecast
from common.privacy.account import DELTA_UNITS, MICRO, Cost
from common.privacy.guarantee import View
from common.protocol.algorithm import Algorithm
from common.protocol.facts import FederationFacts
from common.runs.pricing import highest_charge
from common.runs.specification import RunSpec
from common.wire.party_api import BudgetReport
from learner.forecasting.views import ForecastView, IntervalView, OutcomeView, OwnerView, RunTime
from learner.storage.run_store import RunStore

_TRIPS = 3
_RUNS = 20  # how many of the newest runs are searched for one like it


async def foresee_owners(draft: RunSpec, sizes: Mapping[str, int]) -> ForecastView:
    """The forecast of a run among owners of these sizes, of whom nobody is asked; raises InvalidInputError."""
    unknown = RunTime(seconds=None, ms_per_round=None, basis="not known: the owners are not those of the roster")
    return await _foresee(with_sizes(draft, sizes), {}, {}, unknown)


async def foresee_parties(
    draft: RunSpec, parties: Sequence[PartyClient], store: RunStore, seconds: float
) -> ForecastView:
    """The forecast of a run among parties, who are asked for their sizes and budgets, for so many ``seconds`` at most.

    Raises what `gather_facts` raises, and InvalidInputError. Parties that report no budget are skipped.
    """
    spec, views = await gather_facts(parties, draft, seconds)
    reports = dict(zip(spec.names, await ask_all(parties, PartyClient.budget, seconds), strict=True))
    told = {name: report for name, report in reports.items() if isinstance(report, BudgetReport)}
    return await _foresee(spec, views, told, await _run_time(spec, parties, store, seconds))


async def _foresee(
    spec: RunSpec, views: Mapping[str, View], budgets: Mapping[str, BudgetReport], run_time: RunTime
) -> ForecastView:
    """The forecast of a run; in a thread, for of a thousand owners it takes a second."""
    algorithm, facts = spec.build(), spec.facts()
    answer = await asyncio.to_thread(_forecast, algorithm, facts)
    charges = await asyncio.to_thread(_charges, algorithm, facts, views)
    return ForecastView(
        algorithm=spec.algorithm,
        parameters=spec.parameters,
        rounds=len(spec.questions()),
        outcome=OutcomeView.of(answer) if isinstance(answer, Forecast) else None,
        no_forecast=answer.reason if isinstance(answer, NoForecast) else None,
        owners=tuple(_owners(spec, facts, answer, charges, budgets)),
        run_time=run_time,
    )


def _forecast(algorithm: Algorithm, facts: FederationFacts) -> Forecast | NoForecast:
    """The forecast; of noise beyond the range of numbers, without figures."""
    with np.errstate(all="ignore"):
        return forecast(algorithm, facts)


def _charges(algorithm: Algorithm, facts: FederationFacts, views: Mapping[str, View]) -> dict[str, Cost]:
    """What the run would be charged to each owner at most, by name; empty for a run without noise.

    An owner without a view is given the transcript's, the parties' default.
    """
    try:
        return {
            name: highest_charge(algorithm, facts.of(index), views.get(name, "transcript"))
            for index, name in enumerate(facts.parties)
        }
    except BudgetExhaustedError:
        return {}


def _owners(
    spec: RunSpec,
    facts: FederationFacts,
    answer: Forecast | NoForecast,
    charges: Mapping[str, Cost],
    budgets: Mapping[str, BudgetReport],
) -> Iterator[OwnerView]:
    """What the run means to each."""
    deltas = facts.everyone.own_delta.tolist()
    forecasts = answer.owners if isinstance(answer, Forecast) else repeat(None)
    for member, delta, found in zip(spec.parties, deltas, forecasts, strict=False):
        cost = charges.get(member.name)
        now = budgets[member.name].account if member.name in budgets else None
        fits = None if now is None or cost is None else now.bears(cost)
        yield OwnerView(
            name=member.name,
            n_examples=member.n_examples,
            epsilon=cost and cost.epsilon / MICRO,
            delta=cost.delta / DELTA_UNITS if cost else delta,
            epsilon_now=now and now.epsilon_left,
            epsilon_left=now.charge(cost).epsilon_left if now and cost and fits else None,
            fits=fits,
            value=found and found.value,
            recommended=found and found.recommended,
            alone=found and IntervalView.of(found.alone),
            worth_joining=found and found.worth_joining,
        )


async def _run_time(spec: RunSpec, parties: Sequence[PartyClient], store: RunStore, seconds: float) -> RunTime:
    """How long the run takes by the newest run like it, or at least, by a few bare round trips to its parties."""
    rounds = len(spec.questions())
    if (earlier := await asyncio.to_thread(_earlier, spec, store)) is not None:
        run, ms = earlier
        return RunTime(seconds=rounds * ms / 1000, ms_per_round=ms, basis=f"the median round of run {run}")
    if spec.secure_sum != "none":
        return RunTime(seconds=None, ms_per_round=None, basis="not known: no run like it has had a secure sum yet")
    trips = [await _trip(parties, seconds) for _ in range(_TRIPS)]
    if None in trips:
        return RunTime(seconds=None, ms_per_round=None, basis="not known: not all parties can be reached")
    ms = median(trip for trip in trips if trip is not None)
    basis = f"the median of {_TRIPS} bare round trips to all parties at once, just now: a run takes at least this"
    return RunTime(seconds=rounds * ms / 1000, ms_per_round=ms, basis=basis)


def _earlier(spec: RunSpec, store: RunStore) -> tuple[str, float] | None:
    """The newest completed run of the same parties, algorithm, study and kind of sum, and its median ms a round."""
    for run in store.newest(_RUNS):
        if run.state == "completed" and _kind(run.spec) == _kind(spec):
            return run.id, median(
                json.loads(event.data)["ms"] for event in store.events(run.id) if event.kind == "round"
            )
    return None


def _kind(spec: RunSpec) -> tuple[object, ...]:
    """What a round's time depends on."""
    return spec.names, spec.algorithm, spec.study.digest, spec.secure_sum


async def _trip(parties: Sequence[PartyClient], seconds: float) -> float | None:
    """How many ms all parties take to answer a request for nothing; None where one does not."""
    started = time.perf_counter()
    outcomes = await ask_all(parties, PartyClient.greet, seconds)
    return (
        None
        if any(isinstance(outcome, ParleyError) for outcome in outcomes)
        else (time.perf_counter() - started) * 1000
    )
