"""Foreign code gets the right gradients, the right account, and leaves nothing behind."""

from __future__ import annotations

import logging
import random
import sys
import warnings
from types import FrameType
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from robustkpca.attacks.foreign import ForeignModule, contained, shard_seed
from robustkpca.draws import Draws
from robustkpca.meter import MeteredClassifier
from robustkpca.models.loading import wrap


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.Tanh(), nn.Linear(7, 4))


def pictures(count: int) -> Tensor:
    return torch.rand(count, 3, 2, 2, generator=torch.Generator().manual_seed(1))


def metered(images: Tensor) -> tuple[ForeignModule, MeteredClassifier]:
    meter = MeteredClassifier(wrap(network()), len(images), images.device)
    return ForeignModule(meter, images), meter


def test_gradients_are_those_of_the_network() -> None:
    images = pictures(5)
    foreign, _ = metered(images)
    labels = torch.tensor([0, 1, 2, 3, 0])
    gradients = []
    for module in (foreign, network()):
        points = images.clone().requires_grad_(True)
        loss = nn.functional.cross_entropy(3 * module(points), labels)
        gradients.append(torch.autograd.grad(loss, points)[0])
    torch.testing.assert_close(*gradients)


def test_a_jacobian_can_be_asked_for_row_by_row() -> None:
    images = pictures(2)
    foreign, _ = metered(images)
    points = images.clone().requires_grad_(True)
    logits = foreign(points)
    rows = [torch.autograd.grad(logits[:, k].sum(), points, retain_graph=True)[0].flatten(1) for k in range(4)]
    expected = torch.autograd.functional.jacobian(network(), images)
    for row in range(2):
        torch.testing.assert_close(torch.stack(rows)[:, row], expected[row, :, row].flatten(1))


def test_without_a_gradient_no_graph_is_made() -> None:
    foreign, meter = metered(pictures(3))
    with torch.no_grad():
        logits = foreign(pictures(3).requires_grad_(True))
    assert not logits.requires_grad
    assert meter.forwards.tolist() == [1, 1, 1]
    assert meter.backwards.tolist() == [0, 0, 0]


def test_a_pass_is_written_to_the_image_it_belongs_to() -> None:
    images = pictures(4)
    foreign, meter = metered(images)
    foreign(images[[3, 1, 1]] + 0.001)
    foreign(torch.cat([images, images]))
    assert meter.forwards.tolist() == [2, 4, 2, 3]
    points = images[[2]].clone().requires_grad_(True)
    foreign(points).sum().backward()
    assert meter.backwards.tolist() == [0, 0, 1, 0]


def test_a_loss_that_is_flat_by_itself_is_no_zero_gradient_of_the_model() -> None:
    images = pictures(4)
    foreign, meter = metered(images)
    points = torch.cat([images, images]).requires_grad_(True)
    weights = torch.tensor([0.0, 1, 0, 2, 0, 0, 3, 0])
    (found,) = torch.autograd.grad((foreign(points)[:, 0] * weights).sum(), points)
    again = points.detach().clone().requires_grad_(True)
    (expected,) = torch.autograd.grad((network()(again)[:, 0] * weights).sum(), again)
    torch.testing.assert_close(found, expected)
    assert meter.backwards.tolist() == [0, 1, 1, 1]
    assert meter.zero_gradients.tolist() == [0, 0, 0, 0]


def test_the_network_cannot_be_reached() -> None:
    foreign, _ = metered(pictures(2))
    foreign.train()
    assert list(foreign.children()) == []
    assert [parameter.requires_grad for parameter in foreign.parameters()] == [False]


def test_a_seed_belongs_to_the_samples_in_whatever_order() -> None:
    images = pictures(3)

    def seed(*samples: str) -> int:
        return shard_seed(Draws.of(samples, seed=0, threat="t"), images[: len(samples)])

    assert seed("a", "b", "c") == seed("c", "a", "b")
    assert len({seed("a", "b", "c"), seed("a", "b", "d"), seed("a", "b"), seed("a")}) == 4
    assert 0 <= seed("a", "b", "c") < 2**31


def test_nothing_is_left_behind(capsys: pytest.CaptureFixture[str]) -> None:
    def tracer(frame: FrameType, event: str, argument: Any) -> None:
        return None

    before = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    log = logging.getLogger("auto-attack")
    trace = sys.gettrace()
    sys.settrace(tracer)
    try:
        with torch.no_grad(), contained(3, torch.device("cpu"), "auto-attack"):
            assert torch.is_grad_enabled()
            drawn = torch.rand(1), random.random(), numpy.random.rand()
            sys.settrace(None)
            log.warning("it seems to be a dynamic defense")
            warnings.warn("a warning of theirs", stacklevel=1)
            print("Failed to set device automatically")
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(trace)
    with contained(3, torch.device("cpu")):
        assert drawn == (torch.rand(1), random.random(), numpy.random.rand())
    after = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert not log.disabled
    assert capsys.readouterr() == ("", "")


def test_a_failure_leaves_nothing_behind_either() -> None:
    def failing() -> None:
        with contained(3, torch.device("cpu"), "auto-attack"):
            torch.rand(1)
            raise ZeroDivisionError

    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        failing()
    assert torch.equal(torch.get_rng_state(), before)
    assert not logging.getLogger("auto-attack").disabled
