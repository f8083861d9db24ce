"""Rajkumar & Agarwal 2012, Figure 1: simulated data, N = 1,000 examples in the unit ball of d = 10 dimensions.

The claims it tests, and what sweeps stand in for the paper's, are told in `scripts.figures.rajkumar`.
"""

from __future__ import annotations

import sys

from scripts.figures.frame import main
from scripts.figures.rajkumar import grid

FIGURE = grid("rajkumar_fig1", "simulated", "Simulated data, N = 1,000, d = 10, δ = 0.05")

if __name__ == "__main__":
    sys.exit(main(FIGURE))
