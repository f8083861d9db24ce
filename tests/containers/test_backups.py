"""A backup leaves a running container as one tar, though there is no shell in it and its root cannot be written to."""

from __future__ import annotations

import io
import subprocess
import tarfile

import pytest

from scripts.deployment.sites import HOSPITALS, KEY_HOLDER, LEARNER
from tests.support.containers import Project

COMMANDS = {
    LEARNER: ("learner.sqlite", ["parley-learner", "backup", "-", "--config", "learner.toml"]),
    HOSPITALS[0]: ("ledger.db", ["parley-party", "backup", "-", "--config", "party.toml"]),
    KEY_HOLDER: (
        "keyholder.db",
        ["parley-party", "keyholder", "backup", "-", "--config", "keyholder.toml"],
    ),
}


@pytest.mark.parametrize("service", COMMANDS)
def test_a_backup_leaves_a_container_as_one_tar(services: Project, service: str) -> None:
    database, command = COMMANDS[service]
    done = subprocess.run(
        ["docker", "exec", services.container(service), *command], capture_output=True, timeout=60, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        names = archive.getnames()
    assert (database in names, names[-1]) == (True, "backup.json")
    assert not [name for name in names if name.startswith(("keys/", "anchor/", "."))]
