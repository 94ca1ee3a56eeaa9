"""Classification of sentences: one label each, one verdict each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robustkpca.audit import untrained
from robustkpca.data.dataset import Dataset
from robustkpca.data.sentences import Texts, open_sentences
from robustkpca.draws import Draws
from robustkpca.errors import BadValue, Unusable
from robustkpca.matrix import ModelChoice
from robustkpca.meter import margins
from robustkpca.models.loading import load_model
from robustkpca.models.sentence_model import SentenceModel
from robustkpca.records import Verdict
from robustkpca.strangers import FAULTS, described
from robustkpca.tasks.task import refuse_other_inputs
from robustkpca.threats import ThreatModel


def changed_texts(texts: Sequence[str], threat: ThreatModel, *, seed: int, ids: Sequence[str]) -> list[str]:
    """Return sentences under a threat.

    Args:
        texts: The sentences.
        threat: ``clean``, or a corruption of text.
        seed: Key of the random streams, with the threat and the id.
        ids: One per sentence.
    """
    if threat.call.name == "clean":
        return list(texts)
    draws = Draws.of(ids, seed=seed, threat=str(threat))
    return list(threat.function()(texts, draws=draws, **threat.call.arguments))


@dataclass(frozen=True)
class SentenceClassification:
    """Judges sentences: mistaken as they are, broken by a change, or survived."""

    name: str = "sentences"
    inputs: str = "text"
    reduction: str = "worst"

    def refuse(self, threat: ThreatModel) -> None:
        """Refuse what does not change text."""
        refuse_other_inputs(self, threat)

    def open(self, source: str, classes: int | None) -> Dataset:
        """Open labelled sentences."""
        return open_sentences(source, classes)

    def load(self, choice: ModelChoice, device: str, batch_size: int | str) -> SentenceModel:
        """Load a classifier of sentences."""
        if choice.preprocessing is not None:
            raise BadValue("--preprocessing changes images; this model reads text: leave the option out")
        return SentenceModel(
            load_model(
                choice.name,
                choice.checkpoint,
                device,
                use_ema=choice.use_ema,
                dtype=choice.dtype,
                batch_size=batch_size,
            )
        )

    def look(self, model: SentenceModel, data: Dataset, positions: Sequence[int]) -> list[str]:
        """Check the logits of a few sentences: finite, and one for each class."""
        texts = data.read(positions, model.spec.preprocessing)
        with model.evaluating():
            try:
                logits = model.logits(texts.lines)
            except FAULTS as error:
                raise Unusable(f"model {model.spec.label} cannot read sentences: {described(error)}") from error
        if not bool(logits.isfinite().all()):
            raise Unusable(f"model {model.spec.label} gives NaN or infinite logits; are the weights whole?")
        if logits.shape[1] != data.spec.classes:
            raise Unusable(
                f"model {model.spec.label} has {logits.shape[1]} outputs, the data set {data.spec.classes} classes; "
                "expected the same number: load the model with another num_classes, or give --classes"
            )
        return untrained(model.spec)

    def measure(
        self,
        model: SentenceModel,
        samples: Texts,
        labels: Tensor,
        threat: ThreatModel,
        *,
        seed: int,
        ids: Sequence[str],
    ) -> dict[str, list[Any]]:
        """Return the measured columns of one shard, one entry per sentence.

        Columns: label, clean_prediction, prediction, loss (nats), confidence, margin (logits), verdict, forwards,
        backwards (0), detail. Of several threats the first that breaks a sentence decides.
        """
        clean = model.logits(samples.lines)
        deciding, forwards = clean.clone(), torch.ones(len(labels), dtype=torch.int64)
        right = clean.argmax(1) == labels
        for part in threat.parts if threat.call.name != "clean" else ():
            standing = (right & (deciding.argmax(1) == labels)).nonzero().squeeze(1).tolist()
            if not standing:
                break
            own = [ids[row] for row in standing]
            texts = changed_texts([samples.lines[row] for row in standing], part, seed=seed, ids=own)
            deciding[standing] = model.logits(texts)
            forwards[standing] += 1
        finite = deciding.isfinite().all(1) & clean.isfinite().all(1)
        verdicts = []
        for whole, was, now in zip(
            finite.tolist(), right.tolist(), (deciding.argmax(1) == labels).tolist(), strict=True
        ):
            judged = (Verdict.SURVIVED if now else Verdict.BROKEN) if was else Verdict.MISTAKEN
            verdicts.append(judged if whole else Verdict.INVALID)
        return {
            "label": labels.tolist(),
            "clean_prediction": clean.argmax(1).tolist(),
            "prediction": deciding.argmax(1).tolist(),
            "loss": torch.nn.functional.cross_entropy(deciding, labels, reduction="none").tolist(),
            "confidence": deciding.softmax(1).amax(1).tolist(),
            "margin": margins(deciding, labels).tolist(),
            "forwards": forwards.tolist(),
            "backwards": [0] * len(labels),
            "verdict": [verdict.value for verdict in verdicts],
            "detail": ["" if whole else "the logits are not finite" for whole in finite.tolist()],
        }

    def unread(self, labels: Sequence[int], reasons: Sequence[str]) -> dict[str, list[Any]]:
        """Return the columns of sentences that could not be read."""
        count = len(labels)
        columns: dict[str, list[Any]] = {name: [float("nan")] * count for name in ("loss", "confidence", "margin")}
        columns |= {name: [-1] * count for name in ("clean_prediction", "prediction")}
        columns |= {name: [0] * count for name in ("forwards", "backwards")}
        return columns | {
            "label": list(labels),
            "verdict": [Verdict.FAILED.value] * count,
            "detail": list(reasons),
        }


SENTENCES = SentenceClassification()
