from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from robustkpca.data.layout import open_data
from robustkpca.errors import BadValue

Picture = Callable[..., Path]


@pytest.fixture
def flat(tmp_path: Path, picture: Picture) -> Path:
    for name in ("b.png", "a.png", "c d.png"):
        picture(name)
    return tmp_path


@pytest.fixture
def tiny(tmp_path: Path, picture: Picture) -> Path:
    wnids = ("n02123045", "n01440764", "n01443537")
    (tmp_path / "wnids.txt").write_text("\n".join(wnids))
    for number in range(3):
        picture(f"val/images/val_{number}.JPEG")
    rows = [f"val_{number}.JPEG\t{wnid}\t0\t32\t44\t62" for number, wnid in enumerate(wnids)]
    (tmp_path / "val/val_annotations.txt").write_text("\n".join(rows) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "file,label\nb.png,2\na.png,0\nc d.png,1\n"),
        ("labels.csv", '\ufeffc d.png,1\n"b.png",2\na.png, 0\n'),
        ("labels.txt", "a.png 0\nb.png\t2\nc d.png 1\n"),
        ("labels.txt", "0\n2\n1\n"),
        ("labels.csv", "0\r\n2\r\n1\r\n\r\n"),
    ],
)
def test_labels_beside_flat_images_are_found(flat: Path, name: str, text: str) -> None:
    (flat / name).write_text(text, encoding="utf-8", newline="")
    dataset = open_data(flat)
    assert dataset.ids == ("a.png", "b.png", "c d.png")
    assert dataset.labels == (0, 2, 1)
    assert (dataset.spec.layout, dataset.spec.classes) == ("labels-file", 3)
    assert open_data(flat, classes=10).spec.classes == 10


def test_imagenet_ids_may_stand_for_labels(flat: Path) -> None:
    (flat / "labels.csv").write_text("a.png,n15075141\nb.png,n01440764\nc d.png,n02123045\n")
    dataset = open_data(flat)
    assert dataset.labels == (999, 0, 281)
    assert dataset.spec.classes == 1000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n1\n", "2 labels for 3 images"),
        ("a.png,0\nb.png,1\n", "no row for 'c d.png'"),
        ("a.png,0\nb.png,1\nc d.png,1\nx.png,1\n", "no image 'x.png'"),
        ("a.png,0\na.png,1\nb.png,0\nc d.png,0\n", "'a.png' stands there twice"),
        ("a.png,cat\nb.png,dog\nc d.png,cat\n", "'cat'; expected whole numbers"),
        ("a.png,0.5\nb.png,1\nc d.png,1\n", "'0.5'; expected whole numbers"),
        ("a.png,0,1\nb.png,1,1\nc d.png,1,1\n", "expected file,label"),
        ("a.png,-1\nb.png,1\nc d.png,1\n", "label -1 out of range"),
        ("", "no row for"),
    ],
)
def test_labels_that_do_not_fit_are_refused(flat: Path, text: str, message: str) -> None:
    (flat / "labels.csv").write_text(text)
    with pytest.raises(BadValue, match=message) as error:
        open_data(flat)
    assert "labels.csv" in str(error.value)


def test_labels_that_count_from_one_are_recognised(flat: Path) -> None:
    (flat / "labels.txt").write_text("1\n10\n2\n")
    with pytest.raises(BadValue, match=r"label 10 out of range 0\.\.9.*count from 1"):
        open_data(flat, classes=10)
    assert "count from 1" in open_data(flat).notices[0]


def test_two_label_files_are_refused(flat: Path) -> None:
    for name in ("labels.csv", "labels.txt"):
        (flat / name).write_text("0\n2\n1\n")
    with pytest.raises(BadValue, match="keep the one that counts"):
        open_data(flat)


def test_the_numbers_of_the_development_kit_are_refused(flat: Path) -> None:
    (flat / "ILSVRC2012_validation_ground_truth.txt").write_text("490\n361\n171\n")
    with pytest.raises(BadValue, match=r"development kit.*labels\.csv"):
        open_data(flat)
    (flat / "labels.txt").write_text("1\n1000\n171\n")
    with pytest.raises(BadValue, match="development kit"):
        open_data(flat)


def test_images_without_labels_are_refused_with_the_mend(flat: Path) -> None:
    with pytest.raises(BadValue, match=r"'a\.png' \(3 in all\), but no labels; add labels\.csv"):
        open_data(flat)


def test_the_validation_set_of_tiny_imagenet_is_labelled_by_its_annotations(tiny: Path) -> None:
    for source in (tiny, tiny / "val"):
        dataset = open_data(source)
        assert dataset.ids == ("images/val_0.JPEG", "images/val_1.JPEG", "images/val_2.JPEG")
        assert dataset.labels == (2, 0, 1)
        assert dataset.class_names == ("n01440764", "n01443537", "n02123045")
        assert dataset.spec.layout == "tiny-imagenet"


def test_parts_of_tiny_imagenet_that_are_missing_are_named(tiny: Path) -> None:
    (tiny / "val/images/val_1.JPEG").unlink()
    with pytest.raises(BadValue, match=r"no image 'val_1\.JPEG'"):
        open_data(tiny)
    (tiny / "wnids.txt").write_text("n02123045\nn01440764\n")
    (tiny / "val/val_annotations.txt").write_text("val_0.JPEG\tn02123045\nval_2.JPEG\tn01443537\n")
    with pytest.raises(BadValue, match=r"'n01443537' not in wnids\.txt"):
        open_data(tiny)
    (tiny / "wnids.txt").unlink()
    with pytest.raises(BadValue, match=r"wnids\.txt is missing"):
        open_data(tiny)


def test_tiny_imagenet_is_refused_for_a_model_of_a_thousand_classes(tiny: Path) -> None:
    with pytest.raises(BadValue, match=r"3 classes .*, but 1000 are wanted"):
        open_data(tiny, classes=1000)


@pytest.mark.parametrize("bad", ["--5", "+-5", "9" * 5000, "1_0"])
def test_what_is_nearly_a_number_is_no_label(flat: Path, bad: str) -> None:
    names = sorted(path.name for path in flat.iterdir())
    (flat / "labels.csv").write_text("".join(f"{name},{bad}\n" for name in names))
    with pytest.raises(BadValue, match="expected whole numbers from 0") as caught:
        open_data(flat)
    assert len(str(caught.value)) < 400


def test_a_row_too_long_for_a_table_is_one_line(flat: Path) -> None:
    (flat / "labels.csv").write_text("x" * 200_000 + ",1\n")
    with pytest.raises(BadValue, match="cannot be read: field larger"):
        open_data(flat)
