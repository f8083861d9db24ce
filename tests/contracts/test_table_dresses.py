"""A table is the same rows in every dress: by file, by pattern, by query, in predictions and public rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parley.common.data.loading import Loaded
from parley.common.files.examples import load_source
from parley.common.files.sources import DataSource, parse_csv_format
from parley.common.files.study_fit import fit_of_source
from parley.learner.models.feature_rows import FeatureRows
from parley.party.answers.party import digest_rows
from tests.support.dresses import DRESSES, PAGE, STUDY, Dress, page
from tests.support.nightly import NIGHTLY

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    path = tmp_path_factory.mktemp("plain") / "table.csv"
    DRESSES[0].write(path)
    return load_source(DataSource(source=str(path)), STUDY)


IN_A_CHILD = {".xlsx", ".json", ".jsonl", ".ndjson"}
"""Kinds of files that another process reads, which takes seconds to start."""


@pytest.mark.parametrize(
    "dress",
    [pytest.param(dress, marks=[pytest.mark.slow] * (Path(dress.file).suffix in IN_A_CHILD)) for dress in DRESSES],
    ids=str,
)
def test_a_table_is_the_same_shard_in_every_dress(tmp_path: Path, plain: Loaded, dress: Dress) -> None:
    path = tmp_path / dress.file
    if path.suffix == ".xlsx":
        pytest.importorskip("python_calamine")
    dress.write(path)
    csv_format = parse_csv_format(dress.said) if dress.said else None
    sources = [
        DataSource(source=f"{path}{dress.at}", csv=csv_format),
        DataSource(source="SELECT * FROM t", tables={"t": f"{path}{dress.at}"}, csv=csv_format),
    ]
    if not dress.at:
        sources.append(DataSource(source=f"{tmp_path}/[tT]*", csv=csv_format))
        sources.append(DataSource(source="FROM t", tables={"t": f"{tmp_path}/[tT]*"}, csv=csv_format))
    if not NIGHTLY:  # the file itself, and one of the other ways, each in its turn
        sources = [sources[0], sources[1 + DRESSES.index(dress) % (len(sources) - 1)]]
    for source in sources:
        loaded = load_source(source, STUDY)
        assert digest_rows(loaded.shard) == digest_rows(plain.shard), source
        assert (loaded.dropped_share, loaded.missing) == (plain.dropped_share, plain.missing)
    fit = fit_of_source(STUDY, sources[0])
    assert fit.fits
    assert not fit.absent
    if not dress.at:
        features = FeatureRows(path, STUDY, csv_format=csv_format)
        design = np.concatenate([X[usable] for X, usable, _ in features.blocks(skip=True)])
        assert np.array_equal(design, plain.shard.X[plain.shard.present])
    path.unlink()


def test_the_page_on_dresses_tells_what_is_read(tmp_path: Path) -> None:
    """If this fails, ``python -m scripts.make_dresses`` writes the page again."""
    assert len(DRESSES) >= 45
    assert PAGE.read_text(encoding="utf-8") == page(tmp_path)
