"""Who takes part in a deployment, and where each service is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from string import ascii_lowercase

LEARNER, KEY_HOLDER = "learner", "key-holder"
MOST_PARTIES = 50


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
    """A service's surroundings as it sees them: where it listens, how others reach it, and its folders."""

    name: str
    listens: str
    host: str
    port: int
    data: Path
    secrets: Path
    state: Path
    tls: bool = False

    @property
    def url(self) -> str:
        """The URL at which the other services reach it."""
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"


def container_site(name: str, *, tls: bool = False) -> Site:
    """A service in its container, as docker-compose.yml names and mounts it."""
    everywhere = "0.0.0.0"  # noqa: S104 -- within its container; the learner's port is published on loopback
    return Site(name, everywhere, name, 8000, Path("/data"), Path("/run/secrets"), Path("/var/lib/parley"), tls)


def loopback_site(root: Path, name: str, port: int, *, tls: bool = False) -> Site:
    """A service on this machine, its state under ``root`` too."""
    root = root.resolve()
    data, secrets, state = (root / kind / name for kind in ("data", "secrets", "state"))
    return Site(name, "127.0.0.1", "127.0.0.1", port, data, secrets, state, tls)
