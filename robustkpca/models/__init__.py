"""Networks by name. Each family lies in a file of its own, and has one line a model in the catalogue."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from robustkpca.registry import Entry

_DEIT = "Touvron et al. 2021"
_KPCA = "Teo and Nguyen 2024"
_FAN = "Zhou et al. 2022"
_HAN = "Han et al. 2023"

CATALOGUE: dict[str, Entry] = {
    "vit_tiny": Entry(
        "robustkpca.models.vit:vit_tiny", "vision transformer, tiny, with any attention", _DEIT, ("vit", "any", "tiny")
    ),
    "vit_small": Entry(
        "robustkpca.models.vit:vit_small",
        "vision transformer, small, with any attention",
        _DEIT,
        ("vit", "any", "small"),
    ),
    "vit_base": Entry(
        "robustkpca.models.vit:vit_base", "vision transformer, base, with any attention", _DEIT, ("vit", "any", "base")
    ),
    "softmax_vit_tiny": Entry(
        "robustkpca.models.vit:softmax_vit_tiny",
        "vision transformer (DeiT), softmax attention, 5.7 million parameters",
        _DEIT,
        ("vit", "softmax", "tiny"),
    ),
    "softmax_vit_small": Entry(
        "robustkpca.models.vit:softmax_vit_small",
        "vision transformer (DeiT), softmax attention, 22 million parameters",
        _DEIT,
        ("vit", "softmax", "small"),
    ),
    "softmax_vit_base": Entry(
        "robustkpca.models.vit:softmax_vit_base",
        "vision transformer (DeiT), softmax attention, 87 million parameters",
        _DEIT,
        ("vit", "softmax", "base"),
    ),
    "symvit_tiny": Entry(
        "robustkpca.models.vit:symvit_tiny",
        "vision transformer whose keys are its queries, 5.3 million parameters",
        _KPCA,
        ("vit", "symmetric", "tiny"),
    ),
    "symvit_small": Entry(
        "robustkpca.models.vit:symvit_small",
        "vision transformer whose keys are its queries, 20 million parameters",
        _KPCA,
        ("vit", "symmetric", "small"),
    ),
    "symvit_base": Entry(
        "robustkpca.models.vit:symvit_base",
        "vision transformer whose keys are its queries, 79 million parameters",
        _KPCA,
        ("vit", "symmetric", "base"),
    ),
    "rpc_symvit_tiny": Entry(
        "robustkpca.models.vit:rpc_symvit_tiny",
        "SymViT-tiny with RPC attention (principal component pursuit) in chosen layers",
        _KPCA,
        ("vit", "symmetric", "rpc", "tiny"),
    ),
    "rpc_symvit_small": Entry(
        "robustkpca.models.vit:rpc_symvit_small",
        "SymViT-small with RPC attention (principal component pursuit) in chosen layers",
        _KPCA,
        ("vit", "symmetric", "rpc", "small"),
    ),
    "rpc_symvit_base": Entry(
        "robustkpca.models.vit:rpc_symvit_base",
        "SymViT-base with RPC attention (principal component pursuit) in chosen layers",
        _KPCA,
        ("vit", "symmetric", "rpc", "base"),
    ),
    "scaled_vit_tiny": Entry(
        "robustkpca.models.vit:scaled_vit_tiny",
        "vision transformer, tiny, with Scaled Attention (S, or alpha times the symmetric one)",
        _KPCA,
        ("vit", "scaled", "tiny"),
    ),
    "scaled_vit_small": Entry(
        "robustkpca.models.vit:scaled_vit_small",
        "vision transformer, small, with Scaled Attention (S, or alpha times the symmetric one)",
        _KPCA,
        ("vit", "scaled", "small"),
    ),
    "scaled_vit_base": Entry(
        "robustkpca.models.vit:scaled_vit_base",
        "vision transformer, base, with Scaled Attention (S, or alpha times the symmetric one)",
        _KPCA,
        ("vit", "scaled", "base"),
    ),
    "fan_tiny": Entry(
        "robustkpca.models.fan:fan_tiny",
        "fully attentional network, tiny, with any attention",
        _FAN,
        ("fan", "any", "tiny"),
    ),
    "fan_small": Entry(
        "robustkpca.models.fan:fan_small",
        "fully attentional network, small, with any attention",
        _FAN,
        ("fan", "any", "small"),
    ),
    "fan_base": Entry(
        "robustkpca.models.fan:fan_base",
        "fully attentional network, base, with any attention",
        _FAN,
        ("fan", "any", "base"),
    ),
    "fan_large": Entry(
        "robustkpca.models.fan:fan_large",
        "fully attentional network, large, with any attention",
        _FAN,
        ("fan", "any", "large"),
    ),
    "symfan_tiny": Entry(
        "robustkpca.models.fan:symfan_tiny",
        "fully attentional network, tiny, whose keys are its queries",
        _KPCA,
        ("fan", "symmetric", "tiny"),
    ),
    "symfan_small": Entry(
        "robustkpca.models.fan:symfan_small",
        "fully attentional network, small, whose keys are its queries",
        _KPCA,
        ("fan", "symmetric", "small"),
    ),
    "symfan_base": Entry(
        "robustkpca.models.fan:symfan_base",
        "fully attentional network, base, whose keys are its queries",
        _KPCA,
        ("fan", "symmetric", "base"),
    ),
    "symfan_large": Entry(
        "robustkpca.models.fan:symfan_large",
        "fully attentional network, large, whose keys are its queries",
        _KPCA,
        ("fan", "symmetric", "large"),
    ),
    "rpc_fan_tiny": Entry(
        "robustkpca.models.fan:rpc_fan_tiny",
        "fully attentional network, tiny, with RPC attention in chosen layers",
        _KPCA,
        ("fan", "symmetric", "rpc", "tiny"),
    ),
    "rpc_fan_small": Entry(
        "robustkpca.models.fan:rpc_fan_small",
        "fully attentional network, small, with RPC attention in chosen layers",
        _KPCA,
        ("fan", "symmetric", "rpc", "small"),
    ),
    "rpc_fan_base": Entry(
        "robustkpca.models.fan:rpc_fan_base",
        "fully attentional network, base, with RPC attention in chosen layers",
        _KPCA,
        ("fan", "symmetric", "rpc", "base"),
    ),
    "rpc_fan_large": Entry(
        "robustkpca.models.fan:rpc_fan_large",
        "fully attentional network, large, with RPC attention in chosen layers",
        _KPCA,
        ("fan", "symmetric", "rpc", "large"),
    ),
    "efficientnet_lite0": Entry(
        "robustkpca.models.efficientnet:efficientnet_lite0",
        "EfficientNet-Lite0 with the ImageNet weights of the extra 'models', 4.7 million parameters",
        "Tan and Le 2019",
        ("cnn", "imagenet"),
    ),
    "vit_digits": Entry(
        "robustkpca.models.digits:vit_digits",
        "small vision transformer for 8x8 digits, with any attention",
        _DEIT,
        ("vit", "any", "digits"),
    ),
    "fan_digits": Entry(
        "robustkpca.models.digits:fan_digits",
        "small fully attentional network for 8x8 digits, with any attention",
        _FAN,
        ("fan", "any", "digits"),
    ),
    "softmax_vit_digits": Entry(
        "robustkpca.models.digits:softmax_vit_digits",
        "small softmax vision transformer for 8x8 digits, with bundled weights",
        _DEIT,
        ("vit", "softmax", "digits", "bundled"),
    ),
    "symvit_digits": Entry(
        "robustkpca.models.digits:symvit_digits",
        "small symmetric vision transformer for 8x8 digits, with bundled weights",
        _KPCA,
        ("vit", "symmetric", "digits", "bundled"),
    ),
    "rpc_symvit_digits": Entry(
        "robustkpca.models.digits:rpc_symvit_digits",
        "small RPC vision transformer for 8x8 digits, with bundled weights",
        _KPCA,
        ("vit", "symmetric", "rpc", "digits", "bundled"),
    ),
    "rpc_all_vit_digits": Entry(
        "robustkpca.models.digits:rpc_all_vit_digits",
        "small transformer for 8x8 digits with RPC attention in all layers, with bundled weights",
        _KPCA,
        ("vit", "symmetric", "rpc", "digits", "bundled"),
    ),
    "scaled_s_vit_digits": Entry(
        "robustkpca.models.digits:scaled_s_vit_digits",
        "small transformer for 8x8 digits with Scaled Attention, S, with bundled weights",
        _KPCA,
        ("vit", "scaled", "digits", "bundled"),
    ),
    "scaled_alpha_vit_digits": Entry(
        "robustkpca.models.digits:scaled_alpha_vit_digits",
        "small transformer for 8x8 digits with Scaled Attention, alpha, with bundled weights",
        _KPCA,
        ("vit", "scaled", "digits", "bundled"),
    ),
    "kde_vit_digits": Entry(
        "robustkpca.models.digits:kde_vit_digits",
        "small transformer for 8x8 digits with kernel regression, with bundled weights",
        _HAN,
        ("vit", "kde", "digits", "bundled"),
    ),
    "hampel_vit_digits": Entry(
        "robustkpca.models.digits:hampel_vit_digits",
        "small transformer for 8x8 digits with robust kernel regression (Hampel), with bundled weights",
        _HAN,
        ("vit", "kde", "digits", "bundled"),
    ),
    "mom_vit_digits": Entry(
        "robustkpca.models.digits:mom_vit_digits",
        "small transformer for 8x8 digits with median-of-means attention, with bundled weights",
        _HAN,
        ("vit", "kde", "digits", "bundled"),
    ),
    "elliptical_vit_digits": Entry(
        "robustkpca.models.digits:elliptical_vit_digits",
        "small transformer for 8x8 digits with elliptical attention, with bundled weights",
        "Nielsen et al. 2024",
        ("vit", "elliptical", "digits", "bundled"),
    ),
    "softmax_fan_digits": Entry(
        "robustkpca.models.digits:softmax_fan_digits",
        "small fully attentional network for 8x8 digits, with bundled weights",
        _FAN,
        ("fan", "softmax", "digits", "bundled"),
    ),
    "rpc_fan_digits": Entry(
        "robustkpca.models.digits:rpc_fan_digits",
        "small fully attentional network for 8x8 digits with RPC attention, with bundled weights",
        _KPCA,
        ("fan", "symmetric", "rpc", "digits", "bundled"),
    ),
    "softmax_lm": Entry(
        "robustkpca.models.language:softmax_lm",
        "word-level language model, softmax attention, 44 million parameters",
        _KPCA,
        ("language", "text", "softmax"),
    ),
    "symlm": Entry(
        "robustkpca.models.language:symlm",
        "word-level language model whose keys are its queries, 44 million parameters",
        _KPCA,
        ("language", "text", "symmetric"),
    ),
    "rpc_symlm": Entry(
        "robustkpca.models.language:rpc_symlm",
        "Symlm with RPC attention in chosen layers",
        _KPCA,
        ("language", "text", "symmetric", "rpc"),
    ),
    "softmax_lm_novel": Entry(
        "robustkpca.models.language:softmax_lm_novel",
        "small softmax language model of a novel, with bundled weights",
        _KPCA,
        ("language", "text", "softmax", "bundled"),
    ),
    "symlm_novel": Entry(
        "robustkpca.models.language:symlm_novel",
        "small symmetric language model of a novel, with bundled weights",
        _KPCA,
        ("language", "text", "symmetric", "bundled"),
    ),
    "rpc_symlm_novel": Entry(
        "robustkpca.models.language:rpc_symlm_novel",
        "small RPC language model of a novel, with bundled weights",
        _KPCA,
        ("language", "text", "symmetric", "rpc", "bundled"),
    ),
    "sentence_transformer": Entry(
        "robustkpca.models.sentence:sentence_transformer",
        "small classifier of sentences, with any attention",
        "Vaswani et al. 2017",
        ("sentences", "text", "any"),
    ),
}

_WHERE = {
    "create_model": "robustkpca.models.factory",
    "list_models": "robustkpca.models.factory",
    "load_model": "robustkpca.models.loading",
    "with_attention": "robustkpca.models.replacement",
}
__all__ = ["CATALOGUE", "create_model", "list_models", "load_model", "with_attention"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'robustkpca.models' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
