"""Towards which classes a targeted attack goes, and how it goes to several of them side by side."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Keep
from robustkpca.attacks.losses import best_other

HELD_ENTRIES = 8 * 3 * 32 * 32
"""About this many entries of one image are held for targets that are tried together.

Part of an attack's definition: it decides in which order targets are tried, never by the number of images.
"""


def other_classes(logits: Tensor, labels: Tensor, count: int) -> Tensor:
    """Return ``(N, M)``, the other classes from the most likely on; M is ``count`` or all there are.

    Args:
        logits: ``(N, K)``.
        labels: ``(N,)``, int64, the classes that are left out.
        count: How many are wanted.
    """
    order = logits.scatter(1, labels.unsqueeze(1), -torch.inf).argsort(dim=1, descending=True)
    return order[:, : min(count, logits.shape[1] - 1)]


def together(images: Tensor) -> int:
    """Return how many targets are tried together."""
    return max(1, HELD_ENTRIES // images[0].numel()) if len(images) else 1


def groups(count: int, images: Tensor) -> list[range]:
    """Split the ranks of targets into those tried together: the most likely one alone, since it often suffices."""
    size = together(images)
    return [range(1)] + [range(first, min(first + size, count)) for first in range(1, count, size)]


def tiled(things: Tensor) -> Tensor:
    """Return ``(T * N, ...)``, first of all images, then second, of ``(N, T, ...)``; a model counts them this way."""
    return things.transpose(0, 1).flatten(0, 1)


def untiled(things: Tensor, count: int) -> Tensor:
    """Return ``(N, T, ...)`` of what was tiled ``count`` times."""
    return torch.unflatten(things, 0, (count, -1)).transpose(0, 1)


def picked(things: Tensor, index: Tensor) -> Tensor:
    """Return ``(N, ...)``, from every row of ``(N, T, ...)`` the entry at its index ``(N,)``."""
    return things[torch.arange(len(things), device=things.device), index]


def side_by_side(
    proposals: Generator[Candidate, Keep, Any], held: tuple[Any, ...], count: int
) -> Generator[Candidate, Keep, tuple[Any, ...]]:
    """Turn one attack on tiled images into one on the images: of every image the most harmful point is proposed.

    An image leaves with all its tiles. What cannot be judged is proposed first, so that the judge sees it.

    Args:
        proposals: An attack on ``T * N`` images, whose candidates carry logits.
        held: Images ``(N, C, H, W)`` and labels ``(N,)`` first, and what else is narrowed with them; returned in the end.
        count: How often the images are tiled.
    """
    candidate = next(proposals)
    while True:
        assert candidate.logits is not None
        labels = held[1]
        points, logits = untiled(candidate.images, count), untiled(candidate.logits, count)
        own = labels.unsqueeze(1).expand(-1, count)
        flat, flat_own = logits.flatten(0, 1), own.flatten()
        margin = (flat.gather(1, flat_own.unsqueeze(1)).squeeze(1) - best_other(flat, flat_own)).view_as(own)
        shown = (logits.argmax(2) != own) | ~logits.isfinite().all(2)
        pick = torch.where(shown.any(1), shown.to(torch.uint8).argmax(1), margin.argmin(1))
        keep = yield Candidate(picked(points, pick), picked(logits, pick))
        standing = torch.ones(len(labels), dtype=torch.bool, device=labels.device)
        if keep.index is not None:
            standing = torch.zeros_like(standing).index_fill(0, keep.index, True)
        held = keep(*held)
        try:
            candidate = proposals.send(Keep(standing.repeat(count)))
        except StopIteration:
            return held
