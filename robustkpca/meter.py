"""Counts what an attack spends on every image."""

from __future__ import annotations

import torch
from torch import Tensor

from robustkpca.adversary import Classifier, Loss


class MeteredClassifier:
    """A classifier that counts passes per image; the attack sees nothing else of the model.

    Args:
        model: The classifier that answers.
        count: How many images the batch holds.
        device: Where the counts are kept.

    Attributes:
        forwards: ``(count,)`` forward passes per image.
        backwards: ``(count,)`` backward passes per image.
        zero_gradients: ``(count,)`` how many of the gradients were exactly zero.
        nonfinite_gradients: ``(count,)`` how many of the gradients held NaN or infinite entries.
    """

    def __init__(self, model: Classifier, count: int, device: torch.device) -> None:
        self._model = model
        self._standing = torch.arange(count, device=device)
        self.forwards = torch.zeros(count, dtype=torch.int64, device=device)
        self.backwards = torch.zeros_like(self.forwards)
        self.zero_gradients = torch.zeros_like(self.forwards)
        self.nonfinite_gradients = torch.zeros_like(self.forwards)

    def stand(self, standing: Tensor) -> None:
        """Say which images ``(M,)`` of the batch the attack holds from now on."""
        self._standing = standing

    def add(self, rows: Tensor, other: MeteredClassifier) -> None:
        """Add what another meter counted for the images at these positions ``(M,)``."""
        self.forwards[rows] += other.forwards
        self.backwards[rows] += other.backwards
        self.zero_gradients[rows] += other.zero_gradients
        self.nonfinite_gradients[rows] += other.nonfinite_gradients

    def logits(self, images: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return ``(N, K)`` for images ``(N, C, H, W)``.

        Args:
            images: One per standing image, or a whole multiple of that.
            rows: ``(N,)``, int64, which standing image each belongs to; needed for any other number.
        """
        owners = self._owners(len(images), rows)
        self.forwards.index_add_(0, owners, torch.ones_like(owners))
        return self._model.logits(images)

    def value_and_gradient(self, images: Tensor, loss: Loss, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return logits and gradients as `Classifier.value_and_gradient`, counting one pass each way."""
        owners = self._owners(len(images), rows)
        one = torch.ones_like(owners)
        self.forwards.index_add_(0, owners, one)
        self.backwards.index_add_(0, owners, one)
        logits, gradient = self._model.value_and_gradient(images, loss)
        largest = gradient.flatten(1).abs().amax(1).to(owners.device)  # NaN where an entry is NaN
        self.zero_gradients.index_add_(0, owners, (largest == 0).long())
        self.nonfinite_gradients.index_add_(0, owners, (~largest.isfinite()).long())
        return logits, gradient

    def _owners(self, count: int, rows: Tensor | None) -> Tensor:
        if rows is not None:
            return self._standing[rows.to(self._standing.device)]
        each, rest = divmod(count, max(1, len(self._standing)))
        if rest:
            raise ValueError(
                f"the attack asked for {count} images while {len(self._standing)} stand; "
                "pass rows= to say which of them each image belongs to"
            )
        return self._standing if each == 1 else self._standing.repeat(each)
