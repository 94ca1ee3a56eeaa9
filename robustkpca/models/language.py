"""Word-level language models: softmax, symmetric, and with RPC attention; the published size, and one small enough to ship."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any

from robustkpca.data.vocabulary import Vocabulary
from robustkpca.errors import BadValue
from robustkpca.models.causal_attention import NORMS, DecoderAttention
from robustkpca.models.language_transformer import LanguageTransformer
from robustkpca.models.pursuit import Pursuit

WIKITEXT_WORDS = 267_735
"""Types of WikiText-103's training text, with ``<eos>``."""
NOVEL = "novel"
"""Name of the vocabulary that comes with the small models."""


def softmax_lm(
    *,
    depth: int = 16,
    embed_dim: int = 128,
    num_heads: int = 8,
    hidden_dim: int = 2048,
    dropout: float = 0.1,
    pre_norm: bool = False,
    cutoffs: tuple[int, ...] = (20_000, 40_000, 200_000),
    vocabulary: str | int = WIKITEXT_WORDS,
) -> LanguageTransformer:
    """Build the softmax twin of `symlm`: queries of their own. Arguments as `symlm`."""
    return _built("softmax", depth, embed_dim, num_heads, hidden_dim, dropout, pre_norm, cutoffs, vocabulary)


def symlm(
    *,
    depth: int = 16,
    embed_dim: int = 128,
    num_heads: int = 8,
    hidden_dim: int = 2048,
    dropout: float = 0.1,
    pre_norm: bool = False,
    cutoffs: tuple[int, ...] = (20_000, 40_000, 200_000),
    vocabulary: str | int = WIKITEXT_WORDS,
) -> LanguageTransformer:
    """Build Symlm, whose keys are its queries; the defaults are the published ones, 44,018,394 parameters.

    Args:
        depth: Number of layers.
        embed_dim: Width of a token.
        num_heads: Which divide the width.
        hidden_dim: Width inside the feed-forward part.
        dropout: Share that is dropped in training.
        pre_norm: Whether to normalise before attention, in place of after the sum.
        cutoffs: Where the clusters of rarer words begin; an empty list for a plain softmax.
        vocabulary: A file with the training text, whose words are counted, or with one word a line; without such a file the
            number of words, and the model cannot read text.
    """
    return _built("symmetric", depth, embed_dim, num_heads, hidden_dim, dropout, pre_norm, cutoffs, vocabulary)


def rpc_symlm(
    *,
    depth: int = 16,
    embed_dim: int = 128,
    num_heads: int = 8,
    hidden_dim: int = 2048,
    dropout: float = 0.1,
    pre_norm: bool = False,
    cutoffs: tuple[int, ...] = (20_000, 40_000, 200_000),
    vocabulary: str | int = WIKITEXT_WORDS,
    iterations: int = 4,
    layers: tuple[int, ...] | int | str = (0, 1, 2, 3),
    lambda_: float = 4.0,
    threshold: str = "lambda*mu",
    mu_dim: str = "C",
    norm: str = "causal",
) -> LanguageTransformer:
    """Build RPC-Symlm, published by the name "4iter/layer1-4" alone.

    Args:
        depth: As `symlm`, and all that follow.
        embed_dim: Width of a token.
        num_heads: Which divide the width.
        hidden_dim: Width inside the feed-forward part.
        dropout: Share that is dropped in training.
        pre_norm: Whether to normalise before attention.
        cutoffs: Where the clusters of rarer words begin.
        vocabulary: A file, or a number of words.
        iterations: Passes of the pursuit.
        layers: Which layers pursue, counted from 0, or ``all``.
        lambda_: Weight of the sparse part. The published value is unknown; 4 is that of the vision models.
        threshold: See `robustkpca.models.pursuit.Pursuit`.
        mu_dim: See `robustkpca.models.pursuit.Pursuit`.
        norm: ``causal``, where the penalty of a token is made of the keys up to it, or ``window``, which reads later ones.
            Which of them was published is unknown.
    """
    if norm not in NORMS:
        raise BadValue(f"norm is {norm!r}; expected one of {', '.join(NORMS)}")
    pursuit = Pursuit(iterations, lambda_, threshold, mu_dim)
    chosen = _chosen(layers, depth)
    return _built(
        "symmetric",
        depth,
        embed_dim,
        num_heads,
        hidden_dim,
        dropout,
        pre_norm,
        cutoffs,
        vocabulary,
        chosen,
        pursuit,
        norm,
    )


def softmax_lm_novel() -> LanguageTransformer:
    """Build the small softmax model of the bundled novel."""
    return _bundled(softmax_lm(**_small()), "softmax_lm_novel")


def symlm_novel() -> LanguageTransformer:
    """Build the small symmetric model of the bundled novel."""
    return _bundled(symlm(**_small()), "symlm_novel")


def rpc_symlm_novel(
    *,
    iterations: int = 4,
    layers: tuple[int, ...] | int | str = 0,
    lambda_: float = 4.0,
    threshold: str = "lambda*mu",
    mu_dim: str = "C",
    norm: str = "causal",
) -> LanguageTransformer:
    """Build the small RPC model of the bundled novel. Options as `rpc_symlm`."""
    options: dict[str, Any] = {
        "iterations": iterations,
        "layers": layers,
        "lambda_": lambda_,
        "threshold": threshold,
        "mu_dim": mu_dim,
        "norm": norm,
    }
    return _bundled(rpc_symlm(**_small(), **options), "rpc_symlm_novel")


def _small() -> dict[str, Any]:
    """Return the options of the models that fit beside the code."""
    size = {"depth": 2, "embed_dim": 64, "num_heads": 4, "hidden_dim": 256, "dropout": 0.3}
    return {**size, "cutoffs": (500,), "vocabulary": NOVEL}


def _bundled(model: LanguageTransformer, name: str) -> LanguageTransformer:
    """Say where the weights of a name lie."""
    model.bundled_checkpoint = f"{name}.safetensors"  # type: ignore[assignment]
    return model


def _built(
    kind: str,
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    dropout: float,
    before: bool,
    cutoffs: tuple[int, ...],
    source: str | int,
    pursuing: tuple[int, ...] = (),
    pursuit: Pursuit | None = None,
    norm: str = "causal",
) -> LanguageTransformer:
    vocabulary = _vocabulary(source) if isinstance(source, str) else None
    words = len(vocabulary) if vocabulary is not None else source
    if isinstance(words, bool) or not isinstance(words, int) or words < 1:
        raise BadValue(f"vocabulary is {source!r}; expected a file, or a number of words from 1 up")
    _refuse_sizes(depth, width, heads, hidden, dropout)
    cuts = (cutoffs,) if isinstance(cutoffs, int) else tuple(cutoffs)
    whole = all(isinstance(cut, int) and 0 < cut < words for cut in cuts)
    if not whole or any(first >= second for first, second in pairwise(cuts)):
        raise BadValue(f"cutoffs are {list(cuts)}; expected rising numbers between 0 and the {words} words")
    kinds = ["rpc" if layer in pursuing else kind for layer in range(depth)]
    attentions = [
        DecoderAttention(width, heads, dropout=dropout, kind=one, before=before, pursuit=pursuit, norm=norm)
        for one in kinds
    ]
    return LanguageTransformer(
        words,
        width,
        attentions,
        hidden=hidden,
        cutoffs=cuts,
        dropout=dropout,
        before=before,
        vocabulary=vocabulary,
    )


def _refuse_sizes(depth: int, width: int, heads: int, hidden: int, dropout: float) -> None:
    for name, value in (("depth", depth), ("embed_dim", width), ("num_heads", heads), ("hidden_dim", hidden)):
        if value < 1:
            raise BadValue(f"{name} is {value}; expected at least 1")
    if width % heads or width % 2:
        raise BadValue(f"embed_dim is {width}; expected an even number that num_heads={heads} divides")
    if not 0 <= dropout < 1:
        raise BadValue(f"dropout is {dropout}; expected a share from 0 up to 1")


def _chosen(layers: tuple[int, ...] | int | str, depth: int) -> tuple[int, ...]:
    if layers == "all":
        return tuple(range(depth))
    chosen = (layers,) if isinstance(layers, int) else layers
    wrong = [
        layer for layer in chosen if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < depth
    ]
    if isinstance(chosen, str) or wrong:
        raise BadValue(f"layers is {layers!r}; expected numbers from 0 to {depth - 1}, or all")
    return tuple(chosen)


@cache
def _vocabulary(source: str) -> Vocabulary:
    if source == NOVEL:
        text = (resources.files("robustkpca.models") / "bundled" / "novel_vocabulary.json").read_text("utf-8")
        return Vocabulary(tuple(json.loads(text)))
    return Vocabulary.read(source)
