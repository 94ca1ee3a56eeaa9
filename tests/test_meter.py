"""Passes are counted for the image that caused them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from robustkpca.adversary import Loss
from robustkpca.meter import MeteredClassifier

LOSS = Loss(lambda logits: logits[:, 0])


class Relu:
    """One logit, max(x, 0): the gradient is zero where x is negative."""

    def logits(self, images: Tensor, rows: Tensor | None = None) -> Tensor:
        return images.clamp_min(0)

    def value_and_gradient(self, images: Tensor, loss: Loss, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.logits(images), (images > 0).float()


@pytest.fixture
def meter() -> MeteredClassifier:
    """A meter over four images."""
    return MeteredClassifier(Relu(), 4, torch.device("cpu"))


def test_answers_are_those_of_the_model(meter: MeteredClassifier) -> None:
    assert meter.logits(torch.tensor([[-1.0], [2.0], [3.0], [4.0]])).flatten().tolist() == [0, 2, 3, 4]


def test_a_forward_pass_counts_one_for_everyone(meter: MeteredClassifier) -> None:
    meter.logits(torch.ones(4, 1))
    assert meter.forwards.tolist() == [1, 1, 1, 1]
    assert meter.backwards.tolist() == [0, 0, 0, 0]


def test_a_gradient_counts_one_pass_each_way(meter: MeteredClassifier) -> None:
    meter.value_and_gradient(torch.ones(4, 1), LOSS)
    assert meter.forwards.tolist() == [1, 1, 1, 1]
    assert meter.backwards.tolist() == [1, 1, 1, 1]


def test_who_left_is_not_charged(meter: MeteredClassifier) -> None:
    meter.stand(torch.tensor([3, 1]))
    meter.logits(torch.ones(2, 1))
    assert meter.forwards.tolist() == [0, 1, 0, 1]


def test_several_copies_of_the_batch_are_charged_to_each(meter: MeteredClassifier) -> None:
    meter.stand(torch.tensor([0, 2]))
    meter.logits(torch.ones(6, 1))
    assert meter.forwards.tolist() == [3, 0, 3, 0]


def test_rows_say_whose_images_they_are(meter: MeteredClassifier) -> None:
    meter.stand(torch.tensor([0, 2, 3]))
    meter.logits(torch.ones(4, 1), rows=torch.tensor([0, 2, 2, 2]))
    assert meter.forwards.tolist() == [1, 0, 0, 3]


def test_an_odd_number_of_images_without_rows_is_an_error(meter: MeteredClassifier) -> None:
    with pytest.raises(ValueError, match="asked for 3 images while 4 stand; pass rows="):
        meter.logits(torch.ones(3, 1))


def test_zero_gradients_are_counted_where_they_occur(meter: MeteredClassifier) -> None:
    meter.stand(torch.tensor([1, 2]))
    meter.value_and_gradient(torch.tensor([[1.0], [-1.0]]), LOSS)
    assert meter.zero_gradients.tolist() == [0, 0, 1, 0]


def test_no_images_cost_nothing(meter: MeteredClassifier) -> None:
    meter.logits(torch.ones(0, 1))
    assert meter.forwards.sum() == 0


def test_copies_of_the_batch_follow_each_other_whole(meter: MeteredClassifier) -> None:
    """Two copies of images 1 and 2 come as 1, 2, 1, 2."""
    meter.stand(torch.tensor([1, 2]))
    meter.value_and_gradient(torch.tensor([[1.0], [-1.0], [1.0], [-1.0]]), LOSS)
    assert meter.zero_gradients.tolist() == [0, 0, 2, 0]


def test_a_flat_loss_beyond_the_boundary_is_no_zero_gradient_of_the_model() -> None:
    meter = MeteredClassifier(Relu(), 3, torch.device("cpu"), torch.tensor([0, 1, 0]))
    meter.value_and_gradient(torch.tensor([[-1.0], [-1.0], [2.0]]), LOSS)  # the only class is 0
    assert meter.zero_gradients.tolist() == [1, 0, 0]
