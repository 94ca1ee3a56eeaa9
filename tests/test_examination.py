"""Models that hide each fault are flagged for it, with what to add; honest models are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from robustkpca.commands import cli
from robustkpca.errors import BadValue
from robustkpca.evaluation import run_matrix
from robustkpca.examination import THREATS, Examination, examine
from robustkpca.indicators import FLAGS
from robustkpca.matrix import Matrix

GOLDEN = Path(__file__).parent / "golden" / "attacks" / "cnn_state_dict.safetensors"
FAULTS = '''
import torch
from safetensors.torch import load_file
from torch import nn

class Model(nn.Module):
    preprocessing = "preprocessing(channels=1)"

    def __init__(self, body, before=lambda images: images, after=lambda logits, images: logits):
        super().__init__()
        self.body, self.before, self.after = body, before, after

    def forward(self, images):
        return self.after(self.body(self.before(images)), images)

def plain():
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    body.load_state_dict(torch.load("plain.pth", weights_only=True))
    return body

def honest():
    return Model(plain())

def linear():
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    body.load_state_dict(torch.load("linear.pth", weights_only=True))
    return Model(body)

def trained_against_attacks():
    body = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GELU(),
        nn.Flatten(), nn.Linear(512, 64), nn.GELU(), nn.Linear(64, 10),
    )
    body.load_state_dict(load_file("GOLDEN"))
    return Model(body)

def rounded():
    return Model(plain(), lambda images: (images * 8).round() / 8)

def saturated():
    return Model(plain(), after=lambda logits, images: logits * 10000)

def shifted():
    return Model(plain(), after=lambda logits, images: logits + 1000000)

def softmax():
    return Model(plain(), after=lambda logits, images: logits.softmax(1))

def holes():
    return Model(plain(), after=lambda logits, images: logits / 0)

def far_holes():
    # finite on the digits themselves
    return Model(plain(), after=lambda logits, images: logits + (images.amax((1, 2, 3), True)[:, :, 0, 0] - 0.9).sqrt() * 0)

def noisy():
    return Model(plain(), lambda images: images + 0.2 * torch.randn_like(images))

def coin():
    return Model(plain(), after=lambda logits, images: torch.where(torch.rand(len(logits), 1) < 0.3, -logits, logits))

def crowd():
    return Model(plain(), lambda images: images - 0.5 * images.mean(0, keepdim=True))

def two_faced():
    return Model(plain(), after=lambda logits, images: -logits if torch.is_grad_enabled() else logits)

class Wrong(torch.autograd.Function):
    """The right logits with a gradient that has nothing to do with them."""

    @staticmethod
    def forward(context, images):
        return images.clone()

    @staticmethod
    def backward(context, gradient):
        return torch.sin(1000 * torch.arange(gradient.numel(), dtype=gradient.dtype)).view_as(gradient)

def shattered():
    return Model(plain(), Wrong.apply)
'''.replace("GOLDEN", str(GOLDEN))

BATTERY = [threat.replace("16/255", "0.2").replace("8/255", "0.1") for threat in THREATS]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of models, and the weights of two that were trained on digits."""
    folder = tmp_path_factory.mktemp("faulty")
    (folder / "faults.py").write_text(FAULTS)
    digits = load_digits()
    images, labels = torch.tensor(digits.images / 16, dtype=torch.float32).flatten(1), torch.tensor(digits.target)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        bodies = {
            "plain": nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10)),
            "linear": nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
        }
        for name, body in bodies.items():
            optimiser = torch.optim.Adam(body.parameters(), lr=0.02)
            for _ in range(80):
                optimiser.zero_grad()
                nn.functional.cross_entropy(body(images), labels).backward()
                optimiser.step()
            torch.save(body.state_dict(), folder / f"{name}.pth")
    return folder


def examined(models: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Examination:
    monkeypatch.chdir(models)
    (found,) = examine(Matrix.of(models=[f"faults.py:{name}"], threats=BATTERY, limit=48), models / "results")
    return found


@pytest.mark.parametrize("name", ["honest", "linear", "trained_against_attacks"])
def test_an_honest_model_raises_no_flag(models: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = examined(models, monkeypatch, name)
    assert found.flags == ()
    assert (found.threats, found.samples) == (len(THREATS), 48)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rounded", {"zero gradients", "black box wins", "unbounded survivors"}),
        ("saturated", {"saturated loss", "zero gradients"}),
        ("shifted", {"coarse logits"}),
        ("softmax", {"probabilities"}),
        ("holes", {"not finite"}),
        ("far_holes", {"not finite"}),
        ("noisy", {"random output"}),
        ("coin", {"random output"}),
        ("crowd", {"context output"}),
        ("two_faced", {"context output"}),
        ("shattered", {"black box wins"}),
    ],
)
def test_a_fault_is_flagged(models: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: set[str]) -> None:
    found = examined(models, monkeypatch, name)
    assert expected <= {flag.name for flag in found.flags}
    assert all(FLAGS[flag.name] in str(flag) for flag in found.flags)


def test_a_flagged_row_is_shown_without_rank_in_a_table(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(models)
    names = "faults.py:honest faults.py:rounded"
    words = f"score {names} --threats clean pgd@linf:0.1 --limit 48 --out table -q".split()
    assert cli.main(words, standalone_mode=False) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    ranks = {cells[row][1].removeprefix("faults.py:"): cells[row] for row in (2, 3)}
    assert ranks["honest"][0] == "1"
    assert ranks["rounded"][0] == "!"
    assert float(ranks["rounded"][3].split()[0]) > float(ranks["honest"][3].split()[0])  # it would have been the first
    (note,) = [line for line in lines if line.startswith("! faults.py:rounded, without rank: zero gradients: on ")]
    assert "add square and a transfer attack" in note


def test_the_command_prints_flags_and_ends_with_one(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(models)
    names = "faults.py:honest faults.py:softmax faults.py:rounded"
    words = f"audit {names} --threats pgd(steps=3)@linf:0.1 --limit 16 --out some -q"
    assert cli.main(words.split(), standalone_mode=False) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [line[:2] for line in lines] == [
        ["faults.py:honest", "none"],
        ["faults.py:softmax", "probabilities"],
        ["faults.py:rounded", "zero"],
    ]
    assert cli.main([*words.split(), "--json"], standalone_mode=False) == 1
    found = json.loads(capsys.readouterr().out)
    assert [[flag["name"] for flag in one["flags"]] for one in found] == [[], ["probabilities"], ["zero gradients"]]
    assert found[2]["flags"][0]["advice"] == FLAGS["zero gradients"]


def test_records_are_looked_at_without_running_anything(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(models)
    run_matrix(Matrix.of(models=["faults.py:honest"], threats=["pgd(steps=2)@linf:0.1"], limit=8), "kept")
    assert cli.main(["audit", "--records", "--out", "kept"], standalone_mode=False) == 0
    assert "1 threats, 8 samples" in capsys.readouterr().out
    with pytest.raises(BadValue, match="leave MODEL and --config out"):
        cli.main(["audit", "faults.py:honest", "--records"], standalone_mode=False)
    with pytest.raises(BadValue, match="no results in nowhere"):
        cli.main(["audit", "--records", "--out", "nowhere"], standalone_mode=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax_vit_digits", "symvit_digits", "rpc_symvit_digits"])
def test_a_bundled_model_raises_no_flag(tmp_path: Path, name: str) -> None:
    (found,) = examine(Matrix.of(models=[name]), tmp_path)
    assert found.flags == ()
