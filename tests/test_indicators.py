"""Each sign of a failed attack, on records with a known answer, at the edge where it appears."""

from __future__ import annotations

from typing import Any

import pandas
import pytest
import torch
from torch import Tensor, nn

import robustkpca as rk
from robustkpca.budget import Budget
from robustkpca.draws import Draws
from robustkpca.indicators import FLAGS, Flag, flags
from robustkpca.judge import judge_attack
from robustkpca.models.loading import wrap
from robustkpca.records import Verdict

WORDS = {"S": "survived", "B": "broken", "M": "mistaken", "I": "invalid"}


def records(threat: str, outcomes: str, **columns: Any) -> pandas.DataFrame:
    """One letter per sample."""
    base: dict[str, Any] = {
        "threat": str(rk.threat(threat)),
        "threat_label": threat,
        "sample": [f"{index:03}" for index in range(len(outcomes))],
        "verdict": [WORDS[letter] for letter in outcomes],
        "flags": "",
    }
    return pandas.DataFrame(base | columns)


def names(*parts: pandas.DataFrame) -> list[str]:
    return [flag.name for flag in flags(pandas.concat(parts, ignore_index=True))]


def broken(count: int, of: int = 100) -> str:
    return "B" * count + "S" * (of - count)


def test_nothing_is_seen_in_records_of_honest_attacks() -> None:
    parts = [
        records("clean", "S" * 100),
        records("noise@linf:0.1", broken(5)),
        records("fgsm@linf:0.1", broken(30)),
        records("pgd@linf:0.1", broken(60), zero_gradients=0, margin=3.0),
        records("pgd@linf:0.2", broken(90), zero_gradients=0, margin=3.0),
        records("pgd@linf:1", broken(100), zero_gradients=0, margin=3.0),
        records("square@linf:0.1", broken(50)),
    ]
    assert names(*parts) == []


@pytest.mark.parametrize("more", [0, 2, 3, 5])
def test_a_black_box_wins_where_it_breaks_more_than_a_few_others(more: int) -> None:
    """robustbench 193: from x to x - 5 points in Square alone."""
    found = names(records("pgd@linf:0.1", broken(40)), records("square@linf:0.1", broken(40 + more)))
    assert found == (["black box wins"] if more >= 3 else [])


def test_a_black_box_is_held_against_all_gradient_attacks_of_the_same_budget_together() -> None:
    square = records("square@linf:0.1", "SSSSS" + "B" * 5 + "S" * 90)
    first, second = records("pgd@linf:0.1", broken(7)), records("apgd_ce@linf:0.1", "S" * 6 + "B" * 5 + "S" * 89)
    assert names(first, square) == ["black box wins"]
    assert names(first, second, square) == []
    assert names(records("pgd@l2:0.1", broken(7)), square) == []


def test_few_of_very_many_are_not_yet_a_win() -> None:
    """3 of 10,000 are below the 0.2 points of AutoAttack."""
    assert names(records("pgd@linf:0.1", broken(40, 10000)), records("square@linf:0.1", broken(43, 10000))) == []


def test_one_step_wins_where_many_steps_leave_what_it_breaks() -> None:
    fgsm = records("fgsm@linf:0.1", broken(40))
    assert names(fgsm, records("pgd@linf:0.1", broken(35))) == ["one step wins"]
    assert names(fgsm, records("pgd@linf:0.1", broken(38))) == []
    assert names(fgsm, records("pgd(steps=1)@linf:0.1", broken(30))) == []


@pytest.mark.parametrize(("small", "large", "seen"), [(40, 40, True), (40, 41, False), (40, 30, True), (3, 3, False)])
def test_a_larger_budget_has_to_break_more(small: int, large: int, seen: bool) -> None:
    found = names(records("pgd@linf:0.1", broken(small)), records("pgd@linf:0.2", broken(large)))
    assert found == (["budget without effect"] if seen else [])


def test_budgets_are_compared_for_one_attack_in_one_norm() -> None:
    assert names(records("pgd@linf:0.1", broken(40)), records("pgd(steps=30)@linf:0.2", broken(20))) == []
    assert names(records("pgd@linf:0.1", broken(40)), records("pgd@l2:0.2", broken(20))) == []
    assert names(records("square@linf:0.1", broken(40)), records("square@linf:0.2", broken(20))) == []


@pytest.mark.parametrize(
    ("radius", "left", "seen"), [("0.5", 2, True), ("1", 1, True), ("1", 0, False), ("0.4", 9, False)]
)
def test_without_a_limit_nobody_survives(radius: str, left: int, seen: bool) -> None:
    found = names(records(f"pgd@linf:{radius}", broken(100 - left)))
    assert found == (["unbounded survivors"] if seen else [])


def test_without_a_limit_attacks_are_taken_together() -> None:
    """Each may leave a few; where none survives both, nothing is hidden."""
    assert names(records("pgd@linf:1", broken(98)), records("apgd_ce@linf:1", "S" * 3 + "B" * 97)) == []


def test_zero_gradients_and_saturated_losses_are_looked_for_among_survivors() -> None:
    zero = records("pgd@linf:0.1", broken(50), zero_gradients=[1] * 50 + [0] * 50, margin=[99.0] * 50 + [3.0] * 50)
    assert names(zero) == []
    zero = records("pgd@linf:0.1", broken(50), zero_gradients=[0] * 98 + [1] * 2, margin=[3.0] * 98 + [99.0] * 2)
    assert names(zero) == ["zero gradients", "saturated loss"]


def test_what_cannot_be_judged_for_nan_is_named() -> None:
    detail = ["a candidate or the model's output for it is not finite", "", ""]
    assert names(records("pgd@linf:0.1", "ISB", detail=detail)) == ["not finite"]


def test_silent_success_and_worse_iterates_are_read_from_the_best_margin() -> None:
    kept: dict[str, Any] = {"margin": 2.0, "distance": 0.1}
    assert names(records("pgd@linf:0.1", "S" * 9, best_margin=[1.9] * 9, **kept)) == []
    assert names(records("pgd@linf:0.1", "S" * 9, best_margin=[None] * 9, **kept)) == []
    assert names(records("pgd@linf:0.1", "S" * 9, best_margin=[-0.5] + [1.9] * 8, **kept)) == ["silent success"]
    assert names(records("pgd@linf:0.1", "S" * 9, best_margin=[0.5] * 3 + [1.9] * 6, **kept)) == ["worse than its best"]
    kept["distance"] = 0.0  # given up: the image came back as it was
    assert names(records("pgd@linf:0.1", "S" * 9, best_margin=[0.5] * 3 + [1.9] * 6, **kept)) == []


def test_the_published_protocol_is_left_alone() -> None:
    assert names(records("published/pgd@linf:0.1", broken(40)), records("published/pgd@linf:0.2", broken(10))) == []


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_read_back_from_its_text(name: str) -> None:
    flag = Flag(name, "seen, on 3 of 5")
    assert Flag.parse(str(flag)) == flag
    assert Flag.parse(name) is None
    assert "; " not in str(flag)  # they are joined by it


def test_remarks_that_are_no_flags_hold_nothing_back() -> None:
    frame = records("pgd@linf:0.1", "SB", flags="initial weights: no checkpoint was given; seed per shard: because")
    assert flags(frame) == []


# The best margin, where it comes from


class Line(nn.Module):
    """Two logits whose difference is the mean of the image, less a half."""

    def forward(self, images: Tensor) -> Tensor:
        mean = images.flatten(1).mean(1)
        return torch.stack([mean - 0.5, torch.zeros_like(mean)], dim=1)


def judged(attack: Any, radius: str = "0.3") -> Any:
    images, labels = torch.full((3, 1, 2, 2), 0.6), torch.zeros(3, dtype=torch.long)
    draws = Draws.of(["0", "1", "2"], seed=0, threat="t")
    return judge_attack(wrap(Line()), attack, images, labels, budget=Budget.parse(f"linf:{radius}"), draws=draws)


def test_an_attack_that_hides_its_success_is_seen() -> None:
    def hiding(model: Any, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws) -> Tensor:
        model.logits(images - 0.2)
        return images + 0.1

    result = judged(hiding)
    assert set(result.verdicts) == {Verdict.SURVIVED}
    torch.testing.assert_close(result.meter.best_margins, torch.full((3,), -0.1))


def test_what_was_seen_outside_the_budget_does_not_count() -> None:
    def far(model: Any, images: Tensor, labels: Tensor, *, budget: Budget, draws: Draws) -> Tensor:
        model.logits(images - 0.5)
        model.logits(images[1:2] - 0.05, rows=torch.tensor([1]))
        return images

    torch.testing.assert_close(judged(far).meter.best_margins, torch.tensor([0.1, 0.05, 0.1]))


def test_an_attack_that_proposes_what_it_sees_is_not_watched() -> None:
    result = rk.attack(Line(), torch.full((2, 1, 2, 2), 0.6), [0, 0], "pgd(steps=2)@linf:0.05")
    assert set(result.verdicts) == {Verdict.SURVIVED}
