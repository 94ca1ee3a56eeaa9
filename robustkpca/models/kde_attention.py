"""Attention as kernel regression, plain and with robust density estimates of keys and values.

Keys have length 1, so that the Gaussian log-kernel ``-|q - k|^2 / sqrt(d)`` is ``2 q k / sqrt(d)`` up to a term of the
query alone, which cancels: plain kernel regression is ordinary attention with twice the scale.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad, scaled_dot_product_attention

from robustkpca.errors import BadValue
from robustkpca.models.attention import SelfAttention

LOSSES = ("huber", "hampel")
FORMS = ("released", "textbook")
_REDESCENDED = 0.01  # the weight that the released code gives beyond the last corner of Hampel's function
_SMALLEST = 1e-30  # a weight of zero, for the logarithm


class KDEAttention(SelfAttention):
    """Attention as kernel regression: ``softmax(2 Q K^T / sqrt(d)) V`` with keys of length 1; fused.

    Source:
        Han et al. 2023, arXiv:2210.05794; rachtsy/KPCA-S, Attack/models_git.py.
    """

    def attend(self, parts: tuple[Tensor, ...], before: Tensor | None = None) -> Tensor:
        """Return ``(B, H, N, d)``."""
        queries, keys, values = parts
        return kernel_regression(queries, normalize(keys, dim=-1), values)


class RKDEAttention(SelfAttention):
    """Kernel regression whose tokens are weighted by a robust density estimate, in ``iterations`` reweightings.

    The regression runs fused. The weights need the Gram matrices of keys, and of keys with values, which are formed as
    matrices of all pairs of tokens.

    Args:
        dim: Width of a token, ``C``.
        num_heads: Number of heads; divides ``dim``.
        loss: ``huber`` or ``hampel``.
        iterations: Of the reweighting; at least 1.
        a: First corner of the loss, a distance in feature space; Hampel's others are ``2 a`` and ``3 a``.
        form: ``released``, or ``textbook``; see `robust_weights`. In the released form more than one iteration makes an
            image depend on its batch.
        qkv_bias: Whether the first projection has a bias.

    Raises:
        BadValue: If a value is out of range, or ``num_heads`` does not divide ``dim``.

    Source:
        Han et al. 2023, arXiv:2210.05794, with Kim and Scott 2012 (KIRWLS); rachtsy/KPCA-S, Attack/models_git.py.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        loss: str = "huber",
        iterations: int = 1,
        a: float = 0.2,
        form: str = "released",
        qkv_bias: bool = True,
    ) -> None:
        super().__init__(dim, num_heads, qkv_bias=qkv_bias)
        if loss not in LOSSES:
            raise BadValue(f"loss is {loss!r}; expected one of {', '.join(LOSSES)}")
        if form not in FORMS:
            raise BadValue(f"form is {form!r}; expected one of {', '.join(FORMS)}")
        if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
            raise BadValue(f"iterations is {iterations!r}; expected a whole number of at least 1")
        if not a > 0:
            raise BadValue(f"a is {a!r}; expected a number above 0")
        self.loss, self.iterations, self.a, self.form = loss, iterations, a, form

    def attend(self, parts: tuple[Tensor, ...], before: Tensor | None = None) -> Tensor:
        """Return ``(B, H, N, d)``."""
        queries, keys, values = parts
        keys = normalize(keys, dim=-1)
        scale = keys.shape[-1] ** -0.5
        joint, marginal = (
            robust_weights(
                gram_matrix(points, scale), loss=self.loss, iterations=self.iterations, a=self.a, form=self.form
            ).to(keys.dtype)
            for points in (torch.cat([keys, values], dim=-1), keys)
        )
        return kernel_regression(queries, keys, values, joint, marginal)


def kernel_regression(
    queries: Tensor, keys: Tensor, values: Tensor, joint: Tensor | None = None, marginal: Tensor | None = None
) -> Tensor:
    """Average values by a Gaussian kernel between queries and keys: ``sum_j wj_j s_ij v_j / sum_j wm_j s_ij``.

    Args:
        queries: ``(B, H, N, d)``.
        keys: ``(B, H, M, d)``, of length 1.
        values: ``(B, H, M, d)``.
        joint: Logarithms of the weights above the line, ``(B, H, M)``; ``None`` for equal weights on both sides.
        marginal: Logarithms of the weights below the line, ``(B, H, M)``.

    Returns:
        ``(B, H, N, d)``, from one fused attention: the weights below the line are one more feature of the keys, and those
        above it, relative to them, multiply the values.
    """
    scale = 2 * keys.shape[-1] ** -0.5
    if joint is None or marginal is None:
        return scaled_dot_product_attention(queries, keys, values, scale=scale)
    queries = pad(queries * scale, (0, 1), value=1.0)
    keys = torch.cat([keys, marginal[..., None]], dim=-1)
    weighted = pad(values * (joint - marginal).exp()[..., None], (0, 1))
    return scaled_dot_product_attention(queries, keys, weighted, scale=1.0)[..., :-1]


def gram_matrix(points: Tensor, scale: float) -> Tensor:
    """Return ``exp(-scale |x_i - x_j|^2)`` of points ``(..., N, d)`` as ``(..., N, N)``, in float64."""
    points = points.double()
    squares = points.square().sum(-1)
    distances = squares[..., :, None] + squares[..., None, :] - 2 * points @ points.mT
    return torch.exp(-scale * distances.clamp_min(0))


def robust_weights(gram: Tensor, *, loss: str, iterations: int, a: float, form: str) -> Tensor:
    """Weigh points by how near each lies to the weighted mean of all in feature space.

    Args:
        gram: ``(B, H, N, N)``, float64.
        loss: ``huber`` or ``hampel``.
        iterations: Reweightings, from equal weights.
        a: First corner of the loss.
        form: ``textbook``: squared distance ``R_jj - 2 (R w)_j + w R w``, weights of each image and head. ``released``:
            as coded, squared distance ``1 + (R w)_j + w R w``, which is at least 1; between iterations weights are averaged
            over batch and heads; and beyond Hampel's last corner a weight is 0.01 instead of 0.

    Returns:
        Logarithms of weights that sum to 1, ``(B, H, N)``, float64. Where the textbook form leaves no weight at all, the
        weights are equal.
    """
    released = form == "released"
    weights = gram.new_full(gram.shape[:-1], 1 / gram.shape[-1])
    for iteration in range(iterations):
        if released and iteration:
            weights = weights.mean(dim=(0, 1), keepdim=True).expand_as(weights)
        near = (gram @ weights[..., None]).squeeze(-1)
        spread = (weights * near).sum(-1, keepdim=True)
        squared = 1 + near + spread if released else 1 - 2 * near + spread
        shares = _shares(squared.clamp_min(_SMALLEST).sqrt(), loss, a, _REDESCENDED if released else 0.0)
        total = shares.sum(-1, keepdim=True)
        weights = torch.where(total > 0, shares / total.where(total > 0, 1), 1 / gram.shape[-1])
    return weights.clamp_min(_SMALLEST).log()


def _shares(distance: Tensor, loss: str, a: float, beyond: float) -> Tensor:
    """Return the weight function of a loss, 1 near the mean."""
    tail = a / distance
    if loss == "huber":
        return torch.where(distance <= a, 1.0, tail)
    falling = a * (3 * a - distance) / (a * distance)
    shares = torch.where(distance < a, 1.0, torch.where(distance < 2 * a, tail, falling))
    return torch.where(distance >= 3 * a, beyond, shares)
