"""What a training image goes through before the network sees it, by timm's own transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import timm.data
import torch
from torch import Tensor
from torchvision.transforms.functional import to_pil_image

from robustkpca.data.dataset import Dataset
from robustkpca.errors import BadValue
from robustkpca.preprocessing import Preprocessing
from robustkpca.recipes import Recipe

Reader = Callable[[Sequence[int]], Tensor]
"""Reads training images by position: ``(N, C, H, W)``, float32, in [0, 1]."""

_timm: Any = timm  # its functions carry no types
_RAND_AUGMENT = "rand-m9-mstd0.5-inc1"  # KPCA_code and DeiT


def augmented(data: Dataset, preprocessing: Preprocessing, recipe: Recipe) -> Reader:
    """Return what reads training images, each augmented anew whenever it is read.

    Random numbers come from the global generators, as timm's transforms take them.

    Args:
        data: Where the images come from.
        preprocessing: Of the model; its crop is the size of the images.
        recipe: Says how much is changed.

    Raises:
        BadValue: If ``imagenet`` augmentation is asked for a model without a fixed RGB size.
    """
    plain = replace(preprocessing, mean=(), std=())
    if recipe.augmentation == "plain":
        return lambda positions: data.read(positions, plain)
    if recipe.augmentation == "shift":
        return lambda positions: shifted(data.read(positions, plain))
    if preprocessing.crop is None or preprocessing.channels != 3:
        raise BadValue("augmentation imagenet wants a model for RGB images of a fixed size; use shift or plain")
    transform = _timm.data.create_transform(
        preprocessing.crop,
        is_training=True,
        color_jitter=recipe.jitter,
        auto_augment=_RAND_AUGMENT,
        interpolation="bicubic",
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        re_prob=0.0,
    )
    whole = Preprocessing(channels=3)

    def read(positions: Sequence[int]) -> Tensor:
        return torch.stack([transform(to_pil_image(data.read([position], whole)[0])) for position in positions])

    return read


def shifted(images: Tensor) -> Tensor:
    """Move every image by -1, 0 or 1 pixels along both axes, filled with black."""
    height, width = images.shape[-2:]
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    offsets = torch.randint(0, 3, (len(images), 2)).tolist()
    moved = [image[:, y : y + height, x : x + width] for image, (y, x) in zip(padded, offsets, strict=True)]
    return torch.stack(moved)
