"""The vision transformers of the kernel-PCA paper, by name: softmax, symmetric and RPC attention in three sizes.

Three families say what can be chosen; each size gives a family other defaults. All options are keyword arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from robustkpca.errors import BadValue
from robustkpca.models.attention import RPCAttention, SoftmaxAttention, SymmetricAttention
from robustkpca.models.pursuit import Pursuit
from robustkpca.models.vision_transformer import AttentionFactory, VisionTransformer
from robustkpca.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing

TINY = {"embed_dim": 192, "num_heads": 3}
SMALL = {"embed_dim": 384, "num_heads": 6}
BASE = {"embed_dim": 768, "num_heads": 12}

CROP_PCT = 0.875  # of the shorter side; 256 to 224 as in KPCA_code's evaluation

Factory = Callable[..., VisionTransformer]


def softmax_vit(
    *,
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
) -> VisionTransformer:
    """Build a vision transformer with ordinary softmax attention.

    Args:
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

    Returns:
        The model, with ``preprocessing``: for RGB, ImageNet's mean and deviation and, for square images, a bicubic
        resize and a central crop of 0.875 of it; for greyscale, nothing.

    Raises:
        BadValue: If a size does not fit the others, or ``in_chans`` is neither 1 nor 3.

    Source:
        Touvron et al. 2021, arXiv:2012.12877 (DeiT), as in rachtsy/KPCA_code and timm.
    """
    options = {name: value for name, value in locals().items() if name != "depth"}
    return _prepared(VisionTransformer([_softmax] * _checked(depth), **options))


def symvit(
    *,
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
) -> VisionTransformer:
    """Build a vision transformer whose keys are its queries. Arguments and result as `softmax_vit`.

    Source:
        Teo and Nguyen 2024, arXiv:2406.13762; rachtsy/KPCA_code, Robust/softmax.py.
    """
    options = {name: value for name, value in locals().items() if name != "depth"}
    return _prepared(VisionTransformer([_symmetric] * _checked(depth), **options))


def rpc_symvit(
    *,
    iterations: int = 4,
    layers: int | tuple[int, ...] | str = 0,
    lambda_: float = 4.0,
    threshold: str = "lambda*mu",
    mu_dim: str = "C",
    variant: str = "released",
    others: str = "symmetric",
    depth: int = 12,
    **options: Any,
) -> VisionTransformer:
    """Build a symmetric vision transformer with RPC attention in some blocks.

    Args:
        iterations: Passes of the pursuit, each with one attention.
        layers: Index of the block with RPC attention, counted from 0, a list of indices, or ``all``.
        lambda_: Weight of the sparse part.
        threshold: ``lambda*mu`` as released, or ``lambda/mu``.
        mu_dim: ``C`` as released, or ``d``.
        variant: ``released``, or one of the rebuttal forms; see `Pursuit`.
        others: Attention of the other blocks: ``symmetric``, or ``softmax`` as in the history of KPCA-S, where the RPC
            blocks keep, and ignore, a projection to queries.
        depth: Number of blocks.
        **options: As `softmax_vit`.

    Returns:
        The model, as `softmax_vit`.

    Raises:
        BadValue: If a value is out of range or does not go with the variant, or a layer does not exist.

    Source:
        Teo and Nguyen 2024, arXiv:2406.13762; rachtsy/KPCA_code, Robust/softmax.py. There, a negative layer means all.
    """
    pursuit = Pursuit(iterations, lambda_, threshold, mu_dim, variant)
    if others not in ("symmetric", "softmax"):
        raise BadValue(f"others is {others!r}; expected symmetric or softmax")
    chosen = _indices(layers, _checked(depth))

    def robust(dim: int, num_heads: int, qkv_bias: bool) -> RPCAttention:
        projections = 3 if others == "softmax" else 2
        return RPCAttention(dim, num_heads, pursuit, qkv_bias=qkv_bias, projections=projections)

    plain = _softmax if others == "softmax" else _symmetric
    blocks: list[AttentionFactory] = [robust if index in chosen else plain for index in range(depth)]
    return _prepared(VisionTransformer(blocks, **options))


def options_of(family: Factory, **defaults: Any) -> Callable[[Factory], Factory]:
    """Give a factory the options of its family, with some defaults of its own.

    Args:
        family: Whose keyword arguments the factory takes; it is called with all of them.
        **defaults: Values that differ from the family's.
    """
    inherited = inspect.signature(family).parameters
    shared = inspect.signature(softmax_vit).parameters
    parameters = {name: p for name, p in {**inherited, **shared}.items() if p.kind is p.KEYWORD_ONLY}
    signature = inspect.Signature(
        [p.replace(default=defaults.get(name, p.default)) for name, p in parameters.items()],
        return_annotation="VisionTransformer",
    )

    def decorate(function: Factory) -> Factory:
        @wraps(function)
        def factory(**options: Any) -> VisionTransformer:
            return function(**{**defaults, **options})

        factory.__signature__ = signature  # type: ignore[attr-defined]
        return factory

    return decorate


@options_of(softmax_vit, **TINY)
def softmax_vit_tiny(**options: Any) -> VisionTransformer:
    """Build DeiT-tiny, 5.7 million parameters. Options as `softmax_vit`."""
    return softmax_vit(**options)


@options_of(softmax_vit, **SMALL)
def softmax_vit_small(**options: Any) -> VisionTransformer:
    """Build DeiT-small, 22 million parameters. Options as `softmax_vit`."""
    return softmax_vit(**options)


@options_of(softmax_vit, **BASE)
def softmax_vit_base(**options: Any) -> VisionTransformer:
    """Build DeiT-base, 87 million parameters. Options as `softmax_vit`."""
    return softmax_vit(**options)


@options_of(symvit, **TINY)
def symvit_tiny(**options: Any) -> VisionTransformer:
    """Build SymViT-tiny, 5.3 million parameters. Options as `symvit`."""
    return symvit(**options)


@options_of(symvit, **SMALL)
def symvit_small(**options: Any) -> VisionTransformer:
    """Build SymViT-small, 20 million parameters. Options as `symvit`.

    Source:
        Deliberate difference from KPCA_code: its small model is 348 wide, apparently a slip for the usual 384.
    """
    return symvit(**options)


@options_of(symvit, **BASE)
def symvit_base(**options: Any) -> VisionTransformer:
    """Build SymViT-base, 79 million parameters. Options as `symvit`."""
    return symvit(**options)


@options_of(rpc_symvit, **TINY)
def rpc_symvit_tiny(**options: Any) -> VisionTransformer:
    """Build RPC-SymViT-tiny, by default 4 iterations in the first block. Options as `rpc_symvit`."""
    return rpc_symvit(**options)


@options_of(rpc_symvit, **SMALL)
def rpc_symvit_small(**options: Any) -> VisionTransformer:
    """Build RPC-SymViT-small, by default 4 iterations in the first block. Options as `rpc_symvit`."""
    return rpc_symvit(**options)


@options_of(rpc_symvit, **BASE)
def rpc_symvit_base(**options: Any) -> VisionTransformer:
    """Build RPC-SymViT-base, by default 4 iterations in the first block. Options as `rpc_symvit`."""
    return rpc_symvit(**options)


def _softmax(dim: int, num_heads: int, qkv_bias: bool) -> SoftmaxAttention:
    return SoftmaxAttention(dim, num_heads, qkv_bias=qkv_bias)


def _symmetric(dim: int, num_heads: int, qkv_bias: bool) -> SymmetricAttention:
    return SymmetricAttention(dim, num_heads, qkv_bias=qkv_bias)


def _checked(depth: int) -> int:
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise BadValue(f"depth is {depth!r}; expected a whole number of at least 1")
    return depth


def _indices(layers: int | tuple[int, ...] | str, depth: int) -> tuple[int, ...]:
    """Read the choice of layers as indices."""
    if layers == "all":
        return tuple(range(depth))
    indices = tuple(layers) if isinstance(layers, tuple | list) else (layers,)
    if any(isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < depth for index in indices):
        raise BadValue(f"layers is {layers!r}; expected indices from 0 to {depth - 1}, such as 0 or [0,1], or all")
    return tuple(index for index in indices if isinstance(index, int))


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
