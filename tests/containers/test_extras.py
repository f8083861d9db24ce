"""A party's image reads tables of PostgreSQL where it was built to, and carries nothing for it otherwise."""

from __future__ import annotations

import os

from tests.support.containers import docker, image, output

BUILD_SECONDS = 1200
FOUND = "from importlib.util import find_spec; print(find_spec('adbc_driver_postgresql') is not None)"
READS = "import adbc_driver_postgresql.dbapi, common.files.postgres_tables; print('reads')"


def python(name: str, code: str) -> str:
    return docker("run", "--rm", "--network", "none", "--entrypoint", "python", name, "-c", code).strip()


def test_the_driver_is_in_an_image_that_is_built_to_have_it(images: None) -> None:
    base = ["--build-arg", f"BASE={os.environ['BASE']}"] if "BASE" in os.environ else []
    name = f"{image('party')}-postgres"
    build = ["docker", "build", "-q", "--target", "party", "--build-arg", "POSTGRES=1", *base, "-t", name, "."]
    output(build, BUILD_SECONDS, {})
    try:
        assert python(name, READS) == "reads"
        assert python(image("party"), FOUND) == "False"
    finally:
        docker("rmi", name)
