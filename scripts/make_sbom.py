"""The bills of materials of the images, in CycloneDX: every package of a lock, with its hashes.

    python -m scripts.make_sbom [--out deployments]

One is of requirements-runtime.lock, and one of each extra that an image has or may be built with.
`cyclonedx-py` reads the locks. What it adds of the place where packages were found is left out: a lock names none, and
a hash says which file is meant. An image has the bills of what it holds in /opt/parley/share/parley.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PARTS = ("runtime", "excel", "export", "files", "mlflow", "postgres", "query", "sklearn", "tracing")


def lock_of(part: str) -> Path:
    """The lock file of what every image has, ``runtime``, or of an extra."""
    return ROOT / f"requirements-{part}.lock"


def sbom_of(part: str, folder: Path = ROOT / "deployments") -> Path:
    """Return the path of a part's bill of materials."""
    return folder / f"sbom-{part}.cdx.json"


def make_sbom(lock: Path) -> str:
    """The document's text, the same for the same lock; raises CalledProcessError."""
    tool = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", "--output-reproducible"]
    words = ["--sv", "1.6", "--pyproject", str(ROOT / "pyproject.toml"), str(lock)]
    output = subprocess.run([*tool, *words], check=True, capture_output=True, text=True)  # noqa: S603 -- words of our own
    document: dict[str, Any] = json.loads(output.stdout)
    for component in document["components"]:
        del component["description"]  # the line of the lock
        references = component.pop("externalReferences", [])
        component["hashes"] = [digest for reference in references for digest in reference["hashes"]]
    for part in document["metadata"].pop("tools")["components"]:
        document["metadata"].setdefault("tools", {"components": []})["components"].append(
            {name: part[name] for name in ("type", "name", "version")}
        )
    return json.dumps(document, indent=1) + "\n"


def main() -> None:
    """Write the bills of materials of all parts."""
    parser = argparse.ArgumentParser(description="Make the images' bills of materials.")
    parser.add_argument("--out", type=Path, default=ROOT / "deployments", help="default: %(default)s")
    folder: Path = parser.parse_args().out
    for part in PARTS:
        path = sbom_of(part, folder)
        path.write_text(make_sbom(lock_of(part)), encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
