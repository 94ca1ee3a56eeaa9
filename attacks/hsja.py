"""HopSkipJump: a walk along the decision boundary that sees nothing but decisions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Proposals, narrow
from robustkpca.attacks.allowed import allowed
from robustkpca.attacks.boundary import Decider, bisected, distance, estimate, wide
from robustkpca.budget import Budget, Norm
from robustkpca.draws import Draws
from robustkpca.errors import BadValue

BLEND = 0.001
"""How exactly the first random image is blended with the original."""

FIRST_DELTA = 0.1
"""L2 length of the first random directions, in widths of the box."""

HALVINGS = 60
"""A step that has been halved this often moves no float32 pixel any more."""


@dataclass(frozen=True)
class Options:
    """What the attacks of this file have in common; see `hsja`.

    Args:
        iterations: See `hsja`.
        initial_evaluations: See `hsja`.
        most_evaluations: See `hsja`.
        tries: See `hsja`.
        finest_search: Shortest interval of the search for the boundary, as a share of the distance.
        finest_delta: Smallest mean change of a pixel by a random direction.
    """

    iterations: int
    initial_evaluations: int
    most_evaluations: int
    tries: int
    finest_search: float = 0.0
    finest_delta: float = 0.0

    def __post_init__(self) -> None:
        for name in ("iterations", "initial_evaluations", "most_evaluations", "tries"):
            if getattr(self, name) < 1:
                raise BadValue(f"hsja: {name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class Walk:
    """Everything that the attack holds; one row per image that still stands.

    Args:
        images: ``(N, C, H, W)``, unchanged.
        labels: ``(N,)``, int64, the classes to be left.
        clean_logits: ``(N, K)`` of the images.
        draws: One stream of random numbers per image.
        points: ``(N, C, H, W)``, on the harmful side of the boundary and close to it; the image where there is no start.
        logits: ``(N, K)`` of the points.
        before: ``(N,)``, how far the point was before it was moved back to the boundary.
        started: ``(N,)``, bool, whether a harmful image was found to start from.
    """

    images: Tensor
    labels: Tensor
    clean_logits: Tensor
    draws: Draws
    points: Tensor
    logits: Tensor
    before: Tensor
    started: Tensor

    @classmethod
    def before_start(cls, images: Tensor, labels: Tensor, clean_logits: Tensor, draws: Draws) -> Walk:
        """Return a walk that has no starting point yet."""
        nowhere = torch.zeros_like(labels, dtype=torch.bool)
        return cls(images, labels, clean_logits, draws, images, clean_logits, images.new_zeros(len(images)), nowhere)

    def updated(self, rows: Tensor, part: Walk) -> Walk:
        """Return the walk with what has become of the images at these positions ``(M,)``."""
        self.draws.calls = part.draws.calls
        return replace(
            self,
            points=self.points.index_copy(0, rows, part.points),
            logits=self.logits.index_copy(0, rows, part.logits),
            before=self.before.index_copy(0, rows, part.before),
        )


def hsja(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    iterations: int = 64,
    initial_evaluations: int = 100,
    most_evaluations: int = 10000,
    tries: int = 1000,
) -> Proposals:
    """HopSkipJump: estimate the normal of the boundary from decisions, step along it, and come back to the boundary.

    Args:
        model: Maps images in [0, 1] to logits ``(N, K)``; only the largest is looked at.
        images: ``(N, C, H, W)``, float32, in [0, 1].
        labels: ``(N,)``, int64, the true classes.
        budget: What may be changed, in L-infinity or L2. The walk does not know the radius; only points within it are
            proposed.
        draws: One stream of random numbers per image.
        iterations: Steps along the boundary.
        initial_evaluations: Queries for the first normal; later ones get more, with the root of the iteration.
        most_evaluations: Most queries for one normal.
        tries: Random images that are tried as a start. An image without a start survives.

    Yields:
        Candidates shaped like ``images``, in [0, 1], within ``budget`` up to rounding; the unchanged image where the
        current point lies outside.

    Raises:
        BadValue: If the budget is L1, or an option is below 1.

    Source:
        Chen, Jordan and Wainwright 2020, arXiv:1904.02144, algorithms 1 and 2. Deliberate difference: in large images the
        searches stop, and the random directions stay, well above what float32 resolves.
    """
    if budget.norm is Norm.L1:
        raise BadValue("hsja: the budget must be linf or l2, got l1; write 'hsja@l2:0.5'")
    options = Options(
        iterations, initial_evaluations, most_evaluations, tries, finest_search=2**-20, finest_delta=2**-16
    )
    walk = Walk.before_start(images, labels, model.logits(images), draws)
    yield from _walk(
        model, walk, budget.norm, options, lambda w: allowed(w.points, w.logits, w.images, w.clean_logits, budget)
    )


def published_hsja(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    iterations: int = 64,
    initial_evaluations: int = 100,
    most_evaluations: int = 10000,
    tries: int = 10000,
) -> Proposals:
    """HopSkipJump, as the published evaluation called it.

    Its faults are kept. The distance is L2 whatever norm is asked for; decisions are made about the normalised image clipped
    to [0, 1], but what is handed back is not clipped.

    Args:
        model: Maps normalised images to logits ``(N, K)``; only the largest is looked at.
        images: ``(N, C, H, W)``, float32, normalised.
        labels: ``(N,)``, int64, the model's predictions on ``images``.
        budget: Not used by the attack, which has no radius. The judge refuses what lies outside, so it must be large.
        draws: One stream of random numbers per image.
        iterations: Steps along the boundary. The dump of March 2024 has 1.
        initial_evaluations: Queries for the first normal; later ones get more, with the root of the iteration.
        most_evaluations: Most queries for one normal.
        tries: Random images that are tried as a start.

    Yields:
        Images shaped like ``images``, one after every iteration.

    Raises:
        BadValue: If an option is below 1.

    Source:
        cleverhans 4, ``hop_skip_jump_attack`` with ``constraint=2``, as called by KPCA_code Attack/engine.py. Deliberate
        differences: an image without a start stays as it is, where the reference ends with an error; a search that float32
        cannot resolve stops, where the reference does not return.
    """
    options = Options(iterations, initial_evaluations, most_evaluations, tries)
    walk = Walk.before_start(images, labels, model.logits(images), draws)
    yield from _walk(model, walk, Norm.L2, options, lambda w: Candidate(w.points))


def _walk(
    model: Classifier, walk: Walk, norm: Norm, options: Options, propose: Callable[[Walk], Candidate]
) -> Proposals:
    walk = _with_start(Decider(model, walk.labels), walk, options)
    for iteration in range(options.iterations + 1):
        rows = walk.started.nonzero().squeeze(1)
        if not len(rows):
            break
        decide, part = Decider(model, walk.labels), narrow(walk, rows)
        if iteration:
            part = _step(decide, part, rows, norm, iteration, options)
        walk = walk.updated(rows, _at_boundary(decide, part, rows, norm, options))
        keep = yield propose(walk)
        walk = keep(walk)
    if not len(rows):
        yield propose(walk)


def _with_start(decide: Decider, walk: Walk, options: Options) -> Walk:
    """Look for misclassified noise, and blend it with the image as far as it stays misclassified."""
    images, draws = walk.images, walk.draws
    noise, said, found = images.clone(), walk.logits.clone(), torch.zeros_like(walk.started)
    for attempt in range(options.tries):
        rows = (~found).nonzero().squeeze(1)
        if not len(rows):
            break
        mine = replace(draws.narrow(rows), calls=draws.calls + attempt)
        queries = mine.uniform(images.shape[1:], images)
        harmful, answers = decide(queries, rows)
        here = rows[harmful]
        noise[here], said[here], found[here] = queries[harmful], answers[harmful], True
    draws.calls += options.tries  # as if all had been needed, so that the numbers do not depend on the batch
    rows = found.nonzero().squeeze(1)
    accuracy = torch.full_like(walk.before[rows], BLEND)
    points, logits = bisected(decide, images[rows], noise[rows], said[rows], rows, Norm.L2, accuracy)
    started = replace(walk, started=found)
    return started.updated(rows, replace(narrow(started, rows), points=points, logits=logits))


def _at_boundary(decide: Decider, walk: Walk, rows: Tensor, norm: Norm, options: Options) -> Walk:
    """Move harmful points towards their images until they are about to be harmless."""
    size = walk.images[0].numel()
    before = distance(walk.points, walk.images, norm)
    finest = max(size**-1.5 if norm is Norm.L2 else size**-2.0, options.finest_search)
    accuracy = finest * (torch.ones_like(before) if norm is Norm.L2 else before.clamp_max(1))
    points, logits = bisected(decide, walk.images, walk.points, walk.logits, rows, norm, accuracy)
    return replace(walk, points=points, logits=logits, before=before)


def _step(decide: Decider, walk: Walk, rows: Tensor, norm: Norm, iteration: int, options: Options) -> Walk:
    """Step along the estimated normal of the boundary, half as far until the point is harmful."""
    size = walk.images[0].numel()
    delta = walk.before / size if iteration > 1 else torch.full_like(walk.before, FIRST_DELTA)
    delta = delta.clamp_min(options.finest_delta * math.sqrt(size))
    evaluations = int(min(options.initial_evaluations * math.sqrt(iteration), options.most_evaluations))
    normal = estimate(decide, walk.points, walk.draws, rows, delta, evaluations, norm)
    direction = normal.sign() if norm is Norm.LINF else normal
    length = distance(walk.points, walk.images, norm) / math.sqrt(iteration)
    points, logits = walk.points.clone(), walk.logits.clone()
    which = torch.arange(len(rows), device=rows.device)
    for _ in range(HALVINGS):
        if not len(which):
            break
        queries = (walk.points[which] + wide(length[which], points) * direction[which]).clamp(0, 1)
        harmful, answers = decide(queries, rows[which])
        points[which[harmful]], logits[which[harmful]] = queries[harmful], answers[harmful]
        which, length = which[~harmful], length / 2
    return replace(walk, points=points, logits=logits)
