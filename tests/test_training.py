"""Training: it learns, it is the same every time, it continues where it stopped, and `score` reads what it wrote."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from robustkpca.augmentation import augmented, shifted
from robustkpca.data import open_data
from robustkpca.data.arrays import ArrayImages, array_data
from robustkpca.errors import BadValue, Unusable
from robustkpca.models import load_model
from robustkpca.models.checkpoints import read_checkpoint, weights_digest
from robustkpca.models.loading import wrap
from robustkpca.preprocessing import Preprocessing
from robustkpca.recipes import Recipe
from robustkpca.threats import ThreatModel
from robustkpca.training import Training, adversarial, train

MODEL = "vit_tiny(img_size=8,patch_size=4,in_chans=1,num_classes=2,embed_dim=16,depth=1,num_heads=2)"
COLOUR = "vit_tiny(img_size=8,patch_size=4,num_classes=2,embed_dim=16,depth=1,num_heads=2)"


def halves(count: int = 48, channels: int = 1) -> ArrayImages:
    """Images that are bright on the left (class 0) or on the right (class 1)."""
    labels = numpy.arange(count) % 2
    images = numpy.random.default_rng(0).uniform(0, 0.3, (count, 8, 8, channels)).astype(numpy.float32)
    for image, label in zip(images, labels, strict=True):
        image[:, 4 * label : 4 * label + 4] += 0.6
    if channels == 3:
        images = (255 * images).astype(numpy.uint8)
    return array_data(images if channels > 1 else images[..., 0], labels, name="halves", layout="arrays", classes=2)


def trained(tmp_path: Path, name: str = "net.pth", model: str = MODEL, **options: Any) -> torch.nn.Module:
    recipe = options.pop("recipe", "digits(epochs=4,batch_size=16,rate=0.01,warmup_epochs=0)")
    return train(Training(model, halves(channels=3 if model == COLOUR else 1), recipe, **options), tmp_path / name)


def test_it_learns_what_can_be_learned_and_score_reads_it(tmp_path: Path) -> None:
    losses: list[float] = []
    training = Training(MODEL, halves(), "digits(epochs=8,batch_size=16,rate=0.01,warmup_epochs=0)")
    train(training, tmp_path / "net.pth", report=lambda epoch, total, loss: losses.append(loss))
    assert len(losses) == 8
    assert losses[-1] < 0.5 * losses[0]
    data = halves(20)
    model = load_model(MODEL, checkpoint=tmp_path / "net.pth")
    assert model.spec.checkpoint_key == "model"
    images = data.read(range(20), model.spec.preprocessing)
    assert model.logits(images).argmax(1).tolist() == list(data.labels)


def test_it_is_the_same_every_time_and_leaves_the_generators_alone(tmp_path: Path) -> None:
    torch.manual_seed(3)
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].copy()
    one = trained(tmp_path, "one.pth")
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (numpy.random.get_state()[1] == states[2]).all()
    torch.manual_seed(4)
    assert weights_digest(trained(tmp_path, "two.pth")) == weights_digest(one)
    seeded = "digits(epochs=4,batch_size=16,rate=0.01,warmup_epochs=0,seed=1)"
    assert weights_digest(trained(tmp_path, "three.pth", recipe=seeded)) != weights_digest(one)


FULL = (
    "digits(epochs=4,batch_size=12,rate=0.01,warmup_epochs=1,cooldown_epochs=1,mixup=0.8,cutmix=1,erasing=0.5,ema=0.9)"
)


@pytest.mark.parametrize("adversary", ["", "pgd(steps=2)@linf:0.1"])
def test_an_interrupted_training_ends_with_the_same_weights(tmp_path: Path, adversary: str) -> None:
    whole = trained(tmp_path, "whole.pth", recipe=FULL, adversary=adversary)

    class Stop(Exception):
        pass

    def stop(epoch: int, total: int, loss: float) -> None:
        assert total == 5
        if epoch == 2:
            raise Stop

    training = Training(MODEL, halves(), FULL, adversary)
    with pytest.raises(Stop):
        train(training, tmp_path / "part.pth", report=stop)
    epochs: list[int] = []
    rest = train(training, tmp_path / "part.pth", report=lambda epoch, total, loss: epochs.append(epoch))
    assert epochs == [3, 4, 5]
    assert weights_digest(rest) == weights_digest(whole)
    averages = [read_checkpoint(tmp_path / name, use_ema=True).state for name in ("whole.pth", "part.pth")]
    assert all(torch.equal(averages[0][key], averages[1][key]) for key in averages[0])
    assert not torch.equal(averages[0]["head.weight"], whole.state_dict()["head.weight"])


def test_a_complete_training_is_taken_as_it_is(tmp_path: Path) -> None:
    one = trained(tmp_path)
    before = (tmp_path / "net.pth").stat().st_mtime_ns
    assert weights_digest(trained(tmp_path)) == weights_digest(one)
    assert (tmp_path / "net.pth").stat().st_mtime_ns == before


def test_a_batch_is_replaced_by_what_the_adversary_makes_of_it(tmp_path: Path) -> None:
    classifier = wrap(trained(tmp_path).train())
    data = halves(16)
    images, labels = data.read(range(16), Preprocessing(channels=1)), torch.tensor(data.labels)
    threat = ThreatModel.parse("pgd(steps=3,relative_step=0.5)@linf:0.1")
    attacked = adversarial(classifier, images, labels, threat, torch.arange(16), "0/0")
    assert classifier.network.training
    assert 0.05 < (attacked - images).abs().max() <= 0.1 + 1e-6
    assert 0 <= attacked.min() <= attacked.max() <= 1
    losses = [torch.nn.functional.cross_entropy(classifier.logits(batch), labels) for batch in (images, attacked)]
    assert losses[1] > losses[0] + 0.1
    again = adversarial(classifier, images[4:8], labels[4:8], threat, torch.arange(4, 8), "0/0")
    assert not torch.equal(again, attacked[4:8])  # another place in the batch has another random start


def test_adversarial_training_lowers_the_loss_under_attack(tmp_path: Path) -> None:
    recipe, threat = (
        "digits(epochs=12,batch_size=16,rate=0.005,warmup_epochs=0)",
        "pgd(steps=2,relative_step=1)@linf:0.1",
    )
    data = halves(32)
    images, labels = data.read(range(32), Preprocessing(channels=1)), torch.tensor(data.labels)
    losses = []
    for adversary in ("", threat):
        classifier = wrap(trained(tmp_path, f"net{len(losses)}.pth", recipe=recipe, adversary=adversary))
        attacked = adversarial(classifier, images, labels, ThreatModel.parse(threat), torch.arange(32), "0/0")
        losses.append(float(torch.nn.functional.cross_entropy(classifier.logits(attacked), labels)))
    assert losses[1] < losses[0]


def test_the_recipe_of_the_paper_runs_on_colour_images(tmp_path: Path) -> None:
    model = trained(tmp_path, model=COLOUR, recipe="deit(epochs=1,batch_size=16,warmup_epochs=0,cooldown_epochs=0)")
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert "ema" in read_checkpoint(tmp_path / "net.pth", use_ema=True).key


def test_shifts_are_by_one_pixel_and_filled_with_black() -> None:
    torch.manual_seed(0)
    images = torch.zeros(200, 1, 5, 5)
    images[:, :, 2, 2] = 1.0
    moved = shifted(images)
    places = moved.flatten(1).argmax(1)
    assert set(places.tolist()) == {row * 5 + column for row in (1, 2, 3) for column in (1, 2, 3)}
    assert shifted(torch.ones(200, 1, 5, 5)).sum((1, 2, 3)).min() == 16


def test_augmented_photos_have_the_size_of_the_model() -> None:
    random.seed(0)
    torch.manual_seed(0)
    preprocessing = Preprocessing(resize=10, crop=8, mean=(0.5,) * 3, std=(0.5,) * 3)
    read = augmented(halves(channels=3), preprocessing, Recipe(augmentation="imagenet"))
    images = read([0, 1, 0])
    assert images.shape == (3, 3, 8, 8)
    assert 0 <= images.min() <= images.max() <= 1
    assert not torch.equal(images[0], images[2])


def test_small_vectors_positions_and_class_tokens_are_not_decayed(tmp_path: Path) -> None:
    still = "digits(epochs=1,batch_size=48,rate=0.01,decay=10,warmup_epochs=0,augmentation=plain,clip_norm=1e-12)"
    before = train(Training(MODEL, halves(), still.replace("rate=0.01", "rate=0")), tmp_path / "a.pth").state_dict()
    after = train(Training(MODEL, halves(), still), tmp_path / "b.pth").state_dict()
    decayed = {key for key in before if after[key].norm() < 0.95 * before[key].norm()}
    assert decayed == {key for key in before if before[key].ndim > 1} - {"cls_token", "pos_embed"}


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (MODEL.replace("num_classes=2", "num_classes=3"), {}, "has 3 logits for 2 classes; write num_classes=2"),
        (MODEL, {"adversary": "clean"}, "expected an attack in the pixel protocol"),
        (MODEL, {"adversary": "published/pgd@linf:6/255"}, "expected an attack in the pixel protocol"),
        (MODEL, {"recipe": "deit"}, "augmentation imagenet wants a model for RGB images"),
        (MODEL, {"name": "no/folder/net.pth"}, "there is no folder"),
    ],
)
def test_what_cannot_be_trained_is_refused(tmp_path: Path, model: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        trained(tmp_path, model=model, **options)


def test_a_network_that_cannot_take_the_images_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import torch\n\ndef build():\n    return torch.nn.Conv2d(2, 2, 3)\n")
    with pytest.raises(Unusable, match=r"cannot take images of 3x8x8 .* 'preprocessing'$"):
        trained(tmp_path, model=f"{tmp_path / 'net.py'}:build")


def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "net.pth").write_text("notes")
    with pytest.raises(BadValue, match="is there and holds no training"):
        trained(tmp_path)
    trained(tmp_path, "other.pth")
    with pytest.raises(BadValue, match="holds a training with another recipe; give another name"):
        trained(tmp_path, "other.pth", recipe="digits(epochs=5)")


def test_a_loss_that_is_no_number_stops_the_training(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="the loss is"):
        trained(tmp_path, recipe="digits(epochs=9,batch_size=16,rate=1e30,warmup_epochs=0,clip_norm=0)")


def test_the_bundled_training_data_can_be_trained_on(tmp_path: Path) -> None:
    data = open_data("digits/train")
    assert (data.spec.size, data.spec.classes) == (1257, 10)
