"""The least value of a strictly convex quadratic on the simplex, exactly, by an active set."""

from __future__ import annotations

import torch
from torch import Tensor

_TOLERANCE = 1e-12
_RIDGE = 1e-10  # added to the diagonal, so that two equal points leave the minimiser unique


def simplex_minimiser(matrix: Tensor, vector: Tensor) -> Tensor:
    """Return the ``w`` with ``w >= 0`` and ``sum(w) = 1`` that minimises ``w G w / 2 - b w``.

    Args:
        matrix: ``G``, ``(..., N, N)``, symmetric and positive semidefinite, float64; 1e-10 is added to its diagonal.
        vector: ``b``, ``(..., N)``, float64.

    Returns:
        ``(..., N)``, float64, without gradient. Entries outside the support are exactly zero.

    Source:
        A primal active-set method (Nocedal and Wright 2006, section 16.5): from the centre with all variables free, walk
        to the minimum on the free ones, fix what becomes zero on the way, and free the one whose multiplier is most
        negative, until none is.
    """
    size = vector.shape[-1]
    flat_matrix, flat_vector = matrix.detach().reshape(-1, size, size).cpu(), vector.detach().reshape(-1, size).cpu()
    solved = [_minimiser(one, of) for one, of in zip(flat_matrix, flat_vector, strict=True)]
    return torch.stack(solved).reshape(vector.shape).to(vector.device)


def _minimiser(matrix: Tensor, vector: Tensor) -> Tensor:
    matrix = matrix + _RIDGE * torch.eye(len(vector), dtype=matrix.dtype)
    weights = torch.full_like(vector, 1 / len(vector))
    free = torch.ones_like(vector, dtype=torch.bool)
    scale = float(vector.abs().max()) + float(matrix.abs().max())
    for _ in range(20 * len(vector)):
        target = _on_support(matrix, vector, free)
        shrinking = free & (target < 0)
        if bool(shrinking.any()):
            ratios = torch.where(shrinking, weights / (weights - target), torch.inf)
            step = ratios.min()
            weights = weights + step * (target - weights)
            blocking = ratios <= step
            weights[blocking] = 0.0
            free &= ~blocking
            continue
        weights = target
        slope = matrix @ weights - vector
        multiplier = slope - (weights * slope).sum()
        multiplier[free] = 0.0
        worst = int(multiplier.argmin())
        if float(multiplier[worst]) >= -_TOLERANCE * scale:
            break
        free[worst] = True
    return weights


def _on_support(matrix: Tensor, vector: Tensor, free: Tensor) -> Tensor:
    """Return the minimiser with sum 1 among those that are zero outside ``free``, whatever their signs."""
    (places,) = free.nonzero(as_tuple=True)
    factor = torch.linalg.cholesky(matrix[places][:, places])
    sides = torch.stack([vector[places], torch.ones_like(vector[places])], dim=1)
    plain, ones = torch.cholesky_solve(sides, factor).unbind(1)
    target = torch.zeros_like(vector)
    target[places] = plain + ones * (1 - plain.sum()) / ones.sum()
    return target
