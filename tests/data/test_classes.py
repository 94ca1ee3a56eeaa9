from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from robustkpca.data.imagenet import imagenet_wnids
from robustkpca.data.layout import open_data
from robustkpca.errors import BadValue

Picture = Callable[..., Path]
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def test_imagenet_folders_keep_their_place_among_the_thousand(tmp_path: Path, picture: Picture) -> None:
    for wnid in ("n15075141", "n01440764", "n02123045"):
        picture(f"val/{wnid}/a.JPEG")
    dataset = open_data(tmp_path)
    assert dataset.ids == ("n01440764/a.JPEG", "n02123045/a.JPEG", "n15075141/a.JPEG")
    assert dataset.labels == (0, 281, 999)
    assert (dataset.spec.layout, dataset.spec.classes, dataset.class_names) == (
        "imagenet-folder",
        1000,
        imagenet_wnids(),
    )
    assert "3 of the 1000" in dataset.notices[0]


def test_the_sample_of_real_photos_is_labelled_by_its_folders(shared: Path) -> None:
    dataset = open_data(shared / "data/imagenet-sample", classes=1000)
    assert len(dataset.ids) == 200
    assert [dataset.class_names[label] for label in dataset.labels] == [name.split("/")[0] for name in dataset.ids]


def test_cifar_folders_have_cifars_numbers(shared: Path) -> None:
    dataset = open_data(shared / "data/cifar10-sample")
    assert dataset.class_names == CIFAR10
    assert [CIFAR10[label] for label in dataset.labels] == [name.split("/")[0] for name in dataset.ids]
    assert (dataset.spec.size, dataset.spec.classes, dataset.spec.layout) == (500, 10, "class-folders")


def test_class_folders_are_numbered_in_the_order_of_their_names(tmp_path: Path, picture: Picture) -> None:
    for name in ("owl", "Zebra", "cat"):
        picture(f"{name}/1.png")
    assert open_data(tmp_path).class_names == ("Zebra", "cat", "owl")


def test_imagenet_folders_are_numbered_as_they_are_when_that_many_classes_are_wanted(
    tmp_path: Path, picture: Picture
) -> None:
    for wnid in ("n02123045", "n01440764"):
        picture(f"{wnid}/a.jpg")
    dataset = open_data(tmp_path, classes=2)
    assert (dataset.labels, dataset.class_names) == ((0, 1), ("n01440764", "n02123045"))
    assert "not the 1000" in dataset.notices[0]
    with pytest.raises(BadValue, match=r"2 classes .*, but 10 are wanted"):
        open_data(tmp_path, classes=10)


def test_a_thousand_outputs_for_ten_classes_are_refused(tmp_path: Path, picture: Picture) -> None:
    for name in CIFAR10:
        picture(f"{name}/1.png")
    with pytest.raises(BadValue, match=r"10 classes .*, but 1000 are wanted"):
        open_data(tmp_path, classes=1000)


def test_other_folders_among_imagenet_folders_are_refused(tmp_path: Path, picture: Picture) -> None:
    picture("n01440764/a.jpg")
    picture("cats/a.jpg")
    with pytest.raises(BadValue, match="1 folders are ImageNet classes, but 'cats' are no ImageNet ids"):
        open_data(tmp_path)


@pytest.mark.parametrize("names", [[str(number) for number in range(1, 11)], ["1", "2", "10"], ["9", "10", "cat"]])
def test_numbers_whose_order_as_text_is_another_are_refused(tmp_path: Path, picture: Picture, names: list[str]) -> None:
    for name in names:
        picture(f"{name}/a.png")
    with pytest.raises(BadValue, match=r"'10' sorts before '[29]'.*leading zeros"):
        open_data(tmp_path)


@pytest.mark.parametrize("names", [[f"{number:02d}" for number in range(12)], [str(number) for number in range(10)]])
def test_numbers_in_one_order_only_are_their_labels(tmp_path: Path, picture: Picture, names: list[str]) -> None:
    for name in names:
        picture(f"{name}/a.png")
    assert [int(open_data(tmp_path).class_names[label]) for label in open_data(tmp_path).labels] == list(
        range(len(names))
    )


def test_numbers_with_a_gap_are_refused(tmp_path: Path, picture: Picture) -> None:
    for name in ("0", "1", "3"):
        picture(f"{name}/a.png")
    with pytest.raises(BadValue, match=r"gaps.*empty folders"):
        open_data(tmp_path)
    (tmp_path / "2").mkdir()
    assert open_data(tmp_path).labels == (0, 1, 3)


def test_an_empty_class_folder_counts_and_is_mentioned(tmp_path: Path, picture: Picture) -> None:
    picture("cat/a.png")
    picture("owl/a.png")
    (tmp_path / "dog").mkdir()
    dataset = open_data(tmp_path, classes=3)
    assert dataset.labels == (0, 2)
    assert "'dog'" in dataset.notices[0]


@pytest.mark.parametrize("suffix", ["jpg", "JPEG", "Png", "BMP", "webp", "ppm", "TIF"])
def test_image_suffixes_count_in_any_case(tmp_path: Path, picture: Picture, suffix: str) -> None:
    picture(f"cat/a.{suffix}")
    assert open_data(tmp_path).ids == (f"cat/a.{suffix}",)


def test_hidden_and_other_files_are_passed_over(tmp_path: Path, picture: Picture) -> None:
    for name in ("cat/a.png", "cat/._a.png", ".thumbnails/x.png", "__MACOSX/x.png", "cat/.cache/x.png"):
        picture(name)
    (tmp_path / "cat/notes.txt").write_text("x")
    (tmp_path / "notes.txt").write_text("x")
    assert open_data(tmp_path).ids == ("cat/a.png",)


def test_images_beside_the_class_folders_are_mentioned(tmp_path: Path, picture: Picture) -> None:
    picture("cat/a.png")
    picture("overview.png")
    dataset = open_data(tmp_path)
    assert dataset.ids == ("cat/a.png",)
    assert "'overview.png'" in dataset.notices[0]


def test_links_out_of_the_folder_are_read_and_loops_end(tmp_path: Path, picture: Picture) -> None:
    picture("elsewhere/cats/a.png")
    picture("elsewhere/b.png")
    root = tmp_path / "root"
    (root / "dog").mkdir(parents=True)
    (root / "cat").symlink_to(tmp_path / "elsewhere/cats")
    (root / "dog/b.png").symlink_to(tmp_path / "elsewhere/b.png")
    (root / "dog/again").symlink_to(root / "dog")
    assert open_data(root).ids == ("cat/a.png", "dog/b.png")


def test_a_broken_link_is_named_instead_of_left_out(tmp_path: Path, picture: Picture) -> None:
    picture("cat/a.png")
    (tmp_path / "cat/b.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(BadValue, match=r"b\.png.*link to a file that does not exist"):
        open_data(tmp_path)


def test_training_folders_of_tiny_imagenet_are_numbered_by_its_own_list(tmp_path: Path, picture: Picture) -> None:
    (tmp_path / "wnids.txt").write_text("n02123045\nn01440764\nn01443537\n")
    picture("train/n02123045/images/n02123045_0.JPEG")
    picture("train/n01440764/images/n01440764_0.JPEG")
    dataset = open_data(tmp_path)
    assert (dataset.spec.classes, dataset.labels) == (3, (0, 2))
    assert "only split" in dataset.notices[0]


@pytest.mark.parametrize("place", ["link", "owl/link"])
def test_a_link_to_the_data_themselves_is_named(tmp_path: Path, picture: Picture, place: str) -> None:
    """Followed, it would show every picture under a second label."""
    for name in ("cat", "owl"):
        picture(f"photos/{name}/1.png")
    (tmp_path / "photos" / place).symlink_to(tmp_path / "photos")
    with pytest.raises(BadValue, match=f"{place}' is a link to .*which holds the class folders; remove the link"):
        open_data(tmp_path / "photos")


def test_two_classes_with_the_same_pictures_are_named(tmp_path: Path, picture: Picture) -> None:
    picture("photos/cat/1.png")
    picture("photos/owl/1.png")
    (tmp_path / "photos/owl/more").symlink_to(tmp_path / "photos/cat")
    with pytest.raises(BadValue, match="so its images would have two labels; remove a link"):
        open_data(tmp_path / "photos")


def test_a_link_out_of_the_data_is_followed(tmp_path: Path, picture: Picture) -> None:
    picture("elsewhere/1.png")
    picture("photos/owl/1.png")
    (tmp_path / "photos/cat").symlink_to(tmp_path / "elsewhere")
    assert open_data(tmp_path / "photos").ids == ("cat/1.png", "owl/1.png")


def test_a_folder_whose_name_is_no_text_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    """The name would stand in every record, and the results folder could not be read any more."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/photos-\xff"))
    (folder / "cat").mkdir(parents=True)
    with pytest.raises(BadValue, match="is not one line of UTF-8 text; rename the folder"):
        open_data(folder)
