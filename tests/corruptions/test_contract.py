"""What holds for every corruption."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

import robustkpca
from robustkpca import registry
from robustkpca.draws import Draws
from robustkpca.errors import BadValue
from robustkpca.testing import check_corruption

ENTRIES = {name: one for name, one in registry.entries("corruptions").items() if "images" in one.tags}
NAMES = sorted(ENTRIES)
RANDOM = [name for name in NAMES if "random" in ENTRIES[name].tags]


def test_the_nineteen_are_there() -> None:
    assert len(NAMES) == 19
    assert sum("imagenet-c" in entry.tags for entry in ENTRIES.values()) == 15


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("constants", "size"), [("imagenet", 64), ("cifar", 32)])
def test_the_contract_is_kept(name: str, constants: str, size: int) -> None:
    check_corruption(f"{name}(constants={constants})", size=size)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_depends_on_order_threads_or_earlier_calls(name: str, picture: Callable[..., Tensor]) -> None:
    images = torch.stack([picture(64, 66, seed) for seed in range(4)])
    ids = ["a", "b", "c", "d"]
    numpy.random.seed(0)
    state = str(numpy.random.get_state())
    first = robustkpca.corrupt(images, name, 3, seed=5, sample_ids=ids)
    turned = robustkpca.corrupt(images.flip(0), name, 3, seed=5, sample_ids=ids[::-1]).flip(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 3)
    try:
        again = robustkpca.corrupt(images, name, 3, seed=5, sample_ids=ids)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(first, turned)
    assert torch.equal(first, again)
    assert str(numpy.random.get_state()) == state


@pytest.mark.parametrize("name", NAMES)
def test_the_random_ones_follow_seed_and_sample_and_the_others_do_not(name: str, photo: Tensor) -> None:
    one = robustkpca.corrupt(photo, name, 2, seed=0, sample_ids=["a"])
    other_seed = robustkpca.corrupt(photo, name, 2, seed=1, sample_ids=["a"])
    other_sample = robustkpca.corrupt(photo, name, 2, seed=0, sample_ids=["b"])
    assert torch.equal(one, other_seed) == (name not in RANDOM)
    assert torch.equal(one, other_sample) == (name not in RANDOM)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("height", "width"), [(64, 64), (65, 131), (120, 64)])
def test_any_size_is_taken(name: str, height: int, width: int, picture: Callable[..., Tensor]) -> None:
    images = picture(height, width)[None]
    for severity in range(1, 6):
        made = robustkpca.corrupt(images, name, severity)
        assert made.shape == images.shape
        assert not torch.equal(made, images)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("severity", range(1, 6))
def test_pictures_without_contrast_do_not_break_anything(name: str, severity: int) -> None:
    """A picture of one colour divides by zero in some formulas; a warning would fail this test."""
    for level in (0, 128, 255):
        images = torch.full((1, 3, 224, 224), level, dtype=torch.uint8)
        made = robustkpca.corrupt(images, name, severity)
        assert made.shape == images.shape
        if level == 0 and name in ("gaussian_blur", "defocus_blur", "glass_blur", "zoom_blur", "fog", "contrast"):
            assert not made.any()


@pytest.mark.parametrize("name", NAMES)
def test_memory_layout_does_not_matter(name: str, photo: Tensor) -> None:
    wide = photo.contiguous(memory_format=torch.channels_last)
    assert torch.equal(robustkpca.corrupt(wide, name, 1), robustkpca.corrupt(photo, name, 1))
    assert torch.equal(robustkpca.corrupt(photo.numpy(), name, 1), robustkpca.corrupt(photo, name, 1))


@pytest.mark.parametrize(
    ("images", "name", "severity", "complaint"),
    [
        (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "fog", 1, r"32x32 pixels are too small.*constants=cifar"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "fog(constants=cifar)", 1, "8x8 pixels are too small"),
        (torch.zeros(1, 1, 64, 64, dtype=torch.uint8), "fog", 1, "images have 1 channel; .* 3 colours"),
        (torch.zeros(1, 3, 64, 64), "fog", 1, "images are float32; expected uint8"),
        (torch.zeros(3, 64, 64, dtype=torch.uint8), "fog", 1, r"add the batch dimension with images\[None\]"),
        (torch.zeros(1, 64, 64, 3, dtype=torch.uint8), "fog", 1, "channels last"),
        (torch.zeros(1, 3, 64, 64, dtype=torch.uint8), "fog", 6, "severity from 1 to 5"),
        (torch.zeros(1, 3, 64, 64, dtype=torch.uint8), "fog(constants=tiny)", 1, "expected one of imagenet, cifar"),
        (torch.zeros(1, 3, 64, 64, dtype=torch.uint8), "fogg", 1, "fog"),
    ],
)
def test_what_cannot_be_corrupted_is_refused(images: Tensor, name: str, severity: int, complaint: str) -> None:
    with pytest.raises(BadValue if name != "fogg" else LookupError, match=complaint):
        robustkpca.corrupt(images, name, severity)


def spectrum(pictures: Tensor) -> Tensor:
    """Return the mean power at every frequency, summed over rings."""
    power = torch.fft.fft2(pictures.double().mean(1)).abs().pow(2).mean(0)
    rows, columns = torch.meshgrid(torch.fft.fftfreq(32), torch.fft.fftfreq(32), indexing="ij")
    rings = (32 * (rows**2 + columns**2).sqrt()).round().long().flatten().clamp_max(15)
    return torch.zeros(16, dtype=torch.float64).scatter_add(0, rings, power.flatten())


@pytest.mark.usefixtures("true_photons")
@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("severity", [1, 3, 5])
def test_our_own_draws_have_the_distribution_of_those_of_the_reference(
    name: str, severity: int, small: Tensor, legacy_draws: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mean, variance and spectrum over 200 draws; given the same draws the functions are those of the reference."""
    count = 200
    images = small.expand(count, -1, -1, -1)
    function = ENTRIES[name].load()
    theirs = function(images, severity=severity, draws=legacy_draws.of_seeds(*range(count)), constants="cifar").double()
    monkeypatch.undo()  # our own photons
    own = Draws.of([str(index) for index in range(count)], seed=0, threat=f"{name}:{severity}")
    ours = function(images, severity=severity, draws=own, constants="cifar").double()

    def per_draw(pictures: Tensor) -> Tensor:
        return torch.stack([pictures.flatten(1).mean(1), (pictures - small.double()).flatten(1).pow(2).mean(1)])

    first, second = per_draw(theirs), per_draw(ours)
    slack = 4 * ((first.var(1) + second.var(1)) / count).sqrt() + 1e-9
    assert bool(((first.mean(1) - second.mean(1)).abs() <= slack).all())
    difference = (theirs.mean(0) - ours.mean(0)) / ((theirs.var(0) + ours.var(0)) / count).sqrt().clamp_min(0.1)
    assert float(difference.pow(2).mean()) < 1.6
    changed = [spectrum(pictures - small.double()) for pictures in (theirs, ours)]
    torch.testing.assert_close(changed[0][1:], changed[1][1:], rtol=0.35, atol=1e-3 * float(changed[0].sum()))
