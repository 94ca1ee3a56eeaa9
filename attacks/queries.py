"""What attacks need that ask for many logits of every image: whom a query belongs to, and memory that stays bounded."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

ENTRIES_AT_ONCE = 1 << 22
"""How many pixels of perturbed images exist at a time."""


def portions(total: int, size: int) -> list[int]:
    """Split a number of queries for one image into portions that fit into memory.

    They depend on nothing but the image, so that its random numbers do not depend on its batch.

    Args:
        total: How many queries are meant for one image.
        size: Pixels of one query.
    """
    most = max(1, ENTRIES_AT_ONCE // (8 * size))
    return [min(most, total - start) for start in range(0, total, most)]


def blocks(count: int, entries: int, device: torch.device) -> Iterator[Tensor]:
    """Split the images into blocks that fit into memory; yield the positions ``(M,)`` of each.

    Args:
        count: How many images there are.
        entries: Pixels that are needed for one image.
        device: Where the positions are wanted.
    """
    most = max(1, ENTRIES_AT_ONCE // entries)
    for start in range(0, count, most):
        yield torch.arange(start, min(start + most, count), device=device)
