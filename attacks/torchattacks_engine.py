"""The attacks of the torchattacks package under its own names, as attacks of ours.

The package is an extra. Its wheel also holds an old copy of the folder of another package, robustbench, and pip lets the
last one win in silence; nothing of that copy is used here, but whoever needs both has to mend the folder, and is told how.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from robustkpca.adversary import Classifier
from robustkpca.attacks.engines import TORCHATTACKS
from robustkpca.attacks.foreign import ForeignModule, contained, shard_seed
from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.errors import BadValue, Unusable
from robustkpca.installed import damage, installed

RADII = ("eps", "max_epsilon")
"""What the package calls the radius."""
OURS = frozenset({"self", "model", "norm", "n_classes", "seed", "verbose", *RADII})
"""Arguments that follow from the threat, the model and the seed; the others are options."""
_NORMS = {Norm.LINF: "Linf", Norm.L2: "L2"}

log = logging.getLogger("robustkpca")


def __getattr__(name: str) -> Callable[..., Tensor]:
    """Return one attack of the package as a function; see `adapted`."""
    if f"torchattacks/{name}" not in TORCHATTACKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return adapted(name)


@cache
def adapted(name: str) -> Callable[..., Tensor]:
    """Return an attack of torchattacks as a plain function that returns images.

    The function takes what every attack takes, and the package's own options under their own names. The package's step size
    ``alpha`` has an absolute default in pixels, whatever the radius.

    Args:
        name: As in `robustkpca.attacks.engines`.

    Raises:
        Unusable: If the package is not installed.
    """
    kind = getattr(_package(), name)
    parameters = inspect.signature(kind.__init__).parameters
    radius = next((radius for radius in RADII if radius in parameters), "")
    given = [parameter for parameter in inspect.signature(_run).parameters.values() if parameter.name in _GIVEN]
    options = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in parameters.values()
        if parameter.name not in OURS
    ]

    def attack(
        model: Classifier, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws, **chosen: Any
    ) -> Tensor:
        return _run(model, images, labels, budget=budget, draws=draws, kind=kind, radius=radius, options=chosen)

    attack.__name__ = attack.__qualname__ = name
    attack.__doc__ = f"{name} of torchattacks {installed('torchattacks')}; see `adapted`."
    attack.__signature__ = inspect.Signature([*given, *options])  # type: ignore[attr-defined]
    return attack


_GIVEN = ("model", "images", "labels", "budget", "draws")


def _package() -> Any:
    """Import the package, and say where it has damaged another one."""
    if not installed("torchattacks"):
        raise Unusable(
            "torchattacks is not installed; it is an extra of its own: pip install 'robustkpca[torchattacks]', or "
            "pip install --no-deps torchattacks==3.5.1 to keep your version of requests"
        )
    import torchattacks

    found = damage("robustbench")
    if found is not None:
        log.warning("%s. torchattacks itself does not need it", found)
    return torchattacks


def _run(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    kind: Any,
    radius: str,
    options: dict[str, Any],
) -> Tensor:
    """Run an attack of the package on all images at once.

    Args:
        model: Maps images in [0, 1] to logits ``(N, K)``; it normalises inside.
        images: ``(N, C, H, W)``, float, in [0, 1]; the package computes in float32.
        labels: ``(N,)``, int64, the true classes.
        budget: Its radius goes to the package where the attack takes one. Otherwise a change that is larger than the radius
            is given up, as is usual for attacks that look for a small change.
        draws: Give one seed for all images together.
        kind: The class.
        radius: What it calls the radius, empty where it takes none.
        options: Its own options.

    Raises:
        BadValue: If the package refuses an option.
    """
    parameters = inspect.signature(kind.__init__).parameters
    foreign = ForeignModule(model, images)
    seed = shard_seed(draws, images)
    arguments = options | ({radius: budget.length} if radius else {})
    if "norm" in parameters:
        arguments["norm"] = _NORMS[budget.norm]
    if "seed" in parameters:
        arguments["seed"] = seed
    points = images.float().contiguous()
    with contained(seed, images.device):
        if "n_classes" in parameters:
            with torch.no_grad():
                arguments["n_classes"] = foreign(points).shape[1]
        try:
            attack = kind(foreign, **arguments)
        except (TypeError, ValueError, AssertionError) as error:
            raise BadValue(f"torchattacks/{kind.__name__} does not take {options}: {error}") from error
        changed: Tensor = attack(points, labels).detach()
    if not radius:
        changed = torch.where(_wide(budget.allows(changed, points), changed), changed, points)
    return torch.where(changed == points, images, changed.to(images.dtype))


def _wide(rows: Tensor, like: Tensor) -> Tensor:
    return rows.view(-1, *[1] * (like.ndim - 1))
