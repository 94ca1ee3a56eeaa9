"""Elliptical attention: distances stretched along the directions in which values change from block to block."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from robustkpca.errors import BadValue
from robustkpca.models.attention import SelfAttention

STATISTICS = ("mean", "median")


class EllipticalAttention(SelfAttention):
    """Softmax attention over ``(Q m) K^T``; ``m`` measures along each feature how far values moved since the block before.

    Without a block before, as in the first one, this is ordinary attention. It adds no weights and runs fused.

    Args:
        dim: Width of a token, ``C``.
        num_heads: Number of heads; divides ``dim``.
        statistic: Over the tokens: ``mean`` as trained, or ``median`` as the evaluation variant.
        qkv_bias: Whether the first projection has a bias.

    Raises:
        BadValue: If ``statistic`` is another one, or ``num_heads`` does not divide ``dim``.

    Source:
        Nielsen et al. 2024, arXiv:2406.13770; stefvk/Elliptical-Attention, ImageAttack/models.py. Its constant ``delta``
        cancels and is left out. Deliberate difference: where no value moved at all it divides by zero, here ``m`` is 1.
    """

    def __init__(self, dim: int, num_heads: int, *, statistic: str = "mean", qkv_bias: bool = True) -> None:
        super().__init__(dim, num_heads, qkv_bias=qkv_bias)
        if statistic not in STATISTICS:
            raise BadValue(f"statistic is {statistic!r}; expected one of {', '.join(STATISTICS)}")
        self.statistic = statistic

    def attend(self, parts: tuple[Tensor, ...], before: Tensor | None = None) -> Tensor:
        """Return ``(B, H, N, d)``."""
        queries, keys, values = parts
        if before is not None:
            queries = queries * relative_movement(values.detach(), before, self.statistic)
        return scaled_dot_product_attention(queries, keys, values)


def relative_movement(values: Tensor, before: Tensor, statistic: str) -> Tensor:
    """Return how far values moved along each feature, relative to the feature along which they moved farthest.

    Args:
        values: ``(B, H, N, d)``, of this block.
        before: The same of the block before.
        statistic: ``mean`` or ``median`` over the tokens; of an even number of tokens the lower median, as in torch.

    Returns:
        ``(B, H, 1, d)``, from 0 to 1.
    """
    moved = (values - before).abs()
    typical = moved.mean(-2, keepdim=True) if statistic == "mean" else moved.median(-2, keepdim=True).values
    most = typical.amax(-1, keepdim=True)
    return torch.where(most > 0, typical / most.where(most > 0, 1), 1)
