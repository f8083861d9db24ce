"""What covers a release alone and in company, against losses that are drawn from the release itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

from parley.common.arrays import FloatArray
from parley.common.privacy import company
from parley.common.privacy.calibration import gaussian_mu, pure_mu
from parley.common.privacy.company import Cover, gaussian_deltas, of_concentrated, of_l2_laplace, of_pure
from parley.common.privacy.events import (
    ApproximateEvent,
    DrawEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    TiltEvent,
)
from parley.common.privacy.filter import cover
from parley.common.privacy.l2_laplace import l2_laplace_delta
from parley.common.privacy.tilt import tilt_profile

Losses = tuple[FloatArray, FloatArray]
"""Losses (m,) of the worst neighbours, and their chances (m,)."""


def of_bit(epsilon: float, centre: float = 0.0) -> Losses:
    """One index of two, whose log odds differ by 2 epsilon, about a centre: 0 for a bit that is answered truly."""
    p, q = (1 / (1 + math.exp(-(centre + side * epsilon))) for side in (1, -1))
    return np.log([p / q, (1 - p) / (1 - q)]), np.array([p, 1 - p])


def of_laplace(epsilon: float, n: int = 20_001) -> Losses:
    """Laplace noise of scale 1, moved by epsilon: of quantiles, by which chances are not rounded up."""
    levels = (np.arange(n) + 0.5) / n
    noise = np.sign(levels - 0.5) * -np.log1p(-2 * np.abs(levels - 0.5))
    return np.abs(noise + epsilon) - np.abs(noise), np.full(n, 1 / n)


def of_vectors(bound: float, d: int, n: int = 400_000) -> Losses:
    """Noise of density exp(-|b|) in d dimensions, moved by ``bound``, drawn."""
    rng = np.random.default_rng(d)
    norm, along = rng.gamma(d, size=n), rng.standard_normal((n, d))
    cosine = along[:, 0] / np.linalg.norm(along, axis=1)
    return np.sqrt(norm**2 + 2 * bound * norm * cosine + bound**2) - norm, np.full(n, 1 / n)


def of_tilt(mu: float, determinant: float, n: int = 20_001) -> Losses:
    """A bit of the determinant, and a Gaussian release: less than the theorem's bound, but all that is surely there."""
    levels = (np.arange(n) + 0.5) / n
    normal = ndtri(levels)
    bit, chances = of_bit(determinant)
    losses = mu * normal + mu**2 / 2
    return np.add.outer(bit, losses).ravel(), np.outer(chances, np.full(n, 1 / n)).ravel()


def in_company(losses: Losses, tau: float, at: FloatArray) -> FloatArray:
    """The profile (m,) of a release and a Gaussian one of mu^2 = tau together, at losses (m,)."""
    values, chances = losses
    if len(values) > 10_000:  # a histogram at whose lower ends chances are no larger
        counts, edges = np.histogram(values, 2000, weights=chances)
        values, chances = edges[:-1], counts
    apart = at[:, None] - values
    if tau == 0:
        return np.asarray((np.maximum(0.0, -np.expm1(np.minimum(apart, 0.0))) * chances).sum(axis=1))
    return np.asarray((gaussian_deltas(apart, np.full_like(apart, math.sqrt(tau))) * chances).sum(axis=1))


RELEASES: list[tuple[str, Event, Losses]] = [
    *((f"bit {e:g}", ApproximateEvent(e), of_bit(e)) for e in (0.01, 0.3, 1.0, 2.0)),
    *((f"Laplace {e:g}", LaplaceEvent(e), of_laplace(e)) for e in (0.05, 0.5, 2.0)),
    *((f"vector {e:g} d={d}", L2LaplaceEvent(e, d), of_vectors(e, d)) for e, d in ((0.5, 2), (1.0, 10), (2.0, 40))),
    *(
        (f"draw {s:g} about {c:g}", DrawEvent(2 * s), of_bit(s, c))
        for s, c in ((0.1, 0.0), (0.1, 0.5), (0.5, 0.2), (0.5, 2.0), (1.0, -1.0))
    ),
    (
        "tilt",
        TiltEvent(0.5, 1e-6, law=GaussianEvent(0.05), determinant=0.08, blur=GaussianEvent(1e-3)),
        of_tilt(0.1, 0.08),
    ),
]


@pytest.mark.parametrize(("event", "losses"), [case[1:] for case in RELEASES], ids=[case[0] for case in RELEASES])
def test_a_cover_lies_above_the_release_alone_and_in_company(event: Event, losses: Losses) -> None:
    one = cover(event)
    assert one.slack == 0
    least = math.sqrt(one.excess)
    taken = {0.0: one.alone}
    for unused in (least * np.array([1.0, 1.5, 3.0, 7.0, 50.0])).tolist():
        first = unused * 11 / 4  # of what is left; less is left by releases that take more
        for left in (first * np.array([0.05, 0.25, 0.5, 0.75, 1.0])).tolist():
            taken[left] = one.variance + one.excess / unused + 4 / 11 * (first - left)
    drawn = 4 / math.sqrt(400_000) if isinstance(event, L2LaplaceEvent) else 1e-12  # the error of draws
    for company_of, square in taken.items():
        reach = 5 * math.sqrt(company_of + square)
        at = np.linspace(-reach, reach, 201)
        covered = gaussian_deltas(at, np.full_like(at, math.sqrt(company_of + square)))
        exact = in_company(losses, company_of, at)
        assert (exact <= covered * (1 + 1e-9) + drawn * math.sqrt(square)).all(), company_of
    assert one.alone <= 11 / 7 * one.variance
    print(f"alone {one.alone:.4g}; in company {one.variance:.4g} + {one.excess:.3g} / what is unused")


@pytest.mark.parametrize(
    ("event", "losses"),
    [case[1:] for case in RELEASES if not isinstance(case[1], DrawEvent | TiltEvent)],
    ids=[case[0] for case in RELEASES if not isinstance(case[1], DrawEvent | TiltEvent)],
)
def test_half_a_cover_is_too_little_and_a_cover_is_little_more_than_needed(event: Event, losses: Losses) -> None:
    one = cover(event)
    for tau in (0.0, 30 * math.sqrt(one.excess)):
        taken = one.alone if tau == 0 else one.variance
        at = np.zeros(1)
        exact = float(in_company(losses, tau, at)[0])
        for part in (0.5, 0.93):
            assert exact > float(gaussian_deltas(at, np.array([math.sqrt(tau + part * taken)]))[0]), (tau, part)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.05), (1e-3, 1e-3), (0.5, 1e-6)])
@pytest.mark.parametrize("times", [1, 4])
def test_what_a_tilt_claims_with_a_delta_is_no_cover_without(epsilon: float, delta: float, times: int) -> None:
    mu = gaussian_mu(epsilon, delta)
    event = TiltEvent(
        epsilon, delta, law=GaussianEvent(mu / 2), determinant=epsilon / 9, blur=GaussianEvent(1e-9), times=times
    )
    one = cover(event)
    assert one.slack == 0
    assert one.alone > times * mu**2
    assert one.variance >= times * mu**2 * 0.99


def test_a_tilt_of_a_huge_epsilon_has_its_claim_alone() -> None:
    law = L2LaplaceEvent(2000.0, 5)
    assert cover(TiltEvent(4500.0, 0.0, law=law, determinant=500.0, blur=L2LaplaceEvent(1.0, 5))).alone > 4000


def test_known_numbers() -> None:
    """Small pure releases take pi / 2 of epsilon^2 alone, and epsilon^2 in company, less with Laplace's noise."""
    pure = of_pure(0.01)
    assert pure.alone == pytest.approx(math.pi / 2 * 1e-4, rel=1e-3)
    assert pure.variance == pytest.approx(8 * math.log(math.cosh(0.005)), rel=4e-3)
    assert pure.excess == pytest.approx(0.09e-8, rel=0.1)
    assert of_pure(0.5).variance == pytest.approx(8 * math.log(math.cosh(0.25)), rel=6e-3)
    assert of_pure(1.0).variance == pytest.approx(7 / 11 * of_pure(1.0).alone), "beyond 8 log cosh(1 / 2)"
    assert of_l2_laplace(1.0, 64).variance == pytest.approx(1 / 64, rel=5e-3)
    assert of_l2_laplace(1.0, 64).alone == pytest.approx(0.01575, rel=2e-3)
    three = of_concentrated(0.75, 0.5, 3)
    assert (three.alone, three.variance, three.excess) == pytest.approx((2.25, 1.5, 3 / 7))
    assert of_concentrated(10.0, 7.0) == Cover(10.0, 10.0), "beyond the theorem"
    assert of_concentrated(0.8, 0.5) == Cover(0.8, 0.8), "more alone than a filter takes from what is left at the end"


def test_extremes_fall_back_to_what_is_known() -> None:
    for epsilon in (1e-8, 3.5, 30.0, 800.0):
        one = of_pure(epsilon)
        assert one.alone == pytest.approx(pure_mu(epsilon) ** 2)
        assert one.variance <= one.alone
    assert of_l2_laplace(0.0, 3) == Cover(0.0, 0.0)
    far = of_l2_laplace(200.0, 3)
    assert 0 < far.variance <= far.alone <= pure_mu(200.0) ** 2


def test_a_check_that_fails_gives_no_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    least = of_concentrated(pure_mu(0.1) ** 2, 0.01)
    monkeypatch.setattr(company, "_is_above", lambda losses, *_: np.zeros(len(losses) - 1, np.bool_))
    assert of_l2_laplace.__wrapped__(0.1, 10) == of_pure(0.1)
    uncovered = of_pure.__wrapped__(0.1)
    assert (uncovered.alone, uncovered.variance) == pytest.approx((least.alone, least.variance))


def test_the_profile_of_a_tilt() -> None:
    """Where the claim of its theorem is; of a bit alone; and of the Gaussian law alone."""
    tilt = tilt_profile(GaussianEvent(gaussian_mu(0.4, 1e-6) / 2), 0.1)
    assert float(tilt(np.array([0.5]))[0]) == pytest.approx(1e-6, rel=1e-6)
    at = np.linspace(0.0, 0.3, 50)
    bit = tilt_profile(GaussianEvent(1e-9), 0.2)(at)
    assert np.allclose(bit, np.maximum(0, (math.exp(0.2) - np.exp(at)) / (1 + math.exp(0.2))), atol=1e-8)
    far = np.linspace(0.05, 2.0, 50)  # beyond mu^2 / 4
    alone = tilt_profile(GaussianEvent(0.1), 0.0)(far)
    assert np.allclose(alone, gaussian_deltas(far, np.full_like(far, 0.2)), rtol=1e-9)
    vectors = tilt_profile(L2LaplaceEvent(0.5, 10), 0.0)(at)
    assert (vectors >= l2_laplace_delta(at, 1.0, 10) * (1 - 1e-9)).all(), "two moves of .5 are no less than one of 1"
