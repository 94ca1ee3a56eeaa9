"""Walks along the decision boundary, side by side; what FAB is made of."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Keep, Loss
from robustkpca.attacks.fab_projections import dual_size, smallest_change
from robustkpca.attacks.targets import other_classes, picked, tiled, together, untiled
from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.errors import BadValue


@dataclass(frozen=True)
class Options:
    """What the attacks of this file have in common; see `fab`."""

    steps: int
    restarts: int
    alpha_max: float
    eta: float
    beta: float

    def __post_init__(self) -> None:
        for name in ("steps", "restarts"):
            if getattr(self, name) < 1:
                raise BadValue(f"fab: {name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.alpha_max <= 1 or not 0 < self.beta <= 1 or not self.eta >= 1:
            raise BadValue(
                "fab: expected alpha_max from 0 to 1, beta above 0 and at most 1, eta at least 1, "
                f"got {self.alpha_max}, {self.beta} and {self.eta}"
            )


@dataclass(frozen=True)
class Standing:
    """What is known of the images that still stand; one row each.

    Args:
        images: ``(N, C, H, W)``.
        labels: ``(N,)``, int64, the true classes.
        draws: One stream per image.
        clean: ``(N, K)``, logits of ``images``.
        others: ``(N, M)``, int64, classes to walk to, from the most likely on.
        closest: ``(N,)``, size of the smallest harmful change found; infinite before there is one.
    """

    images: Tensor
    labels: Tensor
    draws: Draws
    clean: Tensor
    others: Tensor
    closest: Tensor


@dataclass(frozen=True)
class Walk:
    """Several walks from every image, side by side.

    Args:
        standing: What the walks have in common.
        goals: ``(N, T, G)``, int64; walk T heads for the nearest of these classes.
        points: ``(N, T, C, H, W)``, where the walks are.
    """

    standing: Standing
    goals: Tensor
    points: Tensor


def known(model: Classifier, images: Tensor, labels: Tensor, draws: Draws, *, count: int | None) -> Standing:
    """Return what is known before the first step.

    Args:
        model: Maps images to logits.
        images: ``(N, C, H, W)``, in [0, 1].
        labels: ``(N,)``, int64, the true classes.
        draws: One stream of random numbers per image.
        count: Number of classes to walk to; ``None`` for all others.
    """
    clean = model.logits(images)
    others = other_classes(clean, labels, clean.shape[1] if count is None else count)
    return Standing(images, labels, draws, clean, others, torch.full_like(clean[:, 0], torch.inf))


def walks(
    model: Classifier, standing: Standing, goals: Tensor, budget: Budget, options: Options, *, random_start: bool
) -> Generator[Candidate, Keep, Standing]:
    """Take the steps of one restart; return what is known of the images that still stand.

    Args:
        model: Maps images to logits.
        standing: What is known of the images.
        goals: ``(N, M)``, int64, the classes that each image walks to.
        budget: What may be changed.
        options: See `fab`.
        random_start: Whether to start at random points instead of the images.
    """
    count = goals.shape[1]
    points = standing.images.unsqueeze(1).expand(-1, count, *standing.images.shape[1:])
    if random_start:
        points = _random_points(standing, count, budget)
    walk = Walk(standing, goals, points)
    for _ in range(options.steps):
        gaps, normals = _nearest_hyperplane(model, walk, budget.norm)
        walk = replace(walk, points=_stepped(walk, gaps, normals, budget.norm, options))
        labels = walk.standing.labels
        logits = untiled(model.logits(tiled(walk.points)), count)
        changes = walk.points - walk.standing.images.unsqueeze(1)
        sizes = _size(changes.flatten(2), budget.norm)
        harmful = logits.argmax(2) != labels.unsqueeze(1)
        sizes = torch.where(harmful, sizes, torch.inf)
        candidate = _proposal(walk, logits, sizes, budget)
        back = walk.standing.images.unsqueeze(1) + options.beta * changes
        points = torch.where(_wide(harmful, back), back, walk.points)
        closest = torch.minimum(walk.standing.closest, sizes.amin(1))
        walk = replace(walk, standing=replace(walk.standing, closest=closest), points=points)
        keep = yield candidate
        walk = keep(walk)
    return walk.standing


def _random_points(standing: Standing, count: int, budget: Budget) -> Tensor:
    """Return ``(N, T, C, H, W)``, at half the radius, or half the smallest harmful change where that is smaller."""
    images = standing.images
    shape = (count, *images.shape[1:])
    if budget.norm is Norm.LINF:
        direction = 2 * standing.draws.uniform(shape, images) - 1
    else:
        direction = standing.draws.normal(shape, images)
    sizes = _size(direction.flatten(2), budget.norm).clamp_min(1e-12)
    reach = standing.closest.clamp_max(budget.length).unsqueeze(1) / 2
    return (images.unsqueeze(1) + direction * _wide(reach / sizes, direction)).clamp(0, 1)


def _nearest_hyperplane(model: Classifier, walk: Walk, norm: Norm) -> tuple[Tensor, Tensor]:
    """Return, for the nearest goal of every walk, how far its logit lies above the label's, and the gradient of that.

    Returns:
        ``(N, T)`` and ``(N, T, C, H, W)``.
    """
    count, labels = walk.goals.shape[1], walk.standing.labels
    nearest: tuple[Tensor, ...] = ()
    for goals in torch.split(walk.goals, together(walk.standing.images), dim=2):
        every = goals.shape[2]
        points = walk.points.repeat_interleave(every, dim=1) if every > 1 else walk.points
        loss = Loss(_difference, (labels.repeat(count * every), tiled(goals.flatten(1))))
        logits, normals = model.value_and_gradient(tiled(points), loss)
        gaps, normals = untiled(loss(logits), count * every), untiled(normals, count * every)
        distances = gaps.abs() / (1e-12 + dual_size(normals.flatten(2), norm))
        found = tuple(torch.unflatten(part, 1, (count, every)) for part in (distances, gaps, normals))
        if nearest:
            found = tuple(torch.cat([old.unsqueeze(2), new], dim=2) for old, new in zip(nearest, found, strict=True))
        least = found[0].flatten(0, 1).argmin(1)
        nearest = tuple(torch.unflatten(picked(part.flatten(0, 1), least), 0, (-1, count)) for part in found)
    _, gap, normal = nearest
    return gap, normal


def _difference(logits: Tensor, labels: Tensor, goals: Tensor) -> Tensor:
    """Return ``(N,)``, how far the logit of the goal lies above that of the label."""
    return logits.gather(1, torch.stack([goals, labels], dim=1)).mul(logits.new_tensor([1, -1])).sum(1)


def _stepped(walk: Walk, gaps: Tensor, normals: Tensor, norm: Norm, options: Options) -> Tensor:
    """Return the points moved beyond their hyperplanes, and towards the projections of the images onto them.

    Args:
        walk: Where the walks are.
        gaps: ``(N, T)``, the linear functions at the points.
        normals: ``(N, T, C, H, W)``, their gradients.
        norm: How changes are measured.
        options: See `fab`.
    """
    here, normals = walk.points.flatten(2), normals.flatten(2)
    image = walk.standing.images.flatten(1).unsqueeze(1)
    image_gaps = gaps + (normals * (image - here)).sum(2)
    origins = torch.stack([here, image.expand_as(here)])
    changes = smallest_change(origins, normals.expand_as(origins), torch.stack([gaps, image_gaps]), norm)
    sizes = _size(changes, norm).clamp_min(1e-8)
    weight = (sizes[0] / (sizes[0] + sizes[1])).clamp_max(options.alpha_max).unsqueeze(2)
    beyond = origins + options.eta * changes
    return (beyond[0] * (1 - weight) + beyond[1] * weight).clamp(0, 1).view(walk.points.shape)


def _proposal(walk: Walk, logits: Tensor, sizes: Tensor, budget: Budget) -> Candidate:
    """Return the closest harmful point of every image where it is allowed, and the image itself elsewhere.

    Args:
        walk: Where the walks are.
        logits: ``(N, T, K)`` there.
        sizes: ``(N, T)``, size of the changes, infinite where they are harmless.
        budget: What is allowed.
    """
    finite = logits.isfinite().all(2)
    pick = torch.where(finite, sizes, -1).argmin(1)  # what cannot be judged comes first, so that the judge sees it
    images = walk.standing.images
    points, said = picked(walk.points, pick), picked(logits, pick)
    shown = budget.allows(points, images) | ~picked(finite, pick)
    return Candidate(
        torch.where(_wide(shown, points), points, images), torch.where(_wide(shown, said), said, walk.standing.clean)
    )


def _size(changes: Tensor, norm: Norm) -> Tensor:
    """Return ``(...)``, the norms of changes ``(..., D)``."""
    size: Tensor = torch.linalg.vector_norm(changes, {Norm.LINF: torch.inf, Norm.L2: 2, Norm.L1: 1}[norm], dim=-1)
    return size


def _wide(values: Tensor, like: Tensor) -> Tensor:
    """Return the values with as many dimensions as ``like``, for broadcasting."""
    return values.view(*values.shape, *[1] * (like.ndim - values.ndim))
