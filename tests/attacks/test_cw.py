"""Carlini and Wagner's attack: the recorded outputs of cleverhans, known distances, binary images, and its faults."""

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

from robustkpca.attacks.cw import Search, cw, published_cw
from robustkpca.attacks.pgd import pgd
from robustkpca.budget import Budget, Norm
from robustkpca.errors import BadValue
from robustkpca.judge import judge_attack, judge_published
from robustkpca.judgement import margins
from robustkpca.models.loading import wrap
from robustkpca.records import Verdict

GOLDEN = Path(__file__).parent.parent / "golden" / "attacks"
CASES = json.loads((GOLDEN / "cases.json").read_text())["cleverhans_cnn"]["cases"]
BATCH = 24
SLOW = ("cw_default_ypred", "cw_default_ytrue", "cw_it150_bs6_conf1_c0.5_lr0.02_ytrue")


class Linear(nn.Module):
    """Two logits; the first leads by ``lead`` at the images given, and falls along one direction."""

    def __init__(self, images: Tensor, weight: Tensor, lead: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([weight, 0 * weight]), requires_grad=False)
        self.zero, self.lead = images.flatten(1) @ weight, lead

    def forward(self, images: Tensor) -> Tensor:
        logits = images.flatten(1) @ self.weight.T
        count = len(images)  # the classifier pads batches with copies of the last image
        index = torch.arange(count).clamp_max(len(self.zero) - 1)
        logits[:, 0] += (self.lead - self.zero)[index]
        return logits


class Ball(nn.Module):
    """The first class inside a ball around grey, the second outside."""

    def forward(self, images: Tensor) -> Tensor:
        inside = 0.16 - (images.flatten(1) - 0.5).square().sum(1)
        return torch.stack([inside, torch.zeros_like(inside)], dim=1)


def published(robust: Any, case: str, candidates: Callable[..., Any], *, labels: Tensor) -> Tensor:
    params = CASES[case]["params"]
    proposals = published_cw(
        robust.model,
        robust.images[:BATCH],
        labels[:BATCH],
        budget=Budget(Norm.L2, Fraction(1000), bounded=False),
        draws=None,
        confidence=float(params.get("confidence", 0)),
        rounds=params.get("binary_search_steps", 5),
        steps=params.get("max_iterations", 1000),
        rate=params.get("lr", 0.005),
        initial_constant=params.get("initial_const", 0.01),
        shared_constant=True,
    )
    found: Tensor = candidates(proposals, BATCH)[-1].images
    return found


@pytest.mark.parametrize(
    "case",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES if name.startswith("cw")],
)
def test_outputs_equal_those_of_the_reference(case: str, robust: Any, candidates: Callable[..., Any]) -> None:
    """Where the path hangs on the sign of a margin of one rounding, the reference itself differs between precisions."""
    labels = robust.model.logits(robust.images).argmax(1) if case.endswith("ypred") else robust.labels
    expected = load_file(GOLDEN / "cleverhans_cnn.safetensors")[f"{case}.adv"]
    found = published(robust, case, candidates, labels=labels)
    close = ((found - expected).abs() <= 1e-5).double().mean().item()
    assert close >= CASES[case]["sensitivity_f64_model"]["fraction_entries_within_1e5"] - 0.02
    assert (found - expected).abs().max() <= 2e-3
    accuracy = (robust.model.logits(found).argmax(1) == robust.labels[:BATCH]).double().mean().item()
    assert accuracy == pytest.approx(CASES[case]["adv_accuracy"], abs=1e-9)


@pytest.mark.parametrize("scale", [0.1, 10.0])
@pytest.mark.parametrize("kind", ["grey", "binary"])
def test_the_closest_point_of_a_linear_model_is_found(kind: str, scale: float, closest: Callable[..., Tensor]) -> None:
    """The boundary is met where a step along the weights, cut off at the walls, has used up the lead."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(6, 1, 6, 6, generator=generator)
    images = (images > 0.5).float() if kind == "binary" else images / 2 + 0.25
    weight = scale * torch.randn(36, generator=generator)
    distances = torch.linspace(0.1, 0.5, 6)
    nearest = torch.stack(
        [
            (one - reach * weight / weight.norm()).clamp(0, 1)
            for one, reach in zip(images.flatten(1), distances, strict=True)
        ]
    )
    lead = (images.flatten(1) - nearest) @ weight
    found = closest(
        cw, wrap(Linear(images, weight, lead)), images, torch.zeros(6, dtype=torch.int64), Norm.L2, steps=100
    )
    known = (images.flatten(1) - nearest).norm(dim=1)
    assert bool((found >= known * (1 - 1e-3)).all())
    assert bool((found <= known * 1.05).all())


def test_the_closest_point_of_a_quadratic_model_is_found(closest: Callable[..., Tensor]) -> None:
    images = 0.5 + 0.06 * torch.randn(8, 1, 3, 3, generator=torch.Generator().manual_seed(2))
    distances = 0.4 - (images - 0.5).flatten(1).norm(dim=1)
    found = closest(cw, wrap(Ball()), images, torch.zeros(8, dtype=torch.int64), Norm.L2, steps=100)
    assert bool((found >= distances * (1 - 1e-4)).all())
    assert bool((found <= distances * 1.05).all())


def test_large_images_do_not_take_the_overshoot_of_the_first_steps_for_success(closest: Callable[..., Tensor]) -> None:
    """Adam's first step is 1.7 long in an image of 3 x 64 x 64, whatever the distance."""
    generator = torch.Generator().manual_seed(3)
    images = 0.1 + 0.8 * torch.rand(2, 3, 64, 64, generator=generator)
    weight = torch.randn(images[0].numel(), generator=generator)
    distances = torch.tensor([0.05, 0.5])
    model = wrap(Linear(images, 5 * weight / weight.norm(), 5 * distances))
    found = closest(cw, model, images, torch.zeros(2, dtype=torch.int64), Norm.L2, rounds=5)
    assert bool((found <= distances * 1.05).all())


def test_binary_images_are_broken_as_often_as_by_steps_in_pixel_space(robust: Any, streams: Callable[..., Any]) -> None:
    """R41: the tanh space of the paper is infinite at 0 and 1, and pixels there do not move."""
    images, budget = (robust.images[:16] > 0.5).float(), Budget.parse("l2:0.7")
    labels = robust.model.logits(images).argmax(1)
    broken = []
    for attack, options in ((cw, {"steps": 100, "rounds": 4}), (pgd, {"steps": 60, "relative_step": 0.1})):
        result = judge_attack(robust.model, attack, images, labels, budget=budget, draws=streams(16), **options)
        assert not any(result.details)
        broken.append({row for row, verdict in enumerate(result.verdicts) if verdict is Verdict.BROKEN})
    assert len(broken[1]) > 4
    assert broken[0] >= broken[1]


@pytest.mark.parametrize("case", ["CW", "CW_c10_kappa0.5"])
def test_changes_are_no_larger_than_those_of_torchattacks(
    case: str, robust: Any, closest: Callable[..., Tensor]
) -> None:
    recorded = load_file(GOLDEN / "torchattacks_cnn.safetensors")[f"{case}.adv"]
    standing = robust.correct() & (robust.model.logits(recorded).argmax(1) != robust.labels)
    rows = standing.nonzero().squeeze(1)[:12]
    theirs = (recorded - robust.images)[rows].flatten(1).norm(dim=1)
    ours = closest(cw, robust.model, robust.images[rows], robust.labels[rows], Norm.L2, steps=100, rounds=5)
    assert bool((ours <= theirs * 1.02).all())


def test_a_verdict_without_confidence_stands_when_scored_alone(robust: Any, streams: Callable[..., Any]) -> None:
    """R33: what lies on the boundary is scored again by the judge, and by us in another batch."""
    result = judge_attack(
        robust.model, cw, robust.images, robust.labels, budget=Budget.parse("l2:0.5"), draws=streams(64), steps=50
    )
    assert Verdict.INVALID not in result.verdicts
    broken = torch.tensor([verdict is Verdict.BROKEN for verdict in result.verdicts]).nonzero().squeeze(1)
    assert len(broken) > 10
    for row in broken.tolist():
        logits = robust.model.logits(result.images[row : row + 1])
        assert margins(logits, robust.labels[row : row + 1]).item() <= 0


def test_confidence_moves_further(robust: Any, candidates: Callable[..., Any]) -> None:
    images, labels = robust.images[:4], robust.model.logits(robust.images[:4]).argmax(1)
    budget = Budget(Norm.L2, Fraction(100))
    leads = []
    for confidence in (0.0, 2.0):
        found = candidates(
            cw(robust.model, images, labels, budget=budget, draws=None, steps=100, rounds=4, confidence=confidence), 4
        )
        leads.append(torch.stack([-margins(one.logits, labels) for one in found]).amax(0))
    assert bool((leads[1] >= 2.0).all())


def test_the_constant_is_searched_by_halving() -> None:
    images, logits, classes = torch.full((3, 1, 1, 1), 0.5), torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)
    search = Search.at(images, logits, classes, 1.0)
    paths = []
    for reached in ([True, False, False], [True, False, True], [False, False, False]):
        search = Search.at(images, logits, classes, 1.0) if not paths else search
        object.__setattr__(search, "reached", torch.tensor(reached))
        search = search.again()
        paths.append(search.constant.tolist())
    assert paths == [[0.5, 10, 10], [0.25, 100, 5.5], [0.375, 1000, 7.75]]


def test_only_points_within_the_budget_are_proposed(robust: Any, candidates: Callable[..., Any]) -> None:
    budget = Budget.parse("l2:0.3")
    found = candidates(
        cw(robust.model, robust.images, robust.labels, budget=budget, draws=None, steps=20, rounds=3), 64
    )
    assert all(bool(budget.allows(one.images, robust.images).all()) for one in found)
    unchanged = torch.stack([(one.images == robust.images).flatten(1).all(1) for one in found])
    assert bool(unchanged.any())
    assert bool((~unchanged).any())
    for one in found[::10]:
        torch.testing.assert_close(one.logits, robust.model.logits(one.images), atol=1e-5, rtol=1e-5)


def test_a_proposal_costs_no_further_pass(robust: Any, streams: Callable[..., Any]) -> None:
    result = judge_attack(
        robust.model,
        cw,
        robust.images[:4],
        robust.labels[:4],
        budget=Budget.parse("l2:0"),
        draws=streams(4),
        steps=7,
        rounds=3,
    )
    tried = torch.tensor([verdict is Verdict.SURVIVED for verdict in result.verdicts])
    assert result.meter.backwards[tried].unique().tolist() == [21]
    assert result.meter.forwards[tried].unique().tolist() == [23]  # the judge's own, and one by the attack


def test_the_published_form_towards_the_own_prediction_is_no_attack(robust: Any, streams: Callable[..., Any]) -> None:
    """The dump of March 2024: targeted without labels. What is classified correctly stays so."""
    result = judge_published(
        robust.model,
        published_cw,
        robust.images[:BATCH],
        robust.labels[:BATCH],
        budget=Budget(Norm.L2, Fraction(1000), bounded=False),
        draws=streams(BATCH),
        towards_prediction=True,
        confidence=10.0,
        rate=0.1,
        steps=10,
    )
    assert Verdict.BROKEN not in result.verdicts


def test_the_published_form_ends_at_the_clamped_image_without_success(
    robust: Any, candidates: Callable[..., Any]
) -> None:
    images = robust.images[:8] * 4 - 2
    labels = robust.model.logits(images.clamp(0, 1)).argmax(1)
    budget = Budget(Norm.L2, Fraction(1000), bounded=False)
    (candidate,) = candidates(
        published_cw(robust.model, images, labels, budget=budget, draws=None, steps=1, rounds=1), 8
    )
    assert torch.equal(candidate.images, images.clamp(0, 1))


def test_the_published_form_treats_every_image_as_a_batch_of_its_own(
    robust: Any, candidates: Callable[..., Any]
) -> None:
    images, budget = robust.images[:8], Budget(Norm.L2, Fraction(1000), bounded=False)
    labels = robust.model.logits(images).argmax(1)
    options: dict[str, Any] = {"budget": budget, "draws": None, "steps": 30, "rounds": 4, "rate": 0.05}
    (together,) = candidates(published_cw(robust.model, images, labels, **options), 8)
    for row in range(0, 8, 3):
        one = slice(row, row + 1)
        (alone,) = candidates(published_cw(robust.model, images[one], labels[one], shared_constant=True, **options), 1)
        torch.testing.assert_close(together.images[one], alone.images, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "options",
    [{"rounds": 0}, {"steps": 0}, {"rate": 0.0}, {"initial_constant": 0.0}, {"confidence": -1.0}],
)
@pytest.mark.parametrize("attack", [cw, published_cw])
def test_wrong_options_are_named(attack: Callable[..., Any], options: dict[str, Any], robust: Any) -> None:
    with pytest.raises(BadValue, match=next(iter(options))):
        next(attack(robust.model, robust.images, robust.labels, budget=Budget.parse("l2:1"), draws=None, **options))


def test_another_norm_is_refused(robust: Any) -> None:
    with pytest.raises(BadValue, match="must be l2, got linf"):
        next(cw(robust.model, robust.images, robust.labels, budget=Budget.parse("linf:0.1"), draws=None))
