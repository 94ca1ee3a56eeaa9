"""HopSkipJump: known distances, its normal of the boundary, and the faults of the published form."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robustkpca.attacks import queries
from robustkpca.attacks.boundary import Decider, bisected, estimate
from robustkpca.attacks.hsja import hsja, published_hsja
from robustkpca.budget import Budget, Norm
from robustkpca.errors import BadValue
from robustkpca.judge import judge_attack, judge_published
from robustkpca.meter import MeteredClassifier
from robustkpca.models.loading import wrap
from robustkpca.records import Verdict

DUALS = {Norm.LINF: 1, Norm.L2: 2}


class Linear(nn.Module):
    """Two logits, ``weight * (pixels - 1/2) + 0.3 |weight|`` and 0."""

    def __init__(self, size: int) -> None:
        super().__init__()
        weight = torch.randn(size, generator=torch.Generator().manual_seed(0))
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, images: Tensor) -> Tensor:
        value = (images.flatten(1) - 0.5) @ self.weight + 0.3 * self.weight.norm()
        return torch.stack([value, torch.zeros_like(value)], dim=1)


class Ball(nn.Module):
    """The first class inside a ball around grey, the second outside."""

    def forward(self, images: Tensor) -> Tensor:
        inside = 0.16 - (images.flatten(1) - 0.5).square().sum(1)
        return torch.stack([inside, torch.zeros_like(inside)], dim=1)


class Constant(nn.Module):
    """Always the first class."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :2] * 0 + torch.tensor([1.0, 0.0])


def metered(network: nn.Module, count: int) -> MeteredClassifier:
    return MeteredClassifier(wrap(network), count, torch.device("cpu"))


@pytest.mark.parametrize("norm", [Norm.L2, Norm.LINF])
def test_the_closest_point_of_a_linear_model_is_found(norm: Norm, closest: Callable[..., Tensor]) -> None:
    network = Linear(12)
    images = 0.5 + 0.02 * torch.randn(6, 3, 2, 2, generator=torch.Generator().manual_seed(1))
    labels = torch.zeros(6, dtype=torch.int64)
    distances = network(images)[:, 0] / torch.linalg.vector_norm(network.weight, DUALS[norm])
    found = closest(hsja, metered(network, 6), images, labels, norm, iterations=20)
    assert bool((found >= distances * (1 - 1e-4)).all())
    assert bool((found <= distances * 1.05).all())


def test_the_closest_point_of_a_quadratic_model_is_found(closest: Callable[..., Tensor]) -> None:
    images = 0.5 + 0.06 * torch.randn(4, 1, 3, 3, generator=torch.Generator().manual_seed(2))
    distances = 0.4 - (images - 0.5).flatten(1).norm(dim=1)
    labels = torch.zeros(4, dtype=torch.int64)
    found = closest(hsja, metered(Ball(), 4), images, labels, Norm.L2, iterations=30)
    assert bool((found >= distances * (1 - 1e-4)).all())
    assert bool((found <= distances * 1.05).all())


@pytest.mark.parametrize("text", ["l2:0.8", "linf:0.2"])
def test_images_are_broken_by_decisions_alone(text: str, robust: Any, streams: Callable[..., Any]) -> None:
    images, labels = robust.images[:10], robust.labels[:10]
    result = judge_attack(
        robust.model, hsja, images, labels, budget=Budget.parse(text), draws=streams(10), iterations=8
    )
    assert not any(result.details)
    assert result.verdicts.count(Verdict.BROKEN) >= 4
    assert not result.meter.backwards.any()


@pytest.mark.parametrize("norm", [Norm.L2, Norm.LINF])
def test_the_normal_of_a_linear_boundary_is_found(norm: Norm, streams: Callable[..., Any]) -> None:
    network = Linear(48)
    points = torch.full((3, 3, 4, 4), 0.5) - (0.3 * network.weight / network.weight.norm()).view(3, 4, 4)
    decide = Decider(metered(network, 3), torch.zeros(3, dtype=torch.int64))
    found = estimate(decide, points, streams(3), torch.arange(3), torch.full((3,), 0.01), 2000, norm)
    cosine = torch.nn.functional.cosine_similarity(found.flatten(1), -network.weight.expand(3, -1))
    assert bool((cosine > 0.9).all())


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_agreeing_decisions_give_the_mean_direction(side: float, streams: Callable[..., Any]) -> None:
    """Equation 16 would subtract everything."""
    network = Linear(12)
    points = torch.full((2, 3, 2, 2), 0.5) - side * network.weight.view(3, 2, 2)
    decide = Decider(metered(network, 2), torch.zeros(2, dtype=torch.int64))
    found = estimate(decide, points.clamp(0, 1), streams(2), torch.arange(2), torch.full((2,), 1e-3), 20, Norm.L2)
    torch.testing.assert_close(found.flatten(1).norm(dim=1), torch.ones(2))


def test_few_images_at_a_time_give_the_same_normal(
    streams: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "ENTRIES_AT_ONCE", 8 * 12 * 16)
    network = Linear(12)
    points = torch.full((5, 3, 2, 2), 0.5) - (0.3 * network.weight / network.weight.norm()).view(3, 2, 2)
    labels, delta = torch.zeros(5, dtype=torch.int64), torch.full((5,), 0.05)
    decide, draws = Decider(metered(network, 5), labels), streams(5)
    found = estimate(decide, points, draws, torch.arange(5), delta, 100, Norm.L2)
    assert draws.calls == 7
    for row in (0, 4):
        index = torch.tensor([row])
        alone = estimate(decide, points[index], streams(5).narrow(index), index, delta[index], 100, Norm.L2)
        torch.testing.assert_close(alone[0], found[row], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm", [Norm.L2, Norm.LINF])
def test_the_search_ends_on_the_harmful_side_of_the_boundary(norm: Norm) -> None:
    network = Linear(12)
    images = torch.full((2, 3, 2, 2), 0.5)
    points = (images - network.weight.sign().view(3, 2, 2)).clamp(0, 1)
    labels, rows = torch.zeros(2, dtype=torch.int64), torch.arange(2)
    model = metered(network, 2)
    found, said = bisected(
        Decider(model, labels), images, points, model.logits(points), rows, norm, torch.tensor([1e-3, 0.0])
    )
    value = network(found)[:, 0]
    torch.testing.assert_close(said, network(found))
    assert bool((value < 0).all())
    assert value[0] > -0.02
    assert value[1] > -1e-5  # no accuracy is asked too much: the search stops where float32 does


def test_an_image_without_a_start_survives_unchanged(streams: Callable[..., Any]) -> None:
    images, labels = (
        torch.rand(3, 1, 2, 2, generator=torch.Generator().manual_seed(0)),
        torch.zeros(3, dtype=torch.int64),
    )
    result = judge_attack(
        wrap(Constant()), hsja, images, labels, budget=Budget.parse("l2:1"), draws=streams(3), tries=7
    )
    assert result.verdicts == [Verdict.SURVIVED] * 3
    assert torch.equal(result.images, images)
    assert result.meter.forwards.tolist() == [9] * 3  # the judge's, the attack's, and seven random images


def test_only_points_within_the_budget_are_proposed(
    robust: Any, candidates: Callable[..., Any], streams: Callable[..., Any]
) -> None:
    budget, images, labels = (
        Budget.parse("linf:0.15"),
        robust.images[:8],
        robust.model.logits(robust.images[:8]).argmax(1),
    )
    model = MeteredClassifier(robust.model, 8, torch.device("cpu"))
    found = candidates(hsja(model, images, labels, budget=budget, draws=streams(8), iterations=6), 8)
    assert len(found) == 7
    for one in found:
        assert bool(budget.allows(one.images, images).all())
        torch.testing.assert_close(one.logits, robust.model.logits(one.images), atol=1e-4, rtol=1e-4)


def test_the_published_form_is_l2_whatever_the_norm_and_hands_back_unclipped_images(
    robust: Any, candidates: Callable[..., Any], streams: Callable[..., Any]
) -> None:
    images = robust.images[:6] * 3 - 1
    labels = robust.model.logits(images.clamp(0, 1)).argmax(1)
    model = MeteredClassifier(robust.model, 6, torch.device("cpu"))
    options: dict[str, Any] = {"draws": streams(6), "iterations": 3, "tries": 200}
    found = [
        candidates(published_hsja(model, images, labels, budget=budget, **{**options, "draws": streams(6)}), 6)[
            -1
        ].images
        for budget in (Budget(Norm.L2, Fraction(1000), bounded=False), Budget(Norm.LINF, Fraction(1), bounded=False))
    ]
    assert torch.equal(found[0], found[1])
    started = (found[0] != images).flatten(1).any(1)
    assert bool(started.any())
    assert found[0].min() < 0
    said = robust.model.logits(found[0].clamp(0, 1)).argmax(1)
    assert bool((said != labels)[started].all())


def test_the_published_form_is_judged_by_its_last_image(robust: Any, streams: Callable[..., Any]) -> None:
    result = judge_published(
        robust.model,
        published_hsja,
        robust.images[:8],
        robust.labels[:8],
        budget=Budget(Norm.L2, Fraction(1000), bounded=False),
        draws=streams(8),
        iterations=1,
        tries=200,
    )
    assert not any(result.details)
    assert result.verdicts.count(Verdict.BROKEN) >= 4  # the whole box is allowed


@pytest.mark.parametrize(
    "options", [{"iterations": 0}, {"initial_evaluations": 0}, {"most_evaluations": 0}, {"tries": 0}]
)
@pytest.mark.parametrize("attack", [hsja, published_hsja])
def test_wrong_options_are_named(
    attack: Callable[..., Any], options: dict[str, Any], robust: Any, streams: Callable[..., Any]
) -> None:
    with pytest.raises(BadValue, match=next(iter(options))):
        next(
            attack(
                robust.model, robust.images, robust.labels, budget=Budget.parse("l2:1"), draws=streams(64), **options
            )
        )


def test_l1_is_refused(robust: Any, streams: Callable[..., Any]) -> None:
    with pytest.raises(BadValue, match="linf or l2, got l1"):
        next(hsja(robust.model, robust.images, robust.labels, budget=Budget.parse("l1:1"), draws=streams(64)))
