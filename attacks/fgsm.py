"""The fast gradient sign method."""

from __future__ import annotations

from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Proposals, cross_entropy
from robustkpca.attacks.cleverhans import linear_step
from robustkpca.budget import Budget
from robustkpca.draws import Draws


def fgsm(model: Classifier, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws) -> Proposals:
    """Take one step of steepest ascent, as long as the budget allows.

    Args:
        model: Maps images in [0, 1] to logits ``(N, K)``; it normalises inside.
        images: ``(N, C, H, W)``, float32, in [0, 1].
        labels: ``(N,)``, int64, the true classes.
        budget: What may be changed.
        draws: Not used; the attack is deterministic.

    Yields:
        Candidates shaped like ``images``, within ``budget`` up to rounding.

    Source:
        Goodfellow et al. 2015, arXiv:1412.6572, section 4; the L2 and L1 forms as in foolbox and cleverhans.
    """
    _, gradient = model.value_and_gradient(images, cross_entropy(labels))
    yield Candidate(budget.project(images + budget.length * budget.steepest(gradient), around=images))


def published_fgsm(
    model: Classifier, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws, averaged_over: int = 72
) -> Proposals:
    """Take one step of steepest ascent, as the published evaluation called it.

    Args:
        model: Maps normalised images to logits ``(N, K)``.
        images: ``(N, C, H, W)``, float32, normalised.
        labels: ``(N,)``, int64, the model's predictions on ``images``.
        budget: What may be changed, in normalised units.
        draws: Not used; the attack is deterministic.
        averaged_over: Images of a batch in the reference; matters in L2 alone, see `linear_step`.

    Yields:
        Candidates shaped like ``images``.

    Raises:
        BadValue: If ``averaged_over`` is below 1.

    Source:
        cleverhans 4, ``fast_gradient_method``, as called by KPCA_code Attack/engine.py with batches of 72.
    """
    _, gradient = model.value_and_gradient(images, cross_entropy(labels))
    step = budget.length * linear_step(budget, gradient, averaged_over)
    yield Candidate((images + step).clamp(0, 1) if budget.bounded else images + step)
