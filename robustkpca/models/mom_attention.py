"""Attention as kernel regression over the median of means: one of several sets of tokens, chosen by its density."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from robustkpca.errors import BadValue
from robustkpca.models.attention import SelfAttention
from robustkpca.models.kde_attention import kernel_regression

CHOSEN_BY = ("batch", "image")
SETS = ("fixed", "fresh")
_SEED = 0


class MoMAttention(SelfAttention):
    """Kernel regression over the set of tokens whose density is the median among ``blocks`` random sets; fused.

    Args:
        dim: Width of a token, ``C``.
        num_heads: Number of heads; divides ``dim``.
        blocks: Number of sets, or ``auto`` for ``floor(2 N outliers) + 1``.
        outliers: Share of the tokens that a set leaves out, in [0, 1).
        chosen_by: ``image`` takes the median of each image's own densities. ``batch``, as released, chooses one set for
            the whole batch, so that an image depends on its batch.
        sets: ``fixed`` draws the sets anew while training, from torch's generator as dropout does, and has always the
            same ones in evaluation. ``fresh``, as released, draws anew in evaluation too; scores then change by chance.
        qkv_bias: Whether the first projection has a bias.

    Raises:
        BadValue: If a value is out of range, or ``num_heads`` does not divide ``dim``.

    Source:
        Han et al. 2023, arXiv:2210.05794, with Humbert et al. 2022 (MoM-KDE); rachtsy/KPCA-S, Attack/models_git.py, with
        0.1 outliers from its script. Deliberate differences: the defaults of ``chosen_by`` and ``sets``.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        blocks: int | str = 5,
        outliers: float = 0.1,
        chosen_by: str = "image",
        sets: str = "fixed",
        qkv_bias: bool = True,
    ) -> None:
        super().__init__(dim, num_heads, qkv_bias=qkv_bias)
        if blocks != "auto" and (isinstance(blocks, bool) or not isinstance(blocks, int) or blocks < 1):
            raise BadValue(f"blocks is {blocks!r}; expected a whole number of at least 1, or auto")
        if not 0 <= outliers < 1:
            raise BadValue(f"outliers is {outliers!r}; expected a share in [0, 1)")
        for name, value, known in (("chosen_by", chosen_by, CHOSEN_BY), ("sets", sets, SETS)):
            if value not in known:
                raise BadValue(f"{name} is {value!r}; expected one of {', '.join(known)}")
        self.blocks, self.outliers, self.chosen_by, self.sets = blocks, outliers, chosen_by, sets

    def attend(self, parts: tuple[Tensor, ...], before: Tensor | None = None) -> Tensor:
        """Return ``(B, H, N, d)``."""
        queries, keys, values = parts
        keys = normalize(keys, dim=-1)
        sets = self.draw(keys.shape[-2]).to(keys.device)
        chosen = median_set(queries, keys, sets, whole_batch=self.chosen_by == "batch")
        places = chosen[:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[-1])
        return kernel_regression(queries, keys.gather(-2, places), values.gather(-2, places))

    def draw(self, tokens: int) -> Tensor:
        """Draw the sets for a number of tokens: ``(blocks, tokens * (1 - outliers))`` ascending places, int64."""
        count = math.floor(2 * tokens * self.outliers) + 1 if self.blocks == "auto" else int(self.blocks)
        size = max(1, int(tokens * (1 - self.outliers)))
        generator = None if self.training or self.sets == "fresh" else torch.Generator().manual_seed(_SEED)
        order = torch.rand(count, tokens, generator=generator).argsort(dim=-1)
        return order[:, :size].sort(dim=-1).values


def median_set(queries: Tensor, keys: Tensor, sets: Tensor, *, whole_batch: bool) -> Tensor:
    """Choose the set whose density, summed over queries and heads, has the middle rank.

    Args:
        queries: ``(B, H, N, d)``.
        keys: ``(B, H, N, d)``.
        sets: ``(K, M)`` places of tokens.
        whole_batch: Whether the density is summed over the batch too.

    Returns:
        ``(B, M)`` places, without gradient. No matrix of all pairs is formed: the log-kernel is quadratic, so its sum over
        the queries follows from their sum and the sum of their squares.
    """
    queries, keys = queries.detach().double(), keys.detach().double()
    squares = queries.square().sum((-1, -2))[..., None] + queries.shape[-2] * keys.square().sum(-1)
    density = -(squares - 2 * (keys @ queries.sum(-2)[..., None]).squeeze(-1)).sum(1)
    if whole_batch:
        density = density.sum(0, keepdim=True).expand_as(density)
    scores = density[:, sets].sum(-1)
    middle = scores.argsort(dim=-1, stable=True)[:, scores.shape[-1] // 2]
    return sets[middle]
