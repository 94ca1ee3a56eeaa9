"""The attacks of torchattacks through our door. Skipped where the extra is not installed."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch
from torch import Tensor, nn

import robustkpca as rk
from robustkpca import registry
from robustkpca.attacks import torchattacks_engine
from robustkpca.attacks.engines import TORCHATTACKS
from robustkpca.errors import BadValue, Unusable
from robustkpca.evaluation import run_matrix
from robustkpca.installed import installed
from robustkpca.matrix import Matrix
from robustkpca.records import Verdict
from robustkpca.threats import ThreatModel

THERE = bool(installed("torchattacks"))
needed = pytest.mark.skipif(
    not THERE, reason="torchattacks is an extra and not installed: pip install 'robustkpca[torchattacks]'"
)
SLOW = {"JSMA", "SparseFool", "EADL1", "EADEN", "AutoAttack", "APGDT"}
SHORT = {"Square": "n_queries=20", "FAB": "steps=3", "SPSA": "nb_iter=1", "CW": "steps=5", "DeepFool": "steps=5"}
RGB = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(3))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(192, 5)
        self.layer.weight.data = torch.randn(5, 192, generator=torch.Generator().manual_seed(0))

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.layer(images.flatten(1))
        return out


def names(slow: bool) -> list[str]:
    return [name.partition("/")[2] for name in TORCHATTACKS if (name.partition("/")[2] in SLOW) is slow]


def runs(name: str) -> None:
    entry = TORCHATTACKS[f"torchattacks/{name}"]
    network = Small().train()
    labels = network(RGB).argmax(1)
    budget = "linf:0.05" if "linf" in entry.tags else "l2:0.3"
    threat = f"torchattacks/{name}({SHORT.get(name, '')})@{budget}"
    before, state = RGB.clone(), torch.get_rng_state()
    first = rk.attack(network, RGB, labels, threat)
    again = rk.attack(network, RGB, labels, threat)
    assert first.details == ("",) * 5
    assert torch.equal(first.images, again.images)
    assert torch.equal(RGB, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert network.training
    assert set(first.verdicts) <= {Verdict.SURVIVED, Verdict.BROKEN}


@needed
@pytest.mark.parametrize("name", names(slow=False))
def test_an_attack_is_judged_repeated_and_leaves_nothing_behind(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs(name)
    assert capsys.readouterr().out == ""


@needed
@pytest.mark.slow
@pytest.mark.parametrize("name", names(slow=True))
def test_a_long_attack_does_so_too(name: str) -> None:
    runs(name)


@needed
def test_every_attack_of_the_package_is_there() -> None:
    import torchattacks

    left_out = {"MultiAttack", "LGV", "VANILA"}
    assert {name.partition("/")[2] for name in TORCHATTACKS} == set(torchattacks.__all__) - left_out


@needed
def test_the_tags_say_which_attacks_take_a_radius() -> None:
    import torchattacks

    for name, entry in TORCHATTACKS.items():
        parameters = inspect.signature(getattr(torchattacks, name.partition("/")[2]).__init__).parameters
        takes = bool({"eps", "max_epsilon"} & set(parameters))
        assert takes == ("l1" not in entry.tags), name


@needed
@pytest.mark.parametrize("network", [Small(), nn.Sequential(Small(), nn.Tanh())])
def test_it_gives_the_images_of_the_package(network: nn.Module) -> None:
    """Attacks without chance, called by hand on the network itself."""
    import torchattacks

    labels = network(RGB).argmax(1)
    cases = {
        "FGSM": torchattacks.FGSM(network, eps=0.01),
        "PGD(random_start=false,steps=3,alpha=0.004)": torchattacks.PGD(
            network, eps=0.01, alpha=0.004, steps=3, random_start=False
        ),
        "MIFGSM(steps=4,alpha=0.004)": torchattacks.MIFGSM(network, eps=0.01, alpha=0.004, steps=4),
    }
    for text, attack in cases.items():
        found = rk.attack(network, RGB, labels, f"torchattacks/{text}@linf:0.01")
        torch.testing.assert_close(found.images, attack(RGB, labels), atol=1e-6, rtol=0)


@needed
def test_fgsm_reaches_the_closed_form() -> None:
    """On logits (w x, 0) the margin falls by the radius times the sum of |w|."""
    weight = torch.linspace(-1, 1, 12)

    def model(images: Tensor) -> Tensor:
        return torch.stack([images.flatten(1) @ weight + 2, torch.zeros(len(images))], dim=1)

    images = torch.full((3, 3, 2, 2), 0.5)
    result = rk.attack(model, images, torch.zeros(3, dtype=torch.long), "torchattacks/FGSM@linf:1/10")
    expected = images.flatten(1) @ weight - 0.1 * weight.abs().sum()
    torch.testing.assert_close(result.images.flatten(1) @ weight, expected)


@needed
def test_what_knows_no_radius_is_held_to_the_budget() -> None:
    network = Small()
    labels = network(RGB).argmax(1)
    far, near = (rk.attack(network, RGB, labels, f"torchattacks/DeepFool@l2:{radius}") for radius in ("5", "0.001"))
    assert set(far.verdicts) == {Verdict.BROKEN}
    assert set(near.verdicts) == {Verdict.SURVIVED}
    assert torch.equal(near.images, RGB)
    limit = far.distances.median()
    middle = rk.attack(network, RGB, labels, f"torchattacks/DeepFool@l2:{float(limit):.6f}")
    assert [v is Verdict.BROKEN for v in middle.verdicts] == (far.distances <= limit + 1e-6).tolist()


@needed
def test_wrong_options_are_refused() -> None:
    with pytest.raises(
        LookupError, match=r"no argument of attack torchattacks/PGD named 'stepz'\. Did you mean 'steps'"
    ):
        ThreatModel.parse("torchattacks/PGD(stepz=3)@linf:0.1")
    with pytest.raises(BadValue, match="supports linf, not l2"):
        ThreatModel.parse("torchattacks/PGD@l2:0.1")
    with pytest.raises(BadValue, match="torchattacks/Pixle does not take"):
        run_matrix(Matrix.of(threats=["torchattacks/Pixle(restarts=-1)@l2:1"], models=["no such model"]), "nowhere")


@needed
def test_the_canonical_text_has_its_options_and_no_more() -> None:
    one = ThreatModel.parse("torchattacks/APGD(steps=3)@l2:0.5")
    assert str(one) == "torchattacks/APGD(eot_iter=1,loss=ce,n_restarts=1,rho=0.75,steps=3)@l2:0.5"
    assert one.label == "torchattacks/APGD(steps=3)@l2:0.5"


def test_without_the_package_a_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    torchattacks_engine.adapted.cache_clear()
    monkeypatch.setattr(torchattacks_engine, "installed", lambda package: "")
    monkeypatch.setitem(sys.modules, "torchattacks", None)
    with pytest.raises(Unusable, match=r"torchattacks is not installed; .* pip install 'robustkpca\[torchattacks\]'"):
        ThreatModel.parse("torchattacks/PGD@linf:0.1")


def test_its_names_are_listed_without_it() -> None:
    assert "torchattacks/PGD" in registry.entries("attacks")
    assert not hasattr(torchattacks_engine, "NoSuchAttack")
