"""Weather of ImageNet-C: snow, frost and fog.

Source:
    Hendrycks and Dietterich 2019, arXiv:1903.12261; constants and arithmetic of the released make_imagenet_c.py and
    make_cifar_c.py.
"""

from __future__ import annotations

import cv2
import numpy
from numpy.random import Generator
from torch import Tensor

from robustkpca.corruptions.motion import smeared
from robustkpca.corruptions.pictures import SINGLE, UNIT, Picture, each_drawn, light, strength, truncated
from robustkpca.corruptions.plasma import plasma
from robustkpca.corruptions.textures import Textures, textures_of
from robustkpca.corruptions.zoom import enlarged
from robustkpca.draws import Draws

SNOW = {
    "imagenet": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "cifar": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
}
"""Mean and deviation of the flakes, their size, the threshold, radius and deviation of the smear, share of the picture."""
FROST = {
    "imagenet": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    "cifar": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
}
"""Share of the picture, share of the texture."""
FOG = {
    "imagenet": ((1.5, 2), (2.0, 2), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
    "cifar": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
}
"""Thickness, decay of the clouds."""


def snow(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Whiten the picture and let flakes fall, twice, the second time turned upside down.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5.
        draws: One stream per image.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    mean, deviation, size, threshold, radius, smear, share = strength(SNOW, constants, severity, images)

    def snowy(picture: Picture, generator: Generator) -> Picture:
        flakes = enlarged(generator.normal(loc=mean, scale=deviation, size=picture.shape[1:]), size)
        flakes[flakes < threshold] = 0
        fallen = light(smeared(truncated(flakes), radius, smear, generator.uniform(-135, -45)))
        values = light(picture, SINGLE)
        grey = cv2.cvtColor(cv2.merge(list(values)), cv2.COLOR_RGB2GRAY)
        grey *= 1.5
        grey += 0.5
        made = numpy.empty_like(picture)
        for plane, whitened in zip(values, made, strict=True):
            pale = numpy.maximum(plane, grey)
            pale *= 1 - share
            plane *= share
            pale += plane
            bright = pale + fallen
            bright += fallen[::-1, ::-1]
            whitened[:] = truncated(bright)
        return made

    return each_drawn(images, draws, snowy)


def frost(
    images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet", textures: str = "synthetic"
) -> Tensor:
    """Lay a piece of a frozen window over the picture.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: the picture fades to 0.6, the frost grows to 0.75; for CIFAR to 0.75 and 0.45.
        draws: One stream per image.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
        textures: ``synthetic``, made by code, or ``published``, the photos of the first authors, see `textures`.
    """
    share, covering = strength(FROST, constants, severity, images)
    windows: Textures = textures_of(textures, constants, images.shape[2], images.shape[3])

    def frozen(picture: Picture, generator: Generator) -> Picture:
        window = windows[int(generator.integers(0, len(windows)))]
        height, width = picture.shape[1:]
        top = int(generator.integers(0, window.shape[1] - height))
        left = int(generator.integers(0, window.shape[2] - width))
        ice = window[:, top : top + height, left : left + width]
        values = light(picture, numpy.arange(256) * float(share))
        values += light(numpy.ascontiguousarray(ice), numpy.arange(256) * float(covering))
        numpy.minimum(values, 255, out=values)
        return values.astype(numpy.uint8)

    return each_drawn(images, draws, frozen)


def fog(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Add clouds, and darken so that the brightest value stays what it was.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: clouds 1.5 to 3 times as bright as white, or 0.2 to 1.5 times for CIFAR.
        draws: One stream per image.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    thickness, decay = strength(FOG, constants, severity, images)
    size = 1 << (max(images.shape[2:]) - 1).bit_length()

    def foggy(picture: Picture, generator: Generator) -> Picture:
        height, width = picture.shape[1:]
        brightest = UNIT[picture.max()]
        values = light(picture)
        clouds = plasma(size, decay, generator)[:height, :width]
        clouds *= thickness
        values += clouds
        values *= brightest
        values /= brightest + thickness
        return truncated(values)

    return each_drawn(images, draws, foggy)
