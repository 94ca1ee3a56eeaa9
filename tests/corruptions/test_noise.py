"""Noise: the distributions are those of the formulas."""

from __future__ import annotations

import math

import numpy
import pytest
import torch
from scipy.stats import poisson

from robustkpca.corruptions import noise
from robustkpca.draws import Draws

GREY = torch.full((1, 3, 128, 128), 128, dtype=torch.uint8)


def draws(threat: str) -> Draws:
    return Draws.of(["grey"], seed=0, threat=threat)


@pytest.mark.parametrize("full", [3, 5, 60, 500])
def test_the_alias_tables_hold_the_poisson_distribution_of_every_level(full: int) -> None:
    threshold, other = (table.reshape(256, full + 1) for table in noise._alias(full))
    for level in (0, 1, 77, 254, 255):
        chances = numpy.zeros(full + 1)
        numpy.add.at(chances, numpy.arange(full + 1), threshold[level])
        numpy.add.at(chances, other[level], 1 - threshold[level])
        counts, rate = numpy.arange(full), level / 255 * full
        numpy.testing.assert_allclose(chances[:-1] / (full + 1), poisson.pmf(counts, rate), atol=1e-7)
        numpy.testing.assert_allclose(chances[-1] / (full + 1), 1 - poisson.cdf(full - 1, rate), atol=1e-7)


def test_counts_of_photons_follow_the_poisson_distribution() -> None:
    picture = numpy.full((3, 200, 200), 128, numpy.uint8)
    counts = noise.photons(picture, 12, numpy.random.default_rng(0))
    rate, size = 128 / 255 * 12, picture.size
    seen = numpy.bincount(counts.ravel(), minlength=13)
    wanted = numpy.append(poisson.pmf(numpy.arange(12), rate), poisson.sf(11, rate)) * size
    assert ((seen - wanted) ** 2 / wanted).sum() < 33  # the 99.9 % point of chi-squared with 12 degrees of freedom


def test_black_stays_black_without_photons() -> None:
    black = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    for severity in range(1, 6):
        assert not noise.shot_noise(black, severity=severity, draws=draws("black")).any()
        assert not noise.speckle_noise(black, severity=severity, draws=draws("black")).any()


def test_gaussian_noise_has_its_deviation() -> None:
    made = noise.gaussian_noise(GREY, severity=1, draws=draws("gaussian")).double() / 255
    wanted, size = 0.08, GREY.numel()
    assert float(made.std()) == pytest.approx(wanted, abs=5 * wanted / math.sqrt(2 * size))
    assert float(made.mean()) == pytest.approx(128 / 255 - 0.5 / 255, abs=5 * wanted / math.sqrt(size))


def test_speckle_noise_grows_with_the_light() -> None:
    dark = noise.speckle_noise(GREY // 2, severity=1, draws=draws("speckle")).double().std()
    bright = noise.speckle_noise(GREY, severity=1, draws=draws("speckle")).double().std()
    assert float(bright / dark) == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("severity", range(1, 6))
def test_impulses_hit_their_share_black_and_white_alike(severity: int) -> None:
    made = noise.impulse_noise(GREY, severity=severity, draws=draws("impulse"))
    share, size = noise.IMPULSE["imagenet"][severity - 1], GREY.numel()
    slack = 4 * math.sqrt(share / 2 * (1 - share / 2) / size)
    assert float((made == 0).double().mean()) == pytest.approx(share / 2, abs=slack)
    assert float((made == 255).double().mean()) == pytest.approx(share / 2, abs=slack)
    assert bool(((made == 0) | (made == 255) | (made == 128)).all())
