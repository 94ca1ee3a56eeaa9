"""Every corruption against the pictures of the reference, given its random numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image
from torch import Tensor

from robustkpca import registry
from robustkpca.corruptions import weather
from robustkpca.draws import Draws

NAMES = sorted(name for name, one in registry.entries("corruptions").items() if "images" in one.tags)
OFF_BY_ONE = {
    "motion_blur": "sums in float32, those of ImageMagick in float64",
    "snow": "as motion_blur, in the smear of its flakes",
    "elastic_transform": "interpolates in float32, SciPy in float64",
}
"""Where single values may differ by one, and why. Everything else is the same bit for bit."""
SHARE = 1e-3


@pytest.fixture(scope="session")
def golden(shared: Path) -> Path:
    path = shared / "golden" / "corruptions"
    if not (path / "cases.json").is_file():
        pytest.skip(f"the pictures of the reference are needed and {path} holds none")
    return path


class Recorded(Draws):
    """Streams that a test has prepared."""

    def given(self, *generators: Any) -> Recorded:
        self.prepared = list(generators)
        return self

    def generators(self) -> Any:
        return self.prepared


def read(path: Path) -> Tensor:
    return torch.from_numpy(numpy.array(Image.open(path).convert("RGB"))).permute(2, 0, 1)[None].contiguous()


def stream(case: dict[str, Any]) -> Any:
    seed = case.get("numpy_seed", 0)
    new = case["corruption"] == "impulse_noise"
    return numpy.random.default_rng(seed) if new else numpy.random.RandomState(seed)


def windows_of(golden: Path, case: dict[str, Any]) -> tuple[Any, ...]:
    """Return five windows of ice; the one that was chosen is black but for the recorded piece."""
    piece = read(golden / case["frost_crop"])[0].numpy()
    window = numpy.zeros((3, *case["frost_shape"][:2]), numpy.uint8)
    top, left = case["x_start_row"], case["y_start_col"]
    window[:, top : top + piece.shape[1], left : left + piece.shape[2]] = piece
    return tuple(window if index == case["frost_index"] else numpy.full_like(window, 255) for index in range(5))


@pytest.mark.usefixtures("true_photons")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("constants", ["imagenet", "cifar"])
def test_the_pictures_are_those_of_the_reference(
    golden: Path, name: str, constants: str, legacy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = json.loads((golden / "cases.json").read_text()).values()
    mine = [case for case in cases if case["corruption"] == name and case["dataset"] == constants]
    assert len(mine) >= 3
    function = registry.find("corruptions", name).load()
    for case in mine:
        draws = Recorded(torch.zeros(1, 2, dtype=torch.int64)).given(legacy(stream(case)))
        if name == "frost":
            windows = windows_of(golden, case)
            monkeypatch.setattr(weather, "textures_of", lambda *_, windows=windows: windows)
        made = function(read(golden / case["input"]), severity=case["severity"], draws=draws, constants=constants)
        wanted = [read(golden / case[key]) for key in ("expected", "expected_opencv4") if key in case]
        differences = min(((made.int() - one.int()).abs() for one in wanted), key=lambda one: float(one.float().mean()))
        if name in OFF_BY_ONE:
            assert int(differences.max()) <= 1, case["expected"]
            assert float((differences > 0).float().mean()) < SHARE, case["expected"]
        else:
            assert int(differences.max()) == 0, case["expected"]
