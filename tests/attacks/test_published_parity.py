"""FGSM, PGD and noise against the recorded outputs of cleverhans 4, which the published evaluation called."""

from __future__ import annotations

import copy
import json
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from robustkpca.adversary import Keep, Loss, Proposals
from robustkpca.attacks.fgsm import published_fgsm
from robustkpca.attacks.noise import noise
from robustkpca.attacks.pgd import published_pgd
from robustkpca.budget import Budget, Norm
from robustkpca.models import create_model
from robustkpca.models.classifier import TorchClassifier
from robustkpca.models.loading import wrap
from robustkpca.testing import RecordedDraws

GOLDEN = Path(__file__).parent.parent / "golden" / "attacks"
CASES = json.loads((GOLDEN / "cases.json").read_text())
MODELS = ("cnn", "symvit_sym", "symvit_rpc_l0_n4", "symvit_rpc_all_n2")
NORMS = {"inf": Norm.LINF, 2: Norm.L2, 1: Norm.L1}
SYMVIT = "img_size=8,patch_size=2,in_chans=1,num_classes=10,embed_dim=24,depth=2,num_heads=3"
NAMES = {
    "symvit_sym": f"symvit_tiny({SYMVIT})",
    "symvit_rpc_l0_n4": f"rpc_symvit_tiny({SYMVIT},iterations=4,layers=0)",
    "symvit_rpc_all_n2": f"rpc_symvit_tiny({SYMVIT},iterations=2,layers=all)",
}


@cache
def classifier(name: str) -> TorchClassifier:
    if name == "cnn":
        network: nn.Module = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(512, 64),
            nn.GELU(),
            nn.Linear(64, 10),
        )
    else:
        network = create_model(NAMES[name])
    network.load_state_dict(load_file(GOLDEN / f"{name}_state_dict.safetensors"))
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    return wrap(network.eval())


@cache
def data() -> dict[str, Tensor]:
    return load_file(GOLDEN / "test_data_and_logits.safetensors")


class Towards:
    """The same model with the gradient turned round, so that an attack moves towards the labels."""

    def __init__(self, model: TorchClassifier) -> None:
        self.logits = model.logits
        self._ask = model.value_and_gradient

    def value_and_gradient(self, images: Tensor, loss: Loss, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        logits, gradient = self._ask(images, loss)
        return logits, -gradient


def last(proposals: Proposals) -> Tensor:
    """Return what an attack proposes at the end when nobody is withdrawn."""
    candidate = next(proposals)
    while True:
        try:
            candidate = proposals.send(Keep(torch.ones(len(candidate.images), dtype=torch.bool)))
        except StopIteration:
            return candidate.images


ROUNDING = 2.0**-23


def clean_loss(network: TorchClassifier, images: Tensor, labels: Tensor) -> Tensor:
    """Return ``(N, 1, 1, 1)``, the cross-entropy in float64.

    For a small loss, the gradient is a multiple of 1 - p = loss, which float32 knows up to one rounding of 1. Its relative
    error is therefore rounding / loss, and it is another one on another processor: a plain loop over the reference's
    formulas differs from the recordings in the same entries.
    """
    exact = copy.deepcopy(network.network).double()
    return torch.nn.functional.cross_entropy(exact(images.double()), labels, reduction="none").view(-1, 1, 1, 1)


def cases() -> list[Any]:
    found = []
    for model in MODELS:
        for case, entry in CASES[f"cleverhans_{model}"]["cases"].items():
            if entry.get("params", {}).get("fn") in ("fast_gradient_method", "projected_gradient_descent"):
                found.append(pytest.param(model, case, id=f"{model}-{case}"))
    return found


@pytest.mark.parametrize(("model", "case"), cases())
def test_outputs_equal_those_of_the_reference(model: str, case: str) -> None:
    entry = CASES[f"cleverhans_{model}"]["cases"][case]
    params, expected = entry["params"], load_file(GOLDEN / f"cleverhans_{model}.safetensors")
    network = classifier(model)
    images, truth = data()["x"][: len(expected[f"{case}.adv"])], data()["y"][: len(expected[f"{case}.adv"])]
    budget = Budget(NORMS[params["norm"]], Fraction(str(params["eps"])), bounded="clip_min" in params)
    labels = network.logits(images).argmax(1) if params["y"] == "pred" else truth
    attacked: Any = network
    if params.get("targeted"):
        labels, attacked = (
            expected[f"{case}.target"] if f"{case}.target" in expected else (truth + 1) % 10,
            Towards(network),
        )
    options: dict[str, Any] = {"budget": budget, "draws": RecordedDraws.play(torch.zeros(len(images), 1))}
    if params["fn"] == "fast_gradient_method":
        adversarial = last(published_fgsm(attacked, images, labels, averaged_over=len(images), **options))
    else:
        if params["rand_init"]:
            options["draws"] = RecordedDraws.play((expected[f"{case}.eta0"] / params["eps"] + 1) / 2)
        adversarial = last(
            published_pgd(
                attacked, images, labels, random_start=params["rand_init"], averaged_over=len(images), **options
            )
        )
    loss = clean_loss(network, images, labels)
    sure = (loss > 1e-5).flatten()  # else the very signs are rounding
    slack = 1e-5 + (4 * budget.length * ROUNDING / loss if budget.norm is Norm.L2 else 0)
    close = ((adversarial - expected[f"{case}.adv"]).abs() <= slack)[sure]
    assert close.double().mean().item() >= 0.999
    accuracy = (network.logits(adversarial).argmax(1) == truth).double().mean().item()
    assert accuracy == pytest.approx(entry["adv_accuracy"], abs=1e-9)


def test_noise_equals_the_reference_given_its_draws() -> None:
    expected = load_file(GOLDEN / "cleverhans_cnn.safetensors")
    images = data()["x"][: len(expected["noise.adv"])]
    draws = RecordedDraws.play((expected["noise.eta"].double() / 0.3 + 1) / 2)
    budget = Budget(Norm.LINF, Fraction("0.3"), bounded=False)
    adversarial = last(noise(classifier("cnn"), images, data()["y"], budget=budget, draws=draws))
    torch.testing.assert_close(adversarial, expected["noise.adv"], atol=1e-6, rtol=0)


@pytest.mark.parametrize("model", MODELS)
def test_clean_logits_equal_the_recorded_ones(model: str) -> None:
    expected = data()[f"logits.{model}"]
    torch.testing.assert_close(classifier(model).logits(data()["x"][: len(expected)]), expected, atol=2e-5, rtol=1e-5)
