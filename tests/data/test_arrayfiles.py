from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from robustkpca.data.arrays import ArrayImages
from robustkpca.data.layout import open_data
from robustkpca.errors import BadValue
from robustkpca.preprocessing import Preprocessing

PIXELS = numpy.random.default_rng(1).integers(0, 256, (4, 8, 8, 3), dtype=numpy.uint8)
LABELS = numpy.array([3, 0, 2, 1])
EXPECTED = torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float() / 255


@pytest.mark.parametrize(
    ("images", "labels"), [("images", "labels"), ("x_test", "y_test"), ("x", "y"), ("data", "targets"), ("X", "Y")]
)
def test_a_pair_of_npy_files_is_found(tmp_path: Path, images: str, labels: str) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    numpy.save(folder / f"{images}.npy", PIXELS)
    numpy.save(folder / f"{labels}.npy", LABELS)
    for source in (folder, str(folder), folder / f"{images}.npy", folder / f"{labels}.npy"):
        dataset = open_data(source)
        assert (dataset.spec.layout, dataset.ids[3], dataset.labels) == ("arrays", "mine/000003", (3, 0, 2, 1))
        assert torch.equal(dataset.read(range(4), Preprocessing()), EXPECTED)


@pytest.mark.parametrize(
    ("images", "labels"), [("images", "labels"), ("x", "y"), ("x_test", "y_test"), ("data", "targets")]
)
def test_an_npz_is_found_by_its_keys(tmp_path: Path, images: str, labels: str) -> None:
    arrays: dict[str, Any] = {images: PIXELS, labels: LABELS[:, None], "x_train": PIXELS[:1]}
    numpy.savez_compressed(tmp_path / "mine.npz", **arrays)
    for source in (tmp_path / "mine.npz", tmp_path):
        dataset = open_data(source, classes=10)
        assert (dataset.spec.name, dataset.spec.classes, dataset.labels) == ("mine", 10, (3, 0, 2, 1))
        assert torch.equal(dataset.read([2, 0], Preprocessing()), EXPECTED[[2, 0]])


def test_npy_images_stay_on_disk_also_when_they_travel(tmp_path: Path) -> None:
    numpy.save(tmp_path / "images.npy", numpy.zeros((2000, 16, 16, 3), numpy.uint8))
    numpy.save(tmp_path / "labels.npy", numpy.zeros(2000, int))
    dataset = open_data(tmp_path)
    assert isinstance(dataset, ArrayImages)
    assert isinstance(dataset.pixels, numpy.memmap)
    packed = pickle.dumps(dataset)
    assert len(packed) < dataset.pixels.nbytes / 3
    again = pickle.loads(packed)
    assert isinstance(again.pixels, numpy.memmap)
    assert again.spec == dataset.spec


def test_one_half_of_a_pair_is_refused(tmp_path: Path) -> None:
    numpy.save(tmp_path / "images.npy", PIXELS)
    for source in (tmp_path, tmp_path / "images.npy"):
        with pytest.raises(BadValue, match=r"images\.npy without labels\.npy"):
            open_data(source)


def test_other_keys_and_names_are_refused_with_the_known_ones(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "mine.npz", features=PIXELS)
    with pytest.raises(BadValue, match=r"keys are 'features'; expected.*images/labels"):
        open_data(tmp_path / "mine.npz")
    numpy.save(tmp_path / "fog.npy", PIXELS)
    with pytest.raises(BadValue, match=r"fog\.npy.*images\.npy and labels\.npy"):
        open_data(tmp_path / "fog.npy")


def test_several_archives_are_refused(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        numpy.savez(tmp_path / name, x=PIXELS, y=LABELS)
    with pytest.raises(BadValue, match=r"'a\.npz', 'b\.npz'.*name one"):
        open_data(tmp_path)


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    numpy.save(tmp_path / "images.npy", numpy.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    numpy.save(tmp_path / "labels.npy", LABELS)
    with pytest.raises(BadValue, match="can run code"):
        open_data(tmp_path)
    numpy.savez(tmp_path / "mine.npz", x=numpy.array([{"a": 1}], dtype=object), y=LABELS)
    with pytest.raises(BadValue, match="can run code"):
        open_data(tmp_path / "mine.npz")


@pytest.mark.parametrize(
    "content", [b"", b"<html>not found</html>", b"\x93NUMPY\x01\x00v\x00{'descr'", b"PK\x03\x04broken"]
)
@pytest.mark.parametrize("name", ["images.npy", "mine.npz"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    numpy.save(tmp_path / "labels.npy", LABELS)
    with pytest.raises(BadValue, match=name) as error:
        open_data(tmp_path / name)
    assert "\n" not in str(error.value)


def test_a_truncated_npy_is_refused(tmp_path: Path) -> None:
    numpy.save(tmp_path / "images.npy", PIXELS)
    numpy.save(tmp_path / "labels.npy", LABELS)
    whole = (tmp_path / "images.npy").read_bytes()
    (tmp_path / "images.npy").write_bytes(whole[:-100])
    with pytest.raises(BadValue, match=r"images\.npy"):
        open_data(tmp_path)


def test_faults_inside_the_arrays_name_the_data(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "mine.npz", x=(PIXELS / 255 - 0.45) / 0.225, y=LABELS)
    with pytest.raises(BadValue, match=r"mine\.npz.*Already normalised"):
        open_data(tmp_path / "mine.npz")
    numpy.savez(tmp_path / "mine.npz", x=PIXELS, y=numpy.array([1, 10, 2, 3]))
    with pytest.raises(BadValue, match=r"mine\.npz.*label 10 out of range 0\.\.9.*count from 1"):
        open_data(tmp_path / "mine.npz", classes=10)


@pytest.mark.parametrize(
    ("name", "message"), [("a.zip", "unpack"), ("a.tar.gz", "unpack"), ("a.jpg", "is a file; expected a folder")]
)
def test_other_files_are_refused_with_the_mend(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(BadValue, match=message):
        open_data(tmp_path / name)


def test_an_array_that_is_replaced_during_a_run_is_noticed(tmp_path: Path) -> None:
    numpy.save(tmp_path / "images.npy", PIXELS)
    numpy.save(tmp_path / "labels.npy", LABELS)
    dataset = open_data(tmp_path)
    assert torch.equal(dataset.read(range(4), Preprocessing()), EXPECTED)
    numpy.save(tmp_path / "other.npy", 255 - PIXELS)
    (tmp_path / "other.npy").replace(tmp_path / "images.npy")
    os.utime(tmp_path / "images.npy", (1, 1))
    with pytest.raises(BadValue, match=r"images.npy' was changed during the run"):
        dataset.read(range(4), Preprocessing())


@pytest.mark.parametrize("largest", [10**9, 10**12])
def test_labels_that_are_ids_of_something_else_are_refused(tmp_path: Path, largest: int) -> None:
    numpy.savez(tmp_path / "mine.npz", images=PIXELS, labels=numpy.array([0, 1, 2, largest]))
    with pytest.raises(BadValue, match=f"{largest + 1} classes; expected at most 1000000"):
        open_data(tmp_path / "mine.npz")


def damaged(what: str) -> bytes:
    """Return an archive that was damaged in one way."""
    held = io.BytesIO()
    numpy.savez(held, images=PIXELS, labels=LABELS)
    content = held.getvalue()
    if what == "encrypted":  # a bit of the flags, in the local and in the central header
        for start, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            at = content.index(start) + offset
            content = content[:at] + bytes([content[at] | 1]) + content[at + 1 :]
        return content
    if what == "unknown method":
        for start, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            at = content.index(start) + offset
            content = content[:at] + bytes([99]) + content[at + 1 :]
        return content
    return content.replace(
        b"(4, 8, 8, 3)", {"negative": b"(-4, 8, 8,3)", "huge": b"(4, 8,8**99)", "open": b"(4, 8, 8, 3 "}[what]
    )


@pytest.mark.parametrize("what", ["encrypted", "unknown method", "negative", "huge", "open"])
def test_a_damaged_archive_is_one_line(tmp_path: Path, what: str) -> None:
    (tmp_path / "mine.npz").write_bytes(damaged(what))
    with pytest.raises(BadValue, match="cannot be read") as caught:
        open_data(tmp_path / "mine.npz")
    assert "\n" not in str(caught.value)


def test_floats_that_torch_lacks_are_named(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "mine.npz", images=(PIXELS / 255).astype(numpy.longdouble), labels=LABELS)
    with pytest.raises(BadValue, match=r"images are (longdouble|float128|float96); expected uint8"):
        open_data(tmp_path / "mine.npz")
