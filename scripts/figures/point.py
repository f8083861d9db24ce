"""A point: what one process measures at a time, as a function by its name and arguments in JSON.

    Point.of(accuracies, data="wdbc", parties=5, repeat=100, seed=12)

The function is public in a module of this tree, takes JSON values by keyword (a tuple arrives as a list), draws its
randomness from seeds among them, and returns JSON values. Then the result is the same in any process, and is stored
under `Point.key`, which changes with the arguments and with all that `scripts.figures.sources` counts.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from scripts.figures.sources import LIBRARIES, digest_of_code, digest_of_data


class OtherCodeError(Exception):
    """The process that is to compute a point has other code, libraries or data than the one that asks."""


@dataclass(frozen=True, slots=True)
class Point:
    """A function, ``module:name``, its keyword arguments as JSON, and the folders of ``$PARLEY_DATA`` that it reads.

    ``seconds`` is about how long it takes: those that take long begin first. It does not tell two points apart.
    """

    function: str
    arguments: str
    data: tuple[str, ...] = ()
    seconds: float = field(default=1.0, compare=False)

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        /,
        *data: str,
        about_seconds: float = 1.0,
        **arguments: Any,  # noqa: ANN401
    ) -> Point:
        """A call of a function that reads these folders of data; raises TypeError for what is no JSON."""
        name = f"{function.__module__}:{function.__qualname__}"
        return cls(name, _canonical(arguments), data, about_seconds)

    @property
    def module(self) -> str:
        """The dotted name of the module that has the function."""
        return self.function.partition(":")[0]

    @property
    def specification(self) -> dict[str, Any]:
        """All that the result depends on, as JSON values; raises AbsentError where its data are missing."""
        return {
            "function": self.function,
            "arguments": json.loads(self.arguments),
            "code": digest_of_code(self.module),
            "libraries": LIBRARIES,
            "data": {folder: digest_of_data(folder) for folder in self.data},
        }

    @property
    def key(self) -> str:
        """The SHA-256 of the specification, in hexadecimal; raises AbsentError."""
        return hashlib.sha256(_canonical(self.specification).encode()).hexdigest()

    def compute(self) -> Any:  # noqa: ANN401 -- any JSON value
        """Call the function with the arguments, and return its result."""
        return getattr(import_module(self.module), self.function.partition(":")[2])(**json.loads(self.arguments))


def computed(point: Point, key: str) -> str:
    """A point's result and processor seconds as JSON, for one who knows it by this key; raises OtherCodeError."""
    if point.key != key:
        raise OtherCodeError(f"{point.function}: the code, the libraries or the data differ from those of who asks")
    began = time.process_time()
    result = point.compute()
    return json.dumps({"result": result, "seconds": round(time.process_time() - began, 2)})


def _canonical(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
