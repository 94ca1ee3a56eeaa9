from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch

from robustkpca.data.arrays import array_data
from robustkpca.data.dataset import Dataset
from robustkpca.errors import BadValue
from robustkpca.preprocessing import Preprocessing

PIXELS = numpy.random.default_rng(0).integers(0, 256, (5, 3, 6, 8), dtype=numpy.uint8)
LABELS = [0, 1, 2, 1, 0]


def test_bytes_are_read_as_they_are_over_255() -> None:
    dataset = array_data(PIXELS, LABELS)
    assert torch.equal(dataset.read([4, 0], Preprocessing()), torch.from_numpy(PIXELS[[4, 0]]).float() / 255)


def test_an_array_data_set_offers_what_every_data_set_offers() -> None:
    dataset: Dataset = array_data(PIXELS, LABELS, name="tiny")
    assert isinstance(dataset, Dataset)
    assert dataset.ids[:2] == ("tiny/000000", "tiny/000001")
    assert dataset.labels == tuple(LABELS)
    assert (dataset.spec.size, dataset.spec.classes, dataset.spec.digest_of) == (5, 3, "contents")


def test_channels_may_come_first_or_last() -> None:
    last = array_data(numpy.moveaxis(PIXELS, 1, 3), LABELS)
    assert torch.equal(last.read([1, 3], Preprocessing()), array_data(PIXELS, LABELS).read([1, 3], Preprocessing()))


def test_grey_arrays_have_one_channel_or_three_equal_ones() -> None:
    dataset = array_data(PIXELS[:, 0], LABELS)
    grey = dataset.read([0, 2], Preprocessing(channels=1))
    assert torch.equal(grey[:, 0], torch.from_numpy(PIXELS[[0, 2], 0]).float() / 255)
    assert torch.equal(dataset.read([0, 2], Preprocessing(channels=3)), grey.repeat(1, 3, 1, 1))


def test_float_arrays_are_read_unchanged() -> None:
    pixels = (PIXELS / 255).astype(numpy.float32)
    assert torch.equal(array_data(pixels, LABELS).read([3], Preprocessing()), torch.from_numpy(pixels[[3]]))


@pytest.mark.parametrize("crop", [1, 3, 4, 5, 6])
def test_floats_are_cropped_where_bytes_are_cropped(crop: int) -> None:
    floats = array_data((PIXELS / 255).astype(numpy.float32), LABELS).read([1], Preprocessing(crop=crop))
    torch.testing.assert_close(floats, array_data(PIXELS, LABELS).read([1], Preprocessing(crop=crop)))


def test_bytes_are_resized_when_the_preprocessing_says_so() -> None:
    dataset = array_data(numpy.full((2, 32, 32, 3), 51, numpy.uint8), [0, 1])
    images = dataset.read([0, 1], Preprocessing(resize=256, crop=224))
    assert torch.equal(images, torch.full((2, 3, 224, 224), 0.2))


@pytest.mark.parametrize(
    ("dtype", "preprocessing", "message"),
    [
        ("uint8", Preprocessing(crop=224), "smaller than the crop of 224.*--preprocessing"),
        ("float32", Preprocessing(crop=224), "smaller than the crop of 224.*--preprocessing"),
        ("float32", Preprocessing(resize=256, crop=224), "not resized; save them as uint8"),
        ("float32", Preprocessing(channels=1), "not made grey"),
    ],
)
def test_a_preprocessing_that_cannot_be_done_is_refused(dtype: str, preprocessing: Preprocessing, message: str) -> None:
    dataset = array_data(numpy.zeros((2, 32, 32, 3), dtype), [0, 1], name="small")
    with pytest.raises(BadValue, match=f"'small'.*{message}"):
        dataset.read([0], preprocessing)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (numpy.zeros((5, 3072), numpy.uint8), r"shape \(5, 3072\)"),
        (numpy.zeros((5, 4, 8, 8), numpy.uint8), "no axis of 1 or 3 channels"),
        (numpy.zeros((5, 3, 8, 3), numpy.uint8), "both ends"),
        (numpy.zeros((5, 8, 8, 3), numpy.int64), "int64"),
        (numpy.zeros((0, 8, 8, 3), numpy.uint8), "nothing in them"),
        (numpy.full((5, 8, 8, 3), 200.0), "divide by 255"),
        (numpy.full((5, 8, 8, 3), -1.0), "already normalised"),
        (numpy.full((5, 8, 8, 3), numpy.nan), "NaN"),
    ],
)
def test_arrays_that_are_no_images_are_refused(pixels: Any, message: str) -> None:
    with pytest.raises(BadValue, match=f"(?i){message}"):
        array_data(pixels, LABELS)


def test_a_bad_value_far_from_the_beginning_is_found_before_anything_is_read() -> None:
    pixels = numpy.zeros((600, 2, 2, 3), numpy.float32)
    pixels[599] = 1.5
    with pytest.raises(BadValue, match=r"to 1\.5"):
        array_data(pixels, numpy.zeros(600, int))


def test_labels_beyond_the_classes_are_refused() -> None:
    with pytest.raises(BadValue, match=r"label 2 out of range 0\.\.1"):
        array_data(PIXELS, LABELS, classes=2)


def test_labels_that_seem_to_count_from_one_are_mentioned() -> None:
    assert "count from 1" in array_data(PIXELS, [1, 2, 3, 1, 2]).notices[0]
    assert array_data(PIXELS, [1, 2, 3, 1, 2], classes=10).notices == ()


def test_ids_given_twice_are_refused() -> None:
    with pytest.raises(BadValue, match="4 of them distinct"):
        array_data(PIXELS, LABELS, ids=["a", "b", "c", "d", "a"])


def test_another_value_label_or_order_is_another_data_set() -> None:
    base = array_data(PIXELS, LABELS).spec
    changed = PIXELS.copy()
    changed[4, 2, 5, 7] ^= 1
    others = [
        array_data(changed, LABELS).spec,
        array_data(PIXELS, [0, 1, 2, 1, 1]).spec,
        array_data(PIXELS[::-1], LABELS).spec,
    ]
    assert array_data(PIXELS.copy(), torch.tensor(LABELS)).spec == base
    assert len({spec.id for spec in [base, *others]}) == 4
