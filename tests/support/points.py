"""What tests of the figures' runner measure."""

from __future__ import annotations

from pathlib import Path
from threading import Event

from threadpoolctl import threadpool_info


def doubled(log: str, x: float) -> list[float]:
    """Twice x, once it is written down that it was asked for."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{x:g}\n")
    return [2 * x]


def waiting(fifo: str) -> None:
    """Say on a named pipe that this began, then keep it open for good."""
    with Path(fifo).open("w", encoding="utf-8") as file:
        file.write("began\n")
        file.flush()
        Event().wait()


def failing() -> None:
    """Nothing to measure."""
    raise ArithmeticError("nothing to measure")


def threads(n: int) -> int:
    """The most threads that a library may use; ``n`` tells points apart."""
    import numpy  # noqa: F401, ICN001, PLC0415 -- as a library that a point loads
    import scipy.linalg  # noqa: F401, PLC0415
    import sklearn.linear_model  # noqa: F401, PLC0415

    return max(int(library["num_threads"]) for library in threadpool_info())
