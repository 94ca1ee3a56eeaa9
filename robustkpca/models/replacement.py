"""Another attention in a transformer that is there already, with its weights carried over."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import timm.models.vision_transformer
import torch
from torch import Tensor, nn

from robustkpca.errors import BadValue
from robustkpca.models.attention import Carried, SelfAttention, SoftmaxAttention, SymmetricAttention
from robustkpca.models.mechanisms import (
    AttentionFactory,
    attention_factory,
    attention_options,
    chosen_layers,
    find_attention,
)

_TIMM: Any = timm.models.vision_transformer  # it does not say what it exports
_NOTHING = nn.Identity()
QUERIES = ("ignored", "dropped")


def with_attention(
    model: nn.Module,
    attention: str,
    *,
    layers: int | tuple[int, ...] | str | None = None,
    queries: str = "ignored",
    **options: Any,
) -> nn.Module:
    """Return a copy of a vision transformer with another attention in some of its blocks.

    Args:
        model: A transformer of timm, or of this package, with ordinary attention in the chosen blocks.
        attention: A name of `mechanisms.ATTENTIONS`. Symmetric and RPC attention take the key projection as queries and keys.
        layers: Index of the block, counted from 0, a list of indices, or ``all``; ``None`` for the mechanism's default. The
            other blocks stay as they are.
        queries: What becomes of the query projection where the mechanism has none: ``ignored`` keeps its weights, so that
            names and shapes stay and checkpoints of the model load; ``dropped`` removes them, as in SymViT.
        **options: Of the mechanism.

    Returns:
        A copy; ``model`` itself is not changed. Outputs of the remaining blocks, and all weights, are the same.

    Raises:
        UnknownName: If there is no such attention or option.
        BadValue: If a value cannot be used, or the model's attention is of another kind than ``softmax(Q K^T / sqrt(d)) V``.

    Source:
        The form with ignored queries is softmax_asymR.py in the history of rachtsy/KPCA-S.
    """
    if queries not in QUERIES:
        raise BadValue(f"queries is {queries!r}; expected one of {', '.join(QUERIES)}")
    changed = copy.deepcopy(model)
    blocks = getattr(changed, "blocks", None)
    if not isinstance(blocks, nn.ModuleList | nn.Sequential) or not len(blocks):
        raise BadValue(f"{_name(model)} has no row of blocks with attention; expected a vision transformer")
    mechanism = find_attention(attention)
    symmetric = issubclass(mechanism.load(), SymmetricAttention)
    make = attention_factory(attention, options, form=_forwarding, ignored_queries=symmetric and queries == "ignored")
    usual = "all" if mechanism.layers == "" else mechanism.layers
    wanted = usual if layers is None else layers
    for index in chosen_layers(wanted, len(blocks)):
        old = _ordinary(blocks[index], f"block {index} of {_name(model)}", attention)
        blocks[index].attn = _replaced(old, make, _tokens(changed))
    return changed


def split_options(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part the arguments of a model from those of an attention that shall be put into it.

    Args:
        arguments: Of both; without ``attention`` all are the model's.

    Returns:
        Those of the model, and those of `with_attention`.
    """
    if "attention" not in arguments:
        return dict(arguments), {}
    known = {"attention", "queries", *attention_options(str(arguments["attention"]))} - {"others"}
    own = {name: value for name, value in arguments.items() if name not in known}
    return own, {name: value for name, value in arguments.items() if name in known}


def _forwarding(kind: type[SelfAttention]) -> type[SelfAttention]:
    """Return an attention that can be called as timm calls its own."""

    class Replacement(kind):  # type: ignore[valid-type, misc]
        """Takes the masks of timm's call, and refuses them where there are any."""

        def forward(
            self,
            tokens: Tensor,
            carried: Carried | None = None,
            attn_mask: Tensor | None = None,
            is_causal: bool = False,
        ) -> Tensor:
            """Return ``(B, N, C)`` for tokens ``(B, N, C)``."""
            if attn_mask is not None or is_causal:
                raise BadValue(
                    f"{kind.__name__} takes no mask; only transformers that attend to all tokens can have it"
                )
            output: Tensor = super().forward(tokens, carried)
            return output

    return Replacement


def _ordinary(block: nn.Module, where: str, attention: str) -> Any:
    """Return the attention of a block after making sure that it is ``softmax(Q K^T / sqrt(d)) V``."""
    old: Any = getattr(block, "attn", None)
    if type(old) is SoftmaxAttention:
        return old
    if type(old) is not _TIMM.Attention:
        raise BadValue(f"{where} has {type(old).__name__} for attention; expected that of a plain vision transformer")
    more = [name for name in ("q_norm", "k_norm", "norm") if not isinstance(getattr(old, name, _NOTHING), nn.Identity)]
    more += ["gate"] if getattr(old, "gate", None) is not None else []
    if more or old.qkv.out_features != 3 * old.qkv.in_features or old.proj.out_features != old.qkv.in_features:
        raise BadValue(f"{where} has more than softmax(Q K^T / sqrt(d)) V ({', '.join(more) or 'other widths'})")
    if attention == "elliptical":
        raise BadValue(
            f"{where}: elliptical attention looks at the block before, which timm does not hand on; use"
            " vit_tiny(attention=elliptical)"
        )
    return old


def _replaced(old: Any, make: AttentionFactory, tokens: int) -> SelfAttention:
    weight, bias, width = old.qkv.weight, old.qkv.bias, old.qkv.in_features
    new = make(width, old.num_heads, bias is not None, tokens).to(weight.device, weight.dtype).train(old.training)
    first = (3 - new.projections) * width
    with torch.no_grad():
        new.qkv.weight.copy_(weight[first:])
        if bias is not None:
            new.qkv.bias.copy_(bias[first:])
        new.proj.weight.copy_(old.proj.weight)
        if old.proj.bias is None:
            new.proj.bias.zero_()
        else:
            new.proj.bias.copy_(old.proj.bias)
    return new


def _tokens(model: nn.Module) -> int:
    """Return how many tokens the blocks see, 0 where a transformer does not tell."""
    patches = getattr(getattr(model, "patch_embed", None), "num_patches", None)
    if isinstance(patches, int):
        return patches + int(getattr(model, "num_prefix_tokens", 0))
    positions = getattr(model, "pos_embed", None)
    return positions.shape[1] if isinstance(positions, Tensor) else 0


def _name(model: nn.Module) -> str:
    return str(getattr(model, "label", type(model).__name__))
