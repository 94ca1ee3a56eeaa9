"""A corruption that draws."""

from __future__ import annotations

import torch
from torch import Tensor

from robustkpca.draws import Draws

LIGHT = (0.9, 0.75, 0.6, 0.45, 0.3)


def dim(images: Tensor, *, severity: int, draws: Draws, grain: float = 4.0) -> Tensor:
    """Darken images ``(N, C, H, W)``, uint8, and add grain with this standard deviation, of 255."""
    noise = draws.normal(images.shape[1:], torch.zeros(len(images)))
    return (images.float() * LIGHT[severity - 1] + grain * noise).round().clamp(0, 255).to(torch.uint8)
