"""Hospitals, a learner and a key holder, made from the breast cancer data: all that they read, a folder for each.

    learner/learner.toml, hospital-a/party.toml, key-holder/keyholder.toml ...  the services' settings
    hospital-a/data/study.json, biopsies.csv ...              each owner's copy of the study, and its shard
    learner/data/studies/biopsies.json, biopsies.csv          the study, and held-out public examples
    learner/secrets/identity.key, hospital-a/secrets/identity.key ...  each service's signing key, which others pin
    learner/secrets/hospital-a.token ... key-holder.token     the learner's bearer token at each of them
    hospital-a/secrets/metrics.token ...                      the bearer token that shows a service's metrics
    key-holder/secrets/secret                                 what the key holder's keys are sealed under
    hospital-a/secrets/tls.pem, tls.key, authority.pem ...    under TLS: each service's certificate
    setup/user.token                                          the bearer token of the learner's user
    setup/authority.pem, authority.key                        under TLS: who signs certificates

Settings hold hashes of tokens and public keys, never a secret. Made again, files are the same and secrets are kept. A
folder can be read by its owner alone.

In life each owner writes its own settings, and no one sees another's secrets: this plays all of them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.arrays import IntArray
from parley.common.data.columns import Columns
from parley.common.secure_sum.envelope import public_hex
from parley.common.service.tokens import hash_token, new_token
from parley.common.storage.keys import read_key, write_key
from parley.learner.experiments.datasets import BIOPSIES, TEST_FRACTION, shard_sizes, wdbc_columns
from scripts.deployment.authority import certify
from scripts.deployment.files import make_folder, write_file
from scripts.deployment.settings import keyholder_toml, learner_toml, party_toml
from scripts.deployment.sites import HOSPITALS, KEY_HOLDER, LEARNER, SETUP, Site, services_of

SEED = 2012


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


def user_token_file(root: Path) -> Path:
    """Return the file of the user's token in a deployment."""
    return root / SETUP / "user.token"


def metrics_token_file(root: Path, name: str) -> Path:
    """Return the file of the token that a party or key holder shows its metrics for."""
    return root / name / "secrets" / "metrics.token"


def make_deployment(root: Path, place: Callable[[str], Site], parties: Sequence[str] = HOSPITALS) -> Deployment:
    """Write the data, secrets and settings of all services under a folder; ``place`` says where each is."""
    names = services_of(parties)
    sites = {name: place(name) for name in names}
    for name in (*names, SETUP):
        make_folder(root / name)
    secrets = {name: make_folder(root / name / "secrets") for name in names}
    n_rows = _write_data(root, parties)
    keys = {name: _identity(secrets[name] / "identity.key") for name in names}
    hashes = {name: hash_token(_token(secrets[LEARNER] / f"{name}.token")) for name in names[1:]}
    watched = {name: hash_token(_token(metrics_token_file(root, name))) for name in names[1:]}
    _token(secrets[KEY_HOLDER] / "secret")
    user_token = _token(user_token_file(root))
    certify(root, [site for site in sites.values() if site.tls])
    texts = {name: party_toml(sites[name], hashes[name], keys, n_rows[name], watched[name]) for name in parties}
    texts[LEARNER] = learner_toml(sites, hash_token(user_token), keys)
    texts[KEY_HOLDER] = keyholder_toml(sites[KEY_HOLDER], hashes[KEY_HOLDER], keys, watched[KEY_HOLDER])
    for name, text in texts.items():
        write_file(root / name / sites[name].config.name, text)
    services = {name: _service(root / name / site.config.name, site) for name, site in sites.items()}
    return Deployment(services, user_token)


def _service(config: Path, site: Site) -> Service:
    """Return how a service is started: its command, its settings and its URL."""
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
        folder = make_folder(root / name / "data")
        write_file(folder / "study.json", study)
        write_file(folder / "biopsies.csv", _csv(columns, rows))
    learner = make_folder(root / LEARNER / "data")
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


def _token(path: Path) -> str:
    """The token in a file, made where there is none."""
    if not path.exists():
        write_file(path, new_token() + "\n")
    return path.read_text(encoding="ascii").strip()
