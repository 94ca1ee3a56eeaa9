"""What Square Attack changes: squares at corners of the ball in L-infinity, moved masses in L2 and L1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws


@dataclass(frozen=True)
class Chance:
    """The random numbers of several queries of each image, or of single queries, then without the dimension ``Q``.

    Args:
        places: ``(N, Q, 4)``, int64, top, left, top and left of two squares that lie within the image.
        rows: ``(N, Q, H)``, bool, the rows that the first square covers.
        columns: ``(N, Q, W)``, bool, its columns.
        signs: ``(N, Q, 1 + C)``, bool; a coin, and one for each channel.
    """

    places: Tensor
    rows: Tensor
    columns: Tensor
    signs: Tensor

    @classmethod
    def draw(cls, draws: Draws, sides: Tensor, images: Tensor, *, reach_edges: bool) -> Chance:
        """Draw for squares of these sides ``(Q,)``, which may cover the last row and column if they ``reach_edges``."""
        channels, height, width = images.shape[1:]
        sides = sides.to(images.device)
        free = (torch.stack([height - sides, width - sides], dim=1) + int(reach_edges)).clamp_min(1)
        places = draws.integers(free.repeat(1, 2), (len(sides), 4), images)
        signs = draws.signs((len(sides), 1 + channels), images) > 0
        rows = _covered(places[:, :, 0], sides, height)
        return cls(places, rows, _covered(places[:, :, 1], sides, width), signs)

    def at(self, images: Tensor, queries: Tensor) -> Chance:
        """Return the chances of single queries, without the dimension ``Q``.

        Args:
            images: ``(M,)``, int64, whose they are.
            queries: ``(M,)``, int64, which of theirs.
        """
        return Chance(*(part[images, queries] for part in (self.places, self.rows, self.columns, self.signs)))


def _covered(first: Tensor, sides: Tensor, size: int) -> Tensor:
    """Tell ``(N, Q, size)`` which positions lie from ``first`` ``(N, Q)`` on within the side ``(Q,)``."""
    offset = torch.arange(size, device=first.device) - first.unsqueeze(-1)
    return (offset >= 0) & (offset < sides.unsqueeze(-1))


@dataclass(frozen=True)
class Corners:
    """L-infinity: a square goes to the lower or upper end of the budget, each channel as a whole.

    Source:
        Andriushchenko et al. 2020, arXiv:1912.00049, section 3.3 and algorithm 2.
    """

    budget: Budget

    def side(self, wanted: float, largest: int) -> int:
        """Return the side of a square of about the wanted side."""
        return min(max(round(wanted), 1), largest)

    def corners(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the lower and upper ends ``(N, C, H, W)`` of the budget."""
        down, up = images - self.budget.length, images + self.budget.length
        return self.budget.project(down, images), self.budget.project(up, images)

    def start(self, images: Tensor, draws: Draws) -> Tensor:
        """Return vertical stripes, one pixel wide, at either end of the budget."""
        channels, _, width = images.shape[1:]
        return self.budget.project(images + self.budget.length * draws.signs((channels, 1, width), images), images)

    def change(self, images: Tensor, best: Tensor, corners: tuple[Tensor, ...], chance: Chance, side: int) -> Tensor:
        """Return the best points with one square changed, as the chances of single queries say."""
        low, high = corners
        inside = chance.rows.unsqueeze(2) & chance.columns.unsqueeze(1)
        ends = torch.where(chance.signs[:, 1:, None, None], high, low)
        return torch.where(inside.unsqueeze(1), ends, best)


@dataclass(frozen=True)
class Mounds:
    """L2 and L1: the mass of one square is moved into another, with a mound and a hollow added to it.

    Source:
        Andriushchenko et al. 2020, arXiv:1912.00049, section 3.4 and algorithm 3; L1 as in AutoAttack.
    """

    budget: Budget

    def side(self, wanted: float, largest: int) -> int:
        """Return the side of a square of about the wanted side, odd where the image is large enough."""
        side = max(round(wanted), 3)
        return min(side + (side % 2 == 0), largest)

    def corners(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return nothing; these changes do not need any."""
        return ()

    def start(self, images: Tensor, draws: Draws) -> Tensor:
        """Return the images with mounds and hollows in about five by five tiles, on the surface of the budget."""
        channels, height, width = images.shape[1:]
        side = max(min(height, width) // 5, 1)
        down, across = height // side, width // side
        signs = draws.signs((1 + channels, down, across), images)
        upright, lying = self._mounds(side, images)
        tile = torch.where((signs[:, :1] > 0).unsqueeze(-1), upright, lying) * signs[:, 1:].unsqueeze(-1)
        tiles = tile.view(*tile.shape[:4], side, side).transpose(3, 4).flatten(4, 5).flatten(2, 3)
        change = torch.zeros_like(images)
        top, left = (height - down * side) // 2, (width - across * side) // 2
        change[:, :, top : top + down * side, left : left + across * side] = tiles
        return self._placed(images, change)

    def change(self, images: Tensor, best: Tensor, corners: tuple[Tensor, ...], chance: Chance, side: int) -> Tensor:
        """Return the best points with the mass of one square moved, as the chances of single queries say."""
        channels, _, width = images.shape[1:]
        change = (best - images).flatten(2)
        top, left, other_top, other_left = chance.places.unbind(1)
        cells = _cells(side, width, images.device)
        here = ((top * width + left).view(-1, 1, 1) + cells).expand(-1, channels, -1)
        there = ((other_top * width + other_left).view(-1, 1, 1) + cells).expand(-1, channels, -1)
        old = change.gather(2, here)
        left_over = change.scatter(2, here, 0)
        mass = self._power(old)
        windows = mass + self._power(left_over.gather(2, there))
        unused = (self.budget.length**self._exponent - self._power(change).sum(1, keepdim=True)).clamp_min(0)
        upright, lying = self._mounds(side, images)
        coin, signs = chance.signs[:, :1, None], chance.signs[:, 1:, None]
        mound = torch.where(coin, upright, lying)
        new = torch.where(signs, mound, -mound) + old / (1e-12 + self._root(mass))
        wanted = unused / channels + windows
        if self.budget.norm is Norm.L1:
            wanted = wanted * channels  # as in AutoAttack; the projection shares it out again
        new = new * (self._root(wanted) / (1e-12 + self._root(self._power(new))))
        moved = left_over.scatter(2, there, 0).scatter(2, here, new)
        return self._placed(images, moved.view_as(images))

    @property
    def _exponent(self) -> int:
        return 2 if self.budget.norm is Norm.L2 else 1

    def _power(self, change: Tensor) -> Tensor:
        """Return ``(N, C, 1)``, the norm of each channel to the power of the exponent."""
        return (change * change if self.budget.norm is Norm.L2 else change.abs()).sum(2, keepdim=True)

    def _root(self, power: Tensor) -> Tensor:
        return power.sqrt() if self.budget.norm is Norm.L2 else power

    def _placed(self, images: Tensor, change: Tensor) -> Tensor:
        """Return the images with a change; in L2 it gets the length of the radius before [0, 1] cuts it."""
        if self.budget.norm is Norm.L2:
            size = change.flatten(1).norm(dim=1).clamp_min(1e-12)
            change = change * (self.budget.length * (1 + 1e-6) / size).view(-1, 1, 1, 1)
        return self.budget.project(images + change, images)

    def _mounds(self, side: int, like: Tensor) -> Tensor:
        """Return ``(2, side ** 2)``, a mound above a hollow, and the same turned on its side; each of size one."""
        return _mounds(side, 2 if self.budget.norm is Norm.L2 else 4, self._exponent, like.dtype, like.device)


@cache
def _cells(side: int, width: int, device: torch.device) -> Tensor:
    """Return ``(side ** 2,)``, the positions of a square's cells in a flat image, counted from its corner."""
    steps = torch.arange(side, device=device)
    return (steps.unsqueeze(1) * width + steps).flatten()


@cache
def _mounds(side: int, steepness: int, exponent: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return ``(2, side ** 2)``, a mound above a hollow, and the same turned on its side; each of size one."""
    halves = []
    for height in (side // 2, side - side // 2):
        rows, columns = torch.arange(height) - height // 2, torch.arange(side) - side // 2
        ring = torch.maximum(rows.abs().unsqueeze(1), columns.abs())
        rings = max(height, side) // 2 + 1
        layers = (torch.arange(rings) + 1.0) ** -steepness
        half = layers.flip(0).cumsum(0).flip(0)[ring]  # a cell lies in every layer that is at least as wide as its ring
        halves.append(half / torch.linalg.vector_norm(half, exponent).clamp_min(1e-12))
    both = torch.cat([halves[0], -halves[1]])
    both = both / torch.linalg.vector_norm(both, exponent)
    return torch.stack([both.flatten(), both.T.flatten()]).to(device, dtype)
