"""Budgets: text, distance, projection, steepest step and random start, against closed forms and independent solvers."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import beta, kstest
from torch import Tensor

from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.errors import BadValue
from robustkpca.threats import ThreatModel

NORMS = list(Norm)
RADII = {Norm.LINF: "0.2", Norm.L2: "0.4", Norm.L1: "0.6"}
vectors = st.lists(st.floats(-2, 2, width=32), min_size=6, max_size=6).map(lambda v: torch.tensor(v).view(1, 1, 2, 3))
pixels = st.lists(st.floats(0, 1, width=32), min_size=6, max_size=6).map(lambda v: torch.tensor(v).view(1, 1, 2, 3))


def budget(norm: Norm, *, bounded: bool = True) -> Budget:
    """Return a budget of ordinary size."""
    return Budget(norm, Fraction(RADII[norm]), bounded)


def size(change: Tensor, norm: Norm) -> float:
    """Measure one change by numpy, in float64."""
    order = {Norm.LINF: numpy.inf, Norm.L2: 2, Norm.L1: 1}[norm]
    return float(numpy.linalg.norm(change.double().flatten().numpy(), order))


def draws(count: int) -> Draws:
    """Return streams for some samples."""
    return Draws.of([str(index) for index in range(count)], seed=0, threat="test")


@pytest.mark.parametrize(
    ("text", "norm", "radius"),
    [
        ("linf:8/255", Norm.LINF, Fraction(8, 255)),
        ("LINF : 8/255", Norm.LINF, Fraction(8, 255)),
        ("l2:0.5", Norm.L2, Fraction(1, 2)),
        ("l1:12", Norm.L1, Fraction(12)),
        ("linf:0", Norm.LINF, Fraction(0)),
        ("l2:1e-3", Norm.L2, Fraction(1, 1000)),
    ],
)
def test_a_budget_is_read_exactly(text: str, norm: Norm, radius: Fraction) -> None:
    assert Budget.parse(text) == Budget(norm, radius)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linf:6/255", "linf:6/255"),
        ("linf:2/85", "linf:6/255"),
        ("linf:16/510", "linf:8/255"),
        ("l2:1/2", "l2:0.5"),
        ("l2:0.50", "l2:0.5"),
        ("l2:51/255", "l2:0.2"),
        ("l1:12.0", "l1:12"),
        ("l1:100", "l1:100"),
        ("linf:0.031", "linf:0.031"),
        ("l2:1/7", "l2:1/7"),
        ("l2:0.0000001", "l2:1/10000000"),
    ],
)
def test_equal_budgets_have_one_text_and_it_is_the_one_people_write(text: str, expected: str) -> None:
    assert str(Budget.parse(text)) == expected


def test_8_of_255_is_not_0_031() -> None:
    assert Budget.parse("linf:8/255") != Budget.parse("linf:0.031")


@given(st.sampled_from(NORMS), st.fractions(0, 1))
def test_a_budget_that_is_written_is_read_back_exactly(norm: Norm, radius: Fraction) -> None:
    assert Budget.parse(str(Budget(norm, radius))) == Budget(norm, radius)


@pytest.mark.parametrize(
    "text", ["", "linf", "linf:", "8/255", "l3:1", "linf:x", "linf:1/0", "l2:nan", "l2:inf", "l2:1e400"]
)
def test_another_form_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadValue, match="expected NORM:RADIUS such as 'linf:8/255', NORM one of linf, l2, l1"):
        Budget.parse(text)


def test_a_negative_radius_is_refused() -> None:
    with pytest.raises(BadValue, match="the radius is negative"):
        Budget.parse("l2:-1")


def test_a_radius_in_bytes_is_answered_with_what_was_meant() -> None:
    with pytest.raises(BadValue, match="did you mean 'linf:8/255'"):
        Budget.parse("linf:8")


@pytest.mark.parametrize(("norm", "expected"), [(Norm.LINF, 4.0), (Norm.L2, 5.0), (Norm.L1, 7.0)])
def test_distance_of_a_3_4_change(norm: Norm, expected: float) -> None:
    around = torch.tensor([[[[1.0, 1.0]]]])
    moved = around + torch.tensor([[[[3.0, -4.0]]]])
    assert budget(norm).distance(moved, around).tolist() == [expected]


@pytest.mark.parametrize("norm", NORMS)
def test_distance_of_a_photo_is_exact_to_float32(norm: Norm) -> None:
    change = torch.full((1, 3, 224, 224), 0.1)
    torch.testing.assert_close(
        budget(norm).distance(change, torch.zeros_like(change)).item(), size(change, norm), rtol=2e-7, atol=0
    )


@pytest.mark.parametrize("norm", NORMS)
def test_the_tolerance_is_a_millionth_of_the_radius_and_of_a_pixel(norm: Norm) -> None:
    one, zero = Budget(norm, Fraction(1, 2), bounded=False), torch.zeros(1, 1, 1, 1, dtype=torch.float64)
    edge = 0.5 * (1 + 1e-6) + 1e-6
    assert one.allows(zero + edge - 1e-9, zero).item()
    assert not one.allows(zero + edge + 1e-9, zero).item()


@pytest.mark.parametrize("value", [8 / 255, float(numpy.float32(8 / 255)), 8 / 255 + 1.9e-9])
def test_a_rounding_error_above_the_radius_is_allowed(value: float) -> None:
    """R23: AutoAttack overshoots by 1.9e-9."""
    zero = torch.zeros(1, 1, 1, 1)
    assert Budget.parse("linf:8/255").allows(zero + value, zero).item()


@pytest.mark.parametrize(("low", "high", "allowed"), [(0.0, 1.0, True), (-5e-7, 1.0, True), (-3e-6, 1.0, False)])
def test_images_must_stay_between_0_and_1(low: float, high: float, allowed: bool) -> None:
    images = torch.tensor([low, high]).view(1, 1, 1, 2)
    assert Budget.parse("linf:1").allows(images, images).item() is allowed


def test_an_unbounded_budget_lets_images_leave_0_and_1() -> None:
    images = torch.tensor([-2.1, 2.6]).view(1, 1, 1, 2)
    assert Budget(Norm.LINF, Fraction(1), bounded=False).allows(images, images).item()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_not_allowed(norm: Norm, value: float) -> None:
    images = torch.zeros(2, 1, 1, 2)
    changed = images.clone()
    changed[0, 0, 0, 0] = value
    assert Budget(norm, Fraction(1), bounded=False).allows(changed, images).tolist() == [False, True]


GRADIENT = torch.tensor([3.0, -4.0, 0.0]).view(1, 1, 1, 3)


@pytest.mark.parametrize(
    ("norm", "expected"), [(Norm.LINF, [1.0, -1.0, 0.0]), (Norm.L2, [0.6, -0.8, 0.0]), (Norm.L1, [0.0, -1.0, 0.0])]
)
def test_the_steepest_step_of_a_known_gradient(norm: Norm, expected: list[float]) -> None:
    torch.testing.assert_close(budget(norm).steepest(GRADIENT).flatten(), torch.tensor(expected))


def test_the_steepest_l1_step_is_shared_among_equals() -> None:
    step = Budget.parse("l1:1").steepest(torch.tensor([2.0, -2.0, 1.0]).view(1, 1, 1, 3))
    assert step.flatten().tolist() == [0.5, -0.5, 0.0]


@pytest.mark.parametrize("norm", NORMS)
@given(gradient=vectors.filter(lambda v: bool(v.any())))
def test_the_steepest_step_attains_the_dual_norm(norm: Norm, gradient: Tensor) -> None:
    """By Hoelder's inequality no change of size one increases a linear function by more."""
    dual = {Norm.LINF: Norm.L1, Norm.L2: Norm.L2, Norm.L1: Norm.LINF}[norm]
    step = budget(norm).steepest(gradient)
    gain = float((step.double() * gradient.double()).sum())
    assert size(step, norm) <= 1 + 1e-6
    assert gain == pytest.approx(size(gradient, dual), rel=1e-5, abs=1e-44)


@pytest.mark.parametrize("norm", NORMS)
def test_a_zero_gradient_gives_a_zero_step(norm: Norm) -> None:
    assert not budget(norm).steepest(torch.zeros(2, 1, 2, 2)).any()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("scale", [1e-40, 1e-25, 1e25])
def test_the_steepest_step_does_not_depend_on_the_scale_of_the_gradient(norm: Norm, scale: float) -> None:
    torch.testing.assert_close(
        budget(norm).steepest(GRADIENT * scale), budget(norm).steepest(GRADIENT), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("norm", NORMS)
def test_every_row_is_treated_by_itself(norm: Norm) -> None:
    torch.manual_seed(0)
    images, moved, one = torch.rand(5, 1, 2, 3), torch.randn(5, 1, 2, 3), budget(norm)
    together = (one.project(moved, images), one.steepest(moved), one.distance(moved, images))
    for row in range(5):
        part = slice(row, row + 1)
        alone = (
            one.project(moved[part], images[part]),
            one.steepest(moved[part]),
            one.distance(moved[part], images[part]),
        )
        assert all(torch.equal(a[part], b) for a, b in zip(together, alone, strict=True))


@pytest.mark.parametrize(
    ("norm", "radius", "change", "expected"),
    [
        (Norm.LINF, "1", [3.0, -0.5], [1.0, -0.5]),
        (Norm.L2, "1", [3.0, -4.0], [0.6, -0.8]),
        (Norm.L1, "1", [3.0, -0.5], [1.0, 0.0]),
        (Norm.L1, "1", [1.0, -1.0], [0.5, -0.5]),
        (Norm.L1, "2", [2.0, -1.0], [1.5, -0.5]),
        (Norm.L1, "0", [2.0, -1.0], [0.0, 0.0]),
        (Norm.L2, "0", [2.0, -1.0], [0.0, 0.0]),
    ],
)
def test_projections_that_can_be_done_by_hand(
    norm: Norm, radius: str, change: list[float], expected: list[float]
) -> None:
    found = Budget(norm, Fraction(radius), bounded=False).project(torch.tensor([change]), torch.zeros(1, 2))
    torch.testing.assert_close(found, torch.tensor([expected]))


def nearest_by_solver(moved: numpy.ndarray, around: numpy.ndarray, one: Budget) -> Any:
    """Solve min |z - moved|^2 subject to the budget by sequential quadratic programming."""
    target, count, radius = moved - around, len(moved), one.length
    if one.norm is Norm.LINF:
        low, high = -radius * numpy.ones(count), radius * numpy.ones(count)
        if one.bounded:
            low, high = numpy.maximum(low, -around), numpy.minimum(high, 1 - around)
        found = minimize(
            lambda z: ((z - target) ** 2).sum(), (low + high) / 2, bounds=list(zip(low, high, strict=True))
        )
        return around + found.x
    if one.norm is Norm.L2:
        limit = {"type": "ineq", "fun": lambda z: radius**2 - (z**2).sum()}
        found = minimize(
            lambda z: ((z - target) ** 2).sum(), numpy.zeros(count), constraints=limit, options={"ftol": 1e-12}
        )
        return around + found.x
    limit = {"type": "ineq", "fun": lambda pq: radius - pq.sum()}  # z = p - q with p, q >= 0
    found = minimize(
        lambda pq: ((pq[:count] - pq[count:] - target) ** 2).sum(),
        numpy.zeros(2 * count),
        bounds=[(0, None)] * (2 * count),
        constraints=limit,
        options={"ftol": 1e-12, "maxiter": 500},
    )
    return around + found.x[:count] - found.x[count:]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(5))
def test_projection_finds_the_nearest_point_of_a_solver(norm: Norm, seed: int) -> None:
    random = numpy.random.default_rng(seed)
    around, moved = random.uniform(0, 1, 5), random.normal(0.5, 0.7, 5)
    one = budget(norm, bounded=norm is Norm.LINF)
    found = one.project(torch.from_numpy(moved)[None], torch.from_numpy(around)[None])[0]
    numpy.testing.assert_allclose(found.numpy(), nearest_by_solver(moved, around, one), atol=2e-5)


@pytest.mark.parametrize("norm", NORMS)
@given(images=pixels, moved=vectors)
def test_what_is_projected_is_allowed(norm: Norm, images: Tensor, moved: Tensor) -> None:
    found = budget(norm).project(moved, images)
    assert size(found - images, norm) <= budget(norm).length * (1 + 1e-6)
    assert found.min() >= 0
    assert found.max() <= 1


@pytest.mark.parametrize("norm", NORMS)
@given(images=pixels, moved=vectors)
def test_projecting_twice_is_projecting_once(norm: Norm, images: Tensor, moved: Tensor) -> None:
    once = budget(norm).project(moved, images)
    torch.testing.assert_close(budget(norm).project(once, images), once, rtol=0, atol=1e-6)


@pytest.mark.parametrize("norm", NORMS)
@given(images=pixels)
def test_an_image_is_its_own_projection(norm: Norm, images: Tensor) -> None:
    assert torch.equal(budget(norm).project(images, images), images)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("radius", ["0.5", "12", "1/1000"])
def test_rounding_cannot_carry_a_grey_photo_out_of_the_ball(norm: Norm, radius: str) -> None:
    """150528 equal changes round the same way; without care the L1 distance at radius 12 came out as 12.005."""
    images = torch.full((1, 3, 224, 224), 0.5)
    one = Budget(norm, Fraction(radius))
    assert size(one.project(images + 0.3, images) - images, norm) <= one.length * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_is_kept(norm: Norm, dtype: torch.dtype) -> None:
    images, one = torch.rand(2, 1, 2, 2, dtype=dtype), budget(norm)
    made = (one.project(images + 1, images), one.steepest(images), one.random_start(images, draws(2)))
    assert {tensor.dtype for tensor in (*made, one.distance(images, images))} == {dtype}


@pytest.mark.parametrize("norm", NORMS)
def test_inputs_are_left_alone(norm: Norm) -> None:
    images, moved = torch.rand(2, 1, 2, 2), torch.randn(2, 1, 2, 2)
    copies = images.clone(), moved.clone()
    one = budget(norm)
    one.project(moved, images)
    one.steepest(moved)
    one.random_start(images, draws(2))
    assert torch.equal(images, copies[0])
    assert torch.equal(moved, copies[1])


def starts(norm: Norm, count: int = 4000) -> Any:
    """Return many random changes ``(count, 3)`` from an unbounded budget."""
    images = torch.full((count, 1, 1, 3), 0.5, dtype=torch.float64)
    return (budget(norm, bounded=False).random_start(images, draws(count)) - images).flatten(1).numpy()


@pytest.mark.parametrize("norm", NORMS)
def test_the_distance_of_a_random_start_is_that_of_a_uniform_point_of_the_ball(norm: Norm) -> None:
    """The volume of a ball grows as radius**3, so (distance / radius)**3 is uniform."""
    order = {Norm.LINF: numpy.inf, Norm.L2: 2, Norm.L1: 1}[norm]
    reach = numpy.linalg.norm(starts(norm), order, axis=1) / budget(norm).length
    assert kstest(reach**3, "uniform").pvalue > 1e-3


def test_a_random_start_in_linf_has_uniform_coordinates() -> None:
    assert kstest(starts(Norm.LINF)[:, 1] / 0.2, "uniform", (-1, 2)).pvalue > 1e-3


def test_a_random_direction_in_l2_has_uniform_coordinates_in_three_dimensions() -> None:
    """Archimedes: the height of a uniform point of the sphere is uniform."""
    change = starts(Norm.L2)
    assert kstest(change[:, 1] / numpy.linalg.norm(change, axis=1), "uniform", (-1, 2)).pvalue > 1e-3


def test_a_random_direction_in_l1_has_dirichlet_shares_and_fair_signs() -> None:
    change = starts(Norm.L1)
    share = numpy.abs(change[:, 1]) / numpy.abs(change).sum(1)
    assert kstest(share, beta(1, 2).cdf).pvalue > 1e-3
    assert abs((change > 0).mean() - 0.5) < 0.02


@pytest.mark.parametrize("norm", NORMS)
def test_a_random_start_is_allowed(norm: Norm) -> None:
    images = torch.rand(50, 1, 4, 4).round()
    start = budget(norm).random_start(images, draws(50))
    assert bool(budget(norm).allows(start, images).all())


@pytest.mark.parametrize("norm", NORMS)
def test_a_random_start_does_not_depend_on_the_batch(norm: Norm) -> None:
    images, streams = torch.rand(6, 1, 4, 4), draws(6)
    index = torch.tensor([4, 1])
    alone = budget(norm).random_start(images[index], streams.narrow(index))
    assert torch.equal(budget(norm).random_start(images, streams)[index], alone)


@pytest.mark.parametrize(
    "radius", ["1e-999999999", "1e999999999", "1e-5000", "9" * 5000, "1/" + "9" * 5000, "0." + "3" * 5000]
)
def test_a_radius_of_thousands_of_digits_is_refused_at_once(radius: str) -> None:
    started = time.monotonic()
    with pytest.raises(BadValue, match="expected NORM:RADIUS") as caught:
        Budget.parse(f"linf:{radius}")
    assert time.monotonic() - started < 1
    assert len(str(caught.value)) < 200


def test_without_bounds_a_radius_is_no_share_of_the_pixel_range() -> None:
    """A normalised unit is about a quarter of that range."""
    assert Budget.parse("linf:2", bounded=False) == Budget(Norm.LINF, Fraction(2), bounded=False)
    assert str(ThreatModel.parse("published/pgd@linf:2").budget) == "linf:2"
