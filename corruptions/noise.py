"""Noise of ImageNet-C: Gaussian, shot, impulse and speckle.

Source:
    Hendrycks and Dietterich 2019, arXiv:1903.12261; constants and arithmetic of the released make_imagenet_c.py and
    make_cifar_c.py. Values become bytes by truncation, as there.
"""

from __future__ import annotations

from functools import cache

import numpy
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from robustkpca.corruptions.pictures import UNIT, Picture, chosen, each_drawn, light, strength, truncated
from robustkpca.draws import Draws

GAUSSIAN = {"imagenet": (0.08, 0.12, 0.18, 0.26, 0.38), "cifar": (0.04, 0.06, 0.08, 0.09, 0.10)}
SHOT = {"imagenet": (60, 25, 12, 5, 3), "cifar": (500, 250, 100, 75, 50)}
IMPULSE = {"imagenet": (0.03, 0.06, 0.09, 0.17, 0.27), "cifar": (0.01, 0.02, 0.03, 0.05, 0.07)}
SPECKLE = {"imagenet": (0.15, 0.2, 0.35, 0.45, 0.6), "cifar": (0.06, 0.1, 0.12, 0.16, 0.2)}


def gaussian_noise(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Add normal noise to every value.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: standard deviation 0.08 to 0.38 of the range, or 0.04 to 0.10 for CIFAR.
        draws: One stream per image.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    deviation = strength(GAUSSIAN, constants, severity, images)

    def noisy(picture: Picture, generator: Generator) -> Picture:
        values = generator.standard_normal(picture.shape, dtype=numpy.float32)
        values *= deviation
        values += light(picture, UNIT.astype(values.dtype))
        return truncated(values)

    return each_drawn(images, draws, noisy)


def speckle_noise(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Add normal noise in proportion to the value.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: standard deviation 0.15 to 0.6 of the value, or 0.06 to 0.2 for CIFAR.
        draws: One stream per image.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    deviation = strength(SPECKLE, constants, severity, images)

    def noisy(picture: Picture, generator: Generator) -> Picture:
        values = generator.standard_normal(picture.shape, dtype=numpy.float32)
        values *= deviation
        before = light(picture, UNIT.astype(values.dtype))
        values *= before
        values += before
        return truncated(values)

    return each_drawn(images, draws, noisy)


def shot_noise(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Count photons: every value becomes a Poisson variable around itself.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: 60 down to 3 photons for full light, or 500 down to 50 for CIFAR.
        draws: One stream per image.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    full = strength(SHOT, constants, severity, images)
    shown = truncated(numpy.arange(full + 1) / full)
    return each_drawn(images, draws, lambda picture, generator: shown.take(photons(picture, full, generator)))


def impulse_noise(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Set some values to black or white ("salt and pepper"), each colour by itself.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: 3 % to 27 % of the values, or 1 % to 7 % for CIFAR.
        draws: One stream per image.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    share = strength(IMPULSE, constants, severity, images)

    def noisy(picture: Picture, generator: Generator) -> Picture:
        flipped = generator.random(picture.shape, dtype=numpy.float32) <= share
        salted = generator.random(picture.shape, dtype=numpy.float32) <= 0.5
        return chosen(flipped, salted.view(numpy.uint8) * numpy.uint8(255), picture)

    return each_drawn(images, draws, noisy)


def photons(picture: Picture, full: int, generator: Generator) -> NDArray[numpy.uint16]:
    """Draw one Poisson number for each value, counted up to ``full`` alone, since nothing is brighter than white.

    One uniform number for each value chooses from the 256 distributions there are by their alias tables.

    Args:
        picture: ``(3, H, W)``, uint8.
        full: Expected count at 255.
        generator: The picture's own.

    Returns:
        Shaped like ``picture``, 0 to ``full``.

    Source:
        Walker 1977, "An efficient method for generating discrete random variables with general distributions"; the tables
        after Vose 1991.
    """
    threshold, other = _alias(full)
    place = generator.random(picture.shape, dtype=numpy.float32)
    place *= full + 1
    column = place.astype(numpy.uint16)
    numpy.minimum(column, full, out=column)  # the product may have been rounded up
    place -= column
    index = picture * numpy.intp(full + 1)
    index += column
    return chosen(place < threshold.take(index), column, other.take(index))


@cache
def _alias(full: int) -> tuple[NDArray[numpy.float32], NDArray[numpy.uint16]]:
    """Return the alias tables of the 256 truncated Poisson distributions, each flat, ``256 * (full + 1)`` long."""
    from scipy.stats import poisson

    counts = numpy.arange(full + 1)
    rates = (UNIT * full)[:, None]
    chances = poisson.pmf(counts, rates)
    chances[:, full] = poisson.sf(full - 1, rates[:, 0])
    threshold = numpy.ones_like(chances)
    other = numpy.tile(counts, (256, 1))
    for level, row in enumerate(chances / chances.sum(1, keepdims=True) * (full + 1)):
        small, large = [int(j) for j in (row < 1).nonzero()[0]], [int(j) for j in (row >= 1).nonzero()[0]]
        left = row.tolist()
        while small and large:
            poor, rich = small.pop(), large[-1]
            threshold[level, poor], other[level, poor] = left[poor], rich
            left[rich] -= 1 - left[poor]
            if left[rich] < 1:
                small.append(large.pop())
    return threshold.ravel().astype(numpy.float32), other.ravel().astype(numpy.uint16)
