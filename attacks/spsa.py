"""SPSA: gradient descent along differences in random directions, for models whose gradient is useless or unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Proposals
from robustkpca.attacks.adam import Adam
from robustkpca.attacks.losses import best_other
from robustkpca.attacks.queries import blocks, portions
from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.errors import BadValue

Margin = Callable[[Tensor, Tensor], Tensor]
"""From queries ``(M, C, H, W)`` and whom each belongs to ``(M,)`` to margins ``(M,)``."""


@dataclass(frozen=True)
class Descent:
    """Everything that the attack holds; one row per image that still stands.

    Args:
        images: ``(N, C, H, W)``, where the budget is centred.
        labels: ``(N,)``, int64.
        draws: One stream of random numbers per image.
        points: ``(N, C, H, W)``, where the descent is.
        adam: Moments of the estimated gradient.
    """

    images: Tensor
    labels: Tensor
    draws: Draws
    points: Tensor
    adam: Adam


def spsa(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    steps: int = 20,
    samples: int = 128,
    delta: float = 0.01,
    rate: float = 0.01,
) -> Proposals:
    """Descend the margin with Adam, along a gradient estimated from pairs of queries on either side of the point.

    Args:
        model: Maps images in [0, 1] to logits ``(N, K)``; its gradient is not asked.
        images: ``(N, C, H, W)``, float32, in [0, 1].
        labels: ``(N,)``, int64, the true classes.
        budget: What may be changed, in L-infinity or L2.
        draws: One stream of random numbers per image.
        steps: Steps of Adam.
        samples: Random directions of each step, with two queries each.
        delta: How far from the point the queries lie in every pixel, in [0, 1] pixels; they never leave [0, 1].
        rate: Learning rate of Adam, in [0, 1] pixels.

    Yields:
        Candidates shaped like ``images``, in [0, 1], within ``budget`` up to rounding.

    Raises:
        BadValue: If the budget is L1, ``steps`` or ``samples`` is below 1, or ``delta`` or ``rate`` is not positive.

    Source:
        Uesato et al. 2018, arXiv:1802.05666, algorithm 1 and section 4.1; defaults of cleverhans 4 with 20 steps instead of
        10. The paper used up to 8192 queries for each of 100 steps.
    """
    _check(budget, steps, samples, delta, rate)
    state = Descent(images, labels, draws, budget.random_start(images, draws), Adam.before(images))
    for _ in range(steps):
        logits = model.logits(state.points)
        keep = yield Candidate(state.points, logits)
        state = keep(state)
        margin = _margin_of(model, state.labels)
        gradient = estimate(margin, state.points, state.draws, samples, delta, bounded=budget.bounded)
        adam = state.adam.after(gradient)
        points = budget.project(adam.descended(state.points, rate), around=state.images)
        state = replace(state, points=points, adam=adam)
    yield Candidate(state.points)


def published_spsa(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    steps: int = 10,
    samples: int = 128,
    delta: float = 0.01,
    rate: float = 0.01,
) -> Proposals:
    """SPSA, as the published evaluation called it.

    Its fault is kept. The image is added to the queries a second time, so that the gradient is estimated around twice the
    image, wherever the descent is; the attack is hardly more than random noise.

    Args:
        model: Maps normalised images to logits ``(N, K)``; its gradient is not asked.
        images: ``(N, C, H, W)``, float32, normalised.
        labels: ``(N,)``, int64, the model's predictions on ``images``.
        budget: What may be changed, in L-infinity or L2 and in normalised units.
        draws: One stream of random numbers per image.
        steps: Steps of Adam. KPCA_code has 10, the dump of March 2024 has 40.
        samples: Random directions of each step, with two queries each.
        delta: How far from twice the image the queries lie in every entry.
        rate: Learning rate of Adam, in normalised units.

    Yields:
        The final image, shaped like ``images``.

    Raises:
        BadValue: If the budget is L1, ``steps`` or ``samples`` is below 1, or ``delta`` or ``rate`` is not positive.

    Source:
        cleverhans 4, ``spsa``, as called by KPCA_code Attack/engine.py with a radius of 0.1.
    """
    _check(budget, steps, samples, delta, rate)
    change = budget.length * (2 * draws.uniform(images.shape[1:], images) - 1)
    change, adam = _confined(change, images, budget), Adam.before(images)
    margin = _margin_of(model, labels)
    for _ in range(steps):
        adam = adam.after(estimate(margin, images + images, draws, samples, delta))
        change = _confined(adam.descended(change, rate), images, budget)
    yield Candidate((images + change).clamp(0, 1) if budget.bounded else images + change)


def estimate(
    margin: Margin, points: Tensor, draws: Draws, samples: int, delta: float, *, bounded: bool = False
) -> Tensor:
    """Return an estimate of the gradient of the margin, shaped like ``points``.

    Args:
        margin: What is asked of the queries.
        points: ``(N, C, H, W)``.
        draws: One stream per point; a few calls further afterwards.
        samples: Random directions, each with entries of -1 and +1.
        delta: Distance of the queries in every entry.
        bounded: Whether queries are clipped to [0, 1].

    Source:
        Spall 1992, "Multivariate stochastic approximation using a simultaneous perturbation gradient approximation",
        equation 2.2.
    """
    shape, size = points.shape[1:], points[0].numel() if len(points) else 1
    gradient, turns = torch.zeros_like(points), portions(samples, size)
    mine = draws
    for rows in blocks(len(points), 2 * max(turns) * size, points.device):
        mine, part = draws.narrow(rows), points[rows].unsqueeze(1)
        for count in turns:
            signs = mine.signs((count, *shape), points)
            queries = torch.stack([part + delta * signs, part - delta * signs], dim=1)
            queries = (queries.clamp(0, 1) if bounded else queries).flatten(0, 2)
            values = margin(queries, rows.repeat_interleave(2 * count)).view(len(rows), 2, count)
            slopes = (values[:, 0] - values[:, 1]) / (2 * delta * samples)
            gradient[rows] += (slopes.view(*slopes.shape, *[1] * len(shape)) * signs).sum(1)
    draws.calls = mine.calls
    return gradient


def _margin_of(model: Classifier, labels: Tensor) -> Margin:
    def margin(queries: Tensor, rows: Tensor) -> Tensor:
        logits, own = model.logits(queries, rows=rows), labels[rows]
        return logits.gather(1, own.unsqueeze(1)).squeeze(1) - best_other(logits, own)

    return margin


def _confined(change: Tensor, images: Tensor, budget: Budget) -> Tensor:
    """Return the change as the reference confines it: shrunk as a whole in L2, then so that the sum lies in the box."""
    if budget.norm is Norm.LINF:
        change = change.clamp(-budget.length, budget.length)
    else:
        size = change.flatten(1).square().sum(1).clamp_min(1e-12).sqrt().view(-1, *[1] * (change.ndim - 1))
        change = change * (budget.length / size).clamp_max(1)
    moved = images + change
    return (moved.clamp(0, 1) if budget.bounded else moved) - images


def _check(budget: Budget, steps: int, samples: int, delta: float, rate: float) -> None:
    if budget.norm is Norm.L1:
        raise BadValue(f"spsa: the budget must be linf or l2, got {budget.norm.value}; write 'spsa@linf:8/255'")
    if steps < 1 or samples < 1:
        raise BadValue(f"spsa: steps and samples must be at least 1, got {steps} and {samples}")
    if not delta > 0 or not rate > 0:
        raise BadValue(f"spsa: delta and rate must be positive, got {delta} and {rate}")
