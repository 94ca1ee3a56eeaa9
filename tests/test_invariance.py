"""What must not matter: company, order, shards, memory layout, precision of the input; and what must be left untouched."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pandas
import pytest
import torch
from torch import Tensor, nn

import robustkpca as rk
from robustkpca.adversary import Candidate
from robustkpca.budget import Budget, Norm
from robustkpca.calls import Call
from robustkpca.data.digits import digits
from robustkpca.data.selection import selection
from robustkpca.errors import BadValue
from robustkpca.evaluation import AttackResult
from robustkpca.models.classifier import TorchClassifier
from robustkpca.preprocessing import Preprocessing
from robustkpca.records import Verdict
from robustkpca.registry import Entry
from robustkpca.runner import plan, run
from robustkpca.store import ResultStore
from robustkpca.tasks.classification import CLASSIFICATION
from robustkpca.threats import ThreatModel

MODEL = "symvit_digits"
THREATS = (
    "clean",
    "pgd(steps=5)@linf:0.05",
    "pgd(steps=5)@l2:0.25",
    "fgsm@linf:0.05",
    "noise(samples=2)@linf:0.1",
    "published/pgd(steps=3)@linf:0.1",
)
COUNT = 100
S, B, M = Verdict.SURVIVED, Verdict.BROKEN, Verdict.MISTAKEN


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> TorchClassifier:
    return rk.load_model(MODEL)


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor, list[str]]:
    """Return digits with their labels and ids."""
    data = digits()
    positions = selection(data.ids, COUNT)
    images = data.read(positions, Preprocessing(channels=1))
    return images, torch.tensor([data.labels[p] for p in positions]), [data.ids[p] for p in positions]


class Small(nn.Module):
    """A convolution with batch norm and dropout, of either orientation, in whatever dtype."""

    def __init__(self, classes: int = 4, channels: int = 3, size: tuple[int, int] = (8, 8)) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.features = nn.Sequential(
                nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.Dropout(0.5)
            )
            self.head = nn.Linear(8 * size[0] * size[1], classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images).flatten(1))


def pictures(count: int = 24, channels: int = 3, size: tuple[int, int] = (8, 8)) -> Tensor:
    return torch.rand(count, channels, *size, generator=torch.Generator().manual_seed(0))


def named(network: nn.Module, images: Tensor) -> Tensor:
    """Return the network's own predictions in eval mode, so that everything is classified correctly."""
    modes = [module.training for module in network.modules()]
    with torch.no_grad():
        parameter = next(network.parameters())
        labels = network.eval()(images.to(parameter.dtype)).argmax(1)
    for module, mode in zip(network.modules(), modes, strict=True):
        module.training = mode
    return labels


def same(first: AttackResult, second: AttackResult, rows: Tensor | slice = slice(None)) -> None:
    """Hold that ``second`` is ``first`` at some rows, to the last bit."""
    index = torch.arange(len(first.verdicts))[rows]
    assert second.verdicts == tuple(first.verdicts[i] for i in index.tolist())
    for name in ("images", "predictions", "clean_predictions", "distances", "forwards", "backwards"):
        assert torch.equal(getattr(second, name), getattr(first, name)[index]), name


# Company and order


@pytest.fixture(scope="module")
def reference() -> pandas.DataFrame:
    return timeless(rk.score(MODEL, THREATS, limit=COUNT, batch_size=32, shard_size=64))


def timeless(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Leave out the wall time, the only column that is allowed to differ."""
    return frame.drop(columns="seconds")


def test_the_reference_holds_all_kinds_of_verdicts(reference: pandas.DataFrame) -> None:
    assert len(reference) == len(THREATS) * COUNT
    assert {"survived", "broken", "mistaken"} == set(reference["verdict"])


@pytest.mark.parametrize(("batch_size", "shard_size"), [(1, 64), (7, 1000), (64, 5), (64, 1000)])
def test_records_do_not_depend_on_batch_or_shard_size(
    reference: pandas.DataFrame, batch_size: int, shard_size: int
) -> None:
    frame = rk.score(MODEL, THREATS, limit=COUNT, batch_size=batch_size, shard_size=shard_size)
    pandas.testing.assert_frame_equal(timeless(frame), reference, check_exact=True, check_categorical=False)


def test_records_do_not_depend_on_the_order_of_samples(
    reference: pandas.DataFrame, model: TorchClassifier, tmp_path: Path
) -> None:
    data, store = digits(), ResultStore(tmp_path)
    positions = selection(data.ids, COUNT)
    random.Random(3).shuffle(positions)
    threats = [ThreatModel.parse(text) for text in reversed(THREATS)]
    groups = plan(store, model.spec.id, threats, data, positions, seed=0, shard_size=33)
    run(CLASSIFICATION, model, data, groups, store, planned=COUNT)
    pandas.testing.assert_frame_equal(timeless(store.frame()), reference, check_exact=True, check_categorical=False)


@pytest.mark.parametrize("threat", THREATS[1:])
def test_an_attack_on_some_images_equals_that_on_all(
    threat: str, model: TorchClassifier, batch: tuple[Tensor, Tensor, list[str]]
) -> None:
    images, labels, ids = (part[:40] for part in batch)
    whole = rk.attack(model, images, labels, threat, sample_ids=ids)
    for rows in (torch.tensor([17]), torch.arange(0, 40, 3), torch.arange(39, -1, -1)):
        part = rk.attack(
            model, images[rows], labels[rows], threat, sample_ids=[ids[row] for row in rows.tolist()], batch_size=8
        )
        same(whole, part, rows)


def test_another_seed_or_sample_id_is_another_start(
    model: TorchClassifier, batch: tuple[Tensor, Tensor, list[str]]
) -> None:
    images, labels, ids = (part[:8] for part in batch)
    made = [
        rk.attack(model, images, labels, "noise@linf:0.05", seed=seed, sample_ids=names).images
        for seed, names in ((0, ids), (0, ids), (1, ids), (0, ids[::-1]))
    ]
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert not torch.equal(made[0], made[3])


# What is left untouched


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], ThreatModel]:
    """Return what makes a threat whose attack raises after its first candidate."""

    def threat(error: BaseException) -> ThreatModel:
        def attack(model: Any, images: Tensor, labels: Tensor, *, budget: Budget, draws: Any) -> Any:
            yield Candidate(images)
            if len(images) > 2:  # not in the rehearsal
                torch.rand(3)
                raise error

        monkeypatch.setitem(sys.modules, "raising", SimpleNamespace(attack=attack))
        return ThreatModel(Call("raising"), Budget(Norm.LINF, Fraction(1, 10)), entry=Entry("raising:attack"))

    return threat


def mixed() -> Small:
    """Return a network whose modules are in different modes and whose weights carry different flags and gradients."""
    network = Small().train()
    network.features[1].eval()
    network.features[3].eval()
    network.head.weight.requires_grad_(False)
    network.features[0].weight.grad = torch.ones_like(network.features[0].weight)
    return network


def state_of(network: nn.Module) -> tuple[Any, ...]:
    return (
        [module.training for module in network.modules()],
        {name: value.clone() for name, value in network.state_dict().items()},
        {name: (p.requires_grad, None if p.grad is None else p.grad.clone()) for name, p in network.named_parameters()},
        torch.get_rng_state(),
        random.getstate(),
        [str(part) for part in numpy.random.get_state()],
    )


def hold_equal(first: Any, second: Any) -> None:
    if isinstance(first, Tensor):
        assert torch.equal(first, second)
    elif isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            hold_equal(first[key], second[key])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for a, b in zip(first, second, strict=True):
            hold_equal(a, b)
    else:
        assert first == second


def test_model_and_generators_are_untouched() -> None:
    network, images = mixed(), pictures()
    labels, kept = named(network, images), images.clone()
    before = state_of(network)
    result = rk.attack(network, images, labels, "pgd(steps=3)@linf:0.2")
    hold_equal(state_of(network), before)
    assert torch.equal(images, kept)
    assert B in result.verdicts


@pytest.mark.parametrize("error", [RuntimeError("broken attack"), BadValue("wrong option"), KeyboardInterrupt()])
def test_model_and_generators_are_untouched_when_an_attack_raises(
    error: BaseException, raising: Callable[[BaseException], ThreatModel]
) -> None:
    network, images = mixed(), pictures()
    labels, threat = named(network, images), raising(error)
    before = state_of(network)
    if isinstance(error, Exception):
        result = rk.attack(network, images, labels, threat)
        assert set(result.verdicts) == {Verdict.FAILED}
        assert str(error) in result.details[0]
    else:
        with pytest.raises(type(error)):
            rk.attack(network, images, labels, threat)
    hold_equal(state_of(network), before)


def test_generators_are_untouched_by_a_whole_run() -> None:
    before = state_of(nn.Identity())
    rk.score(MODEL, ["noise@linf:0.05"], limit=8)
    hold_equal(state_of(nn.Identity()), before)


class Drawing(nn.Module):
    """Logits that do not depend on draws, from a network that draws from every global generator."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        torch.rand(1), random.random(), numpy.random.rand()
        return self.network(images)


def test_a_model_that_draws_leaves_the_generators_and_is_flagged() -> None:
    network, images = Drawing(Small()), pictures()
    before = state_of(network)
    result = rk.attack(network, images, named(network.network, images), "fgsm@linf:0.1")
    hold_equal(state_of(network), before)
    assert "random output" in result.flags[0]


def test_a_network_in_train_mode_is_judged_in_eval_mode() -> None:
    """Batch norm in train mode would make one image's verdict depend on the others."""
    images = pictures()
    results = []
    for mode in (True, False):
        network = Small().train(mode)
        results.append(rk.attack(network, images, named(network, images), "pgd(steps=3)@linf:0.2"))
        assert network.training is mode
    same(results[0], results[1])


# Kinds of input


def test_the_memory_layout_does_not_matter() -> None:
    network, images = Small().eval(), pictures()
    labels = named(network, images)
    expected = rk.attack(network, images, labels, "pgd(steps=3)@linf:0.2")
    layouts = {
        "channels last": images.to(memory_format=torch.channels_last),
        "permuted": images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
        "strided": images.repeat_interleave(2, dim=3)[..., ::2],
        "needs a gradient": images.clone().requires_grad_(True),
    }
    for name, other in layouts.items():
        before = other.detach().clone(memory_format=torch.preserve_format)
        same(expected, rk.attack(network, other, labels, "pgd(steps=3)@linf:0.2"))
        assert torch.equal(other.detach(), before), name
        assert other.stride() == before.stride() or name == "strided"


def test_expanded_and_reordered_images_equal_their_copies() -> None:
    network, images = Small().eval(), pictures()
    for view in (images[:1].expand(6, -1, -1, -1), images[:, [2, 1, 0]], images[:, :1].expand(-1, 3, -1, -1)):
        labels = named(network, view)
        expected = rk.attack(network, view.clone(memory_format=torch.contiguous_format), labels, "fgsm@linf:0.1")
        same(expected, rk.attack(network, view, labels, "fgsm@linf:0.1"))


def test_uint8_images_are_those_divided_by_255() -> None:
    network, images = Small().eval(), (pictures() * 255).round().to(torch.uint8)
    labels = named(network, images / 255)
    expected = rk.attack(network, images / 255, labels, "pgd(steps=3)@linf:8/255")
    result = rk.attack(network, images, labels, "pgd(steps=3)@linf:8/255")
    same(expected, result)
    assert images.dtype == torch.uint8


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("budget", ["linf:8/255", "l2:0.5"])
def test_the_budget_holds_in_every_precision(dtype: torch.dtype, budget: str) -> None:
    network, images = Small().eval().to(dtype), pictures()
    labels = named(network, images)
    for given in (images, images.to(dtype)):
        result = rk.attack(network, given, labels, f"pgd(steps=5)@{budget}")
        assert result.images.dtype == torch.float32
        change = (result.images.double() - given.double()).flatten(1)
        sizes = change.abs().amax(1) if budget.startswith("linf") else change.norm(dim=1)
        radius = Budget.parse(budget).length
        assert sizes.max().item() <= radius + 1e-6
        assert result.distances.max().item() == pytest.approx(sizes.max().item(), abs=1e-6)
        assert not set(result.verdicts) & {Verdict.INVALID, Verdict.FAILED}
    assert next(network.parameters()).dtype == dtype


def test_records_name_the_precision(tmp_path: Path) -> None:
    for dtype in ("float32", "bfloat16"):
        rk.score([{"name": MODEL, "dtype": dtype}], "clean", limit=8, out=tmp_path)
    headers = ResultStore(tmp_path).headers()
    assert sorted(header["dtype"] for header in headers) == ["bfloat16", "float32"]
    assert rk.read(tmp_path)["model"].nunique() == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.uint8])
def test_whole_labels_of_any_dtype_are_accepted(dtype: torch.dtype) -> None:
    network, images = Small().eval(), pictures(5)
    labels = named(network, images)
    same(
        rk.attack(network, images, labels, "fgsm@linf:0.1"),
        rk.attack(network, images, labels.to(dtype), "fgsm@linf:0.1"),
    )


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (torch.tensor([0.5, 1.0, 2.0]), "labels are float32"),
        (torch.eye(4)[:3], "one-hot"),
        (torch.tensor([1, 2, 4]), "label 4 out of range 0..3"),
        (torch.tensor([1, 2, -1]), "label -1 out of range"),
        (torch.tensor([1, 2]), "expected one class index for each of 3 images"),
    ],
)
def test_unusable_labels_are_named(labels: Tensor, said: str) -> None:
    with pytest.raises(BadValue, match=said):
        rk.attack(Small().eval(), pictures(3), labels, "fgsm@linf:0.1")


def test_what_normalising_and_undoing_it_leaves_is_accepted() -> None:
    images = pictures(3)
    images[0, 0, 0, 0], images[1, 0, 0, 0] = -2.98e-8, 1 + 1e-7
    network = Small().eval()
    result = rk.attack(network, images, named(network, images), "fgsm@linf:0.1")
    assert result.images.min() >= 0
    assert result.images.max() <= 1
    assert images.min() == torch.tensor(-2.98e-8)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ((pictures(3) - 0.45) / 0.22, "Already normalised"),
        (pictures(3) * 255, "divide by 255"),
        (pictures(3)[:0], "expected at least one image"),
        (pictures(3)[0], "add the batch dimension"),
        (pictures(3).permute(0, 2, 3, 1), "channels last"),
        (pictures(3).log(), "Already normalised|Scale them"),
        (torch.full((3, 3, 8, 8), torch.nan), "NaN"),
    ],
)
def test_unusable_images_are_named(images: Tensor, said: str) -> None:
    labels = torch.zeros(len(images), dtype=torch.int64)
    with pytest.raises(BadValue, match=said):
        rk.attack(Small().eval(), images, labels, "pgd@linf:8/255")


def test_repeated_sample_ids_are_refused() -> None:
    with pytest.raises(BadValue, match="sample_ids"):
        rk.attack(Small().eval(), pictures(2), torch.zeros(2), "fgsm@linf:0.1", sample_ids=["a", "a"])


@pytest.mark.parametrize("threat", ["pgd(steps=3)@linf:0.2", "pgd(steps=3)@l2:1", "fgsm@l1:9", "noise@l1:3"])
def test_two_classes_and_images_that_are_not_square(threat: str) -> None:
    network, images = Small(classes=2, channels=1, size=(5, 9)).eval(), pictures(11, 1, (5, 9))
    result = rk.attack(network, images, named(network, images), threat)
    assert result.images.shape == images.shape
    assert set(result.verdicts) <= {S, B}
    assert Budget.parse(threat.partition("@")[2]).allows(result.images, images).all()


@pytest.mark.parametrize("threat", ["pgd@linf:0.2", "fgsm@l2:1", "noise@linf:0.5"])
def test_where_all_labels_are_wrong_nothing_is_attacked(threat: str) -> None:
    network, images = Small().eval(), pictures(9)
    result = rk.attack(network, images, (named(network, images) + 1) % 4, threat)
    assert set(result.verdicts) == {M}
    assert result.robust_accuracy == 0
    assert numpy.isnan(result.success_rate)
    assert torch.equal(result.images, images)
    assert result.forwards.tolist() == [1] * 9
    assert result.backwards.tolist() == [0] * 9


def test_of_tied_classes_the_first_is_predicted_whatever_the_company() -> None:
    def tied(images: Tensor) -> Tensor:
        mean = images.mean((1, 2, 3))
        return torch.stack([-mean, mean, mean], dim=1)

    network = nn.Module()
    network.forward = tied  # type: ignore[method-assign]
    images = pictures(10) + 0.01
    for label, verdict in ((1, S), (2, M)):
        labels = torch.full((10,), label)
        whole = rk.attack(network, images.clamp(0, 1), labels, "pgd(steps=2)@linf:0.01")
        assert set(whole.verdicts) == {verdict}
        assert whole.clean_predictions.tolist() == [1] * 10
        alone = rk.attack(network, images[3:4].clamp(0, 1), labels[3:4], "pgd(steps=2)@linf:0.01", sample_ids=["3"])
        same(whole, alone, torch.tensor([3]))


# Models that mask


class Scaled(nn.Module):
    """Another network's logits, multiplied and shifted."""

    def __init__(self, network: nn.Module, factor: float = 1.0, shift: float = 0.0) -> None:
        super().__init__()
        self.network, self.factor, self.shift = network, factor, shift

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images) * self.factor + self.shift


def scored(network: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[pandas.DataFrame, str]:
    """Score a network made in a test under PGD; return the records and the table."""
    path = tmp_path / "net.py"
    path.write_text("import made\ndef build():\n    return made.network\n")
    network.preprocessing = "channels=1,resize=none,crop=none"  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "made", SimpleNamespace(network=network))
    frame = rk.score(f"{path}:build", "pgd(steps=5)@linf:0.05", limit=40)
    cell = rk.leaderboard(frame)[0].rows[0].cells[0]
    return frame, "; ".join(cell.flags)


def test_a_saturated_loss_is_flagged(model: TorchClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits times 1e4 leave no gradient; the number that improves for it must not stand without a flag."""
    frame, flags = scored(Scaled(model.network, factor=1e4), tmp_path, monkeypatch)
    assert (frame["zero_gradients"] > 0).mean() > 0.5
    assert "zero gradients" in flags


def test_logits_that_float32_rounds_are_flagged(
    model: TorchClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, flags = scored(Scaled(model.network, shift=1e6), tmp_path, monkeypatch)
    assert "few differences" in flags


def test_an_ordinary_model_is_not_flagged(
    model: TorchClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, flags = scored(Scaled(model.network), tmp_path, monkeypatch)
    assert flags == ""
    assert (frame["zero_gradients"] == 0).all()


class Coin(nn.Module):
    """Predicts class 0, and now and then another, whatever the image."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> Tensor:
        heads = (torch.rand(len(images), 1) < 0.99).float()
        return torch.cat([3 * heads, 3 - 3 * heads], dim=1) + 0 * images.flatten(1).sum(1, keepdim=True)


def test_a_model_that_tosses_coins_is_flagged_every_time() -> None:
    """Two passes over eight images agree by luck more often than not; that it draws is seen by its generator."""
    images, labels = pictures(8), torch.zeros(8)
    for _ in range(5):
        assert "random output" in rk.attack(Coin(), images, labels, "fgsm@linf:1e-6").flags[0]


def test_a_coin_is_flagged_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Digits(Coin):
        def forward(self, images: Tensor) -> Tensor:
            return nn.functional.pad(super().forward(images), (0, 8))

    frame, flags = scored(Digits(), tmp_path, monkeypatch)
    assert "random output" in flags
    assert frame["flags"].str.contains("random output").all()
