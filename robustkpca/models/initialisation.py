"""Initial weights that are the same every time, drawn without disturbing anyone's random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy
import torch

SEED = 0


@contextmanager
def reproducible(seed: int = SEED) -> Iterator[None]:
    """Seed the global generators of torch, numpy and Python, and put them back afterwards.

    The generators of CUDA devices take part once CUDA is in use; before that, they are left alone.
    """
    in_use: Callable[[], bool] = torch.cuda.is_initialized
    devices = list(range(torch.cuda.device_count())) if in_use() else []
    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng(devices=devices):
        try:
            torch.default_generator.manual_seed(seed)
            if devices:
                torch.cuda.manual_seed_all(seed)
            random.seed(seed)
            numpy.random.seed(seed)
            yield
        finally:
            random.setstate(python_state)
            numpy.random.set_state(numpy_state)
