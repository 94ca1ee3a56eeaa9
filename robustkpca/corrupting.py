"""Corrupt a batch of images, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from robustkpca.draws import Draws
from robustkpca.errors import BadValue
from robustkpca.threats import ThreatModel


def corrupt(
    images: Tensor | NDArray[Any],
    name: str,
    severity: int,
    *,
    seed: int = 0,
    sample_ids: Sequence[str] | None = None,
) -> Tensor:
    """Corrupt a batch of images.

    The result is that of a run with the same seed and sample ids. It depends on nothing else: not on the other images of
    the batch, on earlier calls, or on a global generator.

    Args:
        images: ``(N, C, H, W)``, uint8. Not changed.
        name: Of a corruption, with options such as ``fog(constants=cifar)``.
        severity: 1 to 5.
        seed: Key of the random streams.
        sample_ids: One text per image, the other part of the key; positions where ``None``.

    Returns:
        Images of the same shape, uint8, on the same device.

    Raises:
        UserError: If there is no such corruption, or it cannot be applied to such images.
    """
    tensor = images if isinstance(images, Tensor) else torch.from_numpy(images.copy())
    if tensor.dtype != torch.uint8:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise BadValue(f"images are {kind}; expected uint8 from 0 to 255: use (images * 255).round().to(torch.uint8)")
    if tensor.ndim != 4:
        mend = ": add the batch dimension with images[None]" if tensor.ndim == 3 else ""
        raise BadValue(f"images have shape {tuple(tensor.shape)}; expected (N, C, H, W){mend}")
    if tensor.shape[1] not in (1, 3) and tensor.shape[3] in (1, 3):
        raise BadValue(f"images have shape {tuple(tensor.shape)}, channels last; use images.permute(0, 3, 1, 2)")
    threat = ThreatModel.parse(f"{name}:{severity}")
    if threat.severity is None:
        raise BadValue(f"corrupt: {name!r} is no corruption; 'robustkpca list corruptions' shows them")
    ids = [str(index) for index in range(len(tensor))] if sample_ids is None else [str(one) for one in sample_ids]
    if len(ids) != len(tensor):
        raise BadValue(f"sample_ids: got {len(ids)} for {len(tensor)} images; expected one each")
    return corrupted(tensor, threat, ids, seed=seed)


def corrupted(images: Tensor, threat: ThreatModel, samples: Sequence[str], *, seed: int) -> Tensor:
    """Apply a corruption as a run does.

    Args:
        images: ``(N, C, H, W)``, uint8.
        threat: A corruption at a severity.
        samples: One id per image.
        seed: The seed of the run.
    """
    draws = Draws.of(samples, seed=seed, threat=str(threat))
    made: Tensor = threat.function()(images, severity=threat.severity, draws=draws, **threat.call.arguments)
    return made
