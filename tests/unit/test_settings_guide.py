"""Settings explain themselves: every one has a meaning, and none of them tells a secret."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, HttpUrl, SecretStr
from pydantic_settings import SettingsConfigDict
from typer.testing import CliRunner, Result

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.errors import InvalidInputError, UnavailableError
from parley.common.secure_sum.envelope import public_hex
from parley.common.service.settings import Limits, Settings, explain_settings, settings_in_effect
from parley.common.service.tokens import hash_token
from parley.common.storage.keys import identity_key
from parley.common.strict import Setting
from parley.learner.cli.main import learner_app
from parley.learner.cli.options import LearnerOptions
from parley.learner.settings import LearnerSettings
from parley.party.cli.main import party_app
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.settings import PartySettings

SERVICES = [PartySettings, LearnerSettings, KeyHolderSettings]
SECRET = "kept-from-everybody-else"


@pytest.mark.parametrize("settings", SERVICES)
def test_every_setting_has_a_meaning_and_a_type(settings: type[Settings]) -> None:
    explained = list(explain_settings(settings))
    assert {each.key for each in explained} >= {"name", "port", "tls.certificate", "limits.body_bytes"}
    assert not [each.key for each in explained if len(each.meaning) < 3]
    assert not [each.key for each in explained if not each.type or "typing" in each.type or "." in each.type]


def test_tables_and_lists_of_tables_are_walked() -> None:
    explained = {setting.key: setting for setting in explain_settings(LearnerSettings)}
    assert explained["users[].role"].type == '"viewer" or "submitter" or "operator"'
    assert explained["users[].tokens[].expires"].type == "day"
    assert explained["users"].required
    assert explained["tls"].type == "table"
    assert explained["users"].type == "list of table"
    assert explained["port"].default == 8000


def test_defaults_are_those_that_the_service_takes() -> None:
    of_holder = {setting.key: setting.default for setting in explain_settings(KeyHolderSettings)}
    assert of_holder["limits.body_bytes"] == 2**26 != Limits().body_bytes


@pytest.mark.parametrize(
    ("app", "command"),
    [(learner_app, []), (party_app, []), (party_app, ["keyholder"])],
    ids=["learner", "party", "key"],
)
def test_config_explains_every_setting_without_a_file(app: object, command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "config", "--explain"])  # type: ignore[arg-type]
    rows = CliRunner().invoke(app, [*command, "config", "--explain", "--format", "json"])  # type: ignore[arg-type]
    assert result.exit_code == rows.exit_code == 0
    keys = [row["key"] for row in json.loads(rows.stdout)]
    assert len(keys) > 30
    assert all(key in result.stdout for key in keys)


def key_holder_file(folder: Path) -> Path:
    (folder / "vault.secret").write_text(SECRET)
    text = f"""\
name = "holder"
state = "{folder / "state"}"
secret_file = "{folder / "vault.secret"}"
[[learners]]
name = "learner"
token_hash = "{hash_token("t")}"
public_key = "{"0" * 64}"
"""
    (folder / "keyholder.toml").write_text(text)
    return folder / "keyholder.toml"


def learner_file(folder: Path, more: str = "") -> Path:
    text = f"""\
name = "learner"
state = "{folder / "state"}"
{more}
[[users]]
name = "alice"
token_hash = "{hash_token("t")}"
"""
    (folder / "learner.toml").write_text(text)
    return folder / "learner.toml"


def test_settings_in_effect_say_where_they_come_from_and_hide_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARLEY_KEYHOLDER_LIMITS__CONNECTIONS", "7")
    path = key_holder_file(tmp_path)
    found = {each.key: each for each in settings_in_effect(KeyHolderSettings.load(path))}
    assert (found["limits.connections"].value, found["limits.connections"].source) == (7, "environment")
    assert (found["name"].value, found["name"].source) == ("holder", "file")
    assert found["port"].source == "default"
    result = CliRunner().invoke(party_app, ["keyholder", "config", "--config", str(path)])
    assert result.exit_code == 0
    assert "(hidden)" in result.stdout
    assert SECRET not in result.output


def test_a_learner_that_would_start_is_reported(tmp_path: Path) -> None:
    done = CliRunner().invoke(learner_app, ["check", "--config", str(learner_file(tmp_path)), "--format", "json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["users"] == ["alice"]
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("prot = 1", "prot"),
        ('studies = "nowhere"', "studies"),
        ('public_data = {loans = "loans.csv"}', "public_data"),
        ('tls = {certificate = "nowhere.pem", key = "nowhere.key"}', "nowhere.pem"),
        ('parties = [{name = "a", url = "http://127.0.0.1:1", token_file = "no.token"}]', "no.token"),
        ('parties = [{name = "a", url = "http://127.0.0.1:1", token = "sesame-x", ca = "no.pem"}]', "parties: 'a': ca"),
    ],
)
def test_a_learner_that_would_not_start_says_which_setting(tmp_path: Path, more: str, words: str) -> None:
    done = CliRunner().invoke(learner_app, ["check", "--config", str(learner_file(tmp_path, more))])
    assert done.exit_code == 3
    assert words in done.stderr
    assert "sesame" not in done.output
    assert len(done.stderr.strip().splitlines()) == 1


# ── what `check` says, to the letter ─────────────────────────────────────────


def checked(path: Path, *words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(learner_app, ["check", "--config", str(path), *words])
    assert done.exit_code == code, done.output
    return done


def test_what_others_should_know_of_a_learner_is_told(tmp_path: Path) -> None:
    path = learner_file(tmp_path, f'studies = "{tmp_path / "studies"}"')
    (tmp_path / "studies").mkdir()
    for name in ("b", "a"):
        study = Study(
            name=name, features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("0", "1"))
        )
        (tmp_path / "studies" / f"{name}.json").write_text(study.model_dump_json())
    facts = {
        "name": "learner", "public_key": "made at the first start", "parties": [], "key_holders": [],
        "users": ["alice"], "studies": ["a", "b"], "tls": "no",
    }  # fmt: skip
    assert json.loads(checked(path, "--format", "json").stdout) == facts | {"reached": {}}
    key = public_hex(identity_key(tmp_path / "state" / "identity.key"))
    assert checked(path).stdout.splitlines() == [
        "name  learner", f"public_key  {key}", "parties  ", "key_holders  ", "users  alice", "studies  a, b", "tls  no",
    ]  # fmt: skip
    (tmp_path / "state" / "learner.sqlite").write_bytes(bytes(2_700_000))
    assert checked(path).stdout.splitlines()[-1].startswith("store  2.7 MB; ")


def test_public_data_that_cannot_be_read_is_named_with_its_study(tmp_path: Path) -> None:
    study = Study(name="a", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("0", "1")))
    (tmp_path / "a.json").write_text(study.model_dump_json())
    more = f'studies = "{tmp_path}"\npublic_data = {{a = "{tmp_path / "a.csv"}"}}'
    told = checked(learner_file(tmp_path, more), code=3).stderr
    assert told == f"parley-learner: public_data.a: {tmp_path / 'a.csv'}: No such file or directory\n"
    (tmp_path / "a.csv").write_text("x,y\n")
    checked(learner_file(tmp_path, more))


def test_a_learner_under_tls_says_so(tmp_path: Path) -> None:
    made = CliRunner().invoke(learner_app, ["init", "https://localhost:8100", "--out", str(tmp_path / "learner")])
    assert made.exit_code == 0, made.output
    path = tmp_path / "learner" / "learner.toml"
    assert json.loads(checked(path, "--format", "json").stdout)["tls"] == "yes"
    key = tmp_path / "learner" / "secrets" / "authority.key"
    key.unlink()
    missing = f"parley-learner: joining.authority_key: {key}: No such file or directory\n"
    assert checked(path, code=3).stderr == missing
    (tmp_path / "learner" / "secrets" / "tls.key").unlink()
    assert checked(path, code=3).stderr.startswith("parley-learner: tls: ")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('studies = "{folder}/nowhere"', "studies: {folder}/nowhere is no directory"),
        ('public_data = {{loans = "{folder}/loans.csv"}}', "public_data: there is no study 'loans'"),
        (
            'joining = {{url = "https://a.example", authority = "{folder}/a.pem", authority_key = "{folder}/a.key"}}',
            "joining.authority: {folder}/a.pem: No such file or directory",
        ),
        (
            'parties = [{{name = "a", url = "http://127.0.0.1:1", token = "sesame-x", ca = "{folder}/no.pem"}}]',
            "parties: 'a': ca: {folder}/no.pem: No such file or directory",
        ),
        (
            (
                'parties = [{{name = "a", url = "https://127.0.0.1:1", token = "sesame-x", '
                'certificate = "{folder}/c.pem", key = "{folder}/c.key"}}]'
            ),
            "parties: 'a': certificate: {folder}/c.pem: No such file or directory",
        ),
        (
            (
                'key_holders = [{{name = "b", url = "http://127.0.0.1:1", token = "sesame-x", '
                f'ca = "{{folder}}/no.pem", public_key = "{"0" * 64}"}}}}]'
            ),
            "key_holders: 'b': ca: {folder}/no.pem: No such file or directory",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_named_by_its_setting(tmp_path: Path, more: str, message: str) -> None:
    path = learner_file(tmp_path, more.format(folder=tmp_path))
    assert checked(path, code=3).stderr == f"parley-learner: {message.format(folder=tmp_path)}\n"


def test_tracing_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr("parley.learner.cli.settings.require_extra", lambda *extra: asked.append(extra))
    checked(learner_file(tmp_path, 'tracing = {endpoint = "http://127.0.0.1:4318"}'))
    assert asked == [("tracing", "settings: tracing")]
    checked(learner_file(tmp_path))
    assert len(asked) == 1


def test_members_that_connect_themselves_are_told_with_whether_they_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members: list[dict[str, object]] = [
        {"name": "a", "connected": True}, {"name": "b", "connected": False}, {"name": "c", "connected": None},
    ]  # fmt: skip

    class Client:
        def ask(self, *request: str) -> list[dict[str, object]]:
            assert request == ("GET", "/v1/roster")
            return members

    monkeypatch.setenv("PARLEY_TOKEN", "t")
    monkeypatch.setattr(LearnerOptions, "open", lambda _: nullcontext(Client()))
    done = checked(learner_file(tmp_path), code=1)
    assert done.stdout.splitlines()[-2:] == ["a: reached", "b: it has not connected"]
    told = json.loads(checked(learner_file(tmp_path), "--format", "json", code=1).stdout)
    assert told["reached"] == {"a": "yes", "b": "it has not connected"}
    members[1]["connected"] = True
    checked(learner_file(tmp_path))

    def away(_: object) -> nullcontext[Client]:
        raise UnavailableError("no learner answers")

    monkeypatch.setattr(LearnerOptions, "open", away)
    done = checked(learner_file(tmp_path))
    assert done.stderr == "parley-learner: whether members have connected is not known: no learner answers\n"
    monkeypatch.delenv("PARLEY_TOKEN")
    assert checked(learner_file(tmp_path)).stderr == ""


def test_peers_are_asked_by_their_names_and_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[tuple[str, str | None]], str, float]] = []

    async def ask_all(clients: list[Any], question: Any, seconds: float) -> list[object]:  # noqa: ANN401 -- any peer
        asked.append(([(it.name, it.receipts.key) for it in clients], question.__qualname__, seconds))
        return [UnavailableError(f"{it.name} is away") if it.name in {"b", "d"} else object() for it in clients]

    monkeypatch.setattr("parley.common.client.peer.ask_all", ask_all)
    key = {name: f"{ord(name):064x}" for name in "abcd"}
    parties, holders = (
        ", ".join(
            f'{{name = "{it}", url = "http://127.0.0.1:{ord(it)}", token = "t", public_key = "{key[it]}"}}'
            for it in names
        )
        for names in ("ab", "cd")
    )
    outbound = f', {{name = "e", connects_with = "{hash_token("u")}", token = "t"}}'
    for deadline, seconds in ((2.0, 2.0), (60.0, 5.0)):
        more = f"parties = [{parties}{outbound}]\nkey_holders = [{holders}]\ndeadline_seconds = {deadline}"
        done = checked(learner_file(tmp_path, more), code=1)
        assert done.stdout.splitlines()[-4:] == ["a: reached", "b: b is away", "c: reached", "d: d is away"]
        assert asked == [
            ([("a", key["a"]), ("b", key["b"])], "PartyClient.facts", seconds),
            ([("c", key["c"]), ("d", key["d"])], "KeyHolderClient.facts", seconds),
        ]
        asked.clear()
    parties_line, holders_line = done.stdout.splitlines()[2:4]
    assert (parties_line, holders_line) == ("parties  a, b, e", "key_holders  c, d")


def test_a_learners_settings_in_effect_are_those_of_its_file(tmp_path: Path) -> None:
    words = ["config", "--config", str(learner_file(tmp_path)), "--format", "json"]
    rows = {row["key"]: row for row in json.loads(CliRunner().invoke(learner_app, words).stdout)}
    assert (rows["name"]["value"], rows["name"]["source"]) == ("learner", "file")
    assert (rows["state"]["value"], rows["state"]["source"]) == (str(tmp_path / "state"), "file")
    lines = CliRunner().invoke(learner_app, words[:3]).stdout.splitlines()
    assert len(lines) == len(rows)
    assert any(line.startswith("name") and "file" in line for line in lines)
    words = ["config", "--explain"]
    explained = json.loads(CliRunner().invoke(learner_app, [*words, "--format", "json"]).stdout)
    told = CliRunner().invoke(learner_app, words).stdout.splitlines()
    assert told[1] == f"    {explained[0]['meaning']}"
    assert told[0].startswith(explained[0]["key"])


class Kind(Setting):
    """A kind of thing.

    And more about it.
    """

    kind: Literal["one"]
    size: Annotated[int | None, Field(description="how large")] = None


class Other(Setting):
    """Another kind."""

    kind: Literal["other"] = "other"
    names: Annotated[dict[str, float], Field(default_factory=dict, description="numbers by name")]


class Some(Settings):
    """Settings of every kind."""

    model_config = SettingsConfigDict(env_prefix="PARLEY_SOME_")

    text: Annotated[str, Field(description="a text")]
    secret: Annotated[SecretStr | None, Field(description="a secret")] = None
    path: Annotated[Path, Field(description="a place")] = Path("a/b")
    mode: Annotated[Literal["quick", "slow"], Field(description="how")] = "slow"
    url: Annotated[HttpUrl | None, Field(description="where")] = None
    days: Annotated[tuple[date, ...], Field(description="when")] = (date(2027, 1, 2),)
    own: Annotated[Other, Field(description="one of its own")] = Other(names={"a": 0.5})
    things: Annotated[list[Kind | Other], Field(default_factory=list, description="things")]
    either: Annotated[bool | float, Field(description="either")] = True


def test_every_kind_of_setting_is_explained_in_words() -> None:
    explained = list(explain_settings(Some))
    assert [each.head for each in explained] == [
        "version  (whole number; 1 if not given)",
        "text  (text, required)",
        "secret  (secret; nothing if not given)",
        'path  (path; "a/b" if not given)',
        'mode  ("quick" or "slow"; "slow" if not given)',
        "url  (URL; nothing if not given)",
        'days  (list of day; ["2027-01-02"] if not given)',
        "own  (table; nothing if not given)",
        "things  (list of table; [] if not given)",
        "either  (true or false or number; true if not given)",
        'own.kind  ("other"; "other" if not given)',
        'own.names  (table of number by name; {"a": 0.5} if not given)',
        'things[].kind  ("one", required)',
        "things[].size  (whole number; nothing if not given)",
        'things[].kind  ("other"; "other" if not given)',
        "things[].names  (table of number by name; {} if not given)",
    ]
    assert [each.meaning for each in explained[1:]] == [
        *["a text", "a secret", "a place", "how", "where", "when", "one of its own", "things", "either"],
        *["Another kind.", "numbers by name", "A kind of thing.", "how large", "Another kind.", "numbers by name"],
    ]


def test_every_kind_of_value_is_shown_with_its_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    monkeypatch.setenv("PARLEY_SOME_SECRET_FILE", str(tmp_path / "secret"))
    monkeypatch.setenv("parley_some_own__kind", "other")
    monkeypatch.setenv("PARLEY_SOME_THINGS", '[{"kind": "one", "size": 3}]')
    (tmp_path / "some.toml").write_text('text = "é"\nurl = "https://a.example"\n[own]\nnames = {b = 1}\n')
    assert [each.line for each in settings_in_effect(Some.load(tmp_path / "some.toml"))] == [
        "version = 1  (default)",
        'text = "é"  (file)',
        'secret = "(hidden)"  (environment)',
        'path = "a/b"  (default)',
        'mode = "slow"  (default)',
        'url = "https://a.example/"  (file)',
        'days = ["2027-01-02"]  (default)',
        'own.kind = "other"  (environment)',
        'own.names = {"b": 1.0}  (file)',
        'things = [{"kind": "one", "size": 3}]  (environment)',
        "either = true  (default)",
    ]
    monkeypatch.setenv("PARLEY_SOME_OWN", '{"names": {}}')
    shown = {each.key: each.source for each in settings_in_effect(Some.load(tmp_path / "some.toml"))}
    assert (shown["own.kind"], shown["own.names"], shown["text"]) == ("environment", "environment", "file")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"text = 3\nmore = 1", "settings {}: "),
        (b"version = 2", "settings {}: "),
        (b'text = "', "settings {}: not a TOML file: see end of document"),
        (b"text = sesame", "settings {}: not a TOML file: see line 1, column 8"),
        (b"\xff\x00\xff", "settings {}: not a TOML file, for it is not UTF-8"),
        (b'secret_file = "/nowhere"', "settings {}: secret_file: No such file or directory"),
        (None, "settings {}: No such file or directory: say --config FILE"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_is_wrong(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "some.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInputError) as refused:
        Some.load(path)
    assert refused.value.detail.startswith(words.format(path))
    assert "sesame" not in refused.value.detail


def test_a_file_that_is_no_file_or_no_text_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError) as folder:
        Some.load(tmp_path)
    assert folder.value.detail == f"settings {tmp_path}: Is a directory"
    (tmp_path / "secret").write_bytes(b"\xff\x00\xff")
    monkeypatch.setenv("PARLEY_SOME_SECRET_FILE", str(tmp_path / "secret"))
    with pytest.raises(InvalidInputError) as binary:
        Some.load()
    assert binary.value.detail == "environment variable PARLEY_SOME_SECRET_FILE: not a text"


def test_a_variable_that_is_no_setting_or_holds_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_SOME_TEXT", "a")
    assert (Some.load().text, Some.load().source) == ("a", None)
    monkeypatch.setenv("parley_some_txt", "b")
    with pytest.raises(InvalidInputError, match=r"^the environment variable parley_some_txt is not a setting$"):
        Some.load()
    monkeypatch.delenv("parley_some_txt")
    monkeypatch.setenv("PARLEY_SOME_OWN", "{")
    with pytest.raises(InvalidInputError, match=r"^settings of the environment: .*own"):
        Some.load()
    monkeypatch.setenv("PARLEY_SOME_OWN", '{"kind": "none"}')
    with pytest.raises(InvalidInputError, match=r"^settings of the environment: own.*say --config FILE$"):
        Some.load()
