"""The checks that keep a misleading row out of a table; all of them before the first gradient step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robustkpca.adversary import Keep, Loss, cross_entropy, lifted
from robustkpca.budget import Budget
from robustkpca.draws import Draws
from robustkpca.errors import Unusable, UserError
from robustkpca.indicators import Flag
from robustkpca.judgement import spread
from robustkpca.models.classifier import TorchClassifier
from robustkpca.records import Verdict
from robustkpca.specs import ModelSpec
from robustkpca.statistics import wilson
from robustkpca.strangers import FAULTS, described
from robustkpca.threats import ThreatModel

if TYPE_CHECKING:  # annotations only
    import pandas

CHECKED = 8
"""How many images the checks look at."""
ROUNDING = torch.finfo(torch.float32).eps
AGREEMENT = 1e-3
"""The largest part of the spread of an image's logits by which two passes on it may differ, beyond rounding."""
COARSE = 1e-3
"""The largest part of the spread of an image's logits that rounding may take."""
TELLING = 50
"""From how many samples on an accuracy can look like guessing."""


class Misleading(Unusable):
    """A model whose output is of the wrong kind, so that attacks on it would fail and look like robustness."""


def check_model(model: TorchClassifier, images: Tensor, classes: int | None = None) -> list[str]:
    """Check what a model makes of a few images of the data set.

    Args:
        model: In whatever mode; it is the same afterwards.
        images: ``(N, C, H, W)``, float32, in [0, 1]; a few suffice.
        classes: Classes of the data set, ``None`` where unknown.

    Returns:
        Remarks that belong in the header of every shard, such as ``random output``.

    Raises:
        Unusable: If the model cannot take the images, gives no finite logits, gives probabilities, has another number of
            classes than the data, normalises another number of
            channels, or normalises twice.
    """
    name = model.spec.label
    images = images[:CHECKED].to(model.device)
    _check_normalisation(model, images)
    with model.evaluating():
        try:
            logits = model.logits(images)
        except FAULTS as error:  # whatever the network says against the images
            shape = "x".join(map(str, images.shape[1:]))
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            if isinstance(error, UserError) and name in reason:
                raise
            raise Unusable(
                f"model {name} cannot take images of {shape} (channels x height x width): {reason}. "
                f"Its preprocessing is {model.spec.preprocessing}; change it with --preprocessing"
            ) from error
        state = _generator(model.device)
        again = model.logits(images)
        drew = not torch.equal(state, _generator(model.device))
    if not bool(logits.isfinite().all()):
        raise Misleading(
            f"model {name} gives NaN or infinite logits for clean images; expected finite logits. Are the weights whole?"
        )
    if logits.shape[1] == 1:
        raise Unusable(f"model {name} has one output; expected a logit for each of at least two classes")
    if classes is not None and logits.shape[1] != classes:
        counted = "If the labels count from 1, subtract 1. Otherwise load" if logits.shape[1] == classes - 1 else "Load"
        raise Unusable(
            f"model {name} has {logits.shape[1]} outputs, the data set {classes} classes; "
            f"expected the same number. {counted} the model with num_classes={classes}, choose other data, or give "
            f"--classes {logits.shape[1]} where the data only lack samples of the last classes"
        )
    sums = logits.double().sum(1)
    if bool(((logits >= 0).all(1) & ((sums - 1).abs() < 1e-3)).all()):
        raise Misleading(f"model {name} gives probabilities; expected logits. Remove its final softmax")
    remarks: list[str] = []
    if drew or not torch.equal(logits, again):
        remarks.append(
            str(Flag("random output", "a second pass gives other logits and one pass does not settle a verdict"))
        )
    else:
        with model.evaluating():
            remarks += _check_company(model, images, logits) + _check_gradients(model, images, logits)
    if bool((logits.abs().amax(1) * ROUNDING > COARSE * (logits.amax(1) - logits.amin(1))).any()):
        size = f"{float(logits.abs().max()):.0e}"
        remarks.append(str(Flag("coarse logits", f"values near {size} leave float32 few differences")))
    return remarks


def _check_company(model: TorchClassifier, images: Tensor, logits: Tensor) -> list[str]:
    """Return a remark if the logits of an image depend on which others are in its pass."""
    company = torch.cat([images[:1], 1 - images])[: max(2, len(images))]
    if _agree(model.logits(images[:1]), logits[:1], model) and _agree(model.logits(company)[:1], logits[:1], model):
        return []
    return [str(Flag("context output", "the logits of an image change with its company in a pass"))]


def _check_gradients(model: TorchClassifier, images: Tensor, logits: Tensor) -> list[str]:
    """Return a remark if there are no gradients, or if the model answers otherwise when they are asked for."""
    try:
        said, _ = model.value_and_gradient(images, cross_entropy(logits.argmax(1)))
    except FAULTS as error:
        return [f"no gradients, which most attacks need: {described(error).replace('; ', ', ')}"]
    if _agree(said, logits, model):
        return []
    return [str(Flag("context output", "the logits of an image change when gradients are asked for"))]


def _agree(logits: Tensor, others: Tensor, model: TorchClassifier) -> bool:
    """Tell whether the logits ``(N, K)`` of two passes are equal up to rounding."""
    slack = max(AGREEMENT, 16 * torch.finfo(model.dtype).eps) * spread(others)
    return bool(((logits - others).abs().amax(1) <= slack).all())


def _generator(device: torch.device) -> Tensor:
    """Return the state of the generator that a model draws from where it draws."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _check_normalisation(model: TorchClassifier, images: Tensor) -> None:
    """Refuse images of another number of channels, and a network that holds the very mean that is subtracted already."""
    mean = model.spec.preprocessing.mean
    if not mean:
        return
    if images.ndim != 4 or images.shape[1] != len(mean):
        raise Unusable(
            f"model {model.spec.label} normalises {len(mean)} channels, the images are {tuple(images.shape)}; "
            f"expected (N, {len(mean)}, H, W)"
        )
    wanted = torch.tensor(mean, dtype=torch.float64)
    for name, buffer in model.network.named_buffers():
        if buffer.numel() == len(mean) and torch.allclose(buffer.detach().double().cpu().flatten(), wanted, atol=1e-3):
            raise Unusable(
                f"model {model.spec.label} would normalise twice: its buffer {name!r} holds the mean of its preprocessing. "
                "Drop one of them, for instance with --preprocessing 'mean=[],std=[]'"
            )


def untrained(spec: ModelSpec) -> list[str]:
    """Return a remark for the header where a network of ours, timm or torchvision has no weights but its initial ones."""
    ours = spec.code.startswith(("robustkpca==", "timm==", "torchvision=="))
    fetched = "pretrained=true" in spec.name or "weights=" in spec.name
    return ["initial weights: no checkpoint was given"] if ours and not spec.checkpoint and not fetched else []


def guessed(frame: pandas.DataFrame) -> list[str]:
    """Return a remark for each model whose clean accuracy cannot be told from guessing.

    A wrong order of classes, a wrong preprocessing or the weights of another model look like this.

    Args:
        frame: Records as `robustkpca.store.read` returns them.
    """
    remarks = []
    clean = frame[(frame["threat_label"] == "clean") & (frame["verdict"].astype(str) != Verdict.MEASURED.value)]
    for (name, classes), part in clean.groupby(["model_name", "classes"], observed=True, sort=True):
        verdicts = part["verdict"].astype(str)
        right, count = int((verdicts == Verdict.SURVIVED.value).sum()), int((verdicts != Verdict.FAILED.value).sum())
        if count >= TELLING and wilson(right, count)[0] <= 1 / int(str(classes)):
            remarks.append(
                f"{name}: {right} of {count} clean samples are right, which guessing among {classes} classes gives too; "
                "are the order of classes, the weights and the preprocessing right?"
            )
    return remarks


def rehearse(
    attack: Callable[..., Any],
    budget: Budget,
    options: Mapping[str, Any],
    shape: tuple[int, ...] = (1, 2, 2),
    *,
    answering: bool = True,
) -> None:
    """Run an attack's first step on a model of four pixels, so that wrong options are found before anything is computed.

    Args:
        attack: As in the registry.
        budget: As in the threat.
        options: As in the threat.
        answering: Whether the model answers; an attack that would run to its end stops where it first asks a silent one.
        shape: Of one image, four pixels in all.

    Raises:
        UserError: What the attack says of its options. Other errors are left for the real run.
    """
    images, labels = torch.full((2, *shape), 0.5), torch.tensor([0, 1])
    draws = Draws.of(["0", "1"], seed=0, threat="rehearsal")
    try:
        proposals = lifted(attack)(_FourPixels(answering), images, labels, budget=budget, draws=draws, **options)
        next(proposals)
        proposals.send(Keep(torch.tensor([True, True])))
        proposals.close()
    except UserError:
        raise
    except FAULTS:  # a toy model may not be what the attack is made for
        return


def rehearse_threats(threats: Sequence[ThreatModel], shape: tuple[int, ...] = (1, 2, 2)) -> None:
    """Rehearse every attack of some threats, see `rehearse`."""
    for one in threats:
        for part in one.parts:
            if part.budget is not None:
                rehearse(part.function(), part.budget, part.call.arguments, shape, answering=not part.engine)


class _FourPixels:
    """The smallest model: two logits that are sums of two pixels each."""

    def __init__(self, answering: bool) -> None:
        self.answering = answering

    def logits(self, images: Tensor, rows: Tensor | None = None) -> Tensor:
        if not self.answering:
            raise RuntimeError("the rehearsal ends here")
        return images.reshape(len(images), 2, -1).sum(2)

    def value_and_gradient(self, images: Tensor, loss: Loss, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            images = images.detach().requires_grad_(True)
            logits = self.logits(images)
            (gradient,) = torch.autograd.grad(loss(logits).sum(), images)
        return logits.detach(), gradient
