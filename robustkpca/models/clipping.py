"""The elementwise half of one pursuit pass, written so that its backward pass keeps a single tensor.

With ``C = Z - S``, what shrinking leaves of ``Z``, a pursuit is a recurrence in ``C`` and ``L`` alone. From the rules
``Z = K - L + D``, ``K2 = K - S - D`` and ``D' = D + K - L' - S`` with ``D = Y/mu`` follows ``D' = L - L' + C``, so that

    C' = clip(K - 2 L' + L + C)        K2' = C' + 3 L' - 2 (L + C)

where clipping is to the threshold on both sides. Written out instead, one pass keeps about ten tensors of that size. The
attention over ``K2'`` would keep it too; `rebuilding` makes it anew, from the same numbers in the same order, when the
backward pass asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def cleaned_keys(clipped: Tensor, latest: Tensor, before: Tensor, kept: Tensor) -> Tensor:
    """Return ``K2'``, the keys that attend to each other in a pass; see the module.

    Args:
        clipped: ``C'``, ``(B, H, N, d)`` as all others.
        latest: ``L'``.
        before: ``L``, or a zero that broadcasts.
        kept: ``C``.
    """
    return torch.add(clipped, latest, alpha=3).sub_(before + kept, alpha=2)


@contextmanager
def rebuilding(tensor: Tensor, rebuild: Callable[[], Tensor]) -> Iterator[None]:
    """Keep no copy of a tensor for the backward pass of what is computed inside, but make it anew when it is needed.

    Args:
        tensor: What operations inside would keep.
        rebuild: Returns the same numbers; called once in a backward pass.
    """
    if not torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():  # which allow no such hooks
        yield
        return
    held: list[Tensor] = []
    address, shape = (
        tensor.data_ptr(),
        tensor.shape,
    )  # the hooks live as long as the graph, and must not hold the tensor

    def pack(saved: Tensor) -> Tensor | None:
        return None if saved.data_ptr() == address and saved.shape == shape else saved

    def unpack(saved: Tensor | None) -> Tensor:
        if saved is not None:
            return saved
        if held:  # queries and keys are one tensor
            return held.pop()
        with torch.no_grad():
            held.append(rebuild())
        return held[0]

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


class Clip(torch.autograd.Function):
    """Clip a tensor to ``[-level, level]``; the first pass of a pursuit."""

    generate_vmap_rule = True

    @staticmethod
    def forward(keys: Tensor, level: Tensor) -> Tensor:
        """Return ``keys`` clipped; ``level`` is broadcastable and not negative."""
        return torch.clamp(keys, -level, level)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep what was clipped."""
        ctx.save_for_backward(output, inputs[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Pass the gradient on where nothing was clipped; the rest is that of the level."""
        clipped, level = ctx.saved_tensors
        passed, of_level = _parted(clipped, level, gradient, own=False)
        return passed, of_level


class Step(torch.autograd.Function):
    """One later pass: from ``K``, ``L'``, ``L``, ``C`` and the level to ``C'`` and ``K2'``, see the module."""

    generate_vmap_rule = True

    @staticmethod
    def forward(keys: Tensor, latest: Tensor, before: Tensor, kept: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``C'`` and ``K2'``, shaped like ``keys``; ``before`` may be a zero that broadcasts."""
        clipped = torch.add(keys, latest, alpha=-2).add_(before + kept).clamp_(-level, level)
        return clipped, cleaned_keys(clipped, latest, before, kept)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what was clipped."""
        ctx.save_for_backward(output[0], inputs[4])
        ctx.first = inputs[2].ndim == 0
        ctx.set_materialize_grads(False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_clipped: Tensor | None, of_cleaned: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of all five inputs."""
        clipped, level = ctx.saved_tensors
        if of_cleaned is None:
            of_cleaned = torch.zeros_like(clipped)
        gradient = of_cleaned if of_clipped is None else of_clipped + of_cleaned
        passed, of_level = _parted(clipped, level, gradient, own=of_clipped is not None)
        of_latest = torch.mul(of_cleaned, 3).sub_(passed, alpha=2)
        of_known = torch.sub(passed, of_cleaned, alpha=2)
        return passed, of_latest, None if ctx.first else of_known, of_known, of_level


def _parted(clipped: Tensor, level: Tensor, gradient: Tensor, *, own: bool) -> tuple[Tensor, Tensor]:
    """Part a gradient into that of what was clipped, zero outside the level, and that of the level.

    Args:
        clipped: What came out; outside the level it is exactly the level, with a sign.
        level: One number for each image and head.
        gradient: Of what came out.
        own: Whether ``gradient`` may be overwritten.
    """
    free = (clipped < level).logical_and_(clipped > -level)
    passed = torch.where(free, gradient, 0)
    outside = gradient.sub_(passed) if own else gradient - passed
    return passed, outside.mul_(clipped.sign()).sum(dim=(-2, -1), keepdim=True)
