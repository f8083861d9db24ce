"""The cost of a round: five parties and a learner as real processes, with tokens, noise and ledgers, beside a floor.

    python -m scripts.benchmarks.rounds [--rounds 200] [--against ../before --pairs 25 | --persons]

One JSON line for each number of features d. ``ms_per_round`` is the mean time from one round's news to the next, as a
user who watches the run sees it. The floors are what five bare FastAPI processes and one httpx client need for the same
bodies, measured in the same run with the same pattern (all five are asked at once, the next round starts when all have
answered): ``floor_ms`` where each computes the plain gradient on as many examples, ``echo_floor_ms`` where it computes
nothing. The goal is a ``ratio_to_floor`` of at most 2, and a first round within 3 s of the submission.

With ``--against``, the services of another checkout and these are up side by side, and each pair is a run of as many
rounds with the one and then with the other. A line for each d has the ratio that half of the pairs exceed, and the
quartiles of all: what a change has cost, on a machine whose speed changes by itself. ``cpu_ratio`` is that of the time
of processors that all six services take for the same rounds, which depends less on what else the machine does;
``party_cpu_ratio`` is that of the five parties alone.

With ``--persons``, two federations are up in the same way: the examples of the one are records, of the other persons,
who have 1.42 rows on average. Each party has as many rows and columns as one of five with the patients of
diabetes-readmission. The goal is a ``ratio`` of at most 1.25.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Person, Study
from parley.common.service.tokens import hash_token, new_token
from scripts.benchmarks.checkouts import command_of, environment_of
from scripts.benchmarks.gradient import first_rows
from scripts.loopback import cpu_seconds, free_ports, make_ledgers, processes, resident_mb, wait_until_ready

PARTIES, ROWS = 5, 2_000
FEATURES = (50, 1_000)
OF_PERSONS: Mapping[str, int] = {"d": 139, "rows": 16_000}
"""The columns of visits in diabetes-readmission, and the rows of a fifth of its patients."""
WARM_UP = 20
BARE = Path(__file__).with_name("bare.py")
ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description="What a round costs, beside a bare FastAPI and httpx floor.")
    parser.add_argument("--rounds", type=int, default=200, help="rounds to measure (default: %(default)s)")
    parser.add_argument("--against", type=Path, help="a checkout to compare with, which this environment can run")
    parser.add_argument("--pairs", type=int, default=25, help="how often both are measured (default: %(default)s)")
    parser.add_argument("--persons", action="store_true", help="compare examples that are persons with records")
    arguments = parser.parse_args()
    rounds: int = arguments.rounds
    if arguments.persons:
        with ExitStack() as stack:
            records, persons = (
                stack.enter_context(federation(Path(stack.enter_context(new_folder())), ROOT, kind, **OF_PERSONS))
                for kind in ("records", "persons")
            )
            in_turn(records, persons, rounds, arguments.pairs, OF_PERSONS)
        return
    if arguments.against is not None:
        compare(arguments.against.resolve(), rounds, arguments.pairs)
        return
    for d in FEATURES:
        with new_folder() as folder:
            echo, floor = bare_floors(Path(folder), d, rounds)
            measured = real_rounds(Path(folder), d, rounds)
        ms = measured["ms_per_round"]
        floors = {"floor_ms": floor, "ratio_to_floor": round(ms / floor, 2)}
        floors |= {"echo_floor_ms": echo, "ratio_to_echo_floor": round(ms / echo, 2)}
        setting = {"benchmark": "rounds", "parties": PARTIES, "rows": ROWS, "d": d}
        print(json.dumps(setting | measured | floors), flush=True)


def compare(other: Path, rounds: int, pairs: int) -> None:
    """Measure two checkouts in turn, and print the ratio of a round's time, ours to the other's."""
    for d in FEATURES:
        with ExitStack() as stack:
            before, now = (
                stack.enter_context(federation(Path(stack.enter_context(new_folder())), checkout, d=d))
                for checkout in (other, ROOT)
            )
            in_turn(before, now, rounds, pairs, {"d": d})


def in_turn(before: Federation, now: Federation, rounds: int, pairs: int, setting: Mapping[str, Any]) -> None:
    """Measure two federations in turn, and print the ratio of a round's time, the second's to the first's."""
    times: list[tuple[float, float]] = []
    cpu: list[tuple[float, float]] = []
    party_cpu: list[tuple[float, float]] = []
    for pair in range(pairs + 1):  # the first is not counted: files grow and caches fill in it
        order = (now, before) if pair % 2 else (before, now)  # neither is always the second
        measured = {federation.url: federation.measure(rounds) for federation in order}
        if pair:
            was, is_now = measured[before.url], measured[now.url]
            times.append((was.ms_per_round, is_now.ms_per_round))
            cpu.append((was.cpu_ms_per_round, is_now.cpu_ms_per_round))
            party_cpu.append((was.party_cpu_ms_per_round, is_now.party_cpu_ms_per_round))
    line: dict[str, Any] = {"benchmark": "rounds", **setting, "pairs": pairs}
    for prefix, column in (("", times), ("cpu_", cpu), ("party_cpu_", party_cpu)):
        line |= ratio_of(column, prefix)
    print(json.dumps(line), flush=True)


def ratio_of(pairs: Sequence[tuple[float, float]], prefix: str) -> dict[str, Any]:
    """The medians of pairs (before, now), and the quartiles of their ratios, with names that begin so."""
    before, now = (round(statistics.median(column), 2) for column in zip(*pairs, strict=True))
    lower, ratio, upper = (round(value, 3) for value in statistics.quantiles([now / before for before, now in pairs]))
    figures = {"ms_before": before, "ms_now": now, "ratio": ratio, "quartiles": [lower, upper]}
    return {f"{prefix}{name}": value for name, value in figures.items()}


def new_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder for the services' files."""
    return tempfile.TemporaryDirectory(prefix="parley-rounds-")


def bare_floors(folder: Path, d: int, rounds: int) -> tuple[float, float]:
    """Milliseconds that five bare services and one bare client need for a round: without, and with a gradient."""
    urls = {f"bare-{port}": f"http://127.0.0.1:{port}" for port in free_ports(PARTIES)}
    commands: dict[str, Sequence[str | Path]] = {
        name: (sys.executable, BARE, url.rsplit(":", 1)[1], str(ROWS), str(d)) for name, url in urls.items()
    }
    with processes(commands, folder):
        wait_until_ready(urls)
        echo, gradient = (
            asyncio.run(ask_bare([f"{url}/{work}" for url in urls.values()], np.zeros(d).tobytes(), rounds))
            for work in ("echo", "gradient")
        )
    return echo, gradient


async def ask_bare(urls: list[str], body: bytes, rounds: int) -> float:
    """Ask all, wait for all, ``rounds`` times; returns milliseconds a round."""
    async with httpx.AsyncClient(trust_env=False) as client:

        async def one_round() -> None:
            answers = await asyncio.gather(*(client.put(url, content=body) for url in urls))
            if any(answer.status_code != httpx.codes.OK for answer in answers):
                raise RuntimeError("a bare service did not answer")

        for _ in range(WARM_UP):
            await one_round()
        started = time.perf_counter()
        for _ in range(rounds):
            await one_round()
        return round((time.perf_counter() - started) / rounds * 1000, 2)


@dataclass(frozen=True, slots=True)
class Measured:
    """The times of one run: milliseconds a round, also of processors, and seconds until the first.

    Processors' are those of all services, and those of the parties alone.
    """

    ms_per_round: float
    cpu_ms_per_round: float
    party_cpu_ms_per_round: float
    seconds_to_first_round: float


@dataclass(frozen=True, slots=True)
class Federation:
    """A learner and its parties, as processes by name: where the learner is, and a user's token for it."""

    url: str
    token: str
    running: Mapping[str, subprocess.Popen[bytes]]

    def measure(self, rounds: int) -> Measured:
        """Submit a run of so many rounds after some that do not count, and watch it."""
        used_before = self._cpu_seconds()
        first, times = watch(self.url, self.token, rounds + WARM_UP)
        used = {name: seconds - used_before[name] for name, seconds in self._cpu_seconds().items()}
        ms = (times[-1] - times[WARM_UP - 1]) / (len(times) - WARM_UP) * 1000
        parties = sum(seconds for name, seconds in used.items() if name != "learner")
        cpu, party_cpu = (round(seconds / len(times) * 1000, 2) for seconds in (sum(used.values()), parties))
        return Measured(round(ms, 2), cpu, party_cpu, round(first, 2))

    def _cpu_seconds(self) -> dict[str, float]:
        """The seconds of processors that each service has used."""
        return {name: cpu_seconds(process.pid) for name, process in self.running.items()}


@contextmanager
def federation(
    folder: Path, checkout: Path, unit: str = "records", *, d: int, rows: int = ROWS
) -> Iterator[Federation]:
    """Real services of a checkout's code, until the block ends; each party has so many rows of records or persons."""
    names = ("learner", *(f"party-{number}" for number in range(1, PARTIES + 1)))
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    token = new_token()
    write_settings(folder, d, ports, token, rows, by_person=unit == "persons")
    commands: dict[str, Sequence[str | Path]] = {
        name: [*command_of(checkout, name.split("-")[0]), "serve", "--config", folder / f"{name}.toml"]
        for name in names
    }
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    environment = environment_of(checkout, folder / "installed")
    configs = (folder / f"{name}.toml" for name in names if name != "learner")
    make_ledgers(*configs, command=command_of(checkout, "party"), environment=environment)
    with processes(commands, folder, environment) as running:
        wait_until_ready(urls)
        yield Federation(urls["learner"], token, running)


def real_rounds(folder: Path, d: int, rounds: int) -> dict[str, Any]:
    """Measure real services: the time of a round, the time to the first, and the memory of a party."""
    with federation(folder, ROOT, d=d) as real:
        measured = real.measure(rounds)
        memory = [resident_mb(process.pid) for name, process in real.running.items() if name != "learner"]
    return asdict(measured) | {"party_mb": round(max(memory), 1)}


def watch(url: str, token: str, rounds: int) -> tuple[float, list[float]]:
    """Submit a run and watch it: seconds to the first round, and when each round was over."""
    request = {
        "study": "benchmark",
        "algorithm": "dp_gd",
        "parameters": {"n_rounds": rounds, "step": 0.1},
        "epsilon": 0.1,
        "delta": 1e-6,
    }
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60.0) as client:
        started = time.perf_counter()
        run = client.post("/v1/runs", json=request).raise_for_status().json()["id"]
        with client.stream("GET", f"/v1/runs/{run}/events") as stream:
            times = round_times(stream.iter_lines())
        if client.get(f"/v1/runs/{run}").json()["state"] != "completed":
            raise RuntimeError("the run did not complete")
    return times[0] - started, times


def round_times(lines: Iterable[str]) -> list[float]:
    """When each round's news arrived."""
    return [time.perf_counter() for line in lines if line == "event: round"]


def write_settings(  # noqa: PLR0913 -- one by name
    folder: Path, d: int, ports: dict[str, int], user_token: str, rows: int = ROWS, *, by_person: bool = False
) -> None:
    """Data, study and settings of the learner and its parties."""
    rng = np.random.default_rng(d)
    study = Study(
        name="benchmark",
        features=tuple(Feature(name=f"x{column}", lower=-1, upper=1) for column in range(d)),
        label=Label(name="y", values=("no", "yes")),
        intercept=False,
        person=Person(column="patient") if by_person else None,
    )
    (folder / "studies").mkdir()
    (folder / "studies" / "benchmark.json").write_text(study.model_dump_json(), encoding="utf-8")
    learner_token = new_token()
    roster = []
    for name, port in ports.items():
        if name == "learner":
            continue
        X = rng.uniform(-1, 1, (rows, d))
        columns = dict(zip(study.feature_names, X.T, strict=True)) | {"y": np.where(X.sum(axis=1) > 0, "yes", "no")}
        columns |= {"patient": np.cumsum(first_rows(rows, rng))} if by_person else {}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
        settings = party_toml(folder, name, port, hash_token(learner_token), by_person=by_person)
        (folder / f"{name}.toml").write_text(settings, encoding="utf-8")
        roster.append(f'[[parties]]\nname = "{name}"\nurl = "http://127.0.0.1:{port}"\ntoken = "{learner_token}"\n')
    head = f"""\
name = "learner"
port = {ports["learner"]}
state = "{folder}/learner"
studies = "{folder}/studies"
[[users]]
name = "benchmark"
token_hash = "{hash_token(user_token)}"
"""
    (folder / "learner.toml").write_text(head + "".join(roster), encoding="utf-8")


def party_toml(  # noqa: PLR0913 -- one by name
    folder: Path, name: str, port: int, token_hash: str, kind: str = "parquet", *, by_person: bool = False
) -> str:
    """The settings of a party whose data is a file of this kind."""
    return f"""\
name = "{name}"
port = {port}
state = "{folder}/{name}"
study = "{folder}/studies/benchmark.json"
[data]
source = "{folder}/{name}.{kind}"
{'person = "patient"' if by_person else ""}
[policy]
epsilon = 10.0
delta = 1e-3
max_epsilon_per_run = 10.0
max_delta_per_run = 1e-3
[[learners]]
name = "learner"
token_hash = "{token_hash}"
"""


if __name__ == "__main__":
    main()
