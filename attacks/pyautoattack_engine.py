"""The pyautoattack package, the authors' own AutoAttack, as attacks of ours: the reference beside which ours are held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from robustkpca.adversary import Classifier
from robustkpca.attacks.foreign import ForeignModule, contained, shard_seed
from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.errors import BadValue

VERSIONS = ("standard", "plus", "rand")
_NORMS = {Norm.LINF: "Linf", Norm.L2: "L2", Norm.L1: "L1"}


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
) -> Tensor:
    """Auto-PGD on the cross-entropy, as the package runs it.

    Args:
        model: Maps images in [0, 1] to logits ``(N, K)``; it normalises inside.
        images: ``(N, C, H, W)``, float, in [0, 1]; the package computes in float32.
        labels: ``(N,)``, int64, the true classes.
        budget: What may be changed.
        draws: Give one seed for all images together, see `robustkpca.attacks.foreign.shard_seed`.
        steps: Gradient steps of each restart.
        restarts: Random starts, on what still stands.
        rho: Share of steps in which the loss has to grow, else the step halves.
        eot: Gradients averaged for each step.

    Returns:
        Images shaped like ``images``: harmful ones, and the originals where the package found none.

    Raises:
        BadValue: If ``steps``, ``restarts`` or ``eot`` is below 1.

    Source:
        Croce and Hein 2020, arXiv:2003.01690, as in pyautoattack, in L1 with the larger radii first.
    """
    _at_least_one("apgd_ce", steps=steps, restarts=restarts, eot=eot)

    def set_up(auto: Any, foreign: ForeignModule, classes: int) -> list[str]:
        auto.apgd = _apgd(auto, foreign, budget, steps=steps, restarts=restarts, rho=rho, eot=eot)
        return ["apgd-ce"]

    return _run(model, images, labels, budget, draws, set_up)


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
) -> Tensor:
    """Auto-PGD on the difference of logits ratio, as the package runs it.

    Args:
        model: As for `apgd_ce`, with at least 3 classes.
        images: As for `apgd_ce`.
        labels: As for `apgd_ce`.
        budget: As for `apgd_ce`.
        draws: As for `apgd_ce`.
        steps: As for `apgd_ce`.
        restarts: As for `apgd_ce`.
        rho: As for `apgd_ce`.
        eot: As for `apgd_ce`.

    Returns:
        Images as `apgd_ce`.

    Raises:
        BadValue: As `apgd_ce`, or if the model has fewer than 3 classes.

    Source:
        Croce and Hein 2020, arXiv:2003.01690, equation 6, as in pyautoattack.
    """
    _at_least_one("apgd_dlr", steps=steps, restarts=restarts, eot=eot)

    def set_up(auto: Any, foreign: ForeignModule, classes: int) -> list[str]:
        _enough("apgd_dlr", classes, 3)
        auto.apgd = _apgd(auto, foreign, budget, steps=steps, restarts=restarts, rho=rho, eot=eot)
        return ["apgd-dlr"]

    return _run(model, images, labels, budget, draws, set_up)


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
) -> Tensor:
    """Auto-PGD towards each of the most likely other classes, as the package runs it.

    Args:
        model: As for `apgd_ce`, with at least 4 classes.
        images: As for `apgd_ce`.
        labels: As for `apgd_ce`.
        budget: As for `apgd_ce`.
        draws: As for `apgd_ce`.
        steps: Gradient steps towards each target.
        restarts: Random starts for each target.
        targets: Other classes that are tried; at most all, where the package itself would stop with an error.
        rho: As for `apgd_ce`.
        eot: As for `apgd_ce`.

    Returns:
        Images as `apgd_ce`.

    Raises:
        BadValue: As `apgd_ce`, if ``targets`` is below 1, or if the model has fewer than 4 classes.

    Source:
        Croce and Hein 2020, arXiv:2003.01690, equation 7, as in pyautoattack.
    """
    _at_least_one("apgd_t", steps=steps, restarts=restarts, targets=targets, eot=eot)

    def set_up(auto: Any, foreign: ForeignModule, classes: int) -> list[str]:
        _enough("apgd_t", classes, 4)
        auto.apgd_targeted = _apgd(
            auto,
            foreign,
            budget,
            steps=steps,
            restarts=restarts,
            rho=rho,
            eot=eot,
            n_target_classes=min(targets, classes - 1),
        )
        return ["apgd-t"]

    return _run(model, images, labels, budget, draws, set_up)


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
) -> Tensor:
    """FAB, as the package runs it.

    Args:
        model: As for `apgd_ce`.
        images: As for `apgd_ce`.
        labels: As for `apgd_ce`.
        budget: As for `apgd_ce`.
        draws: As for `apgd_ce`.
        steps: Steps of each restart; each costs a gradient for every class.
        restarts: Starts: the image, then random points.
        alpha_max: Largest weight of the image's own projection.
        eta: How far beyond the hyperplane a step goes.
        beta: Share of the change kept on the way back.

    Returns:
        Images as `apgd_ce`.

    Raises:
        BadValue: If ``steps`` or ``restarts`` is below 1.

    Source:
        Croce and Hein 2020, arXiv:1907.02044, as in pyautoattack.
    """
    _at_least_one("fab", steps=steps, restarts=restarts)

    def set_up(auto: Any, foreign: ForeignModule, classes: int) -> list[str]:
        _set(auto.fab, n_iter=steps, n_restarts=restarts, alpha_max=alpha_max, eta=eta, beta=beta)
        return ["fab"]

    return _run(model, images, labels, budget, draws, set_up)


def fab_t(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    targets: int = 9,
    steps: int = 100,
    alpha_max: float = 0.1,
    eta: float = 1.05,
    beta: float = 0.9,
) -> Tensor:
    """FAB towards each of the most likely other classes, as the package runs it: one start for each.

    Args:
        model: As for `apgd_ce`.
        images: As for `apgd_ce`.
        labels: As for `apgd_ce`.
        budget: As for `apgd_ce`.
        draws: As for `apgd_ce`.
        targets: Other classes that are tried; at most all.
        steps: Steps towards each target.
        alpha_max: As for `fab`.
        eta: As for `fab`.
        beta: As for `fab`.

    Returns:
        Images as `apgd_ce`.

    Raises:
        BadValue: If ``steps`` or ``targets`` is below 1.

    Source:
        Croce and Hein 2020, arXiv:1907.02044 and arXiv:2003.01690, as in pyautoattack.
    """
    _at_least_one("fab_t", steps=steps, targets=targets)

    def set_up(auto: Any, foreign: ForeignModule, classes: int) -> list[str]:
        count = min(targets, classes - 1)
        _set(auto.fab, n_iter=steps, n_target_classes=count, alpha_max=alpha_max, eta=eta, beta=beta)
        return ["fab-t"]

    return _run(model, images, labels, budget, draws, set_up)


def square(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    queries: int = 5000,
    p_init: float = 0.8,
    restarts: int = 1,
    rescale: bool = False,
) -> Tensor:
    """Square Attack, as the package runs it.

    Args:
        model: As for `apgd_ce`.
        images: As for `apgd_ce`.
        labels: As for `apgd_ce`.
        budget: As for `apgd_ce`.
        draws: As for `apgd_ce`.
        queries: Forward passes of each restart.
        p_init: Share of the pixels that the first squares cover, above 0 and at most 1.
        restarts: Random starts, on what still stands.
        rescale: Whether the squares shrink over ``queries`` instead of over 10,000 queries.

    Returns:
        Images as `apgd_ce`.

    Raises:
        BadValue: If ``queries`` or ``restarts`` is below 1, or ``p_init`` does not lie in (0, 1].

    Source:
        Andriushchenko et al. 2020, arXiv:1912.00049, as in pyautoattack.
    """
    _at_least_one("square", queries=queries, restarts=restarts)
    if not 0 < p_init <= 1:
        raise BadValue(f"pyautoattack/square: p_init must lie above 0 and be at most 1, got {p_init}")

    def set_up(auto: Any, foreign: ForeignModule, classes: int) -> list[str]:
        _set(auto.square, n_queries=queries, p_init=p_init, n_restarts=restarts, rescale_schedule=rescale)
        return ["square"]

    return _run(model, images, labels, budget, draws, set_up)


def autoattack(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    version: str = "standard",
) -> Tensor:
    """AutoAttack as a whole, as the package runs it.

    Args:
        model: As for `apgd_ce`, with at least 4 classes, for ``rand`` at least 3.
        images: As for `apgd_ce`.
        labels: As for `apgd_ce`.
        budget: As for `apgd_ce`.
        draws: As for `apgd_ce`.
        version: ``standard``, ``plus``, or ``rand`` for models with random output.

    Returns:
        Images as `apgd_ce`.

    Raises:
        BadValue: If there is no such version, or the model has too few classes.

    Source:
        Croce and Hein 2020, arXiv:2003.01690, as in pyautoattack. Deliberate difference: with fewer than 10 classes all other
        classes are targets, where the package itself would stop with an error.
    """
    if version not in VERSIONS:
        raise BadValue(f"pyautoattack/autoattack: version is {version!r}; expected one of {', '.join(VERSIONS)}")

    def set_up(auto: Any, foreign: ForeignModule, classes: int) -> list[str]:
        _enough(f"autoattack(version={version})", classes, 3 if version == "rand" else 4)
        auto.version = version
        auto._set_version(version)
        for member in (auto.apgd_targeted, auto.fab):
            member.n_target_classes = min(member.n_target_classes, classes - 1)
        return list(auto.attacks_to_run)

    return _run(model, images, labels, budget, draws, set_up)


def _run(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    budget: Budget,
    draws: Draws,
    set_up: Callable[[Any, ForeignModule, int], list[str]],
) -> Tensor:
    """Run the package on all images at once.

    Args:
        model: As for `apgd_ce`.
        images: As for `apgd_ce`.
        labels: As for `apgd_ce`.
        budget: As for `apgd_ce`.
        draws: As for `apgd_ce`.
        set_up: Sets the members of an ``AutoAttack`` for this many classes, and names those that run.
    """
    from pyautoattack import AutoAttack

    if budget.radius == 0:
        return images  # the package divides by the radius
    foreign = ForeignModule(model, images)
    with torch.no_grad():
        classes = foreign(images).shape[1]
    seed = shard_seed(draws, images)
    points = images.float().contiguous()
    with contained(seed, images.device, "auto-attack"):
        auto = AutoAttack(
            foreign,
            attacks=[],
            version="custom",
            norm=_NORMS[budget.norm],
            eps=budget.length,
            seed=seed,
            device=images.device,
        )
        auto.attacks_to_run = set_up(auto, foreign, classes)
        changed: Tensor = auto.run_standard_evaluation(points, labels, batch_size=len(points))[0]
    return torch.where(changed == points, images, changed.to(images.dtype))


def _apgd(auto: Any, foreign: ForeignModule, budget: Budget, *, steps: int, restarts: int, **options: Any) -> Any:
    """Return a new APGD member, a targeted one where the number of targets is given; its schedule is made once."""
    from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted

    kind = APGDAttack_targeted if "n_target_classes" in options else APGDAttack
    options["eot_iter"] = options.pop("eot")
    return kind(
        foreign,
        n_iter=steps,
        n_restarts=restarts,
        norm=_NORMS[budget.norm],
        eps=budget.length,
        device=auto.device,
        logger=auto.logger,
        use_largereps=budget.norm is Norm.L1,
        **options,
    )


def _set(member: Any, **values: Any) -> None:
    for name, value in values.items():
        assert hasattr(member, name), f"{type(member).__name__} of pyautoattack has no {name}"
        setattr(member, name, value)


def _at_least_one(name: str, **values: int) -> None:
    for option, value in values.items():
        if value < 1:
            raise BadValue(f"pyautoattack/{name}: {option} must be at least 1, got {value}")


def _enough(name: str, classes: int, wanted: int) -> None:
    if classes < wanted:
        raise BadValue(
            f"pyautoattack/{name} needs a model with at least {wanted} classes, this one has {classes}; "
            "choose another attack, such as pyautoattack/apgd_ce"
        )
