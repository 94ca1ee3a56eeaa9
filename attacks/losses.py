"""What attacks increase beside the cross-entropy: margins, plain and rescaled."""

from __future__ import annotations

import torch
from torch import Tensor

from robustkpca.adversary import Loss


def difference_of_logits_ratio(labels: Tensor) -> Loss:
    """Margin to the best other class, divided by the spread of the three largest logits.

    It does not change when all logits are shifted or scaled, so that no large logits can hide a gradient. With two classes
    there is no third logit, and the plain margin is taken.

    Args:
        labels: ``(N,)``, int64, the true classes.

    Source:
        Croce and Hein 2020, arXiv:2003.01690, equation 6. Deliberate difference: two classes are allowed.
    """
    return Loss(_ratio, (labels,))


def targeted_difference_of_logits_ratio(labels: Tensor, targets: Tensor) -> Loss:
    """Margin to one target class, divided by the spread of the four largest logits.

    With fewer than four classes the spread is that of the logits there are; with two it is left out.

    Args:
        labels: ``(N,)``, int64, the true classes.
        targets: ``(N,)``, int64, the classes to be mistaken for.

    Source:
        Croce and Hein 2020, arXiv:2003.01690, equation 7. Deliberate difference: two and three classes are allowed.
    """
    return Loss(_targeted_ratio, (labels, targets))


def best_other(logits: Tensor, labels: Tensor) -> Tensor:
    """Return ``(N,)``, the largest logit of a class that is not the label."""
    return logits.scatter(1, labels.unsqueeze(1), -torch.inf).amax(1)


def _own(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.gather(1, labels.unsqueeze(1)).squeeze(1)


def _ratio(logits: Tensor, labels: Tensor) -> Tensor:
    margin = best_other(logits, labels) - _own(logits, labels)
    if logits.shape[1] < 3:
        return margin
    top = logits.topk(3, dim=1).values
    return margin / (top[:, 0] - top[:, 2] + 1e-12)


def _targeted_ratio(logits: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
    margin = _own(logits, targets) - _own(logits, labels)
    count = logits.shape[1]
    if count < 3:
        return margin
    top = logits.topk(min(4, count), dim=1).values
    return margin / (top[:, 0] - (top[:, 2] + top[:, -1]) / 2 + 1e-12)
