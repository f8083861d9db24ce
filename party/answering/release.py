"""One round at the party: from a query to the bytes that leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from common.arrays import IntArray
from common.encoding.fixed_point import to_wire
from common.privacy.noise import Noise
from common.protocol.messages import Query

if TYPE_CHECKING:
    from party.ledger.ledger import Compute, Kept
    from party.policy.approval import Terms


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
        integers = terms.algorithm.local(query, prepared, terms.facts, drawn)
        return pack(to_wire(integers, terms.facts.wire_shift)), drawn.kept

    return compute
