"""A small transformer that classifies a sentence by its words, with any attention that needs no fixed number of tokens."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robustkpca.data.vocabulary import Vocabulary
from robustkpca.errors import BadValue
from robustkpca.models.attention import Carried
from robustkpca.models.families import family
from robustkpca.models.mechanisms import AttentionFactory, attention_blocks
from robustkpca.models.vision_transformer import Block

SIZED = ("scaled", "rvt")
"""Attentions with weights for every pair of places."""


class SentenceTransformer(nn.Module):
    """Words with sines and cosines of their places, a class token, and pre-norm blocks.

    Args:
        attention: One factory per block.
        words: Size of the vocabulary.
        embed_dim: Width of a token.
        num_heads: Which divide it.
        mlp_ratio: Width inside the perceptrons, in units of ``embed_dim``.
        num_classes: Number of logits.
        dropout: Share of the embedding that is dropped in training.
        vocabulary: The words; ``None`` where the network only ever meets numbers.

    Attributes:
        vocabulary: As given.
    """

    def __init__(
        self,
        attention: list[AttentionFactory],
        *,
        words: int,
        embed_dim: int,
        num_heads: int,
        mlp_ratio: float,
        num_classes: int,
        dropout: float,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.word_emb = nn.Embedding(words, embed_dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.drop = nn.Dropout(dropout)
        hidden = max(1, int(embed_dim * mlp_ratio))
        self.blocks = nn.ModuleList(Block(make(embed_dim, num_heads, True, 0), embed_dim, hidden) for make in attention)
        self.norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes)
        nn.init.normal_(self.word_emb.weight, 0.0, embed_dim**-0.5)
        nn.init.normal_(self.cls_token, 0.0, 0.02)
        if vocabulary is not None:  # another list of words is another model
            self.register_buffer("vocabulary_digest", vocabulary.digest(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits ``(B, num_classes)`` for sentences of one length ``(B, N)``, int64."""
        width = self.word_emb.embedding_dim
        rates = 10000.0 ** (-torch.arange(0, width, 2, device=tokens.device) / width)
        angles = torch.outer(torch.arange(tokens.shape[1], device=tokens.device), rates)
        places = torch.cat([angles.sin(), angles.cos()], dim=-1).to(self.word_emb.weight.dtype)
        words = self.drop(self.word_emb(tokens) * math.sqrt(width) + places)
        hidden = torch.cat([self.cls_token.expand(len(tokens), -1, -1), words], dim=1)
        carried = Carried()
        for block in self.blocks:
            hidden = block(hidden, carried)
        logits: Tensor = self.head(self.norm(hidden[:, 0]))
        return logits


def sentence(
    *,
    attention: str = "softmax",
    num_classes: int = 5,
    embed_dim: int = 64,
    depth: int = 2,
    num_heads: int = 4,
    mlp_ratio: float = 2.0,
    dropout: float = 0.3,
    vocabulary: str | int = 20_000,
    **options: Any,
) -> SentenceTransformer:
    """Build a classifier of sentences.

    Args:
        attention: A name of `mechanisms.ATTENTIONS`, but for those with weights for every place.
        num_classes: Number of logits.
        embed_dim: Width of a token.
        depth: Number of blocks.
        num_heads: Which divide the width.
        mlp_ratio: Width inside the perceptrons, in units of ``embed_dim``.
        dropout: Share of the embedding that is dropped in training.
        vocabulary: A file with one word a line, or a training text; or the number of words.
        **options: Of the attention.

    Raises:
        BadValue: If a value cannot be used.
    """
    if attention in SIZED:
        raise BadValue(f"attention {attention} has weights for a fixed number of tokens; sentences differ in theirs")
    words = Vocabulary.read(Path(vocabulary)) if isinstance(vocabulary, str) else None
    count = vocabulary if words is None else len(words)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1 or num_classes < 2 or embed_dim % 2:
        raise BadValue(
            f"vocabulary={vocabulary}, num_classes={num_classes}, embed_dim={embed_dim}: expected a file or a number of words "
            "from 1 up, at least two classes, and an even width"
        )
    return SentenceTransformer(
        attention_blocks(attention, depth, options),
        words=count,
        embed_dim=embed_dim,
        num_heads=num_heads,
        mlp_ratio=mlp_ratio,
        num_classes=num_classes,
        dropout=dropout,
        vocabulary=words,
    )


@family(sentence)
def sentence_transformer(**options: Any) -> SentenceTransformer:
    """Build a classifier of sentences with any attention. Options as `sentence`."""
    return sentence(**options)
