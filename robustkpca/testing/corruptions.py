"""The contract of a corruption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from robustkpca.draws import Draws
from robustkpca.testing.trials import hold, random_images
from robustkpca.threats import ThreatModel


def check_corruption(name: str, *, size: int = 32, samples: int = 5) -> None:
    """Check that a corruption keeps the contract at every severity.

    Checked are: shape and type kept, input and global generator untouched, repeatable, independent of the batch.

    Args:
        name: Name with options, without severity.
        size: Side of the images in pixels.
        samples: Number of images.

    Raises:
        AssertionError: Naming what does not hold.
    """
    images = (random_images(samples, 3, size) * 255).round().to(torch.uint8)
    ids = [f"sample {index}" for index in range(samples)]
    for severity in range(1, 6):
        threat = ThreatModel.parse(f"{name}:{severity}")
        before, state = images.clone(), torch.get_rng_state()
        made = _corrupted(threat, images, ids)
        hold(
            made.shape == images.shape and made.dtype == torch.uint8, f"{threat} gives {tuple(made.shape)} {made.dtype}"
        )
        hold(torch.equal(images, before), f"{threat} changes its input")
        hold(torch.equal(torch.get_rng_state(), state), f"{threat} draws from the global generator")
        hold(torch.equal(_corrupted(threat, images, ids), made), f"{threat} is not repeatable")
        hold(torch.equal(_corrupted(threat, images[2:3], ids[2:3]), made[2:3]), f"{threat} depends on the batch")


def _corrupted(threat: ThreatModel, images: Tensor, ids: Sequence[str]) -> Tensor:
    draws = Draws.of(ids, seed=0, threat=str(threat))
    made = threat.function()(images, severity=threat.severity, draws=draws, **threat.call.arguments)
    hold(isinstance(made, Tensor), f"{threat} returns {type(made).__name__} instead of a tensor")
    return cast(Tensor, made)
