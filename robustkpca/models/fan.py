"""Fully attentional networks by name: four sizes, with any attention of `mechanisms` as token mixing.

``fan_tiny`` is the original, ``symfan_tiny`` its symmetric form, ``rpc_fan_tiny`` that of the kernel-PCA paper.
"""

from __future__ import annotations

from typing import Any

from robustkpca.errors import BadValue
from robustkpca.models.families import family
from robustkpca.models.fan_parts import grid, token_mixing
from robustkpca.models.fully_attentional import FAN
from robustkpca.models.mechanisms import attention_blocks
from robustkpca.models.vision_transformer import pair
from robustkpca.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing

TINY = {"embed_dim": 192, "depth": 12, "num_heads": 4}
SMALL = {"embed_dim": 384, "depth": 12, "num_heads": 8}
BASE = {"embed_dim": 448, "depth": 18, "num_heads": 8}
LARGE = {"embed_dim": 480, "depth": 24, "num_heads": 10}


def fan(
    *,
    attention: str = "softmax",
    img_size: int | tuple[int, int] = 224,
    patch_size: int = 16,
    in_chans: int = 3,
    num_classes: int = 1000,
    embed_dim: int = 192,
    depth: int = 12,
    num_heads: int = 4,
    mlp_ratio: float = 4.0,
    qkv_bias: bool = True,
    class_depth: int = 2,
    drop_path: float = 0.0,
    **options: Any,
) -> FAN:
    """Build a fully attentional network.

    Args:
        attention: Of the token mixing: a name of `mechanisms.ATTENTIONS`.
        img_size: Side of the images in pixels, or ``(height, width)``.
        patch_size: 16, 8, 4 or 2; divides ``img_size``.
        in_chans: 3 for RGB, 1 for greyscale.
        num_classes: Number of logits.
        embed_dim: Width of a token; a multiple of 8.
        depth: Number of blocks before the class token joins.
        num_heads: Number of heads; divides ``embed_dim``.
        mlp_ratio: Width of hidden layers, in units of ``embed_dim``.
        qkv_bias: Whether projections to queries, keys and values have a bias.
        class_depth: Number of class-attention blocks.
        drop_path: Probability that a branch is skipped while training.
        **options: Of the attention, with ``layers`` and ``others`` as in `vit`.

    Returns:
        The model, with ``preprocessing``: for RGB, ImageNet's mean and deviation and, for square images, a bicubic
        resize and no crop; for greyscale, nothing.

    Raises:
        BadValue: If a value is out of range or does not fit the others, or ``in_chans`` is neither 1 nor 3.
        UnknownName: If there is no such attention, or it has no such option.

    Source:
        Zhou et al. 2022, arXiv:2204.12451; NVlabs/FAN and rachtsy/FAN. Dropout, 0 there, is left out.
    """
    if in_chans not in (1, 3):
        raise BadValue(f"in_chans is {in_chans}; expected 3 (RGB) or 1 (greyscale)")
    rows, columns = grid(img_size, patch_size)
    mixing = [
        make(embed_dim, num_heads, qkv_bias, rows * columns)
        for make in attention_blocks(attention, depth, options, form=token_mixing)
    ]
    model = FAN(
        mixing,
        img_size=img_size,
        patch_size=patch_size,
        in_chans=in_chans,
        num_classes=num_classes,
        embed_dim=embed_dim,
        num_heads=num_heads,
        mlp_ratio=mlp_ratio,
        qkv_bias=qkv_bias,
        class_depth=class_depth,
        drop_path=drop_path,
    )
    height, width = pair("img_size", img_size)
    if in_chans == 1:
        model.preprocessing = Preprocessing(channels=1)
    else:
        side = height if height == width else None
        model.preprocessing = Preprocessing(side, side, "bicubic", IMAGENET_MEAN, IMAGENET_STD)
    return model


@family(fan, **TINY)
def fan_tiny(**options: Any) -> FAN:
    """Build FAN-tiny, 7.3 million parameters with softmax attention, and any attention. Options as `fan`."""
    return fan(**options)


@family(fan, **SMALL)
def fan_small(**options: Any) -> FAN:
    """Build FAN-small, 28 million parameters with softmax attention, and any attention. Options as `fan`."""
    return fan(**options)


@family(fan, **BASE)
def fan_base(**options: Any) -> FAN:
    """Build FAN-base, 54 million parameters with softmax attention, and any attention. Options as `fan`."""
    return fan(**options)


@family(fan, **LARGE)
def fan_large(**options: Any) -> FAN:
    """Build FAN-large, 81 million parameters with softmax attention, and any attention. Options as `fan`."""
    return fan(**options)


@family(fan, "symmetric", **TINY)
def symfan_tiny(**options: Any) -> FAN:
    """Build symmetric FAN-tiny, whose keys are its queries. Options as `fan`."""
    return fan(**options)


@family(fan, "symmetric", **SMALL)
def symfan_small(**options: Any) -> FAN:
    """Build symmetric FAN-small, whose keys are its queries. Options as `fan`."""
    return fan(**options)


@family(fan, "symmetric", **BASE)
def symfan_base(**options: Any) -> FAN:
    """Build symmetric FAN-base, whose keys are its queries. Options as `fan`."""
    return fan(**options)


@family(fan, "symmetric", **LARGE)
def symfan_large(**options: Any) -> FAN:
    """Build symmetric FAN-large, whose keys are its queries. Options as `fan`."""
    return fan(**options)


@family(fan, "rpc", **TINY)
def rpc_fan_tiny(**options: Any) -> FAN:
    """Build RPC-FAN-tiny, by default 4 iterations in the first block. Options as `fan`."""
    return fan(**options)


@family(fan, "rpc", **SMALL)
def rpc_fan_small(**options: Any) -> FAN:
    """Build RPC-FAN-small, by default 4 iterations in the first block. Options as `fan`."""
    return fan(**options)


@family(fan, "rpc", **BASE)
def rpc_fan_base(**options: Any) -> FAN:
    """Build RPC-FAN-base, by default 4 iterations in the first block. Options as `fan`."""
    return fan(**options)


@family(fan, "rpc", **LARGE)
def rpc_fan_large(**options: Any) -> FAN:
    """Build RPC-FAN-large, by default 4 iterations in the first block. Options as `fan`."""
    return fan(**options)
