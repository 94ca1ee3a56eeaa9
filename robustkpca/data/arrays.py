"""Arrays as a data set: uint8 pictures, or floats that are used as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from robustkpca.data.digest import Stamp, array_digest, refuse_changed, stamp
from robustkpca.data.inputs import checked_images, checked_labels, class_count, refuse_range
from robustkpca.errors import BadValue
from robustkpca.preprocessing import Preprocessing
from robustkpca.specs import DataSpec

_PIECE = 256  # images looked at together when a range is measured


@dataclass(frozen=True)
class ArrayImages:
    """Labelled images in one array, which may stay on disk; a `Dataset`.

    Args:
        spec: What was found.
        pixels: ``(N, H, W)``, ``(N, C, H, W)`` or ``(N, H, W, C)``; uint8, or floats in [0, 1].
        ids: One name per sample.
        labels: One class per sample, from 0.
        class_names: One name per class.
        notices: Choices made while the layout was recognised.
        stamp: Of the file, when the fingerprint was taken; ``None`` for arrays in memory.
    """

    spec: DataSpec
    pixels: NDArray[Any]
    ids: tuple[str, ...]
    labels: tuple[int, ...]
    class_names: tuple[str, ...]
    notices: tuple[str, ...] = ()
    stamp: Stamp | None = None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Travel to another process as a path where the pixels lie in a file, instead of as their copy."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if isinstance(self.pixels, numpy.memmap) and self.pixels.filename is not None:
            del values["pixels"]
            return _reopened, (str(self.pixels.filename), values)
        return ArrayImages, tuple(values.values())

    def check(self, positions: Sequence[int], preprocessing: Preprocessing) -> dict[int, str]:
        """Nothing can be damaged in an array that was opened."""
        return {}

    def read(self, positions: Sequence[int], preprocessing: Preprocessing) -> Tensor:
        """Take some of the images; see `Dataset.read`. Floats are cropped, but neither resized nor made grey."""
        if not len(positions):
            raise BadValue(f"data {self.spec.name!r}: no positions to read; expected at least one")
        block = _channels_last(numpy.asarray(self.pixels[list(positions)]))
        if self.stamp is not None and isinstance(self.pixels, numpy.memmap):
            refuse_changed(Path(str(self.pixels.filename)), self.stamp)
        try:
            if block.dtype == numpy.uint8:
                images = [preprocessing.apply(Image.fromarray(picture)) for picture in _pictures(block)]
                return torch.stack(images).float().div_(255)
            return _floats(block, preprocessing)
        except BadValue as error:
            raise BadValue(f"data {self.spec.name!r}: {error}; choose other --preprocessing") from None


def array_data(
    images: NDArray[Any] | Tensor,
    labels: NDArray[Any] | Tensor | Sequence[int],
    *,
    name: str = "arrays",
    layout: str = "arrays",
    classes: int | None = None,
    ids: Sequence[str] | None = None,
    path: Path | None = None,
) -> ArrayImages:
    """Make a data set of an array of images and their labels.

    Args:
        images: ``(N, H, W)``, ``(N, C, H, W)`` or ``(N, H, W, C)`` with 1 or 3 channels; uint8, or floats in [0, 1].
        labels: ``(N,)``, whole numbers from 0.
        name: A short name for tables and ids.
        layout: How the data were recognised.
        classes: The number of classes; ``None`` takes the largest label and one.
        ids: One stable name per sample; ``None`` gives ``name/000000`` and on.
        path: Where the data lie, if anywhere.

    Raises:
        BadValue: If shapes, dtype, range or labels are others.
    """
    pixels = _array(images)
    _channel_axis(pixels.shape)
    if pixels.dtype != numpy.uint8:
        _refuse_floats(pixels)
    whole = tuple(checked_labels(labels, len(pixels), classes).tolist())
    names = tuple(ids) if ids is not None else tuple(f"{name}/{position:06d}" for position in range(len(pixels)))
    if len(names) != len(pixels) or len(set(names)) != len(names):
        raise BadValue(
            f"{len(names)} sample ids, {len(set(names))} of them distinct; expected one for each of {len(pixels)}"
        )
    count, taken = class_count(whole, classes), _stamp(pixels)
    spec = DataSpec(name, layout, len(names), count, array_digest(names, whole, pixels), path=str(path or ""))
    return ArrayImages(
        spec, pixels, names, whole, tuple(map(str, range(count))), counting_notices(name, whole, classes), taken
    )


def _stamp(pixels: NDArray[Any]) -> Stamp | None:
    filename = getattr(pixels, "filename", None)  # of a memmap
    return None if filename is None else stamp(Path(filename))


def counting_notices(name: str, labels: Sequence[int], classes: int | None) -> tuple[str, ...]:
    """Return what should be said about labels whose number of classes is only known from the largest."""
    if classes is not None or min(labels) == 0:
        return ()
    return (f"{name}: labels run from {min(labels)} to {max(labels)}; if they count from 1, subtract 1",)


def _reopened(filename: str, values: dict[str, Any]) -> ArrayImages:
    return ArrayImages(pixels=numpy.load(filename, mmap_mode="r", allow_pickle=False), **values)


def _array(images: NDArray[Any] | Tensor) -> NDArray[Any]:
    if isinstance(images, Tensor):
        images = images.detach().cpu()
        return (images.float() if images.dtype == torch.bfloat16 else images).numpy()
    return numpy.asanyarray(images)


def _channel_axis(shape: tuple[int, ...]) -> int | None:
    """Return where the channels are, 1 or 3, or ``None`` for grey images without such an axis."""
    if 0 in shape:
        raise BadValue(f"images have shape {shape}: there is nothing in them; expected at least one image")
    if len(shape) == 3:
        return None
    axes = [axis for axis in (1, 3) if len(shape) == 4 and shape[axis] in (1, 3)]
    if len(axes) != 1:
        why = "both ends could be the channels" if axes else "no axis of 1 or 3 channels where one should be"
        raise BadValue(
            f"images have shape {shape}, {why}; expected (N, H, W, 3), (N, 3, H, W) or (N, H, W): reshape them"
        )
    return axes[0]


def _channels_last(block: NDArray[Any]) -> NDArray[Any]:
    axis = _channel_axis(block.shape)
    return block[..., None] if axis is None else numpy.moveaxis(block, axis, 3)


def _pictures(block: NDArray[Any]) -> list[NDArray[Any]]:
    """Return each image as Pillow wants it: ``(H, W, 3)``, or ``(H, W)`` for one channel."""
    return [numpy.ascontiguousarray(image[..., 0] if image.shape[2] == 1 else image) for image in block]


def _floats(block: NDArray[Any], preprocessing: Preprocessing) -> Tensor:
    """Crop float images, and repeat a grey channel three times where colour is wanted."""
    height, width, channels = block.shape[1:]
    if preprocessing.resize is not None:
        raise BadValue(f"images are {block.dtype.name} and are not resized; save them as uint8, or leave out resize")
    if channels > preprocessing.channels:
        raise BadValue(f"images are {block.dtype.name} with 3 channels and are not made grey; save them as uint8")
    crop = preprocessing.crop
    if crop is not None:
        if min(height, width) < crop:
            raise BadValue(f"images are {width}x{height}, smaller than the crop of {crop} pixels")
        top, left = round((height - crop) / 2), round((width - crop) / 2)  # as torchvision's center_crop
        block = block[:, top : top + crop, left : left + crop]
    images = checked_images(numpy.moveaxis(block, 3, 1))
    return images if channels == preprocessing.channels else images.repeat(1, preprocessing.channels, 1, 1)


def _refuse_floats(pixels: NDArray[Any]) -> None:
    """Measure the range of the whole array piece by piece, before anything is computed with it."""
    if pixels.dtype.newbyteorder("=") not in (numpy.float16, numpy.float32, numpy.float64):
        raise BadValue(
            f"images are {pixels.dtype.name}; expected uint8 from 0 to 255, or floats in [0, 1]: convert them"
        )
    low, high = numpy.inf, -numpy.inf
    for start in range(0, len(pixels), _PIECE):
        piece = numpy.asarray(pixels[start : start + _PIECE])
        low, high = numpy.minimum(low, piece.min()), numpy.maximum(high, piece.max())
    refuse_range(float(low), float(high))
