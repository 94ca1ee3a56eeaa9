"""The contract notices attacks that break it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from robustkpca import registry
from robustkpca.adversary import Candidate, cross_entropy
from robustkpca.registry import Entry
from robustkpca.testing import check_attack

Check = Callable[[Callable[..., Any]], None]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Check:
    """Return what runs the contract on a function."""

    def run(function: Callable[..., Any]) -> None:
        monkeypatch.setitem(sys.modules, "under_test", SimpleNamespace(attack=function))
        known = registry._entries
        extra = {"under_test": Entry("under_test:attack", tags=("linf",))}
        monkeypatch.setattr(registry, "_entries", lambda group: {**known(group), **extra})
        check_attack("under_test@linf:0.2")

    return run


def step(model: Any, images: Tensor, labels: Tensor, budget: Any) -> Tensor:
    _, gradient = model.value_and_gradient(images, cross_entropy(labels))
    return budget.project(images + budget.length * gradient.sign(), around=images)


def test_an_honest_attack_passes(check: Check) -> None:
    def honest(model: Any, images: Tensor, labels: Tensor, *, budget: Any, draws: Any) -> Any:
        yield Candidate(step(model, images, labels, budget))

    check(honest)


def test_logits_that_the_model_does_not_give_are_noticed(check: Check) -> None:
    def lying(model: Any, images: Tensor, labels: Tensor, *, budget: Any, draws: Any) -> Any:
        points = step(model, images, labels, budget)
        yield Candidate(points, model.logits(images))

    with pytest.raises(
        AssertionError, match=r"carries logits that the model does not give|second look|scored once more"
    ):
        check(lying)


def test_strength_that_hangs_on_the_place_in_the_batch_is_noticed(check: Check) -> None:
    def placed(model: Any, images: Tensor, labels: Tensor, *, budget: Any, draws: Any) -> Any:
        points = step(model, images, labels, budget)
        points[len(points) // 2 :] = images[len(points) // 2 :]
        yield Candidate(points)

    with pytest.raises(AssertionError, match=r"order gives other verdicts|order changes images|alone"):
        check(placed)


def test_a_loss_that_large_logits_drown_is_noticed(check: Check) -> None:
    def drowning(model: Any, images: Tensor, labels: Tensor, *, budget: Any, draws: Any) -> Any:
        large = model.logits(images).abs().amax(1) > 500
        points = step(model, images, labels, budget)
        points[large] = images[large]
        yield Candidate(points)

    with pytest.raises(AssertionError, match=r"logits with 1000 added gives other verdicts"):
        check(drowning)


def test_the_global_generator_is_watched(check: Check) -> None:
    def rolling(model: Any, images: Tensor, labels: Tensor, *, budget: Any, draws: Any) -> Any:
        yield Candidate(budget.project(images + 0.2 * torch.randn_like(images).sign(), around=images))

    with pytest.raises(AssertionError):
        check(rolling)
