"""The learner's settings: what is refused, by name, and that all of them are documented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from parley.common.errors import InvalidInputError
from parley.common.service.tokens import hash_token
from parley.learner.api.app import create_learner_app
from parley.learner.settings import LearnerSettings, load_studies
from tests.support.cluster import Cluster, running

GOOD = """
name = "learner"
state = "STATE"
[[parties]]
name = "hospital-a"
url = "http://127.0.0.1:8101"
token = "secret-a"
[[parties]]
name = "hospital-b"
url = "http://127.0.0.1:8102"
token_file = "STATE/token"
[[users]]
name = "alice"
token_hash = "HASH"
"""


def load(root: Path, text: str) -> LearnerSettings:
    path = root / "learner.toml"
    path.write_text(text.replace("STATE", str(root)).replace("HASH", hash_token("alice")))
    (root / "token").write_text("secret-b\n")
    return LearnerSettings.load(path)


def test_reads_the_roster(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD)
    assert [entry.name for entry in settings.parties] == ["hospital-a", "hospital-b"]
    assert [entry.token_text() for entry in settings.parties] == ["secret-a", "secret-b"]
    assert "secret-a" not in repr(settings)


def test_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_LEARNER_DEADLINE_SECONDS", "2.5")
    assert load(tmp_path, GOOD).deadline_seconds == 2.5


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('name = "hospital-b"', 'name = "hospital-a"', "name given twice: hospital-a"),
        (":8102", ":8101", "url given twice: http://127.0.0.1:8101"),
        ('url = "http://127.0.0.1:8102"', 'url = "http://127.0.0.1:8101/"', "url given twice"),
        (
            '[[users]]\nname = "alice"',
            '[[users]]\nname = "bob"\ntoken_hash = "HASH"\n[[users]]\nname = "alice"',
            "users: two share a name or a token",
        ),
        ('token = "secret-a"', "", "'hospital-a' needs either token or token_file"),
        ('token = "secret-a"', 'token = "secret-a"\ntoken_file = "x"', "needs either token or token_file"),
        ("http://127.0.0.1:8101", "ftp://127.0.0.1", "parties.0.url"),
        ("http://127.0.0.1:8101", "file:///etc/passwd", "parties.0.url"),
        ('name = "learner"', "", "name"),
        ('name = "learner"', 'name = "learner"\nsurprise = 1', "surprise"),
        ('name = "learner"', 'name = "learner"\ndeadline_seconds = 0', "deadline_seconds"),
        ('name = "learner"', 'name = "learner"\ndeadline_seconds = nan', "deadline_seconds"),
        ('token_hash = "HASH"', 'token_hash = "alice"', "users.0.token_hash"),
    ],
)
def test_refuses_faulty_settings_by_name(tmp_path: Path, old: str, new: str, fault: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidInputError) as caught:
        load(tmp_path, GOOD.replace(old, new, 1))
    assert fault in caught.value.detail
    assert "secret-a" not in caught.value.detail


@pytest.mark.parametrize(("field", "fault"), [("token_file", "token file"), ("ca", "authority")])
def test_refuses_files_it_cannot_read(tmp_path: Path, field: str, fault: str) -> None:
    cluster = Cluster(tmp_path, n_parties=1)
    entry: dict[str, Any] = {"name": "party-1", "url": "https://party-1", field: tmp_path / "missing"}
    token = {} if field == "token_file" else {"token": "t"}
    with pytest.raises(InvalidInputError, match=fault):
        create_learner_app(cluster.learner_settings(None, parties=[entry | token]))


def test_refuses_studies_it_cannot_use(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1)
    assert list(load_studies(cluster.study_path.parent)) == ["made-up"]
    (cluster.study_path.parent / "second.json").write_text(cluster.study_path.read_text())
    with pytest.raises(InvalidInputError, match=r"two studies are named 'made-up'; the second is .*second.json"):
        load_studies(cluster.study_path.parent)
    (cluster.study_path.parent / "second.json").write_text("{}")
    with pytest.raises(InvalidInputError, match=r"second.json"):
        load_studies(cluster.study_path.parent)


def test_refuses_public_data_for_no_study(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1)
    with pytest.raises(InvalidInputError, match="unknown studies: another"):
        create_learner_app(cluster.learner_settings(None, public_data={"another": tmp_path / "party-1.csv"}))


def documented(model: type[BaseModel], path: str = "") -> list[str]:
    """The settings of a table, and of the tables in it, that have no description."""
    missing = []
    for name, field in model.model_fields.items():
        if not field.description:
            missing.append(path + name)
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                missing += documented(kind, f"{path}{name}.")
    return missing


def test_every_setting_is_documented() -> None:
    assert documented(LearnerSettings) == []


async def test_every_endpoint_is_documented(tmp_path: Path) -> None:
    async with running(create_learner_app(Cluster(tmp_path, n_parties=1).learner_settings())) as app:
        paths = app.openapi()["paths"]
    operations = [(path, operation) for path, item in paths.items() for operation in item.values()]
    assert len(operations) >= 12
    for path, operation in operations:
        assert operation["summary"], path
        assert operation["description"], path
        assert "application/problem+json" in operation["responses"]["default"]["content"], path
