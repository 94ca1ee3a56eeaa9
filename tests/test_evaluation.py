"""What `rk.attack` and `rk.score` answer where the answer is known: closed forms, denominators, a second look."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy
import pandas
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import robustkpca as rk
from robustkpca import contestants, evaluation
from robustkpca.budget import Budget, Norm
from robustkpca.data.digits import digits
from robustkpca.errors import BadValue, Unusable, UserError
from robustkpca.evaluation import AttackResult
from robustkpca.matrix import Matrix, ModelChoice
from robustkpca.preprocessing import Preprocessing
from robustkpca.progress import Reporter
from robustkpca.records import Verdict

S, B, M = Verdict.SURVIVED, Verdict.BROKEN, Verdict.MISTAKEN
RADII = ("0.005", "2/255", "0.01", "0.03", "8/255", "0.06")
"""In L-infinity; those in L2 are four times as large, since the images have 16 pixels."""


class Linear(nn.Module):
    """Logits ``(w . x + b, 0)``."""

    def __init__(self, weight: Tensor, bias: float) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), bias

    def forward(self, images: Tensor) -> Tensor:
        margin = images.flatten(1) @ self.weight + self.bias
        return torch.stack([margin, torch.zeros_like(margin)], dim=1)


def linear(images: Tensor) -> tuple[Linear, Tensor, Tensor]:
    """Return a linear model, the labels it gives, and how far each image is from losing its label."""
    weight = torch.randn(16, generator=torch.Generator().manual_seed(5))
    network = Linear(weight, -0.5 * float(weight.sum()))
    margins = (images.flatten(1) @ weight + network.bias).detach()
    return network, (margins < 0).long(), margins.abs()


def drop(weight: Tensor, images: Tensor, labels: Tensor, norm: Norm, radius: float) -> Tensor:
    """Return by how much a change within the radius and [0, 1] can lower each margin at most.

    Every pixel moves towards the other class. In L-infinity it moves by the radius, or by the room it has. In L2 it moves
    by ``t |w|``, or by the room it has, with the ``t`` that uses up the radius; t is found by bisection in float64.
    """
    w, x = weight.detach().double(), images.flatten(1).double()
    downwards = (w > 0) ^ (labels == 1).unsqueeze(1)
    room = torch.where(downwards, x, 1 - x)
    if norm is Norm.LINF:
        return (room.clamp_max(radius) * w.abs()).sum(1)
    low, high = torch.zeros(len(x), 1, dtype=torch.float64), torch.full((len(x), 1), 1e3, dtype=torch.float64)
    for _ in range(100):
        middle = (low + high) / 2
        inside = torch.minimum(room, middle * w.abs()).norm(dim=1, keepdim=True) <= radius
        low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
    return (torch.minimum(room, low * w.abs()) * w.abs()).sum(1)


def of_text(norm: str, radius: str) -> tuple[str, float]:
    number = Fraction(radius) * (4 if norm == "l2" else 1)
    return f"{norm}:{number}", float(number)


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("attack", ["pgd", "fgsm"])
def test_verdicts_equal_the_closed_form_inside_the_box(attack: str, norm: str, radius: str) -> None:
    """Grey images have room on all sides: the margin falls by the radius times the dual norm of the weights."""
    images = 0.5 + 0.2 * (torch.rand(80, 1, 4, 4, generator=torch.Generator().manual_seed(0)) - 0.5)
    network, labels, margins = linear(images)
    text, length = of_text(norm, radius)
    fall = length * float(network.weight.detach().norm(p=1 if norm == "linf" else 2))
    result = rk.attack(network, images, labels, f"{attack}@{text}")
    for verdict, margin in zip(result.verdicts, margins.tolist(), strict=True):
        if abs(margin - fall) > 1e-3 * fall:
            assert verdict is (B if margin < fall else S)
    assert abs(result.verdicts.count(B) - int((margins < fall).sum())) <= 1


def test_the_closed_form_is_tried_on_both_sides() -> None:
    images = 0.5 + 0.2 * (torch.rand(80, 1, 4, 4, generator=torch.Generator().manual_seed(0)) - 0.5)
    network, labels, _ = linear(images)
    shares = [rk.attack(network, images, labels, f"fgsm@linf:{radius}").robust_accuracy for radius in RADII]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.7
    assert shares[-1] < 0.3
    assert 0 < labels.double().mean() < 1


@pytest.mark.parametrize("radius", ["0.02", "8/255", "0.1", "0.2"])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_verdicts_equal_the_closed_form_where_the_box_is_in_the_way(norm: str, radius: str) -> None:
    """A third of the pixels is black or white already and can move one way only."""
    generator = torch.Generator().manual_seed(1)
    images = (1.6 * torch.rand(80, 1, 4, 4, generator=generator) - 0.3).clamp(0, 1)
    network, labels, margins = linear(images)
    text, length = of_text(norm, radius)
    fall = drop(network.weight, images, labels, Norm(norm), length)
    free = length * float(network.weight.detach().norm(p=1 if norm == "linf" else 2))
    assert (fall < 0.99 * free).double().mean() > 0.8, "the box must be in the way"
    result = rk.attack(network, images, labels, f"pgd(steps=80)@{text}")
    for verdict, margin, most in zip(result.verdicts, margins.tolist(), fall.tolist(), strict=True):
        if abs(margin - most) > 1e-2 * most:
            assert verdict is (B if margin < most else S)
    assert abs(result.verdicts.count(B) - int((margins < fall).sum())) <= 1
    assert Budget.parse(text).allows(result.images, images).all()


# Denominators


def sixteen() -> tuple[Linear, Tensor, Tensor]:
    """Return a threshold at one half, and 16 images: 2 on the wrong side, 7 near it, 7 far from it."""
    values = torch.tensor([0.3, 0.45, *[0.52, 0.53, 0.54, 0.55, 0.56, 0.57, 0.58], *[0.7] * 7])
    images = values.view(-1, 1, 1, 1).expand(-1, 1, 4, 4)
    return Linear(torch.full((16,), 1 / 16), -0.5), images, torch.zeros(16, dtype=torch.int64)


def test_clean_mistakes_count_for_robust_accuracy_and_not_for_the_success_rate() -> None:
    network, images, labels = sixteen()
    result = rk.attack(network, images, labels, "pgd@linf:0.1")
    assert result.verdicts == (M,) * 2 + (B,) * 7 + (S,) * 7
    assert result.robust_accuracy == 7 / 16
    assert result.success_rate == 7 / 14
    assert result.clean_predictions.tolist() == [1] * 2 + [0] * 14
    assert result.predictions.tolist() == [1] * 9 + [0] * 7
    assert result.distances[:2].tolist() == [0, 0]
    assert (result.distances[2:] > 0).all()


@pytest.mark.parametrize("blocking", [Verdict.INVALID, Verdict.FAILED])
def test_what_could_not_be_judged_leaves_neither_number(blocking: Verdict) -> None:
    verdicts = (S, B, M, blocking)
    empty = torch.zeros(4)
    result = AttackResult(verdicts, empty, empty, empty, empty, empty, empty, ("",) * 4)
    assert math.isnan(result.robust_accuracy)
    assert math.isnan(result.success_rate)
    assert repr(result) == f"AttackResult(1 mistaken, 1 survived, 1 broken, 1 {blocking.value})"


def test_grey_images_do_not_spread_over_the_channels_of_a_normalising_model() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    model.preprocessing = "mean=[0.5,0.5,0.5],std=[0.5,0.5,0.5]"  # type: ignore[assignment]
    with pytest.raises(Unusable, match="normalises 3 channels, the images are"):
        rk.attack(model, torch.rand(2, 1, 4, 4), torch.zeros(2), "fgsm@linf:0.1")


def test_a_network_in_memory_is_no_name() -> None:
    with pytest.raises(BadValue, match="got a Linear as a model"):
        rk.score([nn.Linear(2, 2)], "clean")  # type: ignore[list-item]


def test_whoever_is_broken_costs_nothing_more() -> None:
    network, images, labels = sixteen()
    result = rk.attack(network, images, labels, "pgd(steps=20)@linf:0.1")
    assert result.forwards[:2].tolist() == [1, 1]
    assert result.backwards[:2].tolist() == [0, 0]
    assert (result.backwards[2:9] < 20).all()
    assert result.forwards[9:].tolist() == [22] * 7  # clean, 20 steps, the last image
    assert result.backwards[9:].tolist() == [20] * 7


def test_the_table_has_the_same_denominator(tmp_path: Path) -> None:
    _, images, labels = sixteen()
    numpy.savez(tmp_path / "sixteen.npz", images=images.numpy(), labels=labels.numpy())
    frame = rk.score(net(tmp_path), ["clean", "pgd@linf:0.1"], tmp_path / "sixteen.npz", classes=2)
    clean, pgd = rk.leaderboard(frame)[0].rows[0].cells
    assert (clean.value, clean.count) == (14 / 16, 16)
    assert (pgd.value, pgd.count) == (7 / 16, 16)
    assert pgd.low is not None
    assert pgd.high is not None
    assert pgd.low < 7 / 16 < pgd.high


def net(folder: Path) -> str:
    """Write the threshold of `sixteen` as a user's own file; return its name."""
    path = folder / "net.py"
    path.write_text(
        "import torch\n"
        "class Threshold(torch.nn.Module):\n"
        "    preprocessing = 'channels=1,resize=none,crop=none'\n"
        "    def forward(self, images):\n"
        "        margin = images.mean((1, 2, 3)) - 0.5\n"
        "        return torch.stack([margin, torch.zeros_like(margin)], dim=1)\n"
    )
    return f"{path}:Threshold"


# A second look


@pytest.mark.parametrize("radius", ["0.003", "0.01", "0.1"])
@pytest.mark.parametrize("attack", ["fgsm", "pgd(steps=5)"])
def test_scoring_the_images_once_more_gives_the_same_count(attack: str, radius: str) -> None:
    model, data = rk.load_model("symvit_digits"), digits()
    images, labels = data.read(range(100), Preprocessing(channels=1)), torch.tensor(data.labels[:100])
    result = rk.attack(model, images, labels, f"{attack}@linf:{radius}")
    with torch.no_grad():
        for size in (100, 7):
            again = torch.cat([model.network.eval()(part) for part in result.images.split(size)]).argmax(1)
            assert torch.equal(again, result.predictions)
    assert float((again == labels).double().mean()) == pytest.approx(result.robust_accuracy)
    assert Budget.parse(f"linf:{radius}").allows(result.images, images).all()


def test_a_second_look_agrees_for_a_network_with_batch_norm_in_train_mode() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3)).train()
    images = torch.rand(30, 1, 8, 8)
    with torch.no_grad():
        labels = network.eval()(images).argmax(1)
        result = rk.attack(network.train(), images, labels, "pgd(steps=10)@linf:0.1")
        again = network.eval()(result.images).argmax(1)
    assert torch.equal(again, result.predictions)
    assert [verdict is S for verdict in result.verdicts] == (again == labels).tolist()


# Budgets as text


def test_eight_255ths_are_exact() -> None:
    threat = rk.threat("fgsm@linf:8/255")
    assert threat.budget is not None
    assert threat.budget.radius == Fraction(8, 255)
    assert str(threat) == "fgsm@linf:8/255"
    assert str(rk.threat("fgsm@linf:0.031")) == "fgsm@linf:0.031"
    images = torch.full((1, 1, 4, 4), 0.5)
    result = rk.attack(Linear(torch.ones(16), 0.0), images, torch.tensor([0]), threat)
    assert result.distances.item() == pytest.approx(8 / 255, abs=1e-7)


def test_records_carry_the_budget_as_it_was_written(tmp_path: Path) -> None:
    frame = rk.score("symvit_digits", "fgsm@linf:8/255", limit=4)
    assert set(frame["threat_label"]) == {"fgsm@linf:8/255"}
    assert (frame["distance"] <= 8 / 255 + 1e-6).all()


# Files


@pytest.fixture
def photos(tmp_path: Path) -> tuple[Path, Path]:
    """Return the same twelve pictures as class folders and as an archive."""
    pixels = numpy.random.default_rng(0).integers(0, 256, (12, 4, 4), dtype=numpy.uint8)
    labels = numpy.array([0, 1] * 6)
    folder = tmp_path / "photos"
    for index, (picture, label) in enumerate(zip(pixels, labels, strict=True)):
        (folder / f"class{label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"class{label}" / f"{index:06d}.png")
    numpy.savez(tmp_path / "photos.npz", images=pixels, labels=labels)
    return folder, tmp_path / "photos.npz"


def test_a_folder_and_an_archive_of_the_same_pictures_give_the_same_verdicts(
    photos: tuple[Path, Path], tmp_path: Path
) -> None:
    columns = ["label", "clean_prediction", "prediction", "loss", "margin", "verdict", "distance", "forwards"]
    parts = []
    for source in photos:
        frame = rk.score(net(tmp_path), ["clean", "fgsm@linf:0.05"], source)
        number = frame["sample"].astype(str).str.extract(r"(\d{6})")[0]
        assert number.nunique() == 12
        parts.append(frame.assign(number=number).sort_values(["threat", "number"])[[*columns, "number"]])
    pandas.testing.assert_frame_equal(
        *(part.reset_index(drop=True) for part in parts), check_exact=True, check_categorical=False
    )


def test_a_folder_of_results_is_read_back_and_continued(photos: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "results"
    first = rk.score(net(tmp_path), "fgsm@linf:0.05", photos[1], limit=5, out=out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    again = rk.score(net(tmp_path), "fgsm@linf:0.05", photos[1], limit=5, out=out)
    pandas.testing.assert_frame_equal(first, again)
    pandas.testing.assert_frame_equal(first.astype({"planned": "category"}), rk.read(out))
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")} == before
    whole = rk.score(net(tmp_path), "fgsm@linf:0.05", photos[1], out=out)
    assert len(whole) == 12
    assert {path for path in out.rglob("*.parquet")} > before.keys()
    old = whole[whole["sample"].isin(first["sample"])].reset_index(drop=True)
    assert old["margin"].tolist() == first["margin"].tolist()


def test_a_board_is_filled_from_records() -> None:
    frame = rk.score("symvit_digits", "quick", limit=10)
    (table,) = rk.leaderboard(frame, "quick")
    assert table.board.columns[0].title == "clean"
    values = [cell.value for cell in table.rows[0].cells]
    for value, threat in zip(values, table.board.threats, strict=False):
        part = frame[frame["threat_label"] == threat]
        assert value == (part["verdict"] == "survived").mean()
    survived = frame[frame["threat_label"] != "clean"].groupby("sample", observed=True)["verdict"]
    assert values[-1] == survived.agg(lambda verdicts: (verdicts == "survived").all()).mean()


def test_no_results_and_no_such_file_are_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="no results in"):
        rk.read(tmp_path)
    with pytest.raises(UserError, match="nowhere"):
        rk.score("symvit_digits", "clean", tmp_path / "nowhere.npz")


def test_a_model_that_is_replaced_before_it_is_loaded_again_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records would be filed under the weights that were checked."""
    monkeypatch.setattr(contestants, "_HELD_BYTES", -1)
    model = net(tmp_path)

    class Replacing(Reporter):
        def planned(self, samples: int) -> None:
            file = tmp_path / "net.py"
            file.write_text(file.read_text().replace("0.5", "0.6"))

    images, labels = numpy.zeros((4, 4, 4), dtype=numpy.uint8), numpy.array([0, 1, 0, 1])
    numpy.savez(tmp_path / "four.npz", images=images, labels=labels)
    matrix = Matrix(models=(ModelChoice(name=model),), threats=("clean",), data=str(tmp_path / "four.npz"))
    with pytest.raises(Unusable, match="were changed while the run was under way"):
        evaluation.run_matrix(matrix, tmp_path / "results", Replacing())
    assert not list((tmp_path / "results").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"threat": None}, "threat None: expected a text"),
        ({"threat": 5}, "threat 5: expected a text"),
        ({"seed": "x"}, "seed 'x': expected a whole number"),
        ({"sample_ids": ["a", "\ud800"]}, "is not one line of UTF-8 text"),
        ({"images": torch.rand(2, 1, 4, 4).to_sparse()}, "of layout torch.sparse_coo"),
        ({"images": torch.rand(2, 1, 4, 4, device="meta")}, "on the meta device"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_an_argument_of_another_kind_is_named_also_where_nothing_is_attacked(
    change: dict[str, object], said: str
) -> None:
    arguments = {"images": torch.rand(2, 1, 4, 4), "labels": torch.zeros(2), "threat": "clean"} | change
    with pytest.raises(BadValue, match=said):
        rk.attack(Linear(torch.ones(16), 0.0), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("out", ["a\0b", "x" * 5000])
def test_a_results_folder_that_no_file_system_allows_is_named(out: str) -> None:
    with pytest.raises(BadValue, match="results folder"):
        rk.score("symvit_digits", "clean", limit=1, out=out)


def test_a_network_is_wrapped_not_loaded() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    with pytest.raises(BadValue, match=r"wrapped with robustkpca\.wrap"):
        rk.load_model(network)
    assert str(rk.wrap(network, preprocessing="channels=1").spec.preprocessing).startswith("preprocessing(channels=1")


def test_a_checkpoint_belongs_to_a_model() -> None:
    with pytest.raises(BadValue, match="checkpoint belongs to a model; write"):
        rk.score("symvit_digits", checkpoint="x.pth")


def test_a_benchmark_knows_how_many_classes_its_data_have(photos: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"have 2 classes .* but 1000 are wanted"):
        rk.score(net(tmp_path), data=photos[0], benchmark="imagenet")
