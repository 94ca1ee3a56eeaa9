"""Attention of the Robust Vision Transformer as coded beside the kernel-density attentions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from robustkpca.models.attention import SelfAttention


class RVTAttention(SelfAttention):
    """Softmax attention over normalised keys whose logits are scaled by a learned mask in (0, 1) for each pair of tokens.

    A fused kernel takes masks that are added, not multiplied; so this forms the matrix of all pairs.

    Args:
        dim: Width of a token, ``C``.
        num_heads: Number of heads; divides ``dim``.
        tokens: Number of tokens, ``N``, which the mask fixes.
        qkv_bias: Whether the first projection has a bias.

    Source:
        Mao et al. 2022, arXiv:2105.07926 (position-aware attention scaling); rachtsy/KPCA-S, Attack/models_git.py. The
        initial mask is not on record; here it is 0, which scales every logit by one half.
    """

    def __init__(self, dim: int, num_heads: int, *, tokens: int = 197, qkv_bias: bool = True) -> None:
        super().__init__(dim, num_heads, qkv_bias=qkv_bias)
        self.att_mask = nn.Parameter(torch.zeros(num_heads, tokens, tokens))

    def attend(self, parts: tuple[Tensor, ...], before: Tensor | None = None) -> Tensor:
        """Return ``(B, H, N, d)``."""
        queries, keys, values = parts
        logits = queries @ normalize(keys, dim=-1).mT * queries.shape[-1] ** -0.5
        return torch.softmax(logits * self.att_mask.sigmoid(), dim=-1) @ values
