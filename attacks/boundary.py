"""The decision boundary as a decision-based attack gets to know it: where it is, and which way it faces."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robustkpca.adversary import Classifier
from robustkpca.attacks.queries import blocks, portions
from robustkpca.budget import Norm
from robustkpca.draws import Draws


@dataclass(frozen=True)
class Decider:
    """Tells whether queries are misclassified; it sees them clipped to [0, 1].

    Args:
        model: Who is asked.
        labels: ``(N,)``, int64, of all images that still stand.
    """

    model: Classifier
    labels: Tensor

    def __call__(self, queries: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``(M,)``, bool, and logits ``(M, K)`` of queries that belong to these rows ``(M,)``."""
        logits = self.model.logits(queries.clamp(0, 1), rows=rows)
        return logits.argmax(1) != self.labels[rows], logits


def bisected(
    decide: Decider, images: Tensor, points: Tensor, logits: Tensor, rows: Tensor, norm: Norm, accuracy: Tensor
) -> tuple[Tensor, Tensor]:
    """Return harmful points between images and harmful points, close to where they become harmless, and their logits.

    Args:
        decide: Tells what is harmful.
        images: ``(M, C, H, W)``, not asked about.
        points: ``(M, C, H, W)``, harmful.
        logits: ``(M, K)`` of the points.
        rows: ``(M,)``, which images they belong to.
        norm: In L2 the points move along a straight line, in L-infinity with the radius of a ball that they are clipped to.
        accuracy: ``(M,)``, where the search ends, as a share of the line or as a radius.
    """
    found, said = points.clone(), logits.clone()
    low = torch.zeros_like(accuracy)
    high = torch.ones_like(low) if norm is Norm.L2 else distance(points, images, norm)
    while True:
        middle = (low + high) / 2
        going = ((high - low) > accuracy) & (middle > low) & (middle < high)
        which = going.nonzero().squeeze(1)
        if not len(which):
            return found, said
        reach = wide(middle[which], images)
        if norm is Norm.L2:
            queries = (1 - reach) * images[which] + reach * points[which]
        else:
            queries = points[which].clamp(images[which] - reach, images[which] + reach)
        harmful, answers = decide(queries, rows[which])
        found[which[harmful]], said[which[harmful]] = queries[harmful], answers[harmful]
        high[which] = torch.where(harmful, middle[which], high[which])
        low[which] = torch.where(harmful, low[which], middle[which])


def estimate(
    decide: Decider, points: Tensor, draws: Draws, rows: Tensor, delta: Tensor, evaluations: int, norm: Norm
) -> Tensor:
    """Return an estimate of the normal of the boundary, towards the harmful side, of L2 length one.

    Args:
        decide: Tells what is harmful.
        points: ``(M, C, H, W)``, close to the boundary.
        draws: One stream per point; a few calls further afterwards.
        rows: ``(M,)``, which images the points belong to.
        delta: ``(M,)``, L2 distance of the queries from the points.
        evaluations: Queries for each point.
        norm: Directions are normal in L2, uniform in L-infinity, and all of the same length.

    Source:
        Chen et al. 2020, equations 9 and 16: the mean decision is subtracted where decisions differ.
    """
    shape, size = points.shape[1:], points[0].numel()
    normal, turns = torch.zeros_like(points), portions(evaluations, size)
    mine = draws
    for block in blocks(len(points), 4 * max(turns) * size, points.device):
        mine, part, far = draws.narrow(block), points[block].unsqueeze(1), wide(delta[block], points).unsqueeze(1)
        total, signed, balance = torch.zeros_like(part), torch.zeros_like(part), torch.zeros_like(delta[block])
        for count in turns:
            directions = (
                mine.normal((count, *shape), points)
                if norm is Norm.L2
                else 2 * mine.uniform((count, *shape), points) - 1
            )
            lengths = directions.flatten(2).norm(dim=2).clamp_min(1e-12)
            queries = (part + far * directions / lengths.view(*lengths.shape, *[1] * len(shape))).clamp(0, 1)
            directions = (queries - part) / far
            harmful, _ = decide(queries.flatten(0, 1), rows[block].repeat_interleave(count))
            signs = (2 * harmful.to(points.dtype) - 1).view(len(block), count)
            total += directions.sum(1, keepdim=True)
            signed += (signs.view(*signs.shape, *[1] * len(shape)) * directions).sum(1, keepdim=True)
            balance += signs.sum(1)
        mean = wide(balance / evaluations, part)
        normal[block] = torch.where(mean.abs() == 1, signed, signed - mean * total).squeeze(1)
    draws.calls = mine.calls
    return normal / wide(normal.flatten(1).norm(dim=1).clamp_min(1e-12), normal)


def distance(points: Tensor, images: Tensor, norm: Norm) -> Tensor:
    """Return ``(M,)``, how far points are from their images."""
    change = (points - images).flatten(1)
    return change.norm(dim=1) if norm is Norm.L2 else change.abs().amax(1)


def wide(values: Tensor, images: Tensor) -> Tensor:
    """Return ``(M,)`` as ``(M, 1, ...)``, to be multiplied with images."""
    return values.view(-1, *[1] * (images.ndim - 1))
