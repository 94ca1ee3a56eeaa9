"""What a stranger's code may do wrong while it runs, and how that is told."""

from __future__ import annotations

import traceback
from contextlib import suppress

import torch
from torch import Tensor

from robustkpca.adversary import Candidate, Classifier, Keep, Proposals

FAULTS = (Exception, SystemExit, GeneratorExit)
"""What a model, an attack or a corruption may raise without ending the run; an interrupt is not among it."""

NOTHING = (
    "the attack proposed nothing for images that stand; expected it to yield Candidate(images), or to return images"
)


def described(error: BaseException) -> str:
    """Return one line: the kind of error, its text, and where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({last.name}, line {last.lineno})"


def last_of(proposals: Proposals, keep: Keep) -> Candidate:
    """Return the last candidate of an attack that is not judged on its way.

    Raises:
        ValueError: If there is none.
    """
    try:
        last = next(proposals)
    except StopIteration:
        raise ValueError(NOTHING) from None
    with suppress(StopIteration):
        while True:
            last = proposals.send(keep)
    return last


def answered(model: Classifier, candidate: Candidate, shape: torch.Size, clean_logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return a candidate's images and what is said of them, by the attack or else by the model, both without a graph.

    Args:
        model: Asked where the attack states no logits.
        candidate: What the attack yielded, whatever it is.
        shape: Of the images that stand.
        clean_logits: ``(N, K)``, of all images; says how many logits are expected.

    Raises:
        TypeError: If it is no candidate.
        ValueError: If its images or logits have another shape.
    """
    if not isinstance(candidate, Candidate) or not isinstance(candidate.images, Tensor):
        got = candidate.images if isinstance(candidate, Candidate) else candidate
        raise TypeError(
            f"the attack proposed a {type(got).__name__}; expected it to yield Candidate(images), or to return images"
        )
    proposed, logits = candidate.images.detach(), candidate.logits
    if proposed.shape != shape:
        raise ValueError(
            f"the attack proposed {tuple(proposed.shape)} where {tuple(shape)} stand; narrow what it holds with what yield "
            "gives back: keep = yield Candidate(images); images = keep(images)"
        )
    if logits is None:
        return proposed, model.logits(proposed)
    wanted = (len(proposed), clean_logits.shape[1])
    if not isinstance(logits, Tensor) or tuple(logits.shape) != wanted or not logits.is_floating_point():
        got = f"{tuple(logits.shape)} {logits.dtype}" if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"the attack states logits {got}; expected {wanted}, floating point, or none at all")
    return proposed, logits.detach().to(clean_logits.device)
