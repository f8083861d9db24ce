"""Points are computed once, wherever that is, and never taken from a cache that is of other code, libraries or data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.figures import point as point_module
from scripts.figures import sources
from scripts.figures.frame import all_figures
from scripts.figures.point import OtherCodeError, Point, computed
from scripts.figures.runner import ONE_THREAD, Cache, complete, dask_cluster, processes
from scripts.figures.sources import digest_of_code, digest_of_data, imported
from scripts.utility.examples import AbsentError
from tests.support.points import doubled, failing, threads


def points_of(log: Path, n: int) -> list[Point]:
    return [Point.of(doubled, about_seconds=x, log=str(log), x=x) for x in range(n)]


def computed_so_far(log: Path) -> list[int]:
    return [int(line) for line in log.read_text(encoding="utf-8").split()]


def test_only_what_is_missing_is_computed_the_longest_first(tmp_path: Path) -> None:
    cache, log, points = Cache(tmp_path / "cache"), tmp_path / "log", points_of(tmp_path / "log", 4)
    with ThreadPoolExecutor(1) as executor:
        assert complete(cache, [*points[:2], *points[:2]], executor) == 2
        assert complete(cache, points, executor) == 2
        assert complete(cache, points, executor) == 0
    assert computed_so_far(log) == [1, 0, 3, 2]
    assert [cache.result(point) for point in points] == [[0], [2], [4], [6]]


def test_what_came_before_a_failure_is_kept(tmp_path: Path) -> None:
    cache, points = Cache(tmp_path / "cache"), points_of(tmp_path / "log", 2)
    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(ArithmeticError, match="nothing to measure"):
            complete(cache, [*points, Point.of(failing, about_seconds=0.5)], executor)
        complete(cache, points, executor)
    assert computed_so_far(tmp_path / "log").count(1) == 1


def test_the_cache_is_json_beside_what_it_is_of_and_nothing_half_written(tmp_path: Path) -> None:
    cache, (point,) = Cache(tmp_path), points_of(tmp_path / "log", 1)
    cache.keep(point, '{"result": [1.5], "seconds": 0.5}')
    (path,) = tmp_path.iterdir()
    assert path.name == f"{point.key}.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document == {"specification": point.specification, "result": [1.5], "seconds": 0.5}
    assert cache.seconds(point) == 0.5
    assert document["specification"]["arguments"] == {"log": str(tmp_path / "log"), "x": 0}


def test_a_key_tells_apart_all_that_a_result_depends_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "rows").write_bytes(b"1")
    (tmp_path / "again" / "set").mkdir(parents=True)
    (tmp_path / "again" / "set" / "rows").write_bytes(b"2")
    monkeypatch.setenv("PARLEY_DATA", str(tmp_path))
    point = Point.of(doubled, "set", log="", x=1)
    keys = {point.key, Point.of(doubled, "set", log="", x=2).key, Point.of(doubled, log="", x=1).key}
    assert point.key == Point.of(doubled, "set", about_seconds=9, x=1, log="").key
    with monkeypatch.context() as other:
        other.setattr(point_module, "LIBRARIES", {"numpy": "0"})
        keys.add(point.key)
    with monkeypatch.context() as other:
        other.setenv("PARLEY_DATA", str(tmp_path / "again"))
        keys.add(point.key)
    assert len(keys) == 5
    monkeypatch.delenv("PARLEY_DATA")
    with pytest.raises(AbsentError, match="PARLEY_DATA has no set"):
        digest_of_data("set")


def test_code_that_a_point_may_run_counts_and_no_other(tmp_path: Path) -> None:
    for name, text in {
        "common/algorithms/named.py": "",
        "learner/runs/plan.py": "",
        "scripts/measure.py": "import scripts.helper\nfrom scripts.parts import first\nimport parley.common\n",
        "scripts/helper.py": "def late():\n    from scripts.late import something\n",
        "scripts/late.py": "",
        "scripts/parts/first.py": "",
        "scripts/draw.py": "from scripts import measure",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    named = {path.relative_to(tmp_path).as_posix() for path in imported("scripts.measure", tmp_path)}
    assert named == {f"scripts/{name}.py" for name in ("measure", "helper", "late", "parts/first")}

    def digest() -> str:
        digest_of_code.cache_clear()
        return digest_of_code("scripts.measure", tmp_path)

    before = digest()
    (tmp_path / "scripts/draw.py").write_text("# another colour", encoding="utf-8")
    assert digest() == before
    for name in ("common/algorithms/named.py", "learner/runs/plan.py", "scripts/late.py"):
        (tmp_path / name).write_text("# changed", encoding="utf-8")
        assert digest() != before, name
        before = digest()


def test_no_module_that_measures_draws() -> None:
    sweeps = (sweep for figure in all_figures() for sweep in (figure.full, figure.quick))
    for module in {point.module for sweep in sweeps for point in sweep.points.values()}:
        drawing = [path.name for path in imported(module) if "matplotlib" in path.read_text(encoding="utf-8")]
        assert not drawing, f"{module}: a new colour in {drawing} would have all measured again"


def test_who_has_other_code_computes_nothing() -> None:
    with pytest.raises(OtherCodeError, match="failing: the code"):
        computed(Point.of(failing), "another key")


def test_arguments_are_json() -> None:
    assert Point.of(doubled, log="", x=(1, 2)) == Point.of(doubled, log="", x=[1, 2])
    with pytest.raises(TypeError):
        Point.of(doubled, log=Path(), x=1)
    with pytest.raises(ValueError, match="JSON"):
        Point.of(doubled, log="", x=float("nan"))


@pytest.mark.slow
def test_processes_compute_the_same_with_one_thread_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ONE_THREAD:
        monkeypatch.setenv(name, "2")
    cache, log = Cache(tmp_path / "cache"), tmp_path / "log"
    points, counts = points_of(log, 3), [Point.of(threads, n=n) for n in range(2)]
    with processes(2) as executor:
        assert complete(cache, [*points, *counts], executor) == 5
    assert [cache.result(point) for point in points] == [[0], [2], [4]]
    assert [cache.result(point) for point in counts] == [1, 1]


KILLED = """
from pathlib import Path
from scripts.figures.point import Point
from scripts.figures.runner import Cache, complete, processes
from tests.support.points import doubled, waiting
log, fifo, cache = {arguments}
with processes(1) as executor:
    for point in (Point.of(doubled, log=log, x=1), Point.of(waiting, fifo=fifo)):
        complete(Cache(Path(cache)), [point], executor)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_no_process_and_goes_on_where_it_was(tmp_path: Path) -> None:
    log, fifo, cache = tmp_path / "log", tmp_path / "fifo", tmp_path / "cache"
    os.mkfifo(fifo)
    script = KILLED.format(arguments=[str(log), str(fifo), str(cache)])
    with subprocess.Popen([sys.executable, "-c", script], cwd=sources.ROOT) as run, fifo.open() as child:
        assert child.readline() == "began\n"
        run.kill()
        assert not child.read(), "which ends when the child does"
    with ThreadPoolExecutor(1) as executor:
        complete(Cache(cache), [Point.of(doubled, log=str(log), x=1)], executor)
    assert computed_so_far(log) == [1]


@pytest.mark.slow
def test_a_cluster_computes_the_same(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    cache, points = Cache(tmp_path / "cache"), points_of(tmp_path / "log", 3)
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        dask_cluster(cluster.scheduler_address) as executor,
    ):
        assert complete(cache, points, executor) == 3
    assert [cache.result(point) for point in points] == [[0], [2], [4]]
