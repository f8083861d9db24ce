"""The bill of materials of the images, in CycloneDX: every package of requirements-runtime.lock, with its hashes.

    python scripts/make_sbom.py [--out deployments/sbom.cdx.json]

`cyclonedx-py` reads the lock. What it adds of the place where packages were found is left out: the lock names none, and
a hash says which file is meant. An image has the file as /usr/share/parley/sbom.cdx.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK, SBOM = ROOT / "requirements-runtime.lock", ROOT / "deployments" / "sbom.cdx.json"


def make_sbom(lock: Path) -> str:
    """The document's text, the same for the same lock; raises CalledProcessError."""
    tool = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", "--output-reproducible"]
    words = ["--sv", "1.6", "--pyproject", str(ROOT / "pyproject.toml"), str(lock)]
    told = subprocess.run([*tool, *words], check=True, capture_output=True, text=True)  # noqa: S603 -- words of our own
    document: dict[str, Any] = json.loads(told.stdout)
    for component in document["components"]:
        del component["description"]  # the line of the lock
        found = component.pop("externalReferences", [])
        component["hashes"] = [each for reference in found for each in reference["hashes"]]
    for part in document["metadata"].pop("tools")["components"]:
        document["metadata"].setdefault("tools", {"components": []})["components"].append(
            {name: part[name] for name in ("type", "name", "version")}
        )
    return json.dumps(document, indent=1) + "\n"


def main() -> None:
    """Write the document."""
    parser = argparse.ArgumentParser(description="Make the images' bill of materials.")
    parser.add_argument("--out", type=Path, default=SBOM, help="default: %(default)s")
    out: Path = parser.parse_args().out
    out.write_text(make_sbom(LOCK), encoding="utf-8")
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
