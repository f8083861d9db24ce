"""The Compose file of one service at a site of its own, for Compose 1.29 and 2: ``docker-compose.NAME.yml``.

A folder is mounted at its own path, so that its settings are valid inside the container and outside. The container runs
as the user who made the folder, so that private keys stay readable by that user alone. The service writes only to the
folder ``state``.

A party or key holder is on a network that leads nowhere: not to the internet, nor to the machine itself, which is why
its bridge has no address (``internal`` alone leaves the machine within reach), and no names are asked outside. A second
container, the gate, is also on this network, under the names of the few places that the service may reach, and passes
connections on to these alone (`parley.common.service.forward`). A gate has one place at each port: where two places
have the same, as two learners may, there is one more gate.

The file follows the settings: when there are more tables to read or more places to reach, it is written again. One that
somebody has changed by hand is left as it is, and what it lacks is said.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import urlsplit

from parley.common.errors import InvalidInputError
from parley.common.service.forward import Place
from parley.common.storage.keys import writing
from parley.common.strict import is_address, is_loopback

IMAGE_USER = 10001
"""The user that a container runs as if root made its folder: the images' own user."""

_USER = re.compile(r'(?m)^  user: "(\d+:\d+)"$')
_MOUNT = re.compile(r"(?m)^      - (\{.*\})$")
_FORWARD = re.compile(r'(?m)^    command: (\["forward".*\])$')

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

  {name}:  # {purpose}
    <<: *confined
    image: parley-party:${{PARLEY_TAG:-latest}}
    command: {command}
    tmpfs: ["/tmp:mode=1777,size=1m", "/var/lib/parley:mode=0700,size=1m"]
    mem_limit: 256m
    healthcheck: {{disable: true}}
    networks: [inside, outside]
{published}"""

_NETWORKS = """\

networks:
  inside:
    internal: true
    driver_opts: {com.docker.network.bridge.inhibit_ipv4: "true"}  # nor is this machine within reach
  outside:
"""

_FIRST_GATE = "the one way out: to the places of its command, and to no other"
_FURTHER_GATE = "the same for places whose ports the gate above has for others"

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

    def write(self) -> Written:
        """Write the file, or have an earlier one follow; give a folder of root to the image's user.

        Raises UnavailableError where the disk refuses it.
        """
        folder = self.settings.parent
        user, group = os.getuid() or IMAGE_USER, os.getgid() or IMAGE_USER
        notes: tuple[str, ...] = ()
        with writing(self.file):
            if self.file.exists():
                text, notes = self._following(self.file.read_text(encoding="utf-8"))
                if text is not None:
                    self.file.write_text(text, encoding="utf-8")
            else:
                self.file.write_text(self.text(f"{user}:{group}"), encoding="utf-8")
            if os.getuid() == 0:
                for path in (folder, *folder.rglob("*")):
                    os.chown(path, user, group, follow_symlinks=False)
        return Written(f"docker compose -f {quote(str(self.file))} up -d", notes)

    def _following(self, text: str) -> tuple[str | None, tuple[str, ...]]:
        """Return what an earlier file's text has to become, None to leave it, and what its owner has to know.

        Mounts become those of ``reads`` alone; what is reached stays, since the owner may have said it once.
        """
        user, before = _USER.search(text), self._as_in(text)
        if user is None or before is None or before.text(user[1]) != text:
            lacking = [*self._lacking(text)]
            return None, (f"{self.file} was changed by hand: add {'; '.join(lacking)}",) if lacking else ()
        after = replace(self, reaches=tuple(dict.fromkeys((*before.reaches, *self.reaches))))
        if (new := after.text(user[1])) == text:
            return None, ()
        gone = [str(path) for path in before.reads if path not in self.reads]
        unmounted = (f"{self.file} no longer mounts {', '.join(gone)}: no study has it",) if gone else ()
        return new, (*unmounted, f"{self.file} is changed: the container has to be made again, by the command below")

    def _as_in(self, text: str) -> ContainerService | None:
        """Return the same service with what a file's text mounts and reaches; None if it cannot be understood."""
        try:
            mounts = [_unquoted(mount) for mount in _MOUNT.findall(text)]
            passed_on = [place for command in _FORWARD.findall(text) for place in _unquoted(command)[1:]]
            reads = tuple(Path(mount["source"]) for mount in mounts[2:])
            reaches = tuple(Place.parse(place) for place in passed_on if place.count(":") == 1)
        except (ValueError, TypeError, KeyError, InvalidInputError):
            return None
        return replace(self, reads=reads, reaches=reaches)

    def _lacking(self, text: str) -> Iterator[str]:
        """Yield what a file that was changed by hand does not have, and where it belongs."""
        for path in self.reads:
            if not _names(text, str(path).replace("$", "$$")):
                yield f"- {_mount(path)} to the volumes of {self.name}"
        for name, places in self._gates().items():
            for place in places:
                if not _names(text, f"{place.host}:{place.port}"):
                    link, at = _quoted(f"{name}:{place.host}"), _quoted(f"{place.host}:{place.port}")
                    yield f"{at} to the command of {name}, and {link} to the links of {self.name}"

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
            gate="".join([*self._gate_texts(), _NETWORKS]) if self.reaches else "",
        )

    @property
    def _ports(self) -> list[str]:
        return [*self.ports, *(f"127.0.0.1:{port}:{port}" for port in self.listeners.values())]

    def _published(self) -> str:
        return _PUBLISHED.format(ports=_quoted(self._ports)) if self._ports else ""

    def _inside(self) -> str:
        """Return how the service reaches its places: under their names, through the gates."""
        links = [f"{gate}:{host}" for gate, places in self._gates().items() for host in _hosts(places)]
        return _INSIDE.format(links=_quoted(links))

    def _gates(self) -> dict[str, list[Place]]:
        """Return the places that each gate leads to; a host, whose name leads to one gate, has all its places there."""
        gates: list[list[Place]] = []
        for host in _hosts(self.reaches):
            own = [place for place in self.reaches if place.host == host]
            ports = {place.port for place in own}
            free = next((gate for gate in gates if not ports & {place.port for place in gate}), None)
            if free is None:
                gates.append(own)
            else:
                free.extend(own)
        names = ["gate", *(f"gate-{number}" for number in range(2, len(gates) + 1))]
        return {name: sorted(gate, key=self.reaches.index) for name, gate in zip(names, gates, strict=True)}

    def _gate_texts(self) -> Iterator[str]:
        """Yield each gate; to what is published the first one passes connections on as well."""
        inward = [f"{port}:{self.name}:{port}" for port in (each.rpartition(":")[2] for each in self._ports)]
        published = self._published()
        purpose = _FIRST_GATE
        for name, places in self._gates().items():
            outward = [f"{place.host}:{place.port}" for place in places]
            command = _quoted(["forward", *outward, *inward])
            yield _GATE.format(name=name, purpose=purpose, command=command, published=published)
            inward, published, purpose = [], "", _FURTHER_GATE


@dataclass(frozen=True, slots=True)
class Written:
    """The command that starts the containers of a Compose file, or makes them again, and what the owner has to know."""

    start: str
    notes: tuple[str, ...] = ()


def reached_places(urls: Sequence[str], others: Sequence[str] = ()) -> tuple[Place, ...]:
    """Return the places of URLs, and ``others`` spelt ``HOST:PORT``, as a container reaches them through its gate.

    Raises InvalidInputError for an address in place of a name, since a gate leads to names alone, and for a loopback
    address.
    """
    places = tuple(dict.fromkeys(map(Place.parse, [*map(_place, urls), *others])))
    for place in places:
        if place.listen != place.port:
            raise InvalidInputError(f"{place.listen}:{place.host}:{place.port} is not HOST:PORT")
        _check_named(place.host)
    return places


def _hosts(places: Sequence[Place]) -> list[str]:
    """Return the hosts of places, each once."""
    return list(dict.fromkeys(place.host for place in places))


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


def _names(text: str, word: str) -> bool:
    """Say whether a text has a path or place that is not the beginning of a longer one."""
    return re.search(rf"(?<![\w/.-]){re.escape(word)}(?![\w/.-])", text) is not None


def _quoted(value: Sequence[str] | dict[str, object]) -> str:
    """Return a value as YAML for Compose: JSON is YAML, and a doubled dollar sign begins no variable."""
    return json.dumps(value, ensure_ascii=False).replace("$", "$$")


def _unquoted(text: str) -> Any:  # noqa: ANN401 -- what a file has
    """Return the value that `_quoted` has spelt. Raises ValueError."""
    return json.loads(text.replace("$$", "$"))
