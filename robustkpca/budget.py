"""What an adversary may change in one image."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING

from robustkpca.calls import exact
from robustkpca.errors import BadValue

if TYPE_CHECKING:  # annotations only: a budget is read and written without importing torch
    from torch import Tensor

    from robustkpca.draws import Draws

TOLERANCE = 1e-6

MINIMAL = "min"
"""Written in place of a radius: no change is too large, and the smallest that does harm is wanted."""
_UNLIMITED = Fraction(10**12)


class Norm(Enum):
    """How the size of a perturbation is measured."""

    LINF = "linf"
    L2 = "l2"
    L1 = "l1"


@dataclass(frozen=True)
class Budget:
    """What an adversary may change in one image, written ``linf:8/255``.

    Every tensor method takes batches ``(N, ...)`` of float32 or float64 and treats each row by itself.

    Args:
        norm: How the change is measured.
        radius: The largest change allowed; in pixels from 0 to 1 where ``bounded``, in the units of the tensors otherwise.
        bounded: Whether images must also stay in [0, 1]. The ``published`` protocol lifts this; it is not part of the text.
    """

    norm: Norm
    radius: Fraction
    bounded: bool = True

    @classmethod
    def parse(cls, text: str, *, bounded: bool = True) -> Budget:
        """Read ``NORM:RADIUS``; the radius is kept as an exact fraction (``8/255``, ``0.5``, ``2``), or is `MINIMAL`.

        Args:
            text: What was written.
            bounded: Whether images must also stay in [0, 1].

        Raises:
            BadValue: If the norm is unknown, or the radius is no finite number or negative.
        """
        norm, _, radius = text.strip().partition(":")
        if radius.strip() == MINIMAL and norm.strip().lower() in {member.value for member in Norm}:
            return cls(Norm(norm.strip().lower()), _UNLIMITED, bounded)
        try:
            budget = cls(Norm(norm.strip().lower()), exact(radius), bounded)
        except ValueError:
            known = ", ".join(member.value for member in Norm)
            raise BadValue(
                f"budget {text[:40]!r}: expected NORM:RADIUS such as 'linf:8/255', NORM one of {known}"
            ) from None
        if budget.radius < 0:
            raise BadValue(f"budget {text!r}: the radius is negative; expected 0 or more, such as 'linf:8/255'")
        if bounded and budget.norm is Norm.LINF and budget.radius > 1:
            raise BadValue(
                f"budget {text!r}: pixels run from 0 to 1, so a linf radius above 1 changes nothing more; "
                f"did you mean 'linf:{budget.radius}/255'?"
            )
        return budget

    def __str__(self) -> str:
        return f"{self.norm.value}:{MINIMAL if self.minimal else radius_text(self.radius)}"

    @property
    def minimal(self) -> bool:
        """Whether the smallest harmful change is wanted, whatever its size."""
        return self.radius == _UNLIMITED

    @property
    def length(self) -> float:
        """The radius as a float."""
        return float(self.radius)

    def distance(self, images: Tensor, around: Tensor) -> Tensor:
        """Return the size ``(N,)`` of the change from ``around`` to ``images``."""
        return _norm((images - around).flatten(1), self.norm)

    def allows(self, images: Tensor, around: Tensor, distances: Tensor | None = None) -> Tensor:
        """Tell ``(N,)`` which images lie within the budget, up to rounding.

        Allowed are a relative and an absolute error of 1e-6 in the distance and 1e-6 outside [0, 1].

        Args:
            images: ``(N, ...)``.
            around: ``(N, ...)``, where they come from.
            distances: What `distance` says of them, where it is known already.
        """
        distances = self.distance(images, around) if distances is None else distances
        inside = distances <= self.length * (1 + TOLERANCE) + TOLERANCE
        if self.bounded and images.numel():
            flat = images.flatten(1)
            inside &= (flat.amin(1) >= -TOLERANCE) & (flat.amax(1) <= 1 + TOLERANCE)
        return inside

    def steepest(self, gradient: Tensor) -> Tensor:
        """Return the change of size one that increases a linear function of this gradient the most.

        A zero gradient gives a zero step. In L1 the step is shared equally among the entries of largest magnitude.

        Source:
            Madry et al. 2018, section 2.1; the L1 form as in cleverhans 4. A small gradient gives a full step too.
        """
        import torch

        if self.norm is Norm.LINF:
            return gradient.sign()
        flat = gradient.flatten(1)
        if self.norm is Norm.L2:
            tiny = torch.finfo(flat.dtype).tiny
            flat = flat / flat.abs().amax(1, keepdim=True).clamp_min(tiny)  # so that no square underflows
            return (flat / _norm(flat, Norm.L2).clamp_min(tiny).unsqueeze(1)).view_as(gradient)
        magnitude = flat.abs()
        largest = (magnitude == magnitude.amax(1, keepdim=True)).to(flat.dtype) * flat.sign()
        return (largest / largest.abs().sum(1, keepdim=True).clamp_min(1)).view_as(gradient)

    def project(self, images: Tensor, around: Tensor) -> Tensor:
        """Return the images moved into the budget: onto the ball, and where ``bounded`` into [0, 1].

        In L-infinity and L1 this is the nearest allowed image. In L2 the ball comes first and the box second; since
        ``around`` lies in the box, the second step only shortens the change.
        """
        import torch

        change = (images - around).flatten(1)
        if self.norm is Norm.LINF:
            change = change.clamp(-self.length, self.length)
        elif self.norm is Norm.L2:
            size = _norm(change, Norm.L2)
            change = change * (self.length / size.clamp_min(1e-12)).clamp_max(1).unsqueeze(1)
        else:
            centre = around.flatten(1)
            room = torch.where(change > 0, 1 - centre, centre) if self.bounded else torch.full_like(change, torch.inf)
            change = _project_l1(change, room.clamp_min(0), self.length)
        change = change.view_as(images)
        moved = around + change
        if self.norm is not Norm.LINF:  # the sum is rounded; thousands of entries rounded outwards would leave the ball
            outwards = (moved - around).abs() > change.abs()
            moved = moved.where(~outwards, moved.nextafter(around))
        return moved.clamp(0, 1) if self.bounded else moved

    def random_start(self, images: Tensor, draws: Draws) -> Tensor:
        """Return one image drawn uniformly from the ball around each image, then clipped to [0, 1] where ``bounded``."""
        shape = images.shape[1:]
        if self.norm is Norm.LINF:
            return self.project(images + self.length * (2 * draws.uniform(shape, images) - 1), images)
        size = shape.numel()
        if self.norm is Norm.L2:
            direction = self.steepest(draws.normal(shape, images))
        else:
            steps = -(1 - draws.uniform(shape, images)).log() * draws.signs(shape, images)
            direction = steps / _norm(steps.flatten(1), Norm.L1).clamp_min(1e-12).view(-1, *[1] * len(shape))
        reach = self.length * draws.uniform((), images) ** (1 / size)
        return self.project(images + reach.view(-1, *[1] * len(shape)) * direction, images)


def radius_text(radius: Fraction) -> str:
    """Write a radius as people do: ``0.5`` where that is exact, in 255ths where that is exact, else as a fraction."""
    decimal = f"{float(radius):.6f}".rstrip("0").rstrip(".")
    if Fraction(decimal) == radius:
        return decimal
    if 255 % radius.denominator == 0:
        return f"{radius * 255}/255"
    return str(radius)


def _norm(change: Tensor, norm: Norm) -> Tensor:
    if norm is Norm.LINF:
        return change.abs().amax(1) if change.shape[1] else change.new_zeros(len(change))
    import torch

    # summed in float64: in float32 the L1 norm of a photo is off by a thousandth
    size: Tensor = torch.linalg.vector_norm(change, 2 if norm is Norm.L2 else 1, dim=1, dtype=torch.float64)
    return size.to(change.dtype)


def _project_l1(change: Tensor, room: Tensor, radius: float) -> Tensor:
    """Project rows onto the L1 ball of a radius, where no entry may grow beyond its room.

    The nearest point is ``clamp(|change| - t, 0, room)`` with the signs of ``change``, for the smallest ``t >= 0`` whose sum
    is the radius. That sum falls piecewise linearly in ``t``, with a corner where an entry leaves its room and one where it
    reaches zero.

    Source:
        Duchi et al. 2008, "Efficient projections onto the l1-ball for learning in high dimensions"; with a box, Croce and
        Hein 2021, arXiv:2103.01208, proposition 2.1.
    """
    import torch

    size, room = change.abs().double(), room.double()
    corners = torch.cat([(size - room).clamp_min(0), size], dim=1)
    slopes = torch.cat([-torch.ones_like(size), torch.ones_like(size)], dim=1)
    corners, order = corners.sort(dim=1)
    slopes = slopes.gather(1, order).cumsum(1)
    widths = corners.diff(dim=1, prepend=torch.zeros_like(corners[:, :1]))
    before = torch.cat([torch.zeros_like(slopes[:, :1]), slopes[:, :-1]], dim=1)
    sums = torch.minimum(size, room).sum(1, keepdim=True) + (before * widths).cumsum(1)
    reached = (sums > radius).sum(1, keepdim=True).clamp_max(corners.shape[1] - 1)
    excess = sums.gather(1, reached) - radius
    slope = before.gather(1, reached)
    threshold = corners.gather(1, reached) - torch.where(slope < 0, excess / slope, 0)
    moved = torch.minimum((size - threshold.clamp_min(0)).clamp_min(0), room)
    inside = torch.minimum(size, room).sum(1, keepdim=True) <= radius
    return change.sign() * torch.where(inside, torch.minimum(size, room), moved).to(change.dtype)
