"""Square Attack: a random search that changes one square of the image at a time and looks at logits alone."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Keep, Proposals
from robustkpca.attacks.losses import best_other
from robustkpca.attacks.queries import blocks
from robustkpca.attacks.square_changes import Chance, Corners, Mounds
from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.errors import BadValue

SCHEDULE = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""After each of these queries out of `SCHEDULED` the share of changed pixels is halved; section 4.1 of the paper."""
SCHEDULED = 10_000
DRAWN_AT_ONCE = 100
"""Queries whose random numbers are drawn together; part of the stream's layout, so a change of it changes results."""

PATIENCE = 8
"""An image looks one more query ahead for every so many that did not help; one in about fifteen is then asked in vain."""
FARTHEST = 16
"""Most queries that an image looks ahead, itself included."""


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

    def stretches(self) -> Iterator[tuple[int, int, int]]:
        """Yield the first query and the end of every stretch that shares its side and its drawing, and the side."""
        sides = self.sides.tolist()
        start = 0
        for query in range(1, len(sides) + 1):
            if query == len(sides) or sides[query] != sides[start] or query % DRAWN_AT_ONCE == 0:
                yield start, query, sides[start]
                start = query


@dataclass(frozen=True)
class Search:
    """Everything that one search holds; one row per image that still stands.

    Args:
        images: ``(N, C, H, W)``, where the budget is centred.
        labels: ``(N,)``, int64, the true classes.
        draws: One stream per image.
        best: ``(N, C, H, W)``, the point with the smallest margin so far.
        logits: ``(N, K)`` there.
        quiet: ``(N,)``, int64, how many queries in a row did not lower the margin.
        query: ``(N,)``, int64, the next query.
        chance: The random numbers of the next queries.
        corners: What the kind of change knows of the images; tensors with one row per image.
    """

    images: Tensor
    labels: Tensor
    draws: Draws
    best: Tensor
    logits: Tensor
    quiet: Tensor
    query: Tensor
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
        queries: Proposals of each restart, after its start. A few more are asked in vain, see `FARTHEST`.
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
    start, none = kind.start(images, draws), torch.zeros_like(labels)
    logits = model.logits(start)
    search = Search(images, labels, draws, start, logits, none, none, plan.draw(0, draws, images), kind.corners(images))
    keep = yield Candidate(start, logits)
    search = keep(search)
    for first, end, side in plan.stretches():
        if first and first % DRAWN_AT_ONCE == 0:
            search = replace(search, chance=plan.draw(first, search.draws, search.images))
        while bool((search.query < end).any()):
            search, candidate = _looked_ahead(model, search, kind, end, side)
            keep = yield candidate
            search = keep(search)
    return search.images, search.labels, search.draws


def _looked_ahead(
    model: Classifier, search: Search, kind: Corners | Mounds, end: int, side: int
) -> tuple[Search, Candidate]:
    """Ask the next queries of every image at once, up to the first that lowers its margin.

    The queries after that one were asked in vain: they start from a point that is no longer the best. The search is the same
    as with one query at a time, and what an image asks depends on itself alone.
    """
    ahead = (1 + search.quiet // PATIENCE).clamp_max(FARTHEST).minimum(end - search.query)
    tried, said = search.best.clone(), search.logits.clone()
    moved, taken = torch.zeros_like(ahead, dtype=torch.bool), ahead.clone()
    for block in blocks(len(ahead), FARTHEST * search.images[0].numel(), ahead.device):
        rows = block.repeat_interleave(ahead[block])
        if not len(rows):
            continue
        offset = torch.arange(len(rows), device=rows.device)
        begins = ahead[block].cumsum(0) - ahead[block]
        offset = offset - begins.repeat_interleave(ahead[block])
        chance = search.chance.at(rows, (search.query[rows] + offset) % DRAWN_AT_ONCE)
        corners = tuple(corner[rows] for corner in search.corners)
        points = kind.change(search.images[rows], search.best[rows], corners, chance, side)
        logits = model.logits(points, rows=rows)
        better = _margin(logits, search.labels[rows]) < _margin(search.logits, search.labels)[rows]
        asked = torch.where(better, offset, FARTHEST)
        hit = torch.full_like(ahead, FARTHEST).scatter_reduce(0, rows, asked, "amin")[block]
        moved[block] = hit < FARTHEST
        taken[block] = torch.where(hit < FARTHEST, hit + 1, ahead[block])
        active = block[ahead[block] > 0]
        chosen = (begins + taken[block] - 1)[ahead[block] > 0]
        tried[active], said[active] = points[chosen], logits[chosen]
    wide = moved.view(-1, 1, 1, 1)
    after = replace(
        search,
        best=torch.where(wide, tried, search.best),
        logits=torch.where(moved.unsqueeze(1), said, search.logits),
        quiet=torch.where(moved, 0, search.quiet + taken),
        query=search.query + taken,
    )
    return after, Candidate(tried, said)


def _margin(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.gather(1, labels.unsqueeze(1)).squeeze(1) - best_other(logits, labels)
