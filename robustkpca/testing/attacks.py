"""The contract of an attack."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from robustkpca.adversary import Keep, lifted
from robustkpca.draws import Draws
from robustkpca.evaluation import AttackResult, attack
from robustkpca.meter import MeteredClassifier
from robustkpca.models.loading import wrap
from robustkpca.preprocessing import Preprocessing
from robustkpca.records import Verdict
from robustkpca.testing.trials import hold, random_images, small_network
from robustkpca.threats import Protocol, ThreatModel


def check_attack(threat: str, *, channels: int = 3, size: int = 8, classes: int = 4, samples: int = 19) -> None:
    """Check that an attack keeps the contract, on a small random network.

    Checked are: shape, range and budget of the images; verdicts that agree with a second look; logits that a proposal
    carries; inputs, model and global generators untouched; the same result again, for every image alone, in another order
    and in small batches; and the same verdicts, but for one sample that rounding may turn, for logits with 1000 added or
    subtracted, networks in float64, channels-last and non-contiguous images, and normalisation in the wrapper instead of the
    network. A bfloat16 network must give verdicts that agree with a second look.

    Args:
        threat: Such as ``mypackage/my_attack@linf:0.1``.
        channels: Of the images.
        size: Side of the images in pixels.
        classes: Of the network.
        samples: Number of images.

    Raises:
        AssertionError: Naming what does not hold.
    """
    one = ThreatModel.parse(threat)
    images, network = random_images(samples, channels, size), small_network(channels, size, classes)
    with torch.no_grad():
        labels = network(images).argmax(1)
    labels[::5] = (labels[::5] + 1) % classes  # some are misclassified from the start
    ids = [f"sample {index}" for index in range(samples)]
    before = images.clone()
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    result = attack(network, images, labels, one, sample_ids=ids)
    hold(torch.equal(images, before), f"{threat} changes its input")
    hold(torch.equal(torch.get_rng_state(), state), f"{threat} draws from the global generator")
    hold(
        all(torch.equal(value, weights[name]) for name, value in network.state_dict().items()),
        f"{threat} changes the model",
    )
    hold(network.training, f"{threat} leaves the model in another mode")
    failed = [detail for detail in result.details if detail]
    hold(not failed, f"{threat} cannot be judged: {failed[:1]}")
    hold(result.images.shape == images.shape, f"{threat} proposes {tuple(result.images.shape)}")
    if one.budget is not None and one.budget.bounded:
        hold(bool(one.budget.allows(result.images, images).all()), f"{threat} leaves its budget or [0, 1]")
        with torch.no_grad():
            changed = network.eval()(result.images).argmax(1) != labels
            network.train()
        broken = torch.tensor([verdict in (Verdict.BROKEN, Verdict.MISTAKEN) for verdict in result.verdicts])
        hold(torch.equal(changed, broken), f"{threat}: a second look at the images gives other verdicts")
    again = attack(network, images, labels, one, sample_ids=ids)
    hold(torch.equal(result.images, again.images), f"{threat} is not repeatable")
    for part in one.parts:
        _check_answers(part, network, images, labels, ids)
    _check_company(threat, one, network, images, labels, ids, result)
    _check_forms(threat, one, network, images, labels, ids, result.verdicts)
    for index in range(0, samples, 6):
        alone = attack(network, images[index : index + 1], labels[index : index + 1], one, sample_ids=[ids[index]])
        hold(alone.verdicts[0] is result.verdicts[index], f"{threat}: image {index} alone gets another verdict")
        hold(
            torch.allclose(alone.images[0], result.images[index], atol=1e-6),
            f"{threat}: image {index} alone is changed differently",
        )


def _check_answers(threat: ThreatModel, network: nn.Module, images: Tensor, labels: Tensor, ids: Sequence[str]) -> None:
    """Hold that the first proposals carry what the model says of them, where they carry anything."""
    if threat.budget is None or threat.protocol is not Protocol.PIXEL:
        return
    model, draws = wrap(network), Draws.of(ids, seed=0, threat=str(threat))
    with model.evaluating():
        metered = MeteredClassifier(model, len(images), images.device)
        proposals = lifted(threat.function())(
            metered, images.clone(), labels.clone(), budget=threat.budget, draws=draws, **threat.call.arguments
        )
        candidate = next(proposals, None)
        for _ in range(5):
            if candidate is None:
                break
            if candidate.logits is not None:
                said = model.logits(candidate.images)
                hold(
                    torch.allclose(candidate.logits, said, atol=1e-4),
                    f"{threat} carries logits that the model does not give",
                )
            try:
                candidate = proposals.send(Keep(torch.ones(len(images), dtype=torch.bool)))
            except StopIteration:
                break
        proposals.close()


def _check_company(
    threat: str,
    one: ThreatModel,
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    ids: Sequence[str],
    whole: AttackResult,
) -> None:
    """Hold that order and batch size change nothing."""
    backwards = list(reversed(range(len(images))))
    turned = attack(network, images[backwards], labels[backwards], one, sample_ids=[ids[row] for row in backwards])
    hold(
        [turned.verdicts[row] for row in backwards] == list(whole.verdicts),
        f"{threat}: another order gives other verdicts",
    )
    hold(
        torch.allclose(turned.images[backwards], whole.images, atol=1e-6),
        f"{threat}: another order changes images differently",
    )
    small = attack(network, images, labels, one, sample_ids=ids, batch_size=8)
    hold(small.verdicts == whole.verdicts, f"{threat}: smaller batches give other verdicts")


def _check_forms(
    threat: str,
    one: ThreatModel,
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    ids: Sequence[str],
    verdicts: Sequence[Verdict],
) -> None:
    """Hold that forms of the same network and of the same images give the same verdicts, but for one that rounding may turn."""
    exact = copy.deepcopy(network).double()
    forms: dict[str, tuple[nn.Module, Tensor]] = {
        "a float64 network": (exact, images),
        "logits with 1000 added": (_Shifted(exact, 1000.0), images),
        "logits with 1000 subtracted": (_Shifted(exact, -1000.0), images),
        "channels-last images": (network, images.to(memory_format=torch.channels_last)),
        "non-contiguous images": (network, images.transpose(2, 3).contiguous().transpose(2, 3)),
    }
    made: dict[str, Sequence[Verdict]] = {}
    made |= {form: attack(*given, labels, one, sample_ids=ids).verdicts for form, given in forms.items()}
    if one.protocol is Protocol.PIXEL:  # the published one attacks normalised images
        made["normalisation in the wrapper"] = _normalised_outside(network, images, labels, one, ids)
        with torch.no_grad():
            rough = copy.deepcopy(network).bfloat16()
            guesses = rough.eval()(images.bfloat16()).argmax(1)
        result = attack(rough, images, guesses, one, sample_ids=ids)
        hold(not any(result.details), f"{threat}: a bfloat16 network cannot be judged: {result.details}")
    for form, found in made.items():
        differ = sum(a is not b for a, b in zip(found, verdicts, strict=True))
        hold(differ <= 1, f"{threat}: {form} gives other verdicts for {differ} of {len(verdicts)} images")


def _normalised_outside(
    network: nn.Module, images: Tensor, labels: Tensor, one: ThreatModel, ids: Sequence[str]
) -> Sequence[Verdict]:
    """Return the verdicts on a network that expects normalised images, in a wrapper that normalises."""
    channels = images.shape[1]
    outside = Preprocessing.parse(f"mean=[{','.join(['0.4'] * channels)}],std=[{','.join(['0.2'] * channels)}]")
    inside = nn.Sequential(_Affine(0.2, 0.4), copy.deepcopy(network))
    return attack(wrap(inside, preprocessing=outside), images, labels, one, sample_ids=ids).verdicts


class _Affine(nn.Module):
    """Scales and shifts."""

    def __init__(self, scale: float, shift: float) -> None:
        super().__init__()
        self.scale, self.shift = scale, shift

    def forward(self, images: Tensor) -> Tensor:
        return images * self.scale + self.shift


class _Shifted(nn.Module):
    """A network whose logits are all larger by the same."""

    def __init__(self, network: nn.Module, shift: float) -> None:
        super().__init__()
        self.network, self.shift = network, shift

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images) + self.shift
        return logits
