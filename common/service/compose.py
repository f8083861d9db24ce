"""The Compose file of one service at a site of its own, for Compose 1.29 and 2: ``docker-compose.NAME.yml``.

A folder is mounted at its own path, so that its settings are valid inside the container and outside. The container runs
as the user who made the folder, so that private keys stay readable by that user alone. The service writes only to the
folder ``state``.

A party or key holder is on a network that leads nowhere: not to the internet, nor to the machine itself, which is why
its bridge has no address (``internal`` alone leaves the machine within reach), and no names are asked outside. A second
container, the gate, is also on this network, under the names of the few places that the service may reach, and passes
connections on to these alone (`parley.common.service.forward`).
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
from parley.common.service.forward import Place
from parley.common.storage.keys import writing
from parley.common.strict import is_address, is_loopback

IMAGE_USER = 10001
"""The user that a container runs as if root made its folder: the images' own user."""

_TEMPLATE = """\
# {name}: docker compose -f {file} up -d (or docker-compose, version 1).
# PARLEY_TAG names another image than the latest; PARLEY_MEMORY how much it may have, instead of 2g.
x-confined: &confined
  user: "{user}"
  working_dir: /
  init: true
  read_only: true
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  restart: unless-stopped
  stop_grace_period: 30s
  cpus: 1.0
  pids_limit: 256
  logging: {{driver: json-file, options: {{max-size: 10m, max-file: "5"}}}}

services:
  {name}:
    <<: *confined
    image: {image}:${{PARLEY_TAG:-latest}}
    command: {command}
    tmpfs: ["/tmp:mode=1777,size=64m", "/var/lib/parley:mode=0700,size=1m"]
    mem_limit: ${{PARLEY_MEMORY:-2g}}
{environment}{connected}    volumes:
{volumes}{gate}"""

_PUBLISHED = """\
    ports: {ports}
"""

_INSIDE = """\
    networks: [inside]
    links: {links}
    dns: ["127.0.0.1"]  # nobody is asked for names: those above are all
"""

_GATE = """\

  gate:  # the one way out: to the places of its command, and to no other
    <<: *confined
    image: parley-party:${{PARLEY_TAG:-latest}}
    command: {command}
    tmpfs: ["/tmp:mode=1777,size=1m", "/var/lib/parley:mode=0700,size=1m"]
    mem_limit: 256m
    healthcheck: {{disable: true}}
    networks: [inside, outside]
{published}
networks:
  inside:
    internal: true
    driver_opts: {{com.docker.network.bridge.inhibit_ipv4: "true"}}  # nor is this machine within reach
  outside:
"""

_ENVIRONMENT = """\
    environment:  # what Compose publishes on this machine alone listens beyond the container's own loopback
"""


@dataclass(frozen=True, slots=True)
class ContainerService:
    """The service in the container; ``command`` takes ``serve`` and ``--config``.

    ``reaches`` are the only places that the service can connect to, through a gate; one without a gate, which others
    connect to, may reach all. ``ports`` are published as Compose spells them, and ``listeners`` for this machine alone,
    by the variables of their settings: its owner's page, and its metrics. With a gate, the gate publishes them.
    """

    name: str
    command: tuple[str, ...]
    settings: Path
    reads: tuple[Path, ...] = ()
    ports: tuple[str, ...] = ()
    reaches: tuple[Place, ...] = ()
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
        return _TEMPLATE.format(
            name=self.name,
            file=self.file.name,
            image="parley-learner" if program == "parley-learner" else "parley-party",
            command=_quoted([*words, "serve", "--config", str(self.settings)]),
            user=user,
            environment=_ENVIRONMENT + "".join(map(_beyond_loopback, self.listeners)) if self.listeners else "",
            connected=self._inside() if self.reaches else self._published(),
            volumes="".join(f"      - {mount}\n" for mount in mounts),
            gate=self._gate() if self.reaches else "",
        )

    @property
    def _ports(self) -> list[str]:
        return [*self.ports, *(f"127.0.0.1:{port}:{port}" for port in self.listeners.values())]

    def _published(self) -> str:
        return _PUBLISHED.format(ports=_quoted(self._ports)) if self._ports else ""

    def _inside(self) -> str:
        """Return how the service reaches its places: under their names, through the gate."""
        return _INSIDE.format(links=_quoted([f"gate:{host}" for host in dict.fromkeys(p.host for p in self.reaches)]))

    def _gate(self) -> str:
        """Return the gate and the networks; to what is published it passes connections on as well."""
        inward = [f"{port}:{self.name}:{port}" for port in (each.rpartition(":")[2] for each in self._ports)]
        outward = [f"{place.host}:{place.port}" for place in self.reaches]
        return _GATE.format(command=_quoted(["forward", *outward, *inward]), published=self._published())


def data_folder(source: str) -> Path:
    """Return the path that a container needs to read a source of data: a file, or the folder where a pattern begins.

    >>> str(data_folder("/data/*.parquet")), str(data_folder("/data/lab.sqlite::labs"))
    ('/data', '/data/lab.sqlite')
    """
    path = Path(source.partition("::")[0])
    return next(part for part in (path, *path.parents) if not set("*?[") & set(str(part)))


def reached_places(urls: Sequence[str], others: Sequence[str] = ()) -> tuple[Place, ...]:
    """Return the places of URLs, and ``others`` spelt ``HOST:PORT``, as a container reaches them through its gate.

    Raises InvalidInputError for an address in place of a name, since a gate leads to names alone, for a loopback
    address, and for two places with one port.
    """
    places = [*map(_place, urls), *others]
    for place in Place.parse_all(places):
        if place.listen != place.port:
            raise InvalidInputError(f"{place.listen}:{place.host}:{place.port} is not HOST:PORT")
        _check_named(place.host)
    return Place.parse_all(places)


def _place(url: str) -> str:
    """Return ``HOST:PORT`` of a URL. Raises InvalidInputError for an address in place of a name."""
    parts = urlsplit(url)
    _check_named(parts.hostname or "")
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def _check_named(host: str) -> None:
    """Raise InvalidInputError for a host that a container cannot reach by its name."""
    if is_loopback(host):
        raise InvalidInputError(f"--compose: within a container, {host} is the container: it needs a name")
    if is_address(host):
        raise InvalidInputError(f"--compose: a gate leads to names, and {host} is an address: it needs a name")


def _beyond_loopback(variable: str) -> str:
    """Return the variables by which a listener listens on all addresses of its container."""
    return f'      {variable}__HOST: "0.0.0.0"\n      {variable}__PLAIN_HTTP: "true"\n'


def _mount(path: Path, *, read_only: bool = True) -> str:
    return _quoted({"type": "bind", "source": str(path), "target": str(path), "read_only": read_only})


def _quoted(value: Sequence[str] | dict[str, object]) -> str:
    """Return a value as YAML for Compose: JSON is YAML, and a doubled dollar sign begins no variable."""
    return json.dumps(value, ensure_ascii=False).replace("$", "$$")
