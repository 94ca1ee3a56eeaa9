"""Log-probabilities over a large vocabulary whose rare words stand in clusters of their own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

_ROWS = 8
"""Rows of a cluster are padded to a multiple of it, so that the bits of one do not depend on how many there are."""


class AdaptiveSoftmax(nn.Module):
    """The criterion of the word-level models, with its weights tied to the embedding.

    Args:
        weight: ``(V, C)``, the embedding of the words, most frequent first.
        cutoffs: Where the clusters of rarer words begin; none for a plain softmax.

    Attributes:
        cluster_weight: ``(clusters, C)``, how likely each cluster is, beside the words of the head.
        cluster_bias: ``(clusters,)``.
        out_layers: One layer with the tied weight ``(V, C)`` and a bias ``(V,)``.

    Source:
        Grave et al. 2017, arXiv:1609.04309, as in Transformer-XL (Dai et al. 2019, arXiv:1901.02860) with ``div_val`` 1: the
        last entry of the head stands for the first cluster, the one before it for the second, and so on.
    """

    def __init__(self, weight: nn.Parameter, cutoffs: Sequence[int] = ()) -> None:
        super().__init__()
        words, width = weight.shape
        self.ends = [*cutoffs, words]
        if cutoffs:
            self.cluster_weight = nn.Parameter(torch.zeros(len(cutoffs), width))
            self.cluster_bias = nn.Parameter(torch.zeros(len(cutoffs)))
        layer = nn.Linear(width, words)
        layer.weight = weight
        self.out_layers = nn.ModuleList([layer])

    def forward(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return ``(M,)``, losses in nats of the words ``targets`` ``(M,)`` after ``hidden`` ``(M, C)``."""
        layer = self.out_layers[0]
        assert isinstance(layer, nn.Linear)
        weight, bias = layer.weight, layer.bias
        head = self.ends[0]
        if len(self.ends) == 1:
            return cross_entropy(linear(hidden, weight, bias), targets, reduction="none")
        logits = linear(
            hidden, torch.cat([weight[:head], self.cluster_weight]), torch.cat([bias[:head], self.cluster_bias])
        )
        cluster = torch.bucketize(targets.contiguous(), torch.tensor(self.ends[:-1], device=targets.device), right=True)
        losses = cross_entropy(logits, torch.where(cluster == 0, targets, logits.shape[1] - cluster), reduction="none")
        for index, (start, end) in enumerate(zip(self.ends, self.ends[1:], strict=False), start=1):
            rows = (cluster == index).nonzero().squeeze(1)
            if not len(rows):
                continue
            padded = rows[torch.arange(-(-len(rows) // _ROWS) * _ROWS, device=rows.device).clamp_max(len(rows) - 1)]
            within = cross_entropy(
                linear(hidden[padded], weight[start:end], bias[start:end]), targets[padded] - start, reduction="none"
            )
            losses = losses.index_add(0, rows, within[: len(rows)])
        return losses
