"""The claims that figures judge, and the items of each paper: a table ``NAME.toml`` and ``items/NAME.csv`` a paper.

A claim is what a paper states at a place, in the words or the formula that are printed there. What is ours in judging
it (a band, a criterion, a data set, a size) stands apart, in ``judged``. A claim of Parley's own says so. Where the
form is "reading", the words are ours, for what the text says in more words than one can quote.
"""

from __future__ import annotations

import csv
import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

HERE = Path(__file__).parent
PAPERS = ("rajkumar", "wu", "hamm", "xie", "jain")
Standing = Literal["works", "vacuous", "open", "future", "partly", "differs", "absent", "waits"]
_STRICT = ConfigDict(extra="forbid", frozen=True)


class Claim(BaseModel):
    """A statement that figures judge: where and what is printed, its own setting, and what in judging is ours.

    ``cause`` and ``why`` say who is the cause where it does not simply hold; ``waits`` names the data that no figure
    can do without.
    """

    model_config = _STRICT
    key: str
    short: str
    where: str = ""
    says: str
    form: Literal["quotation", "formula", "table", "reading"] = "reading"
    setting: str = ""
    judged: str = ""
    cause: Literal["", "paper", "parley", "data"] = ""
    why: str = ""
    waits: str = ""
    by: Literal["paper", "parley"] = "paper"

    @model_validator(mode="after")
    def _has_its_place(self) -> Claim:
        if bool(self.where) == (self.by == "parley"):
            raise ValueError(f"{self.key}: a paper's claim has a place in it, and Parley's own has none")
        if self.cause and not self.why:
            raise ValueError(f"{self.key}: names a cause without saying why")
        return self

    @property
    def paper(self) -> str:
        """The name of the paper that it is of."""
        return self.key.partition(".")[0]

    @property
    def printed(self) -> str:
        """What is printed, in quotation marks where it is word for word."""
        return f"“{self.says}”" if self.form == "quotation" else self.says


class Item(BaseModel):
    """Something that a paper has: where, what, how it stands in Parley, where to look there, and a note."""

    model_config = _STRICT
    paper: str
    where: str
    item: str
    standing: Standing
    parley: str
    note: str

    @property
    def places(self) -> tuple[str, ...]:
        """Paths of the tree, ``claim: KEY`` and commands in backticks, each by itself."""
        return tuple(place.strip() for place in self.parley.split(";") if place.strip())


@cache
def claims() -> dict[str, Claim]:
    """Return all claims by their keys, ``PAPER.NAME``; raises pydantic.ValidationError where an entry is not whole."""
    return {
        f"{paper}.{name}": Claim(key=f"{paper}.{name}", **entry)
        for paper in PAPERS
        for name, entry in tomllib.loads((HERE / f"{paper}.toml").read_text(encoding="utf-8")).items()
    }


@cache
def items() -> tuple[Item, ...]:
    """Return the items of all papers; raises pydantic.ValidationError."""
    return tuple(
        Item(paper=paper, parley=row.pop("in Parley"), **row)
        for paper in PAPERS
        for row in _rows(HERE / "items" / f"{paper}.csv")
    )


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
