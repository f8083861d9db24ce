"""The cost of one secure sum: a JSON line for each number of values d, and of cores.

``online_ms`` is one party's answer, all the learner does with ten contributions, and one key holder's opening, with
obfuscators drawn ahead; ``party_offline_ms`` is the drawing, on one core. ``floor_ms`` is the time of the bare
modular exponentiations of the online part, two of half size a ciphertext, on the same cores. ``naive_ms`` is `phe` a
coordinate at a time and nothing drawn ahead, on one core, measured on ``naive_sample`` coordinates and scaled to d.
All are medians of wall time over ``turns``, and each turn measures all of them; byte counts are frames as they
travel.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import gmpy2
import numpy as np
from phe import PaillierPrivateKey, PaillierPublicKey

from parley.common.secure_sum.in_process import LocalSession
from parley.common.secure_sum.keyholder import KeyHolderRole
from parley.common.secure_sum.messages import SumQuery
from parley.common.secure_sum.paillier import decrypt_blocks, generate_key, make_obfuscators

PARTIES = 10
NAIVE_SAMPLE = 10
random_bytes = random.SystemRandom().randbytes


class Stock:
    """Hands out the same obfuscators again and again: only here, where nothing is to be kept secret."""

    def __init__(self, obfuscators: Sequence[int]) -> None:
        self._obfuscators = obfuscators

    def take(self, key: PaillierPublicKey, count: int) -> Sequence[int]:  # noqa: ARG002  # there is one key
        """The first ``count`` obfuscators, for any caller."""
        return self._obfuscators[:count]


class Stopwatch:
    """Milliseconds of each part of a turn."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        """Add the time of what is done inside to a part."""
        start = time.perf_counter()
        yield
        self.parts[part] = self.parts.get(part, 0.0) + 1000 * (time.perf_counter() - start)


class Cores:
    """Works on chunks of blocks side by side; threads suffice, as exponentiations release the interpreter's lock."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count)

    def spread(self, work: Callable[[Sequence[int]], list[int]], blocks: Sequence[int]) -> list[int]:
        """Return the results of ``work`` on all blocks, in order."""
        size = -(-len(blocks) // self.count)
        chunks = [blocks[start : start + size] for start in range(0, len(blocks), size)]
        return [item for part in self._pool.map(work, chunks) for item in part]

    def decrypt(self, key: PaillierPrivateKey, blocks: Sequence[int]) -> list[int]:
        """Decrypt blocks by `decrypt_blocks` on these cores."""
        return self.spread(lambda chunk: decrypt_blocks(key, chunk), blocks)

    def exponentiate(self, key: PaillierPrivateKey, blocks: Sequence[int]) -> list[int]:
        """Run the bare exponentiations of a decryption."""
        return self.spread(
            lambda chunk: [
                *gmpy2.powmod_base_list(chunk, key.p - 1, key.psquare),
                *gmpy2.powmod_base_list(chunk, key.q - 1, key.qsquare),
            ],
            blocks,
        )


def secure_turn(session: LocalSession, round: int, watch: Stopwatch) -> dict[str, int]:
    """One round of all parties; the first party's answer is timed. Returns the bytes that travelled."""
    question = session.ask(round, message=bytes(8 * session.roster.d))
    query = SumQuery.parse(question.body)
    values = np.arange(session.roster.d)
    others = [session.contribute(f"party-{i + 1}", question, values) for i in range(1, PARTIES)]
    first = session.parties["party-1"]
    with watch.time("party_online_ms"):
        first.receive(question)
        contribution = first.answer(query, values, session.random_bytes, session.obfuscators)
    with watch.time("learner_online_ms"):
        for message in (contribution, *others):
            session.learner.receive(message)
        (request,) = session.learner.open(list(session.parties))
    with watch.time("key_holder_online_ms"):
        opened = session.key_holders[0].open(request)
    with watch.time("learner_online_ms"):
        total = session.learner.close([opened])
    if not np.array_equal(total.values, PARTIES * values):
        raise SystemExit("the sum is wrong")
    frames = {"query": question, "contribution": contribution, "open": request, "opened": opened}
    return {f"{name}_bytes": len(signed.to_bytes()) for name, signed in frames.items()}


def naive_turn(key: PaillierPrivateKey, d: int, watch: Stopwatch) -> None:
    """One party's encryption, the aggregation of ten and the decryption, a coordinate at a time."""
    public, sample = key.public_key, min(d, NAIVE_SAMPLE)
    start = time.perf_counter()
    for x in np.linspace(-1, 1, sample):
        total = ciphertext = public.encrypt(float(x))
        for _ in range(PARTIES - 1):
            total += ciphertext
        key.decrypt(total)
    watch.parts["naive_ms"] = 1000 * (time.perf_counter() - start) * d / sample


def new_session(key: PaillierPrivateKey, d: int, cores: Cores, obfuscators: Sequence[int]) -> LocalSession:
    """Return a session whose key holder decrypts on these cores."""
    session = LocalSession.start([key], PARTIES, d, PARTIES, random_bytes)
    holder = KeyHolderRole(
        session.identities["key-holder-1"],
        key,
        session.roster.learner,
        random_bytes=os.urandom,
        minimum_key_bits=session.roster.key_bits,
        decrypt=cores.decrypt,
    )
    holder.accept(session.learner.propose())
    return replace(session, key_holders=(holder,), obfuscators=Stock(obfuscators))


def measure(key: PaillierPrivateKey, d: int, cores: Cores, turns: int) -> dict[str, object]:
    """Measure one setting, and return its figures."""
    blocks = LocalSession.start([key], 2, d, 2, random_bytes).roster.layout.blocks
    watches = [Stopwatch() for _ in range(turns)]
    with watches[0].time("party_offline_ms"):
        obfuscators = make_obfuscators(key.public_key, blocks, random_bytes)
    session = new_session(key, d, cores, obfuscators)
    sizes = {}
    for round, watch in enumerate(watches, 1):
        sizes = secure_turn(session, round, watch)
        with watch.time("floor_ms"):
            cores.exponentiate(key, obfuscators)
        naive_turn(key, d, watch)
    figures = {part: statistics.median(w.parts[part] for w in watches if part in w.parts) for part in watches[0].parts}
    online = sum(figures[f"{role}_online_ms"] for role in ("party", "learner", "key_holder"))
    return {
        "d": d,
        "key_bits": key.public_key.n.bit_length(),
        "parties": PARTIES,
        "cores": cores.count,
        "turns": turns,
        "ciphertexts": blocks,
        "online_ms": round_to(online),
        "ratio_to_floor": round_to(online / figures["floor_ms"]),
        "speedup_over_naive": round_to(figures["naive_ms"] / online),
        "speedup_with_offline": round_to(figures["naive_ms"] / (online + figures["party_offline_ms"])),
        **{part: round_to(value) for part, value in figures.items()},
        "naive_sample": min(d, NAIVE_SAMPLE),
        **sizes,
    }


def round_to(value: float) -> float:
    """Round figures to three decimals, which is finer than the clock."""
    return round(value, 3)


def main() -> None:
    """Measure every setting asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--key-bits", type=int, default=3072)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    key = generate_key(options.key_bits)
    for d in options.d:
        for cores in options.cores:
            print(json.dumps(measure(key, d, Cores(cores), options.turns)), flush=True)


if __name__ == "__main__":
    main()
