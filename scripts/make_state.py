"""Keep the state of a federation in mid-run, for the test that later versions open it.

    python scripts/make_state.py NAME [--paused] [--out tests/data/states]

Three hospitals, a key holder and a learner run as real processes on loopback, on the public breast cancer data, with
settings as `make_deployment` writes them. Two runs are completed. Then a secure sum and a plain run are in progress as
the learner is killed, at once or once they are paused because a hospital was killed. The packed folder NAME.tar.xz has
the settings, the state folders, throw-away keys, and in ``said.json`` what the services said of runs, models and
budgets. Rows that rows.tar.xz has at the same place are not packed again. Services, settings and commands are those of
the version that runs it.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from scripts.deployment.deployment import Deployment, make_deployment
from scripts.deployment.sites import KEY_HOLDER, LEARNER, Site, loopback_site
from scripts.loopback import COMMANDS, free_ports, processes, wait_until, wait_until_ready

until = partial(wait_until, seconds=120.0, pause=0.002)

PARTIES = ("hospital-a", "hospital-b", "hospital-c")
SERVICES = (LEARNER, KEY_HOLDER, *PARTIES)
SUM, PLAIN = {"secure_sum": "paillier"}, {"secure_sum": "none"}
COMPLETED = (
    {"algorithm": "dp_gd", "epsilon": 1.0, "parameters": {"n_rounds": 2}, **SUM},
    {"algorithm": "psgd", "epsilon": 0.3, "parameters": {"n_rounds": 3}, **PLAIN},
)
IN_PROGRESS = (
    {"algorithm": "dp_gd", "epsilon": 1.0, "parameters": {"n_rounds": 5}, **SUM},
    {"algorithm": "dp_gd", "epsilon": 0.5, "parameters": {"n_rounds": 40}, **PLAIN},
)


def main() -> None:
    """Make the federation, stop it in mid-run, and pack what is left of it."""
    parser = argparse.ArgumentParser(description="Keep a federation's state in mid-run.")
    parser.add_argument("name", metavar="NAME", help="the version or commit whose state it is")
    parser.add_argument("--paused", action="store_true", help="stop once the runs are paused, not while they run")
    default = Path(__file__).parents[1] / "tests" / "data" / "states"
    parser.add_argument("--out", type=Path, default=default, help="default: %(default)s")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    with tempfile.TemporaryDirectory(prefix="parley-state-") as folder:
        os.chdir(folder)  # settings name files by paths that begin here, so that the folder can be moved
        answers = record(Path(folder), paused=options.paused)
        Path("said.json").write_text(json.dumps(answers, indent=1), encoding="utf-8")
        pack(out / f"{options.name}.tar.xz", out / "rows.tar.xz")


def record(root: Path, *, paused: bool) -> dict[str, Any]:
    """Run a federation in a folder, and kill its learner in mid-run; return what the services said by then."""
    ports = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
    deployment = make_deployment(root, lambda name: _relative(loopback_site(root, name, ports[name]), root), PARTIES)
    for service in deployment.services.values():
        if service.first:
            _run(*service.first, "--config", service.config)
    commands: dict[str, list[str | Path]] = {
        name: [COMMANDS / service.command[0], *service.command[1:], "--config", service.config]
        for name, service in deployment.services.items()
    }
    with ExitStack() as stack:
        started = stack.enter_context(processes(commands, root))
        wait_until_ready({name: service.url for name, service in deployment.services.items()})
        learner = stack.enter_context(_client(deployment, LEARNER, deployment.user_token))
        study = next(Path(LEARNER, "data", "studies").glob("*.json")).stem

        def submit(terms: Mapping[str, Any]) -> str:
            run: str = _json(learner.post("/v1/runs", json={"study": study, "delta": 1e-5, **terms}))["id"]
            return run

        def view(run: str) -> dict[str, Any]:
            return _json(learner.get(f"/v1/runs/{run}"))

        def is_completed(run: str) -> bool:
            return bool(view(run)["state"] == "completed")

        completed = []
        for terms in COMPLETED:
            completed.append(submit(terms))
            until(partial(is_completed, completed[-1]))
        runs = [submit(terms) for terms in IN_PROGRESS]
        until(lambda: all(view(run)["rounds"]["done"] for run in runs))
        if paused:
            started[PARTIES[-1]].kill()
            until(lambda: all(view(run)["state"] == "paused" for run in runs))
        views = {run: view(run) for run in (*completed, *runs)}
        models = {run: _json(learner.get(f"/v1/runs/{run}/model")) for run in completed}
        started[LEARNER].kill()
        started[LEARNER].wait()
        time.sleep(1)  # until the parties have answered what they were asked last
        budgets = {name: _budget(deployment, name) for name in (PARTIES[:-1] if paused else PARTIES)}
    return {"paused": paused, "runs": views, "models": models, "budgets": budgets}


def pack(path: Path, rows: Path) -> None:
    """Pack the present folder, without logs, and without the files that ``rows`` has; begin that file if need be."""
    tables = sorted(Path().glob("*/data/*.csv"))
    if not rows.exists():
        _tar(rows, tables)
    with tarfile.open(rows) as known:
        contents = {Path(member.name): file.read() for member in known if (file := known.extractfile(member))}
        same = {table for table in tables if contents.get(table) == table.read_bytes()}
    files = (path for path in sorted(Path().rglob("*")) if path.is_file() and path.suffix != ".log")
    _tar(path, [file for file in files if file not in same])


def _tar(path: Path, files: list[Path]) -> None:
    """Pack files of the present folder, readable by their owner alone; what is packed says no name or time."""
    with tarfile.open(path, "w:xz", preset=9) as packed:
        for file in files:
            member = tarfile.TarInfo(str(file))
            content = file.read_bytes()
            member.size, member.mode = len(content), 0o600
            packed.addfile(member, io.BytesIO(content))


def _relative(site: Site, root: Path) -> Site:
    """Return a site whose paths begin at a folder."""
    root = root.resolve()
    return replace(site, folder=site.folder.relative_to(root), state=site.state.relative_to(root))


def _run(program: str, *words: str | Path) -> None:
    """Run one of Parley's commands. Raises CalledProcessError."""
    subprocess.run([COMMANDS / program, *words], check=True, stdout=subprocess.DEVNULL, stderr=sys.stderr)  # noqa: S603


def _client(deployment: Deployment, name: str, token: str) -> httpx.Client:
    """Return a client of a service."""
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=deployment.services[name].url, headers=headers, timeout=60, trust_env=False)


def _budget(deployment: Deployment, party: str) -> dict[str, Any]:
    """Ask a party, as its learner, for what is spent and left."""
    token = Path(LEARNER, "secrets", f"{party}.token").read_text(encoding="ascii").strip()
    with _client(deployment, party, token) as client:
        return _json(client.get("/v1/budget"))


def _json(response: httpx.Response) -> dict[str, Any]:
    """Return the object that a service answers. Raises SystemExit for a refusal."""
    if not response.is_success:
        raise SystemExit(response.text)
    answer: dict[str, Any] = response.json()
    return answer


if __name__ == "__main__":
    main()
