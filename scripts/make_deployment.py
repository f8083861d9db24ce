"""Five hospitals, a learner and a key holder, made from the breast cancer data: all that they read, in one folder.

    python scripts/make_deployment.py [--out deploy]

What is made, under the folder:

    config/learner.toml, key-holder.toml, hospital-a.toml ...           the services' settings
    data/hospital-a/study.json, biopsies.csv ...                        each owner's copy of the study, and its shard
    data/learner/studies/wdbc.json, wdbc.csv                            the study, and held-out public examples
    secrets/learner/identity.key, secrets/hospital-a/identity.key ...   each service's signing key, which others pin
    secrets/learner/hospital-a.token ... key-holder.token               the learner's bearer token at each of them
    secrets/key-holder/secret                                           what the key holder's keys are sealed under
    secrets/user.token                                                  the bearer token of the learner's user

Settings hold hashes of tokens and public keys, never a secret. Run again, it writes the same files and keeps the
secrets, so that a deployment at work goes on working. Containers run as uid 10001 and mount the innermost folders:
these, and the files in them, are readable by all, and the folder around them by its owner alone, who thereby shuts out
everybody else.

In life each owner writes its own settings, and no one sees another's secrets: this script plays all of them.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.arrays import IntArray
from common.data.columns import Columns
from common.secure_sum.envelope import public_hex
from common.service.keys import read_key, write_key
from common.service.tokens import hash_token, new_token
from learner.experiments.datasets import TEST_FRACTION, WDBC, shard_sizes, wdbc_columns

HOSPITALS = tuple(f"hospital-{letter}" for letter in "abcde")
LEARNER, KEY_HOLDER = "learner", "key-holder"
SERVICES = (LEARNER, KEY_HOLDER, *HOSPITALS)
SEED = 2012


@dataclass(frozen=True, slots=True)
class Site:
    """A service's surroundings as it sees them: where it listens, how others reach it, and its folders."""

    name: str
    host: str
    port: int
    url: str
    data: Path
    secrets: Path
    state: Path


@dataclass(frozen=True, slots=True)
class Service:
    """How a service is started, and where it is reached: its command takes ``--config`` and the settings file."""

    command: tuple[str, ...]
    config: Path
    url: str


@dataclass(frozen=True, slots=True)
class Deployment:
    """What was made: the services by name, and the token with which a user asks the learner."""

    services: dict[str, Service]
    user_token: str


def container_site(name: str) -> Site:
    """A service in its container, as docker-compose.yml names and mounts it."""
    everywhere = "0.0.0.0"  # noqa: S104 -- within its container; the learner's port is published on loopback
    folders = (Path("/data"), Path("/run/secrets"), Path("/var/lib/parley"))
    return Site(name, everywhere, 8000, f"http://{name}:8000", *folders)


def loopback_site(root: Path, name: str, port: int) -> Site:
    """A service on this machine, its state under ``root`` too."""
    root = root.resolve()
    folders = (root / kind / name for kind in ("data", "secrets", "state"))
    return Site(name, "127.0.0.1", port, f"http://127.0.0.1:{port}", *folders)


def make_deployment(root: Path, place: Callable[[str], Site]) -> Deployment:
    """Write the data, secrets and settings of all services under a folder; ``place`` says where each is."""
    for kind in ("config", "data", "secrets"):
        _folder(root / kind, mode=0o700)
    _write_data(root / "data")
    keys = {name: _identity(_folder(root / "secrets" / name) / "identity.key") for name in SERVICES}
    hashes = {
        name: hash_token(_token(root / "secrets" / LEARNER / f"{name}.token")) for name in (KEY_HOLDER, *HOSPITALS)
    }
    _token(root / "secrets" / KEY_HOLDER / "secret")
    user_token = _token(root / "secrets" / "user.token", mode=0o600)
    sites = {name: place(name) for name in SERVICES}
    texts = {name: party_toml(sites[name], hashes[name], keys) for name in HOSPITALS}
    texts[LEARNER] = learner_toml(sites, hash_token(user_token), keys)
    texts[KEY_HOLDER] = keyholder_toml(sites[KEY_HOLDER], hashes[KEY_HOLDER], keys)
    for name, text in texts.items():
        _write(root / "config" / f"{name}.toml", text)
    commands = {LEARNER: ("parley-learner", "serve"), KEY_HOLDER: ("parley-party", "keyholder", "serve")}
    services = {
        name: Service(commands.get(name, ("parley-party", "serve")), root / "config" / f"{name}.toml", site.url)
        for name, site in sites.items()
    }
    return Deployment(services, user_token)


def party_toml(site: Site, learner_token_hash: str, keys: Mapping[str, str]) -> str:
    """A hospital's settings file; ``keys`` are everybody's public keys."""
    others = "".join(
        f"""
[[secure_sum.parties]]
name = "{name}"
public_key = "{keys[name]}"
"""
        for name in HOSPITALS
        if name != site.name
    )
    return f"""\
# {site.name}: what it holds, whom it answers, whom it trusts with opening sums, and what its owner allows.
{_service_toml(site)}
study = "{site.data}/study.json"

[data]
path = "{site.data}/biopsies.csv"
out_of_bounds = "clip"  # the study's bounds are one typical spread wide

[policy]  # room for a demonstration on public data: psgd's claimed epsilon = 1 costs 7.6 once all rounds are counted
epsilon = 20.0
delta = 1e-3
max_epsilon_per_run = 8.0
max_delta_per_run = 1e-4
view = "transcript"
algorithms = ["dp_gd", "psgd"]
minimum_contributors = 3
minimum_rows = 50

[[learners]]
name = "{LEARNER}"
token_hash = "{learner_token_hash}"
public_key = "{keys[LEARNER]}"

[[secure_sum.key_holders]]
name = "{KEY_HOLDER}"
public_key = "{keys[KEY_HOLDER]}"
{others}"""


def keyholder_toml(site: Site, learner_token_hash: str, keys: Mapping[str, str]) -> str:
    """The key holder's settings file; ``keys`` are everybody's public keys."""
    return f"""\
# {site.name}: whose sums it opens. Whoever runs it must not collude with the learner.
{_service_toml(site)}
secret_file = "{site.secrets}/secret"

[[learners]]
name = "{LEARNER}"
token_hash = "{learner_token_hash}"
public_key = "{keys[LEARNER]}"
"""


def learner_toml(sites: Mapping[str, Site], user_token_hash: str, keys: Mapping[str, str]) -> str:
    """The learner's settings file; ``keys`` are everybody's public keys."""
    site = sites[LEARNER]
    roster = "".join(
        f"""
[[{kind}]]
name = "{name}"
url = "{sites[name].url}"
token_file = "{site.secrets}/{name}.token"
public_key = "{keys[name]}"
"""
        for kind, names in (("parties", HOSPITALS), ("key_holders", (KEY_HOLDER,)))
        for name in names
    )
    return f"""\
# The learner: who takes part, who may ask, and the public examples that it measures rounds on.
{_service_toml(site)}
studies = "{site.data}/studies"
deadline_seconds = 5.0

[public_data]
{WDBC.name} = "{site.data}/{WDBC.name}.csv"

[[users]]
name = "analyst"
token_hash = "{user_token_hash}"
{roster}"""


def _service_toml(site: Site) -> str:
    """What the settings of every service begin with."""
    return f"""\
name = "{site.name}"
host = "{site.host}"
port = {site.port}
state = "{site.state}"
identity_key_file = "{site.secrets}/identity.key\""""


def _write_data(root: Path) -> None:
    """The study for everybody, a shard for each hospital, a held-out quarter for the learner."""
    columns, study = wdbc_columns(), WDBC.model_dump_json(indent=2) + "\n"
    order = np.random.default_rng(SEED).permutation(len(columns[WDBC.label.name]))
    n_public = int(len(order) * TEST_FRACTION)
    ends = np.cumsum(shard_sizes(len(order) - n_public, len(HOSPITALS)))
    for name, rows in zip(HOSPITALS, np.split(order[n_public:], ends[:-1]), strict=True):
        folder = _folder(root / name)
        _write(folder / "study.json", study)
        _write(folder / "biopsies.csv", _csv(columns, rows))
    learner = _folder(root / "learner")
    _write(_folder(learner / "studies") / f"{WDBC.name}.json", study)
    _write(learner / f"{WDBC.name}.csv", _csv(columns, order[:n_public]))


def _csv(columns: Columns, rows: IntArray) -> str:
    """Some rows of a table as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column[rows].tolist() for column in columns.values()), strict=True))
    return buffer.getvalue()


def _identity(path: Path) -> str:
    """The public half of the signing key in a file, made where there is none."""
    if not path.exists():
        _write(path, write_key(Ed25519PrivateKey.generate()).decode("ascii"))
    return public_hex(read_key(path.read_bytes(), str(path)))


def _token(path: Path, mode: int = 0o644) -> str:
    """The token in a file, made where there is none."""
    if not path.exists():
        _write(path, new_token() + "\n", mode)
    return path.read_text(encoding="ascii").strip()


def _folder(path: Path, mode: int = 0o755) -> Path:
    """A folder of this mode, whatever the umask."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    return path


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    """A file of this mode, whatever the umask; never readable by more than that, and replaced in one step."""
    draft = path.with_name(path.name + ".new")
    draft.touch(mode=0o600)
    draft.write_text(text, encoding="utf-8")
    draft.chmod(mode)
    draft.replace(path)


def main() -> None:
    """Make the deployment that docker-compose.yml runs."""
    parser = argparse.ArgumentParser(description="Make what five hospitals, a learner and a key holder read.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "deploy", help="default: %(default)s")
    root: Path = parser.parse_args().out
    made = make_deployment(root, container_site)
    print(f"made {root}: {len(made.services)} services; the user's token is in {root / 'secrets' / 'user.token'}")


if __name__ == "__main__":
    main()
