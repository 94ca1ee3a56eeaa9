"""Projected gradient descent."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Keep, Proposals, cross_entropy
from robustkpca.attacks.cleverhans import linear_step
from robustkpca.budget import Budget
from robustkpca.draws import Draws
from robustkpca.errors import BadValue


def pgd(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    steps: int = 20,
    relative_step: float = 0.15,
    restarts: int = 1,
    random_start: bool = True,
) -> Proposals:
    """Projected gradient descent from a random start.

    Args:
        model: Maps images in [0, 1] to logits ``(N, K)``; it normalises inside.
        images: ``(N, C, H, W)``, float32, in [0, 1].
        labels: ``(N,)``, int64, the true classes.
        budget: What may be changed.
        draws: One stream of random numbers per image, so a result does not depend on its batch.
        steps: Gradient steps of each restart.
        relative_step: Length of one step, as a fraction of the radius.
        restarts: How many independent starts are tried on what still stands.
        random_start: Whether to start at a random point of the budget instead of the image.

    Yields:
        Candidates shaped like ``images``, in [0, 1], within ``budget`` up to rounding.

    Raises:
        BadValue: If ``steps`` or ``restarts`` is below 1, or ``relative_step`` is not positive.

    Source:
        Madry et al. 2018, arXiv:1706.06083, section 2.1. Step size and count as in the KPCA-attention evaluation. The
        start is uniform in the ball of the norm; every iterate is proposed, not only the last.
    """
    if restarts < 1:
        raise BadValue(f"pgd: restarts must be at least 1, got {restarts}")
    for _ in range(restarts):
        start = budget.random_start(images, draws) if random_start else images
        images, labels, draws = yield from _climb(
            model, start, images, labels, budget, draws, steps, relative_step, budget.steepest
        )


def published_pgd(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    steps: int = 20,
    relative_step: float = 0.15,
    random_start: bool = True,
    averaged_over: int = 72,
) -> Proposals:
    """Projected gradient descent as the published evaluation called it.

    The steps are those of `pgd`. The start is uniform in the cube of half side ``radius`` whatever the norm, then moved into
    the ball. The ``published`` protocol hands in normalised images, a budget without [0, 1] and the model's own predictions
    as labels, and looks at the last iterate alone.

    Args:
        model: Maps normalised images to logits ``(N, K)``.
        images: ``(N, C, H, W)``, float32, normalised.
        labels: ``(N,)``, int64, the model's predictions on ``images``.
        budget: What may be changed, in normalised units.
        draws: One stream of random numbers per image.
        steps: Gradient steps.
        relative_step: Length of one step, as a fraction of the radius.
        random_start: Whether to start at a random point instead of the image.
        averaged_over: Images of a batch in the reference; matters in L2 alone, see `linear_step`.

    Yields:
        Candidates shaped like ``images``.

    Raises:
        BadValue: If ``steps`` or ``averaged_over`` is below 1, or ``relative_step`` is not positive.

    Source:
        cleverhans 4, ``projected_gradient_descent``, as called by KPCA_code Attack/engine.py with batches of 72.
    """
    start = images
    if random_start:
        cube = 2 * draws.uniform(images.shape[1:], images) - 1
        start = budget.project(images + budget.length * cube, around=images)
    direction = partial(linear_step, budget, averaged_over=averaged_over)
    yield from _climb(model, start, images, labels, budget, draws, steps, relative_step, direction)


def _climb(
    model: Classifier,
    candidate: Tensor,
    images: Tensor,
    labels: Tensor,
    budget: Budget,
    draws: Draws,
    steps: int,
    relative_step: float,
    direction: Callable[[Tensor], Tensor],
) -> Generator[Candidate, Keep, tuple[Tensor, Tensor, Draws]]:
    """Ascend the cross-entropy from ``candidate``; return the images, labels and streams that still stand."""
    if steps < 1 or not relative_step > 0:
        raise BadValue(f"pgd: steps must be at least 1 and relative_step positive, got {steps} and {relative_step}")
    step = relative_step * budget.length
    for _ in range(steps):
        logits, gradient = model.value_and_gradient(candidate, cross_entropy(labels))
        keep = yield Candidate(candidate, logits)
        candidate, gradient, images, labels, draws = keep(candidate, gradient, images, labels, draws)
        candidate = budget.project(candidate + step * direction(gradient), around=images)
    keep = yield Candidate(candidate)
    images, labels, draws = keep(images, labels, draws)
    return images, labels, draws
