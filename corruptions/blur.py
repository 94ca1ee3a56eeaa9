"""Blur of ImageNet-C: defocus, glass, motion, zoom and Gaussian.

Source:
    Hendrycks and Dietterich 2019, arXiv:1903.12261; constants and arithmetic of the released make_imagenet_c.py and
    make_cifar_c.py. Radii are in pixels whatever the size of the image.
"""

from __future__ import annotations

from functools import cache

import cv2
import numpy
from numpy.random import Generator
from scipy.ndimage import gaussian_filter
from torch import Tensor

from robustkpca.corruptions.glass import shuffled
from robustkpca.corruptions.motion import smeared
from robustkpca.corruptions.pictures import SINGLE, Floats, Picture, each, each_drawn, light, strength, truncated
from robustkpca.corruptions.zoom import Enlarged, stepped
from robustkpca.draws import Draws

DEFOCUS = {
    "imagenet": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "cifar": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
}
"""Radius of the disk, deviation of the bell curve that smooths its edge."""
GLASS = {
    "imagenet": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "cifar": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
}
"""Deviation of the blur, largest step of a pixel, rounds."""
MOTION = {
    "imagenet": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "cifar": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
}
"""Radius, deviation."""
ZOOM = {
    "imagenet": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    "cifar": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
}
"""End of the range of factors, which starts at 1, and its step."""
GAUSSIAN = {"imagenet": (1, 2, 3, 4, 6), "cifar": (0.4, 0.6, 0.7, 0.8, 1)}
"""Deviation."""


def defocus_blur(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Average over a disk with a soft edge.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: radius 3 to 10 pixels, or 0.3 to 1.5 for CIFAR.
        draws: Not used; the corruption is deterministic.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    kernel = _disk(*strength(DEFOCUS, constants, severity, images))
    return each(
        images, lambda picture: truncated(numpy.stack([cv2.filter2D(plane, -1, kernel) for plane in light(picture)]))
    )


def glass_blur(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Blur, let every pixel copy a random neighbour, and blur again.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: steps of at most 1 to 4 pixels; 1 for CIFAR.
        draws: One stream per image.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    deviation, reach, rounds = strength(GLASS, constants, severity, images)

    def behind_glass(picture: Picture, generator: Generator) -> Picture:
        soft = (_blurred(picture, deviation) * 255).astype(numpy.uint8)
        return truncated(_blurred(shuffled(soft, reach, rounds, generator), deviation))

    return each_drawn(images, draws, behind_glass)


def motion_blur(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Smear in a direction between -45 and 45 degrees.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: 21 to 41 pixels long, or 13 to 19 for CIFAR.
        draws: One stream per image.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    radius, deviation = strength(MOTION, constants, severity, images)
    return each_drawn(
        images, draws, lambda picture, generator: smeared(picture, radius, deviation, generator.uniform(-45, 45))
    )


def zoom_blur(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Average over several enlargements.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: enlarged by up to 10 % to 30 %, or 5 % to 25 % for CIFAR.
        draws: Not used; the corruption is deterministic.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    factors = numpy.arange(1, *strength(ZOOM, constants, severity, images)).tolist()
    height, width = images.shape[2:]
    sides = [(Enlarged.by(factor, height), Enlarged.by(factor, width)) for factor in factors]

    def blurred(picture: Picture) -> Picture:
        return numpy.stack([truncated(averaged(light(plane, SINGLE))) for plane in picture])

    def averaged(plane: Floats) -> Floats:
        upright = cv2.transpose(plane)
        steps = stepped(upright)
        total = numpy.zeros_like(plane)
        for rows, columns in sides:
            layer = cv2.transpose(columns.between(upright, steps))
            total += rows.between(layer, stepped(layer))
        total += plane
        total /= len(factors) + 1
        return total

    return each(images, blurred)


def gaussian_blur(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Average under a bell curve.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: standard deviation 1 to 6 pixels, or 0.4 to 1 for CIFAR.
        draws: Not used; the corruption is deterministic.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    deviation = strength(GAUSSIAN, constants, severity, images)
    return each(images, lambda picture: truncated(_blurred(picture, deviation)))


def _blurred(picture: Picture, deviation: float) -> Floats:
    """Return values from 0 to 1, float64, blurred up to four deviations; the edge is repeated."""
    values = light(picture)
    for plane in values:
        gaussian_filter(plane, deviation, mode="nearest", truncate=4.0, output=plane)
    return values


@cache
def _disk(radius: float, deviation: float) -> Floats:
    side = numpy.arange(-8, 9) if radius <= 8 else numpy.arange(-radius, radius + 1)
    squares = side**2
    disk = (squares[:, None] + squares[None, :] <= radius**2).astype(numpy.float32)
    disk /= disk.sum()
    width = 3 if radius <= 8 else 5
    soft: Floats = cv2.GaussianBlur(disk, ksize=(width, width), sigmaX=deviation)
    return soft
