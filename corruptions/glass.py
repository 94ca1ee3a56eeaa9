"""The shuffle of neighbouring pixels that ribbed glass stands for, without its loop over pixels."""

from __future__ import annotations

import numpy
from numpy.random import Generator

from robustkpca.corruptions.pictures import Picture


def shuffled(picture: Picture, reach: int, rounds: int, generator: Generator) -> Picture:
    """Let pixel after pixel copy a random neighbour, from the last pixel to the first.

    A pixel whose neighbour had its turn before gets what that one had become, so that a colour can travel far. The chains
    of copies are followed for all pixels at once, each look twice as far as the one before.

    Args:
        picture: ``(C, H, W)``, uint8.
        reach: A neighbour is ``-reach`` to ``reach - 1`` rows and columns away.
        rounds: How often all pixels have their turn.
        generator: The picture's own; it draws steps ``(columns, rows)`` of each pixel, in the order of their turns.

    Source:
        Hendrycks and Dietterich 2019, glass_blur of the released code. What looks like an exchange of two pixels there copies
        one, since both sides are views of one array. Pixels nearer to the border than ``reach`` have no turn.
    """
    height, width = picture.shape[1:]
    inside = (slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1))
    here = numpy.arange(height * width)
    further = numpy.empty_like(here)
    flat = picture.reshape(-1, height * width)
    for _ in range(rounds):
        steps = generator.integers(-reach, reach, size=(height - 2 * reach, width - 2 * reach, 2), dtype=numpy.int16)
        source = here.copy()
        turns = source.reshape(height, width)[inside]
        turns += steps[::-1, ::-1, 0]
        turns += steps[::-1, ::-1, 1] * numpy.intp(width)
        chain = numpy.maximum(source, here)  # a source further on had its turn before, so its own source counts
        chain.take(chain, out=further, mode="clip")
        while not numpy.array_equal(further, chain):
            chain, further = further, chain
            chain.take(chain, out=further, mode="clip")
        flat = flat.take(source.take(chain, out=further, mode="clip"), 1)
    return flat.reshape(picture.shape)
