"""The bill of materials that the images carry: every locked package, with the lock's hashes, in valid CycloneDX."""

from __future__ import annotations

import json
import re

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from scripts.make_sbom import LOCK, SBOM, make_sbom

LOCKED = re.compile(r"^([a-z0-9._-]+)==(\S+)(?:.*\\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def test_each_locked_package_is_in_it_with_its_hashes() -> None:
    listed = {
        (each["name"], each["version"]): {told["content"] for told in each["hashes"]}
        for each in json.loads(SBOM.read_text())["components"]
    }
    text = LOCK.read_text()
    locked = {(found[1], found[2]): set(re.findall("sha256:([0-9a-f]+)", found[0])) for found in LOCKED.finditer(text)}
    assert len(locked) == text.count("==") - text.count(" == ") > 50
    assert listed == locked, "make sbom"


def test_it_is_valid_and_says_where_nothing_was_found() -> None:
    text = SBOM.read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert re.findall(r"https?://[^/\"]+", text) == ["http://cyclonedx.org"]


def test_it_is_made_anew_the_same() -> None:
    made, kept = json.loads(make_sbom(LOCK)), json.loads(SBOM.read_text())
    assert made["components"] == kept["components"]


def test_what_an_image_may_have_besides_is_locked_alike() -> None:
    every = {(found[1], found[2]) for found in LOCKED.finditer((LOCK.parent / "requirements.lock").read_text())}
    besides = {
        (found[1], found[2]) for found in LOCKED.finditer((LOCK.parent / "requirements-postgres.lock").read_text())
    }
    assert {name for name, _ in besides} == {"adbc-driver-manager", "adbc-driver-postgresql", "typing-extensions"}
    assert besides <= every, "make lock"
