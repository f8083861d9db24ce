"""Build a release from the tag of the checked-out commit: source archive, wheel, images, and their digests.

    python -m scripts.make_release [--out dist] [--no-images]

It refuses a tree with changes, a commit without a tag ``v1.2.3``, fragments in changelog.d that are not in CHANGELOG.md
yet, and a version that docs/upgrading.md does not mention. It builds from a fresh clone of the tag, so that no other
file of this folder gets in. Times in the archives are those of the commit: anyone who builds the tag with the same
locked packages gets the same bytes. Images are built where a container engine answers; BASE names another base than the
Dockerfile's. Nothing is published.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
_IMAGES = ("party", "learner")
_RELEASE_TAG = re.compile(r"v(\d+\.\d+\.\d+)")
_UNRELEASED = re.compile(r"^## \[.*unreleased", re.IGNORECASE | re.MULTILINE)


def ready_version(root: Path) -> str:
    """The version that the checked-out commit of a repository releases; raises SystemExit with all that is missing."""
    tags = map(_RELEASE_TAG.fullmatch, _output_of(root, "git", "tag", "--points-at", "HEAD").split())
    versions = [match[1] for match in tags if match]
    missing = []
    if _output_of(root, "git", "status", "--porcelain"):
        missing.append("the tree has changes: commit them, or build in a clone")
    if len(versions) != 1:
        missing.append(
            f"this commit must have one tag such as v1.2.3; it has {len(versions)} (for a wheel to try it: make wheel)"
        )
    if fragments := sorted(
        fragment.name for fragment in (root / "changelog.d").glob("*.md") if fragment.name != "README.md"
    ):
        missing.append(f"changelog.d has unreleased fragments, {', '.join(fragments)}: see docs/upgrading.md")
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if _UNRELEASED.search(changes):
        missing.append("CHANGELOG.md has changes that are unreleased: give them the version's heading, with its date")
    notes = (root / "docs" / "upgrading.md").read_text(encoding="utf-8")
    for version in versions:
        if f"\n## [{version}]" not in changes:
            missing.append(f"CHANGELOG.md has no heading [{version}]")
        if f"\n## {version}\n" not in notes:
            missing.append(f"docs/upgrading.md has no note on {version}")
    if missing:
        raise SystemExit("not ready for a release:\n" + "\n".join(f"- {fragment}" for fragment in missing))
    return versions[0]


def build_packages(source: Path, out: Path) -> list[Path]:
    """The source archive of a clone, and the wheel that is built of it; raises CalledProcessError."""
    epoch = _output_of(source, "git", "log", "-1", "--format=%ct").strip()
    uv = [sys.executable, "-m", "uv", "build", "--quiet", "--offline", "--no-build-isolation", "--no-create-gitignore"]
    build = [*uv, "--python", sys.executable, "--out-dir", str(out)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": epoch}
    subprocess.run([*build, "--sdist", str(source)], check=True, env=environment)  # noqa: S603 -- words of our own
    (archive,) = out.glob("*.tar.gz")
    _pack_reproducibly(archive, int(epoch))
    subprocess.run([*build, "--wheel", str(archive)], check=True, env=environment)  # noqa: S603 -- words of our own
    return [archive, *out.glob("*.whl")]


def _pack_reproducibly(archive: Path, epoch: int) -> None:
    """Pack an archive again, without the time and the user of its packing."""
    packed = archive.with_suffix(".packing")
    with (
        tarfile.open(archive) as old,
        packed.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as new,
    ):
        for member in sorted(old.getmembers(), key=lambda entry: entry.name):
            may_run = member.isdir() or member.mode & 0o100
            fixed = {"mtime": epoch, "mode": 0o755 if may_run else 0o644, "uid": 0, "gid": 0, "uname": "", "gname": ""}
            plain = member.replace(**fixed)  # type: ignore[arg-type]  # each is of its own type
            plain.pax_headers = {}  # these repeat times, to the nanosecond
            new.addfile(plain, old.extractfile(member) if member.isfile() else None)
    packed.replace(archive)


def build_images(source: Path, version: str) -> Iterator[str]:
    """Build the images of a clone: each one's digest and name; raises CalledProcessError."""
    base = ["--build-arg", f"BASE={os.environ['BASE']}"] if "BASE" in os.environ else []
    for kind in _IMAGES:
        name = f"parley-{kind}:{version}"
        words = ["--target", kind, "--build-arg", f"VERSION={version}", *base, "--tag", name]
        subprocess.run(["docker", "build", "--quiet", *words, str(source)], check=True, stdout=subprocess.DEVNULL)  # noqa: S603, S607
        yield f"{_output_of(source, 'docker', 'image', 'inspect', '--format', '{{.Id}}', name).strip()}  {name}"


def _has_engine() -> bool:
    """Whether a container engine answers."""
    docker = shutil.which("docker")
    return docker is not None and not subprocess.run([docker, "info"], capture_output=True, check=False).returncode  # noqa: S603


def _output_of(folder: Path, *command: str) -> str:
    """The output of a command in a folder; raises CalledProcessError."""
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603


def main() -> None:
    """Build the release, and print the digests, which the file DIGESTS also holds."""
    parser = argparse.ArgumentParser(description="Build the release of the commit that is checked out.")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository; default: this one")
    parser.add_argument("--out", type=Path, help="a folder that is empty or not there; default: dist of the repository")
    parser.add_argument("--no-images", action="store_true", help="build packages alone")
    options = parser.parse_args()
    root: Path = options.root.resolve()
    version = ready_version(root)
    out: Path = (options.out or root / "dist").resolve()
    if out.exists() and any(out.iterdir()):
        raise SystemExit(f"{out} is not empty")
    with TemporaryDirectory() as folder:
        source = Path(folder) / f"parley-{version}"
        clone = ["git", "clone", "--quiet", "-c", "advice.detachedHead=false", "--branch", f"v{version}"]
        _output_of(root, *clone, str(root), str(source))
        packages = build_packages(source, out)
        lines = [f"sha256:{hashlib.sha256(package.read_bytes()).hexdigest()}  {package.name}" for package in packages]
        if not options.no_images and _has_engine():
            lines += build_images(source, version)
        elif not options.no_images:
            print("no container engine answers: no images are built", file=sys.stderr)
    digests = "".join(f"{line}\n" for line in lines)
    (out / "DIGESTS").write_text(digests, encoding="utf-8")
    print(digests, end="")


if __name__ == "__main__":
    main()
