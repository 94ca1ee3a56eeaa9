"""FAB: known closest points, the recorded AutoAttack runs, and what it proposes within a budget."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from pyautoattack.fab_pt import FABAttack_PT
from torch import Tensor, nn

from robustkpca.adversary import Proposals
from robustkpca.attacks.fab import fab, fab_t
from robustkpca.budget import Budget, Norm
from robustkpca.errors import BadValue
from robustkpca.judge import judge_attack
from robustkpca.models.loading import wrap
from robustkpca.records import Verdict
from robustkpca.testing import RecordedDraws, check_attack

DUALS = {Norm.LINF: 1, Norm.L2: 2, Norm.L1: np.inf}
ATTACKS = [fab, fab_t]
BUDGETS = ["linf:1/20", "l2:0.3", "l1:2"]


class Linear(nn.Module):
    """Logits that are linear in the pixels."""

    def __init__(self, classes: int, size: int, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(classes, size, generator=generator), requires_grad=False)
        self.offset = nn.Parameter(-self.weight.sum(1) / 2, requires_grad=False)  # all logits vanish at grey

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) @ self.weight.T + self.offset


class Ball(nn.Module):
    """The first class inside a ball around grey, the second outside."""

    def forward(self, images: Tensor) -> Tensor:
        inside = 0.16 - (images.flatten(1) - 0.5).square().sum(1)
        return torch.stack([inside, torch.zeros_like(inside)], dim=1)


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_the_closest_point_of_a_linear_model_is_found(
    attack: Callable[..., Proposals], norm: Norm, classes: int, closest: Callable[..., Tensor]
) -> None:
    """The distance to the boundary of two classes is their margin by the dual norm of the difference of their weights."""
    network = Linear(classes, 12)
    images = 0.5 + 0.02 * torch.randn(10, 3, 2, 2, generator=torch.Generator().manual_seed(1))
    logits = network(images)
    labels = logits.argmax(1)
    gaps = logits.gather(1, labels.unsqueeze(1)) - logits
    sizes = torch.linalg.vector_norm(network.weight[labels].unsqueeze(1) - network.weight, DUALS[norm], dim=2)
    distances = torch.where(gaps > 0, gaps / sizes, torch.inf).amin(1)
    found = closest(attack, wrap(network), images, labels, norm, steps=30)
    assert bool((found >= distances * (1 - 1e-4)).all())
    assert bool((found <= distances * 1.01).all())


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_closest_point_of_a_quadratic_model_is_found(
    attack: Callable[..., Proposals], closest: Callable[..., Tensor]
) -> None:
    """From inside a ball the boundary is nearest along the ray from its centre; at the centre itself FAB loses its way."""
    images = 0.5 + 0.06 * torch.randn(8, 1, 3, 3, generator=torch.Generator().manual_seed(2))
    labels = torch.zeros(8, dtype=torch.int64)
    distances = 0.4 - (images - 0.5).flatten(1).norm(dim=1)
    found = closest(attack, wrap(Ball()), images, labels, Norm.L2, steps=50)
    torch.testing.assert_close(found, distances, rtol=0.01, atol=0)


@pytest.mark.parametrize("norm", list(Norm))
def test_the_walls_of_the_box_are_respected(norm: Norm, closest: Callable[..., Tensor]) -> None:
    """Half the pixels cannot move towards the boundary; the other half must do it alone."""
    network = Linear(2, 8)
    network.weight[0], network.weight[1] = 1.0, 0.0
    network.offset[0], network.offset[1] = -1.9, 0.0
    images, labels = torch.tensor([[0.0] * 4 + [0.6] * 4]), torch.zeros(1, dtype=torch.int64)
    wanted = {Norm.LINF: 0.125, Norm.L2: 0.25, Norm.L1: 0.5}[norm]
    assert float(closest(fab, wrap(network), images, labels, norm, steps=30)) == pytest.approx(wanted, rel=0.01)


def test_flags_equal_those_of_autoattack(robust: Any, recorded: Any) -> None:
    among = recorded.standing_after("apgd-t")
    assert torch.equal(robust.survivors(fab_t, recorded.budget, among=among), recorded.standing_after("fab-t"))


@pytest.mark.slow
def test_flags_alone_equal_those_of_autoattack(robust: Any, recorded: Any) -> None:
    among = recorded.standing_after("clean")
    assert torch.equal(robust.survivors(fab_t, recorded.budget, among=among), recorded.standing_alone("fab-t"))


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("attack", ATTACKS)
def test_distances_equal_those_of_pyautoattack(
    attack: Callable[..., Proposals], norm: Norm, robust: Any, closest: Callable[..., Tensor]
) -> None:
    rows = robust.correct().nonzero().squeeze(1)[:8]
    images, labels = robust.images[rows], robust.labels[rows]
    targeted = {"targets": 2} if attack is fab_t else {}
    found = closest(attack, robust.model, images, labels, norm, steps=12, **targeted)
    torch.testing.assert_close(found, reference(robust, images, labels, norm, targeted), rtol=1e-4, atol=0)


@pytest.mark.parametrize("norm", list(Norm))
def test_random_restarts_equal_those_of_pyautoattack(norm: Norm, robust: Any, closest: Callable[..., Tensor]) -> None:
    rows = robust.correct().nonzero().squeeze(1)[:8]
    images, labels = robust.images[rows], robust.labels[rows]
    first = reference(robust, images, labels, norm, {})
    torch.manual_seed(3)
    noise = torch.rand(images.shape) if norm is Norm.LINF else torch.randn(images.shape)
    torch.manual_seed(3)
    second = reference(robust, images, labels, norm, {}, eps=first, use_rand_start=True)
    draws = RecordedDraws.play(noise.unsqueeze(1))
    found = closest(fab, robust.model, images, labels, norm, steps=12, restarts=2, draws=draws)
    torch.testing.assert_close(found, torch.minimum(first, second), rtol=1e-4, atol=0)


def reference(
    robust: Any, images: Tensor, labels: Tensor, norm: Norm, targeted: dict[str, int], eps: Any = 1e9, **options: bool
) -> Tensor:
    """Return the distances that pyautoattack finds in 12 steps; infinite where it finds nothing."""
    name = {Norm.LINF: "Linf", Norm.L2: "L2", Norm.L1: "L1"}[norm]
    official = FABAttack_PT(robust.model.network, norm=name, n_iter=12, eps=eps, device="cpu")
    best = torch.full((len(images),), torch.inf)
    for rank in range(2, 2 + targeted.get("targets", 1)):
        official.target_class = rank
        found = official.attack_single_run(images, labels, is_targeted=bool(targeted), **options)
        harmful = robust.model.logits(found).argmax(1) != labels
        distances = Budget(norm, Fraction(1)).distance(found, images)
        best = torch.where(harmful, torch.minimum(best, distances), best)
    return best


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_only_what_is_allowed_is_proposed(
    attack: Callable[..., Proposals], budget: str, robust: Any, candidates: Any, streams: Any
) -> None:
    allowed = Budget.parse(budget)
    images, labels = robust.images[:16], robust.labels[:16]
    made = attack(robust.model, images, labels, budget=allowed, draws=streams(16), steps=5, restarts=2)
    for candidate in candidates(made, 16):
        assert bool(allowed.allows(candidate.images, images).all())
        torch.testing.assert_close(candidate.logits, robust.model.logits(candidate.images), atol=1e-5, rtol=1e-5)


def test_verdicts_do_not_change_with_the_order_in_which_targets_are_tried(
    robust: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget, among = Budget.parse("l2:0.7"), robust.correct() & (torch.arange(64) < 12)
    together = robust.survivors(fab_t, budget, among=among, steps=10)
    monkeypatch.setattr("robustkpca.attacks.targets.HELD_ENTRIES", 1)
    assert torch.equal(robust.survivors(fab_t, budget, among=among, steps=10), together)
    every = robust.survivors(fab, budget, among=among, steps=10)
    monkeypatch.setattr("robustkpca.attacks.targets.HELD_ENTRIES", 64 * 4)
    assert torch.equal(robust.survivors(fab, budget, among=among, steps=10), every)


def test_passes_are_counted(robust: Any, streams: Any) -> None:
    images, labels = robust.images[:4], robust.model.logits(robust.images[:4]).argmax(1)
    for attack, forwards, backwards in ((fab_t, 9 * 2 * 3, 9 * 3), (fab, 10 * 3, 9 * 3)):
        result = judge_attack(
            robust.model, attack, images, labels, budget=Budget.parse("linf:0.0001"), draws=streams(4), steps=3
        )
        assert result.verdicts == [Verdict.SURVIVED] * 4
        assert (
            result.meter.forwards.tolist() == [2 + forwards] * 4
        )  # once by the judge, once for the order of the classes
        assert result.meter.backwards.tolist() == [backwards] * 4


def test_targets_are_clamped_to_the_classes_there_are(streams: Any) -> None:
    network = Linear(3, 4)
    images = torch.full((5, 1, 2, 2), 0.5) + 0.1 * torch.arange(5).view(-1, 1, 1, 1) / 5
    labels = network(images).argmax(1)
    result = judge_attack(
        wrap(network), fab_t, images, labels, budget=Budget.parse("linf:0"), draws=streams(5), targets=9, steps=1
    )
    assert not any(result.details)
    assert int(result.meter.backwards.max()) == 2


def test_a_network_that_fails_near_an_image_cannot_be_judged(streams: Any) -> None:
    images = torch.tensor([[0.9, 0.1, 0.6, 0.4]]).view(1, 1, 2, 2)

    class Fails(Linear):
        def forward(self, points: Tensor) -> Tensor:
            away = (points != images).flatten(1).any(1, keepdim=True)
            return super().forward(points).masked_fill(away, torch.nan)

    network = Fails(2, 4)
    labels = network(images).argmax(1)
    result = judge_attack(wrap(network), fab_t, images, labels, budget=Budget.parse("linf:0.2"), draws=streams(1))
    assert result.verdicts == [Verdict.INVALID]


def test_a_network_without_gradients_is_left_alone(streams: Any) -> None:
    class Flat(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return images.flatten(1)[:, :2] * 0 + torch.tensor([1.0, 0.0])

    images, labels = torch.rand(3, 1, 2, 2), torch.zeros(3, dtype=torch.int64)
    result = judge_attack(wrap(Flat()), fab, images, labels, budget=Budget.parse("l2:1"), draws=streams(3), steps=4)
    assert result.verdicts == [Verdict.SURVIVED] * 3
    assert result.meter.zero_gradients.tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    "options", [{"steps": 0}, {"restarts": 0}, {"eta": 0.9}, {"beta": 0.0}, {"alpha_max": 1.5}, {"targets": 0}]
)
def test_options_out_of_range_are_named(options: dict[str, Any], robust: Any, streams: Any) -> None:
    with pytest.raises(BadValue, match="fab"):
        next(
            fab_t(robust.model, robust.images, robust.labels, budget=Budget.parse("l2:1"), draws=streams(64), **options)
        )


@pytest.mark.parametrize("attack", ["fab", "fab_t"])
@pytest.mark.parametrize("budget", BUDGETS)
def test_the_contract_is_kept(attack: str, budget: str) -> None:
    check_attack(f"{attack}(steps=6,restarts=2)@{budget}")
