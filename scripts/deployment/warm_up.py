"""Import all that a service may ever import: ``python warm_up.py parley.common parley.party``, as its image is built.

A container's file system is read-only, so what is not compiled now is compiled again at each start; and what cannot be
imported fails the build, not a run.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pkgutil import walk_packages

_EXTRAS = {
    "parley.common.service.spans": "opentelemetry.sdk",
    "parley.learner.models.onnx_graph": "onnx",
    "parley.learner.models.sklearn_pipeline": "skops",
}
"""Modules that need a package of an extra, which an image may lack."""

_LAZY = (
    "dp_accounting.pld.privacy_loss_distribution",
    "pyarrow.compute",
    "pyarrow.csv",
    "pyarrow.parquet",
    "sklearn.datasets",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "sklearn.naive_bayes",
    "sklearn.neighbors",
    "sklearn.svm",
    "sklearn.tree",
    "uvloop",
)
"""The modules that functions import when they are called."""


def warm_up(packages: list[str]) -> int:
    """Import every module of these packages and what these import; how many modules are loaded then."""
    for package in packages:
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            if module.name not in _EXTRAS or find_spec(_EXTRAS[module.name]):
                import_module(module.name)
    for name in _LAZY:
        import_module(name)
    return len(sys.modules)


if __name__ == "__main__":
    print(f"{warm_up(sys.argv[1:])} modules compiled")
