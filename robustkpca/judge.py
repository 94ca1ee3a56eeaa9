"""The only place that says who won.

An attack proposes candidates; here each is checked (finite, in range, within budget, misclassified), what is broken leaves,
and the attack goes on with the rest.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Keep, Proposals, lifted
from robustkpca.budget import Budget
from robustkpca.draws import Draws
from robustkpca.errors import UserError
from robustkpca.meter import MeteredClassifier, margins
from robustkpca.records import Verdict

RESCORE_TOLERANCE = 1e-4
"""How far, relative to the spread of the logits, a broken image's margin may recover when it is scored once more."""


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


def judge_clean(model: Classifier, images: Tensor, labels: Tensor) -> Judgement:
    """Judge the images as they are: ``SURVIVED``, ``MISTAKEN``, or ``INVALID`` where the output is not finite."""
    meter = MeteredClassifier(model, len(images), images.device, labels)
    logits = meter.logits(images)
    right = logits.argmax(1) == labels
    finite = logits.isfinite().all(1)
    result = Judgement(
        labels,
        images.clone(),
        logits,
        logits.clone(),
        [Verdict.SURVIVED if correct else Verdict.MISTAKEN for correct in right.tolist()],
        torch.zeros(len(images), dtype=torch.float32, device=images.device),
        meter,
        [""] * len(images),
    )
    result.give((~finite).nonzero().squeeze(1), Verdict.INVALID, "the model's output for the clean image is not finite")
    return result


def judge_attack(
    model: Classifier,
    attack: Callable[..., Any],
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    **options: Any,
) -> Judgement:
    """Run an attack under the ``pixel`` protocol.

    Only what is classified correctly is attacked. Every candidate is judged; what breaks, or cannot be judged, leaves at
    once. Broken images are scored once more at the end, and contradictions are ``INVALID``.

    Args:
        model: Maps images in [0, 1] to logits.
        attack: A generator of candidates, or a function that returns images.
        images: ``(N, C, H, W)``, in [0, 1].
        labels: ``(N,)``, int64, true classes.
        budget: What the attack may change.
        draws: One stream per image.
        options: Further arguments of the attack.
    """
    result = judge_clean(model, images, labels)
    standing = torch.tensor([verdict is Verdict.SURVIVED for verdict in result.verdicts], device=images.device)
    standing = standing.nonzero().squeeze(1)
    if not len(standing):
        return result
    result.meter.stand(standing)
    if not inspect.isgeneratorfunction(attack):
        result.meter.watch(images, labels, budget)
    images, labels = images[standing], labels[standing]
    proposals: Proposals | None = None
    keep: Keep | None = None
    try:
        proposals = lifted(attack)(
            result.meter, images.clone(), labels.clone(), budget=budget, draws=draws.narrow(standing), **options
        )
        while len(standing):
            candidate = next(proposals) if keep is None else proposals.send(keep)
            keep = _judge_candidate(result, candidate, standing, images, labels, budget)
            if keep.index is not None:
                standing, images, labels = keep(standing, images, labels)
                result.meter.stand(standing)
    except StopIteration:
        pass
    except UserError:
        raise
    except Exception as error:  # whatever a plug-in does wrong is recorded with its text; the other shards go on
        result.give(standing, Verdict.FAILED, _describe(error))
    finally:
        if proposals is not None:
            proposals.close()
    _rescore(model, result)
    return result


def judge_published(
    model: Classifier,
    attack: Callable[..., Any],
    images: Tensor,
    labels: Tensor,
    *,
    budget: Budget,
    draws: Draws,
    **options: Any,
) -> Judgement:
    """Run an attack under the ``published`` protocol.

    Every image is attacked against the model's own prediction, nothing is withdrawn, and only the last candidate is
    compared with the true labels. An image that was misclassified and is classified correctly afterwards counts as
    ``SURVIVED``, as it did in the published tables.

    Args:
        model: Maps normalised images to logits.
        attack: A generator of candidates, or a function that returns images.
        images: ``(N, C, H, W)``, normalised.
        labels: ``(N,)``, int64, true classes.
        budget: In normalised units, without bounds.
        draws: One stream per image.
        options: Further arguments of the attack.

    Source:
        KPCA_code Attack/engine.py. Deliberate difference: the final prediction is made in the precision of the model, not
        under float16 autocast.
    """
    result = judge_clean(model, images, labels)
    everyone = torch.ones(len(images), dtype=torch.bool, device=images.device)
    predictions = result.clean_logits.argmax(1)
    try:
        proposals = lifted(attack)(result.meter, images.clone(), predictions, budget=budget, draws=draws, **options)
        last = _last(proposals, Keep(everyone))
        if last is not None:
            proposed, logits = _answered(result.meter, last, images.shape)
            result.distances = budget.distance(proposed, images).float()
            _compare(result, proposed, logits, budget.allows(proposed, images))
    except UserError:
        raise
    except Exception as error:  # see judge_attack
        result.give(everyone.nonzero().squeeze(1), Verdict.FAILED, _describe(error))
    return result


def judge_in_turn(judges: Iterable[Callable[[Tensor], Judgement]], count: int) -> Judgement:
    """Judge what each judge leaves standing by the next one.

    A sample survives if it survives every one of them; the first that does not leave it standing decides. The image of a
    survivor is the last one's.

    Args:
        judges: At least one; each gives a judgement of the images at the positions ``(M,)``, int64, that it is asked about.
        count: How many images there are.
    """
    result: Judgement | None = None
    rows = torch.arange(count)
    for judge in judges:
        if result is not None and not len(rows):
            break
        part = judge(rows)
        if result is None:
            result = part
        else:
            result.take(rows.to(result.labels.device), part)
        rows = rows[torch.tensor([verdict is Verdict.SURVIVED for verdict in part.verdicts], dtype=torch.bool)]
    assert result is not None
    return result


def judge_change(model: Classifier, images: Tensor, changed: Tensor, labels: Tensor) -> Judgement:
    """Judge images that were changed without looking at the model, such as corrupted ones.

    ``SURVIVED`` is what is classified correctly after the change, whatever it was before.

    Args:
        model: Maps images in [0, 1] to logits.
        images: ``(N, C, H, W)`` before the change.
        changed: The same images after it.
        labels: ``(N,)``, int64, true classes.
    """
    result = judge_clean(model, images, labels)
    _compare(result, changed, result.meter.logits(changed), torch.ones_like(labels, dtype=torch.bool))
    return result


def judge_corruption(
    model: Classifier, corruption: Callable[[Tensor], Any], images: Tensor, labels: Tensor
) -> Judgement:
    """Corrupt images and judge them as `judge_change` does; ``FAILED`` where the corruption raises or gives no images.

    Args:
        model: Maps images in [0, 1] to logits.
        corruption: Maps images ``(N, C, H, W)``, uint8, to others.
        images: ``(N, C, H, W)``, in [0, 1].
        labels: ``(N,)``, int64, true classes.
    """
    pixels = (images * 255).round().to(torch.uint8)
    try:
        changed = corruption(pixels)
        if not isinstance(changed, Tensor) or (changed.shape, changed.dtype) != (pixels.shape, pixels.dtype):
            kind = f"{tuple(changed.shape)} {changed.dtype}" if isinstance(changed, Tensor) else type(changed).__name__
            raise ValueError(f"the corruption gave {kind} for {tuple(pixels.shape)} {pixels.dtype}")
    except UserError:
        raise
    except Exception as error:  # see judge_attack
        result = judge_clean(model, images, labels)
        result.give(torch.arange(len(images)), Verdict.FAILED, _describe(error))
        return result
    return judge_change(model, images, changed.to(images.dtype) / 255, labels)


def _last(proposals: Proposals, keep: Keep) -> Candidate | None:
    last = None
    try:
        last = next(proposals)
        while True:
            last = proposals.send(keep)
    except StopIteration:
        return last


def _answered(model: Classifier, candidate: Candidate, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Return a candidate's images and what the model says of them, both without a graph."""
    if not isinstance(candidate, Candidate) or not isinstance(candidate.images, Tensor):
        got = candidate.images if isinstance(candidate, Candidate) else candidate
        raise TypeError(
            f"the attack proposed a {type(got).__name__}; expected it to yield Candidate(images), or to return images"
        )
    proposed = candidate.images.detach()
    if proposed.shape != shape:
        raise ValueError(
            f"the attack proposed {tuple(proposed.shape)} where {tuple(shape)} stand; narrow what it holds with what yield "
            "gives back: keep = yield Candidate(images); images = keep(images)"
        )
    logits = model.logits(proposed) if candidate.logits is None else candidate.logits
    return proposed, logits.detach()


def _compare(result: Judgement, images: Tensor, logits: Tensor, allowed: Tensor) -> None:
    """Give verdicts by one final image per sample."""
    result.images, result.logits = images, logits
    valid = logits.isfinite().all(1) & result.clean_logits.isfinite().all(1) & allowed
    right = logits.argmax(1) == result.labels
    was_right = result.clean_logits.argmax(1) == result.labels
    result.give((valid & right).nonzero().squeeze(1), Verdict.SURVIVED)
    result.give((valid & ~right & was_right).nonzero().squeeze(1), Verdict.BROKEN)
    result.give((valid & ~right & ~was_right).nonzero().squeeze(1), Verdict.MISTAKEN)
    result.give(
        (~valid).nonzero().squeeze(1), Verdict.INVALID, "the output is not finite, or the image outside its budget"
    )


def _judge_candidate(
    result: Judgement, candidate: Candidate, standing: Tensor, images: Tensor, labels: Tensor, budget: Budget
) -> Keep:
    """Judge one candidate for everyone standing, whose images and labels these are; return who stays."""
    proposed, logits = _answered(result.meter, candidate, images.shape)
    distances = budget.distance(proposed, images)
    allowed = budget.allows(proposed, images, distances)  # never where the distance is not finite
    finite, right = logits.isfinite().all(1), logits.argmax(1) == labels
    keep = Keep(finite & allowed & right)
    for kept, news in ((result.images, proposed), (result.logits, logits), (result.distances, distances)):
        if len(standing) == len(kept):
            kept.copy_(news)
        else:
            kept[standing] = news.to(kept.dtype)
    if keep.index is not None:
        finite &= distances.isfinite()
        result.give(standing[finite & allowed & ~right], Verdict.BROKEN)
        result.give(standing[~finite], Verdict.INVALID, "a candidate or the model's output for it is not finite")
        result.give(standing[finite & ~allowed], Verdict.INVALID, f"a candidate lies outside {budget} or [0, 1]")
    return keep


def _rescore(model: Classifier, result: Judgement) -> None:
    """Score the broken images once more; one that is classified correctly now proves that something is unstable."""
    broken = (
        torch.tensor([v is Verdict.BROKEN for v in result.verdicts], device=result.images.device).nonzero().squeeze(1)
    )
    if not len(broken):
        return
    logits = model.logits(result.images[broken])
    slack = RESCORE_TOLERANCE * (logits.amax(1) - logits.amin(1)).clamp_min(1)
    recovered = ~(margins(logits, result.labels[broken]) <= slack)
    result.give(broken[recovered], Verdict.INVALID, "scored once more, the broken image is classified correctly")


def _describe(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.name}, line {last.lineno})"
