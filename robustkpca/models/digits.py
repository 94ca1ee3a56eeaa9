"""Transformers small enough to be trained on scikit-learn's digits, and bundled with their weights.

Images are greyscale, 8 by 8 pixels. ``vit_digits`` and ``fan_digits`` take any attention and have no weights of their own;
every other name has. Building one loads nothing; ``bundled_checkpoint`` names the file in ``robustkpca/models/bundled`` that
holds its weights.
"""

from __future__ import annotations

from typing import Any, TypeVar

from robustkpca.models.families import family
from robustkpca.models.fan import fan
from robustkpca.models.fully_attentional import FAN
from robustkpca.models.vision_transformer import VisionTransformer
from robustkpca.models.vit import vit

Model = TypeVar("Model", VisionTransformer, FAN)

DIGITS: dict[str, Any] = {
    "img_size": 8,
    "patch_size": 2,
    "in_chans": 1,
    "num_classes": 10,
    "embed_dim": 48,
    "depth": 4,
    "num_heads": 3,
}


FAMILY: dict[str, Any] = {**DIGITS, "depth": 2}
"""The transformers that ``benchmarks/train_family.py`` compares."""
FAN_DIGITS: dict[str, Any] = {**DIGITS, "depth": 2, "class_depth": 1}


@family(vit, **DIGITS)
def vit_digits(**options: Any) -> VisionTransformer:
    """Build a transformer for digits with any attention and initial weights. Options as `vit`."""
    return vit(**options)


@family(fan, **FAN_DIGITS)
def fan_digits(**options: Any) -> FAN:
    """Build a fully attentional network for digits with any attention and initial weights. Options as `fan`."""
    return fan(**options)


@family(vit, "softmax", **DIGITS)
def softmax_vit_digits(**options: Any) -> VisionTransformer:
    """Build the softmax transformer for digits. Options as `vit`."""
    return _bundled(vit(**options), "softmax_vit_digits")


@family(vit, "symmetric", **DIGITS)
def symvit_digits(**options: Any) -> VisionTransformer:
    """Build the symmetric transformer for digits. Options as `vit`."""
    return _bundled(vit(**options), "symvit_digits")


@family(vit, "rpc", **DIGITS)
def rpc_symvit_digits(**options: Any) -> VisionTransformer:
    """Build the RPC transformer for digits, by default 4 iterations in the first block. Options as `vit`."""
    return _bundled(vit(**options), "rpc_symvit_digits")


@family(vit, "rpc", **FAMILY, layers="all")
def rpc_all_vit_digits(**options: Any) -> VisionTransformer:
    """Build the transformer with RPC attention in all layers. Options as `vit`."""
    return _bundled(vit(**options), "rpc_all_vit_digits")


@family(vit, "scaled", **FAMILY)
def scaled_s_vit_digits(**options: Any) -> VisionTransformer:
    """Build the transformer with Scaled Attention, S. Options as `vit`."""
    return _bundled(vit(**options), "scaled_s_vit_digits")


@family(vit, "scaled", **FAMILY, form="alpha")
def scaled_alpha_vit_digits(**options: Any) -> VisionTransformer:
    """Build the transformer with Scaled Attention, alpha. Options as `vit`."""
    return _bundled(vit(**options), "scaled_alpha_vit_digits")


@family(vit, "kde", **FAMILY)
def kde_vit_digits(**options: Any) -> VisionTransformer:
    """Build the transformer with kernel regression. Options as `vit`."""
    return _bundled(vit(**options), "kde_vit_digits")


@family(vit, "rkde", **FAMILY, loss="hampel", form="textbook", a=0.4)
def hampel_vit_digits(**options: Any) -> VisionTransformer:
    """Build the transformer with robust kernel regression, Hampel's loss. Options as `vit`."""
    return _bundled(vit(**options), "hampel_vit_digits")


@family(vit, "mom", **FAMILY)
def mom_vit_digits(**options: Any) -> VisionTransformer:
    """Build the transformer with median-of-means attention. Options as `vit`."""
    return _bundled(vit(**options), "mom_vit_digits")


@family(vit, "elliptical", **FAMILY)
def elliptical_vit_digits(**options: Any) -> VisionTransformer:
    """Build the transformer with elliptical attention. Options as `vit`."""
    return _bundled(vit(**options), "elliptical_vit_digits")


@family(fan, "softmax", **FAN_DIGITS)
def softmax_fan_digits(**options: Any) -> FAN:
    """Build the fully attentional network. Options as `fan`."""
    return _bundled(fan(**options), "softmax_fan_digits")


@family(fan, "rpc", **FAN_DIGITS)
def rpc_fan_digits(**options: Any) -> FAN:
    """Build the fully attentional network with RPC attention. Options as `fan`."""
    return _bundled(fan(**options), "rpc_fan_digits")


def _bundled(model: Model, name: str) -> Model:
    """Say where the weights of a name lie."""
    model.bundled_checkpoint = f"{name}.safetensors"
    return model
