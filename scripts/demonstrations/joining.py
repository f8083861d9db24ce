"""Four owners join with Adult's raw table, each from an empty folder: ``python -m scripts.demonstrations.joining``.

Every command is the one that a person would type, run as a process; what a person reads by telephone is read here from
what the commands print. It prints how many lines each owner typed, how long a site took from its invitation until it
was connected, and on what its party listens; then a run is submitted, approved by all, trained, and predicts.
Needs ``PARLEY_DATA``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyarrow.csv import write_csv

from parley.common.errors import ParleyError
from parley.learner.cli.client import LearnerClient
from scripts.loopback import COMMANDS, free_ports, processes, wait_until
from scripts.utility.examples import AbsentError, data_path

until = partial(wait_until, seconds=60.0, pause=0.1)

NAMES = ("hospital-a", "hospital-b", "hospital-c", "hospital-d")
LABEL, POSITIVE = "income", ">50K"
LINES = 3
"""Of each owner: join, serve, approve."""


def main() -> None:
    """Play all roles, and print what they type and read."""
    with tempfile.TemporaryDirectory(prefix="parley-joining-") as folder, ExitStack() as stack:
        root = Path(folder)
        tables = deal(root)
        (port,) = free_ports(1)
        url, learner = f"https://127.0.0.1:{port}", root / "learner"
        typed(root, "parley-learner", "init", url, "--out", learner)
        token, authority = learner / "secrets" / "operator.token", learner / "secrets" / "authority.pem"
        os.environ |= {"PARLEY_URL": url, "PARLEY_TOKEN_FILE": str(token), "PARLEY_CA": str(authority)}
        draft = ("study", "init", root / "adult.csv", "--public", "--label", LABEL, "--positive", POSITIVE)
        typed(
            root,
            "parley-learner",
            *draft,
            "--missing",
            "value",
            "--name",
            "adult",
            "--out",
            learner / "studies" / "adult.json",
        )
        serve: list[str | Path] = [COMMANDS / "parley-learner", "serve", "--config", learner / "learner.toml"]
        stack.enter_context(processes({"learner": serve}, root))
        with LearnerClient(url, token_file=token, ca=authority) as client:
            until(lambda: is_up(client))
            for name in NAMES:
                seconds, pid = join(root, name, tables[name], client, stack)
                listens = " and ".join(sorted(listening(pid))) or "nothing"
                print(f"{name}: connected {seconds:.1f} s after its invitation came; listens on {listens}", flush=True)
            run = typed(
                root, "parley-learner", "submit", "adult", "--epsilon", "1", "--delta", "1e-5", "--evaluate", "0"
            ).strip()
            for name in NAMES:
                config = ("--config", root / name / name / "party.toml")
                until(partial(waits, root, run, config))
                typed(root / name, "parley-party", "approve", run, *config)
            typed(root, "parley-learner", "resume", run)
            print(typed(root, "parley-learner", "watch", run).strip().splitlines()[-1])
            print(f"lines typed by each owner: {LINES}; accuracy on Adult's test rows: {accuracy(client, run):.3f}")


def deal(root: Path) -> dict[str, Path]:
    """Adult's training rows as a raw CSV, and a quarter of it in each owner's own folder."""
    table = pq.read_table(data_path("adult", "adult-train.parquet"))
    write_csv(table, root / "adult.csv")
    parts, tables = np.array_split(np.random.default_rng(1).permutation(len(table)), len(NAMES)), {}
    for name, rows in zip(NAMES, parts, strict=True):
        (root / name).mkdir()
        tables[name] = root / name / "adult.csv"
        write_csv(table.take(rows), tables[name])
    return tables


def join(root: Path, name: str, table: Path, client: LearnerClient, stack: ExitStack) -> tuple[float, int]:
    """One owner's way in: seconds until it is connected, and its process."""
    invitation = root / name / "invitation.json"
    output = typed(root, "parley-learner", "invite", name, "--study", "adult", "--out", invitation)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PARLEY_", "SSL_"))}
    began, words = time.monotonic(), after(output, "telephone: ")
    own_table = ("--data", table, "--value", "capital_gain:99999=99999")  # the census's largest, no missing value
    output = typed(
        root / name, "parley-party", "join", invitation, *own_table, "--words", words, environment=environment
    )
    config = root / name / name / "party.toml"
    serve: list[str | Path] = [COMMANDS / "parley-party", "serve", "--config", config]
    running = stack.enter_context(processes({name: serve}, root))
    typed(root, "parley-learner", "roster", "confirm", name, *after(output, "operator:\n").split())
    until(lambda: any(member["name"] == name and member["connected"] for member in client.ask("GET", "/v1/roster")))
    return time.monotonic() - began, running[name].pid


def typed(folder: Path, command: str, *arguments: object, environment: dict[str, str] | None = None) -> str:
    """Run a command in a folder and return what it prints; its errors are shown."""
    line: Sequence[str] = [str(COMMANDS / command), *map(str, arguments)]
    done = subprocess.run(line, cwd=folder, env=environment, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603 -- ours
    if done.returncode:
        sys.exit(f"{' '.join(line)}: exit status {done.returncode}")
    return done.stdout


def after(output: str, prefix: str) -> str:
    """Return what follows some words on their line."""
    return output.partition(prefix)[2].split("\n")[0].strip()


def waits(root: Path, run: str, config: tuple[object, ...]) -> bool:
    """Whether a run waits for an owner's consent."""
    return run in typed(root, "parley-party", "pending", *config)


def is_up(client: LearnerClient) -> bool:
    """Whether the learner answers that it is ready."""
    try:
        client.ask("GET", "/readyz")
    except ParleyError:
        return False
    return True


def listening(pid: int) -> set[str]:
    """The addresses that a process listens on, by `ss`."""
    sockets = subprocess.run(["ss", "-ltnpH"], check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S607 -- a system's tool
    return {line.split()[3] for line in sockets.splitlines() if f"pid={pid}," in line}


def accuracy(client: LearnerClient, run: str) -> float:
    """The model's share of right predictions on 2,000 test rows, asked of the learner."""
    table = pq.read_table(data_path("adult", "adult-test.parquet")).slice(0, 2000)
    records = table.to_pylist()
    labels = [record.pop(LABEL) for record in records]
    predicted = client.ask("POST", f"/v1/runs/{run}/predictions", {"records": records})
    return float(np.mean([prediction["label"] == label for prediction, label in zip(predicted, labels, strict=True)]))


if __name__ == "__main__":
    try:
        main()
    except AbsentError as error:
        sys.exit(str(error))
