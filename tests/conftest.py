"""What several tests need."""

from __future__ import annotations

import random
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import settings

settings.register_profile("robustkpca", deadline=None, max_examples=50, derandomize=True, database=None)
settings.load_profile("robustkpca")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Give every test the same random weights, whatever ran before it."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the checkout; a test that needs it is skipped where it is missing."""
    path = Path(__file__).parents[2] / "shared"
    if not (path / "data").is_dir():
        pytest.skip(f"real data are needed and {path / 'data'} does not exist")
    return path
