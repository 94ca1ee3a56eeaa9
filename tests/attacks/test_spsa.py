"""SPSA: the recorded outputs of cleverhans given its draws, where its queries lie, and how good its gradient is."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from robustkpca.attacks import queries
from robustkpca.attacks.spsa import estimate, published_spsa, spsa
from robustkpca.budget import Budget, Norm
from robustkpca.errors import BadValue
from robustkpca.judge import judge_attack
from robustkpca.meter import MeteredClassifier
from robustkpca.models.loading import wrap
from robustkpca.records import Verdict
from robustkpca.testing import RecordedDraws

GOLDEN = Path(__file__).parent.parent / "golden" / "attacks"
CASES = json.loads((GOLDEN / "cases.json").read_text())["cleverhans_cnn"]["cases"]
PLAIN = Budget(Norm.LINF, Fraction(1, 10), bounded=False)


class Listener:
    """A model that remembers its queries."""

    def __init__(self, classes: int = 3) -> None:
        self.queries: list[Tensor] = []
        self.weight = torch.randn(64, classes, generator=torch.Generator().manual_seed(0))

    def logits(self, images: Tensor, rows: Tensor | None = None) -> Tensor:
        self.queries.append(images)
        return images.flatten(1) @ self.weight


def metered(robust: Any, count: int) -> MeteredClassifier:
    return MeteredClassifier(robust.model, count, torch.device("cpu"))


@pytest.mark.parametrize("case", ["spsa_ypred", "spsa_ytrue"])
def test_outputs_equal_those_of_the_reference_given_its_draws(
    case: str, robust: Any, candidates: Callable[..., Any]
) -> None:
    expected = load_file(GOLDEN / "cleverhans_cnn.safetensors")
    with np.load(GOLDEN / "spsa_rademacher_cnn.npz") as packed:
        shape = tuple(packed["shape"])
        bits = np.unpackbits(packed["bits"])[: np.prod(shape)].reshape(shape)
    signs = 2 * torch.from_numpy(bits.astype(np.float32)) - 1
    images, model = robust.images[:16], metered(robust, 16)
    labels = robust.labels[:16] if case.endswith("ytrue") else robust.model.logits(images).argmax(1)
    draws = RecordedDraws.play(expected["spsa.init_uniform"], *signs.unbind(1))
    (candidate,) = candidates(published_spsa(model, images, labels, budget=PLAIN, draws=draws), 16)
    torch.testing.assert_close(candidate.images, expected[f"{case}.adv"], atol=1e-5, rtol=0)
    accuracy = (robust.model.logits(candidate.images).argmax(1) == robust.labels[:16]).double().mean().item()
    assert accuracy == pytest.approx(CASES[case]["adv_accuracy"], abs=1e-9)
    assert model.forwards.tolist() == [10 * 2 * 128] * 16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "steps", "budget"),
    [
        ("spsa_stats_5seeds", 10, PLAIN),
        ("spsa_stats_5seeds_eps0.3_it40_clip01", 40, Budget(Norm.LINF, Fraction(3, 10))),
    ],
)
def test_accuracy_over_seeds_is_that_of_the_reference(
    case: str, steps: int, budget: Budget, robust: Any, candidates: Callable[..., Any], streams: Callable[..., Any]
) -> None:
    found = []
    for seed in range(5):
        proposals = published_spsa(
            metered(robust, 64), robust.images, robust.labels, budget=budget, draws=streams(64, seed), steps=steps
        )
        images = candidates(proposals, 64)[-1].images
        found.append((robust.model.logits(images).argmax(1) == robust.labels).double().mean().item())
    assert abs(sum(found) / 5 - CASES[case]["mean"]) <= 2 / 64


def test_the_published_form_asks_around_twice_the_image(
    candidates: Callable[..., Any], streams: Callable[..., Any]
) -> None:
    """R39: cleverhans adds the image a second time."""
    model, images = Listener(), torch.full((2, 1, 8, 8), 0.5)
    labels = torch.zeros(2, dtype=torch.int64)
    candidates(published_spsa(model, images, labels, budget=PLAIN, draws=streams(2), steps=3, samples=4), 2)
    asked = torch.cat(model.queries)
    assert (asked - 1).abs().max().item() == pytest.approx(0.01, abs=1e-6)


@pytest.mark.parametrize("value", [0.5, 0.0, 1.0])
@pytest.mark.parametrize("text", ["linf:0.01", "l2:0.05"])
def test_queries_stay_close_to_the_image(
    text: str, value: float, candidates: Callable[..., Any], streams: Callable[..., Any]
) -> None:
    """R39."""
    model, images, budget = Listener(), torch.full((2, 1, 8, 8), value), Budget.parse(text)
    labels = torch.zeros(2, dtype=torch.int64)
    found = candidates(spsa(model, images, labels, budget=budget, draws=streams(2), steps=5, samples=16), 2)
    asked = torch.cat(model.queries)
    assert (asked - value).abs().max().item() <= budget.length + 0.01 + 1e-6
    assert asked.min() >= 0
    assert asked.max() <= 1
    assert all(bool(budget.allows(one.images, images).all()) for one in found)


@pytest.mark.parametrize("value", [0.5, 0.0])
def test_the_gradient_of_a_linear_loss_is_found(value: float, streams: Callable[..., Any]) -> None:
    """R39; pixels of exactly 0 can be asked about on one side alone, which halves their entry."""
    weight = torch.randn(64, generator=torch.Generator().manual_seed(1))
    points = torch.full((3, 1, 8, 8), value)
    found = estimate(lambda asked, rows: asked.flatten(1) @ weight, points, streams(3), 2048, 0.01, bounded=True)
    cosine = torch.nn.functional.cosine_similarity(found.flatten(1), weight.expand(3, -1))
    assert bool((cosine > 0.9).all())
    share = (found.flatten(1) * weight).sum(1) / weight.square().sum()
    torch.testing.assert_close(share, torch.full((3,), 1.0 if value else 0.5), atol=0.1, rtol=0)


def test_the_optimum_of_a_linear_model_is_reached(streams: Callable[..., Any]) -> None:
    """On logits (w * x, 0) the best L-infinity change is known: the margin falls by the radius times the sum of |w|."""
    draw = torch.Generator().manual_seed(0)
    weight = (0.02 + 0.1 * torch.rand(64, generator=draw)) * torch.randn(64, generator=draw).sign()
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    with torch.no_grad():
        network[1].weight[0], network[1].weight[1], network[1].bias[1] = weight, 0, 0
    images, labels = torch.full((2, 1, 8, 8), 0.5), torch.tensor([0, 0])
    for share, verdict in ((1.01, Verdict.SURVIVED), (0.99, Verdict.BROKEN)):
        with torch.no_grad():
            network[1].bias[0] = 0.05 * share * weight.abs().sum() - (weight * 0.5).sum()
        result = judge_attack(
            wrap(network),
            spsa,
            images,
            labels,
            budget=Budget.parse("linf:0.05"),
            draws=streams(2),
            steps=40,
            samples=256,
        )
        assert result.verdicts == [verdict] * 2


def test_memory_is_bounded_without_changing_the_numbers(
    streams: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few images at a time change nothing; few directions at a time draw others, as they do for every batch alike."""
    weight = torch.randn(64, generator=torch.Generator().manual_seed(1))
    points = torch.full((5, 1, 8, 8), 0.5)
    largest = []

    def margin(asked: Tensor, rows: Tensor) -> Tensor:
        largest.append(len(asked))
        return asked.flatten(1) @ weight

    monkeypatch.setattr(queries, "ENTRIES_AT_ONCE", 8 * 64 * 32)
    draws = streams(5)
    found = estimate(margin, points, draws, 100, 0.01)
    assert max(largest) <= 8 * 32
    assert draws.calls == 4
    for row in range(5):
        alone = estimate(margin, points[row : row + 1], streams(5).narrow(torch.tensor([row])), 100, 0.01)
        torch.testing.assert_close(alone[0], found[row], atol=1e-5, rtol=1e-5)


def test_passes_are_counted_for_every_image(robust: Any, streams: Callable[..., Any]) -> None:
    result = judge_attack(
        robust.model,
        spsa,
        robust.images[:6],
        robust.labels[:6],
        budget=Budget.parse("linf:0"),
        draws=streams(6),
        steps=3,
        samples=10,
    )
    for verdict, forwards in zip(result.verdicts, result.meter.forwards.tolist(), strict=True):
        assert forwards == (1 if verdict is Verdict.MISTAKEN else 1 + 3 * (1 + 20) + 1)
    assert not result.meter.backwards.any()


@pytest.mark.parametrize("options", [{"steps": 0}, {"samples": 0}, {"delta": 0.0}, {"rate": -1.0}])
@pytest.mark.parametrize("attack", [spsa, published_spsa])
def test_wrong_options_are_named(
    attack: Callable[..., Any], options: dict[str, Any], robust: Any, streams: Callable[..., Any]
) -> None:
    with pytest.raises(BadValue, match=next(iter(options))):
        next(attack(robust.model, robust.images, robust.labels, budget=PLAIN, draws=streams(64), **options))


def test_l1_is_refused(robust: Any, streams: Callable[..., Any]) -> None:
    for attack in (spsa, published_spsa):
        with pytest.raises(BadValue, match="linf or l2, got l1"):
            next(attack(robust.model, robust.images, robust.labels, budget=Budget.parse("l1:1"), draws=streams(64)))
