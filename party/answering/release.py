"""One round at the party: from a query to the bytes that leave.

Whether work on the data ends in an error may tell of them. So what is refused is refused by public numbers, before any
work; and of an error that nobody foresaw nothing is told but that there was one, which is charged (`Ledger.fail`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt
import structlog

from parley.common.arrays import IntArray
from parley.common.encoding.fixed_point import to_wire
from parley.common.errors import ParleyError, WorkFailedError
from parley.common.privacy.noise import Noise
from parley.common.protocol.messages import Query
from parley.common.service.logs import place_of

if TYPE_CHECKING:
    from parley.party.ledger.ledger import Compute, Kept
    from parley.party.policy.approval import Terms


class KeepingNoise(Noise, Protocol):
    """Noise that shows its one-time draws, so that they can be stored with the answer."""

    @property
    def kept(self) -> Mapping[str, npt.NDArray[Any]]:
        """All one-time noise by name."""


NoiseFactory = Callable[["Kept | None"], KeepingNoise]
"""Makes a round's noise from the one-time noise that earlier rounds of the run kept."""


Pack = Callable[[IntArray], bytes]
"""Makes a body of an answer's integers as the wire has them: ``.npy``, or a contribution to a secure sum."""


def answering(terms: Terms, query: Query, prepared: Any, noise: NoiseFactory, pack: Pack) -> Compute:  # noqa: ANN401
    """How to answer a query that the terms allow, from what was prepared for them: a body, and the noise to keep."""

    def compute(kept: Kept) -> tuple[bytes, Kept]:
        drawn = noise(kept)
        with work_on_data():
            integers = to_wire(terms.algorithm.local(query, prepared, terms.facts, drawn), terms.facts.wire_shift)
        return pack(integers), drawn.kept

    return compute


@contextmanager
def work_on_data() -> Iterator[None]:
    """Raise WorkFailedError in the place of an error that nobody foresaw, of which the log tells the type and place."""
    try:
        yield
    except ParleyError:
        raise
    except Exception as error:  # noqa: BLE001 -- whatever it is, it may tell of the data
        structlog.get_logger().error("failed", error=type(error).__name__, place=place_of(error))
        raise WorkFailedError from None
