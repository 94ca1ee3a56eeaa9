"""Attention mechanisms by name, and the blocks of a transformer that has one of them in some of its layers.

A new mechanism is a file with its class, a `SelfAttention`, and a line in `ATTENTIONS`. Its options become options of
every transformer that is built with it: ``vit_tiny(attention=rkde,loss=hampel,a=0.6)``.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from robustkpca.errors import BadValue, unknown
from robustkpca.models.attention import SelfAttention

AttentionFactory = Callable[[int, int, bool, int], SelfAttention]
"""Makes the attention of one block from ``embed_dim``, ``num_heads``, ``qkv_bias`` and the number of tokens."""

Form = Callable[[type[SelfAttention]], type[SelfAttention]]
"""An attention with other projections."""

_STRUCTURE = ("self", "dim", "num_heads", "qkv_bias", "projections", "tokens")


@dataclass(frozen=True)
class Mechanism:
    """Where an attention lies, and in which blocks it stands where nothing else is said.

    Args:
        target: ``module:class`` of a `SelfAttention`.
        summary: One line.
        source: Paper and year.
        layers: Default of the option ``layers``; empty for a mechanism that stands in every block.
        others: Default of the option ``others``, the attention of the remaining blocks.
    """

    target: str
    summary: str
    source: str
    layers: int | str = "all"
    others: str = "softmax"

    def load(self) -> type[SelfAttention]:
        """Import the class."""
        module, _, name = self.target.partition(":")
        kind: type[SelfAttention] = getattr(importlib.import_module(module), name)
        return kind

    def options(self) -> dict[str, inspect.Parameter]:
        """Return the options of the mechanism itself, by name, as keyword parameters with defaults."""
        kind = self.load()
        found = inspect.signature(kind.settings or kind.__init__).parameters.values()
        return {p.name: p.replace(kind=p.KEYWORD_ONLY) for p in found if p.name not in _STRUCTURE}


_KPCA, _HAN = "Teo and Nguyen 2024", "Han et al. 2023"

ATTENTIONS: dict[str, Mechanism] = {
    "softmax": Mechanism("robustkpca.models.attention:SoftmaxAttention", "ordinary", "Vaswani et al. 2017", ""),
    "symmetric": Mechanism("robustkpca.models.attention:SymmetricAttention", "keys are the queries", _KPCA, ""),
    "rpc": Mechanism(
        "robustkpca.models.attention:RPCAttention", "symmetric, over pursued keys", _KPCA, layers=0, others="symmetric"
    ),
    "scaled": Mechanism(
        "robustkpca.models.scaled_attention:ScaledAttention", "softmax over values less a learned mixture", _KPCA
    ),
    "kde": Mechanism("robustkpca.models.kde_attention:KDEAttention", "kernel regression, keys of length 1", _HAN),
    "rkde": Mechanism("robustkpca.models.kde_attention:RKDEAttention", "robustly weighted kernel regression", _HAN),
    "spkde": Mechanism("robustkpca.models.spkde_attention:SPKDEAttention", "scaled and projected density", _HAN),
    "mom": Mechanism("robustkpca.models.mom_attention:MoMAttention", "median of random sets of tokens", _HAN),
    "rvt": Mechanism("robustkpca.models.rvt_attention:RVTAttention", "logits scaled by a mask", "Mao et al. 2022"),
    "elliptical": Mechanism(
        "robustkpca.models.elliptical_attention:EllipticalAttention",
        "distances stretched along moving features",
        "Nielsen et al. 2024",
    ),
}


def find_attention(name: str) -> Mechanism:
    """Look a mechanism up.

    Raises:
        UnknownName: If nothing has that name; the message offers the nearest.
    """
    if not isinstance(name, str) or name not in ATTENTIONS:
        raise unknown("attention", str(name), ATTENTIONS)
    return ATTENTIONS[name]


def attention_options(name: str) -> dict[str, inspect.Parameter]:
    """Return every option that a transformer with this attention has beside its shape, with defaults."""
    mechanism = find_attention(name)
    options = mechanism.options()
    if mechanism.layers != "":
        for option, default in (("layers", mechanism.layers), ("others", mechanism.others)):
            annotation = "int | tuple[int, ...] | str" if option == "layers" else "str"
            keyword = inspect.Parameter.KEYWORD_ONLY
            options[option] = inspect.Parameter(option, keyword, default=default, annotation=annotation)
    return options


def attention_blocks(
    name: str, depth: int, options: Mapping[str, Any], *, form: Form = lambda kind: kind
) -> list[AttentionFactory]:
    """Return what makes the attention of each block.

    Args:
        name: Of the mechanism.
        depth: Number of blocks.
        options: Of the mechanism, with ``layers`` (an index, a list, or ``all``) and ``others`` (``softmax``, or
            ``symmetric`` for a mechanism without queries).
        form: Turns each class into one with other projections, for architectures with other key names.

    Raises:
        UnknownName: If there is no such mechanism or option.
        BadValue: If a value cannot be used.
    """
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise BadValue(f"depth is {depth!r}; expected a whole number of at least 1")
    known = attention_options(name)
    _require_known(name, options, known)
    mechanism = find_attention(name)
    layers = options.get("layers", "all" if mechanism.layers == "" else mechanism.layers)
    others = options.get("others", mechanism.others)
    allowed = ("softmax", "symmetric") if mechanism.others == "symmetric" else ("softmax",)
    if others not in allowed:
        raise BadValue(f"others is {others!r}; expected {' or '.join(allowed)} beside {name} attention")
    own = {option: value for option, value in options.items() if option not in ("layers", "others")}
    chosen = chosen_layers(layers, depth)
    kept_queries = mechanism.others == "symmetric" and others == "softmax"
    robust = attention_factory(name, own, form=form, ignored_queries=kept_queries)
    plain = attention_factory(others, {}, form=form)
    return [robust if index in chosen else plain for index in range(depth)]


def attention_factory(
    name: str, options: Mapping[str, Any], *, form: Form = lambda kind: kind, ignored_queries: bool = False
) -> AttentionFactory:
    """Return what makes one attention of a mechanism.

    Args:
        name: Of the mechanism.
        options: Of the mechanism, without ``layers`` and ``others``.
        form: As in `attention_blocks`.
        ignored_queries: Whether a mechanism without queries keeps, and ignores, a projection to them.

    Raises:
        UnknownName: If there is no such mechanism or option.
        BadValue: If a value cannot be used.
    """
    mechanism = find_attention(name)
    known = mechanism.options()
    _require_known(name, options, known)
    values: dict[str, Any] = {option: parameter.default for option, parameter in known.items()} | dict(options)
    kind = mechanism.load()
    taken = inspect.signature(kind.__init__).parameters
    settings = (kind.settings(**values),) if kind.settings else ()
    rest = {} if kind.settings else values
    if ignored_queries:
        rest["projections"] = 3
    built = form(kind)

    def make(dim: int, num_heads: int, qkv_bias: bool, tokens: int) -> SelfAttention:
        sized = {"tokens": tokens} if "tokens" in taken else {}
        return built(dim, num_heads, *settings, qkv_bias=qkv_bias, **rest, **sized)

    return make


def chosen_layers(layers: int | tuple[int, ...] | str, depth: int) -> tuple[int, ...]:
    """Read a choice of layers as indices.

    Args:
        layers: An index from 0, a list of indices, or ``all``.
        depth: Number of blocks.

    Raises:
        BadValue: If it is something else, or a block does not exist.
    """
    if layers == "all":
        return tuple(range(depth))
    indices = tuple(layers) if isinstance(layers, tuple | list) else (layers,)
    if any(isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < depth for index in indices):
        raise BadValue(f"layers is {layers!r}; expected indices from 0 to {depth - 1}, such as 0 or [0,1], or all")
    return tuple(index for index in indices if isinstance(index, int))


def _require_known(name: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for option in options:
        if option not in known:
            raise unknown(f"argument of attention {name}", option, known)
