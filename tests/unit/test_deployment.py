"""The deployment that scripts/deployment makes: complete, consistent, private, and the same when made again."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from parley.common.files.studies import read_study
from parley.common.files.tables import read_columns
from parley.common.secure_sum.envelope import public_hex
from parley.common.service.tokens import NamedCaller, Tokens
from parley.learner.experiments.datasets import BIOPSIES, wdbc_columns
from parley.learner.settings import LearnerSettings, load_studies
from parley.party.data.owner_data import load_holding
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.settings import PartySettings
from scripts.deployment.compose import compose_yml
from scripts.deployment.deployment import make_deployment, user_token_file
from scripts.deployment.sites import (
    HOSPITALS,
    KEY_HOLDER,
    LEARNER,
    MOST_PARTIES,
    SERVICES,
    hospitals,
    loopback_site,
    services_of,
)
from tests.support.deployments import contents, in_containers, on_loopback, run_script

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"
KINDS = ("learner", "party", "keyholder")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    before = os.umask(0o077)
    yield tmp_path / "deploy"
    os.umask(before)


def test_every_service_can_read_what_it_is_given(root: Path) -> None:
    made = on_loopback(root)
    learner = LearnerSettings.load(made.services[LEARNER].config)
    assert Tokens(learner.tokens).identify(f"Bearer {made.user_token}") == NamedCaller("analyst")
    assert [entry.name for entry in learner.parties] == list(HOSPITALS)
    for entry in learner.parties:
        party = PartySettings.load(made.services[entry.name].config)
        holding = load_holding(party)
        assert party.name == entry.name
        assert str(entry.url) == f"http://{party.host}:{party.port}/" == f"{made.services[entry.name].url}/"
        assert Tokens(party.tokens).identify(f"Bearer {entry.token_text()}") == NamedCaller("learner")
        assert holding.study == BIOPSIES
        assert holding.n_examples in {85, 86}
        assert party.state == root.resolve() / entry.name / "state"
    assert load_studies(learner.studies) == {"biopsies": BIOPSIES}


def test_everybody_pins_everybody_else(root: Path) -> None:
    services = on_loopback(root).services
    learner = LearnerSettings.load(services[LEARNER].config)
    holder = KeyHolderSettings.load(services[KEY_HOLDER].config)
    (entry,) = learner.key_holders
    own = {"learner": public_hex(learner.signing_key()), KEY_HOLDER: public_hex(holder.signing_key())}
    assert (entry.name, entry.public_key) == (KEY_HOLDER, own[KEY_HOLDER])
    assert Tokens(holder.tokens).identify(f"Bearer {entry.token_text()}") == NamedCaller("learner")
    assert holder.pins == {"learner": own["learner"]}
    for peer in learner.parties:
        party = PartySettings.load(services[peer.name].config)
        assert peer.public_key == public_hex(party.signing_key())
        assert [known.public_key for known in party.learners] == [own["learner"]]
        assert party.key_holder_pins == {KEY_HOLDER: own[KEY_HOLDER]}
        assert not party.uncompared, "who makes a deployment makes all keys"
    assert len({peer.public_key for peer in learner.parties} | set(own.values())) == len(SERVICES)


def test_the_examples_are_dealt_once(root: Path) -> None:
    on_loopback(root)
    files = [root / name / "data" / "biopsies.csv" for name in (*HOSPITALS, LEARNER)]
    tables = [read_columns(path) for path in files]
    everything = wdbc_columns()
    for name, column in everything.items():
        dealt = np.concatenate([table[name] for table in tables])
        assert sorted(dealt.tolist()) == sorted(column.tolist())
    assert [len(table["diagnosis"]) for table in tables] == [85, 86, 85, 86, 85, 142]


def test_no_settings_file_holds_a_secret_and_no_two_secrets_are_one(root: Path) -> None:
    made = in_containers(root)
    secrets = [path.read_text().strip() for path in (*root.glob("*/secrets/*"), user_token_file(root))]
    assert len(set(secrets)) == len(secrets) == 7 + 6 + 1 + len(SERVICES)  # tokens, the sealing secret, identities
    assert made.user_token in secrets
    for service in made.services.values():
        assert not any(secret in service.config.read_text() for secret in secrets)


@pytest.mark.parametrize("tls", [False, True])
def test_making_it_again_changes_nothing(root: Path, *, tls: bool) -> None:
    in_containers(root, tls=tls)
    before = contents(root)
    in_containers(root, tls=tls)
    assert contents(root) == before


@pytest.mark.parametrize("tls", [False, True])
def test_nobody_else_reads_what_is_made(root: Path, *, tls: bool) -> None:
    in_containers(root, tls=tls)
    for path in root.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_compose_mounts_what_is_made(root: Path) -> None:
    in_containers(root)
    mounts = [line.split("- ")[1].split(":") for line in COMPOSE.read_text().splitlines() if "      - " in line]
    at_setup = {volume: folder for volume, folder, *mode in mounts[: 1 + 2 * len(SERVICES)] if not mode}
    assert len(at_setup) == 1 + 2 * len(SERVICES)
    for name in SERVICES:
        assert (root / name).is_dir()
        assert at_setup[f"{name}-settings"] == f"/etc/parley/{name}"
        assert [f"{name}-settings", f"/etc/parley/{name}", "ro,nocopy"] in mounts
        assert [name, "/var/lib/parley"] in mounts
    assert len(mounts) == 1 + 4 * len(SERVICES), "nothing is mounted elsewhere"
    texts = [path.read_text() for path in root.glob("*/*.toml")]
    assert len(texts) == len(SERVICES)
    assert all('state = "/var/lib/parley"' in text and "port = 8000" in text for text in texts)


def test_compose_is_what_the_script_writes() -> None:
    assert compose_yml(HOSPITALS) == COMPOSE.read_text(encoding="utf-8")


@pytest.mark.parametrize("count", [1, 2, 20, 21, MOST_PARTIES])
def test_compose_is_for_as_many_parties_as_there_are(count: int) -> None:
    parties = hospitals(count)
    assert len(set(parties)) == count
    text = compose_yml(parties)
    subnets = [line for line in text.splitlines() if "subnet" in line]
    assert len(set(subnets)) == len(subnets) == (count + 1 if count > 20 else 0)
    assert text.count("internal: true") == (count + 1 if count > 20 else 1), "an anchor for all, or each its own"
    for name in parties:
        assert f"\n  {name}:\n    <<: *party\n" in text
        assert text.count(f"- {name}-settings:/etc/parley/{name}:ro,nocopy\n") == 1


@pytest.mark.parametrize("count", [1, 2, MOST_PARTIES])
@pytest.mark.slow
def test_each_of_many_or_few_parties_would_start(root: Path, count: int) -> None:
    parties = hospitals(count)
    services = services_of(parties)
    made = make_deployment(root, lambda name: loopback_site(root, name, 8100 + services.index(name)), parties)
    learner = LearnerSettings.load(made.services[LEARNER].config)
    assert [entry.name for entry in learner.parties] == list(parties)
    for name in parties:
        settings = PartySettings.load(made.services[name].config)
        assert load_holding(settings).n_examples >= settings.policy.minimum_rows
        assert settings.policy.minimum_contributors <= count


def test_parties_pin_each_other(root: Path) -> None:
    services = on_loopback(root).services
    keys = {entry.name: entry.public_key for entry in LearnerSettings.load(services[LEARNER].config).parties}
    for name in HOSPITALS:
        party = PartySettings.load(services[name].config)
        assert party.party_pins == {other: key for other, key in keys.items() if other != name}


def test_the_study_is_one_for_all(root: Path) -> None:
    on_loopback(root)
    studies = [*root.rglob("study.json"), *root.rglob("biopsies.json")]
    assert len(studies) == 6
    assert {read_study(path).digest for path in studies} == {BIOPSIES.digest}


def test_the_script_writes_what_compose_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a folder" / "seven.yml"
    file.parent.mkdir()
    run_script(monkeypatch, "--parties", "7", "--tls", "--compose", file)
    assert file.read_text(encoding="utf-8") == compose_yml(hospitals(7), tls=True)
    assert f"docker compose -f '{file}' --project-directory {COMPOSE.parent} up" in capsys.readouterr().out
