"""Rajkumar & Agarwal 2012, Figure 2: breast cancer data (Wisconsin diagnostic), N = 427 for training, d = 31.

The claims it tests, and what sweeps stand in for the paper's, are told in `scripts.figures.rajkumar`.
"""

from __future__ import annotations

import sys

from scripts.figures.frame import main
from scripts.figures.rajkumar import grid

FIGURE = grid("rajkumar_fig2", "wdbc", "Breast cancer (Wisconsin diagnostic), N = 427, d = 31, δ = 0.05")

if __name__ == "__main__":
    sys.exit(main(FIGURE))
