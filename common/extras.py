"""The extras of the distribution, and the error that names the one that is missing.

``pip install parley-learning`` runs a key holder, the client and the commands that ask a learner. Large packages
that few users need come by an extra: ``pip install 'parley-learning[files,query]'``.
"""

from __future__ import annotations

from importlib.util import find_spec

from parley.common.errors import InvalidInputError

EXTRAS = {
    "excel": ("python_calamine",),
    "export": ("onnx", "skops"),
    "files": ("pyarrow",),
    "mlflow": ("mlflow", "pandas"),
    "postgres": ("adbc_driver_manager", "adbc_driver_postgresql"),
    "query": ("duckdb",),
    "sklearn": ("sklearn",),
    "tracing": ("opentelemetry.exporter", "opentelemetry.sdk"),
}
"""The packages that each extra installs, by the names to import them by."""


class MissingExtraError(InvalidInputError, ImportError):
    """A request needs an extra that is not installed; the message says how to install it."""


def require_extra(extra: str, purpose: str, *, instead: str = "") -> None:
    """Raise MissingExtraError unless an extra is installed: ``purpose`` needs it; ``instead`` is another way."""
    if not all(map(_is_installed, EXTRAS[extra])):
        raise _missing(extra, purpose, instead)


def extra_missing(error: ModuleNotFoundError) -> MissingExtraError | None:
    """Return the error for a package of an extra that could not be imported; None for any other package."""
    name = error.name or ""
    for extra, packages in EXTRAS.items():
        if any(f"{name}.".startswith(f"{package}.") for package in packages):
            return _missing(extra, "this command")
    return None


def _missing(extra: str, purpose: str, instead: str = "") -> MissingExtraError:
    remedy = f"; or {instead}" if instead else ""
    return MissingExtraError(f"{purpose} needs pip install 'parley-learning[{extra}]'{remedy}")


def _is_installed(package: str) -> bool:
    """Whether a package can be imported; does not import it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a package around it is missing
        return False
