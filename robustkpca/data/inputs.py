"""The checks at the door: images and labels that a user hands over are as expected, or named for what they are."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustkpca.errors import BadValue

TOLERANCE = 1e-6  # what normalising and undoing it leaves behind
MOST_CLASSES = 1_000_000
_NORMALISED = 20.0  # (value - mean) / std stays well below this for usual means and deviations
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def checked_images(images: Tensor | NDArray[Any], *, dimensions: Collection[int] = (4,)) -> Tensor:
    """Return images as every model and attack expects them, or say what they are instead.

    Args:
        images: ``(N, C, H, W)``, of any memory layout; floats in [0, 1] up to 1e-6, or uint8.
        dimensions: Numbers of dimensions to accept; add 2 for models of plain features ``(N, D)``.

    Returns:
        A new contiguous tensor on the same device, float32, in [0, 1]. The one handed over stays as it is.

    Raises:
        BadValue: If shape, dtype or range are others, or a value is not finite.
    """
    tensor = _tensor(images, "images")
    _refuse_shape(tensor.shape, dimensions)
    if tensor.dtype == torch.uint8:
        return tensor.contiguous().to(torch.float32).div_(255)
    if tensor.dtype not in _FLOATS:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise BadValue(
            f"images are {kind}; expected floats in [0, 1], or uint8 from 0 to 255: use images.to(torch.uint8)"
        )
    bad = ~torch.isfinite(tensor.flatten(1)).all(dim=1)
    if bad.any():
        count, first = int(bad.sum()), int(bad.nonzero()[0])
        raise BadValue(f"{count} of {len(bad)} images hold NaN or infinite values, the first at {first}; remove them")
    refuse_range(float(tensor.min()), float(tensor.max()))
    return tensor.to(torch.float32).clamp(0, 1).contiguous()


def refuse_range(low: float, high: float, what: str = "images") -> None:
    """Refuse float images outside [0, 1], with the likely reason.

    Args:
        low: The smallest value.
        high: The largest value.
        what: What the message calls them.

    Raises:
        BadValue: If a value is not finite, or outside [0, 1] by more than 1e-6.
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        raise BadValue(f"{what} hold NaN or infinite values; expected [0, 1]: remove the broken images")
    if low >= -TOLERANCE and high <= 1 + TOLERANCE:
        return
    measured = f"{what} run from {low:.4g} to {high:.4g}; expected [0, 1]."
    if low >= -TOLERANCE and 2 < high <= 255 + TOLERANCE:
        raise BadValue(f"{measured} They look like 0 to 255: divide by 255, or hand them over as uint8")
    if low >= -_NORMALISED and high <= _NORMALISED:
        raise BadValue(
            f"{measured} Already normalised? Move the normalisation into the model: --preprocessing 'mean=[...],std=[...]', "
            "or its attribute preprocessing with the same text, and hand over the images before it"
        )
    raise BadValue(f"{measured} Scale them to [0, 1]")


def checked_labels(labels: Tensor | NDArray[Any] | Sequence[int], count: int, classes: int | None = None) -> Tensor:
    """Return labels as class indices, or say what they are instead.

    Args:
        labels: ``(N,)`` or ``(N, 1)``, whole numbers of any dtype.
        count: The number of images.
        classes: The number of classes; ``None`` leaves the upper end unchecked.

    Returns:
        ``(N,)``, int64, a new tensor on the same device.

    Raises:
        BadValue: If the shape, a value or the range is another.
    """
    tensor = _tensor(labels, "labels")
    shape = tuple(tensor.shape)
    if len(shape) == 2 and shape[1] == 1:
        tensor = tensor.squeeze(1)
    elif len(shape) == 2:
        raise BadValue(
            f"labels have shape {shape}, as if one-hot; expected ({count},) class indices: use labels.argmax(1)"
        )
    if tensor.ndim != 1 or len(tensor) != count:
        raise BadValue(
            f"labels have shape {shape}; expected one class index for each of {count} images, shape ({count},)"
        )
    if tensor.dtype == torch.bool or tensor.is_complex():
        raise BadValue(f"labels are {str(tensor.dtype).removeprefix('torch.')}; expected whole numbers from 0")
    if tensor.is_floating_point():
        _refuse_fractions(tensor)
    whole = tensor.detach().to(torch.int64, copy=True)
    _refuse_outside(whole, classes)
    return whole


def class_count(labels: Sequence[int], classes: int | None) -> int:
    """Return how many classes there are: as many as were asked for, or up to the largest label.

    Raises:
        BadValue: If that is more than any model tells apart, as where a column of ids was taken for labels.
    """
    count = max(labels) + 1 if classes is None else classes
    if count > MOST_CLASSES:
        raise BadValue(
            f"{count} classes; expected at most {MOST_CLASSES}: is {count - 1} a class, or an id of something else?"
        )
    return count


def _refuse_shape(shape: Sequence[int], dimensions: Collection[int]) -> None:
    shape = tuple(shape)
    wanted = "(N, C, H, W)" if 4 in dimensions else f"{sorted(dimensions)} dimensions"
    if len(shape) not in dimensions:
        mend = ": add the batch dimension with images[None]" if len(shape) == 3 else ""
        raise BadValue(f"images have shape {shape}; expected {wanted}{mend}")
    if 0 in shape:
        raise BadValue(f"images have shape {shape}: there is nothing in them; expected at least one image")
    if len(shape) == 4 and shape[1] not in (1, 3) and shape[3] in (1, 3):
        raise BadValue(f"images have shape {shape}, channels last; expected {wanted}: use images.permute(0, 3, 1, 2)")


def _refuse_fractions(labels: Tensor) -> None:
    whole = labels.isfinite() & (labels == labels.round())
    if not whole.all():
        at = int((~whole).nonzero()[0])
        kind = str(labels.dtype).removeprefix("torch.")
        raise BadValue(f"labels are {kind} and hold {float(labels[at])} (sample {at}); expected whole numbers from 0")


def _refuse_outside(labels: Tensor, classes: int | None) -> None:
    outside = labels < 0 if classes is None else (labels < 0) | (labels >= classes)
    if not outside.any():
        return
    at = int(outside.nonzero()[0])
    span = "from 0" if classes is None else f"0..{classes - 1}"
    hint = ""
    if int(labels.min()) >= 1 and int(labels.max()) == classes:
        hint = "; do the labels count from 1? Subtract 1"
    elif int(labels.min()) < 0:
        hint = "; a negative label often marks unknown samples: leave those out"
    elif classes is not None:
        hint = f"; is a model with {classes} classes the right one for these data?"
    raise BadValue(f"label {int(labels[at])} out of range {span} (sample {at}, {int(outside.sum())} such labels){hint}")


def _tensor(values: Any, what: str) -> Tensor:
    """Return a tensor; arrays are copied, since they may be read-only or run backwards."""
    if isinstance(values, Tensor):
        if values.layout != torch.strided or values.is_meta:
            kind = "on the meta device" if values.is_meta else f"of layout {values.layout}"
            raise BadValue(f"{what} are {kind}; expected a dense tensor with values")
        return values.detach()
    try:
        array = numpy.array(values)
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    except (TypeError, ValueError):
        raise BadValue(
            f"{what} are a {type(values).__name__} that is no plain array of numbers; expected a tensor"
        ) from None
