"""Public sets from their publishers' formats: small files of each, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import httpx
import numpy as np
import pytest

from parley.common.files.tables import read_columns
from scripts import fetch_data
from scripts.fetch_data import SOURCES, FetchError, Part, fetch
from scripts.utility.finance import LENDING_CLUB, complete, loans

ADULT_ROW = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
)
ADULT_ROW += "United-States, "
KDD_ROW = "0,tcp,http,SF,181,5450,0,0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,8,8,0.00,0.00,0.00,0.00,1.00,0.00,0.00,9,9,1.00,0.00,"
KDD_ROW += "0.11,0.00,0.00,0.00,0.00,0.00,"
LOAN_NAMES = "id,loan_amnt,term,int_rate,annual_inc,dti,revol_util,delinq_2yrs,inq_last_6mths,open_acc,pub_rec,"
LOAN_NAMES += "revol_bal,total_acc,issue_d,earliest_cr_line\n"
HAR_Y = "UCI HAR Dataset/test/y_test.txt"
LOAN = '"","5000"," 36 months"," 10.65%","24000","27.65","83.7%","0","1","3","0","13648","9","Dec-2011","Jan-1985"\n'


def idx(magic: int, *sizes: int, body: bytes) -> bytes:
    return gzip.compress(struct.pack(f">{1 + len(sizes)}I", magic, *sizes) + body)


def zipped(**files: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return data.getvalue()


def tarred(**files: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


def images(n: int) -> bytes:
    return bytes(i % 251 for i in range(784 * n))


def windows(part: str, y: str) -> dict[str, str]:
    n = len(y.split())
    features = "\n".join("  ".join(f"{j / 561 - i / 10:.7e}" for j in range(561)) for i in range(n))
    texts = {"X": features, "y": y, "subject": "\n".join(["7"] * n)}
    return {f"UCI HAR Dataset/{part}/{name}_{part}.txt": text for name, text in texts.items()}


PUBLISHED: Mapping[str, bytes] = {
    "adult.data": f"{ADULT_ROW}<=50K\n{ADULT_ROW}>50K\n\n".encode(),
    "adult.test": f"|1x3 Cross validator\n{ADULT_ROW}<=50K.\n\n".encode(),
    "cod-rna": b"-1 1:-766 2:128 3:0.140625 8:0.25\n1 2:5\n",
    "covtype.data.gz": gzip.compress(f"2596,51,3,{'0,' * 51}5\n2590,56,2,{'1,' * 51}2\n".encode()),
    "url_svmlight.tar.gz": tarred(
        **{f"url_svmlight/Day{day}.svm": f"+1 4:0.5 3231961:1\n-1 {day + 1}:1\n" for day in range(20)}
    ),
    "kddcup.data_10_percent.gz": gzip.compress(f"{KDD_ROW}normal.\n{KDD_ROW}smurf.\n".encode()),
    "corrected.gz": gzip.compress(f"{KDD_ROW}normal.\n".encode()),
    "train-images-idx3-ubyte.gz": idx(2051, 3, 28, 28, body=images(3)),
    "train-labels-idx1-ubyte.gz": idx(2049, 3, body=b"\x05\x00\x09"),
    "t10k-images-idx3-ubyte.gz": idx(2051, 1, 28, 28, body=images(1)),
    "t10k-labels-idx1-ubyte.gz": idx(2049, 1, body=b"\x07"),
    "UCI HAR Dataset.zip": zipped(**windows("train", "5\n1\n"), **windows("test", "6\n")),
    "LoanStats3a.csv.zip": zipped(
        **{"LoanStats3a.csv": f"Notes offered by Prospectus (...)\n{LOAN_NAMES}{LOAN}Total funded: 460296150\n{LOAN}"}
    ),
    "creditcard.csv": ('"Time","V1","Amount","Class"\n' + '0,-1.36,149.62,"0"\n' * 9 + '406,-2.31,0,"1"\n').encode(),
}
"""Each publisher's files, of a few rows."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The publishers' small files, in a folder; their digests take the places of the large ones'."""
    given = tmp_path / "given"
    given.mkdir()
    for name, data in PUBLISHED.items():
        (given / name).write_bytes(data)
    monkeypatch.setattr(fetch_data, "SOURCES", {name: redigested(parts) for name, parts in SOURCES.items()})
    monkeypatch.setenv("PARLEY_DATA", str(tmp_path / "data"))
    return given


def redigested(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple(Part(part.path, part.convert, tuple(map(redigest, part.addresses))) for part in parts)


def redigest(address: str) -> str:
    url, mark, _ = address.partition("#sha256=")
    data = PUBLISHED[url.rpartition("/")[2].replace("%20", " ")]
    return url + mark + (hashlib.sha256(data).hexdigest() if mark else "")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int | str | None:
    """The exit status of the command, or the message that it exits with."""
    monkeypatch.setattr(sys, "argv", ["fetch_data.py", *map(str, arguments)])
    with pytest.raises(SystemExit) as raised:
        fetch_data.main()
    return raised.value.code


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} if folder.exists() else set()


def test_every_set_of_its_publishers_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not run(monkeypatch, "--from", folder)
    data = tmp_path / "data"
    assert files(data) == {part.path for parts in SOURCES.values() for part in parts}
    assert (
        f"cod-rna: SHA-256 {hashlib.sha256(PUBLISHED['cod-rna']).hexdigest()}, not checked" in capsys.readouterr().out
    )
    assert not run(monkeypatch, "--from", folder)
    assert capsys.readouterr().out.count("is there already") == len(SOURCES)

    train, test = (read_columns(data / "adult" / f"adult-{part}.parquet") for part in ("train", "test"))
    assert train["income"].tolist() == ["<=50K", ">50K"]
    assert (test["workclass"][0], test["income"].tolist()) == ("State-gov", ["<=50K"])
    assert (train["age"][0], train["capital_gain"][0]) == (39, 2174)

    rna = read_columns(data / "cod-rna" / "cod-rna-train.parquet")
    assert rna["label"].tolist() == [-1, 1]
    assert [rna[f"x{i}"].tolist() for i in (1, 2, 3, 8)] == [[-766, 0], [128, 5], [0.140625, 0], [0.25, 0]]

    kdd = read_columns(data / "kdd99" / "train-10pct.parquet")
    assert kdd["label"].tolist() == ["normal", "smurf"]
    assert (kdd["service"][0], kdd["dst_bytes"][0], kdd["dst_host_same_src_port_rate"][0]) == ("http", 5450, 0.11)

    digits = read_columns(data / "mnist" / "train.parquet")
    assert digits["label"].tolist() == [5, 0, 9]
    assert b"".join(digits["image"].tolist()) == images(3)

    har = read_columns(data / "har-smartphones" / "har-train.parquet")
    assert (har["activity"].tolist(), har["subject"].tolist()) == ([5, 1], [7, 7])
    assert har["f561"] == pytest.approx([560 / 561, 560 / 561 - 0.1], abs=1e-6)

    rates = complete(LENDING_CLUB, loans(read_columns(data / "lending-club" / "loans-2007-2011.parquet")))
    assert rates["int_rate"] == pytest.approx([0.1065, 0.1065])
    assert [rates[name][0] for name in ("credit_years", "term_months", "revol_util")] == pytest.approx([26, 36, 0.837])

    cards = read_columns(data / "creditcard-subset" / "creditcard-subset.parquet")
    assert cards["Class"].tolist() == [0] * 9 + [1]


def test_a_sample_of_card_transactions_keeps_every_fraud() -> None:
    frauds = np.random.default_rng(1).random(10_000) < 0.01
    text = "Time,Class\n" + "\n".join(f"{time},{int(fraud)}" for time, fraud in enumerate(frauds))
    kept = fetch_data.creditcard(text.encode())
    assert kept.num_rows == frauds.sum() + fetch_data.LEGAL_ROWS
    assert kept["Class"].to_numpy().sum() == frauds.sum()
    assert (np.diff(kept["Time"].to_numpy()) > 0).all()


def test_forests_and_addresses_of_their_publishers_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not run(monkeypatch, "covertype", "url", "--from", folder)
    forests = read_columns(tmp_path / "data" / "covertype" / "covtype.parquet")
    assert (forests["Cover_Type"].tolist(), forests["Soil_Type_39"].tolist()) == ([5, 2], [0, 1])
    assert [forests[name][0] for name in ("Elevation", "Slope", "Wilderness_Area_0")] == [2596, 3, 0]
    urls = read_columns(tmp_path / "data" / "url-subset" / "url-subset.parquet")
    assert urls["label"].tolist() == [1, -1] * fetch_data.URL_DAYS
    assert [urls["index"][row].tolist() for row in (0, 1, 39)] == [[4, 3231961], [1], [20]]
    assert urls["value"][0].tolist() == [0.5, 1]


def test_a_sample_of_addresses_is_of_each_of_the_first_days() -> None:
    days = {f"Day{day}.svm": "".join(f"-1 {row + 1}:{day}\n" for row in range(400)) for day in range(21)}
    kept = fetch_data.url(tarred(**days))
    drawn = [values[0] for values in kept["value"].to_pylist()]
    assert drawn == np.repeat(np.arange(fetch_data.URL_DAYS), fetch_data.URL_ROWS).tolist()
    rows = [index[0] for index in kept["index"].to_pylist()]
    assert rows[: fetch_data.URL_ROWS] == sorted(set(rows[: fetch_data.URL_ROWS]))
    assert rows[: fetch_data.URL_ROWS] != rows[fetch_data.URL_ROWS : 2 * fetch_data.URL_ROWS]


def test_a_name_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no set wine; there are adult" in str(run(monkeypatch, "adult", "wine"))


def test_a_folder_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARLEY_DATA", raising=False)
    assert "PARLEY_DATA is not set" in str(run(monkeypatch, "adult"))


@pytest.mark.parametrize(
    ("name", "file", "data", "said"),
    [
        ("adult", "adult.test", None, "adult.test cannot be read in"),
        ("adult", "adult.test", b"another", "has the SHA-256"),
        ("cod-rna", "cod-rna", b"-1 9:1\n", "cannot be made of the publisher's file"),
        ("cod-rna", "cod-rna", b"one 1:1\n", "cannot be made of the publisher's file"),
    ],
)
def test_a_set_that_fails_leaves_nothing_behind(  # noqa: PLR0913, PLR0917 -- fixtures, and what is wrong
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str,
    file: str, data: bytes | None, said: str,
) -> None:  # fmt: skip
    (folder / file).unlink()
    if data is not None:
        (folder / file).write_bytes(data)
    assert run(monkeypatch, name, "har-smartphones", "--from", folder) == 1
    assert said in capsys.readouterr().err
    assert files(tmp_path / "data") == {part.path for part in SOURCES["har-smartphones"]}


@pytest.mark.parametrize(
    ("convert", "data"),
    [
        (fetch_data.mnist, (idx(2051, 3, 28, 28, body=images(3)), idx(2049, 2, body=b"\x01\x02"))),
        (fetch_data.mnist, (idx(2049, 3, body=images(1)), idx(2049, 2, body=b"\x01\x02"))),
        (fetch_data.mnist, (idx(2051, 3, 28, 28, body=images(1)), idx(2049, 3, body=b"\x01\x02\x03"))),
        (fetch_data.mnist, (b"no gzip", b"nor this")),
        (fetch_data.mnist, (idx(2051, 3, 28, 28, body=images(3))[:-20], b"")),
        (fetch_data.kdd99, (gzip.compress(b"0,tcp,http\n"),)),
        (fetch_data.adult, (b"39, State-gov\n",)),
        (fetch_data.lending_club, (zipped(**{"LoanStats3a.csv": "id,amount\n1,2\n"}),)),
        (fetch_data.lending_club, (b"no archive",)),
        (fetch_data.creditcard, (b"Time,Amount\n0,1\n",)),
        (fetch_data.SOURCES["har-smartphones"][0].convert, (zipped(**{"README.txt": "moved"}),)),
        (fetch_data.SOURCES["har-smartphones"][1].convert, (zipped(**windows("test", "1") | {HAR_Y: "1 2"}),)),
        (fetch_data.creditcard, (b"",)),
        (fetch_data.covertype, (gzip.compress(b"2596,51,3\n"),)),
        (fetch_data.url, (tarred(**{"Day0.svm": "+1 1:1\n"}),)),
        (fetch_data.url, (b"no archive",)),
    ],
)  # fmt: skip
def test_a_file_of_another_format_is_told_in_words(tmp_path: Path, convert: object, data: tuple[bytes, ...]) -> None:
    names = [f"file-{i}" for i in range(len(data))]
    for name, each in zip(names, data, strict=True):
        (tmp_path / name).write_bytes(each)
    part = Part("set/part.parquet", convert, tuple(f"https://publisher.example/{name}" for name in names))  # type: ignore[arg-type]
    with pytest.raises(FetchError, match=r"set/part.parquet cannot be made of the publisher's file: ."):
        fetch((part,), tmp_path / "data", tmp_path)
    assert not (tmp_path / "data").exists() or not any((tmp_path / "data").iterdir())


def test_a_folder_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(FetchError, match="cannot be written below"):
        fetch(fetch_data.SOURCES["cod-rna"], tmp_path / "data", folder)


def test_a_download_follows_and_a_publisher_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(url: str, **terms: object) -> httpx.Response:
        assert terms["follow_redirects"] is True
        status, content = (200, PUBLISHED["cod-rna"]) if url.endswith("cod-rna") else (404, b"")
        return httpx.Response(status, content=content, request=httpx.Request("GET", url))

    monkeypatch.setattr(httpx, "get", get)
    assert "wrote cod-rna/cod-rna-train.parquet" in fetch(SOURCES["cod-rna"], tmp_path / "data", None)
    with pytest.raises(FetchError, match=r"LoanStats3a.csv.zip cannot be fetched .*404.* by --from FOLDER"):
        fetch(SOURCES["lending-club"], tmp_path / "data", None)
    assert files(tmp_path / "data") == {"cod-rna/cod-rna-train.parquet"}
