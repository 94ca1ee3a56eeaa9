"""What is said of a model before the first gradient step, so that a misleading row is marked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import robustkpca as rk
from robustkpca.audit import check_model
from robustkpca.errors import Unusable
from robustkpca.evaluation import AttackResult
from robustkpca.models.loading import wrap

IMAGES = torch.rand(8, 1, 4, 4, generator=torch.Generator().manual_seed(0))


class Grey(nn.Module):
    """Two logits: the mean of the image and one half."""

    def forward(self, images: Tensor) -> Tensor:
        mean = images.mean((1, 2, 3))
        return torch.stack([mean, torch.full_like(mean, 0.5)], dim=1)


class Cornered(Grey):
    """Answers otherwise when gradients are asked for, so that attacks climb on another hill."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        return logits.flip(1) if torch.is_grad_enabled() else logits


class Company(Grey):
    """Normalises by what else is in the pass, as batch norm without running statistics does."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        return logits - logits.mean(0)


class Numb(Grey):
    """Gives no gradients."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.detach())


class Rooted(Grey):
    """Its logits are fine; the derivative of its square root at zero is not."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images + 0 * (images - images).sqrt())


class Saturated(Grey):
    """Its logits are so far apart that the softmax is exactly one."""

    def forward(self, images: Tensor) -> Tensor:
        return 1e4 * super().forward(images)


def remarks(network: nn.Module, images: Tensor = IMAGES) -> list[str]:
    model = wrap(network)
    with model.evaluating():
        return check_model(model, images)


def test_nothing_is_said_of_a_plain_model() -> None:
    assert remarks(Grey()) == []
    assert remarks(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3))) == []


def test_a_model_that_answers_otherwise_for_gradients_is_marked() -> None:
    (said,) = remarks(Cornered())
    assert said.startswith("context output: the logits of an image change when gradients are asked for")


def test_a_model_whose_logits_depend_on_their_company_is_marked() -> None:
    for images in (IMAGES, IMAGES[:1]):
        (said,) = remarks(Company(), images)
        assert said.startswith("context output: the logits of an image change with its company")


def test_a_model_without_gradients_is_marked_and_may_be_attacked_by_queries() -> None:
    (said,) = remarks(Numb())
    assert said.startswith("no gradients, which most attacks need: RuntimeError")
    labels = (IMAGES.mean((1, 2, 3)) < 0.5).long()
    result = rk.attack(Numb(), IMAGES, labels, "noise@linf:0.01")
    assert result.flags == (said,)
    assert not any(result.details)


def attacked(network: nn.Module) -> AttackResult:
    labels = (IMAGES.mean((1, 2, 3)) < 0.5).long()
    return rk.attack(network, IMAGES, labels, "fgsm@linf:1e-6")


def test_an_attack_from_python_says_what_its_gradients_were_worth() -> None:
    assert attacked(Grey()).flags == ()
    for network, name in ((Rooted(), "nonfinite gradients"), (Saturated(), "zero gradients")):
        (flag,) = attacked(network).flags
        assert flag.startswith(f"{name}: on 100 % of the surviving samples")


@pytest.mark.parametrize("classes", [None, 2])
def test_one_output_is_no_classifier(classes: int | None) -> None:
    one = wrap(nn.Sequential(nn.Flatten(), nn.Linear(16, 1)))
    with one.evaluating(), pytest.raises(Unusable, match="has one output; expected a logit for each"):
        check_model(one, IMAGES, classes)


def test_labels_that_count_from_one_are_thought_of_before_another_head_is() -> None:
    model = wrap(Grey())
    with model.evaluating(), pytest.raises(Unusable, match="If the labels count from 1, subtract 1"):
        check_model(model, IMAGES, 3)
