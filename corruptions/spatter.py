"""Drops of water and splashes of mud.

Source:
    Hendrycks and Dietterich 2019, arXiv:1903.12261; constants and arithmetic of the released make_imagenet_c.py and
    make_cifar_c.py.
"""

from __future__ import annotations

import cv2
import numpy
from numpy.random import Generator
from scipy.ndimage import gaussian_filter
from torch import Tensor

from robustkpca.corruptions.pictures import SINGLE, Floats, Picture, each_drawn, light, strength, truncated
from robustkpca.draws import Draws

SPATTER = {
    "imagenet": (
        (0.65, 0.3, 4, 0.69, 0.6, False),
        (0.65, 0.3, 3, 0.68, 0.6, False),
        (0.65, 0.3, 2, 0.68, 0.5, False),
        (0.65, 0.3, 1, 0.65, 1.5, True),
        (0.67, 0.4, 1, 0.65, 1.5, True),
    ),
    "cifar": (
        (0.62, 0.1, 0.7, 0.7, 0.5, False),
        (0.65, 0.1, 0.8, 0.7, 0.5, False),
        (0.65, 0.3, 1, 0.69, 0.5, False),
        (0.65, 0.1, 0.7, 0.69, 0.6, True),
        (0.65, 0.1, 0.5, 0.68, 0.6, True),
    ),
}
"""Mean, deviation and blur of the liquid, threshold, strength of the water or blur of the mud, whether it is mud."""
WATER = numpy.array([175 / 255, 238 / 255, 238 / 255], numpy.float32)[:, None, None]
MUD = numpy.array([63 / 255, 42 / 255, 20 / 255], numpy.float32)[:, None, None]
"""Pale turquoise, brown."""
_LIGHT = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))


def spatter(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Let drops of water (severity 1 to 3) or mud (4 and 5) lie on the lens.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5.
        draws: One stream per image.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    mean, deviation, blur, threshold, last, mud = strength(SPATTER, constants, severity, images)

    def spattered(picture: Picture, generator: Generator) -> Picture:
        values = light(picture, SINGLE)
        liquid = _soft(generator.normal(loc=mean, scale=deviation, size=picture.shape[1:]), blur)
        liquid[liquid < threshold] = 0
        if mud:
            splash = _soft((liquid > threshold).astype(numpy.float32), last)
            splash[splash < 0.8] = 0
            values *= 1 - splash
            values += MUD * splash
        else:
            drops = _drops((liquid * 255).astype(numpy.uint8))
            highest = drops.max()
            if highest > 0:  # without a drop the released code divides by zero
                drops /= highest
            drops *= last
            values += drops * WATER
        return truncated(values)

    return each_drawn(images, draws, spattered)


def _drops(liquid: Picture) -> Floats:
    """Return how much light each pixel of the liquid ``(H, W)`` sends back, by its distance from the edge of its drop."""
    distance = cv2.distanceTransform(255 - cv2.Canny(liquid, 50, 150), cv2.DIST_L2, 5)
    distance = cv2.threshold(distance, 20, 20, cv2.THRESH_TRUNC)[1]
    levels = cv2.equalizeHist(cv2.blur(distance, (3, 3)).astype(numpy.uint8))
    relief = cv2.blur(cv2.filter2D(levels, cv2.CV_8U, numpy.array(_LIGHT)), (3, 3))
    drops: Floats = liquid * relief.astype(numpy.float32)
    return drops


def _soft(values: Floats, deviation: float) -> Floats:
    blurred: Floats = gaussian_filter(values, deviation, mode="nearest", truncate=4.0)
    return blurred
