"""Write the page on the dresses of a table that are read, docs/reference/tables.md: ``python -m scripts.make_dresses``.

The dresses and the page are those of `tests/support/dresses.py`; a test compares the page with what is read.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.dresses import PAGE, page

if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        PAGE.write_text(page(Path(folder)), encoding="utf-8")
