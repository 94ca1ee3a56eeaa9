"""Sparse L1 descent: steps that change a small share of the pixels, all by the same amount."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Proposals, cross_entropy
from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.errors import BadValue


@dataclass(frozen=True)
class Descent:
    """Everything that the attack holds; one row per image that still stands.

    Args:
        images: ``(N, C, H, W)``, where the budget is centred.
        labels: ``(N,)``, int64.
        points: ``(N, C, H, W)``, where the descent is.
    """

    images: Tensor
    labels: Tensor
    points: Tensor


def sld(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    steps: int = 20,
    relative_step: float = 0.1,
    sparsity: float = 99.0,
    random_start: bool = False,
) -> Proposals:
    """Sparse L1 descent: ascend the cross-entropy within an L1 ball along the few largest entries of the gradient.

    Args:
        model: Maps images in [0, 1] to logits ``(N, K)``; it normalises inside.
        images: ``(N, C, H, W)``, float32, in [0, 1].
        labels: ``(N,)``, int64, the true classes.
        budget: What may be changed, in L1.
        draws: One stream of random numbers per image.
        steps: Gradient steps.
        relative_step: L1 length of one step, as a fraction of the radius.
        sparsity: Percentage of the entries that a step leaves alone.
        random_start: Whether to start at a random point of the budget instead of the image.

    Yields:
        Candidates shaped like ``images``, in [0, 1], within ``budget`` up to rounding.

    Raises:
        BadValue: If the budget is not L1, ``steps`` is below 1, ``relative_step`` is not positive, or ``sparsity`` does not
            lie between 0 and 100.

    Source:
        Tramer and Boneh 2019, arXiv:1904.13000, algorithm 1 in the appendix; defaults of cleverhans 4, whose step of 1 is a
        tenth of its radius of 10. Deliberate differences: every point is proposed; the projection is the nearest allowed
        image instead of a shrunken change; entries that the box blocks are no part of the gradient.
    """
    _check(budget, steps, sparsity)
    if not relative_step > 0:
        raise BadValue(f"sld: relative_step must be positive, got {relative_step}")
    state = Descent(images, labels, budget.random_start(images, draws) if random_start else images)
    for _ in range(steps):
        logits, gradient = model.value_and_gradient(state.points, cross_entropy(state.labels))
        keep = yield Candidate(state.points, logits)
        state, gradient = keep(state, gradient)
        if budget.bounded:
            gradient = unblocked(gradient, state.points)
        ahead = state.points + relative_step * budget.length * sparse_step(gradient, sparsity)
        state = replace(state, points=budget.project(ahead, around=state.images))
    yield Candidate(state.points)


def published_sld(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    steps: int = 20,
    step: float = 1.0,
    sparsity: float = 99.0,
    skip_blocked: bool = False,
) -> Proposals:
    """Sparse L1 descent, as the published evaluation called it (there with a radius of 10).

    A change that has grown too long is shrunk as a whole, which is no projection onto the L1 ball.

    Args:
        model: Maps normalised images to logits ``(N, K)``.
        images: ``(N, C, H, W)``, float32, normalised.
        labels: ``(N,)``, int64, the model's predictions on ``images``.
        budget: What may be changed, in L1 and in normalised units.
        draws: Not used; the attack is deterministic.
        steps: Gradient steps.
        step: L1 length of one step, in normalised units; at most the radius.
        sparsity: Percentage of the entries that a step leaves alone.
        skip_blocked: Whether entries that the box blocks are no part of the gradient; needs a bounded budget.

    Yields:
        The final image, shaped like ``images``.

    Raises:
        BadValue: If the budget is not L1, ``steps`` is below 1, ``step`` is not positive or longer than the radius, or
            ``sparsity`` does not lie between 0 and 100.

    Source:
        cleverhans 4, ``sparse_l1_descent`` without random start, as called by KPCA_code Attack/engine.py. Deliberate
        difference: the final change is shrunk by what float32 sums of many entries are wrong by (1e-5 of it for a photo).
    """
    _check(budget, steps, sparsity)
    if not 0 < step <= budget.length:
        raise BadValue(f"sld: step must be positive and at most the radius {budget.length:g}, got {step}")
    if skip_blocked and not budget.bounded:
        raise BadValue("sld: skip_blocked needs images bounded by [0, 1]; the published protocol has no bounds")
    points = images
    for _ in range(steps):
        _, gradient = model.value_and_gradient(points, cross_entropy(labels))
        if skip_blocked:
            gradient = unblocked(gradient, points)
        points = points + sparse_step(gradient, sparsity, as_released=True) * step
        points = points.clamp(0, 1) if budget.bounded else points
        points = images + (points - images).renorm(p=1, dim=0, maxnorm=budget.length)
        points = points.clamp(0, 1) if budget.bounded else points
    yield Candidate(_pulled_in(points, images, budget))


def sparse_step(gradient: Tensor, sparsity: float, *, as_released: bool = False) -> Tensor:
    """Return a step of L1 length one that is shared equally among the largest entries of the gradient.

    Args:
        gradient: ``(N, ...)``.
        sparsity: Percentage of the ``n`` entries that are left alone, rounded down, so that at least one is changed. Ties
            share the step; entries of exactly zero get nothing.
        as_released: As cleverhans has it: one entry more, the ``floor(sparsity / 100 * n)``-th smallest itself; and entries
            of exactly zero get a share, which is lost.
    """
    flat = gradient.flatten(1)
    size = flat.abs()
    rank = int(sparsity / 100 * flat.shape[1])
    rank = max(rank, 1) if as_released else min(rank + 1, flat.shape[1])
    chosen = size >= size.kthvalue(rank, dim=1, keepdim=True).values
    if not as_released:
        chosen &= size > 0
    shares = chosen.to(flat.dtype)
    return (flat.sign() * shares / shares.sum(1, keepdim=True).clamp_min(1)).view_as(gradient)


def unblocked(gradient: Tensor, points: Tensor) -> Tensor:
    """Return the gradient without the entries that would leave [0, 1] from a pixel of exactly 0 or 1."""
    blocked = ((points <= 0) & (gradient <= 0)) | ((points >= 1) & (gradient >= 0))
    return torch.where(blocked, 0, gradient)


def _pulled_in(points: Tensor, images: Tensor, budget: Budget) -> Tensor:
    """Return points that lie outside the ball by rounding, moved into it."""
    size = budget.distance(points, images).clamp_min(torch.finfo(points.dtype).tiny)
    shrink = (budget.length / size).clamp_max(1).view(-1, *[1] * (points.ndim - 1))
    change = (points - images) * shrink
    moved = images + change
    outwards = (moved - images).abs() > change.abs()
    return moved.where(~outwards, moved.nextafter(images))


def _check(budget: Budget, steps: int, sparsity: float) -> None:
    if budget.norm is not Norm.L1:
        raise BadValue(f"sld: the budget must be l1, got {budget.norm.value}; write 'sld@l1:10'")
    if steps < 1 or not 0 < sparsity < 100:
        raise BadValue(f"sld: steps must be at least 1 and sparsity between 0 and 100, got {steps} and {sparsity}")
