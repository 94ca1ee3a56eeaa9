"""The smallest change of an image that reaches a hyperplane without leaving [0, 1], for three norms."""

from __future__ import annotations

import torch
from torch import Tensor

from robustkpca.budget import Norm


def smallest_change(points: Tensor, normals: Tensor, gaps: Tensor, norm: Norm) -> Tensor:
    """Return the smallest change that brings a linear function to zero within [0, 1].

    The function grows by ``normals`` and has the value ``gaps`` at ``points``. Where it cannot reach zero within [0, 1], the
    change goes as far as it can. Entries where the normal is zero do not change.

    Args:
        points: ``(..., D)``, in [0, 1].
        normals: ``(..., D)``.
        gaps: ``(...)``.
        norm: How a change is measured.

    Returns:
        ``(..., D)``.

    Source:
        Croce and Hein 2020, arXiv:1907.02044, section 2.2: the problem. The solutions are found by Newton's method, or by
        sorting in L1, instead of the bisection there.
    """
    towards = torch.where(gaps.unsqueeze(-1) > 0, -normals, normals).sign()
    rooms = torch.where(towards > 0, 1 - points, points).clamp_min(0) * towards.abs()
    slopes, wanted = normals.abs(), gaps.abs()
    scale = slopes.amax(-1, keepdim=True).clamp_min(torch.finfo(slopes.dtype).tiny)
    slopes, wanted = slopes / scale, wanted / scale.squeeze(-1)  # so that no square underflows
    sizes = {Norm.LINF: _equal_shares, Norm.L2: _sloped_shares, Norm.L1: _steepest_first}[norm](rooms, slopes, wanted)
    reachable = (slopes * rooms).sum(-1) > wanted
    return towards * torch.where(reachable.unsqueeze(-1), sizes, rooms)


def dual_size(normals: Tensor, norm: Norm) -> Tensor:
    """Return ``(...)``, how much the function of these normals ``(..., D)`` grows by a change of size one."""
    size: Tensor = torch.linalg.vector_norm(normals, {Norm.LINF: 1, Norm.L2: 2, Norm.L1: torch.inf}[norm], dim=-1)
    return size


def _equal_shares(rooms: Tensor, slopes: Tensor, wanted: Tensor) -> Tensor:
    """Change all entries by the same size, as far as they have room."""
    return torch.minimum(rooms, _level(slopes, rooms, wanted).unsqueeze(-1))


def _sloped_shares(rooms: Tensor, slopes: Tensor, wanted: Tensor) -> Tensor:
    """Change all entries in proportion to their slopes, as far as they have room."""
    caps = torch.where(slopes > 0, rooms / slopes, 0)
    return torch.minimum(rooms, slopes * _level(slopes.square(), caps, wanted).unsqueeze(-1))


def _steepest_first(rooms: Tensor, slopes: Tensor, wanted: Tensor) -> Tensor:
    """Use up the room of the steepest entries, one after the other."""
    steep, order = slopes.sort(dim=-1, descending=True, stable=True)
    room = rooms.gather(-1, order)
    gained = (steep * room).cumsum(-1)
    before = torch.cat([torch.zeros_like(gained[..., :1]), gained[..., :-1]], dim=-1)
    missing = (wanted.unsqueeze(-1) - before).clamp_min(0)
    used = torch.where(steep > 0, torch.minimum(room, missing / steep), 0)
    return torch.zeros_like(used).scatter(-1, order, used)


def _level(weights: Tensor, caps: Tensor, wanted: Tensor) -> Tensor:
    """Return ``(...)``, the level at which the sum of ``weights * min(level, caps)`` is what is wanted.

    The sum is concave and piecewise linear in the level, hence Newton's method from zero rises to the solution and stops
    there; each step passes a cap at least, in practice many. Where the solution lies beyond all caps the result is unused.
    """
    free = caps > 0
    for _ in range(caps.shape[-1] + 1):
        used = torch.where(free, 0, weights * caps).sum(-1)
        level = (wanted - used) / torch.where(free, weights, 0).sum(-1)
        still = free & (caps > level.unsqueeze(-1))
        if torch.equal(still, free):
            break
        free = still
    return level
