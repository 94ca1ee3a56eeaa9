"""Two attacks: one proposes, as a generator; one only returns images."""

from __future__ import annotations

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Proposals, cross_entropy
from robustkpca.budget import Budget
from robustkpca.draws import Draws
from robustkpca.errors import BadValue


def restarted_fgsm(
    model: Classifier, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws, restarts: int = 3
) -> Proposals:
    """Take one steepest step from each of several random starts."""
    if restarts < 1:
        raise BadValue(f"restarted_fgsm: restarts is {restarts}; expected at least 1")
    for _ in range(restarts):
        start = budget.random_start(images, draws)
        logits, gradient = model.value_and_gradient(start, cross_entropy(labels))
        keep = yield Candidate(start, logits)
        start, gradient, images, labels, draws = keep(start, gradient, images, labels, draws)
        keep = yield Candidate(
            budget.project(start + 2 * float(budget.radius) * budget.steepest(gradient), around=images)
        )
        images, labels, draws = keep(images, labels, draws)


def lighten(model: Classifier, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws) -> Tensor:
    """Add as much light to every pixel as the budget allows."""
    return budget.project(images + float(budget.radius) * budget.steepest(torch.ones_like(images)), around=images)
