"""The smallest change that reaches a hyperplane within [0, 1], against general solvers of scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize
from torch import Tensor

from robustkpca.attacks.fab_projections import dual_size, smallest_change
from robustkpca.budget import Norm

ORDERS = {Norm.LINF: torch.inf, Norm.L2: 2, Norm.L1: 1}
SIZE = 6


def instances(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return points (some entries at the ends of [0, 1]), normals (some entries zero) and gaps, in float64."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, SIZE, generator=generator, dtype=torch.float64)
    points[torch.rand(count, SIZE, generator=generator) < 0.25] = 0
    points[torch.rand(count, SIZE, generator=generator) < 0.2] = 1
    normals = torch.randn(count, SIZE, generator=generator, dtype=torch.float64)
    normals[torch.rand(count, SIZE, generator=generator) < 0.2] = 0
    return points, normals, torch.randn(count, generator=generator, dtype=torch.float64)


def solved(point: np.ndarray, normal: np.ndarray, gap: float, norm: Norm) -> float | None:
    """Return the size of the smallest change, or nothing where there is none."""
    lower, upper = -point, 1 - point
    extremes = np.minimum(normal * lower, normal * upper).sum(), np.maximum(normal * lower, normal * upper).sum()
    if not extremes[0] <= -gap <= extremes[1]:
        return None
    bounds = list(zip(lower, upper, strict=True))
    if norm is Norm.L2:
        start = np.zeros(SIZE)
        found = minimize(
            lambda d: d @ d,
            start,
            jac=lambda d: 2 * d,
            bounds=bounds,
            constraints={"type": "eq", "fun": lambda d: normal @ d + gap, "jac": lambda d: normal},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        return float(np.sqrt(found.fun))
    count = 1 if norm is Norm.LINF else SIZE  # one bound for all entries, or one for each
    bounding = np.ones((SIZE, 1)) if norm is Norm.LINF else np.eye(SIZE)
    found = linprog(
        np.r_[np.zeros(SIZE), np.ones(count)],
        A_ub=np.block([[np.eye(SIZE), -bounding], [-np.eye(SIZE), -bounding]]),
        b_ub=np.zeros(2 * SIZE),
        A_eq=np.r_[normal, np.zeros(count)][None],
        b_eq=[-gap],
        bounds=bounds + [(0, None)] * count,
    )
    return float(found.fun) if found.status == 0 else None


@pytest.mark.parametrize("norm", list(Norm))
def test_changes_are_as_small_as_those_of_a_general_solver(norm: Norm) -> None:
    points, normals, gaps = instances(40, seed=1)
    changes = smallest_change(points, normals, gaps, norm)
    sizes = torch.linalg.vector_norm(changes, ORDERS[norm], dim=1)
    reached = 0
    for row in range(len(points)):
        wanted = solved(points[row].numpy(), normals[row].numpy(), float(gaps[row]), norm)
        if wanted is None:
            continue
        reached += 1
        assert abs(float(normals[row] @ changes[row] + gaps[row])) < 1e-9
        assert float(sizes[row]) == pytest.approx(wanted, abs=2e-6)
    assert 15 < reached < 40  # both kinds occur


@pytest.mark.parametrize("norm", list(Norm))
def test_changes_stay_within_the_box_and_leave_entries_without_slope_alone(norm: Norm) -> None:
    points, normals, gaps = instances(500, seed=2)
    changes = smallest_change(points, normals, gaps, norm)
    assert bool(((points + changes >= -1e-12) & (points + changes <= 1 + 1e-12)).all())
    assert bool((changes[normals == 0] == 0).all())


@pytest.mark.parametrize("norm", list(Norm))
def test_a_hyperplane_out_of_reach_is_approached_as_far_as_possible(norm: Norm) -> None:
    points, normals, gaps = instances(100, seed=3)
    gaps = gaps.sign() * 100
    changes = smallest_change(points, normals, gaps, norm)
    lowest = torch.minimum(-normals * points, normals * (1 - points)).sum(1)
    highest = torch.maximum(-normals * points, normals * (1 - points)).sum(1)
    torch.testing.assert_close((normals * changes).sum(1), torch.where(gaps > 0, lowest, highest))


@pytest.mark.parametrize("norm", list(Norm))
def test_nothing_changes_on_the_hyperplane_or_without_a_normal(norm: Norm) -> None:
    points, normals, gaps = instances(10, seed=4)
    assert bool((smallest_change(points, normals, torch.zeros_like(gaps), norm) == 0).all())
    assert bool((smallest_change(points, torch.zeros_like(normals), gaps, norm) == 0).all())


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_scale_of_the_function_does_not_matter(norm: Norm, scale: float) -> None:
    points, normals, gaps = (part.float() for part in instances(50, seed=5))
    scaled = smallest_change(points, normals * scale, gaps * scale, norm)
    torch.testing.assert_close(scaled, smallest_change(points, normals, gaps, norm), atol=1e-5, rtol=1e-4)


def test_rows_do_not_depend_on_each_other_and_may_have_several_dimensions() -> None:
    points, normals, gaps = instances(24, seed=6)
    for norm in Norm:
        whole = smallest_change(points, normals, gaps, norm)
        parts = [smallest_change(points[i : i + 1], normals[i : i + 1], gaps[i : i + 1], norm) for i in range(24)]
        assert torch.equal(whole, torch.cat(parts))
        folded = smallest_change(points.view(4, 6, SIZE), normals.view(4, 6, SIZE), gaps.view(4, 6), norm)
        assert torch.equal(folded.flatten(0, 1), whole)


def test_the_dual_size_is_the_growth_along_the_steepest_change() -> None:
    normals = torch.tensor([[3.0, -4.0, 0.0]])
    assert [float(dual_size(normals, norm)) for norm in (Norm.LINF, Norm.L2, Norm.L1)] == [7, 5, 4]
