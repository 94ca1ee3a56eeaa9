"""How an attack that looks for the smallest change proposes: only what the budget allows."""

from __future__ import annotations

import torch
from torch import Tensor

from robustkpca.adversary import Candidate
from robustkpca.budget import Budget


def allowed(points: Tensor, logits: Tensor, images: Tensor, clean_logits: Tensor, budget: Budget) -> Candidate:
    """Propose the points that lie within the budget, and the unchanged image in place of the others.

    What the model says is known of both, so that a proposal costs no further pass. A point without finite logits is proposed
    too: the judge must hear of it.

    Args:
        points: ``(N, C, H, W)``.
        logits: ``(N, K)`` of the points.
        images: ``(N, C, H, W)``, unchanged.
        clean_logits: ``(N, K)`` of the unchanged images.
        budget: What may be changed.
    """
    shown = budget.allows(points, images) | ~logits.isfinite().all(1)
    wide = shown.view(-1, *[1] * (points.ndim - 1))
    return Candidate(torch.where(wide, points, images), torch.where(shown.unsqueeze(1), logits, clean_logits))
