"""Digital changes of ImageNet-C: brightness, saturation, contrast, elastic transform, pixelation, JPEG.

Source:
    Hendrycks and Dietterich 2019, arXiv:1903.12261; constants and arithmetic of the released make_imagenet_c.py and
    make_cifar_c.py. Values become bytes by truncation, as there.
"""

from __future__ import annotations

from io import BytesIO

import numpy
from PIL import Image
from torch import Tensor

from robustkpca.corruptions.colour import brightened, recoloured
from robustkpca.corruptions.pictures import (
    UNIT,
    Floats,
    Picture,
    colours_first,
    colours_last,
    each,
    light,
    strength,
    truncated,
)
from robustkpca.draws import Draws

BRIGHTNESS = {"imagenet": (0.1, 0.2, 0.3, 0.4, 0.5), "cifar": (0.05, 0.1, 0.15, 0.2, 0.3)}
SATURATE = {
    "imagenet": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    "cifar": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
}
"""What the saturation is multiplied with, and what is added."""
CONTRAST = {"imagenet": (0.4, 0.3, 0.2, 0.1, 0.05), "cifar": (0.75, 0.5, 0.4, 0.3, 0.15)}
PIXELATE = {"imagenet": (0.6, 0.5, 0.4, 0.3, 0.25), "cifar": (0.95, 0.9, 0.85, 0.75, 0.65)}
JPEG = {"imagenet": (25, 18, 15, 10, 7), "cifar": (80, 65, 58, 50, 40)}


def brightness(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Raise the value of hue, saturation and value.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: by 0.1 to 0.5 of the range, or 0.05 to 0.3 for CIFAR.
        draws: Not used; the corruption is deterministic.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    more = strength(BRIGHTNESS, constants, severity, images)
    return each(images, lambda picture: brightened(picture, more))


def saturate(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Change the saturation of hue, saturation and value.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: 1 and 2 take colour away, 3 to 5 add it.
        draws: Not used; the corruption is deterministic.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    factor, more = strength(SATURATE, constants, severity, images)

    def coloured(saturation: Floats) -> Floats:
        return numpy.clip(saturation * factor + more, 0, 1)

    return each(images, lambda picture: recoloured(picture, saturation=coloured))


def contrast(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Move every value towards the mean of its colour.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: 0.4 down to 0.05 of the contrast is left, or 0.75 down to 0.15 for CIFAR.
        draws: Not used; the corruption is deterministic.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    left = strength(CONTRAST, constants, severity, images)

    def flatter(picture: Picture) -> Picture:
        means = light(picture).reshape(3, -1).cumsum(1)[:, -1:] / picture[0].size
        tables = truncated((UNIT - means) * left + means)
        return numpy.stack([light(plane, table) for plane, table in zip(picture, tables, strict=True)])

    return each(images, flatter)


def pixelate(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Make the picture smaller and large again, averaging over boxes.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: to 0.6 down to 0.25 of its sides, or 0.95 down to 0.65 for CIFAR.
        draws: Not used; the corruption is deterministic.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    scale = strength(PIXELATE, constants, severity, images)

    def coarse(picture: Picture) -> Picture:
        height, width = picture.shape[1:]
        whole = Image.fromarray(colours_last(picture))
        small = whole.resize((int(width * scale), int(height * scale)), Image.Resampling.BOX)
        return colours_first(numpy.asarray(small.resize((width, height), Image.Resampling.BOX)))

    return each(images, coarse)


def jpeg_compression(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Store the picture as JPEG; what comes back depends on Pillow's libjpeg, whose version stands in every header.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: quality 25 down to 7, or 80 down to 40 for CIFAR.
        draws: Not used; the corruption is deterministic.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels.
    """
    quality = strength(JPEG, constants, severity, images)

    def compressed(picture: Picture) -> Picture:
        file = BytesIO()
        Image.fromarray(colours_last(picture)).save(file, "JPEG", quality=quality)
        return colours_first(numpy.asarray(Image.open(file)))

    return each(images, compressed)
