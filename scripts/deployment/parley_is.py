#!/opt/parley/bin/python -IS
"""Check a container's health by the age of a file that its service touches: ``parley-is alive``, ``parley-is ready``.

It imports next to nothing, and takes a hundredth of a second of a processor. The exit status is 0 or 1.
"""

import os
import sys
import time

FRESH = 35.0  # seconds; the service touches its files every ten


def main(state: str, folder: str) -> int:
    """Return 0 if the service has said within the last 35 seconds that it is in this state, 1 otherwise."""
    try:
        age = time.time() - os.stat(f"{folder}/parley-{state}").st_mtime  # noqa: PTH116 -- pathlib takes longer than all
    except OSError:
        print(f"not {state}")
        return 1
    print(f"{state} {age:.0f} s ago")
    return int(age > FRESH)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "/tmp"))  # noqa: S108 -- the container's own
