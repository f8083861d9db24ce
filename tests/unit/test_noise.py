"""Each sampler against its law, its exact path, its memory and its refusals.

Statistical checks reject at ALARM each; with about 60 of them on unseeded randomness, fewer than one run in a million
raises a false alarm. Beside each stands the proof of its power: it rejects draws of half the scale.
"""

from __future__ import annotations

import inspect
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from parley.common.privacy import noise as module
from parley.common.privacy.noise import Noise, NoNoise, SeededNoise, SystemNoise

if TYPE_CHECKING:
    from collections.abc import Callable

    from scipy.stats.distributions import rv_frozen

    from parley.common.arrays import FloatArray, IntArray
    from parley.common.privacy.draws import Words

    MakeNoise = Callable[[], Noise]

ALARM = 1e-8
N = 40_000
TOP = 2**64 - 1


def exact_seeded() -> Noise:
    """The exact samplers, on reproducible bits."""
    return module._SourcedNoise(module._SeededSource(np.random.PCG64(11)))


def seeded() -> Noise:
    return SeededNoise(11)


SOURCES = pytest.mark.parametrize("make", [SystemNoise, seeded, exact_seeded])


class Script:
    """A source that says the given words, in order."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, n: int, /) -> Words:
        said, self._words = self._words[:n], self._words[n:]
        return np.array(said, np.uint64)

    def standard_normal(self, size: tuple[int, ...], /) -> FloatArray:
        raise NotImplementedError

    standard_exponential = standard_normal

    def standard_gamma(self, shape: float, size: tuple[int, ...], /) -> FloatArray:
        raise NotImplementedError


def integer_law(scale: float, power: int) -> tuple[IntArray, FloatArray]:
    """Support and probabilities of P(k) ~ exp(-|k/scale|^power / power), cut where nothing is left."""
    reach = math.ceil(40 * scale / power) + 40
    k = np.arange(-reach, reach + 1)
    weight = np.exp(-(np.abs(k / scale) ** power) / power)
    return k, weight / weight.sum()


def cells_of(expected: FloatArray) -> IntArray:
    """The cell of each value, so that each cell expects at least 50 draws."""
    cell = np.empty(expected.size, np.int64)
    full, mass = 0, 0.0
    for i, mean in enumerate(expected):
        cell[i] = full
        mass += mean
        if mass >= 50:
            full, mass = full + 1, 0.0
    return np.minimum(cell, full - 1)  # what is left over joins the last full cell


def p_value(draws: IntArray, scale: float, power: int) -> float:
    """Chi-square of integer draws against exp(-|k/scale|^power / power)."""
    return p_of_law(draws, *integer_law(scale, power))


def share_law(scale: float, parts: float) -> tuple[IntArray, FloatArray]:
    """Support and probabilities of the difference of two Polya draws of shape 1 / parts."""
    reach = math.ceil(40 * scale) + 40
    one = stats.nbinom.pmf(np.arange(reach + 1), 1 / parts, -math.expm1(-1 / scale))
    return np.arange(-reach, reach + 1), np.convolve(one, one[::-1])


def p_of_law(draws: IntArray, k: IntArray, probability: FloatArray) -> float:
    """Chi-square of integer draws against the probabilities of integers k in a row."""
    cell = cells_of(probability * draws.size)
    seen = np.bincount(cell[np.clip(draws, k[0], k[-1]) - k[0]], minlength=cell[-1] + 1)
    return float(stats.chisquare(seen, np.bincount(cell, probability * draws.size)).pvalue)


def ks(draws: FloatArray | IntArray, law: rv_frozen) -> float:
    """Kolmogorov-Smirnov of draws against a continuous law."""
    return float(stats.kstest(law.cdf(draws.ravel()), "uniform").pvalue)


# ── integers ─────────────────────────────────────────────────────────────────


@SOURCES
@pytest.mark.parametrize("sigma", [1.0, 1.5, 2.0, 3.999, 37.3, 100.0])
def test_discrete_gaussian_has_its_law_and_half_the_scale_is_caught(make: MakeNoise, sigma: float) -> None:
    draws = make().discrete_gaussian(sigma, (N,))
    assert draws.dtype == np.int64
    assert p_value(draws, sigma, 2) > ALARM
    assert p_value(draws, 2 * sigma, 2) < ALARM


@SOURCES
@pytest.mark.parametrize("scale", [0.3, 1.0, 1.4427, 2.5, 60.7])
def test_discrete_laplace_has_its_law_and_half_the_scale_is_caught(make: MakeNoise, scale: float) -> None:
    draws = make().discrete_laplace(scale, (N,))
    assert draws.dtype == np.int64
    assert p_value(draws, scale, 1) > ALARM
    assert p_value(draws, 2 * scale, 1) < ALARM


@SOURCES
@pytest.mark.parametrize(("scale", "parts"), [(0.3, 2), (1.0, 1.5), (2.5, 3), (60.7, 2), (60.7, 20)])
def test_a_share_of_discrete_laplace_has_its_law(make: MakeNoise, scale: float, parts: float) -> None:
    draws = make().discrete_laplace(scale, (N,), parts)
    assert draws.dtype == np.int64
    assert p_of_law(draws, *share_law(scale, parts)) > ALARM
    assert p_of_law(draws, *share_law(2 * scale, parts)) < ALARM
    assert p_of_law(draws, *share_law(scale, 2 * parts)) < ALARM


@SOURCES
@pytest.mark.parametrize(("scale", "parts"), [(0.3, 3), (2.5, 2), (60.7, 7), (60.7, 100)])
@pytest.mark.slow
def test_shares_of_discrete_laplace_sum_to_it(make: MakeNoise, scale: float, parts: int) -> None:
    total = make().discrete_laplace(scale, (parts, N), parts).sum(axis=0)
    assert p_value(total, scale, 1) > ALARM
    assert p_value(total, 2 * scale, 1) < ALARM
    fewer = make().discrete_laplace(scale, (parts, N), parts)[1:].sum(axis=0)
    assert parts > 10 or p_value(fewer, scale, 1) < ALARM, "one share less is less noise"


@SOURCES
@pytest.mark.parametrize(("scale", "parts"), [(2.0**10, 5), (3.7e8, 2), (2.0**45, 3), (2.0**48, 40)])
@pytest.mark.slow
def test_shares_of_wide_discrete_laplace_look_continuous_down_to_their_last_bits(
    make: MakeNoise, scale: float, parts: int
) -> None:
    total = make().discrete_laplace(scale, (parts, N), parts).sum(axis=0)
    assert ks(total, stats.laplace(scale=scale)) > ALARM
    assert ks(total, stats.laplace(scale=2 * scale)) < ALARM
    assert stats.chisquare(np.bincount(total % 8, minlength=8)).pvalue > ALARM


def test_stacked_shares_have_their_own_scales() -> None:
    scale = np.array([[0.5], [5.5], [2.0**40]])
    shares = SeededNoise(6).discrete_laplace(scale, (4, 3, N), 4).sum(axis=0)
    for row in range(2):
        assert p_value(shares[row], scale[row, 0], 1) > ALARM
    assert ks(shares[2], stats.laplace(scale=2.0**40)) > ALARM


@SOURCES
@pytest.mark.parametrize("scale", [2.0**10, 3.7e8, 2.0**45, 2.0**48])
def test_wide_integers_look_continuous_down_to_their_last_bits(make: MakeNoise, scale: float) -> None:
    gaussian, laplace = make().discrete_gaussian(scale, (N,)), make().discrete_laplace(scale, (N,))
    for draws, law in ((gaussian, stats.norm), (laplace, stats.laplace)):
        # The step of a law on integers is at most 1/scale: far below what KS resolves at 1/sqrt(N).
        assert ks(draws, law(scale=scale)) > ALARM
        assert ks(draws, law(scale=2 * scale)) < ALARM
        if make is not seeded or scale < 2**40:  # a double's last bits are not fair: see SeededNoise.discrete_gaussian
            assert stats.chisquare(np.bincount(draws % 8, minlength=8)).pvalue > ALARM


@SOURCES
def test_the_variance_is_right_at_a_wide_scale(make: MakeNoise) -> None:
    ratio = np.mean((make().discrete_gaussian(2.0**45, (N,)) / 2.0**45) ** 2)
    tolerance = stats.norm.isf(ALARM / 2) * math.sqrt(2 / N)
    assert abs(ratio - 1) < 1.1 * tolerance  # chi-square is a little wider than normal
    assert tolerance < 0.05


@SOURCES
def test_stacked_parties_have_their_own_scales(make: MakeNoise) -> None:
    sigma = np.array([[1.0], [5.5], [40.0]])
    gaussian, laplace = make().discrete_gaussian(sigma, (3, N)), make().discrete_laplace(sigma, (3, N))
    for row in range(3):
        assert p_value(gaussian[row], sigma[row, 0], 2) > ALARM
        assert p_value(laplace[row], sigma[row, 0], 1) > ALARM
    wide = make().discrete_gaussian(sigma * 2.0**20, (3, N))
    assert all(ks(wide[row], stats.norm(scale=sigma[row, 0] * 2.0**20)) > ALARM for row in range(3))


@pytest.mark.parametrize("power", [1, 2])
def test_opendp_draws_the_same(power: int) -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    scale, n = 7.3, 20_000
    space = dp.vector_domain(dp.atom_domain(T="i64"))
    if power == 2:
        oracle = dp.m.make_gaussian(space, dp.l2_distance(T="f64"), scale=scale)
    else:
        oracle = dp.m.make_laplace(space, dp.l1_distance(T="i64"), scale=scale)
    theirs = np.array(oracle([0] * n))

    def two_sample(ours: IntArray) -> float:
        edges = np.unique(np.quantile(np.concatenate([ours, theirs]), np.linspace(0, 1, 60), method="nearest"))
        table = np.array([np.histogram(draws, edges)[0] for draws in (ours, theirs)])
        return float(stats.chi2_contingency(table).pvalue)

    noise = SystemNoise()
    draw = noise.discrete_gaussian if power == 2 else noise.discrete_laplace
    assert two_sample(draw(scale, (n,))) > ALARM
    assert two_sample(draw(scale / 2, (n,))) < ALARM


# ── exactness ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scale", [1.0, 37.3, 2.0**40 / 3])
@pytest.mark.slow
def test_the_exact_path_takes_the_decisions_of_the_filter(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    def draw() -> list[IntArray]:
        noise = exact_seeded()
        return [noise.discrete_gaussian(scale, (500,)), noise.discrete_laplace(scale, (500,))]

    filtered = draw()
    exact_path = Mock(wraps=module._is_below)
    monkeypatch.setattr(module, "_is_below", exact_path)
    monkeypatch.setattr(module, "_BAND", 2.0)  # nothing is decided by floating point
    resolved = draw()
    assert exact_path.call_count >= 1000
    assert all(np.array_equal(one, other) for one, other in zip(filtered, resolved, strict=True))


@pytest.mark.slow
def test_the_exact_path_alone_has_the_right_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BAND", 2.0)
    assert p_value(SystemNoise().discrete_gaussian(3.7, (4000,)), 3.7, 2) > ALARM
    assert p_value(SystemNoise().discrete_laplace(3.7, (4000,)), 3.7, 1) > ALARM


def test_an_undecided_uniform_is_lengthened_until_it_parts() -> None:
    exponent, factor = Fraction(3, 10), Fraction(2, 3)
    with localcontext(prec=120):
        threshold = int(Decimal("-0.3").exp() * 2 / 3 * 2**192)
    first, second, third = threshold >> 128, threshold >> 64 & TOP, threshold & TOP

    def is_below(*words: int) -> bool:
        return module._is_below(words[0], factor, exponent, Script(*words[1:]))

    assert is_below(first - 1)
    assert not is_below(first + 1)
    assert is_below(first, second - 1)
    assert not is_below(first, second + 1)
    assert is_below(first, second, third - 1)
    assert not is_below(first, second, third + 1)


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(10**6, 7), Fraction(2**64)])
@pytest.mark.slow
def test_the_enclosure_holds_the_exponential_and_narrows(exponent: Fraction) -> None:
    with localcontext(prec=200):
        value = Fraction((-Decimal(exponent.numerator) / exponent.denominator).exp())
    for digits in (20, 40, 80):
        low, high = module._enclose_exp(exponent, digits)
        assert low < high
        assert low <= value <= high
        assert high - low <= Fraction(exponent.numerator + 10, 10 ** (digits - 1))


@given(st.floats(1, 2**48), st.integers(0, 200))
@example(1 / math.sqrt(math.log(2)), 1)  # where the Gaussian's bound is attained
def test_no_acceptance_probability_exceeds_one(scale: float, strip_number: int) -> None:
    laws: list[tuple[int, FloatArray]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_discrete", lambda _, power, __, *law: laws.append((power, np.array(law))))
        exact_seeded().discrete_gaussian(scale, ())
        exact_seeded().discrete_laplace(scale, ())
        exact_seeded().discrete_laplace(scale * 2.0**-60, ())
    for power, (scale_, strip, bound) in laws:
        assert math.log2(strip).is_integer()
        assert 1 <= strip <= 2**48
        with localcontext(prec=60):
            ratio = Decimal(strip_number) * Decimal(float(strip)) / Decimal(float(scale_))
            log_probability = strip_number * Decimal(2).ln() - ratio**power / power - Decimal(float(bound)).ln()
        assert log_probability <= 0


def test_coin_flips_are_counted_across_words() -> None:
    assert module._trailing_zeros(Script(8, 1, 1 << 63), 3).tolist() == [3, 0, 63]
    assert module._trailing_zeros(Script(0, 1, 0, 0, 4, 2), 3).tolist() == [64 + 64 + 1, 0, 64 + 2]


# ── reals ────────────────────────────────────────────────────────────────────


@SOURCES
def test_gaussian_and_laplace_have_their_laws(make: MakeNoise) -> None:
    gaussian, laplace = make().gaussian(2.5, (N,)), make().laplace(2.5, (N,))
    assert ks(gaussian, stats.norm(scale=2.5)) > ALARM
    assert ks(laplace, stats.laplace(scale=2.5)) > ALARM
    assert ks(gaussian, stats.norm(scale=5.0)) < ALARM
    assert ks(laplace, stats.laplace(scale=5.0)) < ALARM


@SOURCES
@pytest.mark.parametrize("d", [1, 2, 10])
def test_l2_laplace_has_gamma_norms_and_uniform_directions(make: MakeNoise, d: int) -> None:
    draws = make().l2_laplace(0.4, (N, d))
    norm = np.linalg.norm(draws, axis=-1)
    assert ks(norm, stats.gamma(d, scale=1 / 0.4)) > ALARM
    assert ks(norm, stats.gamma(d, scale=1 / 0.2)) < ALARM
    if d == 1:
        assert stats.binomtest(int((draws > 0).sum()), N).pvalue > ALARM
    else:  # a coordinate of a uniform direction, moved to [0, 1]
        assert ks((draws[:, 0] / norm + 1) / 2, stats.beta((d - 1) / 2, (d - 1) / 2)) > ALARM


@SOURCES
@pytest.mark.parametrize(("parts", "d"), [(2, 10), (5, 10), (100, 3)])
@pytest.mark.slow
def test_shares_of_l2_laplace_sum_to_it(make: MakeNoise, parts: int, d: int) -> None:
    shares = make().l2_laplace(0.4, (parts, 4000, d), parts)
    total = np.linalg.norm(shares.sum(axis=0), axis=-1)
    assert ks(total, stats.gamma(d, scale=1 / 0.4)) > ALARM
    assert ks(total, stats.gamma(d, scale=1 / 0.2)) < ALARM


def test_l2_laplace_gives_each_stacked_party_its_beta() -> None:
    beta = np.array([[0.1], [3.0]])
    draws = SeededNoise(5).l2_laplace(beta[:, None], (2, N, 4))
    for party in range(2):
        assert ks(np.linalg.norm(draws[party], axis=-1), stats.gamma(4, scale=1 / beta[party, 0])) > ALARM
    with pytest.raises(ValueError, match="broadcast"):
        SeededNoise(5).l2_laplace(np.ones(4), (2, 4))  # a beta for each coordinate is another law


@pytest.mark.parametrize("shape", [0.01, 0.5, 5.5])
def test_gamma_of_the_system_source_has_its_law(shape: float) -> None:
    draws = module._SystemSource().standard_gamma(shape, (N,))
    least = 1e-8  # below it, gammas of small shape crowd to zero, where they do nothing
    assert stats.binomtest(int((draws > least).sum()), N, stats.gamma.sf(least, shape)).pvalue > ALARM
    rank = stats.gamma.sf(draws[draws > least], shape) / stats.gamma.sf(least, shape)
    assert ks(rank, stats.uniform()) > ALARM


def test_rounding_a_matched_gaussian_is_within_the_stated_distance() -> None:
    sigma = 16.0
    k, exact = integer_law(sigma, 2)
    law = stats.norm(scale=math.sqrt(sigma**2 - 1 / 12))
    rounded = law.sf(np.abs(k) - 0.5) - law.sf(np.abs(k) + 0.5)
    distance = np.abs(exact - rounded).sum() / 2
    print(f"rounded Gaussian: total variation {distance * sigma**4:.2e} / sigma^4")
    assert distance < 4.9e-4 / sigma**4


# ── memory, seeds, refusals ──────────────────────────────────────────────────


@pytest.mark.parametrize("make", [SystemNoise, seeded, NoNoise])
def test_once_draws_once_and_is_read_only(make: MakeNoise) -> None:
    noise = make()
    eta = noise.once("eta", lambda: noise.gaussian(1.0, (3,)))
    assert noise.once("eta", lambda: noise.gaussian(1.0, (3,))) is eta
    with pytest.raises(ValueError, match="read-only"):
        eta[0] = 0
    other = noise.once("other", lambda: noise.discrete_gaussian(2.0**40, (3,)))
    assert other.dtype == np.int64


def test_one_time_noise_survives_a_restart() -> None:
    noise = SystemNoise()
    eta = noise.once("eta", lambda: noise.gaussian(1.0, (2, 3)))
    stored = {name: (value.tobytes(), value.dtype.str, value.shape) for name, value in noise.one_time.items()}
    kept = {name: np.frombuffer(raw, kind).reshape(shape).copy() for name, (raw, kind, shape) in stored.items()}
    restarted = SystemNoise(kept)
    again = restarted.once("eta", lambda: restarted.gaussian(1.0, (2, 3)))
    assert again.tobytes() == eta.tobytes()
    kept["eta"][:] = 0  # what the caller does to its copy is its own business
    assert restarted.once("eta", lambda: -eta).tobytes() == eta.tobytes()
    assert not again.flags.writeable


def every_draw(noise: Noise, shape: tuple[int, ...] = (4, 3)) -> list[FloatArray | IntArray]:
    return [
        noise.discrete_gaussian(3.0, shape),
        noise.discrete_gaussian(2.0**30, shape),
        noise.discrete_laplace(2.0**20, shape),
        noise.discrete_laplace(2.0**20, shape, 2),
        noise.gaussian(1.0, shape),
        noise.laplace(1.0, shape),
        noise.l2_laplace(1.0, shape, 7),
    ]


def same(one: Noise, other: Noise) -> list[bool]:
    return [bool(np.array_equal(a, b)) for a, b in zip(every_draw(one), every_draw(other), strict=True)]


def test_a_seed_fixes_seeded_noise_and_another_changes_it() -> None:
    assert all(same(SeededNoise(3), SeededNoise(3)))
    assert all(same(SeededNoise([3, 1]), SeededNoise([3, 1])))
    assert not any(same(SeededNoise(3), SeededNoise(4)))
    assert not any(same(SeededNoise([3, 1]), SeededNoise([3, 2])))


def test_system_noise_takes_no_seed_and_never_repeats() -> None:
    assert list(inspect.signature(SystemNoise).parameters) == ["one_time"]
    assert not any(same(SystemNoise(), SystemNoise()))


@pytest.mark.parametrize("make", [SystemNoise, seeded, NoNoise])
@pytest.mark.parametrize("shape", [(1,), (0,), (5,), (2, 3, 4)])
def test_shapes_and_types(make: MakeNoise, shape: tuple[int, ...]) -> None:
    draws = every_draw(make(), shape)
    assert all(draw.shape == shape for draw in draws)
    assert [draw.dtype.kind for draw in draws] == ["i", "i", "i", "i", "f", "f", "f"]
    if make is NoNoise:
        assert not any(draw.any() for draw in draws)


@pytest.mark.parametrize("make", [SystemNoise, seeded, NoNoise])
@pytest.mark.parametrize("bad", [0.0, -1.5, math.nan, math.inf, -math.inf])
def test_a_scale_out_of_range_is_refused_by_name_and_value(make: MakeNoise, bad: float) -> None:
    noise = make()
    draws: list[tuple[str, Callable[[float | FloatArray, tuple[int, ...]], object]]] = [
        ("sigma", noise.discrete_gaussian),
        ("scale", noise.discrete_laplace),
        ("sigma", noise.gaussian),
        ("scale", noise.laplace),
        ("beta", noise.l2_laplace),
    ]
    for name, draw in draws:
        for value in (bad, np.array([[2.0], [bad]])):
            with pytest.raises(ValueError, match=rf"^{name} must be .*, not {bad:g}$"):
                draw(value, (2, 3))
        with pytest.raises(ValueError, match=r"broadcast|dimensions"):
            draw(np.full((2, 1), 3.0), (3,))
    with pytest.raises(ValueError, match=r"^parts must be"):
        noise.l2_laplace(1.0, (3,), bad)
    with pytest.raises(ValueError, match=r"^parts must be"):
        noise.discrete_laplace(1.0, (3,), bad)


@pytest.mark.parametrize("make", [SystemNoise, seeded, NoNoise])
def test_integer_scales_keep_to_what_64_bits_hold(make: MakeNoise) -> None:
    for sigma in (0.999, 2.0**48 * 1.001):
        with pytest.raises(ValueError, match=r"^sigma must be"):
            make().discrete_gaussian(sigma, (3,))
    for scale in (2.0**-65, 2.0**48 * 1.001):
        with pytest.raises(ValueError, match=r"^scale must be"):
            make().discrete_laplace(scale, (3,))
    for parts in (1, 3):
        assert not make().discrete_laplace(2.0**-64, (100,), parts).any()
