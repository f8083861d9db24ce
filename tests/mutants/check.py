"""How many mutants the tests killed, by area, after `mutmut run`: of all that were tried, or of those named.

Fails where fewer of an area's mutants were killed than it wants, where `argued.toml` excuses one that was killed or
does not exist, or where there was none to try. Those excused, and those that change only words for people, count
neither as killed nor as tried.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

LEAST = {"common/client": 0.9, "common/files": 0.9, "common/service": 0.9, "learner": 0.9, "privacy": 0.95}
"""The share that must be killed, by area: a folder, or `privacy` for the modules that pyproject.toml names."""
ARGUED = Path(__file__).parent / "argued.toml"
KILLED = ("killed", "timeout", "segfault", "caught by type check")
UNTRIED = "not checked"
_WORDS = re.compile(r"""(?<!\w)(["'])(?=[^"']*[a-z] [a-z])([^"']*)\1""")
"""A text with words apart, such as a message; names of columns, headers and states have none."""
_SURE = 1.96  # 95 % of a normal law

Change = tuple[str, str, str, str]
"""A module's file, a function or method in it, the lines that a mutant takes away, and those it puts there."""


def area_of(path: str) -> str:
    """The area that a module's file belongs to."""
    return next((area for area in LEAST if path.startswith(f"parley/{area}/")), "privacy")


def is_among(mutant: str, names: Collection[str]) -> bool:
    """Whether names or patterns include a mutant; no names include all."""
    return not names or mutant in names or any(fnmatch(mutant, name) for name in names if "*" in name)


def exit_codes(path: Path) -> dict[str, int | None]:
    """How the tests of each mutant of a file ended; None where it was not tried."""
    data = SourceFileMutationData(path=path)
    data.load()
    return data.exit_code_by_key


def function_of(mutant: str) -> str:
    """The function or method that a mutant changes."""
    function, owner = orig_function_and_class_names_from_key(mutant)
    return f"{owner}.{function}" if owner else function


def change_of(path: str, mutant: str) -> Change:
    """What a mutant changes; white space counts as one blank."""
    lines = get_diff_for_mutant(mutant, path=path).splitlines()[2:]  # past the names of two files
    was, becomes = (" ".join(" ".join(line[1:] for line in lines if line[0] == sign).split()) for sign in "-+")
    return path, function_of(mutant), was, becomes


def is_wording(change: Change) -> bool:
    """Whether only words for people change: letters' case in a message, or a mark around it."""
    *_, was, becomes = change
    return any(
        becomes == was[: text.start(2)] + other + was[text.end(2) :]
        for text in _WORDS.finditer(was)
        for other in (f"XX{text[2]}XX", text[2].lower(), text[2].upper())
    )


def argued() -> set[Change]:
    """The survivors that are excused, from `argued.toml`."""
    entries: list[dict[str, Any]] = tomllib.loads(ARGUED.read_text())["argued"]
    return {
        (entry["file"], entry["function"], entry["was"], becomes) for entry in entries for becomes in entry["becomes"]
    }


@dataclass(frozen=True, slots=True)
class Module:
    """How the mutants of one file fared; ``stale`` are its excuses for mutants that were killed or do not exist."""

    path: str
    killed: int
    alive: dict[str, Change]
    excused: int
    n_mutants: int
    stale: set[Change]

    @property
    def tried(self) -> int:
        """How many were tried and not excused."""
        return self.killed + len(self.alive)


def look(path: Path, names: Collection[str], excuses: set[Change]) -> Module:
    """How those mutants of a file fared that the names include."""
    file = str(path)
    excuses = {excuse for excuse in excuses if excuse[0] == file}
    fates = {mutant: status_by_exit_code[code] for mutant, code in exit_codes(path).items()}
    tried = {mutant for mutant, fate in fates.items() if fate != UNTRIED and is_among(mutant, names)}
    changes = {
        mutant: change_of(file, mutant)
        for mutant in fates
        if mutant in tried or function_of(mutant) in {excuse[1] for excuse in excuses}
    }
    counted = {mutant for mutant in tried if changes[mutant] not in excuses and not is_wording(changes[mutant])}
    alive = {mutant: changes[mutant] for mutant in counted if fates[mutant] not in KILLED}
    stale = excuses - {change for mutant, change in changes.items() if fates[mutant] not in KILLED}
    return Module(file, len(counted) - len(alive), alive, len(tried) - len(counted), len(fates), stale)


def interval(killed: int, tried: int) -> tuple[float, float]:
    """Wilson's 95 % interval of the share that would be killed of all (1927)."""
    share, z = killed / tried, _SURE**2 / tried
    middle, half = share + z / 2, math.sqrt(z * (share * (1 - share) + z / 4))
    return (middle - half) / (1 + z), (middle + half) / (1 + z)


def is_enough(area: str, modules: list[Module]) -> bool:
    """Print an area's share, with its interval unless all mutants were tried; whether it is large enough."""
    killed, tried = sum(module.killed for module in modules), sum(module.tried for module in modules)
    if not tried:
        return True
    is_sample = tried + sum(module.excused for module in modules) < sum(module.n_mutants for module in modules)
    low, high = interval(killed, tried)
    surely = f" ({low:.1%} to {high:.1%} of all)" if is_sample else ""
    print(f"{area}: {killed} of {tried} killed, {killed / tried:.1%}{surely}; at least {LEAST[area]:.0%} are wanted")
    return killed / tried >= LEAST[area]


def main() -> int:
    """Print each survivor, and each module's and area's share; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants, or patterns with *; all if there are none")
    names = set(parser.parse_args().names)
    excuses = argued()
    modules = [look(path, names, excuses) for path in sorted(walk_mutatable_files())]
    for mutant, (_, function, was, becomes) in sorted(item for module in modules for item in module.alive.items()):
        print(f"{mutant}: {function} survives\n  {was}\n  as {becomes}")
    for module in modules:
        if module.tried:
            print(f"{module.path}: {module.killed} of {module.tried} killed, {module.excused} not counted")
    stale = sorted(excuse for module in modules for excuse in module.stale)
    for path, function, was, becomes in stale:
        print(f"argued.toml: {path}, {function}: {was!r} as {becomes!r} was killed, or is no mutant")
    enough = [is_enough(area, [module for module in modules if area_of(module.path) == area]) for area in LEAST]
    return int(not all(enough) or bool(stale) or not any(module.tried for module in modules))


if __name__ == "__main__":
    sys.exit(main())
