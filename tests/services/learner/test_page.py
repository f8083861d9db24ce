"""The learner's page for people: what is served of it, and that it fits the API."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from parley.common import extras
from parley.learner.api import page
from parley.learner.api.page import PAGE_PATHS
from tests.support.cluster import submit, watch

FORMS = ("onnx", "sklearn")
FIRST = ("/", "/page/style.css", "/page/main.js", "/page/api.js", "/page/dom.js", "/page/runs.js")
"""What the first view is made of, but for the runs."""


async def test_the_page_is_for_everybody_and_holds_no_data(client: httpx.AsyncClient) -> None:
    client.headers.pop("authorization")
    for path in PAGE_PATHS:
        response = await client.get(path)
        assert response.status_code == 200
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "party-1" not in response.text
        again = await client.get(path, headers={"If-None-Match": response.headers["etag"]})
        assert (again.status_code, again.text) == (304, "")
    assert (await client.get("/")).headers["content-type"].startswith("text/html")
    assert (await client.get("/page/../app.py")).status_code == 401


async def test_the_page_runs_its_own_scripts_and_loads_nothing_else(client: httpx.AsyncClient) -> None:
    for path in PAGE_PATHS:
        response = await client.get(path)
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "https:" not in policy
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", response.text) == []
        assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", response.text) == []
    markup = (await client.get("/")).text
    assert re.findall(r'(?:src|href)="(?!data:,|/page/|#)', markup) == []
    assert re.findall(r"<script(?! type=\"module\" src=)|\son\w+=|\sstyle=", markup) == []


async def test_the_first_view_is_light(client: httpx.AsyncClient) -> None:
    sizes = {path: len((await client.get(path)).content) for path in FIRST}
    print(f"the first view, without runs, is {sum(sizes.values()) / 1000:.1f} kB: {sizes}")
    assert sum(sizes.values()) < 50_000


async def test_the_page_reads_what_the_learner_answers(client: httpx.AsyncClient) -> None:
    """What the scripts take of a run, of a model and of a budget is in the document."""
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    scripts = {
        path.stem: path.read_text(encoding="utf-8") for path in (Path(page.__file__).parent / "web").glob("*.js")
    }
    for names, schema, words in (
        (("compare", "runs"), "RunView", r"\brun\.(\w+)"),
        (("run",), "RunView", r"\bterms\.(\w+)"),
        (("studies", "charts"), "BudgetReport", r"\bbudget\.(\w+)"),
        (("studies",), "StudySummary", r"\bstudy\.(\w+)"),
        (("model", "weights"), "LinearModel", r"\bmodel\.(\w+)"),
    ):
        taken = {field for name in names for field in re.findall(words, scripts[name])}
        print(f"the page takes {len(taken)} fields of {schema}: {sorted(taken)}")
        assert taken
        assert taken <= set(schemas[schema]["properties"])


async def test_every_page_of_html_says_what_it_may_load(client: httpx.AsyncClient) -> None:
    await watch(client, run := await submit(client))
    for path in ("/", "/docs", f"/v1/runs/{run}/card"):
        response = (await client.get(path)).raise_for_status()
        assert response.headers["content-type"].startswith("text/html")
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["x-frame-options"] == "DENY"
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
    (style,) = re.findall(r"<style>(.*?)</style>", response.text, re.DOTALL)
    assert base64.b64encode(sha256(style.encode()).digest()).decode() in policy, "else a browser ignores it"
    assert "style=" not in response.text


async def test_a_model_is_written_for_other_tools_if_the_learner_has_the_extra(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watch(client, run := await submit(client))
    sizes = {to: len((await client.get(f"/v1/runs/{run}/export?to={to}")).raise_for_status().content) for to in FORMS}
    assert all(size > 1_000 for size in sizes.values()), sizes
    assert (await client.get(f"/v1/runs/{run}/export?to=pickle")).status_code == 422
    monkeypatch.setattr(extras, "_is_installed", lambda _: False)
    refused = await client.get(f"/v1/runs/{run}/export?to=onnx")
    assert refused.status_code == 409
    assert "an ONNX file needs pip install 'parley-learning[export]' where it runs; or download" in refused.text
    (listed,) = [party for party in (await client.get("/v1/parties?within=5")).json() if party["name"] == "party-1"]
    assert (listed["awaited"], listed["problem"]) == (False, None)
    assert listed["as_of"]
