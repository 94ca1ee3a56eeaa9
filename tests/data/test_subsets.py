from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import robustkpca as rk
from robustkpca.data.imagenet import imagenet_index
from robustkpca.data.layout import open_data
from robustkpca.data.subsets import SUBSETS, subset_mask, subset_wnids
from robustkpca.errors import BadValue

Picture = Callable[..., Path]


RAMP = """
import torch
from torch import nn


class Ramp(nn.Module):
    def forward(self, images):
        return torch.arange(1000.0).expand(len(images), -1) + 0 * images.mean((1, 2, 3))[:, None]


def ramp():
    return Ramp()
"""


def model_file(folder: Path) -> str:
    """Write a model whose logits rise with the class for every image, so that the highest class asked for wins."""
    path = folder / "ramp.py"
    path.write_text(RAMP)
    return f"{path}:ramp"


@pytest.mark.parametrize("layout", SUBSETS)
def test_the_200_folders_are_recognised_and_judged_among_themselves(
    tmp_path: Path, picture: Picture, layout: str
) -> None:
    wnids = subset_wnids(layout)
    assert len(set(wnids)) == 200
    for wnid in wnids:
        picture(f"some/{wnid}/a.png")
    data = open_data(tmp_path / "some", classes=1000)
    assert (data.spec.layout, data.spec.classes) == (layout, 1000)
    assert data.labels == tuple(imagenet_index(wnid) for wnid in wnids) == subset_mask(layout)
    frame = rk.score(model_file(tmp_path), "clean", data=str(tmp_path / "some"))
    assert set(frame["prediction"]) == {max(subset_mask(layout))}
    assert (frame["verdict"] == "survived").sum() == 1
    assert frame["top5"].sum() == 5
    logits = torch.tensor(subset_mask(layout), dtype=torch.float64)
    assert frame["confidence"].to_numpy() == pytest.approx(float(logits.softmax(0).max()), abs=1e-12)


def test_a_missing_class_is_named(tmp_path: Path, picture: Picture) -> None:
    wnids = subset_wnids("imagenet-r")
    for wnid in wnids[1:]:
        picture(f"some/{wnid}/a.png")
    with pytest.raises(BadValue, match=f"199 of the 200 .*imagenet-r .*{wnids[0]}"):
        open_data(tmp_path / "some")
    picture(f"ImageNet_A/{subset_wnids('imagenet-a')[0]}/a.png")
    with pytest.raises(BadValue, match=r"1 of the 200 classes of imagenet-a .*and 196 more"):
        open_data(tmp_path / "ImageNet_A")


def test_pictures_of_none_of_the_classes_have_no_accuracy(tmp_path: Path, picture: Picture) -> None:
    picture(f"imagenet-o/{subset_wnids('imagenet-a')[0]}/a.png")
    with pytest.raises(BadValue, match="the pictures of ImageNet-O show none of the 1000 classes"):
        open_data(tmp_path / "imagenet-o")


def test_an_attack_is_refused(tmp_path: Path, picture: Picture) -> None:
    for wnid in subset_wnids("imagenet-a"):
        picture(f"some/{wnid}/a.png")
    with pytest.raises(BadValue, match=r"on imagenet-a.*expected 'clean' or corruptions"):
        rk.score(model_file(tmp_path), "pgd(steps=1)@linf:4/255", data=str(tmp_path / "some"))
