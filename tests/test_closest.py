"""Budgets without a radius: closed forms, and the robust accuracy that distances give at any radius."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pandas
import pytest
import torch
from torch import Tensor, nn

import robustkpca as rk
from robustkpca.boards import Board, Column, leaderboard
from robustkpca.errors import BadValue
from robustkpca.records import Verdict
from robustkpca.testing import check_attack

DUAL = {"linf": 1, "l2": 2, "l1": torch.inf}


class Planes(nn.Module):
    """Logits that are linear in the pixels, so that the closest boundary of every image is known."""

    def __init__(self, classes: int = 3, size: int = 48) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(classes, size, generator=draw) / size, requires_grad=False)

    def forward(self, images: Tensor) -> Tensor:
        return (images - 0.5).flatten(1) @ self.weight.T

    def closest(self, images: Tensor, norm: str) -> Tensor:
        """Return the distances ``(N,)`` of images from their boundaries, as long as [0, 1] does not interfere."""
        logits = self(images)
        own = logits.argmax(1)
        gaps = logits.amax(1, keepdim=True) - logits
        normals = self.weight[own].unsqueeze(1) - self.weight
        lengths = torch.linalg.vector_norm(normals, DUAL[norm], dim=2)
        return torch.where(lengths > 0, gaps / lengths.clamp_min(1e-12), torch.inf).amin(1)


def inputs() -> Tensor:
    return 0.4 + 0.2 * torch.rand(12, 3, 4, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("threat", "classes"),
    [
        ("fab@linf:min", 3),
        ("fab@l2:min", 3),
        ("fab@l1:min", 3),
        ("fab_t@l2:min", 3),
        ("cw@l2:min", 3),
        ("hsja(iterations=40)@l2:min", 2),  # it stays at the boundary of the class that its first noise has
        ("hsja(iterations=40)@linf:min", 2),
    ],
)
def test_distances_are_those_of_the_closest_boundary(threat: str, classes: int) -> None:
    """Every minimum-norm attack within 5 %."""
    model, images = Planes(classes), inputs()
    result = rk.attack(model, images, model(images).argmax(1), threat)
    assert set(result.verdicts) == {Verdict.BROKEN}
    exact = model.closest(images, threat.partition("@")[2].partition(":")[0])
    assert bool((result.distances > exact * 0.999).all())
    assert bool((result.distances <= exact * 1.05).all()), (result.distances / exact).max()
    assert bool((model(result.images).argmax(1) != model(images).argmax(1)).all())


def test_what_was_wrong_before_has_no_distance_and_what_nothing_harms_an_infinite_one() -> None:
    class Sure(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return images.flatten(1)[:, :2] * 0 + torch.tensor([3.0, 0.0])

    result = rk.attack(Sure(), inputs()[:4], torch.tensor([0, 1, 0, 1]), "fab(steps=3)@l2:min")
    assert result.verdicts == (Verdict.SURVIVED, Verdict.MISTAKEN) * 2
    assert result.distances.tolist() == [torch.inf, 0, torch.inf, 0]


def test_the_contract_holds_without_a_radius() -> None:
    check_attack("fab_t(steps=6,targets=2)@l2:min")


@pytest.mark.parametrize("threat", ["pgd@linf:min", "square@l2:min", "noise@l1:min"])
def test_an_attack_that_needs_a_radius_is_refused(threat: str) -> None:
    with pytest.raises(BadValue, match=r"needs a radius such as '8/255'; .*fab.* look for the smallest change"):
        rk.threat(threat)


def test_the_text_has_one_spelling() -> None:
    one = rk.threat("fab@L2: min")
    assert one.label == "fab@l2:min"
    assert rk.threat(str(one)) == one


def frame(name: str, distances: list[float], verdicts: str) -> pandas.DataFrame:
    words = {"B": "broken", "S": "survived", "M": "mistaken"}
    rows: list[dict[str, Any]] = [
        {
            "model": name,
            "model_name": name,
            "threat": "fab@l2:min",
            "threat_label": "fab@l2:min",
            "threat_version": "1",
            "data": "d",
            "data_name": "d",
            "seed": 0,
            "sample": str(index),
            "verdict": words[verdict],
            "distance": distance,
            "planned": str(len(distances)),
            "flags": "",
        }
        for index, (distance, verdict) in enumerate(zip(distances, verdicts, strict=True))
    ]
    return pandas.DataFrame(rows)


def test_a_table_shows_quartiles_and_the_robust_accuracy_at_every_radius() -> None:
    records = frame("a", [0.0, 0.1, 0.2, 0.3, 9.0, 0.4, 0.5, 0.6], "MBBBSBBB")
    (table,) = leaderboard(records, radii=["0.2", Fraction(9, 20)])
    distance, near, far = table.rows[0].cells
    assert (distance.kind, distance.low, distance.value, distance.high) == ("distance", 0.1, 0.3, 0.5)
    assert near.value == 5 / 8  # 0.3, 0.4, 0.5, 0.6 and the one that nothing harms
    assert far.value == 3 / 8
    assert [column.title for column in table.board.columns] == ["fab@l2:min", "fab@l2:0.2 of min", "fab@l2:0.45 of min"]


def test_models_are_ranked_by_a_sign_test_of_their_distances() -> None:
    close, far = [0.1 + 0.01 * i for i in range(12)], [0.2 + 0.01 * i for i in range(12)]
    (table,) = leaderboard(pandas.concat([frame("near", close, "B" * 12), frame("far", far, "B" * 12)]))
    assert [(row.name, row.rank) for row in table.rows] == [("far", 1), ("near", 2)]
    (table,) = leaderboard(pandas.concat([frame("a", close[:3], "BBB"), frame("b", far[:3], "BBB")]))
    assert [row.rank for row in table.rows] == [1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Column("d", ("pgd@l2:1",), "distance"),
        lambda: Column("d", ("pgd@l2:1",), within=Fraction(1, 2)),
        lambda: leaderboard(frame("a", [0.1], "B"), radii=["far"]),
        lambda: leaderboard(frame("a", [0.1], "B"), radii=["-1"]),
    ],
)
def test_what_has_no_distances_is_refused(make: Any) -> None:
    with pytest.raises(BadValue, match=r"without a radius|expected a number of pixels"):
        make()


def test_one_run_without_a_radius_agrees_with_a_run_at_a_radius() -> None:
    model, images = Planes(), inputs()
    labels = model(images).argmax(1)
    free = rk.attack(model, images, labels, "fab@l2:min")
    radius = float(free.distances.median()) * 1.01
    held = rk.attack(model, images, labels, f"fab@l2:{radius:.6f}")
    expected = [Verdict.SURVIVED if distance > radius else Verdict.BROKEN for distance in free.distances.tolist()]
    assert list(held.verdicts) == expected


def test_a_board_may_ask_for_a_radius() -> None:
    board = Board("b", "t", (Column("at 0.2", ("fab@l2:min",), within=Fraction(1, 5)),))
    (table,) = leaderboard(frame("a", [0.1, 0.3], "BB"), board)
    assert table.rows[0].cells[0].value == 0.5
