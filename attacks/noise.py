"""Random noise."""

from __future__ import annotations

from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Proposals
from robustkpca.budget import Budget
from robustkpca.draws import Draws
from robustkpca.errors import BadValue


def noise(
    model: Classifier, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws, samples: int = 1
) -> Proposals:
    """Move to random points of the budget.

    Args:
        model: Not asked.
        images: ``(N, C, H, W)``, float32, in [0, 1].
        labels: Not used.
        budget: What may be changed.
        draws: One stream of random numbers per image.
        samples: How many points are tried; an image stands only if all of them fail.

    Yields:
        Candidates shaped like ``images``, within ``budget`` up to rounding.

    Raises:
        BadValue: If ``samples`` is below 1.

    Source:
        cleverhans 4, ``noise``: one uniform draw in L-infinity, 0.3 by default. Here the point is uniform in the ball of
        any norm, then clipped to [0, 1] where the protocol asks for it.
    """
    if samples < 1:
        raise BadValue(f"noise: samples must be at least 1, got {samples}")
    for _ in range(samples):
        keep = yield Candidate(budget.random_start(images, draws))
        images, draws = keep(images, draws)
