"""Public data sets into the folder ``$PARLEY_DATA``, from their publishers or from files that the user has.

    PARLEY_DATA=... python -m scripts.fetch_data [NAME ...] [--from FOLDER]

Without names, every set of `SOURCES`. A set becomes the Parquet files that the figures, tests and benchmarks read; one
that is there already is left alone. ``--from`` takes a folder that holds the publishers' files under their own names,
and nothing is downloaded: some publishers ask for an account, or have taken their files away.

A file's SHA-256 is checked where it is known, and printed where it is not. The digests are those that users of the
files recorded: UCI, the KDD archive, MNIST's authors, Worldline and Lending Club published none. Files appear whole,
and once all of their set could be made. The exit status is 1 where a set failed, which is said.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np
import pyarrow as pa
from pyarrow import compute, csv
from pyarrow.parquet import write_table

ADULT = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship", "race",
    "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income",
)  # fmt: skip
KDD99 = (
    "duration", "protocol_type", "service", "flag", "src_bytes", "dst_bytes", "land", "wrong_fragment", "urgent", "hot",
    "num_failed_logins", "logged_in", "num_compromised", "root_shell", "su_attempted", "num_root", "num_file_creations",
    "num_shells", "num_access_files", "num_outbound_cmds", "is_host_login", "is_guest_login", "count", "srv_count",
    "serror_rate", "srv_serror_rate", "rerror_rate", "srv_rerror_rate", "same_srv_rate", "diff_srv_rate",
    "srv_diff_host_rate", "dst_host_count", "dst_host_srv_count", "dst_host_same_srv_rate", "dst_host_diff_srv_rate",
    "dst_host_same_src_port_rate", "dst_host_srv_diff_host_rate", "dst_host_serror_rate", "dst_host_srv_serror_rate",
    "dst_host_rerror_rate", "dst_host_srv_rerror_rate", "label",
)  # fmt: skip
LOANS = (
    "loan_amnt", "term", "int_rate", "annual_inc", "dti", "revol_util", "delinq_2yrs", "inq_last_6mths", "open_acc",
    "pub_rec", "revol_bal", "total_acc", "issue_d", "earliest_cr_line",
)  # fmt: skip
COVERTYPE = (
    "Elevation", "Aspect", "Slope", "Horizontal_Distance_To_Hydrology", "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways", "Hillshade_9am", "Hillshade_Noon", "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points", *(f"Wilderness_Area_{i}" for i in range(4)),
    *(f"Soil_Type_{i}" for i in range(40)), "Cover_Type",
)  # fmt: skip
"""As scikit-learn names them: the publisher's file has no header."""
HAR_FEATURES, COD_RNA_FEATURES = 561, 8
IMAGES, LABELS, PIXELS = 2051, 2049, 784
LEGAL_ROWS = 8_451
"""How many of the transactions that are no frauds are kept: 3 %."""
URL_DAYS, URL_ROWS = 20, 285
"""Of how many days malicious addresses are taken, the first, and how many rows of each."""


class FetchError(Exception):
    """A set could not be had; the message says why."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a set: where it goes, and the publisher's files whose bytes are converted to it.

    An address ends in ``#sha256=...`` where somebody recorded the digest.
    """

    path: str
    convert: Callable[..., pa.Table]
    addresses: tuple[str, ...]


def adult(data: bytes) -> pa.Table:
    """UCI's comma-separated rows, without the test file's first line and the points after its labels."""
    read = _rows(data.removeprefix(b"|1x3 Cross validator\n"), ADULT)
    texts = {name: _trimmed(read[name]) for name in ADULT if pa.types.is_string(read[name].type)}
    return pa.table({name: texts.get(name, read[name]) for name in ADULT})


def kdd99(data: bytes) -> pa.Table:
    """The KDD archive's comma-separated rows, compressed, without the points after the labels."""
    read = _rows(gzip.decompress(data), KDD99)
    return read.set_column(KDD99.index("label"), "label", _trimmed(read["label"]))


def cod_rna(data: bytes) -> pa.Table:
    """LIBSVM's rows, ``label index:value ...``; an index left out is 0."""
    lines = [line.split() for line in data.decode("ascii").splitlines() if line.strip()]
    values = np.zeros((COD_RNA_FEATURES, len(lines)))
    for row, (_, *pairs) in enumerate(lines):
        for pair in pairs:
            index, _, value = pair.partition(":")
            values[int(index) - 1, row] = float(value)
    labels = pa.array([int(float(line[0])) for line in lines], pa.int8())
    return pa.table({"label": labels} | {f"x{i}": column for i, column in enumerate(values, start=1)})


def covertype(data: bytes) -> pa.Table:
    """Read UCI's comma-separated rows, which are compressed."""
    return _rows(gzip.decompress(data), COVERTYPE)


def url(data: bytes) -> pa.Table:
    """Some rows of each of the first days of the publisher's archive of LIBSVM files, drawn once; indices from 1."""
    labels, indices, values = [], [], []
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        days = {member.name.rpartition("/")[2]: member for member in archive.getmembers()}
        for day in range(URL_DAYS):
            file = archive.extractfile(days[f"Day{day}.svm"])
            lines = file.read().splitlines() if file else []
            for row in np.sort(np.random.default_rng([2009, day]).permutation(len(lines))[:URL_ROWS]):
                label, *pairs = lines[row].split()
                labels.append(int(label))
                cells = [pair.split(b":") for pair in pairs]
                indices.append([int(index) for index, _ in cells])
                values.append([float(value) for _, value in cells])
    return pa.table({
        "label": pa.array(labels, pa.int8()),
        "index": pa.array(indices, pa.list_(pa.int32())),
        "value": pa.array(values, pa.list_(pa.float32())),
    })  # fmt: skip


def mnist(images: bytes, labels: bytes) -> pa.Table:
    """Two IDX files: 28 x 28 bytes an image, a byte a label."""
    pixels, digits = _idx(images, IMAGES, 16), _idx(labels, LABELS, 8)
    if len(pixels) != PIXELS * len(digits):
        raise ValueError(f"{len(digits)} labels for {len(pixels)} pixels")
    image = pa.FixedSizeBinaryArray.from_buffers(pa.binary(PIXELS), len(digits), [None, pa.py_buffer(pixels)])
    return pa.table({"label": np.frombuffer(digits, np.uint8), "image": image})


def har(part: str, data: bytes) -> pa.Table:
    """The publisher's archive: 561 features a window, whose it is, and what was done."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        X, y, subject = (
            np.array(archive.read(f"UCI HAR Dataset/{part}/{name}_{part}.txt").split(), dtype=np.float32)
            for name in ("X", "y", "subject")
        )
    columns = X.reshape(len(y), HAR_FEATURES).T
    names = {f"f{i:03d}": np.ascontiguousarray(column) for i, column in enumerate(columns, start=1)}
    return pa.table({"subject": subject.astype(np.int8), "activity": y.astype(np.int8)} | names)


def lending_club(data: bytes) -> pa.Table:
    """The publisher's archive of a CSV file: a line before the header is none, nor is a row of other cells."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        text = archive.read(archive.namelist()[0])
    start = text.index(b"\n") + 1 if text.startswith(b"Notes offered") else 0
    read = csv.read_csv(
        io.BytesIO(text[start:]),
        parse_options=csv.ParseOptions(invalid_row_handler=lambda _: "skip"),
        convert_options=csv.ConvertOptions(include_columns=list(LOANS), strings_can_be_null=True),
    )
    return read.filter(compute.is_valid(read["int_rate"]))


def creditcard(data: bytes) -> pa.Table:
    """Every fraud of the publisher's CSV file, and 3 % of the other transactions, drawn once; in the file's order."""
    read = csv.read_csv(io.BytesIO(data))
    frauds = read["Class"].to_numpy() == 1
    legal = np.random.default_rng(2013).permutation(np.flatnonzero(~frauds))[:LEGAL_ROWS]
    return read.take(np.sort(np.concatenate([np.flatnonzero(frauds), legal])))


def _rows(data: bytes, names: Sequence[str]) -> pa.Table:
    """Read comma-separated rows without a header."""
    return csv.read_csv(io.BytesIO(data), read_options=csv.ReadOptions(column_names=list(names)))


def _trimmed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts without blanks around them, and without a point behind."""
    return compute.utf8_rtrim(compute.utf8_trim_whitespace(column), characters=".")


def _idx(data: bytes, magic: int, header: int) -> bytes:
    """What follows the header of a compressed IDX file; raises ValueError for one of another kind or length."""
    raw = gzip.decompress(data)
    sizes = np.frombuffer(raw[:header], ">u4")
    if sizes[0] != magic or len(raw) - header != int(np.prod(sizes[1:], dtype=np.int64)):
        raise ValueError(f"an IDX file of kind {magic} was expected")
    return raw[header:]


_ARCHIVES = (zipfile.BadZipFile, tarfile.TarError)
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_KDD = f"{_UCI}/kddcup99-mld"
_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist"
_LOANS = "https://resources.lendingclub.com"
_CARDS = "https://storage.googleapis.com/download.tensorflow.org/data"
_HAR = f"{_UCI}/00240/UCI%20HAR%20Dataset.zip#sha256=2045e435c955214b38145fb5fa00776c72814f01b203fec405152dac7d5bfeb0"

SOURCES: Mapping[str, tuple[Part, ...]] = {
    "adult": (
        Part("adult/adult-train.parquet", adult, (
            f"{_UCI}/adult/adult.data#sha256=5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        )),
        Part("adult/adult-test.parquet", adult, (
            f"{_UCI}/adult/adult.test#sha256=a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        )),
    ),
    "cod-rna": (
        Part("cod-rna/cod-rna-train.parquet", cod_rna, (
            "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/cod-rna",
        )),
    ),
    "covertype": (
        Part("covertype/covtype.parquet", covertype, (
            f"{_UCI}/covtype/covtype.data.gz#sha256=614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
        )),
    ),
    "kdd99": (
        Part("kdd99/train-10pct.parquet", kdd99, (
            f"{_KDD}/kddcup.data_10_percent.gz#sha256=8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561",
        )),
        Part("kdd99/test-corrected.parquet", kdd99, (
            f"{_KDD}/corrected.gz#sha256=abd8165508378859b07e38537271f0ebf8a4d7319f643188cd7361e939a05c43",
        )),
    ),
    "mnist": (
        Part("mnist/train.parquet", mnist, (
            f"{_MNIST}/train-images-idx3-ubyte.gz#sha256=440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            f"{_MNIST}/train-labels-idx1-ubyte.gz#sha256=3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        )),
        Part("mnist/test.parquet", mnist, (
            f"{_MNIST}/t10k-images-idx3-ubyte.gz#sha256=8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            f"{_MNIST}/t10k-labels-idx1-ubyte.gz#sha256=f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        )),
    ),
    "har-smartphones": tuple(
        Part(f"har-smartphones/har-{part}.parquet", partial(har, part), (_HAR,)) for part in ("train", "test")
    ),
    "lending-club": (
        Part("lending-club/loans-2007-2011.parquet", lending_club, (
            f"{_LOANS}/LoanStats3a.csv.zip#sha256=6f93fc97f0ad26718ed66c6199931ac6204ce80d7c14da0215b529b0891f12be",
        )),
    ),
    "creditcard": (
        Part("creditcard-subset/creditcard-subset.parquet", creditcard, (
            f"{_CARDS}/creditcard.csv#sha256=76274b691b16a6c49d3f159c883398e03ccd6d1ee12d9d8ee38f4b4b98551a89",
        )),
    ),
    "url": (
        Part("url-subset/url-subset.parquet", url, (f"{_UCI}/url/url_svmlight.tar.gz",)),
    ),
}  # fmt: skip
"""Each public set, by name."""


def main() -> None:
    """Fetch what was asked for; say what became of each set."""
    parser = argparse.ArgumentParser(description="Public data sets into the folder $PARLEY_DATA.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SOURCES)} (default: all)")
    parser.add_argument("--from", dest="folder", type=Path, help="take the publishers' files from here, and no network")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in SOURCES]:
        sys.exit(f"there is no set {', '.join(unknown)}; there are {', '.join(SOURCES)}")
    if not os.environ.get("PARLEY_DATA"):
        sys.exit("PARLEY_DATA is not set: it names the folder that the sets go to")
    failed = False
    for name in options.names or SOURCES:
        try:
            print(f"{name}: {fetch(SOURCES[name], Path(os.environ['PARLEY_DATA']), options.folder)}", flush=True)
        except FetchError as error:
            failed = True
            print(f"{name}: {error}", file=sys.stderr, flush=True)
    sys.exit(failed)


def fetch(parts: Sequence[Part], target: Path, copies: Path | None) -> str:
    """Write a set below ``target``; if that fails, no new file of it is left, and FetchError is raised."""
    if all((target / part.path).exists() for part in parts):
        return "is there already"
    data = {address: _publishers(address, copies) for part in parts for address in part.addresses}
    try:
        target.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target, prefix=".fetching-") as draft:
            for index, part in enumerate(parts):
                write_table(_converted(part, data), Path(draft, str(index)), compression="zstd")
            for index, part in enumerate(parts):
                (target / part.path).parent.mkdir(exist_ok=True)
                Path(draft, str(index)).replace(target / part.path)
    except OSError as error:
        raise FetchError(f"cannot be written below {target}: {error.strerror}") from None
    return f"wrote {', '.join(part.path for part in parts)}"


def _publishers(address: str, copies: Path | None) -> bytes:
    """A publisher's file, from its address or from a folder, if it is the one that was recorded."""
    url, _, recorded = address.partition("#sha256=")
    name = url.rpartition("/")[2].replace("%20", " ")
    try:
        data = _download(url) if copies is None else (copies / name).read_bytes()
    except OSError as error:
        raise FetchError(f"{name} cannot be read in {copies}: {error.strerror}") from None
    except httpx.HTTPError as error:
        reason = str(error).partition("\n")[0]
        raise FetchError(f"{url} cannot be fetched ({reason}): give a copy, {name!r}, by --from FOLDER") from None
    digest = hashlib.sha256(data).hexdigest()
    if not recorded:
        print(f"{name}: SHA-256 {digest}, not checked: none is recorded")
    elif digest != recorded:
        raise FetchError(f"{name} has the SHA-256 {digest}, not {recorded}: it is another file")
    return data


def _download(url: str) -> bytes:
    """Download the content of an address; raises httpx.HTTPError."""
    return httpx.get(url, follow_redirects=True, timeout=120).raise_for_status().content


def _converted(part: Part, data: Mapping[str, bytes]) -> pa.Table:
    """A file of a set; raises FetchError for what is not of the publisher's format."""
    try:
        return part.convert(*(data[address] for address in part.addresses))
    except (ValueError, KeyError, EOFError, OSError, IndexError, *_ARCHIVES, pa.ArrowException) as error:
        raise FetchError(f"{part.path} cannot be made of the publisher's file: {error}") from None


if __name__ == "__main__":
    main()
