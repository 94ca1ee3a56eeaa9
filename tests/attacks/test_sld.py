"""Sparse L1 descent: the recorded outputs of cleverhans, known optima, and what it makes of walls and flat gradients."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from robustkpca.attacks.sld import published_sld, sld, sparse_step, unblocked
from robustkpca.budget import Budget, Norm
from robustkpca.errors import BadValue
from robustkpca.judge import judge_attack
from robustkpca.models.loading import wrap
from robustkpca.records import Verdict

GOLDEN = Path(__file__).parent.parent / "golden" / "attacks"
CASES = json.loads((GOLDEN / "cases.json").read_text())["cleverhans_cnn"]["cases"]


class Linear(nn.Module):
    """Two logits, ``weight * pixels - offset`` and 0."""

    def __init__(self, weight: Tensor, offset: float) -> None:
        super().__init__()
        self.weight, self.offset = nn.Parameter(weight, requires_grad=False), offset

    def forward(self, images: Tensor) -> Tensor:
        value = images.flatten(1) @ self.weight - self.offset
        return torch.stack([value, torch.zeros_like(value)], dim=1)


@pytest.mark.parametrize("case", [name for name in CASES if name.startswith("sld")])
def test_outputs_equal_those_of_the_reference(case: str, robust: Any, candidates: Callable[..., Any]) -> None:
    params, expected = CASES[case]["params"], load_file(GOLDEN / "cleverhans_cnn.safetensors")[f"{case}.adv"]
    labels = robust.model.logits(robust.images).argmax(1) if params["y"] == "pred" else robust.labels
    budget = Budget(Norm.L1, Fraction(str(params["eps"])), bounded="clip_min" in params)
    proposals = published_sld(
        robust.model,
        robust.images,
        labels,
        budget=budget,
        draws=None,
        steps=params["nb_iter"],
        step=params["eps_iter"],
        sparsity=float(params["grad_sparsity"]),
        skip_blocked=params.get("clip_grad", False),
    )
    adversarial = candidates(proposals, 64)[-1].images
    torch.testing.assert_close(adversarial, expected, atol=1e-5, rtol=0)
    accuracy = (robust.model.logits(adversarial).argmax(1) == robust.labels).double().mean().item()
    assert accuracy == pytest.approx(CASES[case]["adv_accuracy"], abs=1e-9)


def test_the_published_form_stays_within_its_budget_on_photos(candidates: Callable[..., Any]) -> None:
    """The reference's float32 sums over 150,528 entries are wrong by 1e-5 of the radius."""
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(images[0].numel(), generator=torch.Generator().manual_seed(1)) / 100
    budget = Budget(Norm.L1, Fraction(10), bounded=False)
    model = wrap(nn.Sequential(nn.Tanh(), Linear(weight, 0.0)))
    labels = model.logits(images).argmax(1)
    (candidate,) = candidates(published_sld(model, images, labels, budget=budget, draws=None), 2)
    assert bool(budget.allows(candidate.images, images).all())
    assert bool((budget.distance(candidate.images, images) > 9.99).all())


def test_the_optimum_of_a_linear_model_is_reached(streams: Callable[..., Any], candidates: Callable[..., Any]) -> None:
    """In L1 the margin falls most where the weight is largest, as far as the wall, then where it is second largest."""
    weight = torch.tensor([5.0, -3.0, 1.0, 0.5] + [0.1] * 8)
    images, labels = torch.full((1, 3, 2, 2), 0.5), torch.tensor([0])
    budget = Budget(Norm.L1, Fraction(4, 5))
    model = wrap(Linear(weight, 0.0))
    found = candidates(sld(model, images, labels, budget=budget, draws=streams(1), steps=40), 1)[-1]
    fall = (model.logits(images) - model.logits(found.images))[0, 0]
    torch.testing.assert_close(fall, torch.tensor(5 * 0.5 + 3 * 0.3), rtol=1e-4, atol=0)


def test_a_linear_model_falls_at_its_known_radius_and_not_below(streams: Callable[..., Any]) -> None:
    weight = torch.linspace(-1, 2, 12)
    images = torch.full((1, 3, 2, 2), 0.5)
    offset = (images.flatten(1) @ weight).item() - 0.6  # the margin is 0.6, the largest weight 2: radius 0.3
    model, labels = wrap(Linear(weight, offset)), torch.tensor([0])

    def verdict(radius: str) -> Verdict:
        budget = Budget.parse(f"l1:{radius}")
        return judge_attack(model, sld, images, labels, budget=budget, draws=streams(1), steps=50).verdicts[0]

    assert verdict("0.29") is Verdict.SURVIVED
    assert verdict("0.31") is Verdict.BROKEN


def test_a_step_has_length_one_and_few_entries() -> None:
    gradient = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    step = sparse_step(gradient, 95.0).flatten(1)
    assert (step != 0).sum(1).tolist() == [192 - int(0.95 * 192)] * 5
    assert (sparse_step(gradient, 95.0, as_released=True).flatten(1) != 0).sum(1).tolist() == [
        192 - int(0.95 * 192) + 1
    ] * 5
    torch.testing.assert_close(step.abs().sum(1), torch.ones(5))


def test_a_mostly_flat_gradient_still_gives_a_whole_step() -> None:
    gradient = torch.zeros(2, 1, 8, 8)
    gradient[0, 0, 0, 0] = -1e-12
    step = sparse_step(gradient, 90.0).flatten(1)
    assert step[0, 0] == -1
    assert step.abs().sum(1).tolist() == [1, 0]
    assert sparse_step(gradient, 90.0, as_released=True).abs().sum() == pytest.approx(1 / 64)


def test_entries_that_the_box_blocks_are_left_out() -> None:
    points = torch.tensor([[0.0, 0.0, 1.0, 1.0, 0.5]])
    gradient = torch.tensor([[-1.0, 1.0, 1.0, -1.0, 1.0]])
    assert unblocked(gradient, points).tolist() == [[0, 1, 0, -1, 1]]


@pytest.mark.parametrize(
    ("options", "word"),
    [({"steps": 0}, "steps"), ({"relative_step": 0.0}, "relative_step"), ({"sparsity": 100.0}, "sparsity")],
)
def test_wrong_options_are_named(options: dict[str, Any], word: str, robust: Any, streams: Callable[..., Any]) -> None:
    budget = Budget(Norm.L1, Fraction(1))
    with pytest.raises(BadValue, match=word):
        next(sld(robust.model, robust.images, robust.labels, budget=budget, draws=streams(64), **options))


def test_another_norm_is_refused(robust: Any, streams: Callable[..., Any]) -> None:
    for attack in (sld, published_sld):
        with pytest.raises(BadValue, match="must be l1, got l2"):
            next(attack(robust.model, robust.images, robust.labels, budget=Budget.parse("l2:1"), draws=streams(64)))


@pytest.mark.parametrize(("options", "word"), [({"step": 3.0}, "radius"), ({"skip_blocked": True}, "no bounds")])
def test_wrong_options_of_the_published_form_are_named(options: dict[str, Any], word: str, robust: Any) -> None:
    budget = Budget(Norm.L1, Fraction(2), bounded=False)
    with pytest.raises(BadValue, match=word):
        next(published_sld(robust.model, robust.images, robust.labels, budget=budget, draws=None, **options))
