"""FAB: the smallest harmful change, found by walking along the decision boundary."""

from __future__ import annotations

from torch import Tensor

from robustkpca.adversary import Classifier, Proposals
from robustkpca.attacks.fab_walk import Options, known, walks
from robustkpca.attacks.targets import groups
from robustkpca.budget import Budget
from robustkpca.draws import Draws
from robustkpca.errors import BadValue


def fab(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    steps: int = 100,
    restarts: int = 1,
    alpha_max: float = 0.1,
    eta: float = 1.05,
    beta: float = 0.9,
) -> Proposals:
    """Walk along the boundary to whichever class is nearest, looking for the smallest harmful change.

    Every step takes the differences of the logits as linear, goes to where the nearest of them would vanish, and is drawn
    towards the image; from a harmful point it turns back towards the image. What lies within the budget is proposed, and
    the image itself where nothing does. Under a budget that spans all images (``linf:1``) every harmful point is proposed,
    and the closest of them is the attack's answer.

    Args:
        model: Maps images in [0, 1] to logits ``(N, K)``; it normalises inside.
        images: ``(N, C, H, W)``, float32, in [0, 1].
        labels: ``(N,)``, int64, the true classes.
        budget: What may be changed; its norm is what is made small.
        draws: One stream of random numbers per image; the first restart needs none.
        steps: Steps of each restart; each costs a gradient for every other class.
        restarts: How many starts are tried on what still stands: the image, then random points within half the radius.
        alpha_max: Largest weight of the image's own projection in a step, 0 to 1.
        eta: How far beyond the hyperplane a step goes, at least 1.
        beta: Share of the change that is kept on the way back from a harmful point, above 0 and at most 1.

    Yields:
        Candidates shaped like ``images``, in [0, 1], within ``budget`` up to rounding.

    Raises:
        BadValue: If an option lies outside its range.

    Source:
        Croce and Hein 2020, arXiv:1907.02044, algorithm 1, without the final search, as in AutoAttack.
    """
    options = Options(steps, restarts, alpha_max, eta, beta)
    standing = known(model, images, labels, draws, count=None)
    for restart in range(restarts):
        goals = standing.others.unsqueeze(1)
        standing = yield from walks(model, standing, goals, budget, options, random_start=restart > 0)


def fab_t(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    targets: int = 9,
    steps: int = 100,
    restarts: int = 1,
    alpha_max: float = 0.1,
    eta: float = 1.05,
    beta: float = 0.9,
) -> Proposals:
    """Walk along the boundary to each of the most likely other classes; see `fab`.

    The most likely class is tried alone, the others side by side as far as the images are small enough: in every step the
    closest harmful point of an image is proposed.

    Args:
        model: As for `fab`.
        images: As for `fab`.
        labels: As for `fab`.
        budget: As for `fab`.
        draws: As for `fab`.
        targets: How many classes are tried, from the most likely other one; at most all others.
        steps: Steps towards each target; each costs one gradient.
        restarts: How many starts are tried for each target.
        alpha_max: As for `fab`.
        eta: As for `fab`.
        beta: As for `fab`.

    Yields:
        Candidates as `fab`.

    Raises:
        BadValue: As `fab`, or if ``targets`` is below 1.

    Source:
        Croce and Hein 2020, arXiv:2003.01690, section 5: the targeted version of arXiv:1907.02044.
    """
    if targets < 1:
        raise BadValue(f"fab_t: targets must be at least 1, got {targets}")
    options = Options(steps, restarts, alpha_max, eta, beta)
    standing = known(model, images, labels, draws, count=targets)
    for ranks in groups(standing.others.shape[1], images):
        for restart in range(restarts):
            goals = standing.others[:, ranks.start : ranks.stop].unsqueeze(2)
            standing = yield from walks(model, standing, goals, budget, options, random_start=restart > 0)
