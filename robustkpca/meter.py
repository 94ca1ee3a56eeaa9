"""Counts what an attack spends on every image."""

from __future__ import annotations

import torch
from torch import Tensor

from robustkpca.adversary import Classifier, Loss
from robustkpca.budget import Budget


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Return ``(N,)``, the label's logit minus the largest other one."""
    own = logits.gather(1, labels.unsqueeze(1))
    others = logits.scatter(1, labels.unsqueeze(1), -torch.inf)
    return (own - others.amax(1, keepdim=True)).squeeze(1)


class MeteredClassifier:
    """A classifier that counts passes per image; the attack sees nothing else of the model.

    Args:
        model: The classifier that answers.
        count: How many images the batch holds.
        device: Where the counts are kept.
        labels: ``(count,)``, int64, the true classes; ``None`` where nobody has them.

    Attributes:
        forwards: ``(count,)`` forward passes per image.
        backwards: ``(count,)`` backward passes per image.
        zero_gradients: ``(count,)`` how many of the gradients were exactly zero while the image was classified correctly. Some
            losses are flat by themselves beyond the decision boundary.
        nonfinite_gradients: ``(count,)`` how many of the gradients held NaN or infinite entries.
        best_margins: ``(count,)`` the smallest margin that was seen within the budget; NaN where nobody looked.
    """

    def __init__(self, model: Classifier, count: int, device: torch.device, labels: Tensor | None = None) -> None:
        self._model = model
        self._labels = labels
        self._standing = torch.arange(count, device=device)
        self.forwards = torch.zeros(count, dtype=torch.int64, device=device)
        self.backwards = torch.zeros_like(self.forwards)
        self.zero_gradients = torch.zeros_like(self.forwards)
        self.nonfinite_gradients = torch.zeros_like(self.forwards)
        self.best_margins = torch.full((count,), torch.nan, device=device)
        self._watched: tuple[Tensor, Tensor, Budget] | None = None

    def watch(self, images: Tensor, labels: Tensor, budget: Budget) -> None:
        """Remember the smallest margin that an attack sees within its budget, for attacks that show their last image alone.

        Args:
            images: ``(count, C, H, W)``, where the budget is centred.
            labels: ``(count,)``, int64.
            budget: What may be changed.
        """
        self._watched = (images, labels, budget)

    def stand(self, standing: Tensor) -> None:
        """Say which images ``(M,)`` of the batch the attack holds from now on."""
        self._standing = standing

    def add(self, rows: Tensor, other: MeteredClassifier) -> None:
        """Add what another meter counted for the images at these positions ``(M,)``."""
        self.forwards[rows] += other.forwards
        self.backwards[rows] += other.backwards
        self.zero_gradients[rows] += other.zero_gradients
        self.best_margins[rows] = self.best_margins[rows].fmin(other.best_margins)
        self.nonfinite_gradients[rows] += other.nonfinite_gradients

    def logits(self, images: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return ``(N, K)`` for images ``(N, C, H, W)``.

        Args:
            images: One per standing image, or a whole multiple of that.
            rows: ``(N,)``, int64, which standing image each belongs to; needed for any other number.
        """
        owners = self._owners(len(images), rows)
        self.forwards.index_add_(0, owners, torch.ones_like(owners))
        logits = self._model.logits(images)
        self._look(images, logits, owners)
        return logits

    def value_and_gradient(self, images: Tensor, loss: Loss, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return logits and gradients as `Classifier.value_and_gradient`, counting one pass each way."""
        owners = self._owners(len(images), rows)
        one = torch.ones_like(owners)
        self.forwards.index_add_(0, owners, one)
        self.backwards.index_add_(0, owners, one)
        logits, gradient = self._model.value_and_gradient(images, loss)
        largest = gradient.flatten(1).abs().amax(1).to(owners.device)  # NaN where an entry is NaN
        flat = largest == 0
        if self._labels is not None and bool(flat.any()):
            flat = flat & (logits.argmax(1) == self._labels[owners]).to(flat.device)
        self.zero_gradients.index_add_(0, owners, flat.long())
        self.nonfinite_gradients.index_add_(0, owners, (~largest.isfinite()).long())
        self._look(images, logits, owners)
        return logits, gradient

    def _look(self, images: Tensor, logits: Tensor, owners: Tensor) -> None:
        if self._watched is None:
            return
        around, labels, budget = self._watched
        found = margins(logits, labels[owners]).to(self.best_margins.dtype)
        better = ~(found >= self.best_margins[owners])
        better &= budget.allows(images.detach(), around[owners].to(images.dtype)) & found.isfinite()
        best = self.best_margins.nan_to_num(nan=torch.inf, posinf=torch.inf)
        best.scatter_reduce_(0, owners[better], found[better], "amin")
        self.best_margins = torch.where(best.isinf(), torch.nan, best)

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
