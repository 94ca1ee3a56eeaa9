"""Clouds by the diamond-square algorithm."""

from __future__ import annotations

import numpy
from numpy.random import Generator

from robustkpca.corruptions.pictures import Floats


def plasma(size: int, decay: float, generator: Generator) -> Floats:
    """Return a height map ``(size, size)``, float64, from 0 to 1, whose edges fit to each other.

    Args:
        size: A power of two.
        decay: By which the disturbance is divided whenever the step is halved; the larger the smoother.
        generator: The picture's own.

    Source:
        Fournier et al. 1982; in the form that Hendrycks and Dietterich 2019 took over: middles of squares, then the two
        middles of sides; disturbances uniform, their width the square of a number that starts at 100.
    """
    heights = numpy.zeros((size, size))
    width, step = 100.0, size
    while step >= 2:
        half = step // 2

        def disturbed(total: Floats, width: float = width) -> Floats:
            noise = generator.uniform(-width, width, total.shape)
            noise *= width
            noise += total / 4
            return noise

        corners = heights[::step, ::step]
        sums = corners + numpy.roll(corners, -1, axis=0)
        sums += numpy.roll(sums, -1, axis=1)
        middles = disturbed(sums)
        heights[half::step, half::step] = middles
        heights[::step, half::step] = disturbed(
            (middles + numpy.roll(middles, 1, axis=0)) + (corners + numpy.roll(corners, -1, axis=1))
        )
        heights[half::step, ::step] = disturbed(
            (middles + numpy.roll(middles, 1, axis=1)) + (corners + numpy.roll(corners, -1, axis=0))
        )
        step = half
        width /= decay
    heights -= heights.min()
    heights /= heights.max()
    return heights
