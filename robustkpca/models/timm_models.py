"""Any model of timm, as ``timm/<name>``, with the preprocessing that timm itself announces for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import timm
from timm.data.config import resolve_data_config
from torch import nn

from robustkpca.errors import BadValue, Unusable, unknown
from robustkpca.models.announced import ATTRIBUTE
from robustkpca.preprocessing import Preprocessing


def create(name: str, **overrides: Any) -> nn.Module:
    """Build a model of timm.

    Args:
        name: A name of timm, with or without a tag after a full stop; ``timm/`` in front is dropped.
        **overrides: Arguments of ``timm.create_model``, such as ``num_classes`` and ``img_size``. ``pretrained`` is false
            unless given; when true, timm downloads the weights or takes them from its cache.

    Returns:
        The model with ``preprocessing``: timm's resize, central crop, interpolation, mean and deviation.

    Raises:
        UnknownName: If timm has no such model.
        BadValue: If timm refuses the arguments, or ``in_chans`` is neither 1 nor 3.
        Unusable: If the pretrained weights cannot be had.

    Source:
        Wightman 2019, huggingface/pytorch-image-models. Deliberate differences: every crop mode is treated as central, and
        for greyscale the mean and deviation are those of the three channels averaged.
    """
    name = name.removeprefix("timm/")
    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        raise unknown("model", f"timm/{name}", [f"timm/{known}" for known in timm.list_models()])
    if "checkpoint_path" in overrides:
        raise BadValue(f"timm/{name}: checkpoint_path is read without our checks; give the file with --checkpoint")
    if overrides.get("in_chans", 3) not in (1, 3):
        raise BadValue(f"timm/{name}: in_chans is {overrides['in_chans']}; expected 3 (RGB) or 1 (greyscale)")
    pretrained = overrides.pop("pretrained", False)
    if not isinstance(pretrained, bool):
        raise BadValue(f"timm/{name}: pretrained is {pretrained!r}; expected true or false")
    model = _built(name, overrides)
    if pretrained:
        model = _downloaded(name, overrides)
    setattr(model, ATTRIBUTE, timm_preprocessing(model, overrides))
    return model


def timm_preprocessing(model: nn.Module, overrides: dict[str, Any]) -> Preprocessing:
    """Read what timm announces for a model.

    Args:
        model: A model of timm.
        overrides: What it was built with; ``img_size`` and ``in_chans`` replace what timm announces.
    """
    resolve: Callable[..., dict[str, Any]] = resolve_data_config
    config = resolve({}, model=model)
    size, channels = overrides.get("img_size"), overrides.get("in_chans", 3)
    height, width = config["input_size"][1:] if size is None else (size if isinstance(size, tuple) else (size, size))
    mean, std = (_for_channels(config[key], channels) for key in ("mean", "std"))
    if height != width:
        return Preprocessing(mean=mean, std=std, channels=channels)
    resize = math.floor(height / config["crop_pct"])
    return Preprocessing(resize, height, config["interpolation"], mean, std, channels)


def _built(name: str, overrides: dict[str, Any]) -> nn.Module:
    """Build with initial weights, so that a wrong argument is found before anything is downloaded."""
    try:
        model: nn.Module = timm.create_model(name, pretrained=False, **overrides)
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        raise BadValue(f"timm/{name}: {_line(error)}") from error
    return model


def _downloaded(name: str, overrides: dict[str, Any]) -> nn.Module:
    try:
        model: nn.Module = timm.create_model(name, pretrained=True, **overrides)
    except Exception as error:  # the hub's client, its HTTP library and torch each raise their own
        raise Unusable(
            f"timm/{name}: the pretrained weights cannot be had ({_line(error)});"
            " give a file instead with --checkpoint, or leave pretrained out"
        ) from error
    return model


def _for_channels(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    return tuple(values) if len(values) == channels else (sum(values) / len(values),) * channels


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
