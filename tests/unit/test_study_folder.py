"""A folder of studies is read again when its files change."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.common.data.study import Study
from parley.common.errors import InvalidInputError
from parley.learner.storage.study_folder import StudyFolder, find_study
from tests.support.cluster import made_up


def put(folder: Path, name: str, **terms: object) -> Study:
    study = made_up(2).model_copy(update={"name": name, **terms})
    (folder / f"{name}.json").write_text(study.model_dump_json())
    return study


def test_what_changes_in_the_folder_is_there_at_once(tmp_path: Path) -> None:
    first = put(tmp_path, "a")
    studies = StudyFolder(tmp_path)
    kept = studies["a"]
    assert dict(studies) == {"a": first}
    second = put(tmp_path, "b")
    assert dict(studies) == {"a": first, "b": second}
    assert studies["a"] is kept, "a file that is as it was is not read again"
    changed = put(tmp_path, "b", title="other words")
    assert studies["b"] == changed
    (tmp_path / "a.json").unlink()
    assert list(studies) == ["b"]
    with pytest.raises(InvalidInputError, match=r"^unknown study 'a'; there are b$"):
        find_study(studies, "a")


def test_a_file_that_cannot_be_used_changes_nothing_and_is_named(tmp_path: Path) -> None:
    first = put(tmp_path, "a")
    studies = StudyFolder(tmp_path)
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "z.json").write_text("{")
    (tmp_path / "copy.json").write_text(first.model_dump_json())
    assert dict(studies) == {"a": first}
    with pytest.raises(InvalidInputError) as refused:
        find_study(studies, "z")
    assert all(f"{name}.json" in refused.value.detail for name in "az")
    assert "a.json: Invalid JSON" in str(studies.unused_change("a")), "who asks for a run is told"
    assert "two studies are named 'a'" in refused.value.detail
    (tmp_path / "copy.json").unlink()
    assert put(tmp_path, "z") == studies["z"]
    assert put(tmp_path, "a", title="mended") == studies["a"]
    assert studies.faults == {}
    assert studies.unused_change("a") is None


def test_another_folder_is_taken_up_if_it_can_be_used(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        put(tmp_path / name, name)
    studies = StudyFolder(tmp_path / "a")
    studies.take_up(tmp_path / "b")
    assert list(studies) == ["b"]
    (tmp_path / "a" / "a.json").write_text("{")
    with pytest.raises(InvalidInputError, match=r"a\.json"):
        studies.take_up(tmp_path / "a")
    assert list(studies) == ["b"]
    studies.take_up(None)
    assert not studies


def test_a_file_that_is_removed_while_studies_are_listed_takes_none_of_them_away(tmp_path: Path) -> None:
    first, second = put(tmp_path, "a"), put(tmp_path, "b")
    studies = StudyFolder(tmp_path)
    listed, of_values = iter(studies.items()), iter(studies.values())
    assert next(of_values) == first
    (tmp_path / "b.json").unlink()
    assert list(listed) == [("a", first), ("b", second)]
    assert list(of_values) == [second]
    assert list(studies) == ["a"]
