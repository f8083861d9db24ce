"""Data for simulation: what is drawn, how it is split and dealt, and what is refused."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from parley.common.data.columns import Columns, Feature, Label, RealLabel
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.data.study import Person, Study
from parley.common.encoding.classes import decode_classes
from parley.common.errors import InvalidDataError, InvalidInputError, ParleyError
from parley.common.files.tables import read_columns
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Logistic, Softmax, Squared
from parley.common.learning.metrics import accuracy
from parley.common.learning.model import Model
from parley.learner.experiments.datasets import (
    DIGITS,
    WDBC,
    deal,
    digits_columns,
    examples,
    load_dataset,
    random_sizes,
    shard_sizes,
    simulated,
    sizes_by_shares,
    wdbc_columns,
)

SMALL = Study(
    name="small",
    features=(Feature(name="age", lower=0, upper=100), Feature(name="dose", lower=0, upper=5)),
    label=Label(name="outcome", values=("0", "1")),
    row_norm=1.5,
)


def small_columns(n: int = 40) -> Columns:
    rng = np.random.default_rng(3)
    return {
        "age": rng.integers(0, 100, n),
        "dose": rng.uniform(0, 6, n),  # some beyond the bounds
        "outcome": rng.integers(0, 2, n),
    }


@pytest.fixture(params=["csv", "parquet"])
def small_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    columns = small_columns()
    path = tmp_path / f"small.{request.param}"
    if request.param == "csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    else:
        parquet.write_table(pa.table({name: pa.array(column) for name, column in columns.items()}), path)
    return path


def study_file(tmp_path: Path, study: Study = SMALL) -> Path:
    path = tmp_path / "study.json"
    path.write_text(study.model_dump_json())
    return path


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_breast_cancer_study_fits_its_data() -> None:
    columns = wdbc_columns()
    shard = shard_of(WDBC, columns, clip=True)
    assert set(columns) == {*WDBC.feature_names, "diagnosis"}
    assert shard.X.shape == (569, 31)
    assert (shard.y > 0).sum() == 212, "malignant is positive"
    with pytest.raises(InvalidDataError, match="mean_radius"):
        shard_of(WDBC, columns)


def test_the_bounds_of_the_breast_cancer_study_are_round_figures_near_one_spread() -> None:
    columns = wdbc_columns()
    for feature in WDBC.features:
        assert isinstance(feature, Feature)
        values = np.asarray(columns[feature.name], dtype=np.float64)
        centre, spread = (feature.lower + feature.upper) / 2, (feature.upper - feature.lower) / 2
        assert abs(centre - values.mean()) < 0.15 * values.std(), feature.name
        assert 0.85 < spread / values.std() < 1.2, feature.name
        assert centre != values.mean()
        assert len(f"{spread:.6g}".replace(".", "").strip("0")) <= 3, f"{feature.name}: not a round figure"


def test_simulated_examples_lie_in_the_ball_on_two_sides_of_a_plane() -> None:
    dataset = simulated()
    train, test = dataset.draw(rng())
    for shard in (train, test):
        assert shard.X.shape == (1000, 10)
        assert np.linalg.norm(shard.X, axis=-1).max() <= 1
        assert 400 < (shard.y > 0).sum() < 600
    weights = minimise(dataset.loss, train, 1e-6)
    assert accuracy(Model(weights), train) == 1.0, "linearly separable"
    assert accuracy(Model(weights), test) > 0.97


def test_points_may_be_uniform_in_the_ball() -> None:
    """Then |x|^d is uniform: by Hoeffding its mean over 2,000 examples is off by .065 with probability below 1e-6."""
    train, test = load_dataset("simulated-ball").draw(rng())
    norms = np.linalg.norm(np.concatenate([train.X, test.X]), axis=-1)
    assert norms.max() <= 1
    assert abs((norms**10).mean() - 0.5) < 0.065
    assert accuracy(Model(minimise(Logistic(), train, 1e-6)), train) == 1.0


def test_a_draw_is_its_generators_alone() -> None:
    for dataset in (simulated(), simulated(interior=True), load_dataset("wdbc")):
        first, again, other = (dataset.draw(rng(seed))[0].X for seed in (1, 1, 2))
        assert (first == again).all()
        assert (first != other).any()


def test_examples_are_held_out_once_and_all_used() -> None:
    train, test = load_dataset("wdbc").draw(rng())
    assert (train.X.shape[0], test.X.shape[0]) == (427, 142)
    everything = shard_of(WDBC, wdbc_columns(), clip=True)
    assert sorted(np.vstack([train.X, test.X]).tolist()) == sorted(everything.X.tolist())


def test_each_example_is_in_one_fold() -> None:
    dataset = load_dataset("wdbc")
    assert dataset.fold is not None
    parts = [dataset.fold(rng(), index, 5) for index in range(5)]
    everything = sorted(shard_of(WDBC, wdbc_columns(), clip=True).X.tolist())
    assert [len(test.y) for _, test in parts] == [114, 114, 114, 114, 113]
    assert sorted(np.vstack([test.X for _, test in parts]).tolist()) == everything
    for train, test in parts:
        assert sorted(np.vstack([train.X, test.X]).tolist()) == everything
    with pytest.raises(InvalidInputError, match="too few for 570 folds"):
        dataset.fold(rng(), 0, 570)
    assert simulated().fold is None


def test_a_file_of_either_kind_is_read_by_its_study(small_file: Path, tmp_path: Path) -> None:
    dataset = load_dataset(str(small_file), study_file(tmp_path))
    direct = examples(SMALL, shard_of(SMALL, small_columns(), clip=True))
    for mine, theirs in zip(dataset.draw(rng()), direct.draw(rng()), strict=True):
        assert (mine.X == theirs.X).all()
        assert (mine.y == theirs.y).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is missing"),
        ("", "cannot be read"),
        ("age,dose\n1,2\n", "outcome"),
        ("age,dose,outcome,age\n1,2,0,1\n", "twice: see places 1, 4"),
        ("age,dose,outcome\n1,2\n", "cannot be read"),
        ("age,dose,outcome\n", "no row"),
        ("age,dose,outcome\n1,2,0\n", "too few"),
        ("age,dose,outcome\n1,x777,0\n1,2,0\n", "'dose': not numeric in 1 row"),
        ("age,dose,outcome\n1,,0\n777,2,0\n", "'dose': missing in 1 row"),
        ("age,dose,outcome\n1,2,777\n1,2,0\n", "'outcome': unknown label in 1 row"),
    ],
)
def test_an_unfit_file_is_refused_without_a_value(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "data.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidInputError, match=message) as caught:
        load_dataset(str(path), study_file(tmp_path))
    assert "777" not in str(caught.value).replace(str(tmp_path), "")


def test_the_digits_are_ten_classes_of_64_pixels() -> None:
    dataset = load_dataset("digits")
    train, test = dataset.draw(rng())
    assert (dataset.kind, dataset.loss) == ("multiclass", Softmax(10))
    assert (train.X.shape, test.X.shape) == ((1348, 65), (449, 65))
    assert shard_of(DIGITS, digits_columns()).X.shape == (1797, 65)  # within the bounds, hence not clipped
    assert set(decode_classes(train.y, 10).tolist()) == set(range(10))


def test_a_real_label_may_be_simulated() -> None:
    label = RealLabel(name="dose", lower=0, upper=6)
    real = Study(name="real", features=SMALL.features[:1], label=label)
    dataset = examples(real, shard_of(real, small_columns(), clip=True))
    assert (dataset.kind, dataset.loss) == ("regression", Squared())
    assert load_dataset("wdbc").kind == load_dataset("simulated").kind == "binary"


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.parquet").write_text("age,dose\n1,2\n")
    (tmp_path / "folder.csv").mkdir()
    kinds = (
        ("data.docx", "must end in"),
        ("data.parquet", "cannot be read"),
        ("folder.csv", "of the files of a folder"),
    )
    for name, message in kinds:
        with pytest.raises(InvalidDataError, match=message):
            read_columns(tmp_path / name)


def test_what_cannot_be_simulated_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="needs a study"):
        load_dataset("breast.csv")
    with pytest.raises(ParleyError, match="cannot be read"):
        load_dataset("data.csv", tmp_path / "no-study.json")


@given(st.integers(1, 2000), st.integers(1, 40), st.floats(0, 3))
def test_sizes_grow_with_the_rank_and_add_up(n_examples: int, parties: int, skew: float) -> None:
    try:
        sizes = shard_sizes(n_examples, parties, skew)
    except InvalidInputError:
        # The smallest share may be rounded to nothing, or there are more parties than examples.
        assert n_examples / sum(k**skew for k in range(1, parties + 1)) < 1
        return
    assert len(sizes) == parties
    assert sum(sizes) == n_examples
    assert min(sizes) >= 1
    shares = np.arange(1, parties + 1) ** skew
    assert np.abs(np.array(sizes) - shares / shares.sum() * n_examples).max() <= 1


@pytest.mark.parametrize(
    ("n_examples", "parties", "skew"),
    [(10, 0, 0.0), (10, -1, 0.0), (10, 11, 0.0), (100, 15, 3.0), (10, 2, -1.0), (10, 2, np.nan), (10, 2, np.inf)],
)
def test_impossible_deals_are_refused(n_examples: int, parties: int, skew: float) -> None:
    with pytest.raises(InvalidInputError):
        shard_sizes(n_examples, parties, skew)


@given(st.integers(1, 500), st.lists(st.floats(0.01, 1), min_size=1, max_size=20))
def test_sizes_follow_the_shares(n_examples: int, shares: list[float]) -> None:
    wanted = np.array(shares) / sum(shares) * n_examples
    try:
        sizes = sizes_by_shares(n_examples, shares)
    except InvalidInputError:
        assert wanted.min() < 1
        return
    assert sum(sizes) == n_examples
    assert min(sizes) >= 1
    assert np.abs(np.array(sizes) - wanted).max() <= 1


def test_random_sizes_are_each_way_to_deal_as_often() -> None:
    """Of 6 examples to 3 parties there are 10 ways; 10,000 draws, six standard errors: a false alarm in 1e8."""
    seen: dict[tuple[int, ...], int] = {}
    generator = rng()
    for _ in range(10_000):
        sizes = random_sizes(6, 3, generator)
        seen[sizes] = seen.get(sizes, 0) + 1
    assert all(sum(sizes) == 6 and min(sizes) >= 1 for sizes in seen)
    assert len(seen) == 10
    assert max(abs(count - 1000) for count in seen.values()) < 6 * 30
    assert random_sizes(4, 4, generator) == (1, 1, 1, 1)
    for parties in (0, 5):
        with pytest.raises(InvalidInputError, match="too few"):
            random_sizes(4, parties, generator)


def test_dealing_keeps_every_row_and_its_label() -> None:
    train, _ = simulated(101, 4).draw(rng())
    stack = deal(train, (1, 40, 60))
    assert stack.X.shape == (3, 60, 4)
    assert stack.n_examples.tolist() == [1, 40, 60]
    pooled = stack.pooled()
    assert isinstance(pooled, Shard)
    assert (pooled.X == train.X).all()
    assert (pooled.y == train.y).all()


def test_a_quarter_is_held_out_and_the_others_are_trained_on() -> None:
    shard = Shard(np.linspace(-1, 1, 11)[:, None] / 2, np.tile([1.0, -1.0], 6)[:11])
    dataset = examples(SMALL, shard)
    order = rng(5).permutation(11)
    train, test = dataset.draw(rng(5))
    assert test.X.tolist() == shard.X[order[:2]].tolist()
    assert train.X.tolist() == shard.X[order[2:]].tolist()
    assert dataset.fold is not None
    train, test = dataset.fold(rng(5), 1, 4)
    assert test.X.tolist() == shard.X[order[3:6]].tolist()
    assert train.X.tolist() == shard.X[[*order[:3], *order[6:]]].tolist()
    assert len(dataset.fold(rng(5), 0, 11)[1].y) == 1
    assert (dataset.n_rows, dataset.study, dataset.unit, dataset.n_dropped, dataset.notes) == (11, SMALL, 1.0, 0, ())


def test_four_examples_are_enough_and_three_too_few() -> None:
    shard = Shard(np.full((4, 1), 0.5), np.ones(4))
    assert len(examples(SMALL, shard).draw(rng())[1].y) == 1
    with pytest.raises(InvalidInputError) as refused:
        examples(SMALL, shard.take(np.arange(3)))
    assert refused.value.detail == "3 examples are too few to hold some out for a test"


def test_the_unit_of_a_real_label_is_half_its_range() -> None:
    label = RealLabel(name="dose", lower=2, upper=6)
    real = Study(name="real", features=SMALL.features[:1], label=label)
    columns = {**small_columns(), "dose": np.full(40, 3.0)}
    assert examples(real, shard_of(real, columns, clip=True)).unit == 2.0


def test_a_file_tells_which_rows_are_empty_and_how_it_is_read(tmp_path: Path) -> None:
    study = study_file(tmp_path, SMALL.model_copy(update={"missing": "drop"}))
    rows = "".join(f"{i};{'' if i % 3 else i % 5},5;{i % 2}\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f"age;dose;outcome\n{rows}".replace(";,5", ";"))
    found = load_dataset(str(tmp_path / "t.csv"), study)
    assert (found.n_rows, found.n_dropped, dict(found.missing)) == (20, 13, {"dose": 13})
    assert found.notes == ("read as: semicolons, decimal comma",)
    said = load_dataset(str(tmp_path / "t.csv"), study, csv="separator=; decimal=, missing=18")
    assert (said.n_dropped, dict(said.missing)) == (14, {"dose": 13, "age": 1})


def test_tables_that_a_query_reads_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,dose,outcome\n" + "".join(f"{i},1,{i % 2}\n" for i in range(8)))
    query = "SELECT * FROM rows"
    assert load_dataset(query, study_file(tmp_path), [f"rows={tmp_path / 't.csv'}"]).n_rows == 8


def test_data_of_no_name_are_refused_in_full() -> None:
    with pytest.raises(InvalidInputError) as refused:
        load_dataset("breast.csv")
    assert refused.value.detail == (
        "data 'breast.csv' is none of wdbc, digits, simulated, simulated-ball; a file of data, or a query, needs a "
        "study"
    )


def test_simulated_examples_are_new_and_on_the_sphere_or_in_the_ball() -> None:
    on, inside = load_dataset("simulated").draw(rng()), load_dataset("simulated-ball").draw(rng())
    assert np.linalg.norm(on[0].X, axis=-1) == pytest.approx(np.ones(1000), abs=1e-4)
    assert np.linalg.norm(inside[0].X, axis=-1).min() < 0.9
    assert (load_dataset("simulated").n_rows, load_dataset("simulated").unit) == (0, 1.0)
    normal = rng().standard_normal(10)
    assert set(on[0].y.tolist()) == {-1.0, 1.0}
    assert (np.sign(on[1].X @ normal) == on[1].y).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 0), "parties must be positive and skew not negative, not 0 and 0.0"),
        ((10, 11), "10 examples are too few for that many parties: each needs one"),
        ((100, 15, 3.0), "100 examples are too few for 15 parties of such shares"),
    ],
)
def test_why_a_deal_is_impossible_is_said_in_full(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        shard_sizes(*arguments)
    assert refused.value.detail == message


def test_deals_at_their_limits() -> None:
    assert shard_sizes(3, 3) == (1, 1, 1)
    assert shard_sizes(7, 1, 2.0) == (7,)
    assert sizes_by_shares(10, (3, 1)) == (8, 2)
    assert sum(random_sizes(9, 1, rng())) == 9


def of_persons(n_persons: int = 12) -> Shard:
    """Rows of persons who have 1 to 3 each, in whose first column stands who it is."""
    who = np.repeat(np.arange(n_persons), np.arange(n_persons) % 3 + 1)
    X = np.column_stack([who / n_persons, np.arange(len(who)) / 100])
    return Shard(X, np.where(who % 2, 1.0, -1.0), norm="max", begins=np.diff(who, prepend=-1) > 0)


def test_all_rows_of_a_person_are_for_the_test_or_of_one_owner() -> None:
    shard = of_persons()
    data = examples(SMALL, shard)
    assert data.n_rows == len(shard.y) == 24
    assert data.fold is not None
    for train, test in (data.draw(rng()), data.fold(rng(), 1, 3)):
        owners = deal(train, shard_sizes(int(train.n_examples), 3))
        parts = [test, *map(owners.party, range(3))]
        who = [set(part.X[:, 0].tolist()) for part in parts]
        assert [len(some) for some in who] == [int(part.n_examples) for part in parts]
        assert len(set().union(*who)) == sum(map(len, who)) == 12
        assert sum(int(part.n_rows) for part in parts) == 24
        assert all((part.weights.sum() == part.n_examples).all() for part in parts)
    train, test = data.draw(rng())
    assert (int(train.n_examples), int(test.n_examples)) == (9, 3)


def test_a_file_is_split_by_the_column_that_says_whose_a_row_is(tmp_path: Path) -> None:
    """Persons' rows stand apart in it, 7 and 007 are one person, and of three rows each the first two count."""
    table = tmp_path / "visits.csv"
    visits = [f"{20 + who},{visit},{who % 2},{who:0{visit + 1}}" for visit in range(3) for who in range(10)]
    table.write_text("\n".join(["age,dose,outcome,patient", *visits]))
    study = SMALL.model_copy(update={"person": Person(column="patient", most_rows=2)})
    data = load_dataset(str(table), study_file(tmp_path, study))
    train, test = data.draw(rng())
    assert (data.n_rows, int(train.n_examples), int(test.n_examples)) == (20, 8, 2)
    assert (int(train.n_rows), int(test.n_rows)) == (16, 4)
    assert set(train.X[:, 0].tolist()).isdisjoint(test.X[:, 0].tolist())
