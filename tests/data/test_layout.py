from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from robustkpca.data import Dataset, open_data
from robustkpca.errors import BadValue

Picture = Callable[..., Path]


def test_a_folder_offers_what_every_data_set_offers(tmp_path: Path, picture: Picture) -> None:
    picture("cat/a.png")
    assert isinstance(open_data(tmp_path), Dataset)


def test_both_spellings_of_a_split_are_one_data_set(
    tmp_path: Path, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture("pets/val/cat/a.png")
    monkeypatch.chdir(tmp_path / "pets")
    specs = [open_data(source).spec for source in (tmp_path / "pets", tmp_path / "pets/val", ".", "val/", "../pets")]
    assert {spec.id for spec in specs} == {specs[0].id}
    assert specs[0].name == "pets/val"
    assert specs[0].path == str(tmp_path / "pets/val")


@pytest.mark.parametrize(
    ("present", "chosen"), [(["train", "val", "test"], "val"), (["train", "test"], "test"), (["train"], "train")]
)
def test_the_validation_split_is_preferred_and_the_choice_is_mentioned(
    tmp_path: Path, picture: Picture, present: list[str], chosen: str
) -> None:
    for split in present:
        picture(f"{split}/cat/a.png")
    dataset = open_data(tmp_path)
    assert dataset.spec.path == str(tmp_path / chosen)
    assert repr(chosen) in dataset.notices[0]


def test_one_split_alone_needs_no_mention(tmp_path: Path, picture: Picture) -> None:
    picture("val/cat/a.png")
    assert open_data(tmp_path).notices == ()


def test_a_class_of_trains_is_a_class(tmp_path: Path, picture: Picture) -> None:
    for name in ("bus", "train", "truck"):
        picture(f"{name}/a.png")
    assert open_data(tmp_path).class_names == ("bus", "train", "truck")


def test_a_validation_folder_without_labels_is_refused_and_not_replaced_by_the_training_folder(
    tmp_path: Path, picture: Picture
) -> None:
    picture("train/cat/a.png")
    picture("val/a.png")
    with pytest.raises(BadValue, match="no labels"):
        open_data(tmp_path)


def test_a_mistyped_path_is_answered_with_the_nearest(tmp_path: Path, picture: Picture) -> None:
    picture("imagenet/val/cat/a.png")
    with pytest.raises(BadValue, match=r"Did you mean '.*/imagenet'\?"):
        open_data(tmp_path / "imagnet")
    with pytest.raises(BadValue, match=r"Did you mean '.*/imagenet'\?"):
        open_data(tmp_path / "imagnet/val")
    with pytest.raises(BadValue, match=r"The nearest that exists is '.*/imagenet/val'"):
        open_data(tmp_path / "imagenet/val/xyz")


def test_an_empty_folder_and_an_empty_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="the folder is empty; expected class folders"):
        open_data(tmp_path)
    with pytest.raises(BadValue, match="path is empty"):
        open_data("")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["readme.md", "sub/notes.txt"], "no images and no arrays in 'readme.md', 'sub'"),
        (["data_batch_1", "test_batch"], "pickles are not read"),
        (["val.tar", "train.tar"], "archives.*unpack"),
    ],
)
def test_a_folder_without_images_is_answered_with_what_it_holds(tmp_path: Path, names: list[str], message: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(BadValue, match=message) as error:
        open_data(tmp_path)
    assert "\n" not in str(error.value)


def test_a_folder_of_data_sets_is_not_a_folder_of_classes(tmp_path: Path, picture: Picture) -> None:
    picture("cifar/test/cat/a.png")
    picture("flowers/rose/a.png")
    with pytest.raises(BadValue, match=r"lie deeper.*'cifar', 'flowers'; name the folder"):
        open_data(tmp_path)


def test_pictures_with_maps_are_not_classes(tmp_path: Path, picture: Picture) -> None:
    picture("images/a.png")
    picture("annotations/a.png")
    with pytest.raises(BadValue, match="'images' is no class"):
        open_data(tmp_path)


@pytest.mark.parametrize("classes", [0, -1, True, 1.5, "10"])
def test_a_number_of_classes_that_is_none_is_refused(classes: Any) -> None:
    with pytest.raises(BadValue, match="at least 1"):
        open_data("digits", classes=classes)


def test_the_package_is_imported_without_torch() -> None:
    program = (
        "import sys, robustkpca.data, robustkpca.data.dataset, robustkpca.data.selection\n"
        "heavy = {'torch', 'sklearn', 'numpy', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


def test_an_unknown_name_in_the_package_is_an_attribute_error() -> None:
    import robustkpca.data

    with pytest.raises(AttributeError, match="no attribute 'open_folder'"):
        _ = robustkpca.data.open_folder


def test_a_folder_that_is_gone_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("os.getcwd", gone)
    with pytest.raises(BadValue, match="the current folder is gone"):
        open_data("photos")


def test_a_name_too_long_for_a_file_system_is_one_short_line() -> None:
    with pytest.raises(BadValue, match="no data at") as caught:
        open_data("x" * 5000)
    assert len(str(caught.value)) < 600
