"""A corruption in memory and the same in a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import robustkpca
from robustkpca.errors import BadValue


def test_a_run_scores_the_pictures_that_corrupt_gives(tmp_path: Path) -> None:
    images = torch.randint(0, 256, (6, 3, 64, 64), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    network = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(48, 4)).eval()
    result = robustkpca.attack(network, images, torch.zeros(6, dtype=torch.long), "glass_blur:2", seed=3)
    wanted = robustkpca.corrupt(images, "glass_blur", 2, seed=3)
    assert torch.equal((result.images * 255).round().to(torch.uint8), wanted)


def test_what_is_no_corruption_is_refused() -> None:
    images = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    with pytest.raises(BadValue, match="clean takes no options"):
        robustkpca.corrupt(images, "clean", 1)
    with pytest.raises(BadValue, match="an attack needs a budget"):
        robustkpca.corrupt(images, "fgsm", 1)
    with pytest.raises(BadValue, match="got 2 for 1 images"):
        robustkpca.corrupt(images, "fog", 1, sample_ids=["a", "b"])
