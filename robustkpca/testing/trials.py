"""What a contract is tried on: random images and a small network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustkpca.draws import Draws


def random_images(samples: int, channels: int, size: int) -> Tensor:
    """Return ``(samples, channels, size, size)`` in [0, 1], the same every time."""
    ids = [str(index) for index in range(samples)]
    return Draws.of(ids, seed=0, threat="images").uniform((channels, size, size), torch.zeros(samples))


def small_network(channels: int, size: int, classes: int) -> nn.Module:
    """Return a convolutional network in training mode, with the same random weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(channels, 6, 3, stride=2, padding=1),
            nn.BatchNorm2d(6),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(6 * (size // 2) ** 2, classes),
        ).train()


def hold(condition: bool, what: str) -> None:
    """Raise an ``AssertionError`` that says what does not hold."""
    if not condition:
        raise AssertionError(what)
