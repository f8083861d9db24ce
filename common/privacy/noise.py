"""Private randomness: every random number that hides data is drawn here and nowhere else.

*Integers are exact.* `discrete_gaussian` and `discrete_laplace` follow Canonne, Kamath & Steinke 2020 ("The Discrete
Gaussian for Differential Privacy"): rejection sampling in which no probability is ever rounded. Theirs proposes from a
discrete Laplace, ours from strips, which fair bits alone can draw. For a density exp(-g(y)) on y >= 0, cut the integers
into strips of t places, t a power of two. Propose strip v with probability 2^-(v+1), a count of fair coin flips, and a
place within it by log2(t) fair bits. Accept with probability 2^v exp(-g(y)) / M, where M bounds the numerator. Give it
a fair sign; refuse a negative zero, which would count zero twice.

*The filter.* The one decision not made of fair bits is whether a uniform U is below p = 2^v exp(-g) / M. It is taken on
whole arrays in floating point, with a rigorous bound on every rounding error. The undecided (about one in 2^46) are
resolved in rational arithmetic, a float scale being the exact rational that it is: enclose exp(-g) between two
rationals, then lengthen U and narrow the enclosure until they part. The outcome is exact either way.

*Draws of an index* are exact too: `parley.common.privacy.draws`.

*Limits.* Continuous draws serve mechanisms stated for reals and do not withstand floating-point attacks (Mironov 2012):
what leaves a party should be integers with integer noise. How long a draw takes depends on the bits drawn (rejections):
callers draw the noise ahead of the answer that it hides, so that the time to answer reveals nothing about it.

The keys, pads and obfuscators of the secure sum are no noise but bytes of `os.urandom`, which services pass in.
"""

from __future__ import annotations

import math
import os
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
from scipy.special import gammainccinv, ndtri

from parley.common.arrays import FloatArray, IntArray
from parley.common.privacy.draws import Categories, Words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Scale = float | FloatArray
Shape = tuple[int, ...]
A = TypeVar("A", bound=npt.NDArray[Any])

MAX_INTEGER_SCALE = 2.0**48  # leaves 15 bits for the tail: a draw beyond int64 needs 2^15 equal coin flips in a row
_MIN_LAPLACE_SCALE = 2.0**-64  # keeps 1/scale finite; such noise is zero except once in e^(2^64) draws
_LN2 = math.log(2)
_BAND = 2.0**-48  # the filter's error, four times what the operations in `_propose` can add up to
_WORD = 64
_BLOCK = 2**16  # integers drawn at a time: the dozen arrays that a block takes come to some MiB
_PROPOSALS = 512  # the fewest at a time, so that the last few draws take few turns


class Noise(Protocol):
    """The private randomness of one party, or of a stack of parties, in one run.

    ``sigma``, ``scale`` and ``beta`` broadcast to ``shape``: for K stacked parties of d coordinates, a scale of shape
    (K, 1) gives each party its own. All methods raise ValueError, with name and value, for a scale out of range.
    """

    def discrete_gaussian(self, sigma: Scale, shape: Shape) -> IntArray:
        """Draw integers with P(k) proportional to exp(-k^2 / (2 sigma^2)); 1 <= sigma <= 2^48, in integer units."""

    def discrete_laplace(self, scale: Scale, shape: Shape, parts: float = 1) -> IntArray:
        """Draw integers with P(k) proportional to exp(-|k| / scale), or one of ``parts`` shares of such integers.

        ``scale`` is in integer units, 2^-64 <= scale <= 2^48. One full draw is exact. A share is the difference of two
        Polya draws, each a sum of Poisson(c / parts) logarithmic ones, c = -log(1 - exp(-1 / scale)): the sum of
        ``parts`` independent shares has the law above. They are integers too, but their chances are rounded as floating
        point is, by parts in 2^50.
        """

    def gaussian(self, sigma: Scale, shape: Shape) -> FloatArray:
        """Draw independent N(0, sigma^2)."""

    def laplace(self, scale: Scale, shape: Shape) -> FloatArray:
        """Draw independent Laplace numbers: density proportional to exp(-|x| / scale) in each coordinate."""

    def l2_laplace(self, beta: Scale, shape: Shape, parts: float = 1) -> FloatArray:
        """Draw vectors on the last axis with density proportional to exp(-beta |b|_2), or one of ``parts`` shares.

        A share is sqrt(V) g with V ~ Gamma((d+1) / (2 parts), scale 2/beta^2) and g ~ N(0, I_d). The sum of ``parts``
        independent shares has the density above: its characteristic function is (1 + |t|^2/beta^2)^(-(d+1)/2).
        Chaudhuri et al. 2011, Algorithms 1 and 2, for parts = 1. ``beta`` broadcasts to shape[:-1] + (1,).
        """

    def categorical(self, mantissas: IntArray, exponents: IntArray, n: int) -> IntArray:
        """Draw independent indices (n,) below k, P(i) proportional to mantissas[i] 2^exponents[i], exactly.

        ``mantissas`` (k,) are integers from 2^52 to 2^53 - 1, ``exponents`` (k,) any integers. Raises ValueError for
        others, or none.
        """

    def once(self, name: str, draw: Callable[[], A]) -> A:
        """Return one-time noise: ``draw()`` on the first call, and the same read-only array on every later one."""

    def member(self, index: int) -> Noise:  # noqa: ARG002
        """Return the source from which one of several stacked parties draws: this one, if all share it."""
        return self


class _Source(Protocol):
    """The source of bits and standard continuous draws; `numpy.random.Generator` has all methods except ``words``."""

    def words(self, n: int, /) -> Words: ...  # uniform integers of 64 bits
    def standard_normal(self, size: Shape, /) -> FloatArray: ...
    def standard_exponential(self, size: Shape, /) -> FloatArray: ...
    def standard_gamma(self, shape: float, size: Shape, /) -> FloatArray: ...


class _SourcedNoise(Noise):
    """All draws, from one source of bits, and a memory of the one-time ones."""

    def __init__(self, source: _Source, one_time: Mapping[str, npt.NDArray[Any]] | None = None) -> None:
        self._source = source
        self.one_time = {name: _frozen(value) for name, value in (one_time or {}).items()}

    def discrete_gaussian(self, sigma: Scale, shape: Shape) -> IntArray:
        sigma = _checked("sigma", sigma, shape, 1.0, MAX_INTEGER_SCALE)
        strip = np.ldexp(1.0, np.frexp(sigma)[1] - 1)  # the largest power of two up to sigma
        # 2^v exp(-(v strip/sigma)^2/2) is greatest at v = ln 2 (sigma/strip)^2; a little more covers rounding.
        bound = np.exp((_LN2 * sigma / strip) ** 2 / 2) * (1 + 2.0**-40)
        return _discrete(self._source, 2, shape, sigma, strip, bound)

    def discrete_laplace(self, scale: Scale, shape: Shape, parts: float = 1) -> IntArray:
        scale = _checked("scale", scale, shape, _MIN_LAPLACE_SCALE, MAX_INTEGER_SCALE)
        if float(_checked("parts", parts, (), 1.0)) > 1:
            return _laplace_share(self._source, scale, shape, parts)
        # A strip of at least ln 2 scale places makes 2^v exp(-v strip/scale) at most 1.
        strip = np.maximum(np.ldexp(1.0, np.frexp(0.7 * scale)[1]), 1.0)
        return _discrete(self._source, 1, shape, scale, strip, np.ones_like(scale))

    def gaussian(self, sigma: Scale, shape: Shape) -> FloatArray:
        return _checked("sigma", sigma, shape) * self._source.standard_normal(shape)

    def laplace(self, scale: Scale, shape: Shape) -> FloatArray:
        exponential = self._source.standard_exponential
        return _checked("scale", scale, shape) * (exponential(shape) - exponential(shape))

    def l2_laplace(self, beta: Scale, shape: Shape, parts: float = 1) -> FloatArray:
        radii = (*shape[:-1], 1)
        beta = _checked("beta", beta, radii)
        half = (shape[-1] + 1) / (2 * float(_checked("parts", parts, (), 1.0)))
        variance = 2 * self._source.standard_gamma(half, radii)
        return np.sqrt(variance) / beta * self._source.standard_normal(shape)

    def categorical(self, mantissas: IntArray, exponents: IntArray, n: int) -> IntArray:
        return Categories(mantissas, exponents).draw(self._source.words, n)

    def once(self, name: str, draw: Callable[[], A]) -> A:
        if name not in self.one_time:
            self.one_time[name] = _frozen(draw())
        return cast("A", self.one_time[name])


class SystemNoise(_SourcedNoise):
    """Noise from the operating system's generator, which takes no seed: what services use.

    ``one_time`` restores the one-time noise of an earlier process. The attribute of that name holds all one-time noise,
    for the party to persist in the transaction that stores the answer.

    >>> noise = SystemNoise()
    >>> eta = noise.once("eta", lambda: noise.gaussian(2.0, (3,)))
    >>> bool((SystemNoise(noise.one_time).once("eta", lambda: -eta) == eta).all())
    True
    """

    def __init__(self, one_time: Mapping[str, npt.NDArray[Any]] | None = None) -> None:
        super().__init__(_SystemSource(), one_time)


class SeededNoise(_SourcedNoise):
    """Noise from a seeded PCG64: reproducible, not private; for simulation only."""

    def __init__(self, seed: int | Sequence[int]) -> None:
        super().__init__(_SeededSource(np.random.PCG64(seed)))

    def discrete_gaussian(self, sigma: Scale, shape: Shape) -> IntArray:
        """Draw as `Noise.discrete_gaussian`; if all sigma >= 2^10, by rounding a Gaussian of variance sigma^2 - 1/12.

        Rounding adds the 1/12 back, and the total variation to the exact law is 4.9e-4 / sigma^4, below 5e-16 for each
        draw (uncorrected: 0.02 / sigma^2). The 53 bits of a double add an unevenness of about 2^-52 sigma between
        adjacent integers. A simulation can see it in the parity above sigma = 2^40, and nowhere below.
        """
        sigma = _checked("sigma", sigma, shape, 1.0, MAX_INTEGER_SCALE)
        if np.min(sigma, initial=math.inf) < 2.0**10:
            return super().discrete_gaussian(sigma, shape)
        return np.rint(np.sqrt(sigma**2 - 1 / 12) * self._source.standard_normal(shape)).astype(np.int64)

    def discrete_laplace(self, scale: Scale, shape: Shape, parts: float = 1) -> IntArray:
        """Draw as `Noise.discrete_laplace`, as the difference of two geometrics, exact up to 53-bit exponentials."""
        if parts != 1:
            return super().discrete_laplace(scale, shape, parts)
        scale = _checked("scale", scale, shape, _MIN_LAPLACE_SCALE, MAX_INTEGER_SCALE)
        exponential = self._source.standard_exponential
        return (np.floor(scale * exponential(shape)) - np.floor(scale * exponential(shape))).astype(np.int64)


class NoNoise(_SourcedNoise):
    """All noise is zero: for tests that fix it. Scales are checked as usual.

    >>> NoNoise().discrete_gaussian(5.0, (3,)).tolist()
    [0, 0, 0]
    """

    def __init__(self) -> None:
        super().__init__(_NoSource())


class _SystemSource:
    """Bits of os.urandom; continuous draws by inversion, with the fine end of the uniform in the tail."""

    def words(self, n: int, /) -> Words:
        return np.frombuffer(os.urandom(n * 8), np.uint64)

    def standard_normal(self, size: Shape, /) -> FloatArray:
        return cast("FloatArray", np.copysign(ndtri(_uniform(self, size) / 2), _uniform(self, size) - 0.5))

    def standard_exponential(self, size: Shape, /) -> FloatArray:
        return cast("FloatArray", -np.log(_uniform(self, size)))

    def standard_gamma(self, shape: float, size: Shape, /) -> FloatArray:
        return cast("FloatArray", gammainccinv(shape, _uniform(self, size)))


class _SeededSource(np.random.Generator):
    """NumPy's generator, whose words are its raw output."""

    def words(self, n: int, /) -> Words:
        return self.bit_generator.random_raw(n)

    def __reduce__(self) -> tuple[Any, tuple[np.random.BitGenerator], None]:  # NumPy's would be of its own type
        return _SeededSource, (self.bit_generator,), None


class _NoSource:
    """Draws nothing: a word of 1 is strip 0, place 0, plus sign, and accepted."""

    def words(self, n: int, /) -> Words:
        return np.ones(n, np.uint64)

    def standard_normal(self, size: Shape, /) -> FloatArray:
        return np.zeros(size)

    standard_exponential = standard_normal

    def standard_gamma(self, shape: float, size: Shape, /) -> FloatArray:  # noqa: ARG002
        return np.zeros(size)


def _frozen(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only copy."""
    copy = np.array(value)
    copy.setflags(write=False)
    return copy


def _checked(name: str, value: Scale, shape: Shape, least: float = 0.0, most: float = math.inf) -> FloatArray:
    """Return ``value``, which is public, as an array. Raises ValueError unless it fits ``shape`` and [least, most]."""
    array = np.asarray(value, np.float64)
    valid = (array > 0) & (array >= least) & (array <= most) & np.isfinite(array)
    if not valid.all():
        raise ValueError(f"{name} must be positive and finite, from {least:g} to {most:g}, not {array[~valid][0]:g}")
    np.broadcast_to(array, shape)  # refuses a scale of a larger shape, which would repeat the draws
    return array


def _uniform(source: _Source, size: Shape) -> FloatArray:
    """Draw uniforms in (0, 1], down to 2^-65."""
    return (source.words(math.prod(size)).reshape(size).astype(np.float64) + 0.5) * 2.0**-_WORD


def _laplace_share(source: _Source, scale: FloatArray, shape: Shape, parts: float) -> IntArray:
    """Draw a share of discrete Laplace noise: a Poisson number of signed logarithmic draws.

    Kemp 1981, by inversion.
    """
    rate = -np.log(-np.expm1(-1 / scale))  # c, so that P(k) = exp(-k / scale) / (k c)
    counts = _poisson(source, np.broadcast_to(2 * rate / parts, shape).ravel())
    owner = np.repeat(np.arange(counts.size), counts)
    odds = np.exp(-np.broadcast_to(rate, shape).ravel()[owner] * _uniform(source, owner.shape))
    with np.errstate(divide="ignore"):
        length = np.floor(1 + np.log(_uniform(source, owner.shape)) / np.log1p(-odds))
    signed = np.where(source.words(owner.size) >> (_WORD - 1) == 1, -length, length).astype(np.int64)
    result = np.zeros(counts.size, np.int64)
    np.add.at(result, owner, signed)
    return result.reshape(shape)


def _poisson(source: _Source, rate: FloatArray) -> IntArray:
    """Draw Poisson numbers of these rates, (n,), by inversion; for rates of at most some hundreds."""
    uniform, chance = _uniform(source, rate.shape), np.exp(-rate)
    below, counts = chance.copy(), np.zeros(rate.shape, np.int64)
    while (more := (uniform > below) & (chance > 0)).any():
        counts[more] += 1
        chance[more] *= rate[more] / counts[more]
        below[more] += chance[more]
    return counts


def _discrete(source: _Source, power: int, shape: Shape, *law: FloatArray) -> IntArray:
    """Draw exact integers with P(k) proportional to exp(-|k/scale|^power / power).

    ``law`` is the scale, the strip's width and the bound M.
    """
    laws = [np.broadcast_to(parameter, shape).flat for parameter in law]
    result = np.empty(math.prod(shape), np.int64)
    for start in range(0, result.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        result[block] = _discrete_block(source, power, np.array([parameter[block] for parameter in laws]))
    return result.reshape(shape)


def _discrete_block(source: _Source, power: int, parameters: FloatArray) -> IntArray:
    """Draw one such integer for each column of ``parameters`` (3, n), (n,)."""
    result = np.empty(parameters.shape[1], np.int64)
    done = np.zeros(result.size, np.bool_)
    while (pending := np.flatnonzero(~done)).size:
        tried = np.repeat(pending, max(_PROPOSALS // pending.size, 1))
        drawn, accepted = _propose(source, power, parameters[:, tried])
        hit = tried[accepted]
        result[hit], done[hit] = drawn[accepted], True  # of several accepted ones the last, for every value
    return result


def _propose(source: _Source, power: int, law: FloatArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Make one proposal for each column of ``law``, and decide whether it is accepted."""
    scale, strip, bound = law
    strip_number = _trailing_zeros(source, scale.size)
    place, uniform = source.words(2 * scale.size).reshape(2, -1)
    width = strip.astype(np.int64)
    magnitude = ((place >> 1).astype(np.int64) & (width - 1)) + strip_number * width
    exponent = (magnitude / scale) ** power / power
    probability = np.exp(strip_number * _LN2 - exponent) / bound
    distance = probability - uniform * 2.0**-_WORD
    accepted = distance > 0
    # The rounding of the exponential's argument is relative to its two terms, and p takes it over.
    undecided = np.abs(distance) <= _BAND * (1 + probability * (strip_number + exponent))
    for i in np.flatnonzero(undecided):
        exact = (Fraction(int(magnitude[i])) / Fraction(float(scale[i]))) ** power / power
        factor = 2 ** int(strip_number[i]) / Fraction(float(bound[i]))
        accepted[i] = _is_below(int(uniform[i]), factor, exact, source)
    negative = place >> (_WORD - 1) == 1
    accepted &= ~(negative & (magnitude == 0))
    return np.where(negative, -magnitude, magnitude), accepted


def _trailing_zeros(source: _Source, n: int) -> IntArray:
    """Draw ``n`` counts of fair coin flips before the first head: P(v) = 2^-(v+1)."""
    words = source.words(n)
    count: IntArray = np.bitwise_count(~words & (words - 1)).astype(np.int64)
    if (unfinished := words == 0).any():
        count[unfinished] += _trailing_zeros(source, int(unfinished.sum()))
    return count


def _is_below(word: int, factor: Fraction, exponent: Fraction, source: _Source) -> bool:
    """Say whether a uniform in [0, 1) with first binary digits ``word`` is below factor * exp(-exponent), exactly."""
    bits = _WORD
    while True:
        low, high = (value * factor * 2**bits for value in _enclose_exp(exponent, digits=bits // 2))
        if word + 1 <= low:
            return True
        if word >= high:
            return False
        word = word << _WORD | int(source.words(1)[0])
        bits += _WORD


def _enclose_exp(exponent: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Return rationals below and above exp(-exponent), about 10^-digits apart; decimal's exp is correctly rounded."""
    down, up = Context(prec=digits, rounding=ROUND_FLOOR), Context(prec=digits, rounding=ROUND_CEILING)
    numerator, denominator = Decimal(exponent.numerator).copy_negate(), Decimal(exponent.denominator)
    low = down.next_minus(down.exp(down.divide(numerator, denominator)))
    high = up.next_plus(up.exp(up.divide(numerator, denominator)))
    return Fraction(low), Fraction(high)
