"""A table of several files, each in a dress of its own: the right rows, or an error that names file and column."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from typer.testing import CliRunner

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError
from parley.common.files.examples import load_source
from parley.common.files.sources import DataSource, parse_source
from parley.common.files.study_fit import survey_table
from parley.common.service.tokens import hash_token
from parley.party.answers.party import Party
from parley.party.cli.main import party_app
from parley.party.settings import PartySettings
from tests.support.cluster import LEARNER, Cluster

STUDY = Study(
    name="s",
    missing="drop",
    features=(Feature(name="age", lower=0, upper=90), Feature(name="dose", lower=0, upper=20)),
    label=Label(name="ill", values=("no", "yes")),
)
ROWS = [(31, "no", 1.5), (42, "yes", 2.25), (50, "no", 10.125)]
PLAIN = "age,ill,dose\n31,no,1.5\n42,yes,2.25\n50,no,10.125\n"
SEMICOLONS = PLAIN.replace(",", ";")
COMMAS = SEMICOLONS.replace(".", ",")

DRESSES = {
    "commas": PLAIN.encode(),
    "semicolons": SEMICOLONS.encode(),
    "semicolons, decimal comma": COMMAS.encode(),
    "tabs, decimal comma": COMMAS.replace(";", "\t").encode(),
    "pipes": PLAIN.replace(",", "|").encode(),
    "quoted decimal commas": b'age,ill,dose\n31,no,"1,5"\n42,yes,"2,25"\n50,no,"10,125"\n',
    "another order": b"dose,ill,age\n1.5,no,31\n2.25,yes,42\n10.125,no,50\n",
    "names in capitals": PLAIN.replace("age,ill,dose", "AGE, Ill,DOSE").encode(),
    "UTF-16": COMMAS.encode("utf-16"),
    "a title": b"Klinik S\xfcd\n\n" + COMMAS.encode(),
    "an index and a note": b",age,ill,dose,note\n0,31,no,1.5,a\n1,42,yes,2.25,\n2,50,no,10.125,b\n",
}


def saved(folder: Path, *contents: bytes) -> str:
    for name, content in zip("abcdefghijkl", contents, strict=False):
        (folder / f"{name}.csv").write_bytes(content)
    return f"{folder}/*.csv"


def refused(read: Callable[..., object], *args: object) -> str:
    with pytest.raises(InvalidDataError) as error:
        read(*args)
    return str(error.value)


def test_each_file_of_a_pattern_is_read_in_its_own_dress(tmp_path: Path) -> None:
    pattern = saved(tmp_path, *DRESSES.values())
    plain = load_source(DataSource(source=f"{tmp_path}/a.csv"), STUDY).shard
    loaded = load_source(DataSource(source=pattern), STUDY)
    assert np.array_equal(loaded.shard.X[loaded.shard.mask], np.tile(plain.X[plain.mask], (len(DRESSES), 1)))
    assert np.array_equal(loaded.shard.y[loaded.shard.mask], np.tile(plain.y[plain.mask], len(DRESSES)))
    assert "c.csv: read as: semicolons, decimal comma" in loaded.notes
    (tmp_path / "k.csv").unlink()  # of a query all columns count
    queried = load_source(DataSource(source="FROM t", tables={"t": pattern}), STUDY).shard
    assert np.array_equal(queried.X[queried.mask], np.tile(plain.X[plain.mask], (len(DRESSES) - 1, 1)))
    assert [column.kind for column in survey_table(DataSource(source=pattern))] == ["number", "text", "number"]


@pytest.mark.parametrize("sign", [";", "\t"])
def test_a_sign_that_a_file_does_not_tell_is_not_taken_from_another(tmp_path: Path, sign: str) -> None:
    """1.234 is 1.234 in one laboratory's files, and 1234 in another's."""
    doubtful = f"age{sign}ill{sign}dose\n31{sign}no{sign}1.234\n".encode()
    pattern = saved(tmp_path, COMMAS.encode(), doubtful, PLAIN.encode())
    for source in (DataSource(source=pattern), DataSource(source="FROM t", tables={"t": pattern})):
        message = refused(load_source, source, STUDY)
        assert f"data file {tmp_path}/b.csv: in column 'dose' a point may be the decimal sign" in message
        assert "1.234" not in message


def test_a_sign_between_thousands_that_is_said_is_none_of_decimals(tmp_path: Path) -> None:
    pattern = saved(tmp_path, b"age,ill,dose\n31,no,0\n", b"age,ill,dose\n1.031,no,0\n")
    wide = STUDY.model_copy(update={"features": (Feature(name="age", lower=0, upper=2000), STUDY.features[1])})
    loaded = load_source(parse_source(pattern, csv="thousands=."), wide)
    assert loaded.shard.X[1, 0] == pytest.approx(
        load_source(parse_source(pattern), STUDY, clip=True).shard.X[1, 0], abs=2
    )
    assert loaded.notes == ("a.csv: read as: decimal comma", "b.csv: read as: decimal comma, thousands by point")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"age,ill\n31,no\n", "b.csv lacks column 'dose', which {folder}/a.csv has"),
        (b"31,no,1.5\n42,yes,61.80339\n", "b.csv lacks column 'age', which {folder}/a.csv has"),
        (b"age,age,ill,dose\n31,32,no,1.5\n", "b.csv names columns twice: see places 1, 2"),
        (b"", "b.csv cannot be read: it is empty"),
        (b"age,ill,dose\n31,no,61.80339,x\n", "b.csv cannot be read: line 2 has 4 cells"),
        (
            b"age,ill,dose\nabc,no,1.5\n",
            "column 'age': not numeric in 1 row; the first file with such rows is {folder}/b.csv",
        ),
        (
            b'age,ill,dose\n31,no,1.5\n32,no,"1,5"\n',
            "b.csv: numbers have a decimal point in column 'dose', and a decimal",
        ),
        (PLAIN.encode("utf-32")[5:], "b.csv cannot be read: it is no text"),
    ],
)
def test_what_is_wrong_with_one_file_is_said_by_its_name_and_column(tmp_path: Path, content: bytes, told: str) -> None:
    pattern = saved(tmp_path, PLAIN.encode(), content)
    study = tmp_path / "study.json"
    study.write_text(STUDY.model_dump_json())
    checked = CliRunner().invoke(party_app, ["study", "check", str(study), "--data", pattern])
    assert checked.exit_code != 0
    assert "61.80339" not in checked.output
    words = refused(load_source, DataSource(source=pattern), STUDY)
    assert told.format(folder=tmp_path) in words
    assert "b.csv" in checked.output


def test_a_column_that_the_first_file_lacks_is_named_too(tmp_path: Path) -> None:
    pattern = saved(tmp_path, b"age,ill\n31,no\n", PLAIN.encode())
    assert refused(load_source, DataSource(source=pattern), STUDY) == (
        f"data file {tmp_path}/a.csv lacks column 'dose', which {tmp_path}/b.csv has"
    )


def test_of_a_table_that_is_queried_files_have_the_same_columns(tmp_path: Path) -> None:
    """A file without a line of names has values there: none of them is repeated."""
    more = PLAIN.replace("dose", "dose,note").replace("5\n", "5,x\n").encode()
    pattern = saved(tmp_path, PLAIN.encode(), more)
    queried = DataSource(source="FROM t", tables={"t": pattern})
    assert f"{tmp_path}/a.csv lacks column 'note', which {tmp_path}/b.csv has" in refused(load_source, queried, STUDY)
    saved(tmp_path, PLAIN.encode(), b"61.80339,no,1.5\n32,yes,2.5\n")
    assert f"{tmp_path}/b.csv has none of the columns of {tmp_path}/a.csv" in refused(load_source, queried, STUDY)
    saved(tmp_path, b"61.80339,no,age\n1,2,3\n", b"age,61.8,7\n1,2,3\n")
    assert "has no line of names" in (told := refused(load_source, queried, STUDY))
    assert "61.8" not in told


def table(**types: Any) -> pa.Table:  # noqa: ANN401 -- pyarrow has no types
    kinds = {"age": pa.int64(), "ill": pa.string(), "dose": pa.float64()} | types
    cells = dict(zip(("age", "ill", "dose"), zip(*ROWS, strict=True), strict=True))
    return pa.table({name: pa.array(cells.get(name, ["x"] * 3), kind) for name, kind in kinds.items()})


ALIKE = {
    "smaller integers": table(age=pa.int8()),
    "reals": table(age=pa.float64()),
    "categories": table(ill=pa.dictionary(pa.int8(), pa.string())),
    "large texts": table(ill=pa.large_string()),
    "another order": table().select(["dose", "age", "ill"]),
    "names in capitals": table().rename_columns(["AGE", " Ill", "Dose"]),
}


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_types_that_hold_the_same_cells_are_alike(tmp_path: Path, kind: str) -> None:
    write = parquet.write_table if kind == "parquet" else feather.write_feather
    for name, each in zip("abcdefg", [table(), *ALIKE.values()], strict=True):
        write(each, tmp_path / f"{name}.{kind}")
    one = load_source(DataSource(source=f"{tmp_path}/a.{kind}"), STUDY).shard
    pattern = f"{tmp_path}/*.{kind}"
    for source in (DataSource(source=pattern), DataSource(source="FROM t", tables={"t": pattern})):
        shard = load_source(source, STUDY).shard
        assert np.array_equal(shard.X[shard.mask], np.tile(one.X[one.mask], (7, 1)))
    assert [column.kind for column in survey_table(DataSource(source=pattern))] == ["number", "text", "number"]


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_columns_and_types_that_are_not_alike_are_named_with_their_file(tmp_path: Path, kind: str) -> None:
    write = parquet.write_table if kind == "parquet" else feather.write_feather
    write(table(), tmp_path / f"a.{kind}")
    pattern = f"{tmp_path}/*.{kind}"
    queried, by_study = DataSource(source="FROM t", tables={"t": pattern}), DataSource(source=pattern)
    write(table().drop_columns("dose"), tmp_path / f"b.{kind}")
    for source in (queried, by_study):
        assert f"{tmp_path}/b.{kind} lacks column 'dose', which" in refused(load_source, source, STUDY)
    write(table(note=pa.string()), tmp_path / f"b.{kind}")
    assert f"{tmp_path}/a.{kind} lacks column 'note', which" in refused(load_source, queried, STUDY)
    write(table().set_column(0, "age", pa.array(["x", "y", "z"])), tmp_path / f"b.{kind}")
    assert re.search(
        rf"b\.{kind}: column 'age' is of type string, and of type int64 in", refused(load_source, queried, STUDY)
    )
    message = refused(load_source, by_study, STUDY)
    assert f"b.{kind}" in message
    assert "'age'" in message


@pytest.mark.long
def test_a_column_that_is_blank_in_one_file_of_records_is_one_of_texts_in_another(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"age": 31, "ill": None, "dose": None}]))
    (tmp_path / "b.json").write_text(json.dumps([{"dose": 1.5, "age": 31.5, "ill": "no"}]))
    for source in (f"{tmp_path}/*.json", "FROM t"):
        tables = {"t": f"{tmp_path}/*.json"} if source == "FROM t" else {}
        assert load_source(DataSource(source=source, tables=tables), STUDY).shard.n_examples == 2
    (tmp_path / "b.json").write_text(json.dumps([{"age": "31", "ill": "no", "dose": 1.5}]))
    assert "b.json: column 'age' is of type string" in refused(
        load_source, DataSource(source=f"{tmp_path}/*.json"), STUDY
    )


def test_accepted_data_are_the_same_rows_in_other_dresses(tmp_path: Path) -> None:
    """A German spreadsheet saves one file of a pattern again: nothing has changed; saved by half, it is refused."""
    cluster = Cluster(tmp_path, n_parties=1)
    whole = (tmp_path / "party-1.csv").read_text().splitlines()
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "1.csv").write_text("\n".join(whole[:30]) + "\n")
    (folder / "2.csv").write_text("\n".join([whole[0], *whole[30:]]) + "\n")
    config = tmp_path / "party.toml"
    config.write_text(
        f'name = "party-1"\nstate = "{tmp_path}/party-1"\nstudy = "{cluster.study_path}"\n'
        f'[data]\nsource = "{folder}/*.csv"\n'
        "[policy]\nepsilon = 5.0\ndelta = 0.1\nmax_epsilon_per_run = 5.0\nmax_delta_per_run = 0.1\n"
        f'[[learners]]\nname = "learner"\ntoken_hash = "{hash_token(LEARNER)}"\n'
    )

    def accepted() -> tuple[int, str]:
        done = CliRunner().invoke(party_app, ["accept-data", "--config", str(config)])
        return done.exit_code, done.output

    Party(PartySettings.load(config)).store.close()
    german = "\n".join([whole[0], *whole[30:]]).replace(",", ";").replace(".", ",") + "\n"
    (folder / "2.csv").write_bytes(german.encode("utf-16"))
    code, told = accepted()
    assert code == 0
    assert "nothing has changed" in told
    (folder / "2.csv").write_text("\n".join(line.rpartition(",")[0] for line in [whole[0], *whole[30:]]) + "\n")
    code, told = accepted()
    assert code != 0
    assert f"2.csv lacks column {whole[0].rpartition(',')[2]!r}" in told
