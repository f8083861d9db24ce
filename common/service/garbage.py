"""When Python's collector of cyclic garbage looks at all objects of a service, for which all threads wait.

It takes time with the objects that there are. A run of 70,000 columns has a million of them while it is read, compared
and written, so the collector would look at them again and again just then. So a service tells it when: every half
minute, but not while there are many more objects than there have been; of these they may be the work of a moment.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable

_AFTER = (50_000, 1, 2**31 - 1)
"""New objects before the collector looks at them, not 700: it took most of the time that a large JSON body took. It
looks at them once more, after as many others, and never at all objects by itself."""
_EVERY, _AT_LATEST = 30.0, 600.0  # seconds
_MANY = 2**20  # pieces of memory: the collector looks at what is in them within some 50 ms


class FullCollections:
    """Looks at all objects made from now on, when `tend` finds it time for that."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, count: Callable[[], int] = sys.getallocatedblocks
    ) -> None:
        self._clock, self._count = clock, count
        self._last, self._least = -math.inf, sys.maxsize

    def begin(self) -> None:
        """Take the collector's times over; what there is by now stays, and is not looked at any more."""
        gc.freeze()  # to look through it again and again costs a tenth of a round
        gc.set_threshold(*_AFTER)
        self._last, self._least = self._clock(), self._count()

    def tend(self) -> None:
        """Collect garbage from all objects if it is time for that, and they are not many or have been for long."""
        now, count = self._clock(), self._count()
        self._least = min(self._least, count)
        if now - self._last >= (_EVERY if count < self._least + _MANY else _AT_LATEST):
            gc.collect()
            self._last = self._clock()
