"""The only place that says who won.

An attack proposes candidates; here each is checked (finite, in range, within budget, misclassified), what is broken leaves,
and the attack goes on with the rest. Logits that an attack states spare a pass while it runs, and are believed no further:
what they decided is scored once more at the end. Whatever a model or a plug-in raises is recorded with its text, and the
other shards go on; only that memory is short is left to whoever can make smaller passes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import OutOfMemoryError, Tensor

from robustkpca.adversary import Candidate, Classifier, Keep, Proposals, lifted
from robustkpca.budget import Budget
from robustkpca.draws import Draws
from robustkpca.judgement import Judgement, spread
from robustkpca.meter import MeteredClassifier, margins
from robustkpca.records import Verdict
from robustkpca.strangers import FAULTS, NOTHING, answered, described, last_of

RESCORE_TOLERANCE = 1e-4
"""How far, relative to the spread of the logits, a margin may cross zero when its image is scored once more."""
STATED_TOLERANCE = 0.05
"""How far, relative to the spread of the logits, those that an attack states may differ from those of the model.

Wide enough for half precision and for kernels that differ between passes with and without gradients.
"""


def judge_clean(model: Classifier, images: Tensor, labels: Tensor) -> Judgement:
    """Judge the images as they are: ``SURVIVED``, ``MISTAKEN``, or ``INVALID`` where the output is not finite.

    All are ``FAILED`` where the model raises.

    Raises:
        OutOfMemoryError: If the pass does not fit into memory, which no other pass of this size would.
    """
    meter = MeteredClassifier(model, len(images), images.device, labels)
    failure = ""
    try:
        logits = meter.logits(images)
    except OutOfMemoryError:
        raise
    except FAULTS as error:
        failure = described(error)
        logits = torch.full((len(images), int(labels.max()) + 1), torch.nan, device=images.device)
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
    if failure:
        result.give(torch.arange(len(images)), Verdict.FAILED, failure)
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
    once. Broken images, and survivors by logits that the attack stated, are scored once more at the end; contradictions are
    ``INVALID``.

    Under a budget without a radius nobody leaves for being broken: the closest harmful candidate of each image is kept, and
    its distance tells the robust accuracy at every radius. What nothing harms has an infinite distance.

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
    standing = result.where(Verdict.SURVIVED)
    if not len(standing):
        return result
    result.meter.stand(standing)
    if not inspect.isgeneratorfunction(attack):
        result.meter.watch(images, labels, budget)
    stated = torch.zeros(len(images), dtype=torch.bool, device=images.device)
    judge_candidate = _judge_candidate
    if budget.minimal:
        judge_candidate, result.distances[standing] = _judge_distance, torch.inf
    images, labels = images[standing], labels[standing]
    proposals: Proposals | None = None
    keep: Keep | None = None
    try:
        proposals = lifted(attack)(
            result.meter, images.clone(), labels.clone(), budget=budget, draws=draws.narrow(standing), **options
        )
        while len(standing):
            candidate = next(proposals) if keep is None else proposals.send(keep)
            keep = judge_candidate(result, candidate, standing, images, labels, budget)
            stated[standing] = candidate.logits is not None
            if keep.index is not None:
                standing, images, labels = keep(standing, images, labels)
                result.meter.stand(standing)
    except StopIteration:
        if keep is None:
            result.give(standing, Verdict.FAILED, NOTHING)
    except OutOfMemoryError:  # smaller passes may do
        raise
    except FAULTS as error:
        result.give(standing, Verdict.FAILED, described(error))
    if proposals is not None:
        with suppress(*FAULTS):  # everything is decided by now
            proposals.close()
    _second_look(model, result, stated)
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
    everyone = torch.arange(len(images))
    if Verdict.FAILED in result.verdicts:
        return result
    predictions = result.clean_logits.argmax(1)
    try:
        proposals = lifted(attack)(result.meter, images.clone(), predictions, budget=budget, draws=draws, **options)
        last = last_of(proposals, Keep(torch.ones(len(images), dtype=torch.bool, device=images.device)))
        proposed, logits = answered(result.meter, last, images.shape, result.clean_logits)
        result.distances = budget.distance(proposed, images).float()
        own = logits if last.logits is None else model.logits(proposed)
        _compare(result, proposed, own, budget.allows(proposed, images))
        if last.logits is not None:
            _refuse_stated(model, result, everyone, logits, own)
    except OutOfMemoryError:  # smaller passes may do
        raise
    except FAULTS as error:
        result.give(everyone, Verdict.FAILED, described(error))
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
        rows = rows[part.where(Verdict.SURVIVED).cpu()]
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
    try:
        if Verdict.FAILED not in result.verdicts:
            _compare(result, changed, result.meter.logits(changed), torch.ones_like(labels, dtype=torch.bool))
    except OutOfMemoryError:  # smaller passes may do
        raise
    except FAULTS as error:
        result.give(torch.arange(len(images)), Verdict.FAILED, described(error))
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
    except OutOfMemoryError:  # smaller passes may do
        raise
    except FAULTS as error:
        result = judge_clean(model, images, labels)
        result.give(torch.arange(len(images)), Verdict.FAILED, described(error))
        return result
    return judge_change(model, images, changed.to(images.dtype) / 255, labels)


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
    proposed, logits = answered(result.meter, candidate, images.shape, result.clean_logits)
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


def _judge_distance(
    result: Judgement, candidate: Candidate, standing: Tensor, images: Tensor, labels: Tensor, budget: Budget
) -> Keep:
    """Keep a candidate where it harms and is closer than those before; return who can be judged on."""
    proposed, logits = answered(result.meter, candidate, images.shape, result.clean_logits)
    distances = budget.distance(proposed, images).to(result.distances.dtype)
    valid = logits.isfinite().all(1) & budget.allows(proposed, images, distances)
    closer = valid & (logits.argmax(1) != labels) & (distances < result.distances[standing])
    here = standing[closer]
    result.images[here] = proposed[closer].to(result.images.dtype)
    result.logits[here] = logits[closer].to(result.logits.dtype)
    result.distances[here] = distances[closer]
    result.give(here, Verdict.BROKEN)
    result.give(standing[~valid], Verdict.INVALID, "a candidate's output is not finite, or it lies outside [0, 1]")
    return Keep(valid)


def _second_look(model: Classifier, result: Judgement, stated: Tensor) -> None:
    """Score once more what is broken, and what survived by logits that the attack stated ``(N,)``, bool.

    A verdict that does not stand again proves that something is unstable, or that the attack is not to be believed.
    """
    broken, survived = result.where(Verdict.BROKEN), result.where(Verdict.SURVIVED)
    survived = survived[stated[survived]]
    rows = torch.cat([broken, survived])
    if not len(rows):
        return
    try:
        own = model.logits(result.images[rows])
        said, result.logits[rows] = result.logits[rows], own.to(result.logits.dtype)
        lead, slack = margins(own, result.labels[rows]), RESCORE_TOLERANCE * spread(own)
        first = torch.arange(len(rows), device=rows.device) < len(broken)
        recovered, lost = first & ~(lead <= slack), ~first & ~(lead >= -slack)
        result.give(rows[recovered], Verdict.INVALID, "scored once more, the broken image is classified correctly")
        result.give(rows[lost], Verdict.INVALID, "scored once more, the surviving image is not classified correctly")
        standing = ~first & ~lost
        _refuse_stated(model, result, rows[standing], said[standing], own[standing])
    except OutOfMemoryError:  # smaller passes may do
        raise
    except FAULTS as error:
        result.give(rows, Verdict.FAILED, described(error))


def _refuse_stated(model: Classifier, result: Judgement, rows: Tensor, said: Tensor, own: Tensor) -> None:
    """Give ``INVALID`` where an attack states logits ``(M, K)`` that the model does not give, though it repeats its own."""
    strays = ~((said - own).abs().amax(1) <= STATED_TOLERANCE * spread(own)) & own.isfinite().all(1)
    rows, own = rows[strays.to(rows.device)], own[strays]
    if not len(rows):
        return
    again = model.logits(result.images[rows])
    same = (again - own).abs().amax(1) <= RESCORE_TOLERANCE * spread(own)
    result.give(rows[same.to(rows.device)], Verdict.INVALID, "the logits that the attack states are not the model's")
