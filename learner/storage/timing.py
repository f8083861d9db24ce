"""Predicts how long a round takes, so that a run uses its user's time for as many rounds as fit.

The prediction is the median round of an earlier run of the same kind; without one it is an estimate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from parley.common.algorithms import MOST_ROUNDS
from parley.common.client.peer import ask_all
from parley.common.errors import DamagedError, ParleyError
from parley.common.secure_sum.packing import Layout
from parley.learner.runs.run import decoding_row

if TYPE_CHECKING:
    from parley.common.client.party import PartyClient
    from parley.common.runs.specification import RunSpec
    from parley.learner.storage.run_store import RunStore

_TRIPS = 3
_RUNS = 20  # how many of the newest runs are searched for one like it
_MS_PER_PRODUCT = 2e-6  # of a number of the shard with a weight, twice a round: about 1e9 a second
_MS_PER_CIPHERTEXT = 30.0  # to draw what blinds it and to open it, of 3,072 bits on one core
_KEY_BITS = 3072


@dataclass(frozen=True, slots=True)
class RoundTime:
    """Milliseconds that a round takes, None if unknown, and in words the ``basis`` of this number.

    ``ms_per_row`` is by how much it would be longer if each person had one more row: 0 of a time that was measured, and
    of records.
    """

    ms: float | None
    basis: str
    ms_per_row: float = 0.0

    def rounds_in(self, seconds: float) -> int:
        """Return how many rounds fit in so many seconds, at least 1; `MOST_ROUNDS` if a round's time is unknown."""
        return max(1, min(MOST_ROUNDS, int(seconds * 1000 / self.ms))) if self.ms else MOST_ROUNDS

    def if_each_has(self, rows: float) -> RoundTime:
        """Return the time if each person has so many rows in the mean, which is a guess: no party tells."""
        if self.ms is None or not self.ms_per_row:
            return self
        return RoundTime(
            self.ms + (rows - 1) * self.ms_per_row,
            f"{self.basis}, at a guess of {rows:g} row{'s' * (rows != 1)} a person",
        )


UNKNOWN = RoundTime(None, "not known: the owners are not those of the roster")


async def round_time(spec: RunSpec, parties: Sequence[PartyClient], store: RunStore, seconds: float) -> RoundTime:
    """Return the median round of the newest run like this, or estimate it by a few bare round trips to its parties now.

    The estimate adds the work on the largest shard and on the ciphertexts of a secure sum on a usual machine.
    """
    if (earlier := await asyncio.to_thread(_earlier, spec, store)) is not None:
        run, ms = earlier
        return RoundTime(ms, f"the median round of run {run}")
    trips = [await _trip(parties, seconds) for _ in range(_TRIPS)]
    reached = [trip for trip in trips if trip is not None]
    if len(reached) < _TRIPS:
        return RoundTime(None, "not known: not all parties can be reached")
    of_rows, of_sum = work_ms(spec)
    return RoundTime(
        median(reached) + of_rows + of_sum,
        f"an estimate: {_TRIPS} bare round trips to all parties at once, just now, and the work of a usual machine",
        of_rows if spec.study.unit == "person" else 0.0,
    )


def work_ms(spec: RunSpec) -> tuple[float, float]:
    """Estimate how many ms one core takes in a round: for one row of each example of the largest shard, and for a sum.

    The second are for the ciphertexts of a secure sum; 0 without.
    """
    facts = spec.facts()
    products = int(facts.n_examples.max()) * facts.n_weights * _MS_PER_PRODUCT
    if spec.secure_sum == "none":
        return products, 0.0
    return products, Layout(facts.n_weights, _KEY_BITS).blocks * _MS_PER_CIPHERTEXT


def _earlier(spec: RunSpec, store: RunStore) -> tuple[str, float] | None:
    """Find the newest completed run of these parties, algorithm, study and kind of sum, and its median ms a round."""
    for run in store.newest(_RUNS).runs:
        with suppress(DamagedError), decoding_row("events", run.id):  # a damaged run must not stop this one
            if run.state == "completed" and _kind(run.spec) == _kind(spec):
                return run.id, median(event.news["ms"] for event in store.events(run.id) if event.kind == "round")
    return None


def _kind(spec: RunSpec) -> tuple[object, ...]:
    """Return what a round's time depends on."""
    return spec.names, spec.algorithm, spec.study.digest, spec.secure_sum


async def _trip(parties: Sequence[PartyClient], seconds: float) -> float | None:
    """Return how many ms all parties take to answer a request without work; None if one does not answer."""
    started = time.perf_counter()
    outcomes = await ask_all(parties, lambda party: party.greet(), seconds)
    return (
        None
        if any(isinstance(outcome, ParleyError) for outcome in outcomes)
        else (time.perf_counter() - started) * 1000
    )
