"""Square Attack: a random search that changes one square of the image at a time and looks at logits alone."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Keep, Proposals
from robustkpca.attacks.losses import best_other
from robustkpca.attacks.square_changes import Chance, Corners, Mounds
from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.errors import BadValue

SCHEDULE = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""After each of these queries out of `SCHEDULED` the share of changed pixels is halved; section 4.1 of the paper."""
SCHEDULED = 10_000
DRAWN_AT_ONCE = 100
"""Queries whose random numbers are drawn together; part of the stream's layout, so a change of it changes results."""


@dataclass(frozen=True)
class Plan:
    """What all searches have in common.

    Args:
        kind: How squares change an image.
        sides: ``(Q,)``, int64, the side of the square of every query.
        reach_edges: See `square`.
    """

    kind: Corners | Mounds
    sides: Tensor
    reach_edges: bool

    def draw(self, query: int, draws: Draws, images: Tensor) -> Chance:
        """Draw what the next queries need."""
        return Chance.draw(draws, self.sides[query : query + DRAWN_AT_ONCE], images, reach_edges=self.reach_edges)


@dataclass(frozen=True)
class Search:
    """Everything that one search holds; one row per image that still stands.

    Args:
        images: ``(N, C, H, W)``, where the budget is centred.
        labels: ``(N,)``, int64, the true classes.
        draws: One stream per image.
        best: ``(N, C, H, W)``, the point with the smallest margin so far.
        margin: ``(N,)``, the label's logit minus the largest other one there.
        chance: The random numbers of the next queries.
        corners: What the kind of change knows of the images; tensors with one row per image.
    """

    images: Tensor
    labels: Tensor
    draws: Draws
    best: Tensor
    margin: Tensor
    chance: Chance
    corners: tuple[Tensor, ...]


def square(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    queries: int = 5000,
    p_init: float = 0.8,
    restarts: int = 1,
    rescale: bool = False,
    reach_edges: bool = True,
) -> Proposals:
    """Random search with square-shaped changes that keeps what lowers the margin.

    Args:
        model: Maps images in [0, 1] to logits ``(N, K)``; it normalises inside.
        images: ``(N, C, H, W)``, float32, in [0, 1].
        labels: ``(N,)``, int64, the true classes.
        budget: What may be changed.
        draws: One stream of random numbers per image.
        queries: Proposals of each restart, after its start.
        p_init: Share of the pixels that the first squares cover, above 0 and at most 1.
        restarts: How many independent searches are tried on what still stands.
        rescale: Whether the squares shrink over ``queries`` instead of over 10,000 queries.
        reach_edges: Whether squares may cover the last row and column; in the authors' code they never do.

    Yields:
        Candidates shaped like ``images``, in [0, 1], within ``budget`` up to rounding.

    Raises:
        BadValue: If ``queries`` or ``restarts`` is below 1, ``p_init`` does not lie in (0, 1], or the images have no rows
            and columns.

    Source:
        Andriushchenko et al. 2020, arXiv:1912.00049, algorithms 1 to 3; in L1 Croce and Hein 2021, arXiv:2103.01208,
        appendix. Constants as in AutoAttack. Deliberate differences from its code: squares are placed for every image by
        itself, they reach the last row and column as in the paper, and images of any size are tiled. Without
        ``reach_edges`` the robust accuracies agree with that code; with it they are lower, the more so on small images.
    """
    if queries < 1 or restarts < 1:
        raise BadValue(f"square: queries and restarts must be at least 1, got {queries} and {restarts}")
    if not 0 < p_init <= 1:
        raise BadValue(f"square: p_init must lie above 0 and be at most 1, got {p_init}")
    if images.ndim != 4:
        raise BadValue(
            f"square: expected images (N, C, H, W), got {tuple(images.shape)}; squares need rows and columns"
        )
    kind = Corners(budget) if budget.norm is Norm.LINF else Mounds(budget)
    shares = [p_init / 2 ** _halvings(query, queries if rescale else SCHEDULED) for query in range(queries)]
    height, width = images.shape[2:]
    sides = torch.tensor([kind.side(math.sqrt(share * height * width), min(height, width)) for share in shares])
    plan = Plan(kind, sides, reach_edges)
    for _ in range(restarts):
        images, labels, draws = yield from _search(model, images, labels, draws, plan)


def _halvings(query: int, total: int) -> int:
    """Return how often the share was halved before a query, when the schedule is spread over a total."""
    return sum(query * SCHEDULED // total > threshold for threshold in SCHEDULE)


def _search(
    model: Classifier, images: Tensor, labels: Tensor, draws: Draws, plan: Plan
) -> Generator[Candidate, Keep, tuple[Tensor, Tensor, Draws]]:
    """Run one restart; return the images, labels and streams that still stand."""
    kind = plan.kind
    start = kind.start(images, draws)
    logits = model.logits(start)
    chance = plan.draw(0, draws, images)
    search = Search(images, labels, draws, start, _margin(logits, labels), chance, kind.corners(images))
    keep = yield Candidate(start, logits)
    search = keep(search)
    for query, side in enumerate(plan.sides.tolist()):
        slot = query % DRAWN_AT_ONCE
        if slot == 0 and query:
            search = replace(search, chance=plan.draw(query, search.draws, search.images))
        points = kind.change(search.images, search.best, search.corners, search.chance, slot, side)
        logits = model.logits(points)
        search = _moved(search, points, _margin(logits, search.labels))
        keep = yield Candidate(points, logits)
        search = keep(search)
    return search.images, search.labels, search.draws


def _moved(search: Search, points: Tensor, margin: Tensor) -> Search:
    """Keep the new points where the margin was never smaller."""
    better = margin < search.margin
    best = torch.where(better.view(-1, 1, 1, 1), points, search.best)
    return replace(search, best=best, margin=torch.where(better, margin, search.margin))


def _margin(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.gather(1, labels.unsqueeze(1)).squeeze(1) - best_other(logits, labels)
