"""The Compose file of one service at a site of its own, for Compose 1.29 and 2: ``docker-compose.NAME.yml``.

A folder is mounted at its own path, so that its settings are valid inside the container and outside. The container runs
as the user who made the folder, so that private keys stay readable by that user alone. The service writes only to the
folder ``state``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

from parley.common.errors import InvalidInputError
from parley.common.storage.keys import writing
from parley.common.strict import is_loopback

IMAGE_USER = 10001
"""The user that a container runs as if root made its folder: the images' own user."""

_TEMPLATE = """\
# {name}: docker compose -f {file} up -d (or docker-compose, version 1).
# PARLEY_TAG names another image than the latest; PARLEY_MEMORY how much it may have, instead of 2g.
services:
  {name}:
    image: {image}:${{PARLEY_TAG:-latest}}
    command: {command}
    user: "{user}"
    working_dir: /
    init: true
    read_only: true
    tmpfs: ["/tmp:mode=1777,size=64m", "/var/lib/parley:mode=0700,size=1m"]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    restart: unless-stopped
    stop_grace_period: 30s
    mem_limit: ${{PARLEY_MEMORY:-2g}}
    cpus: 1.0
    pids_limit: 256
{environment}{ports}    volumes:
{volumes}"""

_ENVIRONMENT = """\
    environment:  # what Compose publishes on this machine alone listens beyond the container's own loopback
"""


@dataclass(frozen=True, slots=True)
class ContainerService:
    """The service in the container; ``command`` takes ``serve`` and ``--config``.

    ``ports`` are published as Compose spells them; a service that opens its connections itself has none. ``listeners``
    are ports for this machine alone, by the variables of their settings: its owner's page, and its metrics.
    """

    name: str
    command: tuple[str, ...]
    settings: Path
    reads: tuple[Path, ...] = ()
    ports: tuple[str, ...] = ()
    listeners: Mapping[str, int] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The path of its Compose file, beside its settings."""
        return self.settings.parent / f"docker-compose.{self.name}.yml"

    def write(self) -> str:
        """Write the file unless it exists, and give a folder of root to the image's user; returns the command to start.

        Raises UnavailableError where the disk refuses it.
        """
        folder = self.settings.parent
        user, group = os.getuid() or IMAGE_USER, os.getgid() or IMAGE_USER
        with writing(self.file):
            if not self.file.exists():
                self.file.write_text(self.text(f"{user}:{group}"), encoding="utf-8")
            if os.getuid() == 0:
                for path in (folder, *folder.rglob("*")):
                    os.chown(path, user, group, follow_symlinks=False)
        return f"docker compose -f {quote(str(self.file))} up -d"

    def text(self, user: str) -> str:
        """Return the text of the file, for a container that runs as ``user``, uid:gid; it holds no secret."""
        folder = self.settings.parent
        mounts = [_mount(folder), _mount(folder / "state", read_only=False), *map(_mount, self.reads)]
        program, *words = self.command
        ports = [*self.ports, *(f"127.0.0.1:{port}:{port}" for port in self.listeners.values())]
        return _TEMPLATE.format(
            name=self.name,
            file=self.file.name,
            image="parley-learner" if program == "parley-learner" else "parley-party",
            command=_quoted([*words, "serve", "--config", str(self.settings)]),
            user=user,
            environment=_ENVIRONMENT + "".join(map(_beyond_loopback, self.listeners)) if self.listeners else "",
            ports=f"    ports: {_quoted(ports)}\n" if ports else "",
            volumes="".join(f"      - {mount}\n" for mount in mounts),
        )


def data_folder(source: str) -> Path:
    """Return the path that a container needs to read a source of data: a file, or the folder where a pattern begins.

    >>> str(data_folder("/data/*.parquet")), str(data_folder("/data/lab.sqlite::labs"))
    ('/data', '/data/lab.sqlite')
    """
    path = Path(source.partition("::")[0])
    return next(part for part in (path, *path.parents) if not set("*?[") & set(str(part)))


def check_reachable(url: str) -> None:
    """Raise InvalidInputError for a loopback address: within a container it is the container's own."""
    host = urlsplit(url).hostname or ""
    if is_loopback(host):
        raise InvalidInputError(f"--compose: within a container, {host} is the container: the learner needs a name")


def _beyond_loopback(variable: str) -> str:
    """Return the variables by which a listener listens on all addresses of its container."""
    return f'      {variable}__HOST: "0.0.0.0"\n      {variable}__PLAIN_HTTP: "true"\n'


def _mount(path: Path, *, read_only: bool = True) -> str:
    return _quoted({"type": "bind", "source": str(path), "target": str(path), "read_only": read_only})


def _quoted(value: Sequence[str] | dict[str, object]) -> str:
    """Return a value as YAML for Compose: JSON is YAML, and a doubled dollar sign begins no variable."""
    return json.dumps(value, ensure_ascii=False).replace("$", "$$")
