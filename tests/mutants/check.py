"""How many mutants the tests killed, by module, after `mutmut run`.

Fails where fewer than 95 % of those tried were killed, where `argued.toml` excuses one that was killed or does not
exist, or where there was none to try. Excused ones count neither as killed nor as tried.
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
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
UNTRIED = "not checked"

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


@dataclass(frozen=True, slots=True)
class Module:
    """How the mutants of one file fared; ``stale`` are its excuses that nothing needs, known once all were tried."""

    path: str
    killed: int
    untried: int
    excused: int
    alive: dict[str, Change]
    stale: set[Change]

    @property
    def tried(self) -> int:
        """How many were tried and not excused."""
        return self.killed + len(self.alive)


def look(path: str, excuses: set[Change]) -> Module:
    """How the mutants of a file fared."""
    data = SourceFileMutationData(path=path)
    data.load()
    fates = {mutant: status_by_exit_code[code] for mutant, code in data.exit_code_by_key.items()}
    changes = {mutant: change(path, mutant) for mutant, fate in fates.items() if fate not in {*KILLED, UNTRIED}}
    alive = {mutant: what for mutant, what in changes.items() if what not in excuses}
    untried = sum(fate == UNTRIED for fate in fates.values())
    killed = len(fates) - untried - len(changes)
    stale = {excuse for excuse in excuses if excuse[0] == path} - set(changes.values())
    return Module(path, killed, untried, len(changes) - len(alive), alive, set() if untried else stale)


def main() -> int:
    """Print each survivor and each module's share; the exit code."""
    excuses = argued()
    modules = [look(str(path), excuses) for path in sorted(walk_mutatable_files())]
    for mutant, (_, function, was, becomes) in sorted(each for module in modules for each in module.alive.items()):
        print(f"{mutant}: {function} survives\n  {was}\n  as {becomes}")
    for path, function, was, becomes in sorted(each for module in modules for each in module.stale):
        print(f"argued.toml: {path}, {function}: {was!r} as {becomes!r} was killed, or is no mutant")
    for each in modules:
        print(f"{each.path}: {each.killed} of {each.tried} killed, {each.excused} excused, {each.untried} not tried")
    killed, tried = (sum(counts) for counts in zip(*((each.killed, each.tried) for each in modules), strict=True))
    share = killed / max(tried, 1)
    print(f"killed: {killed} of {tried}, {share:.1%}; at least {LEAST:.0%} are wanted")
    return int(share < LEAST or any(module.stale for module in modules))


if __name__ == "__main__":
    sys.exit(main())
