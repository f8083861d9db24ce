"""The bills of materials that images carry: every package of a lock, with the lock's hashes, in valid CycloneDX."""

from __future__ import annotations

import json
import re

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from scripts.make_sbom import PARTS, lock_of, make_sbom, sbom_of
from tests.support.nightly import NIGHTLY

LOCKED = re.compile(r"^([a-z0-9._-]+)==(\S+)(?:.*\\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)

LEAST = {
    "runtime": 40,
    "excel": 0,
    "export": 10,
    "files": 0,
    "mlflow": 20,
    "postgres": 2,
    "query": 0,
    "sklearn": 5,
    "tracing": 10,
}


def locked(text: str) -> dict[tuple[str, str], set[str]]:
    """Packages of a lock and their hashes."""
    return {(found[1], found[2]): set(re.findall("sha256:([0-9a-f]+)", found[0])) for found in LOCKED.finditer(text)}


@pytest.mark.parametrize("part", PARTS)
def test_each_locked_package_is_in_it_with_its_hashes(part: str) -> None:
    listed = {
        (component["name"], component["version"]): {told["content"] for told in component["hashes"]}
        for component in json.loads(sbom_of(part).read_text())["components"]
    }
    text = lock_of(part).read_text()
    assert len(locked(text)) == text.count("==") - text.count(" == ") > LEAST[part]
    assert listed == locked(text), "make sbom"


@pytest.mark.parametrize("part", PARTS)
def test_it_is_valid_and_says_where_nothing_was_found(part: str) -> None:
    text = sbom_of(part).read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert re.findall(r"https?://[^/\"]+", text) == ["http://cyclonedx.org"]


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS if NIGHTLY else PARTS[:2])
def test_it_is_made_again_the_same(part: str) -> None:
    made, kept = json.loads(make_sbom(lock_of(part))), json.loads(sbom_of(part).read_text())
    assert made["components"] == kept["components"]


def test_what_is_locked_apart_is_of_one_version() -> None:
    every = locked((lock_of("runtime").parent / "requirements.lock").read_text())
    parts = {part: locked(lock_of(part).read_text()) for part in PARTS}
    assert all(set(found) <= set(every) for found in parts.values()), "make lock"
    assert {name for name, _ in parts["postgres"]} == {
        "adbc-driver-manager",
        "adbc-driver-postgresql",
        "typing-extensions",
    }
