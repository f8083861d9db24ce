"""How many mutants the tests killed, by module, after `mutmut run`.

Fails where fewer than 95 % of those tried were killed, where `argued.toml` excuses one that was killed or does not
exist, or where there was none to try. Excused ones count neither as killed nor as tried.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

LEAST = 0.95
ARGUED = Path(__file__).parent / "argued.toml"
KILLED = ("killed", "timeout", "segfault", "caught by type check")

Change = tuple[str, str, str, str]
"""A module's file, a function or method in it, the lines that a mutant takes away, and those it puts there."""


def change(path: str, mutant: str) -> Change:
    """What a mutant changes; white space counts as one blank."""
    lines = get_diff_for_mutant(mutant, path=path).splitlines()[2:]  # past the names of two files
    was, becomes = (" ".join(" ".join(line[1:] for line in lines if line[0] == sign).split()) for sign in "-+")
    function, owner = orig_function_and_class_names_from_key(mutant)
    return path, f"{owner}.{function}" if owner else function, was, becomes


def argued() -> set[Change]:
    """The survivors that are excused, from `argued.toml`."""
    entries: list[dict[str, Any]] = tomllib.loads(ARGUED.read_text())["argued"]
    return {
        (entry["file"], entry["function"], entry["was"], becomes) for entry in entries for becomes in entry["becomes"]
    }


def main() -> int:
    """Print each survivor and each module's share; the exit code."""
    excuses, stale, all_killed, all_tried, short = argued(), set[Change](), 0, 0, []
    for path in map(str, walk_mutatable_files()):
        data = SourceFileMutationData(path=path)
        data.load()
        counts = Counter(status_by_exit_code[code] for code in data.exit_code_by_key.values())
        killed, tried = sum(counts[status] for status in KILLED), counts.total() - counts["not checked"]
        survivors = [
            mutant
            for mutant, code in data.exit_code_by_key.items()
            if status_by_exit_code[code] not in {*KILLED, "not checked"}
        ]
        changes = {mutant: change(path, mutant) for mutant in survivors}
        excused = [mutant for mutant in survivors if changes[mutant] in excuses]
        if tried == counts.total():
            stale |= {each for each in excuses if each[0] == path} - set(changes.values())
        for mutant in sorted(set(survivors) - set(excused)):
            _, function, was, becomes = changes[mutant]
            print(f"{mutant}: {function} survives\n  {was}\n  as {becomes}")
        tried -= len(excused)
        all_killed, all_tried = all_killed + killed, all_tried + tried
        short.append(f"{path}: {killed} of {tried} killed, {len(excused)} excused, {counts['not checked']} not tried")
    print(*short, sep="\n")
    for path, function, was, becomes in sorted(stale):
        print(f"argued.toml: {path}, {function}: {was!r} as {becomes!r} was killed, or is no mutant")
    share = all_killed / max(all_tried, 1)
    print(f"killed: {all_killed} of {all_tried}, {share:.1%}; at least {LEAST:.0%} are wanted")
    return int(share < LEAST or bool(stale))


if __name__ == "__main__":
    sys.exit(main())
