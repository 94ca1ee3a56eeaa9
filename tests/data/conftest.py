"""Pictures made on the spot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from PIL import Image

Picture = Callable[..., Path]


@pytest.fixture
def picture(tmp_path: Path) -> Picture:
    """A function that writes a picture of one grey level below the test's folder and returns its path."""

    def write(name: str, level: int = 128, size: tuple[int, int] = (8, 8)) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = numpy.full((size[1], size[0], 3), level, dtype=numpy.uint8)
        Image.fromarray(pixels).save(path)
        return path

    return write
