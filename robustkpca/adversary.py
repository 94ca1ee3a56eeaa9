"""What a plug-in is: the shape of an attack, of a corruption and of the model they meet.

An attack proposes, the judge decides. An attack is a generator: it yields `Candidate`s and gets back a `Keep`, which
narrows whatever the attack holds to the images that still stand.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor

from robustkpca.budget import Budget
from robustkpca.draws import Draws

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Loss:
    """A number per image that an attack wants to increase.

    Args:
        function: Maps logits ``(N, K)`` and the rows to ``(N,)``.
        rows: Tensors ``(N, ...)`` that belong to the images, such as labels; they are split along with them.
    """

    function: Callable[..., Tensor]
    rows: tuple[Tensor, ...] = ()

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the loss of each image ``(N,)``."""
        return self.function(logits, *self.rows)

    def narrow(self, index: Tensor) -> Loss:
        """Keep the rows at these positions ``(M,)``."""
        return Loss(self.function, tuple(row[index.to(row.device)] for row in self.rows))


def cross_entropy(labels: Tensor) -> Loss:
    """Cross-entropy of the softmax against ``labels`` ``(N,)``, int64."""
    return Loss(lambda logits, target: torch.nn.functional.cross_entropy(logits, target, reduction="none"), (labels,))


class Classifier(Protocol):
    """What an attack sees of a model.

    Passes are counted for the image that asks for them. One query for each standing image, or a whole multiple of that, in
    their order, needs no more; any other number says in ``rows`` ``(M,)``, int64, which of them each query belongs to.
    """

    def logits(self, images: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return ``(M, K)`` for images ``(M, C, H, W)`` in [0, 1], without a graph."""
        ...

    def value_and_gradient(self, images: Tensor, loss: Loss, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the logits ``(M, K)`` and the gradient of each image's loss, shaped like ``images``."""
        ...


@dataclass(frozen=True)
class Candidate:
    """A proposal for every image that still stands.

    Args:
        images: ``(N, C, H, W)``, in the order of the images the attack holds.
        logits: What the model says of them, where the attack knows it already; saves the judge a forward pass.
    """

    images: Tensor
    logits: Tensor | None = None


class Keep:
    """Narrows tensors, dataclasses, containers and draws to the images that still stand.

    Numbers, texts, functions and ``None`` pass through. Where nobody left, everything is returned as it is, uncopied.
    """

    def __init__(self, standing: Tensor) -> None:
        self.index = None if bool(standing.all()) else standing.nonzero().squeeze(1)

    def __call__(self, *things: Any) -> Any:
        """Narrow one thing, or several into a tuple."""
        if self.index is None:
            return things[0] if len(things) == 1 else things
        narrowed = tuple(narrow(thing, self.index) for thing in things)
        return narrowed[0] if len(narrowed) == 1 else narrowed


def narrow(thing: Thing, index: Tensor) -> Thing:
    """Keep the rows at these positions in a tensor, or in everything that a container or dataclass holds.

    Args:
        thing: Tensors are taken along their first dimension, except those without one.
        index: ``(M,)``, int64.
    """
    if isinstance(thing, Tensor):
        return cast(Thing, thing[index.to(thing.device)] if thing.ndim else thing)
    if hasattr(thing, "narrow"):
        return cast(Thing, thing.narrow(index))
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        fields = {
            field.name: narrow(getattr(thing, field.name), index) for field in dataclasses.fields(thing) if field.init
        }
        return cast(Thing, dataclasses.replace(thing, **fields))
    if isinstance(thing, dict):
        return cast(Thing, {key: narrow(value, index) for key, value in thing.items()})
    if isinstance(thing, tuple | list):
        items = [narrow(item, index) for item in thing]
        return cast(Thing, type(thing)(*items) if hasattr(thing, "_fields") else type(thing)(items))
    return thing


Proposals: TypeAlias = Generator[Candidate, Keep, None]


@runtime_checkable
class Attack(Protocol):
    """Search for a harmful change: a generator of candidates, or a plain function that returns images."""

    def __call__(
        self, model: Any, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws, **options: Any
    ) -> Any:
        """Propose candidates shaped like ``images``."""
        ...


class Corruption(Protocol):
    """Change images without looking at the model."""

    def __call__(self, images: Tensor, *, severity: int, draws: Draws) -> Tensor:
        """Return images ``(N, C, H, W)``, uint8, for a severity from 1 to 5."""
        ...


def lifted(attack: Callable[..., Any]) -> Callable[..., Proposals]:
    """Return the attack as a generator; a plain function proposes what it returns, once."""
    if inspect.isgeneratorfunction(attack):
        return attack

    def proposing(model: Classifier, images: Tensor, labels: Tensor, **options: Any) -> Proposals:
        made = attack(model, images, labels, **options)
        if inspect.isgenerator(made):
            yield from made
        else:
            yield Candidate(made)

    return proposing
