"""Hospitals, a learner and a key holder, made from the breast cancer data: all that they read, in one folder.

    python -m scripts.make_deployment [--parties 5] [--tls] [--out deploy]
    python -m scripts.make_deployment --renew [--out deploy]

What is made, under the folder:

    config/learner.toml, key-holder.toml, hospital-a.toml ...           the services' settings
    data/hospital-a/study.json, biopsies.csv ...                        each owner's copy of the study, and its shard
    data/learner/studies/biopsies.json, biopsies.csv                    the study, and held-out public examples
    secrets/learner/identity.key, secrets/hospital-a/identity.key ...   each service's signing key, which others pin
    secrets/learner/hospital-a.token ... key-holder.token               the learner's bearer token at each of them
    secrets/key-holder/secret                                           what the key holder's keys are sealed under
    secrets/user.token                                                  the bearer token of the learner's user
    secrets/hospital-a/tls.pem, tls.key, authority.pem ...              with --tls: each service's certificate
    authority/authority.pem, authority.key                              with --tls: who signs them; in no container

and beside it docker-compose.yml, which runs them. Settings hold hashes of tokens and public keys, never a secret. Run
again, it writes the same files and keeps the secrets, so that a deployment at work goes on working; --renew makes new
certificates, and touches nothing else. Containers run as uid 10001 and mount the innermost folders: these, and the
files in them, are readable by all, and the folder around them by its owner alone, who thereby shuts out everybody else.

In life each owner writes its own settings, and no one sees another's secrets: this script plays all of them.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.arrays import IntArray
from parley.common.data.columns import Columns
from parley.common.secure_sum.envelope import public_hex
from parley.common.service.tokens import hash_token, new_token
from parley.common.storage.keys import read_key, write_key
from parley.learner.experiments.datasets import BIOPSIES, TEST_FRACTION, shard_sizes, wdbc_columns
from scripts.deployment.authority import certify, expiry, renew
from scripts.deployment.compose import compose_yml
from scripts.deployment.files import make_folder, write_file
from scripts.deployment.settings import AUTHORITY_FILE, keyholder_toml, learner_toml, party_toml
from scripts.deployment.sites import (
    HOSPITALS,
    KEY_HOLDER,
    LEARNER,
    MOST_PARTIES,
    Site,
    container_site,
    hospitals,
    services_of,
)

SEED = 2012
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Service:
    """How a service is started, and where it is reached: its commands take ``--config`` and the settings file.

    ``first`` is run once, before the first start, and never again by itself: a party whose ledger was lost must say so,
    not begin at zero, and so must a key holder whose journal was. None where a service needs no such thing.
    """

    command: tuple[str, ...]
    config: Path
    url: str
    first: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """What was made: the services by name, and the token with which a user asks the learner."""

    services: dict[str, Service]
    user_token: str


def make_deployment(root: Path, place: Callable[[str], Site], parties: Sequence[str] = HOSPITALS) -> Deployment:
    """Write the data, secrets and settings of all services under a folder; ``place`` says where each is."""
    names = services_of(parties)
    sites = {name: place(name) for name in names}
    for kind in ("config", "data", "secrets"):
        make_folder(root / kind, mode=0o700)
    n_rows = _write_data(root / "data", parties)
    keys = {name: _identity(make_folder(root / "secrets" / name) / "identity.key") for name in names}
    hashes = {name: hash_token(_token(root / "secrets" / LEARNER / f"{name}.token")) for name in names[1:]}
    _token(root / "secrets" / KEY_HOLDER / "secret")
    user_token = _token(root / "secrets" / "user.token", mode=0o600)
    certify(root, [site for site in sites.values() if site.tls])
    texts = {name: party_toml(sites[name], hashes[name], keys, n_rows[name]) for name in parties}
    texts[LEARNER] = learner_toml(sites, hash_token(user_token), keys)
    texts[KEY_HOLDER] = keyholder_toml(sites[KEY_HOLDER], hashes[KEY_HOLDER], keys)
    for name, text in texts.items():
        write_file(root / "config" / f"{name}.toml", text)
    services = {name: _service(root, site) for name, site in sites.items()}
    return Deployment(services, user_token)


def compose_steps(deployment: Deployment) -> list[list[str]]:
    """Return the arguments of Compose for each step, from building the images to starting the services."""
    started = deployment.services.items()
    firsts = [
        ["run", "--rm", "--no-deps", name, *service.first[1:], "--config", f"/etc/parley/{_mounted(name)}.toml"]
        for name, service in started
        if service.first
    ]
    return [["build"], *firsts, ["up", "-d"]]


def _mounted(name: str) -> str:
    """Return the name of a service's settings file in its container."""
    return "keyholder" if name == KEY_HOLDER else "party"


def _service(root: Path, site: Site) -> Service:
    """Return how a service is started: its command, its settings and its URL."""
    config = root / "config" / f"{site.name}.toml"
    if site.name == LEARNER:
        return Service(("parley-learner", "serve"), config, site.url)
    if site.name == KEY_HOLDER:
        command = ("parley-party", "keyholder")
        return Service((*command, "serve"), config, site.url, first=(*command, "init"))
    return Service(("parley-party", "serve"), config, site.url, first=("parley-party", "init"))


def _write_data(root: Path, parties: Sequence[str]) -> dict[str, int]:
    """The study for everybody, a shard for each party, a held-out quarter for the learner; each party's rows.

    The owners are constructed: each has tumours of about one size, so that none can learn from its own what makes a
    tumour malignant.
    """
    columns, study = wdbc_columns(), BIOPSIES.model_dump_json(indent=2) + "\n"
    order = np.random.default_rng(SEED).permutation(len(columns[BIOPSIES.label.name]))
    n_public = int(len(order) * TEST_FRACTION)
    sizes = shard_sizes(len(order) - n_public, len(parties))
    by_size = order[n_public:][np.argsort(columns["mean_radius"][order[n_public:]], kind="stable")]
    for name, rows in zip(parties, np.split(by_size, np.cumsum(sizes)[:-1]), strict=True):
        folder = make_folder(root / name)
        write_file(folder / "study.json", study)
        write_file(folder / "biopsies.csv", _csv(columns, rows))
    learner = make_folder(root / "learner")
    write_file(make_folder(learner / "studies") / f"{BIOPSIES.name}.json", study)
    write_file(learner / f"{BIOPSIES.name}.csv", _csv(columns, order[:n_public]))
    return dict(zip(parties, map(int, sizes), strict=True))


def _csv(columns: Columns, rows: IntArray) -> str:
    """Return some rows of a table as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column[rows].tolist() for column in columns.values()), strict=True))
    return buffer.getvalue()


def _identity(path: Path) -> str:
    """The public half of the signing key in a file, made where there is none."""
    if not path.exists():
        write_file(path, write_key(Ed25519PrivateKey.generate()).decode("ascii"))
    return public_hex(read_key(path.read_bytes(), str(path)))


def _token(path: Path, mode: int = 0o644) -> str:
    """The token in a file, made where there is none."""
    if not path.exists():
        write_file(path, new_token() + "\n", mode)
    return path.read_text(encoding="ascii").strip()


def _refuse_another(root: Path, parties: Sequence[str], *, tls: bool) -> None:
    """Raise SystemExit where a folder was made otherwise: rows would change hands, or TLS would be gone unnoticed."""
    made = {path.stem for path in (root / "config").glob("*.toml")} - {LEARNER, KEY_HOLDER}
    if made and made != set(parties):
        raise SystemExit(f"{root} is of {len(made)} parties: say --parties {len(made)}, or another --out")
    if expiry(root) and not tls:
        raise SystemExit(f"{root} has certificates: say --tls, or another --out")


def _say_expiry(root: Path) -> None:
    """Print until when the certificates are good, where there are any."""
    if ends := expiry(root):
        print(
            f"certificates expire on {ends:%Y-%m-%d}; before that: make_deployment.py --renew; services read them again"
        )


def main() -> None:
    """Make the deployment that docker-compose.yml runs, or renew its certificates."""
    parser = argparse.ArgumentParser(description="Make what hospitals, a learner and a key holder read and are run by.")
    parser.add_argument("--out", type=Path, default=ROOT / "deploy", help="default: %(default)s")
    parser.add_argument("--compose", type=Path, default=ROOT / "docker-compose.yml", help="default: %(default)s")
    parser.add_argument(
        "--parties",
        type=int,
        default=len(HOSPITALS),
        choices=range(1, MOST_PARTIES + 1),
        metavar="N",
        help=f"how many hospitals, 1 to {MOST_PARTIES}; default: %(default)s",
    )
    parser.add_argument("--tls", action="store_true", help="TLS everywhere, with client certificates between services")
    parser.add_argument("--renew", action="store_true", help="make new certificates for what is there, and no more")
    options = parser.parse_args()
    root: Path = options.out
    if options.renew:
        print(f"renewed {renew(root)} certificates; the services read the new ones while they run")
        _say_expiry(root)
        return
    parties = hospitals(options.parties)
    _refuse_another(root, parties, tls=options.tls)
    made = make_deployment(root, lambda name: container_site(name, tls=options.tls), parties)
    write_file(options.compose, compose_yml(parties))
    print(f"made {root}: {len(made.services)} services; the user's token is in {root / 'secrets' / 'user.token'}")
    if options.tls:
        _say_expiry(root)
        print(f"users reach the learner with PARLEY_CA={root / 'authority' / AUTHORITY_FILE} and an https address")
    file: Path = options.compose.resolve()
    print(f"to start them, in {quote(str(file.parent))}:")
    if root.resolve() != file.parent / "deploy":
        print(f"  export PARLEY_DEPLOY={quote(str(root.resolve()))}")
    compose = "docker compose" if file.name == "docker-compose.yml" else f"docker compose -f {quote(file.name)}"
    for step in compose_steps(made):
        print(f"  {compose} {' '.join(step)}")


if __name__ == "__main__":
    main()
