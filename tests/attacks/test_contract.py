"""The contract of a plug-in, for attacks that have no other place for it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robustkpca import registry
from robustkpca.budget import Budget
from robustkpca.judge import judge_attack
from robustkpca.models.loading import wrap
from robustkpca.testing import check_attack
from robustkpca.threats import SEQUENCE

QUICK = {
    "fgsm": "",
    "pgd": "(steps=4)",
    "noise": "(samples=3)",
    "apgd_ce": "(steps=8)",
    "apgd_dlr": "(steps=8)",
    "apgd_t": "(steps=6,targets=2)",
    "fab": "(steps=5)",
    "fab_t": "(steps=5,targets=2)",
    "square": "(queries=60)",
    "cw": "(rounds=2,steps=20)",
    "sld": "(sparsity=95,steps=8)",
    "spsa": "(samples=8,steps=4)",
    "hsja": "(initial_evaluations=10,iterations=3,tries=20)",
    "fgsm_t": "",
    "pgd_t": "(steps=4,target=second)",
    "cw_t": "(rounds=2,steps=20,target=second)",
}
"""Options of a short run."""

PUBLISHED = {
    "fgsm": "",
    "pgd": "(steps=4)",
    "noise": "",
    "cw": "(rate=0.05,rounds=2,steps=20)",
    "sld": "(step=0.5,steps=8)",
    "spsa": "(samples=8,steps=3)",
    "hsja": "(initial_evaluations=10,iterations=2,tries=20)",
}
RADII = {"linf": "0.05", "l2": "0.3", "l1": "2"}
NORMS = {"sld": ["l1"], "cw": ["l2"], "hsja": ["l2"], "spsa": ["linf"]}  # of the published forms; the others have linf
UNLIMITED = ("cw", "hsja")


def every_threat() -> Iterator[str]:
    """Yield a short run of every registered attack in every norm and protocol that it has."""
    for name, entry in registry.entries("attacks").items():
        if "/" in name or SEQUENCE in entry.tags:  # of other packages; the sequences have a slow test of their own
            continue
        for norm, radius in RADII.items():
            if norm in entry.tags:
                yield f"{name}{QUICK[name]}@{norm}:{radius}"
        if entry.published:
            for norm in NORMS.get(name, ["linf"]):
                yield f"published/{name}{PUBLISHED[name]}@{norm}:{1000 if name in UNLIMITED else RADII[norm]}"


@pytest.mark.parametrize("threat", list(every_threat()))
def test_the_contract_holds_for_every_registered_attack(threat: str) -> None:
    check_attack(threat)


@pytest.mark.parametrize(
    "threat",
    [
        "sld(random_start=true,steps=5)@l1:2",
        "published/cw(confidence=10,rate=0.1,steps=10,towards_prediction=true)@l2:1000",
        "fgsm_t(exact=true,target=second)@l1:2",
        "pgd_t(exact=true,steps=5,target=next)@linf:0.05",
        "cw_t(exact=true,rounds=2,steps=20,target=second)@l2:0.3",
        "apgd_ce(eot=3,steps=5)@linf:0.05",
        "pgd(restarts=2,steps=3)@l2:0.3",
        "worst-of(fgsm@linf:0.02,noise(samples=2)@l2:0.3)",
    ],
)
def test_the_contract_holds_for_options(threat: str) -> None:
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
