"""Attention as kernel regression with a scaled and projected density estimate."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from robustkpca.errors import BadValue
from robustkpca.models.attention import SelfAttention
from robustkpca.models.kde_attention import gram_matrix, kernel_regression
from robustkpca.models.simplex_program import simplex_minimiser

SHARED = ("batch", "image")
_SMALLEST = 1e-30


class SPKDEAttention(SelfAttention):
    """Kernel regression whose tokens are weighted by the point of the simplex nearest to a scaled-up density estimate.

    The regression runs fused. The weights need Gram matrices, which are formed as matrices of all pairs of tokens, and a
    quadratic program on the CPU for each; no gradient flows through them.

    Args:
        dim: Width of a token, ``C``.
        num_heads: Number of heads; divides ``dim``.
        outliers: Share of the tokens that may be outliers, in [0, 1); the scale is ``1 / (1 - outliers)``.
        shared: ``image`` solves one program for each image, over the mean Gram matrix of its heads. ``batch``, as
            released, averages over the whole batch too, so that an image depends on its batch.
        qkv_bias: Whether the first projection has a bias.

    Raises:
        BadValue: If a value is out of range, or ``num_heads`` does not divide ``dim``.

    Source:
        Han et al. 2023, arXiv:2210.05794, with Vandermeulen and Scott 2014 (SPKDE); rachtsy/KPCA-S, Attack/models_git.py,
        whose script has 0.1 and whose class 0.05. Deliberate difference: ``image`` is the default.
    """

    def __init__(
        self, dim: int, num_heads: int, *, outliers: float = 0.1, shared: str = "image", qkv_bias: bool = True
    ) -> None:
        super().__init__(dim, num_heads, qkv_bias=qkv_bias)
        if not 0 <= outliers < 1:
            raise BadValue(f"outliers is {outliers!r}; expected a share in [0, 1)")
        if shared not in SHARED:
            raise BadValue(f"shared is {shared!r}; expected one of {', '.join(SHARED)}")
        self.outliers, self.shared = outliers, shared

    def attend(self, parts: tuple[Tensor, ...], before: Tensor | None = None) -> Tensor:
        """Return ``(B, H, N, d)``."""
        queries, keys, values = parts
        keys = normalize(keys, dim=-1)
        scale = keys.shape[-1] ** -0.5
        joint, marginal = (self.log_weights(points, scale) for points in (torch.cat([keys, values], dim=-1), keys))
        return kernel_regression(queries, keys, values, joint, marginal)

    def log_weights(self, points: Tensor, scale: float) -> Tensor:
        """Return the logarithms of the weights of points ``(B, H, N, e)`` under a kernel of that scale: ``(B, H, N)``."""
        gram = gram_matrix(points.detach(), scale)
        gram = gram.mean(dim=(0, 1) if self.shared == "batch" else 1)
        scaled = gram.mean(-1) / (1 - self.outliers)
        weights = simplex_minimiser(gram, scaled).clamp_min(_SMALLEST).log()
        weights = weights if self.shared == "batch" else weights[:, None]
        return weights.expand(points.shape[:-1]).to(points.dtype)
