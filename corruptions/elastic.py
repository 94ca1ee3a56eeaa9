"""A picture on a sheet of rubber.

Source:
    Hendrycks and Dietterich 2019, arXiv:1903.12261, after Simard et al. 2003; constants and arithmetic of the released
    make_imagenet_c.py and make_cifar_c.py.
"""

from __future__ import annotations

from functools import cache

import cv2
import numpy
from numpy.random import Generator
from scipy.ndimage import gaussian_filter
from torch import Tensor

from robustkpca.corruptions.pictures import SINGLE, Floats, Picture, each_drawn, light, strength, truncated
from robustkpca.draws import Draws

_IMAGENET, _CIFAR = 244 / 224, 1.0  # the released code writes 244 where the images have 224 pixels
ELASTIC = {
    "imagenet": tuple(
        (a * _IMAGENET, b * _IMAGENET, c * _IMAGENET)
        for a, b, c in ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))
    ),
    "cifar": ((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
}
"""Strength of the displacement, smoothness of its field, reach of the affine map; parts of the shorter side."""
_BAND = 32
"""Rows that are moved together."""


def elastic_transform(images: Tensor, *, severity: int, draws: Draws, constants: str = "imagenet") -> Tensor:
    """Move three points of the picture at random, then every pixel by a smooth random field.

    Args:
        images: ``(N, 3, H, W)``, uint8.
        severity: 1 to 5: 1 and 2 bend on a large scale, 3 to 5 ripple.
        draws: One stream per image.
        constants: ``imagenet``, or ``cifar`` for images of 32 pixels. Both are parts of the shorter side.
    """
    side = min(images.shape[2:])
    length, smoothness, reach = (part * side for part in strength(ELASTIC, constants, severity, images))

    def bent(picture: Picture, generator: Generator) -> Picture:
        shape = picture.shape[1:]
        values = _tilted(light(picture, SINGLE), reach, generator)
        right = (_smooth(generator.uniform(-1, 1, size=shape), smoothness) * length).astype(numpy.float32)
        down = (_smooth(generator.uniform(-1, 1, size=shape), smoothness) * length).astype(numpy.float32)
        return truncated(_moved(values, down, right))

    return each_drawn(images, draws, bent)


def _tilted(values: Floats, reach: float, generator: Generator) -> Floats:
    """Apply the affine map that moves three corners of the middle third by up to ``reach`` pixels each way."""
    shape = values.shape[1:]
    middle, third = numpy.array(shape, numpy.float32) // 2, min(shape) // 3
    corners = numpy.array([middle + third, [middle[0] + third, middle[1] - third], middle - third], dtype=numpy.float32)
    moved = corners + generator.uniform(-reach, reach, size=corners.shape).astype(numpy.float32)
    matrix = cv2.getAffineTransform(corners, moved)
    return numpy.stack(
        [cv2.warpAffine(plane, matrix, shape[::-1], borderMode=cv2.BORDER_REFLECT_101) for plane in values]
    )


def _smooth(field: Floats, deviation: float) -> Floats:
    """Blur a field under a bell curve, three deviations to each side; the picture is mirrored beyond its edge."""
    if deviation <= 0:
        return field
    if 16 * deviation < min(field.shape):
        narrow: Floats = gaussian_filter(field, deviation, mode="reflect", truncate=3.0)
        return narrow
    made: Floats = _bell(field.shape[0], deviation) @ field @ _bell(field.shape[1], deviation).T
    return made


@cache
def _bell(size: int, deviation: float) -> Floats:
    """Return the blur of a line as a matrix ``(size, size)``; a bell that is wider than the line is folded into it."""
    radius = int(3 * deviation + 0.5)
    offsets = numpy.arange(-radius, radius + 1)
    weights = numpy.exp(-0.5 / (deviation * deviation) * offsets**2)
    weights /= weights.sum()
    places = (numpy.arange(size)[:, None] + offsets) % (2 * size)
    places = numpy.where(places >= size, 2 * size - 1 - places, places)
    matrix = numpy.zeros((size, size))
    numpy.add.at(matrix, (numpy.arange(size)[:, None], places), weights)
    return matrix


def _moved(values: Floats, down: Floats, right: Floats) -> Floats:
    """Take every pixel from ``down`` and ``right`` of its place, linearly interpolated; the picture is mirrored.

    Args:
        values: ``(3, H, W)``, float32.
        down: ``(H, W)``, float32, in pixels.
        right: ``(H, W)``, float32, in pixels.
    """
    made = numpy.empty_like(values)
    for start in range(0, len(down), _BAND):
        rows = slice(start, start + _BAND)
        _move_band(values, down[rows], right[rows], start, made[:, rows])
    return made


def _move_band(values: Floats, down: Floats, right: Floats, start: int, made: Floats) -> None:
    """Fill ``made`` ``(3, rows, W)``, the rows from ``start`` on; a few at a time stay in the cache."""
    height, width = values.shape[1:]
    top, row = _between(numpy.arange(start, start + len(down))[:, None] + down.astype(numpy.float64), height)
    left, column = _between(numpy.arange(width) + right.astype(numpy.float64), width)
    beside = numpy.minimum(left + 1, width - 1)
    below = numpy.minimum(top + 1, height - 1)
    below *= width
    top *= width
    corners = (top + left, top + beside, below + left, below + beside)
    for plane, moved in zip(values, made, strict=True):
        upper, upper_right, lower, lower_right = (plane.take(corner) for corner in corners)
        for before, after, share in ((upper, upper_right, column), (lower, lower_right, column), (upper, lower, row)):
            after -= before
            after *= share
            before += after
        moved[:] = upper


def _between(places: Floats, size: int) -> tuple[Floats, Floats]:
    """Fold places into a line of pixels mirrored at its ends; return the pixel before and the way to the next."""
    if places.min() < 0 or places.max() > size - 1:
        if places.min() < -size or places.max() > 2 * size:
            places %= 2 * size
        places += 0.5
        numpy.abs(places, out=places)
        places -= size
        numpy.abs(places, out=places)
        numpy.subtract(size - 0.5, places, out=places)
        numpy.clip(places, 0, size - 1, out=places)
    before = places.astype(numpy.int64)
    places -= before
    return before, places.astype(numpy.float32)
