"""``parley-learner quickstart``: from a table to a learner with invitations, without a terminal."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from parley.common.wire.membership import Invitation
from parley.learner.cli.main import learner_app
from parley.learner.cli.options import LearnerOptions
from parley.learner.cli.quickstart import LearnerHere

TABLE = "age,smoker,ill\n" + "".join(
    f"{20 + n % 40},{('no', 'yes')[n % 2]},{('no', 'yes')[n % 3 == 0]}\n" for n in range(60)
)


def began(*words: str, code: int = 0, asked: str | None = None) -> Any:  # noqa: ANN401 -- JSON, or what was said
    """What ``quickstart`` prints as JSON, or on standard error where it fails."""
    done = CliRunner().invoke(learner_app, ["quickstart", *words, "--format", "json"], input=asked)
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if code == 0 else done.stderr


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lungs.csv").write_text(TABLE)
    Path("hearts.csv").write_text(TABLE.replace("smoker", "runner"))


def free_url() -> str:
    """A URL at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"https://127.0.0.1:{free.getsockname()[1]}"


def test_two_tables_become_two_studies_of_one_learner_that_invites_their_owners(tmp_path: Path) -> None:
    url = free_url()
    first = began("lungs.csv", "--public", "--label", "ill", "--owners", "north, south", "--url", url)
    invitation = Invitation.opened(Path("north.invitation.json").read_text(), datetime.now(UTC))
    assert [signed.study.name for signed in invitation.studies] == ["lungs"]
    assert (invitation.name, invitation.url, first["words"]) == ("north", url, " ".join(invitation_words(invitation)))
    assert first["invitations"] == {"north": "north.invitation.json", "south": "south.invitation.json"}
    assert first["next"][1:3] == [
        f"parley-learner roster confirm {name} WORDS   (the six that its owner reads to you)"
        for name in ("north", "south")
    ]
    second = began("hearts.csv", "--public", "--label", "ill", "--owners", "north")
    assert (second["words"], second["invitations"]) == (first["words"], {"north": "north-2.invitation.json"})
    assert sorted(path.name for path in (tmp_path / "learner" / "studies").iterdir()) == ["hearts.json", "lungs.json"]
    again = began("lungs.csv", "--public", "--label", "ill", "--owners", "west")
    assert again["invitations"] == {"west": "west.invitation.json"}, "the same study may be said again"
    refused = began("lungs.csv", "--public", "--label", "smoker", code=3)
    assert "is another study of this name: say --name NAME" in refused
    refused = began("lungs.csv", "--public", "--label", "ill", "--name", "b", "--url", "https://a.example", code=3)
    assert f"is at {url}" in refused


def invitation_words(invitation: Invitation) -> tuple[str, ...]:
    """The words that the owner types."""
    from parley.common.encoding.key_words import words_of  # noqa: PLC0415

    return words_of(invitation.learner.public_key)


def test_what_cannot_be_begun_leaves_nothing_behind() -> None:
    private = began("lungs.csv", "--label", "ill", "--owners", "north", code=3)
    assert "--bounds age=LOWER:UPPER" in private
    assert "say --public, if the file is" in private
    assert "names have letters" in began("lungs.csv", "--public", "--label", "ill", "--owners", "a b", code=3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        url = f"https://127.0.0.1:{taken.getsockname()[1]}"
        assert "say another port" in began("lungs.csv", "--public", "--label", "ill", "--url", url, code=3)
    assert not Path("learner").exists()


def test_what_is_not_said_is_asked_at_a_terminal() -> None:
    answers = f"n\nill\nold\n0:120\nno,yes\nno,yes\nhere\n{free_url()}\nnorth\nn\n"
    done = CliRunner().invoke(learner_app, ["quickstart", "lungs.csv", "--ask"], input=answers)
    assert done.exit_code == 0, done.output
    assert "here is not https://host:port\nwhere owners will reach this learner" in done.stderr
    assert Path("north.invitation.json").exists()
    assert "public knowledge" in done.stderr
    answers = "y\nsick\nill\nso uth\nsouth\nn\n"
    of_public = CliRunner().invoke(learner_app, ["quickstart", "hearts.csv", "--ask"], input=answers)
    assert "the table has no column 'sick'; it has " in of_public.output, "it is asked again"
    assert "--owners: names have letters" in of_public.output
    assert (of_public.exit_code, Path("south.invitation.json").exists()) == (0, True), (
        "bounds are as the table has them"
    )


def test_commands_find_the_learner_of_the_folder_here_unless_a_token_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LearnerOptions().place == ("http://127.0.0.1:8000", None, None)
    url = free_url()
    began("lungs.csv", "--public", "--label", "ill", "--url", url)
    here = Path("learner/secrets")
    assert LearnerOptions().place == (url, here / "operator.token", here / "authority.pem")
    assert LearnerOptions(url="https://a.example").place == ("https://a.example", None, None)
    monkeypatch.setenv("PARLEY_TOKEN", "a-token")
    assert LearnerOptions().place == ("http://127.0.0.1:8000", None, None)


def test_owners_get_the_options_that_their_tables_need_and_members_are_not_compared_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("gains.csv").write_text("gain,ill\n" + "".join(f"{(n % 50, 99999)[n % 9 == 0]},{n % 2}\n" for n in range(90)))
    words = ["gains.csv", "--public", "--label", "ill", "--owners", "north", "--url", free_url()]
    done = CliRunner().invoke(learner_app, ["quickstart", *words])
    assert "join north.invitation.json --data TABLE --clip --value gain:99999=99999; parley-party serve" in done.stdout
    assert "gain: 99999 looks like a code for a missing value" in done.stderr
    monkeypatch.setattr(LearnerHere, "members", lambda _: {"north"})
    words = ["lungs.csv", "--public", "--label", "ill", "--bounds", "age=30:40", "--owners", "north"]
    again = CliRunner().invoke(learner_app, ["quickstart", *words])
    assert "join north-2.invitation.json --data gains=TABLE --data lungs=TABLE --clip\n" in again.stdout, "for both"
    assert "north: north-2.invitation.json (an earlier invitation counts no more: " in again.stdout
    for said in ("by telephone", "parley-party serve", "roster confirm"):
        assert said not in again.output, "it is a member already"


def test_owners_of_a_study_of_persons_are_asked_for_the_column_that_says_whose_a_row_is() -> None:
    Path("visits.csv").write_text("patient,age,ill\n" + "".join(f"P{n % 30},{n % 7 + 20},{n % 2}\n" for n in range(90)))
    words = [
        "visits.csv",
        "--public",
        "--label",
        "ill",
        "--owners",
        "north",
        "--url",
        free_url(),
        "--person",
        "patient",
    ]
    done = CliRunner().invoke(learner_app, ["quickstart", *words])
    assert done.exit_code == 0, done.output
    assert "join north.invitation.json --data TABLE --clip --person COLUMN; parley-party serve" in done.stdout
    assert "COLUMN is the one of its table that says whose a row is: each owner's own word" in done.stdout
    Path("again.csv").write_text(TABLE)
    again = CliRunner().invoke(
        learner_app, ["quickstart", "again.csv", "--public", "--label", "ill", "--owners", "north,south"]
    )
    assert again.exit_code == 0, again.output
    lines = again.stdout.splitlines()
    (both,) = (line for line in lines if "join north-2.invitation.json" in line)
    assert "--data visits=TABLE --data again=TABLE" in both
    assert " --person COLUMN;" in both, "the earlier study is of persons"
    (rows,) = (line for line in lines if "join south.invitation.json" in line)
    assert "--person" not in rows
