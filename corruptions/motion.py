"""Smearing along a line, as ImageMagick does it."""

from __future__ import annotations

from math import ceil, cos, exp, hypot, radians, sin

import cv2
import numpy

from robustkpca.corruptions.pictures import Picture, colours_first, colours_last

LEVELS = 257
"""ImageMagick computes with 16 bits: a byte times 257."""


def smeared(picture: Picture, radius: int, deviation: float, angle: float) -> Picture:
    """Smear a picture in one direction; pixels beyond the edge repeat it.

    Args:
        picture: ``(3, H, W)`` or ``(H, W)``, uint8.
        radius: The smear is ``2 * radius + 1`` pixels long, and starts at the pixel itself.
        deviation: Of the half bell curve that weighs them, in pixels.
        angle: In degrees, clockwise from the right.

    Source:
        ImageMagick 6, MotionBlurImage at 16 bits per channel: offsets rounded to whole pixels, sums rounded to 16 bits,
        then cut off to 8. Here the sums are float32, so that about one value in 100 000 differs by one.
    """
    length = 2 * radius + 1
    weights = [exp(-(step * step) / (2 * deviation * deviation)) for step in range(length)]
    down, right = length * sin(radians(angle)), length * cos(radians(angle))
    whole = hypot(down, right)
    rows = [ceil(step * down / whole - 0.5) for step in range(length)]
    columns = [ceil(step * right / whole - 0.5) for step in range(length)]
    top, left = -min(rows), -min(columns)
    last = colours_last(picture) if picture.ndim == 3 else picture
    wide = cv2.copyMakeBorder(last, top, max(rows), left, max(columns), cv2.BORDER_REPLICATE).astype(numpy.float32)
    height, width = last.shape[:2]
    total = numpy.zeros(last.shape, numpy.float32)
    for weight, row, column in zip(weights, rows, columns, strict=True):
        part = wide[top + row : top + row + height, left + column : left + column + width]
        cv2.scaleAdd(part, LEVELS * weight / sum(weights), total, total)
    bytes_ = ((total + 0.5).astype(numpy.int32) // LEVELS).astype(numpy.uint8)
    return colours_first(bytes_) if picture.ndim == 3 else bytes_
