"""FGSM and PGD against the recorded outputs of torchattacks 3.5.1, whose protocol is the ``pixel`` one."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from robustkpca.adversary import Proposals
from robustkpca.attacks.fgsm import fgsm
from robustkpca.attacks.pgd import pgd
from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.testing import RecordedDraws

GOLDEN = Path(__file__).parent.parent / "golden" / "attacks"
CASES = json.loads((GOLDEN / "cases.json").read_text())["torchattacks_cnn"]["cases"]
FIXED = {"steps": 10, "relative_step": 0.2, "random_start": False}
ATTACKS: dict[str, tuple[Callable[..., Proposals], Norm, dict[str, Any]]] = {
    "FGSM": (fgsm, Norm.LINF, {}),
    "BIM": (pgd, Norm.LINF, FIXED),
    "PGD_norand": (pgd, Norm.LINF, FIXED),
    "PGD_rand": (pgd, Norm.LINF, {**FIXED, "random_start": True}),
    "PGDL2_norand": (pgd, Norm.L2, FIXED),
}


@pytest.mark.parametrize("case", list(ATTACKS))
def test_outputs_equal_those_of_torchattacks(case: str, robust: Any, candidates: Callable[..., Any]) -> None:
    """Where the loss is all but zero, float32 knows the gradient to few digits, and the L2 step of torchattacks is shorter."""
    attack, norm, options = ATTACKS[case]
    recorded = load_file(GOLDEN / "torchattacks_cnn.safetensors")
    expected, radius = recorded[f"{case}.adv"], CASES[case]["params"]["eps"]
    draws: Draws = RecordedDraws.play(torch.zeros(64, 1))
    if case == "PGD_rand":
        draws = RecordedDraws.play((recorded["PGD_rand.init_noise"].double() / radius + 1) / 2)
    budget = Budget(norm, Fraction(str(radius)))
    found: Tensor = candidates(
        attack(robust.model, robust.images, robust.labels, budget=budget, draws=draws, **options), 64
    )[-1].images
    exact = copy.deepcopy(robust.model.network).double()(robust.images.double())
    sure = torch.nn.functional.cross_entropy(exact, robust.labels, reduction="none") > 3e-4
    assert sure.sum() > 10
    assert ((found - expected).abs() <= 1e-5)[sure].double().mean().item() >= 0.999
    accuracy = (robust.model.logits(found).argmax(1) == robust.labels).double().mean().item()
    assert accuracy == pytest.approx(CASES[case]["adv_accuracy"], abs=1 / 64 if norm is Norm.L2 else 1e-9)
