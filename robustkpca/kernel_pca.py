"""What kernel PCA says of queries, keys and values of attention heads: the measures behind ``diagnose``, as pure functions.

With ``k(x, y) = exp(x y / sqrt(d))`` and ``g(x) = sum_j k(x, k_j)`` the feature map is ``phi(x) = varphi(x) / g(x)``, and the
output ``h`` of a head is read as the projection of ``phi(q)`` onto principal axes. Everything is ``(..., N, d)`` in float64.

Source:
    Teo and Nguyen 2024, arXiv:2406.13762; Saritas et al. 2025, arXiv:2505.07908 (reproduction study), whose measures of
    alignment and corrected form of the error these are.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from robustkpca.models.pursuit import Pursuit, passes

_RANK_TOLERANCE = 1e-2  # singular values below this share of the largest do not count


def standardised(vectors: Tensor) -> Tensor:
    """Return ``(x - mean) / deviation`` over the features of each token, unbiased and without a safeguard, as published."""
    return (vectors - vectors.mean(-1, keepdim=True)) / vectors.std(-1, keepdim=True)


def attended(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return ``softmax(Q K^T / sqrt(d)) V``."""
    return torch.softmax(_logits(queries, keys), -1) @ values


def squared_feature_norm(queries: Tensor, keys: Tensor) -> Tensor:
    """Return ``|phi(q_i)|^2``, ``(..., N)``: ``k(q, q) / g(q)^2``."""
    own = queries.square().sum(-1) * queries.shape[-1] ** -0.5
    return torch.exp(own - 2 * _logits(queries, keys).logsumexp(-1))


def reconstruction_error(queries: Tensor, keys: Tensor, values: Tensor) -> dict[str, Tensor]:
    """Return the error of reading heads as projections, with what it is made of.

    Args:
        queries: ``(..., N, d)``.
        keys: ``(..., N, d)``.
        values: ``(..., N, d)``.

    Returns:
        ``(...)`` each: ``phi``, the mean of ``|phi(q)|^2``; ``h``, that of ``|h|^2``; ``error``, the mean of the absolute
        difference; ``published``, the mean that the released code takes the logarithm of, whose exponents lack the
        scale and which is not absolute.
    """
    outputs = attended(queries, keys, values)
    phi, h = squared_feature_norm(queries, keys), outputs.square().sum(-1)
    first = (queries @ keys[..., :1, :].mT).squeeze(-1) - torch.log_softmax(_logits(queries, keys), -1)[..., 0]
    unscaled = torch.exp(queries.square().sum(-1) - 2 * first)
    return {
        "phi": phi.mean(-1),
        "h": h.mean(-1),
        "error": (phi - h).abs().mean(-1),
        "published": (unscaled - h).mean(-1),
    }


def centred_gram(keys: Tensor) -> Tensor:
    """Return the centred Gram matrix of ``phi(k_j)``, ``(..., N, N)``."""
    logits = _logits(keys, keys)
    sums = logits.logsumexp(-1)
    gram = torch.exp(logits - sums[..., :, None] - sums[..., None, :])
    return gram - gram.mean(-1, keepdim=True) - gram.mean(-2, keepdim=True) + gram.mean((-2, -1), keepdim=True)


def eigenvectors(gram: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` eigenvalues of largest magnitude ``(..., count)`` and their vectors ``(..., N, count)``."""
    values, vectors = torch.linalg.eigh(gram)
    order = values.abs().argsort(-1, descending=True)[..., :count]
    return values.gather(-1, order), vectors.gather(-1, order[..., None, :].expand(*vectors.shape[:-1], -1))


def gamma_differences(gram: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return how far ``gamma = (Kc a) / (N a)`` is from constant: a constant says that ``a`` is an eigenvector.

    Args:
        gram: ``(..., N, N)``.
        vectors: ``(..., N, D)``, one axis ``a`` a column.

    Returns:
        ``(...)`` each, medians over the axes: the mean of ``|gamma_i - gamma_j|`` over pairs, and the same with each
        difference divided by the larger of the two magnitudes. The first is near zero for any vector, because the
        eigenvalues are; only the second tells them apart.
    """
    gamma = ((gram @ vectors) / (gram.shape[-1] * vectors)).mT  # (..., D, N)
    differences = (gamma[..., :, None] - gamma[..., None, :]).abs()
    largest = torch.maximum(gamma.abs()[..., :, None], gamma.abs()[..., None, :])
    relative = differences / largest.clamp_min(torch.finfo(gamma.dtype).tiny)
    return differences.mean((-2, -1)).median(-1).values, relative.mean((-2, -1)).median(-1).values


def axes_of_values(keys: Tensor, values: Tensor) -> Tensor:
    """Return the axes that would give these values, ``a_j = g(k_j) v_j``, of mean zero and length 1.

    How the paper recovers them is not on record; this is one consistent choice. The common scale of ``g`` drops out.
    """
    sums = _logits(keys, keys).logsumexp(-1, keepdim=True)
    axes = values * torch.exp(sums - sums.amax(-2, keepdim=True))
    axes = axes - axes.mean(-2, keepdim=True)
    lengths = axes.norm(dim=-2, keepdim=True).clamp_min(torch.finfo(axes.dtype).tiny)
    unit: Tensor = axes / lengths
    return unit


def values_of_axes(keys: Tensor, axes: Tensor) -> Tensor:
    """Return the values that kernel PCA asks for, ``G A - G 1 A`` with ``G = diag(1 / g(k_j))``, up to a common factor."""
    sums = _logits(keys, keys).logsumexp(-1, keepdim=True)
    values: Tensor = torch.exp(sums.amin(-2, keepdim=True) - sums) * (axes - axes.mean(-2, keepdim=True))
    return values


def alignment(one: Tensor, other: Tensor) -> dict[str, float]:
    """Compare two sets of token vectors ``(N, d)``.

    Returns:
        ``cosine``, token by token; ``optimal_cosine``, after the matching of tokens that makes it largest; ``linear_cka``
        and ``kernel_cka``, with a Gaussian kernel whose squared width is the median of the non-zero squared distances.
    """
    cosines = torch.nn.functional.normalize(one, dim=-1) @ torch.nn.functional.normalize(other, dim=-1).mT
    rows, columns = linear_sum_assignment(-cosines.numpy())
    return {
        "cosine": cosines.diagonal().mean().item(),
        "optimal_cosine": cosines[rows, columns].mean().item(),
        "linear_cka": _cka(one @ one.mT, other @ other.mT),
        "kernel_cka": _cka(_gaussian(one), _gaussian(other)),
    }


def pursuit_passes(keys: Tensor, values: Tensor, pursuit: Pursuit) -> Iterator[dict[str, Tensor]]:
    """Yield, after each pass of a pursuit, how far ``L + S`` is from ``K``.

    Yields:
        ``(...)`` each: ``residual``, ``|K - L - S| / |K|``; ``sparsity``, the share of ``S`` that is zero; ``rank``, the
        number of singular values of ``L`` above a hundredth of the largest.
    """
    for state in passes(keys, values, pursuit):
        rest = (state.keys - state.low_rank - state.sparse).norm(dim=(-2, -1))
        singular = torch.linalg.svdvals(state.low_rank)
        yield {
            "residual": rest / state.keys.norm(dim=(-2, -1)),
            "sparsity": (state.sparse == 0).double().mean((-2, -1)),
            "rank": (singular > _RANK_TOLERANCE * singular[..., :1]).double().sum(-1),
        }


def _logits(queries: Tensor, keys: Tensor) -> Tensor:
    logits: Tensor = queries @ keys.mT * queries.shape[-1] ** -0.5
    return logits


def _gaussian(points: Tensor) -> Tensor:
    squares = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").square()
    positive = squares[squares > 0]
    width = positive.median() if positive.numel() else squares.new_ones(())
    return torch.exp(-squares / (2 * width))


def _cka(one: Tensor, other: Tensor) -> float:
    one, other = (m - m.mean(0) - m.mean(1, keepdim=True) + m.mean() for m in (one, other))
    norms = one.norm() * other.norm()
    return ((one * other).sum() / norms).item() if norms > 0 else 0.0
