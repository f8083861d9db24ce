"""Who takes part in a deployment, and where each service is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from string import ascii_lowercase

LEARNER, KEY_HOLDER = "learner", "key-holder"
MOST_PARTIES = 50

SETUP = "setup"
"""What makes the deployment, and keeps what belongs to no service."""

MOUNTED, STATE, STATES = Path("/etc/parley"), Path("/var/lib/parley"), Path("/states")
"""Where a container has the folder of its service, by the service's name; where it writes; `setup`: where all write."""

_SETTINGS = {LEARNER: "learner.toml", KEY_HOLDER: "keyholder.toml"}


def hospitals(count: int) -> tuple[str, ...]:
    """The names of ``count`` hospitals.

    >>> hospitals(3)
    ('hospital-a', 'hospital-b', 'hospital-c')
    >>> hospitals(28)[25:]
    ('hospital-z', 'hospital-aa', 'hospital-ab')
    """
    letters = (first + second for first in ("", *ascii_lowercase) for second in ascii_lowercase)
    return tuple(f"hospital-{letter}" for letter in islice(letters, count))


HOSPITALS = hospitals(5)


def services_of(parties: Sequence[str]) -> tuple[str, ...]:
    """Return all services of a deployment of these parties."""
    return (LEARNER, KEY_HOLDER, *parties)


SERVICES = services_of(HOSPITALS)


@dataclass(frozen=True, slots=True)
class Site:
    """A service's surroundings as it sees them: where it listens, how others reach it, and its folders.

    Its metrics and its owner's page have ports of their own, or None.
    """

    name: str
    listens: str
    host: str
    port: int
    folder: Path
    state: Path
    tls: bool = False
    metrics_port: int | None = None
    page_port: int | None = None

    @property
    def config(self) -> Path:
        """Its settings file."""
        return self.folder / _SETTINGS.get(self.name, "party.toml")

    @property
    def data(self) -> Path:
        """The folder of its study and its table."""
        return self.folder / "data"

    @property
    def secrets(self) -> Path:
        """The folder of its keys, of tokens and of certificates."""
        return self.folder / "secrets"

    @property
    def url(self) -> str:
        """The URL at which the other services reach it."""
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"


def container_site(name: str, *, tls: bool = False) -> Site:
    """A service in its container, as docker-compose.yml names and mounts it."""
    everywhere = "0.0.0.0"  # noqa: S104 -- within its container; the learner's port is published on loopback
    metrics_port, page_port = owners_ports(name)
    return Site(name, everywhere, name, 8000, MOUNTED / name, STATE, tls, metrics_port, page_port)


def owners_ports(name: str) -> tuple[int | None, int | None]:
    """Return the ports of a service's metrics and of its owner's page, in its container and on the machine.

    >>> owners_ports("key-holder"), owners_ports("hospital-a"), owners_ports("learner")
    ((9100, None), (9101, 9201), (None, None))
    """
    if name == LEARNER:
        return None, None
    number = (KEY_HOLDER, *hospitals(MOST_PARTIES)).index(name)
    return 9100 + number, 9200 + number if number else None


def loopback_site(root: Path, name: str, port: int, *, tls: bool = False) -> Site:
    """A service on this machine, its state in its folder under ``root``."""
    folder = root.resolve() / name
    return Site(name, "127.0.0.1", "127.0.0.1", port, folder, folder / "state", tls)
