"""Pictures to corrupt, and the streams of the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustkpca.corruptions import noise
from robustkpca.draws import Draws

Array = NDArray[Any]


class Legacy:
    """Answers as the reference draws: from NumPy's old generator, colours last."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def standard_normal(self, shape: tuple[int, ...], dtype: Any = None) -> Array:
        return _colours_first(shape, self.generator.standard_normal)

    def random(self, shape: tuple[int, ...], dtype: Any = None) -> Array:
        return _colours_first(shape, self.generator.random)

    def normal(self, loc: float, scale: float, size: tuple[int, ...]) -> Array:
        drawn: Array = self.generator.normal(loc, scale, size)
        return drawn

    def uniform(self, low: float, high: float, size: tuple[int, ...] | None = None) -> Any:
        return self.generator.uniform(low, high, size)

    def integers(self, low: int, high: int, size: Any = None, dtype: Any = None) -> Any:
        return self.generator.randint(low, high, size=size)

    def poisson(self, rates: Array) -> Array:
        return _colours_first(rates.shape, lambda shape: self.generator.poisson(numpy.moveaxis(rates, 0, -1)))


@dataclass
class LegacyDraws(Draws):
    """Streams of the reference, one for each seed."""

    seeds: tuple[int, ...] = ()

    @classmethod
    def of_seeds(cls, *seeds: int) -> LegacyDraws:
        return cls(torch.zeros(len(seeds), 2, dtype=torch.int64), 0, seeds)

    def generators(self) -> Any:
        return [Legacy(numpy.random.RandomState(seed)) for seed in self.seeds]


def _colours_first(shape: tuple[int, ...], draw: Callable[[tuple[int, ...]], Array]) -> Array:
    return draw(shape) if len(shape) < 3 else numpy.moveaxis(draw((*shape[1:], shape[0])), -1, 0).copy()


def photons_of_the_reference(picture: Array, full: int, generator: Any) -> Array:
    """Draw the counts with NumPy's Poisson generator; above ``full`` all are the same white."""
    counts: Array = numpy.minimum(generator.poisson(picture / 255.0 * full), full)
    return counts


def drawn_picture(height: int, width: int, seed: int = 0) -> Tensor:
    """A picture ``(3, H, W)`` of smooth colours, edges, a black and a white patch."""
    rows, columns = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    waves = [torch.sin(6.3 * (a * rows + b * columns) + seed) for a, b in ((1, 0.5), (0.3, 2), (1.5, 1.5))]
    values = 0.5 + 0.3 * torch.stack(waves)
    values[0, height // 4 : height // 2, width // 4 :] += 0.3
    values[:, : height // 5, : width // 5] = 0
    values[:, -(height // 5) :, -(width // 5) :] = 1
    return (values.clamp(0, 1) * 255).to(torch.uint8)


@pytest.fixture
def legacy() -> type[Legacy]:
    return Legacy


@pytest.fixture
def legacy_draws() -> type[LegacyDraws]:
    return LegacyDraws


@pytest.fixture
def true_photons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets shot noise count with NumPy's Poisson generator."""
    monkeypatch.setattr(noise, "photons", photons_of_the_reference)


@pytest.fixture
def picture() -> Callable[..., Tensor]:
    return drawn_picture


@pytest.fixture
def photo() -> Tensor:
    """One picture of 72 x 80 pixels, as a batch."""
    return drawn_picture(72, 80)[None]


@pytest.fixture
def small() -> Tensor:
    """One picture of 32 x 32 pixels, as a batch."""
    return drawn_picture(32, 32)[None]
