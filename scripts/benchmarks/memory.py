"""The memory of an idle party with a small shard, beside a floor.

    python -m scripts.benchmarks.memory

One JSON line, in megabytes of resident memory of real processes that have said they are ready. ``party_mb`` is
``parley-party serve`` on a CSV file; ``peak_mb`` is the most that it has taken since its start. The floors are bare
uvicorn processes of the same run: ``bare_mb`` with FastAPI alone, ``bare_numpy_mb`` with NumPy, SciPy and as many
examples too, which an answer cannot be computed without. The goal is a ``party_mb`` of at most 110.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.service.tokens import hash_token, new_token
from scripts.benchmarks.rounds import BARE, party_toml
from scripts.loopback import COMMANDS, free_ports, make_ledgers, processes, resident_mb, wait_until_ready

ROWS, FEATURES = 500, 30
FASTAPI_ALONE = """
import sys, uvicorn
from fastapi import FastAPI
app = FastAPI()
app.get("/readyz")(lambda: None)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=False, log_level="warning")
"""


def main() -> None:
    """Measure, and print the figures."""
    with tempfile.TemporaryDirectory(prefix="parley-memory-") as name:
        measured = measure(Path(name))
    setting = {"benchmark": "memory", "rows": ROWS, "d": FEATURES}
    ratio = round(measured["party_mb"] / measured["bare_mb"], 2)
    print(json.dumps(setting | measured | {"ratio_to_bare": ratio}))


def measure(folder: Path) -> dict[str, float]:
    """Megabytes of a party and of the floors, once all are ready."""
    names = ("party", "bare", "bare_numpy")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    write_party(folder, ports["party"])
    commands: dict[str, Sequence[str | Path]] = {
        "party": (COMMANDS / "parley-party", "serve", "--config", folder / "party.toml"),
        "bare": (sys.executable, "-c", FASTAPI_ALONE, str(ports["bare"])),
        "bare_numpy": (sys.executable, BARE, str(ports["bare_numpy"]), str(ROWS), str(FEATURES)),
    }
    make_ledgers(folder / "party.toml")
    with processes(commands, folder) as running:
        wait_until_ready({name: f"http://127.0.0.1:{port}" for name, port in ports.items()})
        measured = {f"{name}_mb": round(resident_mb(process.pid), 1) for name, process in running.items()}
        return measured | {"peak_mb": round(resident_mb(running["party"].pid, "VmHWM"), 1)}


def write_party(folder: Path, port: int) -> None:
    """Write a party's settings, study and CSV file."""
    study = Study(
        name="benchmark",
        features=tuple(Feature(name=f"x{column}", lower=-1, upper=1) for column in range(FEATURES)),
        label=Label(name="y", values=("no", "yes")),
    )
    (folder / "studies").mkdir()
    (folder / "studies" / "benchmark.json").write_text(study.model_dump_json(), encoding="utf-8")
    X = np.random.default_rng(1).uniform(-1, 1, (ROWS, FEATURES))
    with (folder / "party.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*study.feature_names, "y"])
        rows.writerows([*x, "yes" if sum(x) > 0 else "no"] for x in X.tolist())
    settings = party_toml(folder, "party", port, hash_token(new_token()), kind="csv")
    (folder / "party.toml").write_text(settings, encoding="utf-8")


if __name__ == "__main__":
    main()
