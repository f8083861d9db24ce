"""Deployments as scripts/deployment makes them, for tests to look at."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from scripts.deployment.deployment import Deployment, make_deployment
from scripts.deployment.sites import HOSPITALS, SERVICES, container_site, loopback_site
from scripts.make_deployment import main


def on_loopback(root: Path, *, tls: bool = False) -> Deployment:
    return make_deployment(root, lambda name: loopback_site(root, name, 8100 + SERVICES.index(name), tls=tls))


def in_containers(root: Path, *, tls: bool = False, parties: tuple[str, ...] = HOSPITALS) -> Deployment:
    return make_deployment(root, partial(container_site, tls=tls), parties)


def run_script(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr("sys.argv", ["make_deployment.py", *map(str, arguments)])
    main()


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
