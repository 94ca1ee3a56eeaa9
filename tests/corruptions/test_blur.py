"""Blur: shuffles, enlargements and smears against loops, SciPy and what can be said beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter, zoom
from torch import Tensor

from robustkpca.corruptions.blur import defocus_blur, gaussian_blur, zoom_blur
from robustkpca.corruptions.glass import shuffled
from robustkpca.corruptions.motion import smeared
from robustkpca.corruptions.zoom import enlarged
from robustkpca.draws import Draws

NONE = Draws.of(["one"], seed=0, threat="none")


def shuffled_in_a_loop(picture: numpy.ndarray, reach: int, rounds: int, generator: numpy.random.Generator):
    """What the reference does, pixel after pixel."""
    made = picture.copy()
    height, width = picture.shape[1:]
    for _ in range(rounds):
        turns = [
            (row, column) for row in range(height - reach, reach, -1) for column in range(width - reach, reach, -1)
        ]
        steps = generator.integers(-reach, reach, size=(len(turns), 2), dtype=numpy.int16)
        for (row, column), (right, down) in zip(turns, steps, strict=True):
            made[:, row, column] = made[:, row + down, column + right]
    return made


@given(
    height=st.integers(9, 24),
    width=st.integers(9, 24),
    reach=st.integers(1, 4),
    rounds=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_the_shuffle_is_that_of_the_loop(height: int, width: int, reach: int, rounds: int, seed: int) -> None:
    picture = numpy.arange(3 * height * width).reshape(3, height, width) % 251
    made = shuffled(picture.astype(numpy.uint8), reach, rounds, numpy.random.default_rng(seed))
    wanted = shuffled_in_a_loop(picture, reach, rounds, numpy.random.default_rng(seed))
    assert (made == wanted).all()


@given(height=st.integers(20, 70), width=st.integers(20, 70), factor=st.floats(1, 3))
def test_an_enlargement_is_that_of_scipy(height: int, width: int, factor: float) -> None:
    plane = numpy.random.default_rng(0).random((height, width))
    cut = [math.ceil(side / factor) for side in plane.shape]
    top, left = ((side - part) // 2 for side, part in zip(plane.shape, cut, strict=True))
    whole = zoom(plane[top : top + cut[0], left : left + cut[1]], factor, order=1)
    trim = [(long - side) // 2 for long, side in zip(whole.shape, plane.shape, strict=True)]
    wanted = whole[trim[0] : trim[0] + height, trim[1] : trim[1] + width]
    numpy.testing.assert_allclose(enlarged(plane, factor), wanted, atol=1e-12)


def test_a_smear_spreads_a_point_along_its_direction() -> None:
    point = numpy.zeros((41, 41), numpy.uint8)
    point[20, 20] = 255
    across, down = smeared(point, 10, 4, 0), smeared(point, 10, 4, -90)
    assert (across.any(0).nonzero()[0] <= 20).all()  # the half bell starts at the point
    assert across.any(1).nonzero()[0].tolist() == [20]
    assert (down == across.T[::-1]).all()
    weights = numpy.exp(-(numpy.arange(21) ** 2) / (2 * 4**2))
    wanted = (255 * weights / weights.sum())[::-1]
    assert (abs(across[20, :21] - wanted) < 1).all()


@pytest.mark.parametrize("level", [0, 1, 77, 254, 255])
def test_a_smear_leaves_what_is_even(level: int) -> None:
    for angle in (-135, -45.0, -13.7, 0, 31.4, 45):
        assert (smeared(numpy.full((3, 40, 50), level, numpy.uint8), 15, 8, angle) == level).all()


@pytest.mark.parametrize("severity", range(1, 6))
def test_a_gaussian_blur_is_that_of_scipy(photo: Tensor, severity: int) -> None:
    deviation = (1, 2, 3, 4, 6)[severity - 1]
    values = photo[0].numpy() / 255
    wanted = numpy.stack([gaussian_filter(plane, deviation, mode="nearest", truncate=4) for plane in values])
    made = gaussian_blur(photo, severity=severity, draws=NONE)[0].numpy()
    assert (made == (numpy.clip(wanted, 0, 1) * 255).astype(numpy.uint8)).all()


def test_a_defocus_blur_spreads_a_point_over_its_disk() -> None:
    point = torch.zeros(1, 3, 65, 65, dtype=torch.uint8)
    point[:, :, 32, 32] = 255
    made = defocus_blur(point, severity=5, draws=NONE)[0, 0]
    rows, columns = torch.meshgrid(torch.arange(65) - 32, torch.arange(65) - 32, indexing="ij")
    distance = (rows**2 + columns**2).double().sqrt()
    assert not made[distance > 13].any()
    assert (made[distance < 9] == made[32, 32]).all()
    assert torch.equal(made, made.T)


def test_a_zoom_blur_keeps_the_middle_and_what_is_even(picture: Callable[..., Tensor]) -> None:
    even = torch.full((1, 3, 70, 65), 200, dtype=torch.uint8)
    assert (zoom_blur(even, severity=4, draws=NONE).int() - 200).abs().max() <= 1
    point = torch.zeros(1, 3, 65, 65, dtype=torch.uint8)
    point[:, :, 31:34, 31:34] = 255
    made = zoom_blur(point, severity=1, draws=NONE)[0, 0]
    assert made[32, 32] == made.max() >= 254
