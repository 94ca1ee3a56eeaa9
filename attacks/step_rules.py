"""How Auto-PGD chooses its steps: by halving in L-infinity and L2, by sparsity in L1."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustkpca.attacks.ascent import Climb
from robustkpca.budget import Budget

MOMENTUM = 0.75  # alpha of equation 4


@dataclass(frozen=True)
class HalvingRule:
    """The rule for L-infinity and L2: halve the step, and go back to the best point, where the loss stops growing.

    Args:
        rho: A checkpoint wants the loss to have grown in more than this share of the steps.

    Source:
        Croce and Hein 2020, arXiv:2003.01690, sections 3.2 and 3.3.
    """

    rho: float = 0.75

    def first_step(self, radius: float) -> float:
        """Return the diameter of the ball."""
        return 2 * radius

    def checkpoints(self, steps: int) -> frozenset[int]:
        """Return the first after 22 % of the steps, and periods that shrink by 3 % to no less than 6 %."""
        period, floor, shrink = (max(int(share * steps), 1) for share in (0.22, 0.06, 0.03))
        found, position = [], period
        while position <= steps:
            found.append(position)
            period = max(period - shrink, floor)
            position += period
        return frozenset(found)

    def move(self, climb: Climb, budget: Budget, *, first: bool) -> Tensor:
        """Step along the steepest ascent, then mix with the last movement."""
        step = climb.step.view(-1, *[1] * (climb.points.ndim - 1))
        ahead = budget.project(climb.points + step * budget.steepest(climb.gradient), climb.images)
        weight = 1.0 if first else MOMENTUM
        mixed = climb.points + weight * (ahead - climb.points) + (1 - weight) * (climb.points - climb.previous)
        return budget.project(mixed, climb.images)

    def adapt(self, climb: Climb, budget: Budget, *, done: int, since: int) -> Climb:
        """Halve where the loss grew too rarely, or where neither step nor best value changed since the last checkpoint."""
        window = climb.values[:, done - since : done + 1]
        grew = (window[:, 1:] > window[:, :-1]).sum(1)
        stalled = ~climb.reduced & (climb.checked_value >= climb.best_value)
        halve = (grew <= since * self.rho) | stalled
        back = halve.view(-1, *[1] * (climb.points.ndim - 1))
        return replace(
            climb,
            step=torch.where(halve, climb.step / 2, climb.step),
            points=torch.where(back, climb.best_points, climb.points),
            gradient=torch.where(back, climb.best_gradient, climb.gradient),
            checked_value=climb.best_value,
            reduced=halve,
        )


@dataclass(frozen=True)
class SparseRule:
    """The rule for L1: steps change few entries, fewer as the best point becomes sparser.

    Source:
        Croce and Hein 2021, arXiv:2103.01208, section 3.3.
    """

    def first_step(self, radius: float) -> float:
        """Return the radius."""
        return radius

    def checkpoints(self, steps: int) -> frozenset[int]:
        """Return one after every 4 % of the steps."""
        period = max(int(0.04 * steps), 1)
        return frozenset(range(period, steps + 1, period))

    def move(self, climb: Climb, budget: Budget, *, first: bool) -> Tensor:
        """Step along the signs of the largest entries of the gradient."""
        flat = climb.gradient.flatten(1)
        size = flat.shape[1]
        rank = ((1 - climb.density) * size).long().clamp(0, size - 1)
        threshold = flat.abs().sort(dim=1).values.gather(1, rank.unsqueeze(1))
        signs = flat.sign() * (flat.abs() >= threshold)
        direction = signs / (signs.abs().sum(1, keepdim=True) + 1e-10)
        ahead = climb.points + (climb.step.unsqueeze(1) * direction).view_as(climb.points)
        return budget.project(ahead, climb.images)

    def adapt(self, climb: Climb, budget: Budget, *, done: int, since: int) -> Climb:
        """Start over from the best point where it became sparser, and shorten the step elsewhere."""
        size = climb.images[0].numel()
        changed = (climb.best_points != climb.images).flatten(1).sum(1).to(climb.step.dtype)
        sparser = changed / climb.changed < 0.95
        radius = torch.full_like(climb.step, self.first_step(budget.length))
        back = sparser.view(-1, *[1] * (climb.points.ndim - 1))
        return replace(
            climb,
            step=torch.where(sparser, radius, (climb.step / 1.5).clamp(min=budget.length / 10)),
            density=changed / size / 1.5,
            changed=changed,
            points=torch.where(back, climb.best_points, climb.points),
            gradient=torch.where(back, climb.best_gradient, climb.gradient),
        )
