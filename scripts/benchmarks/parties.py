"""The cost of many parties for a learner: 200 real ones over HTTP, several to a process, a fifth of them away.

    python -m scripts.benchmarks.parties [--parties 200] [--absent 0.2] [--rounds 20] [--processes 4]

One JSON line. Each party is a service of its own, with its data, token, ledger and port; the learner is a process that
does nothing else. ``learner_us_per_party_round`` is the learner's CPU time, of all its threads, for one party's answer
(in the rounds after the warm-up); the goal is at most 400. ``ms_per_round`` is what a user sees who watches;
where the parties share this machine's cores, most of it is theirs. ``took_part`` and ``absent`` are counts.
``recruiting_seconds`` is the time from the submission to the first round; ``--seconds`` of it are the wait for those
who are away.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.service.http.connections import BoundedServer
from parley.common.service.tokens import hash_token, new_token
from parley.party.api.app import create_party_app
from parley.party.ledger.ledger import create_ledger
from parley.party.settings import PartySettings
from scripts.benchmarks.rounds import party_toml
from scripts.loopback import COMMANDS, cpu_seconds, free_ports, processes, resident_mb, wait_until_ready

ROWS, FEATURES = 50, 10
WARM_UP = 3


def main() -> None:
    """Measure and print; as ``parties.py host FOLDER NAME ...``, be the parties of those names."""
    if sys.argv[1:2] == ["host"]:
        host(Path(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description="What many parties cost a learner in a round, a fifth of them away.")
    parser.add_argument("--parties", type=int, default=200, help="of the roster (default: %(default)s)")
    parser.add_argument("--absent", type=float, default=0.2, help="the share that is away (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=20, help="rounds to measure (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=4, help="for all parties (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="to wait for the absent (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-parties-") as folder:
        measured = measure(Path(folder), options)
    print(
        json.dumps({"benchmark": "parties", "parties": options.parties, "rounds": options.rounds} | measured),
        flush=True,
    )


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Start all, have them train, and tell what it took."""
    names = [f"party-{number:05}" for number in range(1, options.parties + 1)]
    ports = dict(zip(["learner", *names], free_ports(1 + len(names)), strict=True))
    token = new_token()
    write_files(folder, ports, token)
    present = names[round(options.parties * options.absent) :]
    commands: dict[str, Sequence[str | Path]] = {
        f"host-{index}": (
            sys.executable,
            "-m",
            "scripts.benchmarks.parties",
            "host",
            folder,
            *present[index :: options.processes],
        )
        for index in range(options.processes)
    }
    commands["learner"] = (COMMANDS / "parley-learner", "serve", "--config", folder / "learner.toml")
    with processes(commands, folder) as running:
        wait_until_ready({name: f"http://127.0.0.1:{ports[name]}" for name in ("learner", *present)})
        return watch(f"http://127.0.0.1:{ports['learner']}", token, running["learner"].pid, options)


def watch(url: str, token: str, learner: int, options: argparse.Namespace) -> dict[str, Any]:
    """Submit a run and watch it, and the process of the learner."""
    request = {
        "study": "benchmark",
        "algorithm": "dp_gd",
        "parameters": {"n_rounds": options.rounds + WARM_UP, "step": 0.1},
        "epsilon": 1.0,
        "delta": 1e-5,
        "cohort": {"least": options.parties // 2, "seconds": options.seconds},
    }
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=120.0) as client:
        began = time.perf_counter(), cpu_seconds(learner)
        run = client.post("/v1/runs", json=request).raise_for_status().json()["id"]
        with client.stream("GET", f"/v1/runs/{run}/events") as stream:
            rounds = list(progress(stream.iter_lines(), learner))
        record = client.get(f"/v1/runs/{run}").json()
    if record["state"] != "completed":
        raise RuntimeError(f"the run is {record['state']}: {record['problem'] or record['pause']}")
    (_, first_cpu), (_, last_cpu), ms = rounds[WARM_UP - 1], rounds[-1], np.diff([at for at, _ in rounds]) * 1000
    took_part = len(record["parties"])
    return {
        "took_part": took_part,
        "absent": len(record["absent"]),
        "ms_per_round": round(statistics.median(ms[WARM_UP - 1 :]), 1),
        "learner_us_per_party_round": round((last_cpu - first_cpu) / options.rounds / took_part * 1e6),
        "recruiting_seconds": round(rounds[0][0] - began[0], 2),
        "recruiting_cpu_us_per_party": round((rounds[0][1] - began[1]) / options.parties * 1e6),
        "learner_mb": round(resident_mb(learner), 1),
    }


def progress(lines: Iterator[str], learner: int) -> Iterator[tuple[float, float]]:
    """When each round's news arrived, and the learner's CPU seconds until then."""
    for line in lines:
        if line == "event: round":
            yield time.perf_counter(), cpu_seconds(learner)


def host(folder: Path, names: Sequence[str]) -> None:
    """Serve parties until this process is ended; from another thread, where uvicorn leaves signals alone."""

    async def serve() -> None:
        await asyncio.gather(*(server_of(folder / f"{name}.toml").serve() for name in names))

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    thread.join()


def server_of(config: Path) -> BoundedServer:
    """A party's server, by its settings, with a new ledger."""
    settings = PartySettings.load(config)
    create_ledger(settings.state, settings.identity, settings.policy.adjacency)

    async def tend() -> None: ...

    app = create_party_app(settings)
    options = uvicorn.Config(app, port=settings.port, access_log=False, log_level="warning", ws="none")
    return BoundedServer(options, settings.limits, tend)


def write_files(folder: Path, ports: dict[str, int], user_token: str) -> None:
    """Data, study and settings of the learner and its parties."""
    rng = np.random.default_rng(1)
    study = Study(
        name="benchmark",
        features=tuple(Feature(name=f"x{column}", lower=-1, upper=1) for column in range(FEATURES)),
        label=Label(name="y", values=("no", "yes")),
    )
    (folder / "studies").mkdir()
    (folder / "studies" / "benchmark.json").write_text(study.model_dump_json(), encoding="utf-8")
    learner_token = new_token()
    learner_hash = hash_token(learner_token)
    settings = (
        f'name = "learner"\nport = {ports["learner"]}\nstate = "{folder}/learner"\nstudies = "{folder}/studies"\n'
    )
    lines = [settings, f'[[users]]\nname = "benchmark"\ntoken_hash = "{hash_token(user_token)}"\n']
    for name, port in ports.items():
        if name == "learner":
            continue
        X = rng.uniform(-1, 1, (ROWS, FEATURES)).round(3)
        rows = [",".join([*map(str, x), "yes" if sum(x) > 0 else "no"]) for x in X.tolist()]
        table = "\n".join([",".join([*study.feature_names, "y"]), *rows])
        (folder / f"{name}.csv").write_text(table, encoding="utf-8")
        (folder / f"{name}.toml").write_text(party_toml(folder, name, port, learner_hash, kind="csv"), encoding="utf-8")
        lines.append(f'[[parties]]\nname = "{name}"\nurl = "http://127.0.0.1:{port}"\ntoken = "{learner_token}"\n')
    (folder / "learner.toml").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
