"""Self-attention layers under the published key names ``qkv`` and ``proj``.

They differ in what the heads do with one projection of the tokens. The heads run on the fused kernel of torch; the map
of attention weights, ``N x N`` for each head, is formed only by ``attention_map``. `mechanisms` lists them all by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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


@dataclass
class Carried:
    """What one block leaves for the next, within one pass of a whole transformer.

    Args:
        values: The value projections of the block before, ``(B, H, N, d)``, without gradient; ``None`` before the first.
    """

    values: Tensor | None = None


class SelfAttention(nn.Module):
    """Project tokens, let heads attend, project back.

    A mechanism says in `attend` what the heads do. Its options are keyword arguments of its class, or the fields of a
    frozen dataclass that the class names in ``settings`` and takes as its third argument. A class that is built for a
    number of tokens takes it as ``tokens``.

    Args:
        dim: Width of a token, ``C``; all heads together.
        num_heads: Number of heads; divides ``dim``.
        qkv_bias: Whether the first projection has a bias.
        projections: How many matrices the first projection holds, one below the other.

    Raises:
        BadValue: If ``num_heads`` does not divide ``dim``.
    """

    settings: ClassVar[type | None] = None

    def __init__(self, dim: int, num_heads: int, *, qkv_bias: bool = True, projections: int = 3) -> None:
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise BadValue(f"embed_dim {dim} is not a multiple of num_heads {num_heads}")
        self.num_heads = num_heads
        self.projections = projections
        self.make_projections(dim, qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def make_projections(self, dim: int, bias: bool) -> None:
        """Make the layers that `split` uses."""
        self.qkv = nn.Linear(dim, self.projections * dim, bias=bias)

    def forward(self, tokens: Tensor, carried: Carried | None = None) -> Tensor:
        """Return ``(B, N, C)`` for tokens ``(B, N, C)``.

        Args:
            tokens: ``(B, N, C)``.
            carried: What the block before left; this block's values take its place.
        """
        parts = self.split(tokens)
        before = None if carried is None else carried.values
        if carried is not None:
            carried.values = parts[-1].detach()
        output: Tensor = self.proj(self.attend(parts, before).transpose(1, 2).flatten(2))
        return output

    def split(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Return the projections of tokens ``(B, N, C)``, each ``(B, H, N, d)``, in the published order."""
        return self.by_head(self.qkv(tokens), self.projections)

    def by_head(self, projected: Tensor, count: int) -> tuple[Tensor, ...]:
        """Return ``count`` projections ``(B, H, N, d)`` of ``(B, N, count * C)``."""
        batch, tokens, width = projected.shape
        shape = batch, tokens, count, self.num_heads, width // (count * self.num_heads)
        return projected.reshape(shape).permute(2, 0, 3, 1, 4).unbind(0)

    def heads(self, tokens: Tensor) -> Tensor:
        """Return what the heads say of tokens ``(B, N, C)``, before ``proj``: ``(B, H, N, d)``."""
        return self.attend(self.split(tokens))

    def attend(self, parts: tuple[Tensor, ...], before: Tensor | None = None) -> Tensor:
        """Return what the heads say of their projections.

        Args:
            parts: Queries, keys and values, or keys and values, each ``(B, H, N, d)``.
            before: The values of the block before, for mechanisms that look at them.

        Returns:
            ``(B, H, N, d)``.
        """
        raise NotImplementedError

    def attention_map(self, tokens: Tensor) -> Tensor:
        """Return the attention weights of tokens ``(B, N, C)``: ``(B, H, N, N)``, the rows sum to 1.

        Raises:
            NotImplementedError: If the mechanism has no such map.
        """
        raise NotImplementedError


class SoftmaxAttention(SelfAttention):
    """Ordinary attention, ``softmax(Q K^T / sqrt(d)) V``.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762; head layout and key names as in timm's and DeiT's vision transformers.
    """

    def attend(self, parts: tuple[Tensor, ...], before: Tensor | None = None) -> Tensor:
        """Return ``(B, H, N, d)``."""
        queries, keys, values = parts
        return scaled_dot_product_attention(queries, keys, values)

    def attention_map(self, tokens: Tensor) -> Tensor:
        """Return ``(B, H, N, N)``."""
        queries, keys, _ = self.split(tokens)
        return attention_weights(queries, keys)


class SymmetricAttention(SelfAttention):
    """Attention whose keys are its queries, ``softmax(K K^T / sqrt(d)) V``; ``qkv`` holds keys, then values.

    Source:
        Teo and Nguyen 2024, arXiv:2406.13762; rachtsy/KPCA_code, Robust/softmax.py.
    """

    def __init__(self, dim: int, num_heads: int, *, qkv_bias: bool = True, projections: int = 2) -> None:
        super().__init__(dim, num_heads, qkv_bias=qkv_bias, projections=projections)

    def attend(self, parts: tuple[Tensor, ...], before: Tensor | None = None) -> Tensor:
        """Return ``(B, H, N, d)``."""
        return symmetric_attention(parts[-2], parts[-1])

    def attention_map(self, tokens: Tensor) -> Tensor:
        """Return ``(B, H, N, N)``."""
        keys = self.split(tokens)[-2]
        return attention_weights(keys, keys)


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

    settings = Pursuit

    def __init__(
        self, dim: int, num_heads: int, pursuit: Pursuit | None = None, *, qkv_bias: bool = True, projections: int = 2
    ) -> None:
        super().__init__(dim, num_heads, qkv_bias=qkv_bias, projections=projections)
        self.pursuit = pursuit or Pursuit()

    def attend(self, parts: tuple[Tensor, ...], before: Tensor | None = None) -> Tensor:
        """Return ``(B, H, N, d)``."""
        return principal_component_pursuit_attention(parts[-2], parts[-1], self.pursuit)

    def attention_map(self, tokens: Tensor) -> Tensor:
        """Return the weights of the last pass, ``(B, H, N, N)``."""
        keys, values = self.split(tokens)[-2:]
        cleaned = self.cleaned(keys, values)
        return attention_weights(cleaned, cleaned)

    def cleaned(self, keys: Tensor, values: Tensor) -> Tensor:
        """Return the keys that attend to each other in the last pass, shaped like ``keys``."""
        return last_pass(keys, values, self.pursuit).cleaned.to(keys.dtype)


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    """Return ``softmax(Q K^T / sqrt(d))`` of ``(..., N, d)`` as a matrix ``(..., N, N)``."""
    return torch.softmax(queries @ keys.mT * queries.shape[-1] ** -0.5, dim=-1)
