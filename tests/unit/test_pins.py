"""Which keys of a settings file count, and `pin`, which compares them: by words, no matter who names the key."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from parley.common.client.endpoints import LearnerAddress
from parley.common.encoding.key_words import words_of
from parley.common.errors import InvalidInputError
from parley.common.secure_sum.envelope import public_hex
from parley.common.wire.membership import KnownKey, RosterKeys
from parley.party.cli.main import party_app
from parley.party.policy import pins_of
from parley.party.settings import PartySettings
from parley.party.settings_text import with_pin
from tests.support.secure_cluster import signing_key

KEYS = {name: public_hex(signing_key(name)) for name in ("learner", "notary", "hospital-b", "hospital-c", "swapped")}
OUTBOUND = f"""
[[outbound]]
name = "learner"
url = "http://127.0.0.1:1"
token = "{"t" * 40}"
"""


def pin(table: str, name: str, more: str = "") -> str:
    return f'\n[[secure_sum.{table}]]\nname = "{name}"  # as it was\npublic_key = "{KEYS[name]}"\n{more}'


PINS = pin("key_holders", "notary") + pin("parties", "hospital-b") + "\n[policy.classifier]  # after the pins\n"


def written(root: Path, outbound: str = OUTBOUND, pins: str = PINS) -> Path:
    """Settings with the pins, as a join before keys were compared made them."""
    text = f"""\
# hospital-a: made by join
name = "hospital-a"
state = "{root}/state"
study = "{root}/study.json"
data = {{ source = "rows.csv" }}

[policy]
epsilon = 5.0
delta = 1e-4
max_epsilon_per_run = 1.0
max_delta_per_run = 1e-5
require_secure_sum = {"true" if "key_holders" in pins else "false"}

[[learners]]
name = "learner"
token_hash = "sha256:{"0" * 64}"
public_key = "{KEYS["learner"]}"
{outbound}{pins.replace("[policy.classifier]", "[notify]")}"""
    path = root / "party.toml"
    path.write_text(text)
    return path


def say(path: Path, *args: object) -> Result:
    return CliRunner().invoke(party_app, ["pin", *map(str, args), "--config", str(path)])


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """What the learner says about its members' keys, by kind and name."""
    by_kind = {"key_holders": {"notary": KEYS["notary"]}, "parties": {"hospital-b": KEYS["hospital-b"]}}

    def ask(*_: object) -> RosterKeys:
        known = {
            kind: tuple(KnownKey(name=name, public_key=key) for name, key in keys.items())
            for kind, keys in by_kind.items()
        }
        return RosterKeys.model_validate(known)

    monkeypatch.setattr("parley.common.client.outbound.ask_as_member", ask)
    return by_kind


def test_what_an_owner_wrote_counts_and_what_a_join_wrote_counts_once_compared(tmp_path: Path) -> None:
    by_hand = PartySettings.load(written(tmp_path, outbound=""))
    assert by_hand.key_holder_pins == {"notary": KEYS["notary"]}
    assert by_hand.known_parties_for("learner") == frozenset({"hospital-a", "hospital-b"})
    assert by_hand.uncompared == ()
    joined = PartySettings.load(written(tmp_path))
    assert (joined.key_holder_pins, joined.party_pins, joined.known_parties_for("learner")) == ({}, {}, None)
    assert joined.uncompared == ("notary", "hospital-b")
    for outbound in ("", OUTBOUND):
        marked = pin("key_holders", "notary", "compared = true\n") + pin("parties", "hospital-b", "compared = false\n")
        party_settings = PartySettings.load(written(tmp_path, outbound, marked))
        assert (list(party_settings.key_holder_pins), party_settings.uncompared) == (["notary"], ("hospital-b",))


def test_a_pin_counts_in_the_sums_of_its_learners_and_others_do_not_see_it(tmp_path: Path) -> None:
    pins = pin("key_holders", "notary", "compared = true\n") + pin(
        "parties", "hospital-b", 'compared = true\nlearners = ["another"]\n'
    )
    settings = PartySettings.load(written(tmp_path, pins=pins))
    assert settings.pins_for("learner") == ({"notary": KEYS["notary"]}, {})
    assert settings.pins_for("another") == ({"notary": KEYS["notary"]}, {"hospital-b": KEYS["hospital-b"]})
    assert dict(pins_of(settings, "learner").parties) == {}


def test_keys_of_older_settings_are_compared_where_they_stand(tmp_path: Path, told: dict[str, dict[str, str]]) -> None:
    path = written(tmp_path)
    assert say(path).output.splitlines()[:2] == ["notary (a key holder)", "hospital-b (a party)"]
    told |= {"key_holders": {}, "parties": {}}  # the learner has nothing to say of a key that the settings have
    before = path.read_text()
    refused = say(path, "notary", *words_of(KEYS["swapped"]))
    assert (refused.exit_code, path.read_text()) == (3, before)
    for name in ("notary", "hospital-b"):
        done = say(path, name, *words_of(KEYS[name]))
        assert done.exit_code == 0, done.output
        assert f"{name} is pinned as a " in done.output
        assert say(path, name, *words_of(KEYS[name])).exit_code == 0, "the same again is the same"
    now = PartySettings.load(path)
    assert now.uncompared == ()
    assert now.known_parties_for("learner") == frozenset({"hospital-a", "hospital-b"})
    kept = [line for line in path.read_text().splitlines() if not line.startswith("compared")]
    assert kept == before.splitlines(), "nothing else has changed, comments neither"


def test_a_key_that_the_learner_changes_is_not_believed(tmp_path: Path, told: dict[str, dict[str, str]]) -> None:
    path = written(tmp_path)
    assert say(path, "notary", *words_of(KEYS["notary"])).exit_code == 0
    told["key_holders"]["notary"] = KEYS["swapped"]
    before = path.read_text()
    done = say(path, "notary", *words_of(KEYS["swapped"]))
    assert (done.exit_code, path.read_text()) == (3, before)
    assert "these are not the words of notary: somebody may be in between; do not go on" in done.output
    told["parties"]["hospital-b"] = KEYS["hospital-c"]  # as after a new start: its owner reads out new words
    assert say(path, "hospital-b", *words_of(KEYS["swapped"])).exit_code == 3
    assert say(path, "hospital-b", *words_of(KEYS["hospital-c"])).exit_code == 0
    assert PartySettings.load(path).party_pins == {"hospital-b": KEYS["hospital-c"]}


def test_who_joined_later_is_added(tmp_path: Path, told: dict[str, dict[str, str]]) -> None:
    path = written(tmp_path)
    told["parties"]["hospital-c"] = KEYS["hospital-c"]
    assert say(path, "hospital-c", *words_of(KEYS["hospital-b"])).exit_code == 3
    assert say(path, "hospital-c", *words_of(KEYS["hospital-c"])).exit_code == 0
    assert PartySettings.load(path).party_pins == {"hospital-c": KEYS["hospital-c"]}
    assert "no learner of yours knows hospital-d" in say(path, "hospital-d", *words_of(KEYS["swapped"])).output


def test_each_learner_is_asked_and_words_say_whose_key_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"learner": KEYS["hospital-c"], "learner-2": KEYS["swapped"]}

    def ask(address: LearnerAddress, *_: object) -> RosterKeys:
        return RosterKeys(parties=(KnownKey(name="hospital-c", public_key=keys[address.name]),), key_holders=())

    monkeypatch.setattr("parley.common.client.outbound.ask_as_member", ask)
    for key in keys.values():
        path = written(tmp_path, outbound=OUTBOUND + OUTBOUND.replace('"learner"', '"learner-2"'))
        assert say(path, "hospital-c", *words_of(key)).exit_code == 0
        assert PartySettings.load(path).party_pins == {"hospital-c": key}


def test_a_party_is_nobody_else(tmp_path: Path, told: dict[str, dict[str, str]]) -> None:
    """A learner knows each member's key, and may name it as another's."""
    path = written(tmp_path)
    own = PartySettings.load(path).identity.key
    before = path.read_text()
    for kind in ("parties", "key_holders"):
        told[kind] = {"mirror": own}
        done = say(path, "mirror", *words_of(own))
        assert (done.exit_code, path.read_text()) == (3, before)
        assert "the key of mirror is this party's own" in done.output
        told[kind] = {}


@pytest.mark.parametrize(
    ("name", "key", "why"),
    [
        ("friend", "learner", "the key of friend is a learner's"),
        ("hospital-a", "swapped", "hospital-a is this party itself"),
        ("friend", "notary", "two share a name or a key"),
    ],
)
def test_nobody_is_two(tmp_path: Path, told: dict[str, dict[str, str]], name: str, key: str, why: str) -> None:
    path = written(tmp_path)
    told["parties"] = {name: KEYS[key]}
    before = path.read_text()
    done = say(path, name, *words_of(KEYS[key]))
    assert (done.exit_code, path.read_text()) == (3, before)
    assert why in done.output
    assert [each.name for each in tmp_path.iterdir()] == ["party.toml"]


def test_a_spelling_that_cannot_be_added_to_is_left_to_its_owner(tmp_path: Path) -> None:
    inline = f'secure_sum = {{ key_holders = [{{ name = "notary", public_key = "{KEYS["notary"]}" }}] }}\n'
    text = written(tmp_path, pins="").read_text().replace("[policy]", f"{inline}[policy]", 1)
    key = KnownKey(name="notary", public_key=KEYS["notary"])
    with pytest.raises(InvalidInputError, match=r"write the pin by hand: \{ name = \"notary\", .*, compared = true \}"):
        with_pin(text, "key_holders", key)
    with pytest.raises(InvalidInputError, match="write the pin by hand"):
        with_pin(text, "parties", KnownKey(name="hospital-b", public_key=KEYS["hospital-b"]))
