"""A corrupted copy: its pixels, its layout, and how it is continued."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

import robustkpca
from robustkpca.contact_sheet import contact_sheet
from robustkpca.copies import SETTINGS, corruptions_of, write_copy
from robustkpca.errors import BadValue, Unusable
from robustkpca.evaluation import score
from robustkpca.preprocessing import Preprocessing
from robustkpca.threats import ThreatModel

THREATS = [ThreatModel.parse(text) for text in ("glass_blur:2", "gaussian_noise:1", "contrast:3")]
NET = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    network = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(48, 3))
    network.preprocessing = "crop=64"
    return network
"""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = numpy.random.default_rng(0)
    for index in range(9):
        path = tmp_path / "photos" / f"class{index % 3}" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (70, 66, 3), dtype=numpy.uint8)).save(path)
    return tmp_path / "photos"


def test_a_lossless_copy_scores_as_the_corruption_on_the_fly(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    write_copy(photos, tmp_path / "copy", THREATS, preprocessing=Preprocessing(crop=64))
    model = f"{tmp_path}/net.py:build"
    fly = score(model, [threat.label for threat in THREATS], photos)
    for threat in THREATS:
        stored = score(model, "clean", tmp_path / "copy" / str(threat.written) / str(threat.severity))
        mine = fly[fly["threat_label"] == threat.label].sort_values("sample")
        stored = stored.sort_values("sample")
        assert len(stored) == len(mine) == 9
        assert stored["prediction"].tolist() == mine["prediction"].tolist()
        assert stored["loss"].tolist() == mine["loss"].tolist()


def test_a_copy_is_continued_and_never_mixed(photos: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    first = write_copy(photos, target, THREATS[:1], limit=4)
    second = write_copy(photos, target, THREATS)
    assert (first.written, first.found) == (4, 0)
    assert (second.written, second.found) == (23, 4)
    assert write_copy(photos, target, THREATS).written == 0
    assert json.loads((target / SETTINGS).read_text())["format"] == "png"
    with pytest.raises(BadValue, match="was made otherwise: seed 0, now 1; choose another folder"):
        write_copy(photos, target, THREATS, seed=1)
    with pytest.raises(BadValue, match="format 'png', now 'jpeg, quality 85'"):
        write_copy(photos, target, THREATS, quality=85)
    with pytest.raises(BadValue, match="is not empty and holds no corrupted"):
        write_copy(photos, photos, THREATS)


def test_jpeg_is_stored_on_request(photos: Path, tmp_path: Path) -> None:
    write_copy(photos, tmp_path / "copy", THREATS[2:], quality=85, limit=1)
    (path,) = (tmp_path / "copy").rglob("*.jpg")
    with Image.open(path) as image:
        assert image.format == "JPEG"
    with pytest.raises(BadValue, match="JPEG quality 100: expected 1 to 95"):
        write_copy(photos, tmp_path / "other", THREATS, quality=100)


def test_a_damaged_image_is_left_out_and_counted(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = photos / "class1" / "4.png"
    damaged.write_bytes(damaged.read_bytes()[:80])
    done = write_copy(photos, tmp_path / "copy", THREATS[:1])
    assert (done.written, done.failed) == (8, 1)
    assert f"{str(damaged)!r} cannot be decoded" in caplog.text


def test_an_image_that_cannot_be_corrupted_stops_the_copy(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="32x32 pixels are too small"):
        write_copy(photos, tmp_path / "copy", THREATS, preprocessing=Preprocessing(crop=32))


def test_arrays_are_copied_by_class(tmp_path: Path) -> None:
    images = numpy.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=numpy.uint8)
    numpy.savez(tmp_path / "data.npz", images=images, labels=[0, 2, 2, 0])
    fog = ThreatModel.parse("fog(constants=cifar):1")
    write_copy(tmp_path / "data.npz", tmp_path / "copy", [fog])
    folder = tmp_path / "copy" / "fog(constants=cifar)" / "1"
    assert sorted(path.name for path in folder.iterdir()) == ["0", "1", "2"]  # the empty class keeps its place
    made = numpy.array(Image.open(folder / "0" / "000000.png"))
    wanted = robustkpca.corrupt(images.transpose(0, 3, 1, 2)[:1], "fog(constants=cifar)", 1, sample_ids=["data/000000"])
    assert (made.transpose(2, 0, 1) == wanted[0].numpy()).all()


def test_boards_and_names_stand_for_their_corruptions() -> None:
    assert len(corruptions_of(["imagenet-c"])) == 75
    assert [one.label for one in corruptions_of(["fog", "fog:2"])] == [f"fog:{severity}" for severity in range(1, 6)]
    for text in ("clean", "fgsm@linf:0.1", "linf"):
        with pytest.raises(BadValue, match="is no corruption; write such as 'fog:3'"):
            corruptions_of([text])


def test_a_sheet_has_a_row_for_each_corruption() -> None:
    image = torch.full((3, 64, 64), 128, dtype=torch.uint8)
    sheet = contact_sheet(image, corruptions_of(["fog", "contrast"]), sample="a")
    assert sheet.size == (8 + 6 * 72, 8 + 2 * (64 + 18 + 8))
    assert sheet.getpixel((40, 60)) == (128, 128, 128)


def test_a_sheet_goes_where_it_can_be_written(photos: Path, tmp_path: Path) -> None:
    from robustkpca.copies import write_preview

    write_preview(photos, tmp_path / "sheet.png", THREATS)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 70
    with pytest.raises(Unusable, match=r"expected a path such as sheet\.png"):
        write_preview(photos, tmp_path / "sheet.nothing", THREATS)
