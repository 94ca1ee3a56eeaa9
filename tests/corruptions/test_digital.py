"""Colour, contrast, pixels and rubber: against other implementations and closed forms."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter, map_coordinates
from torch import Tensor

from robustkpca.corruptions import elastic
from robustkpca.corruptions.colour import brightened, recoloured
from robustkpca.corruptions.digital import (
    BRIGHTNESS,
    SATURATE,
    brightness,
    contrast,
    jpeg_compression,
    pixelate,
    saturate,
)
from robustkpca.draws import Draws

NONE = Draws.of(["one"], seed=0, threat="none")


def all_kinds_of_colours() -> Tensor:
    levels = torch.tensor([0, 1, 2, 50, 51, 101, 127, 128, 200, 253, 254, 255])
    colours = torch.cartesian_prod(levels, levels, levels)
    return colours[torch.arange(64 * 64) % len(colours)].T.reshape(1, 3, 64, 64).to(torch.uint8)


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("constants", ["imagenet", "cifar"])
@pytest.mark.parametrize("corruption", [brightness, saturate])
def test_colours_change_by_way_of_hue_saturation_and_value(corruption: Any, constants: str, severity: int) -> None:
    images = all_kinds_of_colours()
    more = BRIGHTNESS[constants][severity - 1]
    factor, added = SATURATE[constants][severity - 1]
    wanted = []
    for red, green, blue in (images[0].flatten(1).T / 255).double().tolist():
        hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
        if corruption is brightness:
            value = min(1, value + more)
        elif len({red, green, blue}) > 1:
            saturation = min(1, saturation * factor + added)
        elif added:  # the hue of grey is arbitrary, red by convention
            saturation = min(1, added)
        wanted.append(colorsys.hsv_to_rgb(hue, saturation, value))
    exact = 255 * torch.tensor(wanted, dtype=torch.float64).T.reshape(3, 64, 64)
    made = corruption(images, severity=severity, draws=NONE, constants=constants)[0].double()
    assert bool(
        ((exact - made > -1e-4) & (exact - made < 1 + 1e-4)).all()
    )  # downwards, up to rounding at whole numbers


@pytest.mark.parametrize("more", sorted({*BRIGHTNESS["imagenet"], *BRIGHTNESS["cifar"]}))
def test_the_short_way_to_brightness_is_the_long_one_bit_for_bit(more: float) -> None:
    noise = torch.randint(0, 256, (3, 300, 300), generator=torch.Generator().manual_seed(0), dtype=torch.uint8).numpy()
    for picture in (all_kinds_of_colours()[0].numpy(), noise):
        long = recoloured(picture, value=lambda value: numpy.clip(value + more, 0, 1))
        assert (brightened(picture, more) == long).all()


@pytest.mark.parametrize("severity", range(1, 6))
def test_contrast_keeps_the_mean_and_shrinks_the_deviation(photo: Tensor, severity: int) -> None:
    left = (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1]
    before, after = photo[0].double().flatten(1), contrast(photo, severity=severity, draws=NONE)[0].double().flatten(1)
    torch.testing.assert_close(after.mean(1), before.mean(1) - 0.5, atol=0.2, rtol=0)
    torch.testing.assert_close(after.std(1), before.std(1) * left, atol=0.3, rtol=0)


def test_pixels_of_a_quarter_are_boxes_of_four() -> None:
    images = torch.randint(0, 256, (1, 3, 64, 96), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    made = pixelate(images, severity=5, draws=NONE)
    boxes = torch.nn.functional.avg_pool2d(images.double(), 4).repeat_interleave(4, 2).repeat_interleave(4, 3)
    assert float((made.double() - boxes).abs().max()) <= 1


def test_jpeg_loses_more_with_less_quality(photo: Tensor) -> None:
    lost = [
        float((jpeg_compression(photo, severity=severity, draws=NONE).double() - photo.double()).pow(2).mean())
        for severity in range(1, 6)
    ]
    assert lost == sorted(lost)
    assert lost[0] > 0


@pytest.mark.parametrize(("size", "deviation"), [(32, 6.4), (64, 2.2), (40, 60.0), (33, 0.9)])
def test_a_field_is_smoothed_as_scipy_does(size: int, deviation: float) -> None:
    field = numpy.random.default_rng(0).uniform(-1, 1, (size, size + 7))
    wanted = gaussian_filter(field, deviation, mode="reflect", truncate=3)
    numpy.testing.assert_allclose(elastic._smooth(field, deviation), wanted, atol=1e-13)


@given(seed=st.integers(0, 99), reach=st.floats(0, 30))
def test_a_picture_is_bent_as_scipy_does(seed: int, reach: float) -> None:
    generator = numpy.random.default_rng(seed)
    values = generator.random((3, 20, 26), numpy.float32)
    down, right = (generator.uniform(-reach, reach, (20, 26)).astype(numpy.float32) for _ in range(2))
    places = numpy.arange(20)[:, None] + down, numpy.arange(26) + right
    wanted = [map_coordinates(plane, places, order=1, mode="reflect") for plane in values]
    numpy.testing.assert_allclose(elastic._moved(values, down, right), numpy.stack(wanted), atol=2e-5)


def test_rubber_at_rest_changes_nothing() -> None:
    values = numpy.random.default_rng(0).random((3, 20, 26), numpy.float32)
    rest = numpy.zeros((20, 26), numpy.float32)
    assert (elastic._moved(values, rest, rest) == values).all()
