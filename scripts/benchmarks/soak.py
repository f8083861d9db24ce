"""Half an hour of eight runs at once: memory, descriptors and threads of every service stay flat, and answers quick.

    python -m scripts.benchmarks.soak [--minutes 30] [--at-once 8]

Five parties and a learner run as real processes. Eight runs are always on; as one ends, the next is submitted. One JSON
line for each service has its memory, descriptors and threads in the first and last quarter of what follows a warm-up of
a fifth: medians, for memory comes and goes; and the slope of its memory in that time, in bytes a run. A last line has
the 99th percentile of a small answer's time from the learner and from a party, beside that of a bare FastAPI route, all
three asked in turn on connections that stay open while the runs go on; the ratios are what to compare between machines.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from parley.common.service.tokens import new_token
from scripts.benchmarks.rounds import BARE, PARTIES, write_settings
from scripts.loopback import COMMANDS, free_ports, make_ledgers, processes, resident_mb, wait_until_ready

D, ROUNDS = 50, 50
SAMPLE_SECONDS, ASK_SECONDS = 2.0, 0.05
WARM_UP, QUARTER = 0.2, 0.2
"""Parts of the time: what is not looked at, and how much at its beginning and end is compared."""


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description="Half an hour of eight runs at once.")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=8, help="runs at a time (default: %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-soak-") as folder:
        soak(Path(folder), arguments.minutes * 60, arguments.at_once)


def soak(folder: Path, seconds: float, at_once: int) -> None:
    """Start the services, keep runs going, and print what was seen."""
    names = ("learner", *(f"party-{number}" for number in range(1, PARTIES + 1)))
    ports = dict(zip((*names, "bare"), free_ports(len(names) + 1), strict=True))
    token = new_token()
    write_settings(folder, D, {name: ports[name] for name in names}, token)
    party_token = _provide_for_many_runs(folder, names[1:])
    commands: dict[str, Sequence[str | Path]] = {
        name: [COMMANDS / f"parley-{name.split('-')[0]}", "serve", "--config", folder / f"{name}.toml"]
        for name in names
    }
    commands["bare"] = (sys.executable, BARE, str(ports["bare"]), "10", "10")
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    make_ledgers(*(folder / f"{name}.toml" for name in names[1:]))
    with processes(commands, folder) as running:
        wait_until_ready(urls)
        deadline = time.monotonic() + seconds
        ended: list[str] = []
        workers = [
            threading.Thread(target=_keep_running, args=(urls["learner"], token, deadline, ended))
            for _ in range(at_once)
        ]
        times: dict[str, list[float]] = defaultdict(list)
        asking = threading.Thread(target=_keep_asking, args=(urls, token, party_token, deadline, times))
        for worker in (*workers, asking):
            worker.start()
        pids = {name: process.pid for name, process in running.items() if name != "bare"}
        samples = _sampled(pids, ended, deadline)
        for worker in (*workers, asking):
            worker.join()
    for name, values in samples.items():
        print(json.dumps({"benchmark": "soak", "service": name} | _compared(values)), flush=True)
    print(json.dumps({"benchmark": "soak", "minutes": seconds / 60, **_counted(ended), **_ratios(times)}), flush=True)


def _provide_for_many_runs(folder: Path, parties: Sequence[str]) -> str:
    """Give the parties budgets for a whole soak; the token that the learner shows them."""
    for name in parties:
        path = folder / f"{name}.toml"
        text = path.read_text(encoding="utf-8").replace("epsilon = 10.0", "epsilon = 1000000.0", 1)
        path.write_text(text.replace("[policy]", "[policy]\nmax_runs_per_day = 100000"), encoding="utf-8")
    roster = (folder / "learner.toml").read_text(encoding="utf-8")
    return roster.split('token = "')[1].split('"')[0]


def _keep_running(url: str, token: str, deadline: float, ended: list[str]) -> None:
    """Submit runs one after the other, and note the state in which each ended."""
    request = {
        "study": "benchmark",
        "algorithm": "dp_gd",
        "parameters": {"n_rounds": ROUNDS, "step": 0.1},
        "epsilon": 0.1,
        "delta": 1e-7,
    }
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60.0) as client:
        while time.monotonic() < deadline:
            run = client.post("/v1/runs", json=request).raise_for_status().json()["id"]
            with client.stream("GET", f"/v1/runs/{run}/events") as stream:
                for _ in stream.iter_lines():
                    pass
            ended.append(client.get(f"/v1/runs/{run}").json()["state"])


def _keep_asking(
    urls: Mapping[str, str], token: str, party_token: str, deadline: float, times: dict[str, list[float]]
) -> None:
    """Ask a bare route, the learner and a party in turn, each by a connection that stays open; note the seconds."""
    request = {
        "bare": ("PUT", f"{urls['bare']}/echo", ""),
        "learner": ("GET", f"{urls['learner']}/v1/user", token),
        "party": ("GET", f"{urls['party-1']}/v1/party", party_token),
    }
    with httpx.Client(trust_env=False, timeout=60.0) as client:
        while time.monotonic() < deadline:
            for name, (method, url, bearer) in request.items():
                started = time.perf_counter()
                headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
                client.request(method, url, headers=headers).raise_for_status()
                times[name].append(time.perf_counter() - started)
                time.sleep(ASK_SECONDS)


def _sampled(pids: Mapping[str, int], ended: Sequence[str], deadline: float) -> dict[str, dict[str, list[float]]]:
    """Each process's megabytes, descriptors and threads, and how many runs had ended by then, again and again."""
    seen: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in pids}
    while time.monotonic() < deadline:
        for name, pid in pids.items():
            seen[name]["runs"].append(len(ended))
            seen[name]["mb"].append(resident_mb(pid))
            seen[name]["descriptors"].append(len(list(Path(f"/proc/{pid}/fd").iterdir())))
            seen[name]["threads"].append(len(list(Path(f"/proc/{pid}/task").iterdir())))
        time.sleep(SAMPLE_SECONDS)
    return seen


def _compared(values: Mapping[str, list[float]]) -> dict[str, Any]:
    """The medians of each figure at the beginning and the end of what was looked at, and what bytes each run added."""
    looked_at = {name: series[int(len(series) * WARM_UP) :] for name, series in values.items()}
    part = max(1, int(len(looked_at["mb"]) * QUARTER / (1 - WARM_UP)))
    compared: dict[str, Any] = {
        name: [round(float(np.median(half)), 1) for half in (series[:part], series[-part:])]
        for name, series in looked_at.items()
    }
    slope = np.polynomial.Polynomial.fit(looked_at["runs"], looked_at["mb"], 1).convert().coef[1]
    return compared | {"bytes_a_run": round(float(slope) * 2**20)}


def _counted(ended: Sequence[str]) -> dict[str, Any]:
    """Count the runs that ended, by state."""
    return {"runs": len(ended), "states": {state: ended.count(state) for state in sorted(set(ended))}}


def _ratios(times: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The 99th percentiles in milliseconds, and those of the services in ratio to the bare route's."""
    p99 = {name: float(np.percentile(seconds, 99)) * 1000 for name, seconds in times.items()}
    ratios = {f"{name}_ratio": round(p99[name] / p99["bare"], 2) for name in p99 if name != "bare"}
    return {f"p99_{name}_ms": round(value, 2) for name, value in p99.items()} | ratios


if __name__ == "__main__":
    main()
