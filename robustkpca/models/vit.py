"""Vision transformers by name: three sizes, with any attention of `mechanisms` in any of their blocks.

``vit_tiny(attention=NAME)`` has the options of the mechanism beside its own; the transformers of the paper have names of
their own. All options are keyword arguments.
"""

from __future__ import annotations

from typing import Any

from robustkpca.errors import BadValue
from robustkpca.models.families import family
from robustkpca.models.mechanisms import attention_blocks
from robustkpca.models.vision_transformer import VisionTransformer
from robustkpca.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing

TINY = {"embed_dim": 192, "num_heads": 3}
SMALL = {"embed_dim": 384, "num_heads": 6}
BASE = {"embed_dim": 768, "num_heads": 12}

CROP_PCT = 0.875  # of the shorter side; 256 to 224 as in KPCA_code's evaluation


def vit(
    *,
    attention: str = "softmax",
    img_size: int | tuple[int, int] = 224,
    patch_size: int | tuple[int, int] = 16,
    in_chans: int = 3,
    num_classes: int = 1000,
    embed_dim: int = 192,
    depth: int = 12,
    num_heads: int = 3,
    mlp_ratio: float = 4.0,
    qkv_bias: bool = True,
    drop_path: float = 0.0,
    init: str = "published",
    **options: Any,
) -> VisionTransformer:
    """Build a vision transformer.

    Args:
        attention: A name of `mechanisms.ATTENTIONS`.
        img_size: Side of the images in pixels, or ``(height, width)``.
        patch_size: Side of a patch in pixels, or ``(height, width)``; divides ``img_size``.
        in_chans: 3 for RGB, 1 for greyscale.
        num_classes: Number of logits.
        embed_dim: Width of a token.
        depth: Number of blocks.
        num_heads: Number of heads; divides ``embed_dim``.
        mlp_ratio: Width of the perceptrons' hidden layer, in units of ``embed_dim``.
        qkv_bias: Whether the projection to queries, keys and values has a bias.
        drop_path: Probability that the last block's branches are skipped while training; lower in earlier blocks.
        init: Initial weights, ``published`` (torch's defaults, as KPCA_code) or ``timm``.
        **options: Of the attention, with ``layers``: index of the block that has it, counted from 0, a list of indices, or
            ``all``; and ``others``: what the other blocks have.

    Returns:
        The model, with ``preprocessing``: for RGB, ImageNet's mean and deviation and, for square images, a bicubic
        resize and a central crop of 0.875 of it; for greyscale, nothing.

    Raises:
        BadValue: If a value is out of range or does not fit the others, or ``in_chans`` is neither 1 nor 3.
        UnknownName: If there is no such attention, or it has no such option.

    Source:
        Touvron et al. 2021, arXiv:2012.12877 (DeiT), as in rachtsy/KPCA_code and timm; Teo and Nguyen 2024,
        arXiv:2406.13762 (symmetric, RPC and scaled attention). There, a negative layer means all.
    """
    given = {name: value for name, value in locals().items() if name not in ("attention", "depth", "options")}
    return _prepared(VisionTransformer(attention_blocks(attention, depth, options), **given))


@family(vit, **TINY)
def vit_tiny(**options: Any) -> VisionTransformer:
    """Build a tiny transformer with any attention. Options as `vit`."""
    return vit(**options)


@family(vit, **SMALL)
def vit_small(**options: Any) -> VisionTransformer:
    """Build a small transformer with any attention. Options as `vit`."""
    return vit(**options)


@family(vit, **BASE)
def vit_base(**options: Any) -> VisionTransformer:
    """Build a base transformer with any attention. Options as `vit`."""
    return vit(**options)


@family(vit, "softmax", **TINY)
def softmax_vit_tiny(**options: Any) -> VisionTransformer:
    """Build DeiT-tiny, 5.7 million parameters. Options as `vit`."""
    return vit(**options)


@family(vit, "softmax", **SMALL)
def softmax_vit_small(**options: Any) -> VisionTransformer:
    """Build DeiT-small, 22 million parameters. Options as `vit`."""
    return vit(**options)


@family(vit, "softmax", **BASE)
def softmax_vit_base(**options: Any) -> VisionTransformer:
    """Build DeiT-base, 87 million parameters. Options as `vit`."""
    return vit(**options)


@family(vit, "symmetric", **TINY)
def symvit_tiny(**options: Any) -> VisionTransformer:
    """Build SymViT-tiny, 5.3 million parameters. Options as `vit`."""
    return vit(**options)


@family(vit, "symmetric", **SMALL)
def symvit_small(**options: Any) -> VisionTransformer:
    """Build SymViT-small, 20 million parameters. Options as `vit`.

    Source:
        Deliberate difference from KPCA_code: its small model is 348 wide, apparently a slip for the usual 384.
    """
    return vit(**options)


@family(vit, "symmetric", **BASE)
def symvit_base(**options: Any) -> VisionTransformer:
    """Build SymViT-base, 79 million parameters. Options as `vit`."""
    return vit(**options)


@family(vit, "rpc", **TINY)
def rpc_symvit_tiny(**options: Any) -> VisionTransformer:
    """Build RPC-SymViT-tiny, by default 4 iterations in the first block. Options as `vit` and `Pursuit`."""
    return vit(**options)


@family(vit, "rpc", **SMALL)
def rpc_symvit_small(**options: Any) -> VisionTransformer:
    """Build RPC-SymViT-small, by default 4 iterations in the first block. Options as `vit` and `Pursuit`."""
    return vit(**options)


@family(vit, "rpc", **BASE)
def rpc_symvit_base(**options: Any) -> VisionTransformer:
    """Build RPC-SymViT-base, by default 4 iterations in the first block. Options as `vit` and `Pursuit`."""
    return vit(**options)


@family(vit, "scaled", **TINY)
def scaled_vit_tiny(**options: Any) -> VisionTransformer:
    """Build a tiny transformer with Scaled Attention. Options as `vit` and `ScaledAttention`."""
    return vit(**options)


@family(vit, "scaled", **SMALL)
def scaled_vit_small(**options: Any) -> VisionTransformer:
    """Build a small transformer with Scaled Attention. Options as `vit` and `ScaledAttention`."""
    return vit(**options)


@family(vit, "scaled", **BASE)
def scaled_vit_base(**options: Any) -> VisionTransformer:
    """Build a base transformer with Scaled Attention. Options as `vit` and `ScaledAttention`."""
    return vit(**options)


def _prepared(model: VisionTransformer) -> VisionTransformer:
    """Attach the preprocessing of KPCA_code's evaluation."""
    if model.in_chans not in (1, 3):
        raise BadValue(f"in_chans is {model.in_chans}; expected 3 (RGB) or 1 (greyscale)")
    height, width = model.img_size
    if model.in_chans == 1:
        model.preprocessing = Preprocessing(channels=1)
    elif height == width:
        resize = round(height / CROP_PCT)
        model.preprocessing = Preprocessing(resize, height, "bicubic", IMAGENET_MEAN, IMAGENET_STD)
    else:
        model.preprocessing = Preprocessing(mean=IMAGENET_MEAN, std=IMAGENET_STD)
    return model
