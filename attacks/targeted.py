"""Attacks that want one certain class: which class that is, and how an untargeted attack is turned towards it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Loss, Proposals
from robustkpca.attacks.cw import Options, check_norm, search
from robustkpca.attacks.fgsm import fgsm
from robustkpca.attacks.pgd import pgd
from robustkpca.budget import Budget
from robustkpca.draws import Draws
from robustkpca.errors import BadValue


def _second(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.scatter(1, labels.unsqueeze(1), -torch.inf).argmax(1)


def _least_likely(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.scatter(1, labels.unsqueeze(1), torch.inf).argmin(1)


def _next(logits: Tensor, labels: Tensor) -> Tensor:
    return (labels + 1) % logits.shape[1]


RULES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "second": _second,
    "least-likely": _least_likely,
    "next": _next,
}
"""Which class is wanted: the most likely other one, the least likely one, or the one after the label."""


def fgsm_t(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    target: str = "least-likely",
    exact: bool = False,
) -> Proposals:
    """Take one step of steepest descent towards a certain class.

    Args:
        model: As for `pgd_t`.
        images: As for `pgd_t`.
        labels: As for `pgd_t`.
        budget: As for `pgd_t`.
        draws: Not used; the attack is deterministic.
        target: As for `pgd_t`.
        exact: As for `pgd_t`.

    Yields:
        Candidates as `pgd_t`.

    Raises:
        BadValue: If there is no such ``target``.

    Source:
        Kurakin et al. 2017, arXiv:1611.01236, equation 4.
    """
    clean_logits, targets = _chosen(model, images, labels, target)
    steps = fgsm(Towards(model), images, targets, budget=budget, draws=draws)
    yield from hits(steps, model, images, clean_logits, targets) if exact else steps


def pgd_t(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    target: str = "least-likely",
    exact: bool = False,
    steps: int = 20,
    relative_step: float = 0.15,
    restarts: int = 1,
    random_start: bool = True,
) -> Proposals:
    """Projected gradient descent towards a certain class.

    Args:
        model: Maps images in [0, 1] to logits ``(N, K)``; it normalises inside.
        images: ``(N, C, H, W)``, float32, in [0, 1].
        labels: ``(N,)``, int64, the true classes.
        budget: What may be changed.
        draws: One stream of random numbers per image.
        target: ``second`` (the most likely other class), ``least-likely``, or ``next`` (the class after the label).
        exact: Whether only images of the wanted class are proposed, so that another mistake does not count as success.
        steps: As for `robustkpca.attacks.pgd.pgd`.
        relative_step: As there.
        restarts: As there.
        random_start: As there.

    Yields:
        Candidates shaped like ``images``, in [0, 1], within ``budget`` up to rounding; where ``exact``, the unchanged image
        in place of those that are not of the wanted class.

    Raises:
        BadValue: If there is no such ``target``, or as `robustkpca.attacks.pgd.pgd`.

    Source:
        Madry et al. 2018, arXiv:1706.06083, section 2.1; the least likely class after Kurakin et al. 2017, arXiv:1607.02533.
    """
    clean_logits, targets = _chosen(model, images, labels, target)
    climb = pgd(
        Towards(model),
        images,
        targets,
        budget=budget,
        draws=draws,
        steps=steps,
        relative_step=relative_step,
        restarts=restarts,
        random_start=random_start,
    )
    yield from hits(climb, model, images, clean_logits, targets) if exact else climb


def cw_t(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    target: str = "least-likely",
    exact: bool = False,
    rounds: int = 6,
    steps: int = 200,
    rate: float = 0.02,
    initial_constant: float = 0.01,
    confidence: float = 0.0,
) -> Proposals:
    """Carlini and Wagner's attack towards a certain class.

    Args:
        model: As for `robustkpca.attacks.cw.cw`.
        images: As there.
        labels: As there.
        budget: As there.
        draws: As there.
        target: As for `pgd_t`.
        exact: As for `pgd_t`.
        rounds: As there.
        steps: As there.
        rate: As there.
        initial_constant: As there.
        confidence: By how many logits the wanted class must lead before the search is content with a constant.

    Yields:
        Candidates as `robustkpca.attacks.cw.cw`; where ``exact``, the unchanged image in place of those that are not of the
        wanted class.

    Raises:
        BadValue: If there is no such ``target``, or as `robustkpca.attacks.cw.cw`.

    Source:
        Carlini and Wagner 2017, arXiv:1608.04644, section VI.
    """
    check_norm(budget)
    options = Options(rounds, steps, rate, initial_constant, confidence)
    clean_logits, targets = _chosen(model, images, labels, target)
    found = search(model, images, targets, budget, options, towards=True)
    yield from hits(found, model, images, clean_logits, targets) if exact else found


class Towards:
    """A model whose gradients are turned round, so that an attack descends where it would climb.

    Args:
        model: Who answers.
    """

    def __init__(self, model: Classifier) -> None:
        self._model = model

    def logits(self, images: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the logits as they are."""
        return self._model.logits(images, rows)

    def value_and_gradient(self, images: Tensor, loss: Loss, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the logits as they are, and the negative gradient."""
        logits, gradient = self._model.value_and_gradient(images, loss, rows)
        return logits, -gradient


def hits(proposals: Proposals, model: Classifier, images: Tensor, clean_logits: Tensor, targets: Tensor) -> Proposals:
    """Pass on what is of the wanted class or has no finite logits, and the unchanged image in place of the rest.

    Args:
        proposals: An attack under way.
        model: Asked about candidates without logits.
        images: ``(N, C, H, W)``, unchanged.
        clean_logits: ``(N, K)`` of the images.
        targets: ``(N,)``, int64, the wanted classes.
    """
    candidate = next(proposals, None)
    while candidate is not None:
        logits = model.logits(candidate.images) if candidate.logits is None else candidate.logits
        shown = (logits.argmax(1) == targets) | ~logits.isfinite().all(1)
        wide = shown.view(-1, *[1] * (images.ndim - 1))
        keep = yield Candidate(
            torch.where(wide, candidate.images, images), torch.where(shown.unsqueeze(1), logits, clean_logits)
        )
        images, clean_logits, targets = keep(images, clean_logits, targets)
        try:
            candidate = proposals.send(keep)
        except StopIteration:
            return


def _chosen(model: Classifier, images: Tensor, labels: Tensor, target: str) -> tuple[Tensor, Tensor]:
    """Return the logits of the images and the wanted classes."""
    if target not in RULES:
        raise BadValue(f"target is {target!r}; expected one of {', '.join(RULES)}")
    logits = model.logits(images)
    return logits, RULES[target](logits, labels)
