"""A picture seen from nearer by: cut out of the middle and enlarged to its old size."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy
from numpy.typing import NDArray

from robustkpca.corruptions.pictures import Floats


@dataclass(frozen=True)
class Enlarged:
    """Where the pixels of one side of the enlarged picture lie in the old one.

    Args:
        first: ``(size,)``, int64, the pixel before.
        share: ``(size,)``, float64, how far on the way to the next.
    """

    first: NDArray[numpy.int64]
    share: Floats

    @classmethod
    def by(cls, factor: float, size: int) -> Enlarged:
        """Cut ``size / factor`` pixels out of the middle, and spread them over ``size`` pixels.

        Source:
            Hendrycks and Dietterich 2019, clipped_zoom of the released code: the cut is rounded up, its ends lie on the ends
            of the enlarged side (`scipy.ndimage.zoom`), and what is too long is trimmed from the middle.
        """
        cut = ceil(size / factor)
        start = (size - cut) // 2
        long = round(cut * factor)
        trim = (long - size) // 2
        place = numpy.arange(trim, trim + size) * ((cut - 1) / (long - 1))
        first = numpy.minimum(place.astype(numpy.int64), cut - 1)
        return cls(start + first, place - first)

    def between(self, lines: Floats, steps: Floats) -> Floats:
        """Interpolate between the lines of a plane.

        Args:
            lines: ``(size, length)``, floats.
            steps: Shaped like ``lines``, from each line to the next, see `stepped`.
        """
        made = steps.take(self.first, 0)
        made *= self.share.astype(lines.dtype)[:, None]
        made += lines.take(self.first, 0)
        return made


def stepped(lines: Floats) -> Floats:
    """Return the way from each line to the next, shaped like ``lines``; zero for the last."""
    steps = numpy.empty_like(lines)
    numpy.subtract(lines[1:], lines[:-1], out=steps[:-1])
    steps[-1] = 0
    return steps


def enlarged(plane: Floats, factor: float) -> Floats:
    """Enlarge the middle of a plane ``(H, W)`` linearly, by a factor of at least 1."""
    columns = Enlarged.by(factor, plane.shape[1]).between(plane.T, stepped(plane.T))
    lines = numpy.ascontiguousarray(columns.T)
    return Enlarged.by(factor, plane.shape[0]).between(lines, stepped(lines))
