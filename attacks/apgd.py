"""Auto-PGD: gradient ascent with momentum that chooses its own step size."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Keep, Loss, Proposals, cross_entropy
from robustkpca.attacks.ascent import Climb, Held, ascend
from robustkpca.attacks.losses import difference_of_logits_ratio, targeted_difference_of_logits_ratio
from robustkpca.attacks.step_rules import HalvingRule, SparseRule
from robustkpca.attacks.targets import groups, other_classes, side_by_side, tiled
from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.errors import BadValue


@dataclass(frozen=True)
class Options:
    """What the attacks of this file have in common; see `apgd_ce`."""

    steps: int
    restarts: int
    rho: float
    eot: int

    def __post_init__(self) -> None:
        for name in ("steps", "restarts", "eot"):
            if getattr(self, name) < 1:
                raise BadValue(f"apgd: {name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.rho < 1:
            raise BadValue(f"apgd: rho must lie between 0 and 1, got {self.rho}")


def apgd_ce(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    steps: int = 100,
    restarts: int = 1,
    rho: float = 0.75,
    eot: int = 1,
) -> Proposals:
    """Auto-PGD on the cross-entropy.

    Args:
        model: Maps images in [0, 1] to logits ``(N, K)``; it normalises inside.
        images: ``(N, C, H, W)``, float32, in [0, 1].
        labels: ``(N,)``, int64, the true classes.
        budget: What may be changed.
        draws: One stream of random numbers per image.
        steps: Gradient steps of each restart.
        restarts: How many random starts are tried on what still stands.
        rho: A checkpoint wants the loss to have grown in more than this share of the steps (L-infinity and L2).
        eot: Gradients averaged for each step, for models with random output.

    Yields:
        Candidates shaped like ``images``, in [0, 1], within ``budget`` up to rounding.

    Raises:
        BadValue: If ``steps``, ``restarts`` or ``eot`` is below 1, or ``rho`` is not between 0 and 1.

    Source:
        Croce and Hein 2020, arXiv:2003.01690, algorithm 1; in L1 Croce and Hein 2021, arXiv:2103.01208, with steps in the
        balls of three and two times the radius first. Deliberate difference: every iterate is proposed.
    """
    options = Options(steps, restarts, rho, eot)
    yield from _restarts(model, (images, labels, draws), cross_entropy, budget, options)


def apgd_dlr(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    steps: int = 100,
    restarts: int = 1,
    rho: float = 0.75,
    eot: int = 1,
) -> Proposals:
    """Auto-PGD on the difference of logits ratio, which large or shifted logits cannot hide.

    Args:
        model: As for `apgd_ce`.
        images: As for `apgd_ce`.
        labels: As for `apgd_ce`.
        budget: As for `apgd_ce`.
        draws: As for `apgd_ce`.
        steps: As for `apgd_ce`.
        restarts: As for `apgd_ce`.
        rho: As for `apgd_ce`.
        eot: As for `apgd_ce`.

    Yields:
        Candidates as `apgd_ce`.

    Raises:
        BadValue: As `apgd_ce`.

    Source:
        Croce and Hein 2020, arXiv:2003.01690, algorithm 1 and equation 6.
    """
    options = Options(steps, restarts, rho, eot)
    yield from _restarts(model, (images, labels, draws), difference_of_logits_ratio, budget, options)


def apgd_t(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    steps: int = 100,
    restarts: int = 1,
    targets: int = 9,
    rho: float = 0.75,
    eot: int = 1,
) -> Proposals:
    """Auto-PGD on the targeted difference of logits ratio.

    The most likely other class is tried alone, the others side by side as far as the images are small enough: in every step
    the most harmful point of an image is proposed.

    Args:
        model: As for `apgd_ce`.
        images: As for `apgd_ce`.
        labels: As for `apgd_ce`.
        budget: As for `apgd_ce`.
        draws: As for `apgd_ce`.
        steps: Gradient steps towards each target.
        restarts: How many random starts are tried for each target.
        targets: How many classes are tried, from the most likely other one; at most all others.
        rho: As for `apgd_ce`.
        eot: As for `apgd_ce`.

    Yields:
        Candidates as `apgd_ce`.

    Raises:
        BadValue: As `apgd_ce`, or if ``targets`` is below 1.

    Source:
        Croce and Hein 2020, arXiv:2003.01690, section 4.1 and equation 7.
    """
    if targets < 1:
        raise BadValue(f"apgd_t: targets must be at least 1, got {targets}")
    options = Options(steps, restarts, rho, eot)
    others = other_classes(model.logits(images), labels, targets)
    held: Held = (images, labels, draws, others)
    for ranks in groups(others.shape[1], images):
        for _ in range(restarts):
            held = yield from _towards(model, held, ranks, budget, options)


def _towards(
    model: Classifier, held: Held, ranks: range, budget: Budget, options: Options
) -> Generator[Candidate, Keep, Held]:
    """Run one restart towards each of some classes, side by side; return what is held of those that still stand."""
    images, labels, draws, others = held
    count = len(ranks)
    changes = torch.cat([_noise(images, budget, draws) for _ in ranks])
    every, goals = images.repeat(count, *[1] * (images.ndim - 1)), tiled(others[:, ranks.start : ranks.stop])
    loss = targeted_difference_of_logits_ratio(labels.repeat(count), goals)
    return (yield from side_by_side(_ascent(model, (every,), changes, loss, budget, options), held, count))


def _restarts(
    model: Classifier, held: Held, loss: Callable[[Tensor], Loss], budget: Budget, options: Options
) -> Proposals:
    """Run the restarts of one loss."""
    for _ in range(options.restarts):
        images, labels, draws = held
        climb = yield from _ascent(model, held, _noise(images, budget, draws), loss(labels), budget, options)
        held = climb.held


def _ascent(
    model: Classifier, held: Held, change: Tensor, loss: Loss, budget: Budget, options: Options
) -> Generator[Candidate, Keep, Climb]:
    """Ascend from a random change of the images, which are the first that is held."""
    if budget.norm is Norm.L1:
        return (yield from _shrinking_balls(model, held, change, loss, budget, options))
    start, rule = _start(held[0], change, budget), HalvingRule(options.rho)
    return (yield from ascend(model, held, start, loss, budget, rule, steps=options.steps, eot=options.eot))


def _noise(images: Tensor, budget: Budget, draws: Draws) -> Tensor:
    """Draw a random change, uniform in L-infinity and normal elsewhere."""
    shape = images.shape[1:]
    return 2 * draws.uniform(shape, images) - 1 if budget.norm is Norm.LINF else draws.normal(shape, images)


def _start(images: Tensor, change: Tensor, budget: Budget) -> Tensor:
    """Return the images moved along a change to the surface of the ball, then clipped to [0, 1]."""
    flat = change.flatten(1)
    size = flat.abs().amax(1) if budget.norm is Norm.LINF else flat.norm(dim=1)
    reach = budget.length / size.clamp_min(1e-12)
    return budget.project(images + reach.view(-1, *[1] * (images.ndim - 1)) * change, images)


def _shrinking_balls(
    model: Classifier, held: Held, change: Tensor, loss: Loss, budget: Budget, options: Options
) -> Generator[Candidate, Keep, Climb]:
    """Ascend in the L1 balls of three, two and one times the radius; only the last may propose."""
    images = held[0]
    large, middle = replace(budget, radius=3 * budget.radius), replace(budget, radius=2 * budget.radius)
    part = max(int(0.3 * options.steps), 1)
    rule = SparseRule()
    start = large.project(images + change, images)
    climb = _alone(ascend(model, held, start, loss, large, rule, steps=part, eot=options.eot), images)
    start = middle.project(climb.best_points, images)
    climb = _alone(ascend(model, held, start, loss, middle, rule, steps=part, eot=options.eot), images)
    start = budget.project(climb.best_points, images)
    rest = max(options.steps - 2 * part, 1)
    return (yield from ascend(model, held, start, loss, budget, rule, steps=rest, eot=options.eot))


def _alone(ascent: Generator[Candidate, Keep, Climb], images: Tensor) -> Climb:
    """Run an ascent to its end without showing its candidates to anyone."""
    everyone = Keep(torch.ones(len(images), dtype=torch.bool, device=images.device))
    try:
        next(ascent)
        while True:
            ascent.send(everyone)
    except StopIteration as end:
        climb: Climb = end.value
        return climb
