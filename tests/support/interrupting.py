"""A process that is killed before it asks the system for its n-th service."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from itertools import count
from types import FrameType
from typing import Any

KILLED, WHOLE, FAILED = 9, 0, 1


def ended_before(step: int, deed: Callable[[], object], calls: Collection[str] = ()) -> int:
    """The exit status of a process that does a deed, and is gone before it asks the system for its n-th service.

    Python says when it asks for one, but not in each statement of a database: ``calls`` are names of functions in C
    that count as well.
    """
    child = os.fork()
    if not child:
        steps = count(1)

        def ask() -> None:
            if next(steps) >= step:
                os._exit(KILLED)

        def see(_: FrameType, event: str, function: Any) -> None:  # noqa: ANN401 -- of whatever kind
            if event == "c_call" and function.__name__ in calls:
                ask()

        sys.addaudithook(lambda _event, _arguments: ask())
        if calls:
            sys.setprofile(see)
        try:
            deed()
        except BaseException:  # noqa: BLE001 -- the child must not go on with the tests
            os._exit(FAILED)
        os._exit(WHOLE)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
