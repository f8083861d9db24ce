"""Public rows at the learner: uploaded under their digest, or refused with what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from parley.common.data.columns import Category, Feature, Label
from parley.common.data.records import rows_of
from parley.common.data.study import Study
from parley.common.errors import UnavailableError
from parley.common.runs.specification import PublicRows
from parley.learner.storage import public_rows
from tests.support.cluster import Cluster, asgi_cluster, upload

STUDY = Study(
    name="ward",
    features=(Feature(name="age", lower=0, upper=100), Category(name="ward", values=("east", "west"))),
    label=Label(name="ill", values=("no", "yes")),
)
FILE = {"Content-Type": "application/octet-stream"}
GOOD = b"age,ward\n50,east\n70,west\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    columns = {"age": np.array([1.0, 2.0]), "ward": np.array(["east", "west"]), "ill": np.array(["no", "yes"])}
    return Cluster(tmp_path, given=(STUDY, [columns]))


async def put(client: httpx.AsyncClient, body: bytes, study: str = "ward", **headers: str) -> httpx.Response:
    return await client.put(f"/v1/public?study={study}", content=body, headers=FILE | headers)


async def test_the_same_rows_have_one_name_however_they_come(cluster: Cluster) -> None:
    path = cluster.root / "rows.parquet"
    write_table(pa.table({"ward": ["east", "west"], "age": [50, 70], "ill": ["no", "no"]}), path)
    async with asgi_cluster(cluster) as client:
        first = (await put(client, GOOD)).json()
        again = await put(client, path.read_bytes())
        assert again.json() == first == {"digest": first["digest"], "rows": 2, "width": 4}
        assert (await client.get("/v1/public")).json()["rows"] == [first]
        rows = rows_of(STUDY, [{"age": 50, "ward": "east"}, {"age": 70, "ward": "west"}])
        assert first == PublicRows.of(rows).model_dump()


@pytest.mark.parametrize(
    ("body", "change", "status", "word"),
    [
        (
            GOOD,
            {"Content-Type": "application/json"},
            415,
            "the body must be application/octet-stream",
        ),
        (GOOD, {"Content-Type": ""}, 415, "the body must be application/octet-stream"),
        (b"PAR1" + GOOD, {}, 422, "the body cannot be read"),
        (b"age,ill\n50,no\n", {}, 422, "the body lacks 'ward'"),
        (b"age,ward\n50,north\n", {}, 422, "row 1: feature 'ward' is not one of its values"),
        (b"age,ward\nold,east\n", {}, 422, "row 1: feature 'age' is not a number"),
        (b"age,ward\n50,east\n,west\n", {}, 422, "row 2: feature 'age' is missing"),
        (b"age,ward,age\n50,east,3\n", {}, 422, "twice: see places 1, 3"),
        (b"age,ward\n", {}, 422, "public rows may take 16,773,120 bytes"),
        (b"", {}, 422, "it is empty"),
        (b"age,w\xc3\xa4rd\n50,e\xe4st\n", {}, 422, "the body cannot be read"),
    ],
)
async def test_refuses_what_does_not_fit_the_study(
    cluster: Cluster, body: bytes, change: dict[str, str], status: int, word: str
) -> None:
    async with asgi_cluster(cluster) as client:
        refused = await put(client, body, **change)
        assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")
        assert word in refused.json()["detail"], refused.text
        assert "north" not in refused.text
        assert str(cluster.root) not in refused.text
        assert gettempdir() not in refused.text
        assert (await client.get("/v1/public")).json()["rows"] == []


async def test_labelled_rows_of_one_class_teach_nothing(cluster: Cluster) -> None:
    async with asgi_cluster(cluster) as client:
        same = await put(client, b"age,ward,ill\n50,east,yes\n70,west,yes\n", "ward&labelled=true")
        assert (same.status_code, "the rows all have the same label" in same.text) == (422, True)
        assert (await put(client, b"age,ward,ill\n50,east,yes\n70,west,no\n", "ward&labelled=true")).is_success


async def test_refuses_rows_of_an_unknown_study_and_too_many(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_rows, "MAX_BYTES", 32)
    cluster.learner = {"limits": {"body_bytes": 2000}}
    async with asgi_cluster(cluster) as client:
        unknown = await put(client, GOOD, "nobodys")
        assert (unknown.status_code, unknown.json()["detail"]) == (
            422,
            "unknown study 'nobodys'; there are ward",
        )
        many = await put(client, GOOD)
        assert many.status_code == 422
        assert "may take 32 bytes, 8 a number, and at least one: not 2 rows of 4 numbers" in many.json()["detail"]
        assert (await put(client, GOOD + b"50,east\n" * 1000)).status_code == 413


def test_rows_that_cannot_be_written_are_none_for_now(tmp_path: Path) -> None:
    (tmp_path / "public").write_text("a file where a directory should be")
    with pytest.raises(UnavailableError, match="the public rows cannot be written: "):
        public_rows.PublicRowStore(tmp_path / "public").add(np.ones((1, 2)))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"algorithm": "probe", "public": "ab" * 32}, "there are no public rows abababababab here: upload them first"),
        ({"algorithm": "probe"}, "the algorithm asks about public rows, and the run names none"),
        ({"adjacency": "whole_party"}, "the run must hide whole parties, and dp_gd hides one record each"),
        ({"public": "known"}, "the run names public rows, and dp_gd asks about none of their shape"),
        ({"public": "ab"}, ""),
        ({"adjacency": "add_remove"}, ""),
    ],
)
async def test_refuses_a_run_that_names_no_such_rows_or_hides_too_little(
    tmp_path: Path, changes: dict[str, Any], word: str
) -> None:
    cluster = Cluster(tmp_path, n_parties=2)
    async with asgi_cluster(cluster) as client:
        name = await upload(client, cluster.public_table())
        rows = {"public": name["digest"]} if changes.get("public") == "known" else {}
        refused = await client.post(
            "/v1/runs", json={"study": "made-up", "epsilon": 1.0, "delta": 1e-5} | changes | rows
        )
        assert refused.status_code == 422
        assert word in refused.json()["detail"]
        assert (await client.get("/v1/runs")).json()["runs"] == []
