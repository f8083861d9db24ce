"""The report: what each paper claims, and what came out, as the runs wrote it.

`docs/reproduction.json` is the record: of each figure its runs and processor seconds, and a row for each case of
a claim that it judges. `docs/reproduction.md` and `docs/papers.md` are written from the record and from the tables of
`scripts.figures.claims`. A run replaces the records of the figures that it drew and leaves the others. A quick run,
which cannot tell, also leaves those of full runs.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from scripts.figures.claims.table import Claim, Item
from scripts.figures.frame import Figure, Ruling, Sweep, Verdict
from scripts.figures.sources import digest_of_data

TOO_FEW = "too few runs to tell"
CAUSES = {"paper": "the paper", "parley": "Parley", "data": "the data at hand"}
RECORD, PAGE, PICTURES, ITEMS = "reproduction.json", "reproduction.md", "reproduction", "papers.md"


@dataclass(frozen=True, slots=True)
class Row:
    """What a figure says of a case of a claim: as a `Verdict`, in words. Its cause and reason are those of its own."""

    claim: str
    case: str
    ruling: str
    measured: str
    ours: str = ""
    cause: str = ""
    why: str = ""

    @classmethod
    def of(cls, verdict: Verdict, *, tells: bool) -> Row:
        """Make the row of a verdict; too few runs say nothing."""
        ruling = str(verdict.ruling) if tells else TOO_FEW
        return cls(verdict.claim, verdict.case, ruling, verdict.evidence, verdict.ours, verdict.cause, verdict.why)

    def reason(self, claim: Claim) -> str:
        """Return who is the cause, and why, where it does not simply hold; empty for nothing to say."""
        cause = self.cause or claim.cause
        return f"{CAUSES[cause]}: {self.why or claim.why}" if cause and self._wants_reason else ""

    def is_unexplained(self, claim: Claim) -> bool:
        """Whether it does not simply hold and nothing says why."""
        return self._wants_reason and not self.reason(claim)

    @property
    def _wants_reason(self) -> bool:
        return self.ruling not in {Ruling.HOLDS, TOO_FEW}


@dataclass(frozen=True, slots=True)
class Record:
    """How a figure was measured, whether by enough runs to judge, by what code, libraries and data, and its rows.

    Digests are SHA-256 (`scripts.figures.sources`), the code's of all that its first point may run.
    """

    title: str
    runs: str
    points: int
    processor_seconds: float
    tells: bool
    code: str
    libraries: Mapping[str, str]
    data: Mapping[str, str]
    rows: Sequence[Row] = field(default_factory=tuple)

    @classmethod
    def of(cls, figure: Figure[Any], sweep: Sweep, seconds: float, rows: Sequence[Row]) -> Record:
        """Make the record of a sweep of a figure."""
        specification = next(iter(sweep.points.values())).specification
        data = {folder: digest_of_data(folder) for point in sweep.points.values() for folder in point.data}
        return cls(
            figure.title, sweep.runs, len(sweep.points), round(seconds, 1), sweep is not figure.quick,
            specification["code"], specification["libraries"], data, tuple(rows),
        )  # fmt: skip


Records = Mapping[str, Record]
_Case = tuple[str, Record, Row]
"""A row, its figure's name, and how that was measured."""


def read(path: Path) -> dict[str, Record]:
    """Read the record; of no file, none."""
    documents = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        name: Record(**{**document, "rows": tuple(Row(**row) for row in document["rows"])})
        for name, document in documents.items()
    }


def merged(before: Records, after: Records, figures: Sequence[Figure[Any]]) -> dict[str, Record]:
    """The records of all figures, in their order: those just drawn where these tell, or where none told before."""
    latest = dict(before) | {
        name: record for name, record in after.items() if record.tells or name not in before or not before[name].tells
    }
    return {figure.name: latest[figure.name] for figure in figures if figure.name in latest}


def save(path: Path, records: Records) -> None:
    """Write the record."""
    documents = {name: asdict(record) for name, record in records.items()}
    path.write_text(json.dumps(documents, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def page(records: Records, claims: Mapping[str, Claim], figures: Sequence[Figure[Any]]) -> str:
    """The report in Markdown: a page to cite, then each paper's claims, case by case, and its figures."""
    papers = [(paper, list(mine)) for paper, mine in groupby(figures, lambda figure: figure.paper)]
    cases = _cases(records)
    parts = [_HEAD, _glance(papers, claims, cases), _measured(records, figures)]
    for paper, mine in papers:
        own = [claim for claim in claims.values() if claim.paper == paper.name]
        theirs = [claim for claim in own if claim.by == "paper"]
        parts += [f"## {paper.citation}\n", _wrapped(paper.title)]
        parts += [_section(claim, cases.get(claim.key, ())) for claim in theirs]
        if added := [claim for claim in own if claim.by == "parley"]:
            parts.append("### What Parley claims beside\n")
            parts += [_section(claim, cases.get(claim.key, ())) for claim in added]
        if drawn := [figure for figure in mine if figure.name in records and records[figure.name].tells]:
            parts.append("### Figures\n")
            for one in drawn:
                parts += [f"![{one.name}]({PICTURES}/{one.name}.png)\n", _wrapped(f"`{one.name}`: {one.title}.")]
    return "\n".join(parts)


def papers_page(items: Sequence[Item], claims: Mapping[str, Claim], figures: Sequence[Figure[Any]]) -> str:
    """What each paper has, item by item, and how it stands in Parley, in Markdown."""
    titles = {figure.paper.name: figure.paper.citation.partition(":")[0] for figure in figures}
    counts: Counter[str] = Counter(item.standing for item in items)
    parts = [_ITEMS_HEAD.format(number=len(items)), "| stands | items |\n|---|---|"]
    parts += [_line(words, str(counts[standing])) for standing, words in STANDINGS.items() if counts[standing]]
    parts.append("")
    for paper, mine in groupby(items, lambda item: item.paper):
        parts.append(
            f"## {titles[paper]}\n\n| in the paper | item | stands | in Parley | note |\n|---|---|---|---|---|"
        )
        for item in mine:
            places = ", ".join(_place(place, claims) for place in item.places)
            parts.append(_line(item.where, item.item, STANDINGS[item.standing], places, item.note))
        parts.append("")
    return "\n".join(parts)


STANDINGS = {
    "works": "works", "vacuous": "vacuous, said", "open": "open in the text, said", "future": "future work, said",
    "partly": "partly", "differs": "differs", "absent": "absent", "waits": "waits for data",
}  # fmt: skip
_HEAD = """\
# Reproduction

What five papers claim, and what comes out when Parley runs it. A claim stands here in the words or the formula of its
paper, at the place that is named, and is judged at the paper's own setting where its data can be had. What is ours in
judging it is called ours: a band, a criterion, a data set, a size. Words without quotation marks are ours, for what the
text says there. No claim is turned round. Where a band, a restriction or a way was chosen after results were seen, its
entry says so.

To cite a verdict, name the claim (`rajkumar.psgd-flat`) and the commit of this page. `make figures` writes it, its
pictures and `docs/reproduction.json`; change the code or `scripts/figures/claims`, not the page. [What each paper has,
item by item](papers.md).

| verdict | it means |
|---|---|
| holds | in these runs, by the criterion that is said to be ours |
| DOES NOT HOLD | not in these runs; the cause is the paper, Parley, or the data at hand |
| holds at another size | not at the size of the data at hand, and at the paper's by the law that was measured |
| vacuous as stated | the bound is no better than what is known without it, or asks for less than one draw |
| the text leaves it open | a constant or a choice is not in the text |
| cannot be told here | the runs are too few, or noise leaves too few points: neither shown nor refuted |
"""
_MEASURED = """\
`make figures` measures all in full; `FIGURES="--quick"` takes fewer runs, `FIGURES="hamm --jobs 2"` one paper on two
cores, and `python -m scripts.figures NAME` the figure that a row names. `PARLEY_DATA` names the folder of [the public
data](how-to/research.md). Each figure's numbers are written as CSV, beside its picture, into the folder `figures`. Each
point has its seeds and one thread, so that the same code, libraries and data give the same page. {figures} figures of
{points:,} points took {one:.0f} minutes of one core, which are about {two:.0f} of two, by {libraries}. The digests of
code and data are in `docs/reproduction.json`."""
_ITEMS_HEAD = """\
# What the papers have, and where it stands

{number} items of five papers, as we count them. `make figures` writes this page from `scripts/figures/claims/items`.
An item “works” where Parley has it: an algorithm that runs, a figure that is drawn, a claim that is judged. Whether the
claim holds is another question, which [the reproduction report](reproduction.md) answers under the name that is given.
"""


def _glance(papers: Sequence[Any], claims: Mapping[str, Claim], cases: Mapping[str, Sequence[_Case]]) -> str:
    """Of each paper: how many claims came out how, then what holds, what does not, and why."""
    theirs_of = {
        paper.citation: [claim for claim in claims.values() if claim.paper == paper.name and claim.by == "paper"]
        for paper, _ in papers
    }
    parts = ["## At a glance\n", f"| claims of | {' | '.join(_OUTCOMES)} |", f"|---|{'---|' * len(_OUTCOMES)}"]
    for citation, theirs in theirs_of.items():
        counts = Counter(_outcome([row for *_, row in cases.get(claim.key, ())]) for claim in theirs)
        parts.append(_line(citation, *(str(counts[outcome] or "") for outcome in _OUTCOMES)))
    parts.append("")
    for citation, theirs in theirs_of.items():
        parts.append(f"**{citation}**\n\n| in the paper | claim | verdict | why |\n|---|---|---|---|")
        parts += [
            _line(
                claim.where,
                f"[{claim.short}](#{_anchor(claim)}) (`{claim.key}`)",
                *_verdict(claim, [row for *_, row in cases.get(claim.key, ())]),
            )
            for claim in theirs
        ]
        parts.append("")
    return "\n".join(parts)


_OUTCOME_OF: Mapping[str, str] = {
    Ruling.HOLDS: "hold", Ruling.FAILS: "do not hold", Ruling.ELSEWHERE: "hold at another size",
    Ruling.VACUOUS: "are vacuous", Ruling.OPEN: "are left open", Ruling.UNTOLD: "cannot be told",
}  # fmt: skip
_SOME, _WAIT = "hold in some cases", "wait for data"
_OUTCOMES = (*_OUTCOME_OF.values(), _SOME, _WAIT)


def _outcome(rows: Sequence[Row]) -> str:
    """What came of a claim as a whole: the ruling of all its cases, or the hardest of them where none holds."""
    rulings = {row.ruling for row in rows} - {TOO_FEW}
    if len(rulings) > 1 and Ruling.HOLDS in rulings:
        return _SOME
    return next((outcome for ruling, outcome in _OUTCOME_OF.items() if ruling in rulings), _WAIT)


def _verdict(claim: Claim, rows: Sequence[Row]) -> tuple[str, str]:
    """How many cases of a claim came out how, and why those that do not hold do not."""
    if not rows:
        return (f"waits for {claim.waits}" if claim.waits else "not measured here"), ""
    counts = Counter(row.ruling for row in rows)
    alone = len(counts) == 1
    words = "; ".join(
        ruling if alone else f"{ruling} in {counts[ruling]} of {len(rows)}"
        for ruling in (*Ruling, TOO_FEW) if ruling in counts
    )  # fmt: skip
    reasons = dict.fromkeys(row.reason(claim) for row in rows)
    return words, "<br>".join(filter(None, reasons))


def _measured(records: Records, figures: Sequence[Figure[Any]]) -> str:
    """How to run it, and what each figure took."""
    total, points = (sum(getattr(one, name) for one in records.values()) for name in ("processor_seconds", "points"))
    libraries = sorted({f"{name} {version}" for one in records.values() for name, version in one.libraries.items()})
    head = _MEASURED.format(
        figures=len(records), points=points, one=total / 60, two=total / 120, libraries=", ".join(libraries)
    )
    seeds = {figure.name: figure.paper.seeds for figure in figures}
    columns = "| figure | points | runs a point | seeds | processor seconds |\n|---|---|---|---|---|"
    return "\n".join(["## How it is run\n", _wrapped(head), columns, *(
        _line(f"`{name}`", f"{one.points:,}", one.runs, seeds[name], f"{one.processor_seconds:,.0f}")
        for name, one in records.items()
    ), ""])  # fmt: skip


def _section(claim: Claim, cases: Sequence[_Case]) -> str:
    """A claim: what is printed, its setting, what is ours, and a row a case."""
    place = claim.where or "Parley"
    lines = [f"#### {claim.key}\n"]
    for label, words in (
        (place, claim.printed), ("The paper's setting", claim.setting), ("Ours", claim.judged),
        ("Waits for", claim.waits),
    ):  # fmt: skip
        if words:
            lines.append(_wrapped(f"{label}: {words}"))
    if cases:
        lines.append("| statement | case | figure | measured | ours | runs | verdict |\n|---|---|---|---|---|---|---|")
        for name, record, row in cases:
            verdict = f"{row.ruling} ({reason})" if (reason := row.reason(claim)) else row.ruling
            lines.append(_line(place, row.case, f"`{name}`", row.measured, row.ours, record.runs, verdict))
        lines.append("")
    return "\n".join(lines)


def _cases(records: Records) -> dict[str, list[_Case]]:
    """The cases of each claim, by its key."""
    cases: dict[str, list[_Case]] = {}
    for name, record in records.items():
        for row in record.rows:
            cases.setdefault(row.claim, []).append((name, record, row))
    return cases


def _place(place: str, claims: Mapping[str, Claim]) -> str:
    """A place of the tree as code, a claim as a link to it."""
    kind, _, key = place.partition(": ")
    if kind == "claim":
        return f"[{key}]({PAGE}#{_anchor(claims[key])})"
    return place if place.startswith("`") else f"`{place}`"


def _anchor(claim: Claim) -> str:
    """The anchor of a claim's heading, as MkDocs and GitHub make it: without the dot."""
    return claim.key.replace(".", "")


def _wrapped(words: str) -> str:
    """A paragraph, in lines that a person can read in any editor."""
    return textwrap.fill(words, 118, break_long_words=False, break_on_hyphens=False) + "\n"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |"
