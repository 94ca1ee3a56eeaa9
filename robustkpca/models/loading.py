"""From a name or a network to a `TorchClassifier`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from robustkpca.errors import BadValue, Unusable
from robustkpca.models.announced import announced_preprocessing
from robustkpca.models.checkpoints import load_weights, read_checkpoint, weights_digest
from robustkpca.models.classifier import TorchClassifier
from robustkpca.models.factory import build_model
from robustkpca.preprocessing import Preprocessing
from robustkpca.specs import ModelSpec

log = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""Precisions of the passes, by name."""
AUTO_BATCH_SIZE = {"cpu": 32, "cuda": 128}
"""Images of one pass where the caller asks for ``auto``."""


def load_model(
    name: str,
    checkpoint: str | Path | None = None,
    device: str = "cpu",
    *,
    use_ema: bool = False,
    preprocessing: Preprocessing | str | None = None,
    dtype: str = "",
    batch_size: int | str = "auto",
    **overrides: Any,
) -> TorchClassifier:
    """Build a network, load its weights and wrap it as a classifier of [0, 1] images.

    Args:
        name: ``symvit_tiny``, ``rpc_symvit_tiny(iterations=6)``, ``timm/<name>``, ``path/to/file.py:function``, ...
        checkpoint: File with the weights; ``None`` takes the bundled ones where there are some, those of an installed
            package for a network with a function ``packaged_checkpoint`` that says where they lie, and initial weights from
            a fixed seed otherwise.
        device: ``cpu``, ``cuda``, ``cuda:1``, ...
        use_ema: Whether to take the averaged weights of the checkpoint.
        preprocessing: Replaces the fields of the model's own preprocessing that it names.
        dtype: One of `DTYPES`; empty keeps the network's.
        batch_size: Most images of one pass, or ``auto``.
        overrides: Arguments of the architecture.

    Raises:
        UserError: If the name, the checkpoint or an argument cannot be used.
    """
    if not isinstance(name, str):
        raise BadValue(
            f"load_model: got a {type(name).__name__}; expected a name such as 'net.py:build'. A network in memory is wrapped "
            "with robustkpca.wrap"
        )
    built = build_model(name, **overrides)
    network, label = built.network, built.label
    bundled, packaged = getattr(network, "bundled_checkpoint", None), getattr(network, "packaged_checkpoint", None)
    held = ("", "")
    if checkpoint is None and bundled:
        with resources.as_file(resources.files("robustkpca.models") / "bundled" / str(bundled)) as path:
            held = _load(network, path, use_ema, label)
    elif checkpoint is not None:
        held = _load(network, Path(checkpoint), use_ema, label)
    elif callable(packaged):
        held = _load(network, packaged(), use_ema, label)
    elif use_ema:
        raise BadValue("averaged weights (--use-ema) come from a checkpoint; give one with --checkpoint")
    return wrap(
        network,
        name=built.canonical_name,
        label=label,
        device=device,
        preprocessing=_preprocessing(built.preprocessing, preprocessing),
        dtype=dtype,
        batch_size=batch_size,
        checkpoint=held[0],
        checkpoint_key=held[1],
        code=built.code_origin,
    )


class _Function(nn.Module):
    """A plain function as a network without weights."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: Tensor) -> Tensor:
        return self.function(images)


def wrap(
    network: nn.Module | Callable[[Tensor], Tensor],
    *,
    name: str = "",
    label: str = "",
    device: str | torch.device | None = None,
    preprocessing: Preprocessing | str | None = None,
    dtype: str = "",
    batch_size: int | str = "auto",
    checkpoint: str = "",
    checkpoint_key: str = "",
    code: str = "",
) -> TorchClassifier:
    """Wrap a network that exists already.

    Args:
        network: Maps images to logits; a module or a plain function. Its attribute ``preprocessing`` is used where it has
            one.
        name: What it is, with all arguments; its class name where empty.
        label: How it is called in tables; ``name`` where empty.
        device: Where to move it; ``None`` leaves it where its weights lie.
        preprocessing: Replaces the fields of the model's own preprocessing that it names.
        dtype: One of `DTYPES`; empty keeps the network's.
        batch_size: Most images of one pass, or ``auto``.
        checkpoint: sha256 of the file that held the weights.
        checkpoint_key: The entry of that file that held them.
        code: Where the architecture comes from; its class where empty.

    Raises:
        UserError: If an argument cannot be used, or a weight has no value.
    """
    if not isinstance(network, nn.Module):
        name = name or getattr(network, "__name__", type(network).__name__)
        network = _Function(network)
    name = name or type(network).__name__
    _refuse_unfilled(network, label or name)
    where = _device(network, device)
    if dtype and dtype not in DTYPES:
        raise BadValue(f"dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    network = network.to(where, DTYPES[dtype] if dtype else None)
    precision = next((p.dtype for p in network.parameters() if p.is_floating_point()), torch.float32)
    spec = ModelSpec(
        name=name,
        weights=weights_digest(network),
        preprocessing=_preprocessing(announced_preprocessing(network, label or name), preprocessing),
        dtype=str(precision).removeprefix("torch."),
        code=code or f"{type(network).__module__}.{type(network).__qualname__}",
        checkpoint=checkpoint,
        checkpoint_key=checkpoint_key,
        label=label or name,
    )
    size = AUTO_BATCH_SIZE.get(where.type, 32) if batch_size == "auto" else batch_size
    if not isinstance(size, int) or size < 1:
        raise BadValue(f"batch size {batch_size!r}: expected a whole number from 1 up, or auto")
    return TorchClassifier(network, spec, batch_size=size, device=where)


def _refuse_unfilled(network: nn.Module, name: str) -> None:
    """Refuse weights without values: those of a lazy layer before its first pass, and those on the meta device."""
    for place, tensor in (*network.named_parameters(), *network.named_buffers()):
        if is_lazy(tensor) or tensor.is_meta:
            kind = "a lazy layer before its first pass" if is_lazy(tensor) else "the meta device"
            raise Unusable(
                f"model {name}: {place} has no values ({kind}); expected a network whose weights are filled in"
            )


def _load(network: nn.Module, path: Path, use_ema: bool, name: str) -> tuple[str, str]:
    held = read_checkpoint(path, use_ema=use_ema)
    for notice in load_weights(network, held, name=name):
        log.warning("%s: %s", path.name, notice)
    return held.sha256, held.key


def _device(network: nn.Module, device: str | torch.device | None) -> torch.device:
    if device is None:
        return next((p.device for p in network.parameters()), torch.device("cpu"))
    try:
        where = torch.device(device)
    except RuntimeError:
        where = None
    if where is None or where.type not in ("cpu", "cuda"):
        raise BadValue(f"device {str(device)!r}: expected cpu, cuda or cuda:N")
    if where.type == "cuda" and (not torch.cuda.is_available() or (where.index or 0) >= torch.cuda.device_count()):
        raise BadValue(
            f"device {str(device)!r} is not there: torch sees {torch.cuda.device_count()} CUDA devices; use --device cpu"
        )
    return where


def _preprocessing(own: Preprocessing, given: Preprocessing | str | None) -> Preprocessing:
    if isinstance(given, Preprocessing):
        return given
    return own if given is None else replace(own, **Preprocessing.fields(given))
