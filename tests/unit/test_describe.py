"""Descriptions: the exact sums of a table, how far a record moves them, and intervals that hold at their rate."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from parley.common.algorithms import build_algorithm
from parley.common.algorithms.describe import Describe
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.columns import Category, Columns, Feature, Label, RealLabel, RowNorm
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.encoding.fixed_point import Norm, to_reals
from parley.common.errors import InvalidInputError
from parley.common.forecast.forecast import NoForecast, forecast
from parley.common.learning.column_sums import SQUARES, ColumnChoice, ColumnSums, NumberSums
from parley.common.learning.description import DescribedNumber, DescribedValues, Description, Estimate, Part, read_sums
from parley.common.learning.model import Model
from parley.common.privacy.calibration import gaussian_sigma
from parley.common.privacy.noise import NoNoise, SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from parley.common.runs.description import description_of
from parley.common.runs.model_document import model_document
from parley.common.runs.specification import Budget, Member, RunSpec

FEATURES = (
    Feature(name="age", lower=0, upper=100),
    Category(name="work", values=("state", "private"), other=True),
    Feature(name="gain", lower=-5, upper=5),
)
CLASSES = Label(name="repaid", values=("no", "yes"))
LOANS = Study(name="loans", features=FEATURES, label=CLASSES, missing="drop")
HOUSES = Study(name="houses", features=FEATURES[:1], label=RealLabel(name="price", lower=0, upper=1000))
WITHOUT = LOANS.model_copy(update={"intercept": False})
N = 900


def table(n: int = N, seed: int = 1) -> dict[str, Any]:
    """Loans: whole ages, many of them on the edges of ten bins; gains at their bounds; some values missing."""
    rng = np.random.default_rng(seed)
    gain = np.clip(rng.normal(2, 3, n), -5, 5)
    gain[::50] = np.nan
    return {
        "age": rng.integers(0, 101, n).astype(float),
        "work": rng.choice(["state", "private", "own", "none"], n),
        "gain": gain,
        "repaid": rng.choice(["no", "yes"], n, p=[0.7, 0.3]),
    }


def asked(bins: int = 10, *, moments: bool = True, **columns: int | None) -> ColumnChoice:
    return ColumnChoice(columns, bins, moments)


def described(
    study: Study, columns: Columns, what: ColumnChoice | None = None, *, deviation: float = 0.0, n: int = N
) -> Description:
    """What the sums of a table say, with noise of a deviation taken for granted but not added."""
    sums = ColumnSums.of(study, what or asked())
    return read_sums(sums, to_reals(sums.add_up(shard_of(study, columns))), deviation, n)


def number(description: Description, name: str) -> DescribedNumber:
    (found,) = [column for column in description.columns if column.name == name]
    assert isinstance(found, DescribedNumber)
    return found


def values(description: Description, name: str) -> DescribedValues:
    (found,) = [column for column in description.columns if column.name == name]
    assert isinstance(found, DescribedValues)
    return found


def estimate(found: Estimate | None) -> float:
    assert found is not None
    return found.value


# ── what is counted ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("row_norm", "norm"), [(each, "euclidean") for each in ("own", "largest", 1.0, 9.0)] + [("largest", "max")]
)
def test_without_noise_the_figures_are_the_tables_own(row_norm: RowNorm, norm: Norm) -> None:
    study, columns = LOANS.model_copy(update={"row_norm": row_norm, "norm": norm}), table()
    there = ~np.isnan(columns["gain"])
    found = described(study, columns)
    assert found.rows.value == there.sum()
    for name, lower, upper in (("age", 0, 100), ("gain", -5, 5)):
        column, here = number(found, name), columns[name][there]
        assert abs(estimate(column.mean) - here.mean()) <= column.precision
        assert abs(estimate(column.variance) - here.var()) <= 4 * column.precision * (upper - lower)
        assert column.at_lower is not None
        assert column.at_upper is not None
        assert (column.at_lower.rows.value, column.at_upper.rows.value) == (
            (here == lower).sum(),
            (here == upper).sum(),
        )
        inside, _ = np.histogram(here[(here > lower) & (here < upper)], 10, (lower, upper))
        assert [each.rows.value for each in column.histogram] == inside.tolist()
        assert (column.histogram[0].lower, column.histogram[-1].upper) == (lower, upper)
    work = {part.value: part.rows.value for part in values(found, "work").values}
    expected = {name: (columns["work"][there] == name).sum() for name in ("state", "private")}
    assert work == expected | {"other": there.sum() - sum(expected.values())}
    shares = {part.value: part.share.value for part in values(found, "repaid").values}
    assert shares["yes"] == pytest.approx((columns["repaid"][there] == "yes").mean())


def test_a_real_label_is_described_as_a_number_and_nothing_is_dropped() -> None:
    columns = {"age": np.array([0.0, 50.0, 100.0]), "price": np.array([0.0, 250.0, 900.0])}
    found = described(HOUSES, columns, n=3)
    price = number(found, "price")
    assert (found.rows.low, found.rows.high) == (3, 3)  # as many as the owners say
    assert estimate(price.mean) == pytest.approx(1150 / 3, abs=price.precision)
    assert [each.rows.value for each in price.histogram] == [0, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    assert price.at_lower is not None
    assert price.at_lower.rows.value == 1


def test_stacked_parties_add_up_as_they_do_alone() -> None:
    shards = [shard_of(LOANS, table(n, seed)) for n, seed in ((40, 2), (700, 3))]
    sums = ColumnSums.of(LOANS, asked())
    stacked = sums.add_up(Shard.stack(shards))
    assert np.array_equal(stacked, np.stack([sums.add_up(shard) for shard in shards]))


@pytest.mark.parametrize("row_norm", ["largest", 2.0])
def test_without_an_intercept_values_are_read_by_the_largest_norm(row_norm: RowNorm) -> None:
    study = LOANS.model_copy(update={"intercept": False, "missing": "refuse", "row_norm": row_norm})
    columns = {name: column[~np.isnan(table()["gain"])] for name, column in table().items()}
    found, n = described(study, columns), len(columns["gain"])
    assert estimate(number(found, "age").mean) == pytest.approx(
        columns["age"].mean() * n / N + 50 * (1 - n / N), abs=0.01
    )
    at_upper = number(found, "gain").at_upper
    assert at_upper is not None
    assert at_upper.rows.value == (columns["gain"] == 5).sum()


def test_values_that_are_counted_need_no_scale() -> None:
    found = described(WITHOUT, table(), ColumnChoice({"work": None, "repaid": None}, 10, moments=True))
    assert found.rows.value == (~np.isnan(table()["gain"])).sum()
    assert sum(part.rows.value for part in values(found, "work").values) == found.rows.value


def test_columns_and_bins_are_chosen() -> None:
    found = described(LOANS, table(), asked(age=4, repaid=None, gain=0))
    assert [column.name for column in found.columns] == ["age", "repaid", "gain"]
    assert (len(number(found, "age").histogram), len(number(found, "gain").histogram)) == (4, 0)
    counts = described(LOANS, table(), asked(moments=False))
    assert (number(counts, "age").mean, number(counts, "age").variance) == (None, None)
    assert [column.name for column in described(LOANS, table(), asked(bins=0, moments=False)).columns] == [
        "work",
        "repaid",
    ]


# ── how far a record moves it ────────────────────────────────────────────────


def moments(v: IntArray, n_rows: int) -> IntArray:
    """The moments (2, n) of values in units of 2^-16, in units of 2^-32, as those of a person's equal rows add up."""
    sums = NumberSums(FEATURES[0], None, moments=True, bins=0, precision=0)
    shape = len(v), n_rows
    shard = Shard(np.zeros((*shape, 1)), np.ldexp(v, -16)[:, None] * np.ones(n_rows))
    return sums.add_up(shard, np.ones(shape), np.full(shape, 2**16 // n_rows)).T


@pytest.mark.parametrize(("n_rows", "of_other"), [(1, 1), (2, 2), (1, 2)])
def test_no_two_values_lie_further_apart_than_the_bounds(n_rows: int, of_other: int) -> None:
    """In integers, over all pairs of a grid, and of the values next to the bounds and to the inner maximum."""
    near = np.arange(-40, 41)
    inner = 2**16 - int((math.sqrt(5) - 1) * 2**16)
    v = np.unique(
        np.clip(np.concatenate([near + place for place in (-(2**16), -inner, 0, inner, 2**16)]), -(2**16), 2**16)
    )
    v = np.unique(np.concatenate([v, np.arange(-(2**16), 2**16 + 1, 97)]))
    first, second = moments(v, n_rows).astype(object)
    apart = max(int((((first - a) ** 2) + (second - b) ** 2).max()) for a, b in moments(v, of_other).T.tolist())
    assert apart == 4 * 2**64
    assert max((first**2 + second**2).tolist()) <= (1 + SQUARES**2 / 4) * 2**64


ENDS: dict[str, Any] = {
    "age": np.array([0.0, 100.0]),
    "work": np.array(["state", "else"]),
    "gain": np.array([-5.0, 5.0]),
    "repaid": np.array(["no", "yes"]),
    "price": np.array([0.0, 1000.0]),
}


@pytest.mark.parametrize(
    ("study", "terms", "square"),
    [
        (LOANS, {}, 2 * 6 + 2 * 2),
        (LOANS, {"bins": 0}, 2 * 4 + 2 * 2),
        (LOANS, {"moments": False}, 2 * 2 + 2 * 2),
        (LOANS, {"work": None}, 2),
        (HOUSES, {"bins": 0}, 2 * 4),
    ],
)
def test_the_sensitivity_is_the_distance_of_the_worst_records(
    study: Study, terms: dict[str, Any], square: float
) -> None:
    sums = ColumnSums.of(study, asked(**terms))
    ends = ({name: np.array(values)[[end]] for name, values in ENDS.items()} for end in (0, 1))
    one, other = (sums.add_up(shard_of(study, columns)) for columns in ends)
    assert float(np.linalg.norm(to_reals(one - other))) ** 2 == pytest.approx(square)
    assert math.sqrt(square) < sums.sensitivity <= math.sqrt(square) * (1 + 1e-15)


def test_a_person_of_many_rows_moves_the_sums_as_one_record_does() -> None:
    """The worst persons have the worst record's rows; others, or of rows of all kinds, move them less."""
    study, rng = LOANS, np.random.default_rng(3)
    sums, furthest, pairs = ColumnSums.of(study, asked()), 0.0, 0
    for n_rows in (1, 2, 7, 40, 3000):
        parts = []
        for worst in (0, 1, None, None):
            one = table(n_rows, int(rng.integers(2**31)))
            if worst is not None:
                one = {name: np.repeat(ends[worst], n_rows) for name, ends in ENDS.items()}
            rows = shard_of(study, one)
            parts.append(sums.add_up(Shard(rows.X, rows.y, begins=np.arange(n_rows) == 0)).astype(object))
        for first, other in itertools.combinations([*parts, 0 * parts[0]], 2):
            furthest, pairs = max(furthest, math.sqrt(((first - other) ** 2).sum()) / 2**32), pairs + 1
            assert ((first - other) ** 2).sum() <= 2**64 * round(sums.sensitivity**2)
    assert pairs == 50
    assert furthest == pytest.approx(sums.sensitivity)


def test_shares_and_means_are_those_of_persons() -> None:
    """Of one person with nine rows and one with a single row, each counts one half."""
    columns = {name: np.repeat(ends, [9, 1]) for name, ends in ENDS.items()}
    rows = shard_of(LOANS, columns)
    persons = Shard(rows.X, rows.y, begins=np.isin(np.arange(10), [0, 9]))
    sums = ColumnSums.of(LOANS, asked())
    description = read_sums(sums, to_reals(sums.add_up(persons)), 0.0, 2)
    assert estimate(number(description, "age").mean) == pytest.approx(50.0)
    assert [part.share.value for part in values(description, "repaid").values] == [0.5, 0.5]
    assert description.rows.value == 2


def test_a_dropped_row_counts_where_nothing_else_changes() -> None:
    study = Study(name="one", features=(Category(name="c", values=("a",)),), label=CLASSES, missing="drop")
    sums = ColumnSums.of(study, asked(c=None))
    assert sums.sensitivity == math.nextafter(math.sqrt(2), 2)  # the count of rows, and that of the only value


def test_the_noise_is_that_of_one_gaussian_release() -> None:
    facts = facts_of(LOANS, epsilon=0.5)
    algorithm = Describe()
    sensitivity = algorithm.sums(facts).sensitivity
    assert algorithm.sigma(facts.of(0)) == pytest.approx(gaussian_sigma(0.5, 1e-5, sensitivity))


# ── intervals ────────────────────────────────────────────────────────────────

DRAWS = 200


def facts_of(study: Study, sizes: tuple[int, ...] = (N,), epsilon: float = 1.0, **terms: object) -> FederationFacts:
    """Facts of owners of a study."""
    loss: Any = None  # nothing here descends
    given = {"epsilon": epsilon, "delta": 1e-5, "n_features": study.n_features, "loss": loss, "study": study}
    return FederationFacts.uniform(np.array(sizes), **(given | terms))


def pairs(exact: Description, noisy: Description) -> dict[str, tuple[float, Estimate]]:
    """Each figure without noise and with it."""
    found: dict[str, tuple[float, Estimate]] = {"rows": (exact.rows.value, noisy.rows)}
    for one, other in zip(exact.columns, noisy.columns, strict=True):
        if isinstance(one, DescribedNumber) and isinstance(other, DescribedNumber):
            for name in ("mean", "variance"):
                wanted, got = getattr(one, name), getattr(other, name)
                if got is not None:
                    found[f"{one.name} {name}"] = (wanted.value, got)
            both: list[tuple[Part, Part]] = list(zip(one.histogram, other.histogram, strict=True))
        else:
            assert isinstance(one, DescribedValues)
            assert isinstance(other, DescribedValues)
            both = list(zip(one.values, other.values, strict=True))
        for i, (a, b) in enumerate(both):
            found |= {f"{one.name} rows {i}": (a.rows.value, b.rows), f"{one.name} {i}": (a.share.value, b.share)}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("secure_sum", [False, True])
@pytest.mark.parametrize("sizes", [(300, 600), (4, 5)], ids=["many", "few"])
def test_intervals_hold_the_true_figures_as_often_as_they_say(sizes: tuple[int, ...], secure_sum: bool) -> None:  # noqa: FBT001
    """By a binomial test at 1e-6 a kind of figure: no fewer than .95, and of counts and means not many more."""
    stack = Shard.stack([shard_of(LOANS, table(n, seed)) for seed, n in enumerate(sizes)])
    facts = facts_of(LOANS, sizes, secure_sum=secure_sum, colluders=int(secure_sum))
    algorithm = Describe(bins=3)
    sums = algorithm.sums(facts)
    exact = read_sums(sums, to_reals(sums.add_up(stack).sum(axis=0)), 0.0, sum(sizes))
    held: dict[str, int] = {}
    for draw in range(DRAWS):
        model = simulate(algorithm, stack, facts, SeededNoise([5, draw]))
        noisy = algorithm.read(model, facts, (0, 1))
        for name, (true, found) in pairs(exact, noisy).items():
            assert found.low <= found.value <= found.high
            held[name] = held.get(name, 0) + (found.low <= true <= found.high)
    print({name: n / DRAWS for name, n in held.items()})
    for name, n in held.items():
        assert stats.binomtest(n, DRAWS, 0.95, "less").pvalue > 1e-6, name
    together = sum(n for name, n in held.items() if "variance" not in name)
    tried = DRAWS * sum("variance" not in name for name in held)
    assert sizes[0] < 10 or together / tried < 0.97


def test_an_interval_is_as_wide_as_the_noise_of_all_who_contributed() -> None:
    plain, summed = (facts_of(LOANS, (300,) * 4, secure_sum=secure, colluders=int(secure)) for secure in (False, True))
    algorithm = Describe()
    lanes = np.zeros(algorithm.sums(plain).n_lanes)
    sigma = float(algorithm.sigma(plain.of(0)))
    for facts, contributors, times in ((plain, (0, 1, 2, 3), 4), (plain, (1, 3), 2), (summed, (0, 1, 2, 3), 4 / 3)):
        found = algorithm.read(Model(lanes, "statistics"), facts, contributors)
        assert found.deviation == pytest.approx(sigma * math.sqrt(times))
        assert found.rows.high <= 300 * len(contributors)


def test_how_wide_intervals_will_be_is_told_beforehand() -> None:
    facts = facts_of(LOANS, (30_000, 20_000), secure_sum=True, colluders=1)
    told = forecast(Describe(), facts)
    lanes = np.full(Describe().questions(facts)[0].answer, 5000.0)
    counted = Describe().read(Model(lanes, "statistics"), facts, (0, 1)).rows
    assert isinstance(told, NoForecast)
    assert f"of 50,000 rows, each count will be right to ± {(counted.high - counted.low) / 2:.0f} rows" in told.reason


@pytest.mark.parametrize("lanes", [-1e6, 0.0, 1e6])
def test_figures_are_possible_under_any_noise(lanes: float) -> None:
    sums = ColumnSums.of(LOANS, asked())
    found = read_sums(sums, np.full(sums.n_lanes, lanes), 50.0, N)
    exact = described(LOANS, table())
    for name, (_, figure) in pairs(exact, found).items():
        least, most = {
            "age mean": (0, 100),
            "age variance": (0, 2500),
            "gain mean": (-5, 5),
            "gain variance": (0, 25),
        }.get(name, (0, N if "rows" in name else 1))
        assert least <= figure.low <= figure.value <= figure.high <= most, name
        assert figure.low < figure.high, name


@pytest.mark.parametrize(("lane", "low", "high"), [(-80.0, 0, 98), (-5.0, 0, 98), (200.0, 102, 298)])
def test_a_count_that_noise_made_impossible_is_as_uncertain_as_any_other(lane: float, low: int, high: int) -> None:
    sums = ColumnSums.of(LOANS, asked(repaid=None))
    part = values(read_sums(sums, np.array([N, lane, N - lane]), 50.0, N), "repaid").values[0]
    assert (round(part.rows.low), round(part.rows.high)) == (low, high)
    assert part.share.low < part.share.high


def test_remarks_count_persons_where_a_study_does() -> None:
    sums = ColumnSums.of(LOANS, asked())
    totals = to_reals(sums.add_up(shard_of(LOANS, table() | {"gain": np.full(N, 5.0)})))
    (remark,) = number(read_sums(sums, totals, 1.0, N, "persons"), "gain").remarks[:1]
    assert "of the persons lie at the upper bound" in remark


def test_a_share_of_rows_that_may_be_none_is_anything() -> None:
    sums = ColumnSums.of(LOANS, asked(repaid=None))
    found = read_sums(sums, np.array([20.0, 5.0, 15.0]), 50.0, N)
    assert all((part.share.low, part.share.high) == (0, 1) for part in values(found, "repaid").values)


# ── remarks ──────────────────────────────────────────────────────────────────


def remarks(gain: FloatArray) -> str:
    columns = {**table(), "gain": gain}
    return " ".join(number(described(LOANS, columns, deviation=1.0), "gain").remarks)


def test_remarks_say_which_bounds_do_not_fit() -> None:
    rng = np.random.default_rng(1)
    assert not remarks(rng.uniform(-4.9, 4.9, N))
    assert "lie at the upper bound: if owners clip, it is too low" in remarks(np.clip(rng.uniform(-4, 9, N), -5, 5))
    assert "lie at the lower bound: if owners clip, it is too high" in remarks(np.clip(rng.uniform(-9, 4, N), -5, 5))
    assert "98% of the rows or more lie from 0 to 2: the bounds are wide" in remarks(rng.uniform(0.1, 1.9, N))
    assert "lie from -5 to -4" in remarks(np.full(N, -4.5))


def test_remarks_name_the_majority_and_undeclared_values() -> None:
    found = described(LOANS, table(), deviation=2.0)
    majority, told = values(found, "repaid").remarks
    assert told.startswith('a study whose label says "shares": [0.7')
    assert majority.startswith("the majority is 'no': to predict it for all is right for 7")
    (undeclared,) = values(found, "work").remarks
    assert "of the rows have a value that is not declared" in undeclared
    assert values(described(LOANS, {**table(), "work": np.array(["state"] * N)}), "work").remarks == ()


def test_remarks_say_what_a_study_may_state_about_a_real_label() -> None:
    price = np.random.default_rng(3).normal(300, 50, N).clip(0, 1000)
    columns = {"age": np.full(N, 40.0), "price": price}
    (told,) = number(described(HOUSES, columns, deviation=1.0), "price").remarks[-1:]
    assert f'"mean": {price.mean():.3g}, "deviation": {price.std():.2g} ' in told
    assert not any(
        "deviation" in remark for remark in number(described(HOUSES, columns, deviation=1e6), "price").remarks
    )


# ── what is refused ──────────────────────────────────────────────────────────

MANY = Study(name="many", features=tuple(Feature(name=f"x{i}", lower=0, upper=1) for i in range(1200)), label=CLASSES)


@pytest.mark.parametrize(
    ("study", "parameters", "why"),
    [
        (LOANS, {"columns": {"wage": None}}, "the study has no column 'wage'"),
        (LOANS, {"columns": {"work": 5}}, "a histogram without bounds: column 'work' has values"),
        (LOANS, {"columns": {"repaid": 2}}, "a histogram without bounds: column 'repaid'"),
        (LOANS, {"columns": {"age": 101}}, "columns.age: Input should be less than or equal to 100"),
        (LOANS, {"columns": {"age": -1}}, "columns.age: Input should be greater than or equal to 0"),
        (LOANS, {"columns": {}}, "columns: Dictionary should have at least 1 item"),
        (LOANS, {"bins": 101}, "bins: Input should be less than or equal to 100"),
        (LOANS, {"columns": {"age": 0, "gain": 0}, "moments": False}, "no column is left to describe"),
        (WITHOUT, {}, "the values of column 'age' cannot be read: without an intercept, rows do not show the number"),
        (
            WITHOUT.model_copy(update={"row_norm": 1.0}),
            {"columns": {"gain": None}},
            "the values of column 'gain' cannot",
        ),
        (MANY, {"bins": 20}, "the columns make 28,802 sums; at most 16,384 are possible"),
    ],
)
def test_what_cannot_be_described_is_refused_before_anybody_is_asked(
    study: Study, parameters: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        build_algorithm("describe", parameters).questions(facts_of(study))
    assert why in refused.value.detail


def test_rows_of_no_study_are_not_described() -> None:
    with pytest.raises(InvalidInputError, match="the rows are of no study"):
        Describe().questions(replace(facts_of(LOANS), study=None))


def test_a_sum_predicts_nothing_and_a_model_describes_nothing() -> None:
    with pytest.raises(InvalidInputError, match="its counts and sums predict for nobody"):
        Model(np.zeros(3), "statistics").scores(np.zeros((1, 3)))
    member = Member(name="a", n_examples=N, budget=Budget(epsilon=1.0, delta=1e-5))
    specs = [
        RunSpec(study=LOANS, algorithm=name, parameters={}, parties=(member,), minimum_contributors=1)
        for name in ("describe", "dp_gd")
    ]
    lanes = np.zeros(specs[0].questions()[0].answer)
    documents = [
        model_document(spec, [], model, ("a",))
        for spec, model in zip(specs, (Model(lanes, "statistics"), Model(np.zeros(6))), strict=True)
    ]
    assert description_of(specs[0], documents[0]).deviation > 0
    with pytest.raises(InvalidInputError, match="the run is one of dp_gd"):
        description_of(specs[1], documents[1])


def test_every_pair_of_parameters_is_a_valid_question() -> None:
    for bins, moments_too in itertools.product((0, 1, 100), (False, True)):
        algorithm, facts = Describe(bins=bins, moments=moments_too), facts_of(LOANS)
        (question,) = algorithm.questions(facts)
        prepared = algorithm.prepare(shard_of(LOANS, table()), facts.of(0))
        query = next(algorithm.program(facts))
        assert algorithm.local(query, prepared, facts.of(0), NoNoise()).shape == (question.answer,)
