"""Make the mutants, and name those that `make mutants` tries: those that match, or some of each area by chance."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
from pathlib import Path

from mutmut.__main__ import create_mutants
from mutmut.utils.file_utils import copy_src_dir, walk_mutatable_files

from tests.mutants.check import LEAST, area_of, exit_codes, is_among


def main() -> None:
    """Print the mutants' names: none mean all. The seed is printed with the errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="how many of each area; all, if 0")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("names", nargs="*", help="mutants, or patterns with *; all if there are none")
    choices = parser.parse_args()
    if not choices.sample:
        print(*choices.names)
        return
    Path("mutants").mkdir(exist_ok=True)
    with contextlib.redirect_stdout(sys.stderr):
        copy_src_dir()
        create_mutants(os.cpu_count() or 1)
    mutants: dict[str, list[str]] = {area: [] for area in LEAST}
    for path in sorted(walk_mutatable_files()):
        mutants[area_of(str(path))] += [name for name in exit_codes(path) if is_among(name, choices.names)]
    chance = random.Random(choices.seed)
    for names in mutants.values():
        print(*chance.sample(names, min(choices.sample, len(names))))
    print(f"SAMPLE={choices.sample} SEED={choices.seed}", file=sys.stderr)


if __name__ == "__main__":
    main()
