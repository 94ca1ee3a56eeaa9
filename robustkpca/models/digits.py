"""Vision transformers small enough to be trained on scikit-learn's digits, and bundled with their weights.

Images are greyscale, 8 by 8 pixels. Building one loads nothing; ``bundled_checkpoint`` names the file in
``robustkpca/models/bundled`` that holds its weights.
"""

from __future__ import annotations

from typing import Any

from robustkpca.models.families import family
from robustkpca.models.vision_transformer import VisionTransformer
from robustkpca.models.vit import vit

DIGITS = {
    "img_size": 8,
    "patch_size": 2,
    "in_chans": 1,
    "num_classes": 10,
    "embed_dim": 48,
    "depth": 4,
    "num_heads": 3,
}


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


def _bundled(model: VisionTransformer, name: str) -> VisionTransformer:
    model.bundled_checkpoint = f"{name}.safetensors"
    return model
