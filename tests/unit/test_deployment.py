"""The deployment that scripts/make_deployment.py makes: complete, consistent, private, and the same when made again."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from common.files.studies import read_study
from common.files.tables import read_columns
from common.secure_sum.envelope import public_hex
from common.service.tokens import Tokens
from learner.experiments.datasets import WDBC, wdbc_columns
from learner.settings import LearnerSettings, load_studies
from party.data.owner_data import load_holding
from party.keyholder.settings import KeyHolderSettings
from party.settings import PartySettings
from scripts.make_deployment import (
    HOSPITALS,
    KEY_HOLDER,
    LEARNER,
    SERVICES,
    Deployment,
    container_site,
    loopback_site,
    make_deployment,
)

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"
KINDS = ("learner", "party", "keyholder")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    before = os.umask(0o077)
    yield tmp_path / "deploy"
    os.umask(before)


def on_loopback(root: Path) -> Deployment:
    return make_deployment(root, lambda name: loopback_site(root, name, 8100 + SERVICES.index(name)))


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_every_service_can_read_what_it_is_given(root: Path) -> None:
    made = on_loopback(root)
    learner = LearnerSettings.load(made.services[LEARNER].config)
    assert Tokens(learner.tokens).identify(f"Bearer {made.user_token}") == "analyst"
    assert [entry.name for entry in learner.parties] == list(HOSPITALS)
    for entry in learner.parties:
        party = PartySettings.load(made.services[entry.name].config)
        holding = load_holding(party)
        assert party.name == entry.name
        assert str(entry.url) == f"http://{party.host}:{party.port}/" == f"{made.services[entry.name].url}/"
        assert Tokens(party.tokens).identify(f"Bearer {entry.token_text()}") == "learner"
        assert holding.study == WDBC
        assert holding.n_examples in {85, 86}
        assert party.state == root.resolve() / "state" / entry.name
    assert load_studies(learner.studies) == {"wdbc": WDBC}


def test_everybody_pins_everybody_else(root: Path) -> None:
    services = on_loopback(root).services
    learner = LearnerSettings.load(services[LEARNER].config)
    holder = KeyHolderSettings.load(services[KEY_HOLDER].config)
    (entry,) = learner.key_holders
    own = {"learner": public_hex(learner.signing_key()), KEY_HOLDER: public_hex(holder.signing_key())}
    assert (entry.name, entry.public_key) == (KEY_HOLDER, own[KEY_HOLDER])
    assert Tokens(holder.tokens).identify(f"Bearer {entry.token_text()}") == "learner"
    assert holder.pins == {"learner": own["learner"]}
    for peer in learner.parties:
        party = PartySettings.load(services[peer.name].config)
        assert peer.public_key == public_hex(party.signing_key())
        assert [known.public_key for known in party.learners] == [own["learner"]]
        assert party.secure_sum is not None
        assert party.secure_sum.pins == {KEY_HOLDER: own[KEY_HOLDER]}
    assert len({peer.public_key for peer in learner.parties} | set(own.values())) == len(SERVICES)


def test_the_examples_are_dealt_once(root: Path) -> None:
    on_loopback(root)
    files = [root / "data" / name / "biopsies.csv" for name in HOSPITALS] + [root / "data" / "learner" / "wdbc.csv"]
    tables = [read_columns(path) for path in files]
    everything = wdbc_columns()
    for name, column in everything.items():
        dealt = np.concatenate([table[name] for table in tables])
        assert sorted(dealt.tolist()) == sorted(column.tolist())
    assert [len(table["diagnosis"]) for table in tables] == [85, 86, 85, 86, 85, 142]


def test_no_settings_file_holds_a_secret_and_no_two_secrets_are_one(root: Path) -> None:
    made = make_deployment(root, container_site)
    secrets = [path.read_text().strip() for path in (root / "secrets").rglob("*") if path.is_file()]
    assert len(set(secrets)) == len(secrets) == 7 + 1 + len(SERVICES)  # tokens, the sealing secret, identities
    assert made.user_token in secrets
    for service in made.services.values():
        assert not any(secret in service.config.read_text() for secret in secrets)


def test_making_it_again_changes_nothing(root: Path) -> None:
    make_deployment(root, container_site)
    before = contents(root)
    make_deployment(root, container_site)
    assert contents(root) == before


def test_another_user_reads_what_is_mounted_and_nothing_else_of_ours(root: Path) -> None:
    make_deployment(root, container_site)
    for kind in ("config", "data", "secrets"):
        assert stat.S_IMODE((root / kind).stat().st_mode) == 0o700, "shut to other users of this machine"
        for path in (root / kind).rglob("*"):
            wanted = 0o755 if path.is_dir() else 0o600 if path.name == "user.token" else 0o644
            assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_compose_mounts_what_is_made(root: Path) -> None:
    make_deployment(root, container_site)
    mounts = [line.split("}/")[1].split(":") for line in COMPOSE.read_text().splitlines() if "PARLEY_DEPLOY:-" in line]
    assert len(mounts) == 3 + 2 + 3 * len(HOSPITALS)
    for source, target, mode in mounts:
        assert (root / source).exists(), source
        assert target in {"/data", "/run/secrets", *(f"/etc/parley/{kind}.toml" for kind in KINDS)}
        assert mode == "ro"
    texts = [path.read_text() for path in (root / "config").glob("*.toml")]
    assert all('state = "/var/lib/parley"' in text and "port = 8000" in text for text in texts)


def test_the_study_is_one_for_all(root: Path) -> None:
    on_loopback(root)
    studies = [*(root / "data").rglob("study.json"), *(root / "data").rglob("wdbc.json")]
    assert len(studies) == 6
    assert {read_study(path).digest for path in studies} == {WDBC.digest}
