"""Take from the packages of an image what no service runs: ``python slim_packages.py SITE_PACKAGES``.

What goes: tests, headers and sources of extensions, parts of packages that nothing here imports, the symbols of shared
libraries, and all but one of files with the same bytes, which the others then link to. `warm_up.py` imports everything
afterwards, so that a build fails where too much was taken.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

_UNUSED = (
    "**/tests",
    "**/_*_tests.*.so",
    "**/_test_*.so",
    "absl/testing",
    "dp_accounting/**/*_test.py",
    "duckdb/experimental",
    "joblib/test",
    "numpy/_core/_simd*",  # tests' too
    "numpy/distutils",
    "pyarrow/include",
    "pygments/lexers/[!_]*.py",  # the colours of programming languages
    "pygments/lexers/_*_builtins.py",
    "pyarrow/src",
    "pyarrow/*flight*",  # remote procedure calls
    "pyarrow/*s3*",  # a store in a cloud
    "pyarrow/_substrait*",
    "pyarrow/*orc*",
    "pyarrow/*azure*",
    "pyarrow/*gcsfs*",
    "pyarrow/*hdfs*",
    "scipy/cluster",
    "scipy/datasets",
    "scipy/differentiate",
    "scipy/fftpack",
    "scipy/io/_fast_matrix_market/*.so",
    "scipy/odr",
    "scipy/stats/_unuran",
    "sklearn/datasets/images/*.jpg",
)
_SOURCES = {".a", ".c", ".cc", ".cpp", ".f90", ".h", ".hpp", ".pxd", ".pxi", ".pyi", ".pyx"}


def slim_packages(packages: Path) -> int:
    """Remove it from a folder ``site-packages``; how many bytes went. Needs ``strip`` of the binutils."""
    before = _size(packages)
    for pattern in _UNUSED:
        for match in list(packages.glob(pattern)):
            shutil.rmtree(match) if match.is_dir() else match.unlink(missing_ok=True)
    for file in [file for file in packages.rglob("*") if file.is_file()]:
        if file.suffix in _SOURCES:
            file.unlink()
        elif ".so" in file.suffixes and file.parent.suffix != ".libs":  # whose alignment `strip` breaks
            subprocess.run(["strip", "--strip-unneeded", file], check=True)  # noqa: S603, S607 -- of the build's image
    _link_twins(packages)
    return before - _size(packages)


def _link_twins(packages: Path) -> None:
    """Replace shared libraries of equal bytes by one file and symbolic links to it."""
    libraries: dict[str, Path] = {}
    for library in sorted(packages.rglob("*.so*")):
        first = libraries.setdefault(hashlib.sha256(library.read_bytes()).hexdigest(), library)
        if first != library:
            library.unlink()
            library.symlink_to(os.path.relpath(first, library.parent))


def _size(folder: Path) -> int:
    return sum(os.lstat(file).st_size for file in folder.rglob("*"))


if __name__ == "__main__":
    print(f"{slim_packages(Path(sys.argv[1])) / 1e6:.0f} MB of packages removed")
