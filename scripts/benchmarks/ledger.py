"""The cost of a long ledger: to open it, checking every link, and to write one more answer into it.

    python -m scripts.benchmarks.ledger [--entries 100000]

One JSON line. ``open_seconds`` is what a party takes to read and check its whole ledger when it starts: the goal is at
most 3 for 100,000 entries. ``floor_seconds`` is what SHA-256 over and JSON out of the same bytes take in this process,
without a file; ``answer_ms`` what an answer of 50 numbers takes, its commit on the disk included; ``megabytes`` is what
the books take in memory.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import tempfile
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.privacy.account import Account, Cost, Price
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.secure_sum.session import Identity
from parley.common.wire.party_api import RunProposal
from parley.party.ledger.ledger import Ask, Ledger, create_ledger
from parley.party.ledger.records import Answered, to_json
from scripts.loopback import resident_mb

ROUNDS, BODY = 1_000, bytes(50 * 8)
LIMIT = Account(10**12, 10**18, composition="basic")
_RISING = tuple(range(1, ROUNDS + 1))
PRICE = Price(_RISING, _RISING, _RISING, _RISING)
SPEC = RunSpec(
    study=Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("no", "yes"))),
    algorithm="dp_gd",
    parameters={},
    parties=(Member(name="party", n_examples=1, budget=Budget(epsilon=1, delta=1e-5)),),
    minimum_contributors=1,
)


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description="What a long ledger costs to open and to write.")
    parser.add_argument("--entries", type=int, default=100_000, help="answers in the ledger (default: %(default)s)")
    entries: int = parser.parse_args().entries
    identity = Identity("party", Ed25519PrivateKey.generate())
    with tempfile.TemporaryDirectory(prefix="parley-ledger-") as name:
        write(Path(name), identity, entries)
        gc.collect()
        before, started = _resident(), time.perf_counter()
        with Ledger(Path(name), identity, LIMIT) as ledger:
            opened, megabytes = time.perf_counter() - started, _resident() - before
            floor = floor_of(ledger)
            answer = answer_ms(ledger)
    print(
        json.dumps(
            {
                "benchmark": "ledger",
                "entries": entries,
                "open_seconds": round(opened, 2),
                "floor_seconds": round(floor, 2),
                "ratio_to_floor": round(opened / floor, 2),
                "answer_ms": round(answer, 3),
                "megabytes": round(megabytes, 1),
            }
        )
    )


def write(directory: Path, identity: Identity, entries: int) -> None:
    """Write a ledger with ``entries`` answers, each as the party writes it, in one transaction a run."""
    create_ledger(directory, identity, "replace_one")
    with Ledger(directory, identity, LIMIT) as ledger:
        for run in range(-(-entries // ROUNDS)):
            ledger.consents.approve("learner", RunProposal(run=f"run-{run}", spec=SPEC), PRICE)
            with ledger.chain.transaction() as chain:
                for round in range(1, ROUNDS + 1):
                    query = hashlib.sha256(b"%d %d" % (run, round)).hexdigest()
                    cost = Cost(1, 1, 1, 1)
                    answered = Answered("learner", f"run-{run}", round, query, "gradient", cost, "replace_one")
                    chain.append(to_json(answered, int(time.time())), {"body": BODY})


def floor_of(ledger: Ledger) -> float:
    """Seconds to hash and read the same records in memory."""
    records = [record for _, record in ledger.records()]
    link, started = bytes(32), time.perf_counter()
    for record in records:
        link = hashlib.sha256(link + record).digest()
        json.loads(record)
    return time.perf_counter() - started


def answer_ms(ledger: Ledger, count: int = 200) -> float:
    """Return the milliseconds that one more answer takes."""
    ledger.consents.approve("learner", RunProposal(run="more", spec=SPEC), PRICE)
    started = time.perf_counter()
    for round in range(1, count + 1):
        ledger.rounds.answer(Ask("learner", "more", round, "0" * 64), lambda one_time: (BODY, one_time))
    return (time.perf_counter() - started) / count * 1000


def _resident() -> float:
    """Return this process's resident memory in megabytes."""
    import os  # noqa: PLC0415

    return resident_mb(os.getpid())


if __name__ == "__main__":
    main()
