"""From a batch of tensors to single pictures and back: what all corruptions of ImageNet-C have in common.

A corruption is written for one picture, colour x height x width, and runs over a batch in this module. A picture sees
nothing of the others, so its result does not depend on the batch; several pictures are changed at once where torch may
use several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

import cv2
import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustkpca.draws import Draws
from robustkpca.errors import BadValue

Picture: TypeAlias = NDArray[numpy.uint8]
Floats: TypeAlias = NDArray[Any]
Strength = TypeVar("Strength")
Whole = TypeVar("Whole", numpy.uint8, numpy.uint16)

SMALLEST = {"imagenet": 64, "cifar": 16}
"""The shorter side, in pixels, from which on a set of constants leaves something to see."""
UNIT = numpy.arange(256) / 255.0
"""What a byte means, from 0 to 1, in float64."""
SINGLE = UNIT.astype(numpy.float32)
"""The same in float32."""


def strength(table: Mapping[str, Sequence[Strength]], constants: str, severity: int, images: Tensor) -> Strength:
    """Look up how strong a corruption is, and refuse images that it is not made for.

    Args:
        table: Five strengths for each set of constants.
        constants: ``imagenet`` or ``cifar``.
        severity: 1 to 5.
        images: ``(N, 3, H, W)``, uint8.

    Raises:
        BadValue: If there are no such constants or severity, or the images have another type, shape or are too small.
    """
    if constants not in table:
        raise BadValue(f"constants {constants!r}: expected one of {', '.join(table)}, such as 'fog(constants=cifar):3'")
    if severity not in (1, 2, 3, 4, 5):
        raise BadValue(f"severity {severity!r}: expected a whole number from 1 to 5")
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise BadValue(f"images are {tuple(images.shape)} {images.dtype}; expected (N, 3, H, W), uint8")
    channels, height, width = images.shape[1:]
    if channels != 3:
        raise BadValue(
            f"images have {channels} channel{'s' if channels != 1 else ''}; the corruptions of ImageNet-C are made for 3 "
            "colours: choose data and a model with 3"
        )
    if min(height, width) < SMALLEST[constants]:
        mend = (
            "write constants=cifar, such as 'fog(constants=cifar):3'"
            if constants == "imagenet"
            else "choose larger ones"
        )
        raise BadValue(
            f"images of {height}x{width} pixels are too small for the {constants} constants, which are made for "
            f"{SMALLEST[constants]} pixels and more: {mend}"
        )
    return table[constants][severity - 1]


def each(images: Tensor, change: Callable[[Picture], Picture]) -> Tensor:
    """Change every picture of a batch by itself.

    Args:
        images: ``(N, 3, H, W)``, uint8, on any device; the work is done on the CPU.
        change: Maps one picture ``(3, H, W)`` to another, and leaves the first as it is.
    """
    return _mapped(images, lambda index, picture: change(picture))


def each_drawn(images: Tensor, draws: Draws, change: Callable[[Picture, numpy.random.Generator], Picture]) -> Tensor:
    """Change every picture of a batch by itself, with the random numbers of its own.

    Args:
        images: ``(N, 3, H, W)``, uint8, on any device; the work is done on the CPU.
        draws: One stream per picture.
        change: Maps one picture ``(3, H, W)`` and its generator to another picture.
    """
    generators = draws.generators()
    return _mapped(images, lambda index, picture: change(picture, generators[index]))


def light(picture: Picture, table: NDArray[Any] = UNIT) -> Floats:
    """Look every byte up in a table.

    Args:
        picture: Bytes of any shape.
        table: ``(256,)``, of any type; from 0 to 1 where not given.
    """
    values: Floats = cv2.LUT(picture.reshape(-1, picture.shape[-1]), table).reshape(picture.shape)
    return values


def truncated(values: Floats) -> Picture:
    """Turn values from 0 to 1 into bytes, downwards; others are clipped first. The values are overwritten.

    Args:
        values: Floats of any shape.
    """
    numpy.clip(values, 0, 1, out=values)
    values *= 255
    return values.astype(numpy.uint8)


def chosen(first: NDArray[numpy.bool_], one: NDArray[Whole], other: NDArray[Whole]) -> NDArray[Whole]:
    """Return ``one`` where ``first`` is true and ``other`` elsewhere, as `numpy.where`, without a branch for each value.

    Args:
        first: Truth values of any shape.
        one: Whole numbers without sign, of the same shape.
        other: The same.
    """
    mask = numpy.negative(first.view(numpy.uint8).astype(other.dtype))
    mask &= one ^ other
    mask ^= other
    return mask


def colours_last(picture: Picture) -> Picture:
    """Return a picture ``(3, H, W)`` as ``(H, W, 3)``, for the libraries that want it so."""
    made: Picture = cv2.merge(list(picture))
    return made


def colours_first(picture: Picture) -> Picture:
    """Return a picture ``(H, W, 3)`` as ``(3, H, W)``."""
    made = numpy.empty((3, *picture.shape[:2]), picture.dtype)
    cv2.split(picture, list(made))
    return made


def _mapped(images: Tensor, change: Callable[[int, Picture], Picture]) -> Tensor:
    pictures = images.cpu().contiguous().numpy()
    made = numpy.empty_like(pictures)

    def one(index: int) -> None:
        made[index] = change(index, pictures[index])

    threads = min(len(pictures), torch.get_num_threads())
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(one, range(len(pictures))))
    else:
        for index in range(len(pictures)):
            one(index)
    return torch.from_numpy(made).to(images.device)
