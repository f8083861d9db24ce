"""Images have what they were built to have, with bills of materials for it, and nothing of it otherwise."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.support.containers import docker, image, output

BUILD_SECONDS = 1200
PACKAGES = {
    "excel": "python_calamine",
    "export": "onnx",
    "postgres": "adbc_driver_postgresql",
    "tracing": "opentelemetry.sdk",
}
EVERY = ("runtime", "files", "query", "sklearn")
NEEDS = (
    "adbc_driver_postgresql.dbapi, parley.common.files.databases, parley.common.service.spans, "
    "parley.learner.models.onnx_graph, parley.learner.models.sklearn_pipeline"
)
BILLS = """
import json, pathlib
bills = pathlib.Path("/opt/parley/share/parley").iterdir()
print(json.dumps({bill.name: len(json.loads(bill.read_bytes())["components"]) for bill in bills}))
"""
FOUND = f"""
from importlib.util import find_spec
print([name for name in {list(PACKAGES.values())} if find_spec(name)])
"""


def python(name: str, code: str) -> str:
    return docker("run", "--rm", "--network", "none", "--entrypoint", "python", name, "-c", code).strip()


@pytest.fixture
def with_extras(images: None) -> Iterator[str]:
    """A learner's image that has all extras, which a party's gets by the same lines of the Dockerfile."""
    base = ["--build-arg", f"BASE={os.environ['BASE']}"] if "BASE" in os.environ else []
    name, extras = f"{image('learner')}-extras", f"EXTRAS={' '.join(PACKAGES)}"
    build = ["docker", "build", "-q", "--target", "learner", "--build-arg", extras, *base, "-t", name, "."]
    output(build, BUILD_SECONDS, {})
    yield name
    docker("rmi", name)


def test_extras_are_in_an_image_that_is_built_to_have_them(with_extras: str) -> None:
    assert python(with_extras, f"import {NEEDS}; print('works')") == "works"
    bills = json.loads(python(with_extras, BILLS))
    assert set(bills) == {f"sbom-{part}.cdx.json" for part in (*EVERY, *PACKAGES)}
    assert all(bills.values())


@pytest.mark.parametrize("service", ["party", "learner"])
def test_others_have_none_of_them(images: None, service: str) -> None:
    assert python(image(service), FOUND) == "[]"
    assert set(json.loads(python(image(service), BILLS))) == {f"sbom-{part}.cdx.json" for part in EVERY}
    assert python(image(service), "import duckdb, pyarrow, sklearn; print('works')") == "works"
