"""Stored sets of corrupted images, in each layout, and what is missing in them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from robustkpca.data import open_data
from robustkpca.errors import BadValue
from robustkpca.preprocessing import Preprocessing

WNIDS = ("n01440764", "n01443537")


def image_folder(root: Path, group: str = "") -> Path:
    for corruption in ("fog", "snow"):
        for severity in range(1, 6):
            for index, wnid in enumerate(WNIDS):
                path = root / group / corruption / str(severity) / wnid / "0.JPEG"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (8, 8), (20 * severity, 100 * index, 0)).save(path)
    return root


@pytest.mark.parametrize("name", ["imagenet-c", "ImageNet-C"])
@pytest.mark.parametrize("group", ["", "weather"])
def test_imagenet_c_is_found_flat_and_in_its_groups(tmp_path: Path, name: str, group: str) -> None:
    root = image_folder(tmp_path / name, group)
    data = open_data(f"{root}:fog:4")
    assert data.spec.name == f"{name}/fog/4"
    assert data.labels == (0, 1)
    assert data.spec.classes == 1000
    assert data.ids == tuple(f"{wnid}/0.JPEG" for wnid in WNIDS)
    assert float(data.read([0], Preprocessing())[0, 0].mean()) == pytest.approx(80 / 255, abs=0.02)
    assert data.spec.id != open_data(f"{root}:fog:3").spec.id


def test_what_is_missing_in_imagenet_c_is_named(tmp_path: Path) -> None:
    root = image_folder(tmp_path / "imagenet-c", "weather")
    with pytest.raises(BadValue, match=r"corruption 'frost' is missing; there are 'fog', 'snow'"):
        open_data(f"{root}:frost:1")
    with pytest.raises(BadValue, match=r"severity '6'; expected 1 to 5"):
        open_data(f"{root}:fog:6")
    shutil.rmtree(root / "weather" / "fog" / "2")
    with pytest.raises(BadValue, match=r"severity 2 is missing, there are '1', '3', '4', '5'"):
        open_data(f"{root}:fog:2")
    shutil.rmtree(root / "weather" / "fog" / "3" / WNIDS[1])
    with pytest.raises(BadValue, match=r"classes 'n01443537' are missing"):
        open_data(f"{root}:fog:3")
    with pytest.raises(BadValue, match="no data at"):
        open_data(f"{tmp_path}/nowhere:fog:3")


def test_cifar_c_is_cut_into_its_severities(tmp_path: Path) -> None:
    levels = numpy.repeat(numpy.arange(1, 6), 4).astype(numpy.uint8)
    numpy.save(tmp_path / "fog.npy", numpy.broadcast_to(levels[:, None, None, None], (20, 32, 32, 3)).copy())
    numpy.save(tmp_path / "labels.npy", numpy.tile([0, 1, 2, 9], 5))
    data = open_data(f"{tmp_path}:fog:3")
    assert data.spec.size == 4
    assert data.labels == (0, 1, 2, 9)
    assert torch.equal(data.read([0, 3], Preprocessing()), torch.full((2, 3, 32, 32), 3 / 255))
    assert data.ids[0].endswith("/fog/3/000000")
    with pytest.raises(BadValue, match="corruption 'snow' is missing; there are 'fog'"):
        open_data(f"{tmp_path}:snow:3")
    numpy.save(tmp_path / "labels.npy", numpy.zeros(7, int))
    with pytest.raises(BadValue, match="20 images and 7 labels; expected five severities"):
        open_data(f"{tmp_path}:fog:3")
