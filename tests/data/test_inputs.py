from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from robustkpca.data.inputs import checked_images, checked_labels
from robustkpca.errors import BadValue


def some_images(*shape: int) -> Tensor:
    return torch.rand(*(shape or (2, 3, 8, 8)), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floats_of_any_precision_become_float32(dtype: torch.dtype) -> None:
    images = some_images().to(dtype)
    checked = checked_images(images)
    assert checked.dtype == torch.float32
    assert torch.equal(checked, images.float())


def test_bytes_are_divided_by_255_and_come_back_by_rounding() -> None:
    values = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    checked = checked_images(values)
    assert float(checked[0, 0, 0, 1]) == pytest.approx(1 / 255)
    assert float(checked.max()) == 1
    assert torch.equal((checked * 255).round().to(torch.uint8), values)


def test_what_rounding_left_outside_is_clamped() -> None:
    images = some_images()
    images[0, 0, 0, 0], images[0, 0, 0, 1] = -2.98e-08, 1 + 9e-7
    checked = checked_images(images)
    assert (float(checked.min()), float(checked.max())) == (0.0, 1.0)


@pytest.mark.parametrize(
    "arrange",
    [
        lambda images: images.permute(0, 2, 3, 1).permute(0, 3, 1, 2),
        lambda images: images.to(memory_format=torch.channels_last),
        lambda images: images[:, [2, 1, 0]],
        lambda images: images[:1].expand(4, -1, -1, -1),
        lambda images: images.flip(3)[..., ::2],
        lambda images: images.requires_grad_(),
    ],
    ids=["permuted", "channels_last", "indexed", "expanded", "strided", "requires_grad"],
)
def test_any_memory_layout_is_fine_and_the_callers_tensor_stays_as_it_is(arrange: Any) -> None:
    images = arrange(some_images())
    before = images.detach().clone()
    checked = checked_images(images)
    assert torch.equal(checked, before.contiguous())
    assert checked.is_contiguous()
    assert not checked.requires_grad
    checked.zero_()
    assert torch.equal(images.detach(), before)


def test_arrays_that_are_read_only_backwards_or_of_foreign_byte_order_are_fine() -> None:
    array = some_images().numpy()
    expected = torch.from_numpy(array.copy())
    array.setflags(write=False)
    assert torch.equal(checked_images(array), expected)
    assert torch.equal(checked_images(array[:, ::-1]), expected.flip(1))
    assert torch.equal(checked_images(array.astype(">f4")), expected)


def test_normalised_images_are_refused_with_what_was_measured_and_the_mend() -> None:
    images = (some_images() - 0.449) / 0.226
    with pytest.raises(BadValue, match=r"from -1\.9\d+ to 2\.4\d+.*[Aa]lready normalised.*--preprocessing"):
        checked_images(images)


def test_floats_up_to_255_are_recognised() -> None:
    with pytest.raises(BadValue, match=r"from 0 to 255; expected \[0, 1\].*divide by 255"):
        checked_images(torch.linspace(0, 255, 192).reshape(1, 3, 8, 8))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_counted_and_placed(value: float) -> None:
    images = some_images(4, 3, 8, 8)
    images[2, 0, 0, 0] = value
    with pytest.raises(BadValue, match="1 of 4 images hold NaN or infinite values, the first at 2"):
        checked_images(images)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(3, 8, 8), r"images\[None\]"),
        (torch.rand(8, 8), "N, C, H, W"),
        (torch.rand(2, 3, 3, 8, 8), "N, C, H, W"),
        (torch.rand(2, 8, 8, 3), "permute"),
        (torch.rand(0, 3, 8, 8), "nothing in them"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.int64), "images are int64"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.bool), "images are bool"),
        (numpy.array([None, "x"]), "no plain array of numbers"),
        ("cat.png", "no plain array of numbers"),
    ],
)
def test_other_shapes_and_kinds_are_refused_by_name(images: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message) as error:
        checked_images(images)
    assert "\n" not in str(error.value)


def test_plain_features_are_accepted_where_they_are_asked_for() -> None:
    features = torch.full((4, 3), 0.5)
    assert torch.equal(checked_images(features, dimensions=(2, 4)), features)


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([0, 2, 1]),
        torch.tensor([0.0, 2.0, 1.0]),
        torch.tensor([[0], [2], [1]]),
        torch.tensor([0, 2, 1], dtype=torch.uint8),
        numpy.array([0, 2, 1], dtype=numpy.uint16),
        [0, 2, 1],
        (0, 2, 1),
    ],
)
def test_whole_numbers_of_any_kind_become_int64(labels: Any) -> None:
    checked = checked_labels(labels, 3, 3)
    assert checked.dtype == torch.int64
    assert checked.tolist() == [0, 2, 1]


def test_the_callers_labels_stay_as_they_are() -> None:
    labels = torch.tensor([0, 1])
    checked_labels(labels, 2).fill_(7)
    assert labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0.5, 1.0]), r"labels are float32 and hold 0\.5 \(sample 0\)"),
        (torch.tensor([0.0, float("nan")]), "labels are float32 and hold nan"),
        (torch.eye(2), "as if one-hot"),
        (torch.tensor([0, 1, 2]), r"shape \(3,\).*2 images"),
        (torch.tensor(1), "each of 2 images"),
        (torch.tensor([True, False]), "labels are bool"),
        (torch.tensor([0, -1]), r"label -1 out of range 0\.\.9 \(sample 1"),
        (torch.tensor([1, 10]), r"label 10 out of range 0\.\.9 .*count from 1"),
        (torch.tensor([0, 10]), r"label 10 out of range 0\.\.9"),
        (["cat", "dog"], "no plain array of numbers"),
    ],
)
def test_other_labels_are_refused_by_name(labels: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message) as error:
        checked_labels(labels, 2, 10)
    assert "\n" not in str(error.value)


def test_a_negative_label_is_refused_without_a_number_of_classes_too() -> None:
    with pytest.raises(BadValue, match="label -1 out of range from 0"):
        checked_labels([-1], 1)
