"""A learner that is its own key holder and its own co-owners, by the commands that people type: nobody believes it.

A key that an invitation names counts once its owner has read out its words, and no side is shown the words that the
same side's commands ask for. Then, with words compared, the same owners train by a secure sum.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner, Result

from parley.common.encoding.key_words import words_of
from parley.common.secure_sum.envelope import public_hex
from parley.common.wire.membership import Invitation, KnownKey
from parley.learner.settings import LearnerSettings
from parley.party.cli.main import party_app
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.settings import PartySettings
from tests.services.joining.test_joining import NAMES, Scene, scene
from tests.support.processes import start_key_holder, start_party, stopped_at_exit

NOTARY, VICTIM, SYBIL = "notary", *NAMES
ABANDON = " ".join(["abandon"] * 6)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A learner whose operator has joined as key holder, and as another owner, and confirmed both."""
    with scene(tmp_path_factory.mktemp("malicious")) as (made, _):
        join_as_notary(made)
        assert made.join(made.invite(SYBIL), SYBIL).exit_code == 0
        assert made.confirm(SYBIL).exit_code == 0
        yield made


def join_as_notary(made: Scene) -> None:
    """A key holder joins, and is confirmed."""
    invitation = made.root / f"{NOTARY}.json"
    assert made.learner("invite", NOTARY, "--key-holder", "--out", invitation).exit_code == 0
    options = ("--words", " ".join(words_of(made.key)), "--out", made.root / NOTARY)
    done = made.owner("keyholder", "join", invitation, *options)
    assert done.exit_code == 0, done.output
    assert made.learner("roster", "confirm", NOTARY, *words_of(notary(made).identity.key)).exit_code == 0


def notary(made: Scene) -> KeyHolderSettings:
    return KeyHolderSettings.load(made.root / NOTARY / "keyholder.toml")


def words_from(made: Scene) -> str:
    """What the key holder's operator reads out."""
    return " ".join(words_of(notary(made).identity.key))


def resealed(made: Scene, invitation: Path, **changes: Any) -> Path:  # noqa: ANN401 -- fields of an invitation
    """An invitation that the learner has signed again, with other keys in it."""
    key = LearnerSettings.load(made.root / "learner" / "learner.toml").signing_key()
    opened = Invitation.opened(invitation.read_text(), datetime.now(UTC))
    path = invitation.with_suffix(".resealed")
    path.write_text(opened.model_copy(update=changes).sealed(key))
    return path


def at(made: Scene, name: str) -> tuple[object, ...]:
    return ("--config", made.root / name / "party.toml")


def test_join_believes_nobody_by_the_learners_word(shared: Scene) -> None:
    folder = shared.root / "believes"
    done = shared.join(shared.invite("believes"), VICTIM, "--out", folder)
    assert done.exit_code == 0, done.output
    assert f"caution: the key of the key holder {NOTARY} was not compared" in done.output
    assert f"caution: the keys of {SYBIL} were not compared" in done.output
    settings = PartySettings.load(folder / "party.toml")
    assert (settings.key_holder_pins, settings.party_pins, settings.known_parties_for("learner")) == ({}, {}, None)
    assert settings.uncompared == (NOTARY, SYBIL)
    assert settings.policy.require_secure_sum, "nor does it answer the learner singly meanwhile"
    checked = shared.owner("check", *at(shared, "believes"))
    assert checked.exit_code == 0
    assert f"parley-party: the key of the key holder {NOTARY} was not compared" in checked.stderr
    assert "runs with a secure sum: no key holder is pinned whose key was compared" in checked.stdout


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (f"{NOTARY}={ABANDON}", f"these are not the words of {NOTARY}: somebody may be in between; do not go on"),
        (f"other={ABANDON}", "the invitation names no key holder other"),
        (ABANDON, "say NAME=WORDS"),
    ],
)
def test_words_of_another_key_holder_make_no_party(shared: Scene, typed: str, told: str) -> None:
    """As where an invitation names the owner's own key holder, with a key of the learner's: its operator has others."""
    done = shared.join(shared.invite("robbed"), VICTIM, "--out", shared.root / "robbed", "--key-holder-words", typed)
    assert (done.exit_code, (shared.root / "robbed").exists()) == (3, False)
    assert told in done.stderr


def test_at_a_terminal_each_key_holders_words_are_asked_for(shared: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.party.joining._is_typed_at", lambda: True)
    for name, answer, pinned in (("now", words_from(shared), {NOTARY: notary(shared).identity.key}), ("later", "", {})):
        line = ["join", shared.invite(name), "--data", shared.tables[VICTIM], "--out", shared.root / name]
        typed = f"{' '.join(words_of(shared.key))}\n{answer}\n"
        done = CliRunner().invoke(party_app, list(map(str, line)), input=typed)
        assert done.exit_code == 0, done.output
        assert f"Ask the operator of the key holder {NOTARY}, not the learner's" in done.stderr
        assert PartySettings.load(shared.root / name / "party.toml").key_holder_pins == pinned


def test_one_key_or_name_for_two_is_refused(shared: Scene) -> None:
    invitation, other = shared.invite("twofold"), public_hex(Ed25519PrivateKey.generate())
    holder = KnownKey(name=NOTARY, public_key=other)
    for changes in (
        {"key_holders": (KnownKey(name=NOTARY, public_key=shared.key),)},
        {"key_holders": (holder, KnownKey(name="another", public_key=other))},
        {"key_holders": (holder, KnownKey(name=NOTARY, public_key=notary(shared).identity.key))},
        {"parties": (KnownKey(name="twofold", public_key=other),)},
        {"key_holders": (holder,), "parties": (KnownKey(name="hospital-c", public_key=other),)},
    ):
        done = shared.join(resealed(shared, invitation, **changes), VICTIM, "--out", shared.root / "twofold")
        assert (done.exit_code, (shared.root / "twofold").exists()) == (3, False)
        assert "one key or one name for two of learner, key holders and owners: do not go on" in done.stderr


def test_a_member_that_joins_again_keeps_what_it_has_compared(shared: Scene) -> None:
    folder, first = shared.root / "again", ("--key-holder-words", f"{NOTARY}={words_from(shared)}")
    assert shared.join(shared.invite("again"), VICTIM, "--out", folder, *first).exit_code == 0
    pinned = PartySettings.load(folder / "party.toml").key_holder_pins
    assert pinned == {NOTARY: notary(shared).identity.key}
    swapped = public_hex(Ed25519PrivateKey.generate())
    for name, key, exit_code in ((NOTARY, swapped, 3), ("renamed", swapped, 0), (NOTARY, pinned[NOTARY], 0)):
        invitation = resealed(
            shared, shared.invite("again"), key_holders=(KnownKey(name=name, public_key=key),), parties=()
        )
        done = shared.join(invitation, VICTIM, "--out", folder)
        assert done.exit_code == exit_code, done.output
        assert ("has another key" in done.stderr) == (exit_code == 3), "the learner swaps a key that was compared"
        assert ("the key of the key holder renamed was not compared" in done.output) == (name == "renamed")
        assert PartySettings.load(folder / "party.toml").key_holder_pins == pinned
    own_key = PartySettings.load(folder / "party.toml").identity.key
    mirror = resealed(shared, shared.invite("again"), key_holders=(KnownKey(name="mirror", public_key=own_key),))
    done = shared.join(mirror, VICTIM, "--out", folder)
    assert done.exit_code == 3
    assert "the key of mirror is this party's own" in done.stderr
    stranger = resealed(shared, shared.invite("again"))
    strangers = Ed25519PrivateKey.generate()
    invited = Invitation.opened(stranger.read_text(), datetime.now(UTC))
    other = invited.model_copy(update={"learner": KnownKey(name="learner", public_key=public_hex(strangers))})
    stranger.write_text(other.sealed(strangers))
    done = shared.join(stranger, VICTIM, "--out", folder, words=" ".join(words_of(public_hex(strangers))))
    assert done.exit_code == 3
    assert "study 'made-up' is signed by another than the learner that invites" in done.stderr


def test_no_side_is_shown_the_words_that_it_is_asked_for(shared: Scene, tmp_path: Path) -> None:
    secret = [words_from(shared), " ".join(words_of(shared.party(SYBIL).identity.key))]
    done = shared.join(shared.invite("unheard"), VICTIM, "--out", shared.root / "unheard")
    unheard = PartySettings.load(shared.root / "unheard" / "party.toml").identity.key
    secret.append(" ".join(words_of(unheard)))
    outputs = [shared.learner("roster", "list").output, shared.learner("roster", "list", "--format", "json").output]
    outputs.append((shared.root / "learner" / "state.log").read_text())
    assert secret[2] in done.stdout, "its owner reads them out"
    assert not [words for words in secret for text in outputs if words in text]
    assert unheard not in outputs[1], "an operator confirms by words, not by a key that it has looked up"
    study = tmp_path / "study.json"
    study.write_text((shared.root / "unheard" / "studies" / "made-up.json").read_text())
    output = shared.owner("study", "check", study, "--data", shared.tables[VICTIM]).output
    assert "signed by learner, by its own word" in output
    assert " ".join(words_of(shared.key)) not in output


def test_a_secure_sum_waits_for_words_and_then_trains(tmp_path: Path) -> None:
    """Before the words: refused when asked for. After: the same owners, three rounds, each a sum, nothing restarted."""
    with scene(tmp_path) as (made, _):
        join_as_notary(made)
        for name in NAMES:
            done = made.join(made.invite(name), name, "--by-policy")
            assert done.exit_code == 0, done.output
            assert made.confirm(name).exit_code == 0
        with stopped_at_exit(start_key_holder(notary(made)), *(start_party(made.party(name)) for name in NAMES)):
            made.until(lambda: all(member["connected"] for member in made.roster().values()))
            message = refused(made)
            assert "the owner pins no public key of key holders" in message
            assert "parley-party pin NAME WORDS" in message
            assert "not compared" in (made.root / VICTIM / "state.log").read_text(), "its log says so at the start"
            assert "the owner requires a secure sum" in refused(made, "--secure-sum", "none")
            assert runs(made) == []
            identities = {NOTARY: words_from(made)}
            identities |= {name: " ".join(words_of(made.party(name).identity.key)) for name in NAMES}
            for name in NAMES:
                for other in {NOTARY, *NAMES} - {name}:
                    assert made.owner("pin", other, *ABANDON.split(), *at(made, name)).exit_code == 3
                    done = made.owner("pin", other, *identities[other].split(), *at(made, name))
                    assert done.exit_code == 0, done.output
                assert not made.party(name).uncompared
            made.until(lambda: all(has_taken_up(made, name) for name in NAMES))
            done = submitted(made)
            assert done.exit_code == 0, done.output
            assert "completed after 3 rounds" in made.learner("watch", done.stdout.strip()).output


def has_taken_up(made: Scene, name: str) -> bool:
    """Whether a party has read its settings since they were last written."""
    config = made.root / name / "party.toml"
    read = [line for line in (made.root / name / "state.log").read_text().splitlines() if '"event": "settings"' in line]
    at_last = datetime.fromisoformat(json.loads(read[-1])["timestamp"]).timestamp() if read else 0.0
    return at_last > config.stat().st_mtime


def submitted(made: Scene, *args: object) -> Result:
    """What submitting a run of three rounds ends with; by a secure sum unless said otherwise."""
    terms = ("--epsilon", 1, "--delta", 1e-5, "-p", "n_rounds=3", "--secure-sum", "paillier", *args)
    return made.learner("submit", "made-up", *terms)


def refused(made: Scene, *args: object) -> str:
    """Why owners would refuse such a run, for which it is refused when it is asked for."""
    done = submitted(made, *args)
    assert done.exit_code == 3, done.output
    return done.stderr


def runs(made: Scene) -> list[str]:
    return [entry["id"] for entry in json.loads(made.learner("list", "--format", "json").stdout)]
