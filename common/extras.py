"""The extras of the distribution, and the error that names the one that is missing.

``pip install parley-learning`` runs a key holder, the client and the commands that ask a learner. What few of its users
need, and is large, comes by an extra: ``pip install 'parley-learning[files,query]'``.
"""

from __future__ import annotations

from importlib.util import find_spec

from parley.common.errors import InvalidInputError

EXTRAS = {
    "excel": ("python_calamine",),
    "export": ("onnx", "skops"),
    "files": ("pyarrow",),
    "postgres": ("adbc_driver_manager", "adbc_driver_postgresql"),
    "query": ("duckdb",),
    "sklearn": ("sklearn",),
    "tracing": ("opentelemetry.exporter", "opentelemetry.sdk"),
}
"""The packages that each extra installs, by the names to import them by."""


class MissingExtraError(InvalidInputError, ImportError):
    """What is asked needs an extra that is not installed; the message says how to install it."""


def require_extra(extra: str, what: str, *, instead: str = "") -> None:
    """Raise MissingExtraError unless an extra is installed: ``what`` needs it; ``instead`` is what else would do."""
    if not all(map(_is_installed, EXTRAS[extra])):
        raise _missing(extra, what, instead)


def extra_missing(error: ModuleNotFoundError) -> MissingExtraError | None:
    """The error to raise for a package of an extra that could not be imported; None for any other."""
    name = error.name or ""
    for extra, packages in EXTRAS.items():
        if any(f"{name}.".startswith(f"{package}.") for package in packages):
            return _missing(extra, "this command")
    return None


def _missing(extra: str, what: str, instead: str = "") -> MissingExtraError:
    remedy = f"; or {instead}" if instead else ""
    return MissingExtraError(f"{what} needs pip install 'parley-learning[{extra}]'{remedy}")


def _is_installed(package: str) -> bool:
    """Whether a package can be imported; it is not."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # what the package is in is missing
        return False
