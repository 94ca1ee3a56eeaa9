"""Gradient ascent that remembers its best point and thinks again at checkpoints; what Auto-PGD is made of."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Keep, Loss
from robustkpca.budget import Budget

Held = tuple[Any, ...]
"""Images, labels, draws, and further tensors that the loss is made of; narrowed together."""


@dataclass(frozen=True)
class Climb:
    """Everything that one ascent holds; one row per image that still stands.

    Args:
        images: ``(N, C, H, W)``, where the budget is centred.
        loss: What increases.
        held: Images, labels, streams and whatever else the attack needs afterwards.
        points: ``(N, C, H, W)``, where the ascent is.
        previous: ``(N, C, H, W)``, where it was one step before.
        gradient: ``(N, C, H, W)`` at ``points``.
        best_points: ``(N, C, H, W)``, where the loss was largest.
        best_gradient: ``(N, C, H, W)`` there.
        best_value: ``(N,)``, the loss there.
        values: ``(N, T)``, the loss after every step; NaN before it was known.
        step: ``(N,)``, length of the next step.
        checked_value: ``(N,)``, ``best_value`` at the last checkpoint.
        reduced: ``(N,)``, bool, whether the last checkpoint halved the step.
        density: ``(N,)``, share of the entries that a step in L1 changes; 1 elsewhere.
        changed: ``(N,)``, how many entries of ``best_points`` differed from the image at the last checkpoint.
    """

    images: Tensor
    loss: Loss
    held: Held
    points: Tensor
    previous: Tensor
    gradient: Tensor
    best_points: Tensor
    best_gradient: Tensor
    best_value: Tensor
    values: Tensor
    step: Tensor
    checked_value: Tensor
    reduced: Tensor
    density: Tensor
    changed: Tensor


class Rule(Protocol):
    """How far an ascent goes and when it thinks again."""

    def first_step(self, radius: float) -> float:
        """Return the length of the first step."""
        ...

    def checkpoints(self, steps: int) -> frozenset[int]:
        """Return after which steps (counted from 1) `adapt` is asked."""
        ...

    def move(self, climb: Climb, budget: Budget, *, first: bool) -> Tensor:
        """Return the next points."""
        ...

    def adapt(self, climb: Climb, budget: Budget, *, done: int, since: int) -> Climb:
        """Return the ascent with new step lengths, after ``done`` steps, ``since`` of them after the last checkpoint."""
        ...


def ascend(
    model: Classifier, held: Held, start: Tensor, loss: Loss, budget: Budget, rule: Rule, *, steps: int, eot: int
) -> Generator[Candidate, Keep, Climb]:
    """Climb from ``start``; every point is proposed.

    Args:
        model: Maps images to logits.
        held: Images first, and what else is narrowed with them.
        start: ``(N, C, H, W)``, within the budget.
        loss: What increases.
        budget: What may be changed.
        rule: How long the steps are.
        steps: How many are taken.
        eot: Gradients averaged for each step.
    """
    images = held[0]
    logits, gradient = _ask(model, start, loss, eot)
    value = loss(logits)
    ones = torch.ones_like(value)
    size, changed = images[0].numel(), (start != images).flatten(1).sum(1).to(value.dtype)
    climb = Climb(
        images=images,
        loss=loss,
        held=held,
        points=start,
        previous=start,
        gradient=gradient,
        best_points=start,
        best_gradient=gradient,
        best_value=value,
        values=torch.full((len(images), steps + 1), torch.nan, dtype=value.dtype, device=value.device),
        step=ones * rule.first_step(budget.length),
        checked_value=value,
        reduced=ones.bool(),
        density=changed / size / 1.5,
        changed=changed,
    )
    climb.values[:, 0] = value
    checkpoints, last = rule.checkpoints(steps), 0
    keep = yield Candidate(start, logits)
    climb = keep(climb)
    for done in range(1, steps + 1):
        points = rule.move(climb, budget, first=done == 1)
        logits, gradient = _ask(model, points, climb.loss, eot)
        climb = _moved(climb, points, gradient, climb.loss(logits), done)
        if done in checkpoints:
            climb, last = rule.adapt(climb, budget, done=done, since=done - last), done
        keep = yield Candidate(points, logits)
        climb = keep(climb)
    rest: Climb = climb
    return rest


def _ask(model: Classifier, points: Tensor, loss: Loss, eot: int) -> tuple[Tensor, Tensor]:
    """Return the logits and the gradient, averaged over several passes."""
    logits, gradient = model.value_and_gradient(points, loss)
    for _ in range(eot - 1):
        more_logits, more_gradient = model.value_and_gradient(points, loss)
        logits, gradient = logits + more_logits, gradient + more_gradient
    return logits / eot, gradient / eot


def _moved(climb: Climb, points: Tensor, gradient: Tensor, value: Tensor, done: int) -> Climb:
    """Move to the new points, and keep them where the loss was never larger."""
    climb.values[:, done] = value
    better = value > climb.best_value
    wide = better.view(-1, *[1] * (points.ndim - 1))
    return replace(
        climb,
        previous=climb.points,
        points=points,
        gradient=gradient,
        best_points=torch.where(wide, points, climb.best_points),
        best_gradient=torch.where(wide, gradient, climb.best_gradient),
        best_value=torch.where(better, value, climb.best_value),
    )
