"""Self-attention layers under the published key names ``qkv`` and ``proj``.

They differ in what the heads do with one projection of the tokens. The heads run on the fused kernel of torch; the map
of attention weights, ``N x N`` for each head, is formed only by ``attention_map``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from robustkpca.errors import BadValue
from robustkpca.models.pursuit import (
    Pursuit,
    last_pass,
    principal_component_pursuit_attention,
    symmetric_attention,
)


class SelfAttention(nn.Module):
    """Project tokens, let heads attend, project back.

    Args:
        dim: Width of a token, ``C``; all heads together.
        num_heads: Number of heads; divides ``dim``.
        qkv_bias: Whether the first projection has a bias.
        projections: How many matrices the first projection holds, one below the other.

    Raises:
        BadValue: If ``num_heads`` does not divide ``dim``.
    """

    def __init__(self, dim: int, num_heads: int, *, qkv_bias: bool = True, projections: int = 3) -> None:
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise BadValue(f"embed_dim {dim} is not a multiple of num_heads {num_heads}")
        self.num_heads = num_heads
        self.projections = projections
        self.qkv = nn.Linear(dim, projections * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return ``(B, N, C)`` for tokens ``(B, N, C)``."""
        output: Tensor = self.proj(self.heads(tokens).transpose(1, 2).flatten(2))
        return output

    def split(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Return the projections of tokens ``(B, N, C)``, each ``(B, H, N, d)``, in the published order."""
        batch, count, dim = tokens.shape
        shape = batch, count, self.projections, self.num_heads, dim // self.num_heads
        projected: Tensor = self.qkv(tokens)
        return projected.reshape(shape).permute(2, 0, 3, 1, 4).unbind(0)

    def heads(self, tokens: Tensor) -> Tensor:
        """Return what the heads say of tokens ``(B, N, C)``, before ``proj``: ``(B, H, N, d)``."""
        raise NotImplementedError

    def attention_map(self, tokens: Tensor) -> Tensor:
        """Return the attention weights of tokens ``(B, N, C)``: ``(B, H, N, N)``, the rows sum to 1."""
        raise NotImplementedError


class SoftmaxAttention(SelfAttention):
    """Ordinary attention, ``softmax(Q K^T / sqrt(d)) V``.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762; head layout and key names as in timm's and DeiT's vision transformers.
    """

    def heads(self, tokens: Tensor) -> Tensor:
        """Return ``(B, H, N, d)``."""
        queries, keys, values = self.split(tokens)
        return scaled_dot_product_attention(queries, keys, values)

    def attention_map(self, tokens: Tensor) -> Tensor:
        """Return ``(B, H, N, N)``."""
        queries, keys, _ = self.split(tokens)
        return _weights(queries, keys)


class SymmetricAttention(SelfAttention):
    """Attention whose keys are its queries, ``softmax(K K^T / sqrt(d)) V``; ``qkv`` holds keys, then values.

    Source:
        Teo and Nguyen 2024, arXiv:2406.13762; rachtsy/KPCA_code, Robust/softmax.py.
    """

    def __init__(self, dim: int, num_heads: int, *, qkv_bias: bool = True, projections: int = 2) -> None:
        super().__init__(dim, num_heads, qkv_bias=qkv_bias, projections=projections)

    def heads(self, tokens: Tensor) -> Tensor:
        """Return ``(B, H, N, d)``."""
        keys, values = self.split(tokens)[-2:]
        return symmetric_attention(keys, values)

    def attention_map(self, tokens: Tensor) -> Tensor:
        """Return ``(B, H, N, N)``."""
        keys = self.split(tokens)[-2]
        return _weights(keys, keys)


class RPCAttention(SymmetricAttention):
    """Symmetric attention over keys that principal component pursuit has cleaned.

    Args:
        dim: Width of a token, ``C``.
        num_heads: Number of heads; divides ``dim``.
        pursuit: Number of passes, threshold and variant. It adds no weights, so one checkpoint serves them all.
        qkv_bias: Whether the first projection has a bias.
        projections: 2 for keys and values. 3 for weights of ordinary attention, whose queries are then ignored.

    Raises:
        BadValue: If ``num_heads`` does not divide ``dim``.

    Source:
        Teo and Nguyen 2024, arXiv:2406.13762; rachtsy/KPCA_code, Robust/softmax.py; the form with ignored queries is
        softmax_asymR.py in the history of rachtsy/KPCA-S. Deliberate differences are listed in `pursuit.passes`.
    """

    def __init__(
        self, dim: int, num_heads: int, pursuit: Pursuit | None = None, *, qkv_bias: bool = True, projections: int = 2
    ) -> None:
        super().__init__(dim, num_heads, qkv_bias=qkv_bias, projections=projections)
        self.pursuit = pursuit or Pursuit()

    def heads(self, tokens: Tensor) -> Tensor:
        """Return ``(B, H, N, d)``."""
        keys, values = self.split(tokens)[-2:]
        return principal_component_pursuit_attention(keys, values, self.pursuit)

    def attention_map(self, tokens: Tensor) -> Tensor:
        """Return the weights of the last pass, ``(B, H, N, N)``."""
        keys, values = self.split(tokens)[-2:]
        cleaned = last_pass(keys, values, self.pursuit).cleaned.to(keys.dtype)
        return _weights(cleaned, cleaned)


def _weights(queries: Tensor, keys: Tensor) -> Tensor:
    return torch.softmax(queries @ keys.mT * queries.shape[-1] ** -0.5, dim=-1)
