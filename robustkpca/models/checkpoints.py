"""Weights from files: read without running code, found in their container, fitted to a network, and identified."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from robustkpca.errors import Unusable
from robustkpca.models.fitting import finite, fitted, wrapper
from robustkpca.models.weight_files import listed, printable, read_weight_file, require_file
from robustkpca.specs import file_digest

WEIGHTS = ("model", "state_dict", "net", "module", "model_state_dict", "network", "params", "weights")
"""Container entries that hold weights; the first one found is taken."""

AVERAGED = ("model_ema", "state_dict_ema", "ema", "ema_model", "ema_state_dict", "model_ema_state_dict", "params_ema")
"""Container entries that hold an average of weights over training; taken only when asked for, the first one found."""

_OF_TORCH = frozenset(vars(nn.Module()))
"""Attributes that torch gives every module; what they hold is met under its own name."""

DEPTH = 3  # of containers in containers; two occur, {"ema": {"module": ...}}


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Weights as a file has them.

    Args:
        state: Names, without a wrapper's prefix, and tensors, on the CPU.
        key: Which entry of the container they are, such as ``model``, or ``ema.module`` in nested ones; empty for the
            file itself.
        sha256: Digest of the file.
        path: Where the file lies.
        keys_available: Every entry that holds tensors, ``key`` included.
        prefix: What was stripped from all names, such as ``module.``.
    """

    state: dict[str, Tensor]
    key: str
    sha256: str
    path: str
    keys_available: tuple[str, ...] = ()
    prefix: str = ""

    def __str__(self) -> str:
        return f"checkpoint {printable(self.path)}" + (f" ({printable(self.key)})" if self.key else "")


def read_checkpoint(path: str | os.PathLike[str], *, use_ema: bool = False) -> Checkpoint:
    """Read weights from a safetensors file or a file of ``torch.save``, new or legacy, whatever its suffix.

    Entries named in `WEIGHTS` are looked for in that order, and in them again; then the file itself is taken. An entry
    of another name is taken only if it is the only one with tensors. Values that are no tensors are left out. Prefixes
    of wrappers are stripped where every name carries them.

    Args:
        path: The file.
        use_ema: Take the averaged weights, an entry named in `AVERAGED`, instead.

    Raises:
        BadValue: If there is no such file.
        Unusable: If the file is damaged, of no known format, would run code, or holds no such weights, none at all, or
            some that are not finite. Infinite values are allowed only where the name ends in ``mask``.
    """
    path = Path(path)
    require_file(path)
    try:
        sha256 = file_digest(path)
        content = read_weight_file(path, sha256)
    except OSError as error:
        raise Unusable(f"checkpoint {printable(path)}: cannot be read: {error.strerror or printable(error)}") from None
    entries = _entries(content)
    where = _chosen(entries, use_ema, path)
    state = entries[where]
    counted = {name: value for name, value in state.items() if name != "n_averaged"}
    if wrapper(counted):  # torch.optim.swa_utils.AveragedModel puts a counter beside the wrapped weights
        state = counted
    _require_finite(state, path)
    prefix = wrapper(state)
    return Checkpoint(
        state={name[len(prefix) :]: value for name, value in state.items()},
        key=".".join(where),
        sha256=sha256,
        path=str(path),
        keys_available=tuple(".".join(entry) for entry in entries),
        prefix=prefix,
    )


def load_weights(network: nn.Module, checkpoint: Checkpoint, *, name: str) -> list[str]:
    """Copy weights into a network, all of them or none.

    The network keeps its dtype and device. A position embedding for another number of patches is resized. A network with a
    function ``weight_name`` is asked what it calls each weight of the file.

    Args:
        network: Changed in place.
        checkpoint: What `read_checkpoint` returned.
        name: What to call the network in messages, such as its text form.

    Returns:
        One remark for each weight that was not taken as it is, to be shown to the user.

    Raises:
        Unusable: If a name is missing or has no place, or a shape or kind of number differs. The network is unchanged.
    """
    rename = getattr(network, "weight_name", None)
    state = {rename(key): value for key, value in checkpoint.state.items()} if rename else checkpoint.state
    weights, remarks = fitted(network, state, name=name, origin=str(checkpoint))
    complete = network.state_dict()
    complete.update(weights)
    network.load_state_dict(complete)
    return remarks


def weights_digest(network: nn.Module) -> str:
    """Return the sha256 over names, shapes, dtypes and bytes of a network's state, as 64 hexadecimal digits.

    The state is what ``state_dict`` holds, and what it leaves out: buffers that are not saved, and tensors and arrays that
    lie in attributes of modules, alone or in lists and mappings. It depends neither on the device nor on the memory layout,
    and differs when a single bit differs.

    Raises:
        Unusable: If the state holds something other than dense tensors.
    """
    digest = hashlib.sha256()
    for name, value in sorted((dict(_unsaved(network)) | network.state_dict()).items()):
        if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise Unusable(
                f"state entry {printable(name)} is no dense tensor with values: its weights cannot be identified"
            )
        digest.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode() + b"\n")
        plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _unsaved(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield buffers, and tensors and arrays that are plain attributes of modules, under the names of their places."""
    yield from network.named_buffers()
    for prefix, module in network.named_modules():
        own = {name: value for name, value in vars(module).items() if name not in _OF_TORCH}
        yield from _tensors(own, prefix)


def _tensors(thing: Any, at: str, depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    if depth > DEPTH:  # a container may hold itself
        return
    if isinstance(thing, Tensor):
        yield at, thing
    elif isinstance(thing, numpy.ndarray) and thing.dtype.kind in "biufc":
        yield at, torch.from_numpy(numpy.array(thing, dtype=thing.dtype.newbyteorder("=")))
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield from _tensors(value, f"{at}.{key}" if at else str(key), depth + 1)
    elif isinstance(thing, list | tuple):
        for index, value in enumerate(thing):
            yield from _tensors(value, f"{at}.{index}", depth + 1)


def _entries(content: Any, at: tuple[str, ...] = ()) -> dict[tuple[str, ...], dict[str, Tensor]]:
    """Return every mapping with tensors under its place in the containers, the file itself being the empty place."""
    if not isinstance(content, Mapping):
        return {}
    tensors = {k: v.detach() for k, v in content.items() if isinstance(k, str) and isinstance(v, Tensor)}
    found = {at: tensors} if tensors else {}
    if len(at) < DEPTH:
        for key, value in content.items():
            if isinstance(key, str):
                found |= _entries(value, (*at, key))
    return found


def _chosen(entries: Mapping[tuple[str, ...], Any], use_ema: bool, path: Path) -> tuple[str, ...]:
    """Return the place of the weights that were asked for."""
    if not entries:
        raise Unusable(f"checkpoint {printable(path)}: holds no tensors under names; expected a state dict")
    order = {key: rank for rank, key in enumerate(AVERAGED + WEIGHTS if use_ema else WEIGHTS)}
    last = len(order)
    averaged = {where for where in entries if not set(where).isdisjoint(AVERAGED)}
    wanted = averaged if use_ema else entries.keys() - averaged
    known = [where for where in wanted if all(key in order for key in where)]
    available = listed((".".join(where) or "the file itself") for where in entries)
    if known:
        return min(known, key=lambda where: [*(order[key] for key in where), last])
    if len(wanted) == 1:
        return next(iter(wanted))
    if use_ema and not wanted:
        raise Unusable(f"checkpoint {printable(path)}: holds no averaged weights (EMA), only: {available}")
    if not wanted:
        raise Unusable(
            f"checkpoint {printable(path)}: holds averaged weights (EMA) only: {available}; ask for them by use_ema"
        )
    raise Unusable(
        f"checkpoint {printable(path)}: cannot tell which entry holds the weights: {available}; "
        "save the right one alone by torch.save"
    )


def _require_finite(state: Mapping[str, Tensor], path: Path) -> None:
    try:
        broken = [name for name, value in state.items() if not finite(value) and not _is_mask(name, value)]
    except NotImplementedError as error:  # a dtype that torch holds but cannot compute with
        raise Unusable(f"checkpoint {printable(path)}: its numbers cannot be read ({printable(error)})") from None
    if broken:
        raise Unusable(
            f"checkpoint {printable(path)}: {len(broken)} weights hold NaN or infinite numbers: {listed(broken)}; "
            "the training diverged, or the file is damaged"
        )


def _is_mask(name: str, value: Tensor) -> bool:
    return name.endswith("mask") and not value.isnan().any()
