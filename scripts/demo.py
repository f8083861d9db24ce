"""Five hospitals, a learner, a key holder and breast-cancer data: a federation on this machine, from start to model.

    python -m scripts.demo [--keep FOLDER]

Starts every service as a real process on loopback with settings, tokens and shards of its own, in a temporary folder.
The learner trains over HTTP and sees nothing but sums. The demo then asks it for predictions on held-out biopsies, and
compares their accuracy with models without privacy and without sharing. Then it simulates 200 owners of 100 generated
rows each in this process. It leaves no process and no file behind. Exit status 0 means that all of it worked.

The owners are constructed: each hospital has tumours of about one size, so that none can learn from its own rows what
makes a tumour malignant; `scripts.deployment.deployment` deals the rows.
"""

from __future__ import annotations

import argparse
import csv
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from parley.common.algorithms import settle
from parley.common.data.columns import Feature, Label
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.files.examples import load_examples
from parley.common.learning.losses import build_loss
from parley.common.learning.metrics import accuracy
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from parley.learner.experiments.baselines import baselines
from parley.learner.experiments.datasets import BIOPSIES, deal, examples
from scripts.deployment.deployment import Deployment, make_deployment
from scripts.deployment.sites import HOSPITALS, SERVICES, loopback_site
from scripts.loopback import COMMANDS, free_ports, processes, wait_until_ready

RUN_SECONDS = 120.0
DELTA = 1e-5
ROUNDS = {"psgd": 50}
SIMULATIONS = 10
RUNS = (("dp_gd", 1.0), ("dp_gd", 0.3), ("psgd", 1.0))
console = Console()


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the closing table."""

    what: str
    accuracy: str
    expected: str
    claim: str
    transcript: str


def main() -> int:
    """Run the demonstration; returns 0 if it worked."""
    parser = argparse.ArgumentParser(description="Train across five hospitals on this machine.")
    parser.add_argument("--keep", type=Path, help="make the deployment in this folder and keep it")
    keep: Path | None = parser.parse_args().keep
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    started = time.monotonic()
    with ExitStack() as stack:
        root = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parley-demo-")))
        deployment = deploy(root)
        urls = {name: service.url for name, service in deployment.services.items()}
        begin(deployment, root)
        started_now = stack.enter_context(processes(commands(deployment), root))
        wait_until_ready(urls, started_now)
        console.print(f"[bold]{len(urls)} services are up[/] on loopback after {time.monotonic() - started:.1f} s")
        laboratory = Laboratory.read(root)
        counts = laboratory.shards.n_examples
        console.print(f"the hospitals hold {counts.sum()} biopsies, {counts.min()} to {counts.max()} each")
        rows = [
            *laboratory.baselines(),
            *over_http(stack, root, deployment, urls["learner"], laboratory),
        ]
    show(
        "Five hospitals, tumours of one size each: accuracy on held-out biopsies, and the promise to each patient", rows
    )
    show("200 owners of 100 rows each, made by scikit-learn, simulated in this process", many_owners())
    console.print(f"A promise is (ε, δ = {DELTA:.0e}) for one record replaced; smaller is more private.")
    console.print(f"done in {time.monotonic() - started:.1f} s; nothing is left running")
    return 0


def deploy(root: Path) -> Deployment:
    """Make settings, secrets and shards for all services, on free ports."""
    ports = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
    return make_deployment(root, lambda name: loopback_site(root, name, ports[name]))


def begin(deployment: Deployment, root: Path) -> None:
    """Run the first commands of services that have not run here yet. Raises CalledProcessError."""
    for name, service in deployment.services.items():
        if service.first and not (root / name / "state").exists():
            program, *words = service.first
            command: list[str | Path] = [COMMANDS / program, *words, "--config", service.config, "--format", "json"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 -- our own commands


def commands(deployment: Deployment) -> dict[str, list[str | Path]]:
    """Return the command that starts each service, by name."""
    return {
        name: [COMMANDS / service.command[0], *service.command[1:], "--config", service.config]
        for name, service in deployment.services.items()
    }


@dataclass(frozen=True, slots=True)
class Laboratory:
    """The owners' shards in one place, which the services never have, to say what to expect of them."""

    study: Study
    shards: Shard
    public: Shard

    @classmethod
    def read(cls, root: Path) -> Laboratory:
        """The shards of all hospitals and the public examples of a deployment."""
        files = [*(root / name / "data" / "biopsies.csv" for name in HOSPITALS), held_out_file(root)]
        *shards, public = (load_examples(file, BIOPSIES).shard for file in files)
        return cls(BIOPSIES, Shard.stack(shards), public)

    def baselines(self) -> list[Row]:
        """What to measure the runs by: no model, all data without privacy, each owner's own data without noise."""
        measured = baselines([(self.shards, self.public, self.facts(1.0))], self.study.kind)
        return [
            Row("the majority's class", f"{measured.figures['majority']:.3f}", "", "-", "-"),
            Row("each alone, mean", f"{measured.figures['alone']:.3f}", "", "not shared", "not shared"),
            Row("each alone, worst", f"{measured.figures['alone_worst']:.3f}", "", "not shared", "not shared"),
            Row("all data pooled", f"{measured.figures['pooled']:.3f}", "", "none", "none"),
            Row(f"best at ε = 1: {measured.best}", "", f"{measured.best_value:.3f}", "-", "-"),
        ]

    def expected(self, algorithm: str, epsilon: float) -> str:
        """The mean accuracy and its deviation over simulated runs with other noise."""
        settled, _ = settle(algorithm, parameters(algorithm), facts := self.facts(epsilon))
        models = (simulate(settled, self.shards, facts, SeededNoise(i)) for i in range(SIMULATIONS))
        values = [accuracy(model, self.public) for model in models]
        return f"{np.mean(values):.3f} ± {np.std(values):.3f}"

    def facts(self, epsilon: float) -> FederationFacts:
        """Return the facts that the owners agree on for a secure sum."""
        return FederationFacts.uniform(
            self.shards.n_examples,
            epsilon=epsilon,
            delta=DELTA,
            n_features=self.study.n_features,
            loss=build_loss(self.study),
            secure_sum=True,
            colluders=1,
        )


def over_http(stack: ExitStack, root: Path, deployment: Deployment, url: str, laboratory: Laboratory) -> list[Row]:
    """Train each of RUNS through the learner's REST API and test the models by its predictions."""
    headers = {"Authorization": f"Bearer {deployment.user_token}"}
    client = stack.enter_context(httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30.0))
    records, labels = held_out(root)
    rows = []
    for algorithm, epsilon in RUNS:
        run = train(client, algorithm, epsilon)
        predictions = answer(client.post(f"/v1/runs/{run}/predictions", json={"records": records}))
        right = sum(made["label"] == label for made, label in zip(predictions, labels, strict=True)) / len(labels)
        opened = answer(client.get(f"/v1/runs/{run}/receipts"))
        title = f"{algorithm}, ε = {epsilon:g}"
        console.print(f"{title}: trained; {len(opened)} sums opened and signed for by the key holder")
        made = answer(client.get(f"/v1/runs/{run}/model"))["guarantees"]
        promised = {entry["view"]: entry for entry in reversed(made)}
        claims = (figure(promised.get(view)) for view in ("model", "transcript"))
        rows.append(Row(title, f"{right:.3f}", laboratory.expected(algorithm, epsilon), *claims))
    return rows


def parameters(algorithm: str) -> dict[str, int]:
    """An algorithm's parameters where they are not the default ones."""
    return {"n_rounds": ROUNDS[algorithm]} if algorithm in ROUNDS else {}


def held_out_file(root: Path) -> Path:
    """Return the path of the public test biopsies in a deployment."""
    return root / "learner" / "data" / f"{BIOPSIES.name}.csv"


def held_out(root: Path) -> tuple[list[dict[str, float]], list[str]]:
    """The public test biopsies as a user would send them, and their diagnoses."""
    with held_out_file(root).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    records = [{name: float(row[name]) for name in BIOPSIES.feature_names} for row in rows]
    return records, [row[BIOPSIES.label.name] for row in rows]


def train(client: httpx.Client, algorithm: str, epsilon: float) -> str:
    """Submit a run and watch it to its end; returns its id. Raises RuntimeError unless it completes."""
    request = {
        "study": BIOPSIES.name,
        "algorithm": algorithm,
        "parameters": parameters(algorithm),
        "epsilon": epsilon,
        "delta": DELTA,
        "secure_sum": "paillier",
    }
    run: str = answer(client.post("/v1/runs", json=request))["id"]
    deadline = time.monotonic() + RUN_SECONDS
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{algorithm}, epsilon = {epsilon:g}", total=None)
        while time.monotonic() < deadline:
            state = answer(client.get(f"/v1/runs/{run}"))
            bar.update(task, total=state["rounds"]["of"], completed=state["rounds"]["done"])
            if state["state"] == "completed":
                return run
            if state["state"] in {"failed", "cancelled"}:
                raise RuntimeError(f"{algorithm}: {state['state']}: {(state['problem'] or {}).get('detail')}")
            time.sleep(0.1)
    raise RuntimeError(f"{algorithm}: not done within {RUN_SECONDS:g} s")


def answer(response: httpx.Response) -> Any:  # noqa: ANN401 -- any JSON value
    """A response's JSON. Raises RuntimeError with the problem's words if it is one."""
    if not response.is_success:
        raise RuntimeError(f"{response.request.url}: {response.status_code}: {response.json().get('detail')}")
    return response.json()


def figure(guarantee: dict[str, Any] | None) -> str:
    """Return a guarantee in short; its delta is DELTA."""
    return "-" if guarantee is None else f"ε = {guarantee['epsilon']:.3g}"


def many_owners() -> list[Row]:
    """Owners too small to learn alone: made-up rows, a quarter of them positive, one in twenty labelled by chance."""
    from sklearn.datasets import make_classification  # noqa: PLC0415 -- a second to import

    X, y = make_classification(
        26_667, 14, n_informative=8, weights=[0.75], flip_y=0.05, class_sep=0.8, random_state=7
    )  # fmt: skip
    features = tuple(Feature(name=f"x{i}", lower=-6, upper=6) for i in range(X.shape[1]))
    study = Study(name="made", features=features, label=Label(name="y", values=("0", "1")))
    columns = dict(zip(study.feature_names, X.T, strict=True)) | {"y": y}
    train, test = examples(study, shard_of(study, columns, clip=True)).draw(np.random.default_rng(7))
    laboratory = Laboratory(study, deal(train, (100,) * 200), test)
    expected = {epsilon: laboratory.expected("dp_gd", epsilon) for epsilon in (1.0, 0.1)}
    runs = [Row(f"dp_gd, ε = {epsilon:g}", "", text, "-", f"ε = {epsilon:g}") for epsilon, text in expected.items()]
    return [*laboratory.baselines(), *runs]


def show(title: str, rows: Sequence[Row]) -> None:
    """Print a closing table."""
    table = Table(title=title)
    table.add_column("how")
    for heading in ("accuracy", f"of {SIMULATIONS} simulated", "claimed for the model", "holds for all rounds"):
        table.add_column(heading, justify="right", max_width=13)
    for row in rows:
        table.add_row(row.what, row.accuracy, row.expected, row.claim, row.transcript)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
