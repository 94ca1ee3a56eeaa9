"""A classifier without training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustkpca.data import open_data
from robustkpca.preprocessing import Preprocessing

GREY = Preprocessing(channels=1)


class NearestMean(nn.Module):
    """Logits are negative squared distances to one picture per class.

    Args:
        means: ``(K, H, W)``, in [0, 1].
        sharpness: Factor on the logits.
    """

    preprocessing = GREY

    def __init__(self, means: Tensor, sharpness: float) -> None:
        super().__init__()
        self.means = nn.Parameter(means.flatten(1))
        self.sharpness = sharpness

    def forward(self, images: Tensor) -> Tensor:
        """Return ``(N, K)`` for images ``(N, 1, H, W)``."""
        return -self.sharpness * (images.flatten(1).unsqueeze(1) - self.means).square().sum(2)


def nearest_mean(sharpness: float = 1.0) -> NearestMean:
    """Take the mean pictures of the bundled training digits."""
    data = open_data("digits/train")
    images, labels = data.read(range(len(data.ids)), GREY), torch.tensor(data.labels)
    means = [images[labels == label].mean((0, 1)) for label in range(data.spec.classes)]
    return NearestMean(torch.stack(means), sharpness)
