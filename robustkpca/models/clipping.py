"""The elementwise half of one pursuit pass, written so that its backward pass keeps a single tensor.

With ``C = Z - S``, what shrinking leaves of ``Z``, a pursuit is a recurrence in ``C`` and ``L`` alone. From the rules
``Z = K - L + D``, ``K2 = K - S - D`` and ``D' = D + K - L' - S`` with ``D = Y/mu`` follows ``D' = L - L' + C``, so that

    C' = clip(K - 2 L' + L + C)        K2' = C' + 3 L' - 2 (L + C)

where clipping is to the threshold on both sides. Written out instead, one pass keeps about ten tensors of that size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Clip(torch.autograd.Function):
    """Clip a tensor to ``[-level, level]``; the first pass of a pursuit."""

    generate_vmap_rule = True

    @staticmethod
    def forward(keys: Tensor, level: Tensor) -> Tensor:
        """Return ``keys`` clipped; ``level`` is broadcastable and not negative."""
        return torch.maximum(torch.minimum(keys, level), -level)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep what was clipped."""
        ctx.save_for_backward(output, inputs[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Pass the gradient on where nothing was clipped; the rest is that of the level."""
        clipped, level = ctx.saved_tensors
        passed = _where_free(clipped, level, gradient)
        return passed, _of_level(clipped, level, gradient, passed)


class Step(torch.autograd.Function):
    """One later pass: from ``K``, ``L'``, ``L``, ``C`` and the level to ``C'`` and ``K2'``, see the module."""

    generate_vmap_rule = True

    @staticmethod
    def forward(keys: Tensor, latest: Tensor, before: Tensor, kept: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``C'`` and ``K2'``, shaped like ``keys``; ``before`` may be a zero that broadcasts."""
        known = before + kept
        clipped = torch.add(keys, latest, alpha=-2).add_(known)
        clipped = torch.maximum(torch.minimum(clipped, level), -level)
        return clipped, torch.add(clipped, latest, alpha=3).sub_(known, alpha=2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what was clipped."""
        ctx.save_for_backward(output[0], inputs[4])
        ctx.first = inputs[2].ndim == 0

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_clipped: Tensor, of_cleaned: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all five inputs."""
        clipped, level = ctx.saved_tensors
        gradient = of_clipped + of_cleaned
        passed = _where_free(clipped, level, gradient)
        of_level = _of_level(clipped, level, gradient, passed)
        of_latest = torch.mul(of_cleaned, 3).sub_(passed, alpha=2)
        of_known = torch.sub(passed, of_cleaned, alpha=2)
        return passed, of_latest, None if ctx.first else of_known, of_known, of_level


def _where_free(clipped: Tensor, level: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of what was clipped: zero outside the level."""
    return torch.where(clipped.abs() < level, gradient, 0)


def _of_level(clipped: Tensor, level: Tensor, gradient: Tensor, passed: Tensor) -> Tensor:
    """Return the gradient of the level, one number for each image and head."""
    return ((gradient - passed) * clipped.sign()).sum(dim=(-2, -1), keepdim=True)
