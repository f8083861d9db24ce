"""A query that sorts more than it may hold: where the owner allows it, rows go to a folder of its own, and are gone."""

from __future__ import annotations

import multiprocessing
import resource
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.files import query
from parley.common.files.examples import load_source
from parley.common.files.sources import DataSource, Spill
from parley.common.storage.folders import check_private_folder, scratch_folder

N_ROWS, N_FEATURES, ABOVE_MB = 1_000_000, 10, 64
STUDY = Study(
    name="numbers",
    features=tuple(Feature(name=f"x{j}", lower=-1, upper=1) for j in range(N_FEATURES)),
    label=Label(name="y", values=("no", "yes")),
)
SORTED = "SELECT * FROM t ORDER BY x0"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 MB of numbers."""
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    rng = np.random.default_rng(3)
    columns = {f"x{j}": rng.uniform(-1, 1, N_ROWS) for j in range(N_FEATURES)}
    parquet.write_table(pa.table({**columns, "y": np.where(columns["x1"] < 0, "no", "yes")}), path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One that is shut to others."""
    made = tmp_path / "encrypted"
    made.mkdir(mode=0o700)
    return made


def source(table: Path, folder: Path | None, words: str = SORTED) -> DataSource:
    spill = Spill(folder=folder, above_mb=ABOVE_MB) if folder else None
    return DataSource(source=words, tables={"t": str(table)}, spill=spill)


@pytest.mark.slow
def test_rows_that_were_spilt_are_the_same_and_gone(table: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, spilt = load_source(source(table, None), STUDY), load_source(source(table, folder), STUDY)
    np.testing.assert_array_equal(held.shard.X, spilt.shard.X)
    np.testing.assert_array_equal(held.shard.y, spilt.shard.y)
    assert not list(folder.iterdir())
    monkeypatch.setattr(query, "scratch_folder", lambda *_: nullcontext(""))  # nowhere: the memory alone does not do
    with pytest.raises(InvalidDataError, match="needs more memory"):
        load_source(source(table, folder), STUDY)


@pytest.mark.long
def test_a_disk_without_room_is_told(table: Path, folder: Path) -> None:
    made = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, made[1]))
    try:
        with pytest.raises(InvalidDataError, match=r"data.source: the query (cannot be run|needs more)"):
            load_source(source(table, folder), STUDY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, made)
    assert not list(folder.iterdir())


def test_a_query_cannot_read_what_it_spills(table: Path, folder: Path) -> None:
    words = f"SELECT * FROM read_csv('{folder}/*')"  # noqa: S608 -- what is tried
    with pytest.raises(InvalidDataError, match="disabled"):
        load_source(source(table, folder, words), STUDY)
    assert not list(folder.iterdir())


def test_a_folder_that_others_can_open_is_refused(table: Path, folder: Path, tmp_path: Path) -> None:
    folder.chmod(0o750)
    with pytest.raises(InvalidInputError, match=r"data.spill.folder: others can open .*: chmod 700"):
        load_source(source(table, folder), STUDY)
    with pytest.raises(InvalidInputError, match="No such file"):
        load_source(source(table, tmp_path / "none"), STUDY)
    with pytest.raises(InvalidInputError, match="is no folder"):
        check_private_folder(table, "data.spill.folder")


def test_a_folder_that_takes_nothing_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(**_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("parley.common.storage.folders.tempfile.mkdtemp", no_room)
    with pytest.raises(InvalidInputError, match=r"key: .*encrypted cannot be written: No space left"):
        scratch_folder(folder, "key").__enter__()


def _held_until_killed(folder: Path) -> None:
    with scratch_folder(folder, "key") as made:
        (made / "rows").write_text("private")
        time.sleep(60)


def test_what_a_killed_process_left_is_removed_and_what_another_uses_is_not(folder: Path) -> None:
    children = [multiprocessing.get_context("fork").Process(target=_held_until_killed, args=(folder,)) for _ in "ab"]
    for child in children:
        child.start()
    try:
        while len(list(folder.glob("*/rows"))) < len(children):
            time.sleep(0.01)
        children[0].kill()
        children[0].join()
        with scratch_folder(folder, "key") as made:
            assert made.stat().st_mode & 0o777 == 0o700
            assert len(list(folder.iterdir())) == 2, "the living one's and this"
    finally:
        children[1].kill()
        children[1].join()
    with scratch_folder(folder, "key") as made:
        assert list(folder.iterdir()) == [made]
    assert not list(folder.iterdir())
