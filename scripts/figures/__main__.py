"""Redraw every figure: ``python -m scripts.figures [--quick] [--out DIRECTORY]``; 1 if a claim does not hold."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from scripts.figures import hamm, wu
from scripts.figures.frame import main

if __name__ == "__main__":
    names = sorted(path.stem for path in Path(__file__).parent.glob("*_fig*.py"))
    sys.exit(max(wu.main(), hamm.main(), *(main(import_module(f"scripts.figures.{name}").FIGURE) for name in names)))
