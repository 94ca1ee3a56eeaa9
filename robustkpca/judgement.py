"""What became of a batch, as a judge writes it down."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from robustkpca.meter import MeteredClassifier
from robustkpca.records import Verdict


@dataclass
class Judgement:
    """What became of a batch; tensors have one row per image, in the order given.

    Args:
        labels: ``(N,)``, int64, the true classes.
        images: ``(N, C, H, W)``, the image that decided: the first that broke, otherwise the last proposed.
        clean_logits: ``(N, K)`` of the images as given.
        logits: ``(N, K)`` of the deciding images.
        verdicts: One per image.
        distances: ``(N,)`` size of the change, in the norm of the budget; zero where nothing was tried.
        meter: Passes per image.
        details: Why a verdict is ``INVALID`` or ``FAILED``; empty otherwise.
    """

    labels: Tensor
    images: Tensor
    clean_logits: Tensor
    logits: Tensor
    verdicts: list[Verdict]
    distances: Tensor
    meter: MeteredClassifier
    details: list[str] = field(default_factory=list)

    def where(self, verdict: Verdict) -> Tensor:
        """Return the positions ``(M,)``, int64, of the images with a verdict."""
        return torch.tensor([one is verdict for one in self.verdicts], device=self.images.device).nonzero().squeeze(1)

    def give(self, where: Tensor, verdict: Verdict, detail: str = "") -> None:
        """Write a verdict for the images at these positions ``(M,)``."""
        for position in where.tolist():
            self.verdicts[position] = verdict
            self.details[position] = detail

    def take(self, rows: Tensor, later: Judgement) -> None:
        """Let another judgement decide the images at these positions ``(M,)``; what it cost is added."""
        for mine, theirs in (
            (self.images, later.images),
            (self.logits, later.logits),
            (self.distances, later.distances),
        ):
            mine[rows] = theirs.to(mine.dtype)
        for row, verdict, detail in zip(rows.tolist(), later.verdicts, later.details, strict=True):
            self.verdicts[row], self.details[row] = verdict, detail
        self.meter.add(rows, later.meter)


def spread(logits: Tensor) -> Tensor:
    """Return ``(N,)``, the largest logit minus the smallest, at least 1: what a difference of logits is measured by."""
    return (logits.amax(1) - logits.amin(1)).clamp_min(1)
