"""AutoAttack as a sequence, against the flags of the official one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import robustkpca as rk
from robustkpca.budget import Budget
from robustkpca.errors import BadValue
from robustkpca.records import Verdict
from robustkpca.testing import check_attack

GOLDEN = Path(__file__).parents[1] / "golden" / "attacks"


def members(text: str) -> list[str]:
    return [member.label for member in rk.threat(text).members]


def test_the_sequences_are_those_of_the_released_code() -> None:
    square = "square(reach_edges=false)@linf:0.1"
    assert members("autoattack@linf:0.1") == ["apgd_ce@linf:0.1", "apgd_t@linf:0.1", "fab_t@linf:0.1", square]
    assert members("autoattack(version=plus)@linf:0.1") == [
        "apgd_ce(restarts=5)@linf:0.1",
        "apgd_dlr(restarts=5)@linf:0.1",
        "fab(restarts=5)@linf:0.1",
        square,
        "apgd_t@linf:0.1",
        "fab_t(restarts=5)@linf:0.1",
    ]
    assert members("autoattack(version=rand)@l2:0.5") == ["apgd_ce(eot=20)@l2:0.5", "apgd_dlr(eot=20)@l2:0.5"]
    assert members("autoattack@l1:8")[:2] == ["apgd_ce(restarts=5)@l1:8", "apgd_t(targets=5)@l1:8"]


def test_an_unknown_version_is_refused_before_anything_runs() -> None:
    with pytest.raises(BadValue, match=r"version is 'fast'; expected one of standard, plus, rand"):
        rk.threat("autoattack(version=fast)@linf:0.1")


@pytest.mark.parametrize("classes", [2, 3])
def test_few_classes_are_enough(classes: int) -> None:
    """Targets clamp to the classes there are; the ratio of logits is replaced where it is undefined."""
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 6 * 4, classes))
    images = torch.rand(6, 3, 6, 4)
    labels = network(images).argmax(1)
    whole = rk.attack(network, images, labels, "autoattack@linf:0.5")
    assert set(whole.verdicts) == {Verdict.BROKEN}
    tiny = rk.attack(network, images[:1], labels[:1], "worst-of(apgd_t(steps=5)@linf:1e-5,fab_t(steps=5)@linf:1e-5)")
    assert not tiny.details[0]


@pytest.mark.parametrize(
    ("classes", "wanted"),
    [
        (
            2,
            (
                "few classes: apgd_dlr takes the plain margin, its loss is defined from 3 classes on",
                "few classes: apgd_t takes the plain margin, its loss is defined from 4 classes on",
                "few classes: apgd_t goes to 1 classes, not to 9",
            ),
        ),
        (
            3,
            (
                "few classes: apgd_t takes the spread of 3 logits, its loss is defined from 4 classes on",
                "few classes: apgd_t goes to 2 classes, not to 9",
            ),
        ),
        (9, ("few classes: apgd_t goes to 8 classes, not to 9",)),
        (10, ()),
    ],
)
def test_the_row_says_what_few_classes_change(classes: int, wanted: tuple[str, ...]) -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, classes))
    images = torch.rand(2, 3, 2, 2)
    threat = "worst-of(apgd_dlr(steps=1)@linf:1e-6,apgd_t(steps=1)@linf:1e-6)"
    result = rk.attack(network, images, network(images).argmax(1), threat)
    assert tuple(flag for flag in result.flags if flag.startswith("few")) == wanted


def test_the_records_say_what_few_classes_change(tmp_path: Path) -> None:
    array = tmp_path / "two.npz"
    images = np.random.default_rng(0).random((4, 2, 2, 3), np.float32)
    np.savez(array, images=images, labels=np.array([0, 1, 0, 1]))
    (tmp_path / "net.py").write_text(
        "import torch\n\ndef build():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2))\n"
    )
    frame = rk.score(f"{tmp_path / 'net.py'}:build", "apgd_dlr(steps=1)@linf:0.01", array, classes=2)
    assert frame["flags"].str.contains("few classes: apgd_dlr takes the plain margin").all()


@pytest.mark.parametrize("budget", ["linf:0.03", "l2:0.2", "l1:1"])
@pytest.mark.slow
def test_the_contract_holds(budget: str) -> None:
    check_attack(f"autoattack@{budget}", samples=9)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_flags_are_the_official_ones(norm: str, seed: int, robust: Any) -> None:
    """On this network the five official seeds agree for every sample after the whole sequence."""
    case = json.loads((GOLDEN / "autoattack_cases.json").read_text())[norm]
    flags = load_file(GOLDEN / f"autoattack_{norm}.safetensors")["flags.after_square"].bool()
    budget = Budget.parse(f"{norm.lower()}:{case['eps']}")
    result = rk.attack(robust.model.network, robust.images, robust.labels, f"autoattack@{budget}", seed=seed)
    survived = torch.tensor([verdict is Verdict.SURVIVED for verdict in result.verdicts])
    assert torch.equal(survived, flags)
    assert result.robust_accuracy == case["robust_accuracy"]
