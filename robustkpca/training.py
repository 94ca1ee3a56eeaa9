"""Train a classifier: a plain loop around timm's optimiser, schedule, Mixup, erasing and averaged weights."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy
import timm.data
import timm.data.random_erasing
import timm.loss
import timm.optim
import timm.scheduler
import timm.utils
import torch
from torch import Tensor, nn

from robustkpca.adversary import Keep, lifted
from robustkpca.augmentation import augmented
from robustkpca.data.dataset import Dataset
from robustkpca.draws import Draws
from robustkpca.errors import BadValue, Unusable
from robustkpca.models.classifier import TorchClassifier
from robustkpca.models.factory import build_model
from robustkpca.models.initialisation import reproducible
from robustkpca.models.loading import wrap
from robustkpca.preprocessing import Preprocessing
from robustkpca.recipes import Recipe
from robustkpca.strangers import FAULTS, described
from robustkpca.threats import Protocol, ThreatModel

_timm: Any = timm  # its functions carry no types

log = logging.getLogger(__name__)

Report = Callable[[int, int, float], None]
"""Hears of every epoch: its number from 1, their total, and the mean training loss."""


@dataclass(frozen=True)
class Training:
    """What is trained, on what, and how.

    Args:
        model: Name of the network with its arguments.
        data: Labelled images.
        recipe: Text of the recipe.
        adversary: Threat that every batch is put through, such as ``pgd(steps=7)@linf:8/255``; empty for plain training.
        device: Where it runs.
    """

    model: str
    data: Dataset
    recipe: str = "digits"
    adversary: str = ""
    device: str = "cpu"


def train(training: Training, out: str | Path, *, report: Report | None = None) -> nn.Module:
    """Train a network and keep a checkpoint after every epoch.

    On one machine and device the weights are the same bit for bit every time, also where a run was interrupted: each epoch
    seeds the generators anew. The global generators are afterwards as they were.

    Args:
        training: What is trained.
        out: File of the checkpoint. One of the same training is continued, or taken as it is where it is complete.
        report: Hears of every epoch.

    Returns:
        The network, in eval mode, on the device.

    Raises:
        BadValue: If a value cannot be used, or the file holds another training.
        Unusable: If the loss stops being a number.
    """
    text, recipe = Recipe.parse(training.recipe)
    threat = _adversary(training.adversary)
    path = Path(out)
    if not path.parent.is_dir():
        raise BadValue(f"--out {str(out)!r}: there is no folder {str(path.parent)!r}")
    with reproducible(recipe.seed):
        built = build_model(training.model, recipe.seed)
        network = built.network
        loop = _Loop(network.to(training.device), built.preprocessing, training, recipe, threat)
        identity = {
            "model": built.canonical_name,
            "data": training.data.spec.id,
            "recipe": text,
            "adversary": str(threat) if threat else "",
        }
        done = loop.restore(path, identity)
        if done:
            log.warning("%s: %d of %d epochs are there", path, done, recipe.total_epochs)
        for epoch in range(done, recipe.total_epochs):
            loss = loop.epoch(epoch)
            loop.save(path, identity, epoch + 1)
            if report:
                report(epoch + 1, recipe.total_epochs, loss)
    return network.eval()


class _Loop:
    """The moving parts of one training."""

    def __init__(
        self,
        network: nn.Module,
        preprocessing: Preprocessing,
        training: Training,
        recipe: Recipe,
        threat: ThreatModel | None,
    ) -> None:
        self.network, self.training, self.recipe, self.threat = network, training, recipe, threat
        self.labels = torch.tensor(training.data.labels)
        self.classifier = wrap(network, label=training.model, preprocessing=preprocessing, batch_size=recipe.batch_size)
        classes = _require_classes(self.classifier, training.data)
        self.read = augmented(training.data, self.classifier.spec.preprocessing, recipe)
        self.optimiser = _timm.optim.create_optimizer_v2(
            network, opt="adamw", lr=recipe.rate, weight_decay=recipe.decay, eps=1e-8
        )
        self.schedule = _timm.scheduler.CosineLRScheduler(
            self.optimiser,
            t_initial=recipe.epochs,
            lr_min=recipe.least_rate,
            warmup_t=recipe.warmup_epochs,
            warmup_lr_init=recipe.warmup_rate,
        )
        self.average = _timm.utils.ModelEmaV2(network, decay=recipe.ema) if recipe.ema else None
        self.erase = _timm.data.random_erasing.RandomErasing(
            recipe.erasing, mode="pixel", max_count=1, num_splits=0, device="cpu"
        )
        mixes = recipe.mixup > 0 or recipe.cutmix > 0
        self.mix = (
            _timm.data.Mixup(recipe.mixup, recipe.cutmix, label_smoothing=recipe.smoothing, num_classes=classes)
            if mixes
            else None
        )
        self.loss = (
            _timm.loss.SoftTargetCrossEntropy() if mixes else _timm.loss.LabelSmoothingCrossEntropy(recipe.smoothing)
        )

    def epoch(self, number: int) -> float:
        """Run one epoch, counted from 0, and return its mean loss."""
        seed = 1_000_003 * (self.recipe.seed + 1) + number
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        self.schedule.step(number)
        self.network.train()
        losses = [self.step(rows, number) for rows in self.batches()]
        return sum(losses) / len(losses)

    def batches(self) -> Iterator[Tensor]:
        """Yield the positions of each step; a rest that Mixup or a batch normalisation cannot take is left out."""
        order = torch.randperm(len(self.labels)).repeat_interleave(self.recipe.repeats)[: len(self.labels)]
        for rows in torch.split(order, self.recipe.batch_size):
            if self.mix and len(rows) % 2:
                rows = rows[:-1]
            if len(rows) > 1:
                yield rows

    def step(self, rows: Tensor, epoch: int) -> float:
        """Take one step of the optimiser and return its loss."""
        device = self.classifier.device
        images, labels = self.read(rows.tolist()).to(device), self.labels[rows].to(device)
        if self.threat:
            images = adversarial(self.classifier, images, labels, self.threat, rows, f"{self.recipe.seed}/{epoch}")
        inputs, targets = self.classifier.normalise(images).to(images.dtype), labels
        if self.mix:
            inputs, targets = self.mix(inputs, targets)
        if self.recipe.erasing:
            inputs = self.erase(inputs)
        loss = self.loss(self.network(inputs), targets)
        if not torch.isfinite(loss):
            raise Unusable(
                f"training {self.training.model}: the loss is {loss.item()} in epoch {epoch + 1}; lower rate, or set"
                " clip_norm=1 in the recipe"
            )
        self.optimiser.zero_grad()
        loss.backward()
        if self.recipe.clip_norm:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip_norm)
        self.optimiser.step()
        if self.average:
            self.average.update(self.network)
        mean: float = loss.item()
        return mean

    def save(self, path: Path, identity: dict[str, str], epochs: int) -> None:
        """Write everything that a continuation needs, under a temporary name first."""
        content: dict[str, Any] = {"model": self.network.state_dict(), "optimizer": self.optimiser.state_dict()}
        if self.average:
            content["model_ema"] = self.average.module.state_dict()
        content |= {"epoch": epochs, "training": identity}
        beside = path.with_name(f"{path.name}.tmp")
        torch.save(content, beside)
        os.replace(beside, path)

    def restore(self, path: Path, identity: dict[str, str]) -> int:
        """Take up what a file holds of this training, and return how many epochs that is."""
        if not path.exists():
            return 0
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
            held = dict(content["training"])
        except Exception as error:  # torch raises many kinds; none of them is a training of ours
            raise BadValue(
                f"--out {str(path)!r} is there and holds no training that could be continued; give another name"
            ) from error
        differing = [name for name in identity if held.get(name) != identity[name]]
        if differing:
            raise BadValue(
                f"--out {str(path)!r} holds a training with another {', '.join(differing)}; give another name"
            )
        self.network.load_state_dict(content["model"])
        self.optimiser.load_state_dict(content["optimizer"])
        if self.average:
            self.average.module.load_state_dict(content["model_ema"])
        return int(content["epoch"])


def adversarial(
    classifier: TorchClassifier, images: Tensor, labels: Tensor, threat: ThreatModel, rows: Tensor, seed: str
) -> Tensor:
    """Return the last candidate that an attack proposes for each image, crafted in eval mode.

    Args:
        classifier: The network in training; its mode is the same afterwards.
        images: ``(N, C, H, W)``, in [0, 1].
        labels: ``(N,)``.
        threat: The attack with its budget.
        rows: Positions of the images in the training data, for the streams of random numbers.
        seed: What else distinguishes this batch, such as seed and epoch.

    Source:
        Madry et al. 2018, arXiv:1706.06083. Whether to craft in training mode is not settled; eval mode does not disturb the
        statistics of batch normalisation.
    """
    assert threat.entry is not None
    function = lifted(threat.entry.load())
    keep = Keep(torch.ones(len(images), dtype=torch.bool))
    draws = Draws.of([f"{seed}/{place}/{row}" for place, row in enumerate(rows.tolist())], seed=0, threat=str(threat))
    latest = images
    with classifier.evaluating():
        proposals = function(classifier, images, labels, budget=threat.budget, draws=draws, **threat.call.arguments)
        try:
            latest = next(proposals).images
            while True:
                latest = proposals.send(keep).images
        except StopIteration:
            return latest.detach()


def _adversary(text: str) -> ThreatModel | None:
    if not text:
        return None
    threat = ThreatModel.parse(text)
    if threat.budget is None or threat.protocol is not Protocol.PIXEL:
        raise BadValue(f"adversary {text!r}: expected an attack in the pixel protocol, such as pgd(steps=7)@linf:8/255")
    return threat


def _require_classes(classifier: TorchClassifier, data: Dataset) -> int:
    """Return the number of classes, which must be that of the logits."""
    plain = replace(classifier.spec.preprocessing, mean=(), std=())
    image = data.read([0], plain)
    with classifier.evaluating():
        try:
            outputs = classifier.logits(image).shape[1]
        except FAULTS as error:  # whatever the network says against the image
            raise Unusable(
                f"model {classifier.spec.label} cannot take images of {'x'.join(map(str, image.shape[1:]))} (channels x height"
                f" x width): {described(error)}. Its preprocessing is {classifier.spec.preprocessing}; a network says another"
                " one in its attribute 'preprocessing'"
            ) from error
    if outputs != data.spec.classes:
        raise BadValue(
            f"{classifier.spec.label} has {outputs} logits for {data.spec.classes} classes;"
            f" write num_classes={data.spec.classes}"
        )
    return outputs
