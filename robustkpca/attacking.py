"""What Python calls to attack a batch of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from robustkpca.audit import check_model, rehearse_threats
from robustkpca.data.inputs import checked_images, checked_labels
from robustkpca.errors import BadValue
from robustkpca.few_classes import few_classes
from robustkpca.indicators import Flag
from robustkpca.masking import KINDS, useless
from robustkpca.models.classifier import TorchClassifier
from robustkpca.models.loading import load_model, wrap
from robustkpca.records import Verdict
from robustkpca.tasks.classification import CLASSIFICATION, judge_threat
from robustkpca.threats import ThreatModel


@dataclass(frozen=True, repr=False)
class AttackResult:
    """What became of a batch; one entry per image, in the order given.

    Args:
        verdicts: See `Verdict`.
        images: ``(N, C, H, W)``, the image that decided; normalised ones under the ``published`` protocol.
        predictions: ``(N,)``, int64, the class of the deciding image.
        clean_predictions: ``(N,)``, int64, the class of the image as given.
        distances: ``(N,)`` size of the change in the norm of the budget.
        forwards: ``(N,)``, int64, forward passes spent.
        backwards: ``(N,)``, int64, backward passes spent.
        details: Why a verdict is ``INVALID`` or ``FAILED``; empty otherwise.
        flags: Remarks about the model and its gradients.
    """

    verdicts: tuple[Verdict, ...]
    images: Tensor
    predictions: Tensor
    clean_predictions: Tensor
    distances: Tensor
    forwards: Tensor
    backwards: Tensor
    details: tuple[str, ...]
    flags: tuple[str, ...] = ()

    @property
    def robust_accuracy(self) -> float:
        """``SURVIVED`` / all; NaN where a verdict is ``INVALID`` or ``FAILED``, see ``details``."""
        return float("nan") if self._blocked else self._count(Verdict.SURVIVED) / len(self.verdicts)

    @property
    def success_rate(self) -> float:
        """``BROKEN`` / (``BROKEN`` + ``SURVIVED``), the share of the correctly classified.

        NaN where there are none, or where a verdict is ``INVALID`` or ``FAILED``.
        """
        broken, survived = self._count(Verdict.BROKEN), self._count(Verdict.SURVIVED)
        return float("nan") if self._blocked or not broken + survived else broken / (broken + survived)

    def __repr__(self) -> str:
        counts = ", ".join(f"{self._count(verdict)} {verdict.value}" for verdict in Verdict if self._count(verdict))
        flags = f", flags: {'; '.join(self.flags)}" if self.flags else ""
        return f"AttackResult({counts}{flags})"

    @property
    def _blocked(self) -> bool:
        return any(verdict in (Verdict.INVALID, Verdict.FAILED) for verdict in self.verdicts)

    def _count(self, verdict: Verdict) -> int:
        return sum(one is verdict for one in self.verdicts)


def attack(
    model: nn.Module | Callable[[Tensor], Tensor] | TorchClassifier | str,
    images: Tensor,
    labels: Tensor,
    threat: ThreatModel | str,
    *,
    seed: int = 0,
    sample_ids: Sequence[str] | None = None,
    batch_size: int | str = "auto",
) -> AttackResult:
    """Attack a batch of images and judge every one.

    Args:
        model: Any module or function that maps [0, 1] images to logits, a name, or a loaded classifier. Its modes, buffers
            and gradients are the same afterwards.
        images: ``(N, C, H, W)`` or ``(N, D)``, float in [0, 1] or uint8. Not changed.
        labels: ``(N,)``, whole numbers, the true classes.
        threat: Such as ``pgd(steps=20)@linf:8/255``.
        seed: Key of the random streams.
        sample_ids: One text per image, the other part of the key; positions where ``None``.
        batch_size: Most images of one pass.

    Raises:
        UserError: If an input cannot be used; the message says how to mend it.
    """
    one = threat if isinstance(threat, ThreatModel) else ThreatModel.parse(threat)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise BadValue(f"seed {seed!r}: expected a whole number")
    images = checked_images(images, dimensions=(2, 4))
    CLASSIFICATION.refuse(one)
    rehearse_threats([one], (4,) if images.ndim == 2 else (1, 2, 2))
    labels = checked_labels(labels, len(images))
    if not len(images):
        raise BadValue("no images: got a batch of 0; expected at least one")
    ids = [str(index) for index in range(len(images))] if sample_ids is None else [str(sample) for sample in sample_ids]
    if len(ids) != len(images) or len(set(ids)) != len(ids):
        raise BadValue(
            f"sample_ids: got {len(ids)} ({len(set(ids))} different) for {len(images)} images; expected one each"
        )
    strange = next((sample for sample in ids if not sample.isprintable()), None)
    if strange is not None:
        raise BadValue(f"sample_ids: {strange!r} is not one line of UTF-8 text; rename the sample")
    if isinstance(model, str):
        model = load_model(model, batch_size=batch_size)
    classifier = model if isinstance(model, TorchClassifier) else wrap(model, batch_size=batch_size)
    flags = check_model(classifier, images)
    with classifier.evaluating():
        images, labels = images.to(classifier.device), labels.to(classifier.device)
        outputs = classifier.logits(images[:1]).shape[1]
        checked_labels(labels, len(images), outputs)
        result = judge_threat(classifier, images, labels, one, seed=seed, samples=ids)
    survived = [verdict is Verdict.SURVIVED for verdict in result.verdicts]
    shares = useless(survived, {kind: getattr(result.meter, kind).cpu().numpy() for kind in KINDS})
    flags += few_classes(one, outputs)
    flags += [str(Flag(kind, f"on {share} of the surviving samples")) for kind, share in shares.items()]
    return AttackResult(
        tuple(result.verdicts),
        result.images,
        result.logits.argmax(1),
        result.clean_logits.argmax(1),
        result.distances,
        result.meter.forwards,
        result.meter.backwards,
        tuple(result.details),
        tuple(flags),
    )
