from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits

from robustkpca.data.digits import digits
from robustkpca.data.layout import open_data
from robustkpca.errors import BadValue
from robustkpca.preprocessing import Preprocessing

GREY = Preprocessing(channels=1)


def test_the_test_split_is_the_last_540_of_scikit_learns_order() -> None:
    bunch = load_digits()
    dataset = digits()
    expected = torch.from_numpy(bunch.images[-540:]).float().unsqueeze(1) / 16
    assert torch.equal(dataset.read(range(540), GREY), expected)
    assert list(dataset.labels) == bunch.target[-540:].tolist()


def test_the_train_split_is_the_rest() -> None:
    train, test = digits("train"), digits("test")
    assert (train.spec.size, test.spec.size) == (1257, 540)
    assert train.ids[0] == "digits/0000"
    assert test.ids[0] == "digits/1257"
    assert len(set(train.ids + test.ids)) == 1797


def test_the_bundled_set_is_opened_by_its_name() -> None:
    dataset = open_data("digits")
    assert (dataset.spec.name, dataset.spec.layout, dataset.spec.classes) == ("digits", "digits", 10)
    assert dataset.spec == digits().spec
    assert open_data("digits/train").spec == digits("train").spec
    assert dataset.class_names == tuple("0123456789")


def test_a_full_pixel_is_one() -> None:
    images = digits().read(range(540), GREY)
    assert images.dtype == torch.float32
    assert images.shape == (540, 1, 8, 8)
    assert (float(images.min()), float(images.max())) == (0, 1)


def test_a_crop_of_eight_changes_nothing() -> None:
    dataset = digits()
    assert torch.equal(dataset.read([3, 1], GREY), dataset.read([3, 1], Preprocessing(crop=8, channels=1)))


def test_positions_are_read_in_the_order_asked_for() -> None:
    dataset = digits()
    assert torch.equal(dataset.read([5, 2], GREY), dataset.read([2, 5], GREY).flip(0))


@pytest.mark.parametrize(
    "preprocessing", [Preprocessing(resize=256, crop=224, channels=1), Preprocessing(crop=224, channels=1)]
)
def test_a_model_of_large_images_is_told_to_take_another_preprocessing(preprocessing: Preprocessing) -> None:
    with pytest.raises(BadValue, match="--preprocessing"):
        digits().read([0], preprocessing)


def test_a_model_of_other_classes_is_refused() -> None:
    with pytest.raises(BadValue, match="10 classes, but 1000"):
        open_data("digits", classes=1000)


def test_a_folder_of_the_same_name_is_mentioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_data("digits").notices == ()
    (tmp_path / "digits").mkdir()
    assert "./digits" in open_data("digits").notices[0]


def test_the_set_travels_to_another_process() -> None:
    dataset = digits()
    again = pickle.loads(pickle.dumps(dataset))
    assert again.spec == dataset.spec
    assert torch.equal(again.read([7], GREY), dataset.read([7], GREY))
