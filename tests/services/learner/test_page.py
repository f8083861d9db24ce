"""The learner's page for people."""

from __future__ import annotations

import re

import httpx


async def test_the_page_is_for_everybody_and_holds_no_data(client: httpx.AsyncClient) -> None:
    client.headers.pop("authorization")
    response = await client.get("/")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert response.headers["cache-control"] == "no-store"
    assert "party-1" not in response.text


async def test_the_page_runs_its_own_script_and_loads_nothing(client: httpx.AsyncClient) -> None:
    first, second = await client.get("/"), await client.get("/")
    policy = first.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    (nonce,) = set(re.findall(r'nonce="([^"]+)"', first.text))
    assert policy.count(f"'nonce-{nonce}'") == 2
    assert nonce not in second.text
    assert re.findall(r'(?:src|href)="(?!data:,)', first.text) == []
    assert re.findall(r"https?://|@import|url\(", first.text) == []
    assert "innerHTML" not in first.text  # whatever a party says is text, never markup


async def test_the_page_reads_what_the_learner_answers(client: httpx.AsyncClient) -> None:
    """What the script takes of a list and of a run is in the document."""
    script = (await client.get("/")).text
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    assert set(re.findall(r"\bpage\.(\w+)", script)) == set(schemas["RunPage"]["properties"]) == {"runs", "next"}
    taken = set(re.findall(r"\b(?:run|terms)\.(\w+)", script))
    print(f"the page takes {len(taken)} fields of a run: {sorted(taken)}")
    assert taken <= set(schemas["RunView"]["properties"])
