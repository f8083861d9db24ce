"""Known bits give known draws, by definition: what no statistical test would notice.

The integers of a known stream are recorded; `tests/unit/test_noise.py` holds their law. All that changes a draw by a
bit, or takes more bits or fewer, changes them all.
"""

from __future__ import annotations

import hashlib
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from scipy import stats

from parley.common.arrays import FloatArray, IntArray
from parley.common.privacy import noise as module
from parley.common.privacy.draws import Words
from parley.common.privacy.noise import NoNoise, SeededNoise, SystemNoise

TOP = 2**64


class KnownBits:
    """In the place of `os.urandom`: the hash of a counter; remembers how many bytes it gave."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def __call__(self, n: int) -> bytes:
        self.given.append(n)
        return hashlib.shake_256(b"%d" % len(self.given)).digest(n)


class Script(module._SystemSource):
    """A source that says the given words, in order, and nothing after them."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, n: int, /) -> Words:
        said, self.left = self.left[:n], self.left[n:]
        assert len(said) == n, "more words are asked for than there are"
        return np.array(said, np.uint64)


@pytest.fixture
def bits(monkeypatch: pytest.MonkeyPatch) -> KnownBits:
    known_bits = KnownBits()
    monkeypatch.setattr(module, "os", SimpleNamespace(urandom=known_bits))
    return known_bits


def digest(draws: IntArray) -> str:
    return hashlib.sha256(draws.astype("<i8").tobytes()).hexdigest()[:16]


GAUSSIAN = {
    1.0: "611cae2b7d3c7a9a",
    1.7: "c80417020a62c27f",
    1000.0: "7e261eb5e505f058",
    2.0**33 / 3: "c6697549d4a93616",
    2.0**48: "b3a68d8006a66bd5",
}
LAPLACE = {
    2.0**-64: "ff6698a6e831ffcf",
    0.3: "ba8c3d8267a42fb7",
    1.0: "74684df35a5acd4a",
    1.5: "be20fb8c73278981",
    1000.0: "424d30e9d8a02a70",
    2.0**48: "5913869b0b0027da",
}


@pytest.mark.parametrize("sigma", GAUSSIAN)
def test_known_bits_give_known_gaussians(bits: KnownBits, sigma: float) -> None:
    assert digest(SystemNoise().discrete_gaussian(sigma, (30, 50))) == GAUSSIAN[sigma]


@pytest.mark.parametrize("scale", LAPLACE)
def test_known_bits_give_known_laplaces(bits: KnownBits, scale: float) -> None:
    assert digest(SystemNoise().discrete_laplace(scale, (30, 50))) == LAPLACE[scale]


SHARES = {(0.3, 2): "acbdb783ae200480", (1000.0, 7): "eccd73bcaf01cd06", (2.0**20, 1.5): "2289c87dca1543c8"}


@pytest.mark.parametrize(("scale", "parts"), SHARES)
def test_known_bits_give_known_shares(bits: KnownBits, scale: float, parts: float) -> None:
    assert digest(SystemNoise().discrete_laplace(scale, (30, 50), parts)) == SHARES[scale, parts]


def test_one_part_is_a_whole_exact_draw(bits: KnownBits) -> None:
    assert digest(SystemNoise().discrete_laplace(1.5, (30, 50), 1)) == LAPLACE[1.5]


def test_each_row_of_a_stack_is_drawn_at_its_own_scale(bits: KnownBits) -> None:
    scales = np.array([[1.0], [40.0], [2.0**40]])
    assert digest(SystemNoise().discrete_gaussian(scales, (3, 200))) == "875f2489ea90a6b6"
    assert digest(SystemNoise().discrete_laplace(scales, (3, 200))) == "0de4df00eea3ee64"


@pytest.mark.parametrize("sigma", [1.0, 1.2, 1.99, 1000.0, 2.0**40 / 3])
def test_a_gaussians_bound_leaves_room_for_rounding(monkeypatch: pytest.MonkeyPatch, sigma: float) -> None:
    laws: list[tuple[float, ...]] = []
    monkeypatch.setattr(module, "_discrete", lambda _, __, ___, *law: laws.append(tuple(map(float, law))))
    SystemNoise().discrete_gaussian(sigma, ())
    ((scale, strip, bound),) = laws
    with localcontext(prec=40):
        least = ((Decimal(2).ln() * Decimal(scale) / Decimal(strip)) ** 2 / 2).exp()
        room = Decimal(bound) / least - 1
    assert float(room) == pytest.approx(2.0**-40, rel=1e-3)


def test_a_proposal_takes_three_words_and_512_are_made_at_least(bits: KnownBits) -> None:
    SystemNoise().discrete_gaussian(10.0, (1,))
    SystemNoise().discrete_gaussian(10.0, ())
    assert bits.given == [512 * 8, 2 * 512 * 8] * 2
    bits.given.clear()
    assert SystemNoise().discrete_gaussian(10.0, (0, 5)).shape == (0, 5)
    assert bits.given == []
    for n in (257, 1000):
        bits.given.clear()
        SystemNoise().discrete_laplace(10.0, (n,))
        assert bits.given[:2] == [n * 8, 2 * n * 8]


@pytest.mark.parametrize("scale", [1.0, 5.5, 2.0**40 / 3])
def test_the_exact_path_takes_the_decisions_of_the_filter(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    def draws() -> list[list[int]]:
        noise = module._SourcedNoise(module._SeededSource(np.random.PCG64(5)))
        return [noise.discrete_gaussian(scale, (20,)).tolist(), noise.discrete_laplace(scale, (20,)).tolist()]

    filtered = draws()
    monkeypatch.setattr(module, "_PROPOSALS", 1)
    alike = draws()
    monkeypatch.setattr(module, "_BAND", 2.0)  # nothing is decided by floating point
    assert draws() == alike
    assert filtered != [[0] * 20] * 2


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(("flips", "place"), [(0, 3), (2, 5), (5, 0)])
def test_a_uniform_is_settled_exactly_where_rounding_could_decide(
    monkeypatch: pytest.MonkeyPatch, power: int, flips: int, place: int
) -> None:
    """Up to the filter's bound from the probability, and no further: 2^-48 (1 + p (v + g))."""
    scale, strip, bound = 9.7, 8.0, 33.0
    exponent = ((place + 8 * flips) / scale) ** power / power
    probability = 2.0**flips * math.exp(-exponent) / bound
    band = 2.0**-48 * (1 + probability * (flips + exponent))
    exact = Mock(return_value=True)
    monkeypatch.setattr(module, "_is_below", exact)
    law = np.array([[scale], [strip], [bound]])
    for off, settled in ((0.0, True), (0.99, True), (-0.99, True), (1.01, False), (-1.01, False)):
        exact.reset_mock()
        uniform = int((Fraction(probability) + Fraction(off * band)) * TOP)
        source = Script(1 << flips, place << 1, uniform)
        drawn, accepted = module._propose(source, power, law)
        assert (drawn.tolist(), source.left) == ([place + 8 * flips], [])
        assert exact.called == settled, off
        assert accepted.tolist() == [settled or off < 0]
        if settled:
            word, factor, exactly, whose = exact.call_args.args
            assert (word, factor) == (uniform, Fraction(2**flips) / 33)
            assert exactly == Fraction(place + 8 * flips) ** power / Fraction(9.7) ** power / power
            assert whose is source


def test_a_proposal_has_a_fair_sign_and_no_negative_zero() -> None:
    law = np.array([[9.7] * 4, [8.0] * 4, [1.0] * 4])
    signs = [0, 1 << 63, 0, 1 << 63]
    source = Script(1, 1, 1, 1, *(sign | place << 1 for sign, place in zip(signs, (0, 0, 3, 3), strict=True)), *[0] * 4)
    drawn, accepted = module._propose(source, 2, law)
    assert (drawn.tolist(), accepted.tolist()) == ([0, 0, 3, -3], [True, False, True, True])


def test_scales_are_reals_and_flips_are_integers() -> None:
    assert module._checked("scale", np.array([1, 2]), (2,)).dtype == np.float64
    assert module._trailing_zeros(Script(8, 1), 2).dtype == np.int64


def test_places_are_the_bits_behind_the_sign_and_above_the_lowest() -> None:
    law = np.array([[9.7], [8.0], [1.0]])
    for place, magnitude in ((0b1, 0), (0b1110, 7), (0b10000, 0), (0b10110, 3), (1 << 62, 0)):
        assert module._propose(Script(1, place, 0), 1, law)[0].tolist() == [magnitude]
    wide = np.array([[2.0**47], [2.0**47], [1.0]])
    assert module._propose(Script(2, TOP // 2 - 1, 0), 1, wide)[0].tolist() == [2**48 - 1]


def test_digits_beyond_a_word_are_drawn_until_a_uniform_parts() -> None:
    half = Fraction(1, 2)
    assert not module._is_below(2**63, half, Fraction(0), Script(5))
    assert module._is_below(2**63 - 1, half, Fraction(1, 2**80), Script(TOP - 1, TOP - 1)) is False
    assert module._is_below(2**63 - 1, half, Fraction(1, 2**80), Script(TOP - 1 - 2**48))


def test_an_exponential_is_enclosed_as_tightly_as_is_asked() -> None:
    """However the division that comes first is rounded: exponents whose digits do not end, and large ones."""
    exponents = [Fraction(0), Fraction(300), *(Fraction(number, 7) for number in range(1, 3000, 61))]
    for exponent, digits in product(exponents, (8, 15)):
        low, high = module._enclose_exp(exponent, digits)
        with localcontext(prec=60):
            value = Fraction((-Decimal(exponent.numerator) / exponent.denominator).exp())
        assert low < value < high, (exponent, digits)
        assert high - low <= value * (exponent + 4) * Fraction(10) ** (1 - digits)


# ── reals ────────────────────────────────────────────────────────────────────


def test_uniforms_lie_in_the_middle_of_their_word() -> None:
    source = Script(0, TOP - 1, 2**63, 5)
    assert module._uniform(source, (2, 2)).tolist() == [[2.0**-65, 1.0], [0.5, 5.5 * 2.0**-64]]


@pytest.mark.parametrize("word", [0, 2**40, 2**63, TOP - 1])
def test_reals_are_drawn_by_inversion(word: int) -> None:
    uniform = (word + 0.5) / TOP
    for sign, half in ((-1, 0), (1, TOP - 1)):
        normal = Script(word, half).standard_normal((1,))[0]
        assert normal == pytest.approx(sign * stats.norm.isf(uniform / 2), rel=1e-9, abs=1e-12)
    assert Script(word).standard_exponential((1,))[0] == pytest.approx(-math.log(uniform), rel=1e-12)
    for shape in (0.5, 3.0):
        drawn = Script(word).standard_gamma(shape, (1,))[0]
        assert drawn == pytest.approx(stats.gamma.isf(uniform, shape), rel=1e-6, abs=1e-12)


class Standard(Script):
    """Standard draws of 1, 2, 3, ..., in any shape, so that what is made of them shows; notes a gamma's shape."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn, self.gammas = 0, list[tuple[float, tuple[int, ...]]]()

    def standard_normal(self, size: tuple[int, ...], /) -> FloatArray:
        first, self.drawn = self.drawn, self.drawn + math.prod(size)
        return np.arange(first + 1, self.drawn + 1, dtype=np.float64).reshape(size)

    standard_exponential = standard_normal

    def standard_gamma(self, shape: float, size: tuple[int, ...], /) -> FloatArray:
        self.gammas.append((shape, size))
        return np.full(size, 8.0)


class Far(Standard):
    """A standard normal so far out that the last digits of its scale show."""

    def standard_normal(self, size: tuple[int, ...], /) -> FloatArray:
        return np.full(size, 1e9)


def test_reals_are_scaled_standard_draws() -> None:
    def noise() -> module._SourcedNoise:
        return module._SourcedNoise(Standard())

    assert noise().gaussian(3.0, (2, 2)).tolist() == [[3, 6], [9, 12]]
    assert noise().laplace(3.0, (2,)).tolist() == [3 * (1 - 3), 3 * (2 - 4)]
    for parts, halves in ((1, 2.0), (4, 0.5)):
        source = Standard()
        vectors = module._SourcedNoise(source).l2_laplace(np.array([[2.0], [4.0]]), (2, 3), parts)
        assert source.gammas == [(halves, (2, 1))]
        assert vectors.tolist() == [[2, 4, 6], [4, 5, 6]], "sqrt(2 gamma) / beta times normals"
    assert module._SourcedNoise(Standard()).l2_laplace(2.0, (1,)).tolist() == [2.0]


def test_seeded_draws_past_2_to_the_10_are_rounded_and_matched() -> None:
    def normals(*shape: int) -> FloatArray:
        return np.random.Generator(np.random.PCG64(9)).standard_normal(shape)

    for sigma in (2.0**10, 2.0**10 + 1 / 3):
        expected = np.rint(math.sqrt(sigma * sigma - 1 / 12) * normals(4, 50))
        assert SeededNoise(9).discrete_gaussian(sigma, (4, 50)).tolist() == expected.tolist()
    far = SeededNoise(9)
    far._source = Far()
    variance = 2**20 - Fraction(1, 12)
    assert int(far.discrete_gaussian(2.0**10, (1,))[0]) ** 2 == pytest.approx(float(variance * 10**18), rel=1e-12)
    exact = module._SourcedNoise(module._SeededSource(np.random.PCG64(9)))
    scales = np.array([[2.0**10 - 1], [2.0**20]])
    assert np.array_equal(SeededNoise(9).discrete_gaussian(scales, (2, 9)), exact.discrete_gaussian(scales, (2, 9)))
    assert SeededNoise(9).discrete_gaussian(np.ones((0, 1)), (0, 3)).shape == (0, 3)
    exponentials = np.random.Generator(np.random.PCG64(9))
    one, other = (exponentials.standard_exponential((5,)) for _ in range(2))
    assert SeededNoise(9).discrete_laplace(7.5, (5,)).tolist() == (np.floor(7.5 * one) - np.floor(7.5 * other)).tolist()


def test_limits_are_in_range_and_what_lies_beyond_is_not() -> None:
    for noise in (NoNoise(), SeededNoise(1), SystemNoise()):
        for sigma in (1.0, 2.0**48):
            assert noise.discrete_gaussian(sigma, (2,)).shape == (2,)
        for scale in (2.0**-64, 2.0**48):
            assert noise.discrete_laplace(scale, (2,)).shape == (2,)
        for refused in (np.nextafter(1.0, 0), np.nextafter(2.0**48, math.inf)):
            with pytest.raises(ValueError, match=r"sigma must be positive and finite, from 1 to 2.81475e\+14"):
                noise.discrete_gaussian(refused, (2,))
        for refused in (np.nextafter(2.0**-64, 0), np.nextafter(2.0**48, math.inf)):
            with pytest.raises(
                ValueError, match=r"scale must be positive and finite, from 5.42101e-20 to 2.81475e\+14"
            ):
                noise.discrete_laplace(refused, (2,))
        with pytest.raises(ValueError, match=r"parts must be positive and finite, from 1 to inf, not 0.999"):
            noise.l2_laplace(1.0, (2,), 0.999)
        with pytest.raises(ValueError, match=r"parts must be positive and finite, from 1 to inf, not 0.999"):
            noise.discrete_laplace(1.0, (2,), 0.999)
        with pytest.raises(ValueError, match=r"beta must be positive and finite, from 0 to inf, not -1"):
            noise.l2_laplace(np.array([[1.0], [-1.0]]), (2, 2))
        assert noise.gaussian(5e-324, (2,)).shape == (2,)


def test_one_time_noise_is_a_copy_that_nobody_changes() -> None:
    given = {"eta": np.ones(2)}
    noise = SystemNoise(given)
    given["eta"][:] = 5
    assert noise.once("eta", lambda: np.zeros(2)).tolist() == [1, 1]
    drawn = np.zeros(2)
    kept = noise.once("other", lambda: drawn)
    drawn[:] = 7
    assert (kept.tolist(), sorted(noise.one_time)) == ([0, 0], ["eta", "other"])
    for array in noise.one_time.values():
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert SystemNoise().one_time == SeededNoise(1).one_time == NoNoise().one_time == {}
