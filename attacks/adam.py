"""Adam as a value, for attacks whose state narrows with the images that still stand."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Adam:
    """Running moments of the gradients; one row per image.

    Args:
        mean: ``(N, ...)``, of the gradients.
        square: ``(N, ...)``, of their squares.
        steps: How many gradients were seen.

    Source:
        Kingma and Ba 2015, arXiv:1412.6980, algorithm 1, with its default decay rates.
    """

    mean: Tensor
    square: Tensor
    steps: int = 0

    DECAY = (0.9, 0.999)
    EPSILON = 1e-8

    @classmethod
    def before(cls, like: Tensor) -> Adam:
        """Return the state before the first gradient, which will be shaped like this."""
        return cls(torch.zeros_like(like), torch.zeros_like(like))

    def after(self, gradient: Tensor) -> Adam:
        """Return the state with one more gradient."""
        fast, slow = self.DECAY
        mean = self.mean.lerp(gradient, 1 - fast)
        return Adam(mean, (self.square * slow).addcmul(gradient, gradient, value=1 - slow), self.steps + 1)

    def descended(self, points: Tensor, rate: float) -> Tensor:
        """Return the points after a step of descent along the moments.

        Args:
            points: ``(N, ...)``.
            rate: About the change of an entry in one step.
        """
        fast, slow = (1 - decay**self.steps for decay in self.DECAY)
        spread = (self.square.sqrt() / slow**0.5) + self.EPSILON
        return points.addcdiv(self.mean, spread, value=-rate / fast)
