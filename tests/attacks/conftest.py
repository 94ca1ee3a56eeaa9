"""The adversarially trained network of the recorded AutoAttack runs, and what the tests of several attacks need."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from robustkpca.adversary import Candidate, Keep, Proposals
from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.judge import judge_attack
from robustkpca.judgement import Judgement
from robustkpca.models.classifier import TorchClassifier
from robustkpca.models.loading import wrap
from robustkpca.records import Verdict

GOLDEN = Path(__file__).parent.parent / "golden" / "attacks"


@dataclass(frozen=True)
class Robust:
    """A network with real robustness and 64 images."""

    model: TorchClassifier
    images: Tensor
    labels: Tensor

    def survivors(
        self, attack: Callable[..., Any], budget: Budget, *, among: Tensor, draws: Draws | None = None, **options: Any
    ) -> Tensor:
        """Return ``(64,)``, bool, who of those among survives the attack; the streams belong to the whole 64."""
        rows = among.nonzero().squeeze(1)
        draws = streams(64) if draws is None else draws
        result = judge_attack(
            self.model, attack, self.images[rows], self.labels[rows], budget=budget, draws=draws.narrow(rows), **options
        )
        assert not any(result.details), set(result.details)
        return torch.zeros(64, dtype=torch.bool).index_fill(0, rows[survived(result)], True)

    def correct(self) -> Tensor:
        """Return ``(64,)``, bool, who is classified correctly."""
        return self.model.logits(self.images).argmax(1) == self.labels


@dataclass(frozen=True)
class Recorded:
    """One run of the official AutoAttack."""

    budget: Budget
    tensors: dict[str, Tensor]
    calls: list[dict[str, Any]]

    def standing_after(self, attack: str) -> Tensor:
        """Return ``(64,)``, bool, who stood after an attack of the sequence; ``clean`` is its beginning."""
        return self.tensors["flags.clean" if attack == "clean" else f"flags.after_{attack}"].bool()

    def standing_alone(self, attack: str) -> Tensor:
        """Return ``(64,)``, bool, who stood after the attack alone."""
        return self.tensors[f"individual_flags.{attack}"].bool()

    def noise(self, attack: str) -> list[Tensor]:
        """Return the draws of an APGD, one ``(64, C, H, W)`` for each time that a sample was attacked by it."""
        found: list[Tensor] = []
        times = [0] * 64
        for call in self.calls:
            if call["attack"] != attack:
                continue
            noise = self.tensors[f"apgd_call{call['call']:03d}.noise"]
            for row, sample in enumerate(call["sample_ids"]):
                if times[sample] == len(found):
                    found.append(torch.zeros(64, *noise.shape[1:]))
                found[times[sample]][sample] = noise[row]
                times[sample] += 1
        return found


def survived(result: Judgement) -> Tensor:
    return torch.tensor([verdict is Verdict.SURVIVED for verdict in result.verdicts])


def streams(count: int, seed: int = 0) -> Draws:
    return Draws.of([str(index) for index in range(count)], seed=seed, threat="test")


def candidates(proposals: Proposals, count: int) -> list[Candidate]:
    """Return everything that an attack proposes when nobody is withdrawn."""
    keep = Keep(torch.ones(count, dtype=torch.bool))
    found = [next(proposals)]
    while True:
        try:
            found.append(proposals.send(keep))
        except StopIteration:
            return found


def closest(
    attack: Callable[..., Proposals],
    model: TorchClassifier,
    images: Tensor,
    labels: Tensor,
    norm: Norm,
    *,
    draws: Draws | None = None,
    **options: Any,
) -> Tensor:
    """Return ``(N,)``, the size of the smallest harmful change that an attack proposes when everything is allowed."""
    size = images[0].numel()
    budget = Budget(norm, Fraction(1 if norm is Norm.LINF else size))
    draws = streams(len(images)) if draws is None else draws
    best = torch.full((len(images),), torch.inf)
    for candidate in candidates(attack(model, images, labels, budget=budget, draws=draws, **options), len(images)):
        logits = model.logits(candidate.images)
        assert candidate.logits is None or torch.allclose(candidate.logits, logits, atol=1e-5)
        distances = budget.distance(candidate.images, images)
        best = torch.where(logits.argmax(1) != labels, torch.minimum(best, distances), best)
    return best


@pytest.fixture(scope="session")
def robust() -> Robust:
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GELU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.GELU(),
        nn.Linear(64, 10),
    )
    network.load_state_dict(load_file(GOLDEN / "cnn_state_dict.safetensors"))
    data = load_file(GOLDEN / "test_data_and_logits.safetensors")
    return Robust(wrap(network.eval().requires_grad_(False), batch_size=64), data["x"][:64], data["y"][:64])


@pytest.fixture(scope="session", params=["Linf", "L2"])
def recorded(request: pytest.FixtureRequest) -> Recorded:
    case = json.loads((GOLDEN / "autoattack_cases.json").read_text())[request.param]
    budget = Budget(Norm(request.param.lower()), Fraction(str(case["eps"])))
    return Recorded(budget, load_file(GOLDEN / f"autoattack_{request.param}.safetensors"), case["apgd_calls"])


@pytest.fixture(name="streams", scope="session")
def _streams() -> Callable[..., Draws]:
    return streams


@pytest.fixture(name="candidates", scope="session")
def _candidates() -> Callable[..., list[Candidate]]:
    return candidates


@pytest.fixture(name="closest", scope="session")
def _closest() -> Callable[..., Tensor]:
    return closest
