"""Redraw the papers' figures: ``python -m scripts.figures [FIGURE ...] [--quick] [--jobs N] [--dask ADDRESS]``.

Names are those of figures (``wu_fig02``) or of papers (``wu``); without one, all. The points of all are computed side
by side. A run that was stopped continues; one whose points are all computed draws and judges again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.figures.frame import Figure, Sweep, all_figures
from scripts.figures.reproduction import FAILS, Row, update
from scripts.figures.runner import Cache, complete, dask_cluster, processes
from scripts.utility.examples import AbsentError, data_path

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw figures as the command line says; returns 1 if a claim was tested and does not hold, and 0 otherwise."""
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
    options.out.mkdir(parents=True, exist_ok=True)
    drawn, cache = list(_with_data(selected, quick=options.quick)), Cache(options.out / "cache")
    with dask_cluster(options.dask) if options.dask else processes(options.jobs) as executor:
        complete(cache, (point for _, sweep in drawn for point in sweep.points.values()), executor)
    judged = {figure.name: redrawn(figure, sweep, cache, options.out) for figure, sweep in drawn}
    update(options.reproduction, figures, judged)
    return int(any(one.verdict == FAILS for rows in judged.values() for one in rows))


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


def redrawn(figure: Figure[Any], sweep: Sweep, cache: Cache, out: Path) -> list[Row]:
    """Write, draw and judge a figure; its rows of the page, which are printed too."""
    verdicts = figure.redraw({label: cache.result(point) for label, point in sweep.points.items()}, out)
    print(f"{figure.name}: wrote {out / figure.name}.csv and .png")
    rows = [Row.of(figure, sweep, verdict) for verdict in verdicts]
    for row in rows:
        print(f"{figure.name}: {row.claim}: {row.verdict} ({row.measured})")
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "scripts.figures", description="Redraw the papers' figures, and judge their claims."
    )
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="of a figure or a paper (default: all)")
    parser.add_argument("--list", action="store_true", help="list the figures, and draw none")
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
        "--reproduction", type=Path, default=ROOT / "docs" / "reproduction.md",
        help="the page that verdicts are written to (default: %(default)s)",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
