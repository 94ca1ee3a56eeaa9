"""Image classification: one label per image, one verdict per sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from robustkpca.audit import check_model, untrained
from robustkpca.data.dataset import Dataset
from robustkpca.data.layout import open_data
from robustkpca.draws import Draws
from robustkpca.judge import judge_attack, judge_clean, judge_corruption, judge_in_turn, judge_published
from robustkpca.judgement import Judgement
from robustkpca.matrix import ModelChoice
from robustkpca.meter import margins
from robustkpca.models.classifier import TorchClassifier
from robustkpca.models.loading import load_model
from robustkpca.records import Verdict
from robustkpca.tasks.task import refuse_other_inputs
from robustkpca.threats import Protocol, ThreatModel


def judge_threat(
    model: TorchClassifier, images: Tensor, labels: Tensor, threat: ThreatModel, *, seed: int, samples: Sequence[str]
) -> Judgement:
    """Let one threat loose on a batch.

    Args:
        model: In eval mode.
        images: ``(N, C, H, W)``, float, in [0, 1].
        labels: ``(N,)``, int64.
        threat: What is done; under the ``published`` protocol the images of the result are normalised ones.
        seed: Key of the random streams.
        samples: One id per image, the other part of the key. Every member of a sequence has the streams that it has alone.
    """
    if threat.members:
        return judge_in_turn(
            [partial(_member, model, images, labels, member, seed, samples) for member in threat.members], len(images)
        )
    if threat.call.name == "clean":
        return judge_clean(model, images, labels)
    draws = Draws.of(samples, seed=seed, threat=str(threat))
    function, options = threat.function(), dict(threat.call.arguments)
    if threat.severity is not None:
        corruption = partial(function, severity=threat.severity, draws=draws, **options)
        return judge_corruption(model, corruption, images, labels)
    assert threat.budget is not None
    if threat.protocol is Protocol.PUBLISHED:
        bare = model.normalised()
        images = model.normalise(images)
        return judge_published(bare, function, images, labels, budget=threat.budget, draws=draws, **options)
    return judge_attack(model, function, images, labels, budget=threat.budget, draws=draws, **options)


def _member(
    model: TorchClassifier,
    images: Tensor,
    labels: Tensor,
    threat: ThreatModel,
    seed: int,
    samples: Sequence[str],
    rows: Tensor,
) -> Judgement:
    """Judge the images at these positions ``(M,)`` by one member of a sequence."""
    there = rows.to(images.device)
    chosen = [samples[row] for row in rows.tolist()]
    return judge_threat(model, images[there], labels[there], threat, seed=seed, samples=chosen)


@dataclass(frozen=True)
class Classification:
    """Turns judgements into columns of records."""

    name: str = "classification"
    inputs: str = "images"
    reduction: str = "worst"

    def refuse(self, threat: ThreatModel) -> None:
        """Refuse what changes something else than images."""
        refuse_other_inputs(self, threat)

    def open(self, source: str, classes: int | None) -> Dataset:
        """Open labelled images."""
        return open_data(source, classes=classes)

    def load(self, choice: ModelChoice, device: str, batch_size: int | str) -> TorchClassifier:
        """Load a classifier of [0, 1] images."""
        return load_model(
            choice.name,
            choice.checkpoint,
            device,
            use_ema=choice.use_ema,
            preprocessing=choice.preprocessing,
            dtype=choice.dtype,
            batch_size=batch_size,
        )

    def look(self, model: TorchClassifier, data: Dataset, positions: Sequence[int]) -> list[str]:
        """Check logits and gradients of a few images, see `robustkpca.audit.check_model`."""
        images = data.read(positions, model.spec.preprocessing)
        return check_model(model, images, data.spec.classes) + untrained(model.spec)

    def measure(
        self,
        model: TorchClassifier,
        samples: Tensor,
        labels: Tensor,
        threat: ThreatModel,
        *,
        seed: int,
        ids: Sequence[str],
    ) -> dict[str, list[Any]]:
        """Return the measured columns of one shard, one entry per image.

        Columns: label, clean_prediction, prediction, top5, loss (nats), confidence, margin (logits), verdict, distance,
        forwards, backwards, zero_gradients, nonfinite_gradients, best_margin (logits, of attacks that show their last image
        alone), detail.
        """
        result = judge_threat(model, samples.to(model.device), labels.to(model.device), threat, seed=seed, samples=ids)
        logits, labels = result.logits.double(), result.labels
        ranks = (logits > logits.gather(1, labels.unsqueeze(1))).sum(1)
        return {
            "label": labels.tolist(),
            "clean_prediction": result.clean_logits.argmax(1).tolist(),
            "prediction": logits.argmax(1).tolist(),
            "top5": (ranks < 5).tolist(),
            "loss": torch.nn.functional.cross_entropy(logits, labels, reduction="none").tolist(),
            "confidence": logits.softmax(1).amax(1).tolist(),
            "margin": margins(logits, labels).tolist(),
            "verdict": [verdict.value for verdict in result.verdicts],
            "distance": result.distances.tolist(),
            "forwards": result.meter.forwards.tolist(),
            "backwards": result.meter.backwards.tolist(),
            "zero_gradients": result.meter.zero_gradients.tolist(),
            "best_margin": [None if margin != margin else margin for margin in result.meter.best_margins.tolist()],
            "nonfinite_gradients": result.meter.nonfinite_gradients.tolist(),
            "detail": list(result.details),
        }

    def unread(self, labels: Sequence[int], reasons: Sequence[str]) -> dict[str, list[Any]]:
        """Return the columns of samples that could not be read, one entry per sample.

        Args:
            labels: Their true classes.
            reasons: Why.
        """
        count = len(labels)
        unknown = {name: [float("nan")] * count for name in ("loss", "confidence", "margin", "distance")}
        spent = {name: [0] * count for name in ("forwards", "backwards", "zero_gradients")}
        return {
            "label": list(labels),
            "clean_prediction": [-1] * count,
            "prediction": [-1] * count,
            "top5": [False] * count,
            **unknown,
            **spent,
            "verdict": [Verdict.FAILED.value] * count,
            "detail": list(reasons),
        }


CLASSIFICATION = Classification()
