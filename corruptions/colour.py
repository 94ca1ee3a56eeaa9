"""Changes of brightness and saturation by way of hue, saturation and value.

Source:
    Smith 1978, "Color gamut transform pairs", in the arithmetic of scikit-image, float64, so that truncation to bytes meets
    the same numbers. Of a pixel whose largest and smallest value are the same only the value counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy
from numpy.typing import NDArray

from robustkpca.corruptions.pictures import UNIT, Floats, Picture, truncated

_ROWS = 16384
"""Pixels that are computed together, so that they stay in the cache."""


def brightened(picture: Picture, more: float) -> Picture:
    """Raise the value of every pixel, and keep hue and saturation.

    The largest and the smallest colour of a pixel follow from the two alone, by a table; so does the one between, but where
    the table lies on a whole number the rounding of the whole way decides, and that pixel goes the whole way.

    Args:
        picture: ``(3, H, W)``, uint8.
        more: Added to the value, which is from 0 to 1.
    """
    table, close = _brighter(more)
    red, green, blue = picture
    largest = numpy.maximum(numpy.maximum(red, green), blue)
    smallest = numpy.minimum(numpy.minimum(red, green), blue)
    row = largest.astype(numpy.intp)
    row <<= 8
    index = numpy.empty_like(row)  # reused, since fresh memory costs more than the arithmetic
    made = numpy.empty_like(picture)
    for plane, changed in zip(picture, made, strict=True):
        table.take(numpy.bitwise_or(row, plane, out=index), out=changed, mode="clip")
    between = red + green + blue - largest - smallest  # modulo 256
    doubtful = close.take(numpy.bitwise_or(row, between, out=index), mode="clip")
    doubtful &= largest != smallest
    places = doubtful.ravel().nonzero()[0]
    if len(places):
        made.reshape(3, -1)[:, places] = recoloured(
            picture.reshape(3, -1)[:, places], value=lambda value: numpy.clip(value + more, 0, 1)
        )
    return made


@cache
def _brighter(more: float) -> tuple[Picture, NDArray[numpy.bool_]]:
    """Return what becomes of a colour beside the largest of its pixel, each ``(65536,)``, and where that is close to a step."""
    largest, colour = UNIT[:, None], UNIT[None, :]
    saturation = (largest - colour) / numpy.where(largest == 0, 1, largest)
    exact = numpy.clip(largest + more, 0, 1) * (1 - saturation)
    close = numpy.abs(exact * 255 - numpy.rint(exact * 255)) < 1e-6
    return truncated(exact).ravel(), close.ravel()


def recoloured(
    picture: Picture,
    saturation: Callable[[Floats], Floats] | None = None,
    value: Callable[[Floats], Floats] | None = None,
) -> Picture:
    """Change saturation or value of every pixel, and keep its hue.

    Args:
        picture: ``(3, ...)``, uint8.
        saturation: Maps saturations to others, both from 0 to 1; ``None`` keeps them.
        value: Maps values to others, both from 0 to 1; ``None`` keeps them.
    """
    flat = picture.reshape(3, -1)
    made = numpy.empty_like(flat)
    for start in range(0, flat.shape[1], _ROWS):
        part = flat[:, start : start + _ROWS]
        made[:, start : start + _ROWS] = _recoloured(part, saturation, value)
    return made.reshape(picture.shape)


def _recoloured(
    pixels: Picture, saturation: Callable[[Floats], Floats] | None, value: Callable[[Floats], Floats] | None
) -> Picture:
    values = UNIT[pixels]
    red, green, blue = values
    largest = values.max(0)
    delta = largest - values.min(0)
    grey = delta == 0
    divisor = numpy.where(grey, 1, delta)
    is_blue, is_green = blue == largest, green == largest
    hue = numpy.where(
        is_blue,
        4.0 + (red - green) / divisor,
        numpy.where(is_green, 2.0 + (blue - red) / divisor, (green - blue) / divisor),
    )
    hue = numpy.where(grey, 0, (hue / 6.0) % 1.0) * 6
    share = numpy.where(grey, 0, delta / numpy.where(largest == 0, 1, largest))
    if saturation is not None:
        share = saturation(share)
    if value is not None:
        largest = value(largest)
    sector = numpy.floor(hue)
    rest = hue - sector
    low = largest * (1 - share)
    falling = largest * (1 - rest * share)
    rising = largest * (1 - (1 - rest) * share)
    which = sector.astype(numpy.uint8) % 6
    colours = (
        numpy.choose(which, (largest, falling, low, low, rising, largest)),
        numpy.choose(which, (rising, largest, largest, falling, low, low)),
        numpy.choose(which, (low, low, rising, largest, largest, falling)),
    )
    return truncated(numpy.stack(colours))
