"""Redraw the papers' figures: ``python -m scripts.figures [FIGURE ...] [--quick] [--jobs N] [--dask ADDRESS]``.

Names are those of figures (``wu_fig02``) or of papers (``wu``); without one, all. The points of all are computed side
by side. A run that was stopped continues; one whose points are all computed draws and judges again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from scripts.figures.claims.table import claims, items
from scripts.figures.frame import Figure, Sweep, all_figures
from scripts.figures.reproduction import (
    ITEMS,
    PAGE,
    PICTURES,
    RECORD,
    Record,
    Row,
    merged,
    page,
    papers_page,
    read,
    save,
)
from scripts.figures.runner import Cache, complete, dask_cluster, processes
from scripts.utility.examples import AbsentError, data_path

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw figures as the command line says; returns 1 if a claim fails and nothing says why, and 0 otherwise."""
    parser = _parser()
    options = parser.parse_args(arguments)
    figures = all_figures()
    names = {name for figure in figures for name in (figure.name, figure.paper.name)}
    if unknown := sorted(set(options.figures) - names):
        parser.error(f"no such figure: {', '.join(unknown)}")
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, not {options.jobs}")
    selected = [one for one in figures if not options.figures or {one.name, one.paper.name} & set(options.figures)]
    if options.list:
        print("\n".join(f"{figure.name}: {figure.title}" for figure in selected))
        return 0
    if options.pages:
        report(options.reproduction, options.out, figures, {})
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    drawn, cache = list(_with_data(selected, quick=options.quick)), Cache(options.out / "cache")
    with dask_cluster(options.dask) if options.dask else processes(options.jobs) as executor:
        complete(cache, (point for _, sweep in drawn for point in sweep.points.values()), executor)
    after = {figure.name: redrawn(figure, sweep, cache, options.out) for figure, sweep in drawn}
    report(options.reproduction, options.out, figures, after)
    return int(any(row.is_unexplained(claims()[row.claim]) for record in after.values() for row in record.rows))


def _with_data(figures: Iterable[Figure[Any]], *, quick: bool) -> Iterator[tuple[Figure[Any], Sweep]]:
    """The figures whose data is here, and what to measure for each; of the others it is said."""
    for figure in figures:
        sweep = figure.quick if quick else figure.full
        try:
            for folder in {folder for point in sweep.points.values() for folder in point.data}:
                data_path(folder)
        except AbsentError as absent:
            print(f"{figure.name}: not drawn: {absent}")
        else:
            yield figure, sweep


def redrawn(figure: Figure[Any], sweep: Sweep, cache: Cache, out: Path) -> Record:
    """Write, draw and judge a figure; its record. Its rows are printed too."""
    verdicts = figure.redraw({label: cache.result(point) for label, point in sweep.points.items()}, out)
    print(f"{figure.name}: wrote {out / figure.name}.csv and .png")
    rows = [Row.of(one, tells=sweep is not figure.quick) for one in verdicts]
    for row in rows:
        print(f"{figure.name}: {row.claim}: {row.case}: {row.ruling} ({row.measured})")
    seconds = sum(cache.seconds(point) for point in dict.fromkeys(sweep.points.values()))
    return Record.of(figure, sweep, seconds, rows)


def report(folder: Path, out: Path, figures: Sequence[Figure[Any]], after: Mapping[str, Record]) -> None:
    """Write the record, the report, the items and the pictures of figures that were drawn in full into a folder."""
    records = merged(read(folder / RECORD), after, figures)
    save(folder / RECORD, records)
    (folder / PAGE).write_text(page(records, claims(), figures), encoding="utf-8")
    (folder / ITEMS).write_text(papers_page(items(), claims(), figures), encoding="utf-8")
    pictures = folder / PICTURES
    pictures.mkdir(exist_ok=True)
    for name, record in after.items():
        if record.tells:
            shrink(out / f"{name}.png", pictures / f"{name}.png")
    for stale in {path.stem for path in pictures.glob("*.png")} - set(records):
        (pictures / f"{stale}.png").unlink()


def shrink(picture: Path, target: Path) -> None:
    """Write a picture again in 256 colours and at most 1,200 pixels wide, so that the repository stays small."""
    with Image.open(picture) as image:
        image.thumbnail((1200, 10_000))
        image.convert("RGB").quantize(256).save(target, optimize=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "scripts.figures", description="Redraw the papers' figures, and judge their claims."
    )
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="of a figure or a paper (default: all)")
    parser.add_argument("--list", action="store_true", help="list the figures, and draw none")
    parser.add_argument("--pages", action="store_true", help="write the report again from its record, and draw none")
    parser.add_argument("--quick", action="store_true", help="fewer runs a point: shows, judges not")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: %(default)s)")
    parser.add_argument("--dask", metavar="ADDRESS", help="a Dask cluster to compute on, such as tcp://host:8786")
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "figures",
        help="folder of CSVs, PNGs and the cache (default: %(default)s)",
    )
    parser.add_argument(
        "--reproduction", type=Path, default=ROOT / "docs",
        help="folder of the report: its record, pages and pictures (default: %(default)s)",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
