"""Carlini and Wagner's search for the smallest L2 change, in the space of the inverse hyperbolic tangent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Loss, Proposals
from robustkpca.attacks.adam import Adam
from robustkpca.attacks.allowed import allowed
from robustkpca.attacks.losses import best_other
from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.errors import BadValue

REACH = 1.5
"""The hyperbolic tangent spans this much of the width of the box, so that its slope does not vanish at 0 and 1."""

NEARLY = 0.999999
"""How far the published code moves pixels of exactly 0 and 1 into the box."""


@dataclass(frozen=True)
class Options:
    """What the attacks of this file have in common; see `cw`."""

    rounds: int
    steps: int
    rate: float
    initial_constant: float
    confidence: float

    def __post_init__(self) -> None:
        for name in ("rounds", "steps"):
            if getattr(self, name) < 1:
                raise BadValue(f"cw: {name} must be at least 1, got {getattr(self, name)}")
        for name in ("rate", "initial_constant"):
            if not getattr(self, name) > 0:
                raise BadValue(f"cw: {name} must be positive, got {getattr(self, name)}")
        if not self.confidence >= 0:
            raise BadValue(f"cw: confidence must be at least 0, got {self.confidence}")


@dataclass(frozen=True)
class Search:
    """Everything that the attack holds; one row per image that still stands.

    Args:
        images: ``(N, C, H, W)``, unchanged.
        clean_logits: ``(N, K)`` of the images.
        classes: ``(N,)``, int64, the classes to be left, or to be reached.
        latent: ``(N, C, H, W)``, the current points in tanh space.
        adam: Moments of the gradient there.
        constant: ``(N,)``, weight of the margin against the squared distance.
        lower: ``(N,)``, the largest constant that failed.
        upper: ``(N,)``, the smallest constant that succeeded, infinite before that.
        reached: ``(N,)``, bool, whether this round succeeded.
    """

    images: Tensor
    clean_logits: Tensor
    classes: Tensor
    latent: Tensor
    adam: Adam
    constant: Tensor
    lower: Tensor
    upper: Tensor
    reached: Tensor

    @classmethod
    def at(cls, images: Tensor, clean_logits: Tensor, classes: Tensor, constant: float) -> Search:
        """Return the beginning of the first round."""
        latent, ones = into_tanh_space(images), torch.ones_like(clean_logits[:, 0])
        return cls(
            images,
            clean_logits,
            classes,
            latent,
            Adam.before(latent),
            constant=constant * ones,
            lower=0 * ones,
            upper=torch.inf * ones,
            reached=torch.zeros_like(classes, dtype=torch.bool),
        )

    def again(self) -> Search:
        """Return the beginning of the next round: half the interval, or ten times the constant while nothing succeeded."""
        upper = torch.where(self.reached, self.constant.minimum(self.upper), self.upper)
        lower = torch.where(self.reached, self.lower, self.constant.maximum(self.lower))
        constant = torch.where(upper.isinf(), self.constant * 10, (lower + upper) / 2)
        first = Search.at(self.images, self.clean_logits, self.classes, 1.0)
        return replace(first, constant=constant, lower=lower, upper=upper)


def cw(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    rounds: int = 6,
    steps: int = 200,
    rate: float = 0.02,
    initial_constant: float = 0.01,
    confidence: float = 0.0,
) -> Proposals:
    """Minimise the squared L2 distance plus a constant times the margin, and search for the smallest constant that does.

    Args:
        model: Maps images in [0, 1] to logits ``(N, K)``; it normalises inside.
        images: ``(N, C, H, W)``, float32, in [0, 1].
        labels: ``(N,)``, int64, the true classes.
        budget: What may be changed, in L2. The search does not know it; only points within it are proposed.
        draws: Not used; the attack is deterministic.
        rounds: How many constants are tried.
        steps: Gradient steps for each constant.
        rate: Learning rate of Adam in tanh space, at the beginning of a round.
        initial_constant: The first constant.
        confidence: By how many logits another class must lead before the search is content with a constant.

    Yields:
        Candidates shaped like ``images``, in [0, 1], within ``budget`` up to rounding; the unchanged image where the
        current point lies outside.

    Raises:
        BadValue: If the budget is not L2, ``rounds`` or ``steps`` is below 1, ``rate`` or ``initial_constant`` is not
            positive, or ``confidence`` is negative.

    Source:
        Carlini and Wagner 2017, arXiv:1608.04644, section VI. Deliberate differences: the tanh reaches beyond the box by
        half, and stops at its walls, so that the search starts at the very image and pixels of exactly 0 and 1 can move;
        the rate falls to zero in every round, and only the second half of a round tells whether its constant suffices, since
        the first steps of Adam overshoot by more than the distance sought in large images; a round is never cut short,
        since that would depend on the batch. The paper has 9 rounds of up to 10,000 steps.
    """
    check_norm(budget)
    options = Options(rounds, steps, rate, initial_constant, confidence)
    yield from search(model, images, labels, budget, options)


def search(
    model: Classifier, images: Tensor, classes: Tensor, budget: Budget, options: Options, *, towards: bool = False
) -> Proposals:
    """Search for the closest image that is not of these classes, or is of these where ``towards``; see `cw`."""
    state = Search.at(images, model.logits(images), classes, options.initial_constant)
    limit = state.latent.new_tensor(1 / REACH).atanh()
    for _ in range(options.rounds):
        for step in range(options.steps):
            points, into_latent = with_return(out_of_tanh_space, state.latent)
            points = points.clamp(0, 1)
            loss = hinge(state.classes, state.constant, options.confidence, towards)
            logits, pull = model.value_and_gradient(points, loss)
            adam = state.adam.after(into_latent(2 * (points - state.images) + pull))
            latent = adam.descended(state.latent, options.rate * (1 - step / options.steps)).clamp(-limit, limit)
            reached = state.reached
            if 2 * step >= options.steps - 1:
                reached = reached | succeeded(logits, state.classes, options.confidence, towards)
            candidate = allowed(points, logits, state.images, state.clean_logits, budget)
            state = replace(state, latent=latent, adam=adam, reached=reached)
            keep = yield candidate
            state = keep(state)
        state = state.again()


def into_tanh_space(images: Tensor) -> Tensor:
    """Return where the images lie in tanh space."""
    return ((2 * images - 1) / REACH).atanh()


def out_of_tanh_space(latent: Tensor) -> Tensor:
    """Return the images ``(N, C, H, W)`` that lie there."""
    return REACH / 2 * latent.tanh() + 0.5


def with_return(function: Callable[[Tensor], Tensor], latent: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return what a function makes of latent points, and the way back for gradients."""
    points, back, *_ = torch.func.vjp(function, latent)

    def returning(gradient: Tensor) -> Tensor:
        found: Tensor = back(gradient)[0]
        return found

    return points, returning


def hinge(classes: Tensor, constant: Tensor, confidence: float, towards: bool = False) -> Loss:
    """Return what is minimised beside the distance: ``constant * max(margin + confidence, 0)``.

    Args:
        classes: ``(N,)``, int64.
        constant: ``(N,)``.
        confidence: See `cw`.
        towards: Whether the margin is that of the best other class over these, instead of the reverse.
    """

    def value(logits: Tensor, classes: Tensor, constant: Tensor) -> Tensor:
        margin = logits.gather(1, classes.unsqueeze(1)).squeeze(1) - best_other(logits, classes)
        return constant * ((-margin if towards else margin) + confidence).clamp_min(0)

    return Loss(value, (classes, constant))


def succeeded(logits: Tensor, classes: Tensor, confidence: float, towards: bool = False) -> Tensor:
    """Tell ``(N,)`` which images are mistaken as wanted.

    Args:
        logits: ``(N, K)``.
        classes: ``(N,)``, int64.
        confidence: By how many logits.
        towards: Whether they must be of these classes, instead of any others.
    """
    handicap = torch.full_like(logits[:, :1], -confidence if towards else confidence)
    hit: Tensor = logits.scatter_add(1, classes.unsqueeze(1), handicap).argmax(1) == classes
    return hit if towards else ~hit


def published_cw(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    confidence: float = 0.0,
    towards_prediction: bool = False,
    rounds: int = 5,
    steps: int = 1000,
    rate: float = 0.005,
    initial_constant: float = 0.01,
    shared_constant: bool = False,
) -> Proposals:
    """Carlini and Wagner's attack, as the published evaluation called it.

    Its faults are kept. The normalised image is clamped to [0, 1] first, and the distance is measured to the clamped image;
    the search for the constant stops for good as soon as both a round failed and a round succeeded; point and moments are
    carried from round to round. An image without success ends as the clamped image.

    Args:
        model: Maps normalised images to logits ``(N, K)``.
        images: ``(N, C, H, W)``, float32, normalised.
        labels: ``(N,)``, int64, the model's predictions on ``images``.
        budget: Not used by the attack, which has no radius. The judge refuses what lies outside, so it must be large:
            clamping alone changes a photo by several hundred in L2.
        draws: Not used; the attack is deterministic.
        confidence: By how many logits another class must lead. KPCA_code passes its ``eps`` here.
        towards_prediction: Push towards the model's own prediction, as the dump of March 2024 did (targeted, without
            labels; there with a rate of 0.1, 10 steps and a confidence of 10). That is no attack on the prediction.
        rounds: How many constants are tried.
        steps: Gradient steps for each constant.
        rate: Learning rate of Adam, in tanh space.
        initial_constant: The first constant.
        shared_constant: Weigh every margin with the mean constant of the batch, as the reference does by a mistake in
            broadcasting. Results then depend on the batch; without it they are those of batches of one image.

    Yields:
        The final image, shaped like ``images``.

    Raises:
        BadValue: If ``rounds`` or ``steps`` is below 1, ``rate`` or ``initial_constant`` is not positive, or ``confidence``
            is negative.

    Source:
        cleverhans 4, ``carlini_wagner_l2``, as called by KPCA_code Attack/engine.py.
    """
    Options(rounds, steps, rate, initial_constant, confidence)
    images = images.clamp(0, 1)
    start = ((images * 2 - 1) * NEARLY).atanh()
    shift, adam = torch.zeros_like(images), Adam.before(images)
    constant = images.new_full((len(images),), initial_constant)
    best, best_distance = images, torch.full_like(constant, torch.inf)
    ever_failed = ever_reached = torch.zeros_like(labels, dtype=torch.bool)
    for _ in range(rounds):
        reached = torch.zeros_like(ever_reached)
        count, weight = (len(images), constant.sum().expand_as(constant)) if shared_constant else (1, constant)
        for _ in range(steps):
            points, into_shift = with_return(lambda shift: ((shift + start).tanh() + 1) / 2, shift)
            logits, pull = model.value_and_gradient(points, hinge(labels, weight, confidence, towards_prediction))
            adam = adam.after(into_shift(pull + count * 2 * (points - images)))
            shift = adam.descended(shift, rate)
            success = succeeded(logits, labels, confidence, towards_prediction)
            distance = (points - images).square().flatten(1).sum(1)
            better = success & (distance < best_distance)
            best = torch.where(better.view(-1, *[1] * (images.ndim - 1)), points, best)
            best_distance = torch.where(better, distance, best_distance)
            reached = reached | success
        ever_failed, ever_reached = ever_failed | ~reached, ever_reached | reached
        factor = torch.where(reached, 0.5, 10.0).to(constant)
        constant = torch.where(ever_failed & ever_reached, constant, constant * factor)
    yield Candidate(best)


def check_norm(budget: Budget) -> None:
    """Refuse budgets that are not L2."""
    if budget.norm is not Norm.L2:
        raise BadValue(f"cw: the budget must be l2, got {budget.norm.value}; write 'cw@l2:0.5'")
