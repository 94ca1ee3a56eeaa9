"""The step of cleverhans, which the ``published`` protocol takes bug for bug."""

from __future__ import annotations

from torch import Tensor

from robustkpca.budget import Budget, Norm
from robustkpca.errors import BadValue


def linear_step(budget: Budget, gradient: Tensor, averaged_over: int) -> Tensor:
    """Return the change of size one that cleverhans derives from a gradient.

    It differs from `Budget.steepest` in L2 alone, where a gradient with a norm below 1e-6 gives a shorter step. Since
    cleverhans averages its loss over the batch, how short depends on the size of the batch.

    Args:
        budget: Its norm counts.
        gradient: ``(N, ...)`` of each image's own loss.
        averaged_over: Number of images that cleverhans had in a batch.

    Raises:
        BadValue: If ``averaged_over`` is below 1.

    Source:
        cleverhans 4, ``optimize_linear``, with its ``avoid_zero_div`` of 1e-12.
    """
    if averaged_over < 1:
        raise BadValue(f"averaged_over must be at least 1, got {averaged_over}")
    gradient = gradient / averaged_over
    if budget.norm is not Norm.L2:
        return budget.steepest(gradient)
    square = gradient.flatten(1).square().sum(1).clamp_min(1e-12)
    return gradient / square.sqrt().view(-1, *[1] * (gradient.ndim - 1))
