"""Maps of a study's columns into the unit ball: a projection to fewer, random features of a kernel, or both in turn.

A map is public and the same for every row, so it costs no privacy. `Projection` is fitted to public rows
(`parley.common.data.auxiliary`) or known otherwise; `RandomFeatures` follow from a seed (Rahimi & Recht, "Random
Features for Large-Scale Kernel Machines", 2007). `parley.common.data.layout` computes them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Annotated, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from parley.common.arrays import FloatArray
from parley.common.strict import Digest, Strict

MOST_NUMBERS = 2**19
"""The most numbers of a projection: 2.7 MiB of a study, which travels with each run."""
_MOST_FREQUENCIES = 2**22
_LONGEST = 1 + 2.0**-16
"""The longest that a component of norm 1 can become by rounding."""


def _check_numbers(text: str) -> str:
    """Raise ValueError unless a text is finite numbers, spelt in the one way."""
    try:
        packed = b64decode(text, validate=True)
    except ValueError:
        packed = b""
    if not packed or len(packed) % 4 or b64encode(packed).decode() != text:
        raise ValueError("must be base64 of float32 numbers")
    if not np.isfinite(np.frombuffer(packed, dtype="<f4")).all():
        raise ValueError("its numbers must be finite")
    return text


Numbers32 = Annotated[
    str,
    Field(max_length=MOST_NUMBERS * 16 // 3 + 4, description="base64 of little-endian float32, row by row"),
    AfterValidator(_check_numbers),
]
"""Numbers as text, compact and exact."""


class Projection(Strict):
    """x in R^m to P (x - mean) / radius in R^k; where that is longer than 1, to the point of the sphere below it.

    x are the study's columns before they are divided, without the intercept: numbers in [-1, 1], 0 or 1 for each value
    of a category. ``mean`` is m numbers in [-1, 1], ``components`` P row by row: k <= m rows of norm at most 1.
    ``auxiliary`` names the public rows that it was fitted to, if it was, by SHA-256 of their file.
    """

    mean: Numbers32
    components: Numbers32
    radius: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    auxiliary: Digest | None = None

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        mean, numbers = numbers_of(self.mean), numbers_of(self.components)
        if len(numbers) % len(mean):
            raise ValueError(f"components have {len(numbers)} numbers, not a multiple of the {len(mean)} of the mean")
        if self.n_outputs > self.n_inputs:
            raise ValueError(f"there are {self.n_outputs} components, more than {self.n_inputs} columns")
        if np.abs(mean).max() > 1:
            raise ValueError("the mean must lie in [-1, 1], as the columns do")
        if (longest := np.linalg.norm(numbers.reshape(-1, len(mean)), axis=1).max()) > _LONGEST:
            raise ValueError(f"components must have norms of at most 1, and one has {longest:g}")
        return self

    @classmethod
    def of(cls, mean: FloatArray, components: FloatArray, radius: float, auxiliary: str | None = None) -> Self:
        """The projection by ``mean`` (m,) and ``components`` (k, m), which are rounded to float32.

        Raises ValueError for shapes that do not fit each other, and for numbers that a projection cannot have.
        """
        if mean.ndim != 1 or components.ndim != 2 or components.shape[1] != len(mean):  # noqa: PLR2004 -- axes
            raise ValueError(f"mean must be (m,) and components (k, m); got {mean.shape} and {components.shape}")
        return cls(mean=_text(mean), components=_text(components), radius=radius, auxiliary=auxiliary)

    @property
    def n_inputs(self) -> int:
        """How many columns a row has, m."""
        return _count(self.mean)

    @property
    def n_outputs(self) -> int:
        """How many numbers become of a row, k."""
        return _count(self.components) // self.n_inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """What these numbers are called."""
        return tuple(f"component {i + 1}" for i in range(self.n_outputs))

    def check(self, n_inputs: int) -> None:
        """Raise ValueError unless it maps rows of so many columns."""
        if self.n_inputs != n_inputs:
            raise ValueError(f"the projection is of {self.n_inputs} columns, and the features make {n_inputs}")


class RandomFeatures(Strict):
    """x to sqrt(2/n) (cos Wx, sin Wx) in R^n, of norm 1; products are about exp(-gamma |x - x'|^2), Gaussian kernels.

    Row by row, W (n/2, m) is sqrt(2 gamma) times standard normal numbers, put on the grid of 2^-20: the inverse of the
    normal distribution function at (r + 1/2) 2^-53, r being the upper 53 bits of what the counter-based generator
    Philox4x64-10 draws whose key is ``seed`` (Salmon et al. 2011; ``numpy.random.Philox(key=seed).random_raw()``).
    Cosine and sine of each frequency have less variance than the paper's cosines with random phases, and their norm
    needs no bound (Sutherland & Schneider 2015).
    """

    n: Annotated[int, Field(ge=2, le=2**14, multiple_of=2, description="how many, an even number")]
    seed: Annotated[int, Field(ge=0, lt=2**53, description="whose W it is; no secret")]
    gamma: Annotated[float, Field(gt=0, le=2**20, description="of the kernel: 1 / (2 bandwidth^2)")]

    @property
    def n_outputs(self) -> int:
        """How many numbers become of a row."""
        return self.n

    @property
    def output_names(self) -> tuple[str, ...]:
        """What these numbers are called."""
        return tuple(f"{name} {i + 1}" for name in ("cosine", "sine") for i in range(self.n // 2))

    def check(self, n_inputs: int) -> None:
        """Raise ValueError where so many columns make W too large."""
        if self.n // 2 * n_inputs > _MOST_FREQUENCIES:
            most = 2 * (_MOST_FREQUENCIES // n_inputs)
            raise ValueError(f"random_features of {n_inputs} columns may be at most {most}, not {self.n}")


RowMap = Projection | RandomFeatures


def _text(numbers: FloatArray) -> str:
    with np.errstate(over="ignore"):  # infinity is refused as such
        return b64encode(np.ascontiguousarray(numbers, dtype="<f4").tobytes()).decode()


def numbers_of(text: Numbers32) -> FloatArray:
    """The numbers (n,) of a text."""
    return np.frombuffer(b64decode(text), dtype="<f4").astype(np.float64)


def _count(text: str) -> int:
    """How many numbers a text holds: four characters are three bytes, but for the ``=`` at the end."""
    return (len(text) * 3 // 4 - text.count("=")) // 4
