"""The contract of a plug-in, for attacks that have no other place for it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robustkpca import registry
from robustkpca.budget import Budget
from robustkpca.judge import judge_attack
from robustkpca.models.loading import wrap
from robustkpca.testing import check_attack


@pytest.mark.parametrize(
    "threat",
    [
        "sld(sparsity=95)@l1:2",
        "sld(random_start=true,steps=5)@l1:2",
        "published/sld(step=0.5)@l1:2",
        "cw(rounds=3,steps=30)@l2:0.3",
        "published/cw(rounds=2,steps=20,rate=0.05)@l2:1000",
        "published/cw(confidence=10,rate=0.1,steps=10,towards_prediction=true)@l2:1000",
        "spsa(samples=8,steps=4)@linf:0.05",
        "spsa(samples=8,steps=4)@l2:0.3",
        "published/spsa(samples=8,steps=3)@linf:0.1",
        "hsja(initial_evaluations=10,iterations=3,tries=20)@l2:0.3",
        "hsja(initial_evaluations=10,iterations=3,tries=20)@linf:0.05",
        "published/hsja(initial_evaluations=10,iterations=2,tries=20)@l2:1000",
        "fgsm_t@linf:0.05",
        "fgsm_t(exact=true,target=second)@l1:2",
        "pgd_t(steps=5,target=second)@l2:0.3",
        "pgd_t(exact=true,steps=5,target=next)@linf:0.05",
        "cw_t(exact=true,rounds=2,steps=20,target=second)@l2:0.3",
    ],
)
def test_the_contract_holds(threat: str) -> None:
    check_attack(threat)


class Shifted(nn.Module):
    """A network whose logits are all larger by the same."""

    def __init__(self, network: nn.Module, shift: float) -> None:
        super().__init__()
        self.network, self.shift = network, shift

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images) + self.shift


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("sld", "l1:1.5", {"sparsity": 90.0, "steps": 10}),
        ("cw", "l2:0.4", {"steps": 50, "rounds": 3}),
        ("spsa", "linf:0.15", {"steps": 4, "samples": 16}),
        ("hsja", "l2:0.7", {"iterations": 3, "initial_evaluations": 20, "tries": 50}),
        ("hsja", "linf:0.15", {"iterations": 3, "initial_evaluations": 20, "tries": 50}),
    ],
)
def test_precision_layout_and_shifted_logits_change_no_verdict(
    name: str, text: str, options: dict[str, Any], robust: Any, streams: Any
) -> None:
    images, labels, network = robust.images[:12], robust.labels[:12], robust.model.network
    cases = {
        "as it is": (network, images),
        "float64 network": (copy.deepcopy(network).double(), images),
        "float64 images": (copy.deepcopy(network).double(), images.double()),
        "shifted by 1000": (Shifted(network, 1000.0), images),
        "channels last": (network, images.to(memory_format=torch.channels_last)),
        "not contiguous": (network, images.transpose(2, 3).contiguous().transpose(2, 3)),
    }
    verdicts = {}
    for case, (model, given) in cases.items():
        result = judge_attack(
            wrap(model),
            registry.entries("attacks")[name].load(),
            given,
            labels,
            budget=Budget.parse(text),
            draws=streams(12),
            **options,
        )
        assert not any(result.details), (case, set(result.details))
        verdicts[case] = result.verdicts
    assert all(found == verdicts["as it is"] for found in verdicts.values()), verdicts
