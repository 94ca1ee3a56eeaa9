"""The shape of a plug-in: what `keep` narrows, and how a plain function becomes an attack."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Keep, Loss, cross_entropy, lifted, narrow
from robustkpca.draws import Draws

ROWS = torch.arange(6.0).view(3, 2)
TWO_STAY = torch.tensor([True, False, True])
LEFT = torch.tensor([[0.0, 1.0], [4.0, 5.0]])


@dataclass(frozen=True)
class State:
    """What an attack may hold between two proposals."""

    best: Tensor
    step: float
    inner: dict[str, Tensor]


@dataclass
class Derived:
    """A state with a field that is computed."""

    rows: Tensor
    twice: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.twice = 2 * self.rows


class Named(NamedTuple):
    """A state as a named tuple."""

    rows: Tensor
    steps: int


def test_a_tensor_loses_the_rows_that_left() -> None:
    assert torch.equal(Keep(TWO_STAY)(ROWS), LEFT)


def test_several_things_come_back_in_their_order() -> None:
    first, second = Keep(TWO_STAY)(ROWS, torch.arange(3))
    assert torch.equal(first, LEFT)
    assert second.tolist() == [0, 2]


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_sequence_keeps_its_kind(kind: type) -> None:
    found: Any = Keep(TWO_STAY)(kind([ROWS, 3]))
    assert type(found) is kind
    assert torch.equal(found[0], LEFT)
    assert found[1] == 3


@pytest.mark.parametrize("kind", [Named, namedtuple("Untyped", "rows steps")])
def test_a_named_tuple_keeps_its_kind(kind: Any) -> None:
    found = Keep(TWO_STAY)(kind(ROWS, 3))
    assert type(found) is kind
    assert torch.equal(found.rows, LEFT)
    assert found.steps == 3


def test_a_mapping_is_narrowed_in_its_values() -> None:
    found = Keep(TWO_STAY)({"rows": ROWS, "name": "pgd"})
    assert torch.equal(found["rows"], LEFT)
    assert found["name"] == "pgd"


def test_a_dataclass_is_narrowed_in_all_its_fields() -> None:
    state = Keep(TWO_STAY)(State(ROWS, 0.5, {"gradient": ROWS + 1}))
    assert torch.equal(state.best, LEFT)
    assert torch.equal(state.inner["gradient"], LEFT + 1)
    assert state.step == 0.5


def test_a_computed_field_follows_its_dataclass() -> None:
    assert torch.equal(Keep(TWO_STAY)(Derived(ROWS)).twice, 2 * LEFT)


def test_draws_are_narrowed_and_go_on() -> None:
    draws = Draws.of(["a", "b", "c"], seed=0, threat="t")
    draws.uniform((2,), ROWS)
    kept = Keep(TWO_STAY)(draws)
    assert torch.equal(kept.uniform((2,), ROWS), draws.uniform((2,), ROWS)[TWO_STAY])


def test_a_loss_is_narrowed_in_its_rows() -> None:
    logits, labels = torch.randn(3, 4), torch.tensor([0, 1, 2])
    loss = cross_entropy(labels)
    assert torch.equal(Keep(TWO_STAY)(loss)(logits[TWO_STAY]), loss(logits)[TWO_STAY])


@pytest.mark.parametrize("thing", [None, 3, 0.5, "text", len, True])
def test_what_has_no_rows_passes_through(thing: object) -> None:
    assert Keep(TWO_STAY)(thing) is thing


def test_a_tensor_without_dimensions_passes_through() -> None:
    scalar = torch.tensor(3.0)
    assert Keep(TWO_STAY)(scalar) is scalar


def test_nothing_is_copied_where_nobody_left() -> None:
    state = State(ROWS, 0.5, {})
    rows, same = Keep(torch.tensor([True, True, True]))(ROWS, state)
    assert rows is ROWS
    assert same is state


def test_nothing_is_left_where_everybody_left() -> None:
    assert Keep(torch.tensor([False, False, False]))(ROWS).shape == (0, 2)


def test_narrowing_does_not_change_the_original() -> None:
    state = State(ROWS.clone(), 0.5, {"gradient": ROWS.clone()})
    narrow(state, torch.tensor([0]))
    assert torch.equal(state.best, ROWS)


def test_cross_entropy_has_one_value_per_image() -> None:
    logits, labels = torch.tensor([[0.0, 0.0], [5.0, 5.0]]), torch.tensor([0, 1])
    torch.testing.assert_close(cross_entropy(labels)(logits), torch.full((2,), 2.0).log())


def test_a_loss_without_rows_survives_narrowing() -> None:
    loss = Loss(lambda logits: logits[:, 0]).narrow(torch.tensor([1]))
    assert loss(ROWS[1:2]).tolist() == [2.0]


def test_a_generator_function_is_lifted_to_itself() -> None:
    def attack(model: object, images: Tensor, labels: Tensor) -> Any:
        yield Candidate(images)

    assert lifted(attack) is attack


def test_a_plain_function_proposes_once_what_it_returns() -> None:
    proposals = lifted(lambda model, images, labels, **_: images + 1)(None, ROWS, ROWS)
    assert torch.equal(next(proposals).images, ROWS + 1)
    with pytest.raises(StopIteration):
        proposals.send(Keep(TWO_STAY))


def test_a_function_that_returns_a_generator_is_heard_and_answered() -> None:
    heard = []

    def inner(images: Tensor) -> Any:
        heard.append((yield Candidate(images)))

    proposals = lifted(lambda model, images, labels, **_: inner(images))(None, ROWS, ROWS)
    next(proposals)
    keep = Keep(TWO_STAY)
    with pytest.raises(StopIteration):
        proposals.send(keep)
    assert heard == [keep]


def test_an_object_with_a_generator_call_is_an_attack() -> None:
    class Thing:
        def __call__(self, model: object, images: Tensor, labels: Tensor) -> Any:
            yield Candidate(images)
            yield Candidate(images + 1)

    proposals = lifted(Thing())(None, ROWS, ROWS)
    assert torch.equal(next(proposals).images, ROWS)
    assert torch.equal(proposals.send(Keep(TWO_STAY)).images, ROWS + 1)
