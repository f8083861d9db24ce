"""The memory of a party of many studies at rest, beside one of one study.

    python -m scripts.benchmarks.studies [--studies 32] [--rows 20000]

One JSON line, in megabytes of resident memory of real ``parley-party serve`` processes that nobody has asked for longer
than ``shards.idle_minutes``, so that no examples are in memory: ``one_mb`` of the party of one study, ``many_mb`` of
that of many, each with a study file and a table of its own. ``all_tables_mb`` is what the examples of all would take.
The goal is a ``ratio`` of at most 1.2; the exit status is 1 when it is missed.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.service.tokens import hash_token, new_token
from scripts.loopback import COMMANDS, free_ports, make_ledgers, processes, resident_mb, wait_until, wait_until_ready

GOAL = 1.2
FEATURES = 30
IDLE_MINUTES = 0.1
AT_REST_SECONDS = 60 * IDLE_MINUTES + 15
"""Until examples were let go: a party looks every few seconds."""
START_SECONDS = 300


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description="What many studies at rest add to a party's memory.")
    parser.add_argument("--studies", type=int, default=32, help="of the party of many (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=20_000, help="of each table (default: %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-studies-") as name:
        measured = measure(Path(name), arguments.studies, arguments.rows)
    ratio = round(measured["many_mb"] / measured["one_mb"], 3)
    setting = {"benchmark": "studies", "studies": arguments.studies, "rows": arguments.rows, "d": FEATURES}
    print(json.dumps(setting | measured | {"ratio": ratio, "goal": GOAL}))
    sys.exit(ratio > GOAL)


def measure(folder: Path, studies: int, rows: int) -> dict[str, float]:
    """Megabytes of a party of one study and of one of many, at rest."""
    counts = {"one": 1, "many": studies}
    ports = dict(zip(counts, free_ports(len(counts)), strict=True))
    for name, count in counts.items():
        write_party(folder / name, count, rows, ports[name])
    configs = {name: folder / name / "party.toml" for name in counts}
    make_ledgers(*configs.values())
    commands: dict[str, Sequence[str | Path]] = {
        name: (COMMANDS / "parley-party", "serve", "--config", config) for name, config in configs.items()
    }
    with processes(commands, folder) as running:
        began = time.monotonic()
        for name, port in ports.items():
            wait_until(partial(listens, port), seconds=START_SECONDS, pause=0.5)
            wait_until_ready({name: f"http://127.0.0.1:{port}"})
        seconds = round(time.monotonic() - began, 1)
        loaded = {f"{name}_loaded_mb": round(resident_mb(process.pid), 1) for name, process in running.items()}
        time.sleep(AT_REST_SECONDS)
        at_rest = {f"{name}_mb": round(resident_mb(process.pid), 1) for name, process in running.items()}
    tables = round(studies * rows * (FEATURES + 1) * 8 / 1e6)
    return {"all_tables_mb": tables, "start_s": seconds} | loaded | at_rest


def listens(port: int) -> bool:
    """Whether a party listens on a port, which it does once it has loaded its data."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def write_party(folder: Path, studies: int, rows: int, port: int) -> None:
    """Write a party's settings, studies and tables."""
    folder.mkdir()
    rng = np.random.default_rng(studies)
    entries = []
    for number in range(studies):
        study = Study(
            name=f"study-{number}",
            features=tuple(Feature(name=f"x{column}", lower=-1, upper=1) for column in range(FEATURES)),
            label=Label(name="y", values=("no", "yes")),
        )
        (folder / f"{number}.json").write_text(study.model_dump_json(), encoding="utf-8")
        X = rng.uniform(-1, 1, (rows, FEATURES))
        columns = dict(zip(study.feature_names, X.T, strict=True)) | {"y": np.where(X.sum(axis=1) > 0, "yes", "no")}
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")
        entries.append(
            f'[[studies]]\nname = "{study.name}"\nstudy = "{folder}/{number}.json"\n'
            f'data.source = "{folder}/{number}.parquet"\n'
        )
    head = f"""\
name = "party"
port = {port}
state = "{folder}/state"
[shards]
idle_minutes = {IDLE_MINUTES}
[policy]
epsilon = 10.0
delta = 1e-6
max_epsilon_per_run = 10.0
max_delta_per_run = 1e-6
[[learners]]
name = "learner"
token_hash = "{hash_token(new_token())}"
"""
    (folder / "party.toml").write_text(head + "".join(entries), encoding="utf-8")


if __name__ == "__main__":
    main()
