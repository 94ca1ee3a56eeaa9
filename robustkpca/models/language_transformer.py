"""A word-level transformer language model of a fixed window, under the published key names."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from robustkpca.data.vocabulary import Vocabulary
from robustkpca.models.adaptive_softmax import AdaptiveSoftmax
from robustkpca.models.causal_attention import DecoderAttention


class LanguageTransformer(nn.Module):
    """Post-norm transformer whose positions count down to 0 at the last token of the window.

    Args:
        tokens: Size of the vocabulary.
        width: Of a token.
        attentions: One for each layer.
        hidden: Width inside the feed-forward part.
        cutoffs: Of the adaptive softmax.
        dropout: Share that is dropped in training, of embeddings and of every sublayer's output.
        before: Whether every sublayer normalises what comes in, in place of the sum that goes out.
        vocabulary: The words; ``None`` where the network only ever meets numbers.

    Attributes:
        vocabulary: As given.

    Source:
        KPCA-S, lm (attn_type 2, small configuration), for Teo and Nguyen 2024, arXiv:2406.13762: Transformer-XL without memory.
    """

    def __init__(
        self,
        tokens: int,
        width: int,
        attentions: Sequence[DecoderAttention],
        *,
        hidden: int,
        cutoffs: Sequence[int] = (),
        dropout: float = 0.0,
        before: bool = False,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.word_emb = _Embedding(tokens, width)
        self.pos_emb = _Positions(width)
        self.layers = nn.ModuleList([_Layer(one, width, hidden, dropout, before) for one in attentions])
        self.drop = nn.Dropout(dropout)
        self.crit = AdaptiveSoftmax(self.word_emb.weight, cutoffs)
        if vocabulary is not None:  # another list of words is another model, whatever the file is called
            self.register_buffer("vocabulary_digest", vocabulary.digest(), persistent=False)
        self.apply(_initialise)
        if cutoffs:
            nn.init.normal_(self.crit.cluster_weight, 0.0, 0.02)

    def hidden(self, tokens: Tensor, last: int | None = None) -> Tensor:
        """Return ``(B, last, C)``, what the criterion reads; tokens ``(B, N)``, int64.

        Where only the last tokens are wanted, the last layer computes nothing else.
        """
        count = tokens.shape[1]
        words: Tensor = self.word_emb(tokens) * math.sqrt(self.word_emb.weight.shape[1])
        hidden: Tensor = self.drop(words + self.drop(self.pos_emb(count)).to(words.dtype))
        for index, layer in enumerate(self.layers, start=1):
            hidden = layer(hidden, last if index == len(self.layers) else None)
        made: Tensor = self.drop(hidden)
        return made

    def forward(self, tokens: Tensor, targets: Tensor, last: int | None = None) -> Tensor:
        """Return negative log-probabilities in nats.

        Args:
            tokens: ``(B, N)``, int64, a window of text.
            targets: ``(B, N)``, int64, at every place the token that comes next.
            last: Of how many of the last places; ``None`` for all.

        Returns:
            ``(B, last)``.
        """
        hidden = self.hidden(tokens, last)
        wanted = targets[:, -hidden.shape[1] :]
        losses: Tensor = self.crit(hidden.flatten(0, 1), wanted.flatten())
        return losses.view(wanted.shape)


class _Embedding(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.emb_layers = nn.ModuleList([nn.Embedding(tokens, width)])

    @property
    def weight(self) -> nn.Parameter:
        layer = self.emb_layers[0]
        assert isinstance(layer, nn.Embedding)
        weight = layer.weight
        assert isinstance(weight, nn.Parameter)
        return weight

    def forward(self, tokens: Tensor) -> Tensor:
        made: Tensor = self.emb_layers[0](tokens)
        return made


class _Positions(nn.Module):
    """Sines, then cosines, of places that count down to 0."""

    inv_freq: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 10000.0 ** (-torch.arange(0.0, width, 2.0) / width))

    def forward(self, count: int) -> Tensor:
        places = torch.arange(count - 1, -1, -1, device=self.inv_freq.device, dtype=self.inv_freq.dtype)
        angles = torch.outer(places, self.inv_freq)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


class _FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, dropout: float, before: bool) -> None:
        super().__init__()
        self.before = before
        self.CoreNet = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, width), nn.Dropout(dropout)
        )
        self.layer_norm = nn.LayerNorm(width)

    def forward(self, hidden: Tensor) -> Tensor:
        made: Tensor = hidden + self.CoreNet(self.layer_norm(hidden) if self.before else hidden)
        return made if self.before else self.layer_norm(made)


class _Layer(nn.Module):
    def __init__(self, attention: DecoderAttention, width: int, hidden: int, dropout: float, before: bool) -> None:
        super().__init__()
        self.dec_attn = attention
        self.pos_ff = _FeedForward(width, hidden, dropout, before)

    def forward(self, hidden: Tensor, last: int | None = None) -> Tensor:
        made: Tensor = self.pos_ff(self.dec_attn(hidden, last))
        return made


def _initialise(module: nn.Module) -> None:
    """Draw weights as the published training did."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, 0.0, 0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.LayerNorm):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)
