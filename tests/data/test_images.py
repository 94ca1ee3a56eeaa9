from __future__ import annotations

import os
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from robustkpca.data.images import decoded
from robustkpca.data.layout import open_data
from robustkpca.errors import BadValue
from robustkpca.preprocessing import Preprocessing

Picture = Callable[..., Path]


def test_pixels_are_the_files_pixels_over_255(tmp_path: Path) -> None:
    pixels = numpy.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=numpy.uint8)
    (tmp_path / "only").mkdir()
    Image.fromarray(pixels).save(tmp_path / "only/one.png")
    images = open_data(tmp_path).read([0], Preprocessing())
    assert torch.equal(images, torch.from_numpy(pixels).permute(2, 0, 1).unsqueeze(0).float() / 255)


def test_positions_are_read_in_the_order_asked_for(tmp_path: Path, picture: Picture) -> None:
    for level in range(20):
        picture(f"a/{level:02d}.png", level)
    wanted = [17, 3, 3, 0]
    images = open_data(tmp_path).read(wanted, Preprocessing(channels=1))
    assert (images[:, 0, 0, 0] * 255).round().tolist() == wanted


def test_a_real_photo_is_read_as_torchvision_reads_it(shared: Path) -> None:
    from torchvision import transforms

    dataset = open_data(shared / "data/imagenet-sample")
    steps = transforms.Compose(
        [
            transforms.Resize(256, transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
        ]
    )
    images = dataset.read([0, 101], Preprocessing(resize=256, crop=224))
    for image, position in zip(images, [0, 101], strict=True):
        with Image.open(shared / "data/imagenet-sample/val" / dataset.ids[position]) as photo:
            assert torch.equal(image, steps(photo.convert("RGB")))


def test_sizes_that_differ_are_refused_with_two_files_and_the_mend(tmp_path: Path, picture: Picture) -> None:
    picture("a/one.png", size=(8, 8))
    picture("a/two.png", size=(9, 8))
    dataset = open_data(tmp_path)
    for positions in ([0, 1], [1]):
        with pytest.raises(BadValue, match=r"one\.png' is 8x8.*two\.png' is 9x8.*--preprocessing.*crop=224"):
            dataset.read(positions, Preprocessing())
    with pytest.raises(BadValue, match=r"is 16x16.*is 18x16"):
        dataset.read([0, 1], Preprocessing(resize=16))
    assert dataset.read([0, 1], Preprocessing(resize=16, crop=16)).shape == (2, 3, 16, 16)


def test_a_picture_smaller_than_the_crop_is_named(tmp_path: Path, picture: Picture) -> None:
    picture("a/one.png")
    with pytest.raises(BadValue, match=r"one\.png.*8x8, smaller than the crop of 224.*--preprocessing"):
        open_data(tmp_path).read([0], Preprocessing(crop=224))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"<!DOCTYPE html><html>", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
        (b"\x00\x01\x02", "no known format"),
    ],
)
def test_a_file_that_is_no_image_is_named_for_what_it_is(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.jpg"
    path.write_bytes(content)
    with pytest.raises(BadValue, match=rf"bad\.jpg.*{message}"):
        decoded(path, Preprocessing())


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "webp", "ppm", "tif"])
def test_a_truncated_image_is_named_and_the_others_are_still_read(tmp_path: Path, suffix: str) -> None:
    pixels = numpy.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=numpy.uint8)
    (tmp_path / "a").mkdir()
    for name in ("bad", "good"):
        Image.fromarray(pixels).save(tmp_path / f"a/{name}.{suffix}")
    whole = (tmp_path / f"a/bad.{suffix}").read_bytes()
    (tmp_path / f"a/bad.{suffix}").write_bytes(whole[: len(whole) // 2])
    dataset = open_data(tmp_path)
    with pytest.raises(BadValue, match=rf"bad\.{suffix}") as error:
        dataset.read([1, 0], Preprocessing(crop=64))
    assert "\n" not in str(error.value)
    assert dataset.read([1], Preprocessing(crop=64)).shape == (1, 3, 64, 64)


def test_a_picture_of_sixteen_bits_is_refused_instead_of_clipped(tmp_path: Path) -> None:
    Image.fromarray(numpy.full((8, 8), 40000, numpy.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(BadValue, match=r"deep\.png.*8 bits"):
        decoded(tmp_path / "deep.png", Preprocessing())


def test_grey_palette_and_transparent_pictures_become_colour(tmp_path: Path) -> None:
    for mode in ("L", "P", "RGBA", "LA", "1", "CMYK"):
        path = tmp_path / f"{mode}.tif"
        Image.new(mode, (4, 4)).save(path)
        assert decoded(path, Preprocessing()).shape == (3, 4, 4)


def test_nothing_to_read_is_refused(tmp_path: Path, picture: Picture) -> None:
    picture("a/one.png")
    with pytest.raises(BadValue, match="at least one"):
        open_data(tmp_path).read([], Preprocessing())


def test_a_folder_travels_to_another_process(tmp_path: Path, picture: Picture) -> None:
    picture("a/one.png", 51)
    again = pickle.loads(pickle.dumps(open_data(tmp_path)))
    assert torch.equal(again.read([0], Preprocessing()), torch.full((1, 3, 8, 8), 0.2))


def test_reading_leaves_the_folder_as_it_was(tmp_path: Path, picture: Picture) -> None:
    picture("a/one.png")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    open_data(tmp_path).read([0], Preprocessing())
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_colour_picture_of_16_bits_is_refused_before_and_while_it_is_read(tmp_path: Path, picture: Picture) -> None:
    """Pillow would cut its channels down to 8 bits without a word."""
    path = picture("a/1.png")
    deep = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in (
            (b"IHDR", struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)),
            (b"IDAT", zlib.compress((b"\0" + bytes(48)) * 8)),
            (b"IEND", b""),
        )
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + deep)
    dataset = open_data(tmp_path)
    wanted = "has PNG of more than 8 bits; expected 8 bits per channel"
    assert wanted in dataset.check([0], Preprocessing())[0]
    with pytest.raises(BadValue, match=wanted):
        dataset.read([0], Preprocessing())


def test_a_portable_pixmap_of_16_bits_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/1.ppm").write_bytes(b"P6 2 2 65535\n" + bytes(24))
    with pytest.raises(BadValue, match="more than 8 bits"):
        open_data(tmp_path).read([0], Preprocessing())


def test_colours_that_cannot_become_grey_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.new("LAB", (4, 4)).save(tmp_path / "a/1.tif")
    with pytest.raises(BadValue, match="mode LAB"):
        open_data(tmp_path).read([0], Preprocessing(channels=1))


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path, picture: Picture, kind: str) -> None:
    picture("a/1.png")
    if kind == "pipe":
        os.mkfifo(tmp_path / "a/2.png")
    else:
        (tmp_path / "a/2.png").symlink_to("/dev/zero")
    with pytest.raises(BadValue, match=r"2.png' is no regular file"):
        open_data(tmp_path)


def test_a_picture_that_is_replaced_during_a_run_is_noticed(tmp_path: Path, picture: Picture) -> None:
    picture("a/1.png")
    picture("a/2.png")
    dataset = open_data(tmp_path)
    picture("a/2.png", 7)
    os.utime(tmp_path / "a/2.png", (1, 1))
    assert len(dataset.read([0], Preprocessing())) == 1
    with pytest.raises(BadValue, match=r"2.png' was changed during the run"):
        dataset.read([0, 1], Preprocessing())
