"""Weights as a file has them, made to fit a network, or the reason why they do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isqrt

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from robustkpca.errors import Unusable
from robustkpca.models.weight_files import listed

WRAPPERS = ("module.", "_orig_mod.", "model.")
"""What ``DataParallel``, ``torch.compile`` and training wrappers put in front of every name."""

HEADS = {"head", "heads", "head_dist", "fc", "classifier", "last_linear", "linear", "output"}
POSITIONS = {"pos_embed", "pos_embedding", "position_embedding", "position_embeddings"}


def wrapper(names: Iterable[str]) -> str:
    """Return the wrapper prefixes, also several in a row, that all names carry; empty if a single one lacks them."""
    known, prefix = list(names), ""
    while known:
        step = next((w for w in WRAPPERS if all(name.startswith(prefix + w) for name in known)), None)
        if step is None:
            break
        prefix += step
    return prefix


def finite(value: Tensor) -> bool:
    """Say whether no number is NaN or infinite."""
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    if not value.is_floating_point() or not value.numel():
        return True
    for dimension, stride in enumerate(value.stride()):  # a file of four bytes may stand for any number of equal ones
        value = value if stride else value.narrow(dimension, 0, 1)
    extremes = torch.aminmax(value.float() if value.element_size() == 1 else value)  # one pass; NaN is passed on
    return bool(torch.isfinite(torch.stack(extremes)).all())


def fitted(
    network: nn.Module, state: Mapping[str, Tensor], *, name: str, origin: str
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the weights under the names, shapes and dtypes of a network, and remarks for its user.

    Nothing of the network is changed. A name may be missing only if its tensor is shared with one that is there, or if
    it is the step counter ``num_batches_tracked`` of a batch normalisation, which inference does not read and files
    from before torch 0.4.1 lack.

    Args:
        network: Where the weights shall go; its own names may carry a wrapper's prefix.
        state: Weights without a wrapper's prefix.
        name: What to call the network.
        origin: What to call the weights, such as ``checkpoint deit.pth``.

    Raises:
        Unusable: If a name is missing or has no place, or a shape or kind of number differs.
    """
    own = {key: value for key, value in network.state_dict().items() if isinstance(value, Tensor)}
    prefix = wrapper(own)
    given = {prefix + key: value for key, value in state.items()}
    _require_names(own, given, name, origin)

    remarks = []
    for key, value in given.items():
        if value.shape != own[key].shape and key.rpartition(".")[2] in POSITIONS:
            given[key], grids = _regridded(value, own[key], _grid(network, key))
            if grids:
                remarks.append(f"{name}: {key} of {origin} resized from {grids} patches (bicubic)")
    wrong = [key for key, value in given.items() if value.shape != own[key].shape]
    if wrong:
        raise Unusable(f"{origin}: {_difference(wrong, given, own, name)}")
    return {key: _cast(key, value, own[key].dtype, name, origin) for key, value in given.items()}, remarks


def _require_names(own: Mapping[str, Tensor], given: Mapping[str, Tensor], name: str, origin: str) -> None:
    shared: dict[tuple[int, torch.Size], list[str]] = {}
    for key, value in own.items():
        if value.numel() and value.data_ptr():
            shared.setdefault((value.data_ptr(), value.shape), []).append(key)
    twins = {key: keys for keys in shared.values() for key in keys}
    missing = [
        key
        for key in own
        if key not in given
        and not any(twin in given for twin in twins.get(key, ()))
        and key.rpartition(".")[2] != "num_batches_tracked"
    ]
    unexpected = [key for key in given if key not in own]
    if missing or unexpected:
        faults = [f"{len(missing)} weights of {name} are missing: {listed(missing)}"] if missing else []
        faults += [f"{len(unexpected)} weights have no place in {name}: {listed(unexpected)}"] if unexpected else []
        raise Unusable(f"{origin}: {'; '.join(faults)}. Is the model right?")
    for keys in shared.values():
        values = [given[key] for key in keys if key in given]
        if any(not torch.equal(value, values[0]) for value in values[1:]):
            raise Unusable(f"{origin}: {listed(keys)} differ, but are one tensor in {name}. Is the model right?")


def _difference(wrong: list[str], given: Mapping[str, Tensor], own: Mapping[str, Tensor], name: str) -> str:
    """Say in which way the shapes of some weights differ."""
    for key in wrong:
        theirs, ours = given[key].shape, own[key].shape
        if key.endswith(("qkv.weight", "qkv.bias")) and theirs[1:] == ours[1:] and theirs and ours:
            if 2 * theirs[0] == 3 * ours[0]:
                return (
                    f"{key} holds query, key and value (softmax attention), but {name} has one projection for query "
                    "and key (SymViT): use a softmax model, or weights trained as SymViT"
                )
            if 3 * theirs[0] == 2 * ours[0]:
                return (
                    f"{key} holds one projection for query and key (SymViT), but {name} wants query, key and value "
                    "(softmax attention): use a SymViT model, or weights trained with softmax attention"
                )
    heads = {(given[key].shape[0], own[key].shape[0]) for key in wrong if _is_head(key, given[key], own[key])}
    if len(heads) == 1 and all(_is_head(key, given[key], own[key]) for key in wrong):
        theirs_, ours_ = heads.pop()
        return f"has {theirs_} classes, {name} has {ours_}: use num_classes={theirs_}"
    shapes = [f"{key} is {tuple(given[key].shape)} instead of {tuple(own[key].shape)}" for key in wrong]
    return f"{len(wrong)} weights have another shape in {name}: {listed(shapes)}. Is the model right?"


def _is_head(key: str, theirs: Tensor, ours: Tensor) -> bool:
    module = key.split(".")[-2:-1]
    return bool(module) and module[0] in HEADS and theirs.ndim == ours.ndim > 0 and theirs.shape[1:] == ours.shape[1:]


def _grid(network: nn.Module, key: str) -> tuple[int, int] | None:
    """Return rows and columns of patches of the module that owns a position embedding, if it tells."""
    embedding = getattr(network.get_submodule(key.rpartition(".")[0]), "patch_embed", None)
    grid = getattr(embedding, "grid_size", None)
    if isinstance(grid, tuple | list) and len(grid) == 2 and all(isinstance(side, int) for side in grid):
        return grid[0], grid[1]
    return None


def _regridded(value: Tensor, target: Tensor, grid: tuple[int, int] | None) -> tuple[Tensor, str]:
    """Resize a position embedding ``(1, prefix + rows * columns, C)``, or return it as it is where that cannot be.

    Prefix tokens (class, distillation, registers) are kept apart and must be as many on both sides. A grid that the
    network does not tell is square; the grid of the weights is square, or has the proportions of the network's.

    Source:
        Touvron et al. 2021, arXiv:2012.12877, section 6.1: bicubic, without antialiasing, corners not aligned.
    """
    if value.ndim != 3 or target.ndim != 3 or value.shape[::2] != target.shape[::2] or len(value) != 1:
        return value, ""
    tokens, wanted = value.shape[1], target.shape[1]
    if grid is not None and grid[0] * grid[1] <= wanted:
        prefix = wanted - grid[0] * grid[1]
        source = _sides(tokens - prefix, grid)
    else:
        squares = (p for p in range(min(tokens, wanted)) if _is_square(tokens - p) and _is_square(wanted - p))
        prefix = next(squares, wanted)
        grid = (isqrt(wanted - prefix),) * 2
        source = _sides(tokens - prefix, grid)
    if source is None:
        return value, ""
    exact = value.to(torch.promote_types(value.dtype, torch.float32))
    patches = exact[:, prefix:].reshape(1, *source, -1).permute(0, 3, 1, 2)
    patches = interpolate(patches, size=grid, mode="bicubic", align_corners=False)
    resized = torch.cat([exact[:, :prefix], patches.permute(0, 2, 3, 1).reshape(1, grid[0] * grid[1], -1)], dim=1)
    return resized, f"{source[0]}x{source[1]} to {grid[0]}x{grid[1]}"


def _is_square(count: int) -> bool:
    return count > 0 and isqrt(count) ** 2 == count


def _sides(count: int, like: tuple[int, int]) -> tuple[int, int] | None:
    """Return rows and columns of ``count`` patches, square if possible, else in proportion to ``like``."""
    if _is_square(count):
        return isqrt(count), isqrt(count)
    if count <= 0 or not like[0]:
        return None
    rows = isqrt(count * like[0] // like[1])
    columns = count // max(rows, 1)
    return (rows, columns) if rows * columns == count and rows * like[1] == columns * like[0] else None


def _cast(key: str, value: Tensor, dtype: torch.dtype, name: str, origin: str) -> Tensor:
    """Return a weight in another precision of the same kind of number."""
    if value.dtype == dtype:
        return value
    if not (value.is_floating_point() and dtype.is_floating_point) and not _both_whole(value.dtype, dtype):
        raise Unusable(f"{origin}: {key} is {value.dtype}, but {name} wants {dtype}. Is the model right?")
    cast = value.to(dtype)
    if finite(value) and not finite(cast):
        raise Unusable(f"{origin}: {key} holds numbers too large for {dtype}: use {name} in float32")
    return cast


def _both_whole(one: torch.dtype, other: torch.dtype) -> bool:
    return not any(d.is_floating_point or d.is_complex or d == torch.bool for d in (one, other))
