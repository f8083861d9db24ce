"""A party with settings joins again: for a further study of its learner, for another learner, and out of a study."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from parley.common.encoding.key_words import words_of
from parley.common.files.studies import read_study
from parley.common.privacy.account import Price
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.wire.party_api import RunProposal
from parley.party.answers.party import open_store
from parley.party.settings import PartySettings
from tests.services.joining.test_joining import NAMES, Scene, scene
from tests.support.cluster import made_up
from tests.support.processes import start_party, stopped_at_exit

NAME, TABLE = NAMES[0], NAMES[1]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, Scene]]:
    """Two learners that both call themselves learner; the second has an authority of its own."""
    first, second = (tmp_path_factory.mktemp(name) for name in ("first", "second"))
    with scene(first, "other", "third") as (one, _), scene(second, "abroad") as (another, _):
        yield one, another


@pytest.fixture
def folder(two: tuple[Scene, Scene], tmp_path: Path) -> Path:
    """The folder of a party that has joined the first learner, for one study, and was confirmed."""
    one = two[0]
    if NAME in one.roster():
        assert one.learner("roster", "remove", NAME).exit_code == 0
    done = one.join(one.invite(NAME), NAME, "--out", tmp_path / NAME)
    assert done.exit_code == 0, done.output
    key = PartySettings.load(tmp_path / NAME / "party.toml").identity.key
    assert one.learner("roster", "confirm", NAME, *words_of(key)).exit_code == 0
    return tmp_path / NAME


def invited(made: Scene, folder: Path, *studies: str, name: str = NAME) -> Path:
    """An invitation to further studies, in the party's folder."""
    path = folder / f"{'-'.join(studies)}.json"
    path.unlink(missing_ok=True)
    named = [word for study in studies for word in ("--study", study)]
    done = made.learner("invite", name, *named, "--out", path)
    assert done.exit_code == 0, done.output
    return path


def add(made: Scene, folder: Path, invitation: Path, *args: object, table: Path | None = None) -> Result:
    """The owner's one line, without words."""
    return made.owner("join", invitation, "--data", table or made.tables[TABLE], "--out", folder, *args)


def secrets(folder: Path) -> dict[str, bytes]:
    """What a running service shows the first learner."""
    return {name: (folder / "secrets" / name).read_bytes() for name in ("connect.token", "learner.token", "tls.key")}


def settings_of(folder: Path) -> PartySettings:
    return PartySettings.load(folder / "party.toml")


def test_a_study_is_added_by_one_line_and_no_token_changes(
    two: tuple[Scene, Scene], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, config = two[0], folder / "party.toml"
    before, tokens = config.read_text(), secrets(folder)
    invitation = invited(one, folder, "other")
    for _ in ("once", "and once more, as after an answer that was lost"):
        done = add(one, folder, invitation, "--share", 0.25, "--people", "ward-7", "--by-policy")
        assert done.exit_code == 0, done.output
    assert config.read_text().startswith(before)
    assert secrets(folder) == tokens
    first, other = settings_of(folder).studies
    assert (first.name, first.people, first.policy.share, first.policy.approval) == ("made-up", None, None, None)
    assert (other.name, other.people, other.policy.share, other.policy.approval) == ("other", "ward-7", 0.25, "policy")
    assert other.policy.learners == ("learner",)
    assert other.data.source == str(one.tables[TABLE])
    member = one.roster()[NAME]
    assert (member["studies"], member["state"]) == (["made-up", "other"], "member")
    monkeypatch.setenv("COLUMNS", "250")
    done = one.owner("studies", "--config", config)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["study", "made-up", "other"]
    listed = json.loads(one.owner("studies", "--config", config, "--format", "json").stdout)
    assert [(each["share"], each["approval"], each["rows"]) for each in listed] == [
        (None, "manual", None),
        (0.25, "policy", None),
    ]
    done = one.join(invited(one, folder, "made-up"), NAME, "--out", folder)
    assert done.exit_code == 0, done.output
    assert secrets(folder) != tokens, "an invitation to what it holds renews tokens"
    assert one.roster()[NAME]["studies"] == ["made-up", "other"]


def test_an_invitation_to_two_studies_is_used_for_one_after_the_other(two: tuple[Scene, Scene], folder: Path) -> None:
    one = two[0]
    invitation = invited(one, folder, "other", "third")
    done = one.owner("join", invitation, "--out", folder)
    assert "name your table for other, third: --data other=TABLE --data third=TABLE, or some of them" in done.stderr
    done = one.owner("join", invitation, "--out", folder, "--data", f"third={one.tables[TABLE]}")
    assert (done.exit_code, "third is added to" in done.stdout) == (0, True), done.output
    done = add(one, folder, invitation, "--study", "other")
    assert (done.exit_code, "other is added to" in done.stdout) == (0, True), done.output
    assert [entry.name for entry in settings_of(folder).studies] == ["made-up", "third", "other"]


def test_a_member_joins_for_several_studies_by_one_line(two: tuple[Scene, Scene], folder: Path) -> None:
    one = two[0]
    invitation = invited(one, folder, "other", "third")
    twice = [word for _ in range(2) for word in ("--data", one.tables[TABLE])]
    assert "two tables without a study" in one.owner("join", invitation, "--out", folder, *twice).stderr
    done = add(one, folder, invitation)
    assert (done.exit_code, "other, third are added to" in done.stdout) == (0, True), done.output
    assert [entry.name for entry in settings_of(folder).studies] == ["made-up", "other", "third"]
    assert one.roster()[NAME]["studies"] == ["made-up", "other", "third"]


def test_a_new_owner_joins_for_several_studies_each_with_its_table(two: tuple[Scene, Scene], tmp_path: Path) -> None:
    one, name = two[0], "new"
    studies = ("--study", "made-up", "--study", "other")
    done = one.learner("invite", name, *studies, "--out", tmp_path / "new.json")
    line = "parley-party join new.json --data made-up=TABLE --data other=TABLE"
    assert (done.exit_code, line in done.stdout) == (0, True), done.output
    tables = dict(zip(("made-up", "other"), one.tables.values(), strict=True))
    data = [word for study, table in tables.items() for word in ("--data", f"{study}={table}")]
    words = ("--words", " ".join(words_of(one.key)))
    done = one.owner("join", tmp_path / "new.json", "--out", tmp_path / name, *words, *data)
    assert done.exit_code == 0, done.output
    settings = PartySettings.load(tmp_path / name / "party.toml")
    assert {entry.name: Path(entry.data.source) for entry in settings.studies} == tables
    assert one.learner("roster", "remove", name).exit_code == 0


def test_a_study_that_a_serving_learner_is_given_is_there_at_once(two: tuple[Scene, Scene], folder: Path) -> None:
    one = two[0]
    file = one.root / "learner" / "studies" / "late.json"
    file.write_text("{")
    done = one.learner("invite", NAME, "--study", "late", "--out", folder / "late.json")
    assert "unknown study 'late'; there are made-up, other, third; study " in done.stderr
    assert str(file) in done.stderr
    file.write_text(made_up(3).model_copy(update={"name": "late"}).model_dump_json())
    done = add(one, folder, invited(one, folder, "late"))
    assert (done.exit_code, "late is added to" in done.stdout) == (0, True), done.output
    file.unlink()
    assert "unknown study 'late'" in one.learner("submit", "late", *MOST).stderr


def test_another_learner_has_its_own_files_and_its_own_studies(two: tuple[Scene, Scene], folder: Path) -> None:
    one, another = two
    assert add(one, folder, invited(one, folder, "other")).exit_code == 0
    before, tokens, text = settings_of(folder), secrets(folder), (folder / "party.toml").read_text()
    invitation = invited(another, folder, "abroad")
    assert "--words: ask the learner's operator" in add(another, folder, invitation).stderr, "it is a stranger"
    words = ("--words", " ".join(words_of(another.key)))
    done = add(another, folder, invitation, *words)
    assert done.exit_code == 0, done.output
    assert "caution: your settings have another learner that calls itself learner: this one is learner-2" in done.stdout
    assert " ".join(words_of(before.identity.key)) in done.stdout
    settings = settings_of(folder)
    assert secrets(folder) == tokens
    assert settings.policy == before.policy
    assert (settings.learners[:1], settings.outbound[:1]) == (before.learners, before.outbound)
    assert settings.learners[1].public_key == another.key
    assert {each.name.partition(".")[0] for each in own_files(settings)} == {"learner-2"}
    assert all(each.exists() for each in own_files(settings))
    assert not {*own_files(settings)} & {settings.outbound[0].token_file, settings.outbound[0].certificate}
    learners = {entry.name: entry.policy.learners for entry in settings.studies}
    assert learners == {"made-up": ("learner",), "other": ("learner",), "abroad": ("learner-2",)}
    assert another.learner("roster", "confirm", NAME, *words_of(settings.identity.key)).exit_code == 0
    done = another.owner("join", invited(another, folder, "made-up"), "--out", folder)
    assert done.exit_code == 0, done.output
    assert settings_of(folder).studies[0].policy.learners == ("learner", "learner-2"), "the same study, of both"
    assert "learner-2 may ask about made-up too" in done.stdout
    assert (folder / "party.toml").read_text().startswith(text[:100])
    assert another.roster()[NAME]["studies"] == ["abroad", "made-up"]


def own_files(settings: PartySettings) -> list[Any]:
    """The files of the second learner."""
    address = settings.outbound[1]
    return [address.token_file, address.ca, address.certificate, address.key]


def in_short_form(folder: Path) -> None:
    """Write the settings as joins did when a party had one study."""
    config = folder / "party.toml"
    text, entry = config.read_text(), settings_of(folder).studies[0]
    kept = text[: text.index("[[studies]]")].replace("\n[policy]", f'\nstudy = "{entry.study}"\n\n[policy]', 1)
    config.write_text(f'{kept}\n[data]  # mine\nsource = "{entry.data.source}"\n')
    assert settings_of(folder).study is not None


def test_an_earlier_study_stays_its_learners_alone(two: tuple[Scene, Scene], folder: Path) -> None:
    one, another = two
    in_short_form(folder)
    assert add(one, folder, invited(one, folder, "other")).exit_code == 0
    assert settings_of(folder).study is not None
    if NAME in another.roster():
        assert another.learner("roster", "remove", NAME).exit_code == 0
    done = add(another, folder, invited(another, folder, "abroad"), "--words", " ".join(words_of(another.key)))
    assert done.exit_code == 0, done.output
    settings = settings_of(folder)
    assert settings.study is None
    assert {entry.name: entry.policy.learners for entry in settings.studies} == {
        "made-up": ("learner",),
        "other": ("learner",),
        "abroad": ("learner-2",),
    }
    assert "# mine" in (folder / "party.toml").read_text()


def test_a_table_that_does_not_fit_one_of_several_studies_is_named_with_it(
    two: tuple[Scene, Scene], folder: Path
) -> None:
    short = folder.parent / "short.csv"
    short.write_text("x0,x1,y\n0.1,0.2,yes\n")
    done = two[0].owner("join", invited(two[0], folder, "other", "third"), "--data", short, "--out", folder)
    assert "parley-party: other: the data does not fit the study: column 'x2': absent" in done.stderr


def test_what_is_wrong_is_said_in_a_line_and_changes_nothing(two: tuple[Scene, Scene], folder: Path) -> None:
    one, config = two[0], folder / "party.toml"
    held, other = invited(one, folder, "made-up"), invited(one, folder, "other")
    several = invited(one, folder, "other", "third")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    short = folder.parent / "short.csv"
    short.write_text("x0,x1,y\n0.1,0.2,yes\n")

    def refused(*line: object) -> str:
        done = one.owner("join", *line)
        assert done.exit_code == 3, done.output
        assert done.stderr.count("\n") == 1, done.stderr
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
        return done.stderr

    table = ("--data", one.tables[TABLE])
    at = ("--out", folder)
    assert "x2" in refused(other, "--data", short, *at)
    assert "--data: name your table for other" in refused(other, *at)
    assert f"{config} has made-up with other data: change [studies.data] there" in refused(held, *table, *at)
    assert f"--people, --share: {config} has made-up already" in refused(held, "--share", 0.5, *at)
    assert "the account of all your studies is in your settings: change epsilon in [policy]" in refused(
        other, *table, *at, "--epsilon", 9
    )
    assert "--port: the service has its port already" in refused(other, *table, *at, "--port", 1)
    assert "less than or equal to 1" in refused(other, *table, *at, "--share", 1.5)
    assert "the invitation has no study fourth; it has other, third" in refused(
        several, *table, *at, "--study", "fourth"
    )
    assert "name the folder or the settings in it, not both" in refused(other, *table, *at, "--config", config)
    stranger = invited(one, folder.parent, "other", name="somebody")
    assert f"{config} is {NAME}'s, and the invitation is for somebody" in refused(stranger, *table, "--config", config)
    study = folder / "studies" / "made-up.json"
    text = json.loads(study.read_text())["study"]
    study.write_text(json.dumps(text | {"title": "something else"}))
    before[study] = study.read_bytes()
    message = refused(held, *at)
    assert (
        f"{config} has another study called made-up: withdraw it (parley-party withdraw), and say the same" in message
    )


def test_settings_that_name_a_study_twice_or_a_strange_learner_are_refused(
    two: tuple[Scene, Scene], folder: Path
) -> None:
    one, config = two[0], folder / "party.toml"
    line = ("join", invited(one, folder, "other"), "--data", one.tables[TABLE], "--out", folder)
    text = config.read_text()
    config.write_text(text.replace('learners = ["learner"]', 'learners = ["nobody"]'))
    assert "made-up: learners: unknown: nobody" in one.owner(*line).stderr
    entry = text[text.index("[[studies]]") :]
    config.write_text(f"{text}\n{entry}")
    assert "studies: two are called made-up" in one.owner(*line).stderr
    config.write_text(text)
    in_short_form(folder)
    with config.open("a") as settings:
        settings.write(f"\n{entry}")
    for command in (line, ("studies", "--config", config), ("withdraw", "made-up", "--config", config)):
        assert "studies: two are called made-up" in one.owner(*command).stderr


def test_shares_of_more_than_the_account_are_refused(two: tuple[Scene, Scene], folder: Path) -> None:
    one = two[0]
    assert add(one, folder, invited(one, folder, "other"), "--share", 0.7).exit_code == 0
    before = (folder / "party.toml").read_text()
    done = add(one, folder, invited(one, folder, "third"), "--share", 0.4)
    assert done.exit_code == 3
    assert "the shares add up to 1.1, and an account has but 1 to set aside" in done.stderr
    assert (folder / "party.toml").read_text() == before
    assert not (folder / "studies" / "third.json").exists()


@pytest.mark.parametrize("is_short", [False, True])
def test_an_owner_withdraws_from_a_study(two: tuple[Scene, Scene], folder: Path, *, is_short: bool) -> None:
    one, config = two[0], ("--config", folder / "party.toml")
    assert "made-up is your only study" in one.owner("withdraw", "made-up", *config).stderr
    if is_short:
        in_short_form(folder)
    assert add(one, folder, invited(one, folder, "other")).exit_code == 0
    assert "has no study third; it has made-up, other" in one.owner("withdraw", "third", *config).stderr
    parties = (Member(name=NAME, n_examples=40, budget=Budget(epsilon=1, delta=1e-5)),)
    study = read_study(folder / "studies" / "made-up.json")
    spec = RunSpec(study=study, algorithm="dp_gd", parameters={}, parties=parties, minimum_contributors=1)
    price = Price((1,), (0,), (0,), (0,))
    with open_store(settings_of(folder)) as store:
        store.consents.approve("learner", RunProposal(run="open", spec=spec), price)
    done = one.owner("withdraw", "made-up", *config)
    assert done.exit_code == 0, done.output
    assert "run open of learner has ended" in done.stdout
    settings = settings_of(folder)
    assert [entry.name for entry in settings.held] == ["other"]
    with open_store(settings) as store:
        assert store.books.runs["learner", "open"].ended == "owner"
    assert "study" not in tomllib.loads((folder / "party.toml").read_text())


RUNNING = ("running-a", "running-b")
MOST = ("--epsilon", 0.2, "--delta", 1e-6)


def test_parties_that_run_take_all_of_it_up(two: tuple[Scene, Scene], tmp_path: Path) -> None:
    """Runs go on while a study and a learner are added, and while tokens are renewed; nothing is started again."""
    one, another = two
    folders = {name: tmp_path / name for name in RUNNING}
    join_both(one, folders, "made-up", "--words", " ".join(words_of(one.key)))
    with stopped_at_exit(*(start_party(settings_of(folder)) for folder in folders.values())):
        confirm(one, folders)
        run = submitted(one, "made-up", 200)
        join_both(one, folders, "other")
        assert "completed after 200 rounds" in ended(one, run)
        assert not any("sign-in" in log(folder) for folder in folders.values()), "no request was refused"
        one.until(lambda: all(times_read(folder) == 1 for folder in folders.values()))
        assert "completed after 3 rounds" in ended(one, submitted(one, "other", 3))
        join_both(another, folders, "abroad", "--words", " ".join(words_of(another.key)))
        confirm(another, folders)
        assert "completed after 3 rounds" in ended(another, submitted(another, "abroad", 3))
        done = another.learner("submit", "made-up", *MOST, "--party", RUNNING[0])
        assert (done.exit_code, f"{RUNNING[0]} does not hold made-up; nobody holds it yet" in done.stderr) == (3, True)
        run = submitted(one, "made-up", 200)
        join_both(one, folders, "made-up")
        assert "completed after 200 rounds" in ended(one, run), "tokens are renewed"
        run = submitted(one, "other", 3000)
        one.until(lambda: '"charged"' in log(folders[RUNNING[0]]).partition(run)[2])
        done = one.owner("withdraw", "other", "--config", folders[RUNNING[0]] / "party.toml")
        assert (done.exit_code, f"run {run} of learner has ended" in done.stdout) == (0, True), done.output
        assert "running-a refused" in ended(one, run)


def join_both(made: Scene, folders: dict[str, Path], study: str, *args: object) -> None:
    """Have both parties join a learner for a study, by the policy."""
    for (name, folder), table in zip(folders.items(), made.tables.values(), strict=True):
        folder.mkdir(exist_ok=True)
        is_held = study in (folder / "party.toml").read_text() if (folder / "party.toml").exists() else False
        data = () if is_held else ("--data", table, "--by-policy")
        done = made.owner("join", invited(made, folder, study, name=name), *data, "--out", folder, *args)
        assert done.exit_code == 0, done.output


def confirm(made: Scene, folders: dict[str, Path]) -> None:
    """Confirm both, and wait until they are connected."""
    for name, folder in folders.items():
        assert made.learner("roster", "confirm", name, *words_of(settings_of(folder).identity.key)).exit_code == 0
    made.until(lambda: all(made.roster()[name]["connected"] for name in folders))


def submitted(made: Scene, study: str, rounds: int) -> str:
    """A run of the two parties."""
    parties = [word for name in RUNNING for word in ("--party", name)]
    done = made.learner("submit", study, *MOST, "-p", f"n_rounds={rounds}", *parties)
    return str(done.stdout.strip())


def ended(made: Scene, run: str) -> str:
    """How a run ended, in words."""
    return " ".join(made.learner("watch", run).output.split())


def log(folder: Path) -> str:
    return (folder / "state.log").read_text()


def times_read(folder: Path) -> int:
    """How often a party has taken up changed settings."""
    return log(folder).count('"event": "settings"')


def test_a_container_sees_the_tables_of_all_studies(
    two: tuple[Scene, Scene], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.common.service.compose._check_named", lambda _: None)  # both learners are on loopback
    one, another = two
    if NAME in another.roster():
        assert another.learner("roster", "remove", NAME).exit_code == 0
    file, table = folder / "docker-compose.party.yml", folder / "further.csv"
    table.write_bytes(one.tables[TABLE].read_bytes())
    done = add(one, folder, invited(one, folder, "other"), "--compose")
    assert done.exit_code == 0, done.output
    words = " ".join(words_of(another.key))
    done = add(another, folder, invited(another, folder, "abroad"), "--words", words, table=table)  # the file follows
    assert done.exit_code == 0, done.output
    assert f"{file} is changed: the container has to be made again" in done.output
    assert "takes this up by itself" not in done.output
    text = file.read_text()
    for entry in settings_of(folder).held:
        assert all(f'"target": "{path}"' in text for path in entry.data.paths)
    for made in two:
        assert f"127.0.0.1:{made.url.rpartition(':')[2]}" in text
