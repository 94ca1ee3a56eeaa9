"""The contract of a plug-in as checks that anyone can run on their own.

from robustkpca.testing import check_attack
def test_my_attack_keeps_the_contract():
    check_attack("mypackage/my_attack@linf:0.1")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from robustkpca.audit import check_model as check_outputs
from robustkpca.draws import Draws
from robustkpca.evaluation import attack
from robustkpca.models.loading import load_model, wrap
from robustkpca.records import Verdict
from robustkpca.threats import ThreatModel


@dataclass
class RecordedDraws(Draws):
    """Draws that answer with recorded numbers, to reproduce another implementation exactly.

    Args:
        keys: ``(N, 2)``, int64; which rows of the recordings belong to whom is told by the first column.
        calls: How many recordings were used.
        recordings: One tensor ``(N, *shape)`` for each call, in order.
    """

    recordings: Sequence[Tensor] = ()

    @classmethod
    def play(cls, *recordings: Tensor) -> RecordedDraws:
        """Answer the first call with the first recording, and so on."""
        rows = torch.arange(len(recordings[0]))
        return cls(torch.stack([rows, rows], dim=1), 0, recordings)

    def narrow(self, index: Tensor) -> RecordedDraws:
        """Keep the recordings of the samples at these positions ``(M,)``."""
        return RecordedDraws(self.keys[index.to(self.keys.device)], self.calls, self.recordings)

    def uniform(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return the next recording."""
        return self._next(shape, like)

    def normal(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return the next recording."""
        return self._next(shape, like)

    def signs(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return the next recording."""
        return self._next(shape, like)

    def _next(self, shape: Sequence[int], like: Tensor) -> Tensor:
        recording = self.recordings[self.calls][self.keys[:, 0]]
        self.calls += 1
        if tuple(recording.shape[1:]) != tuple(shape):
            raise AssertionError(
                f"draw {self.calls} asks for {tuple(shape)}, the recording holds {tuple(recording.shape[1:])}"
            )
        return recording.to(like.device, like.dtype)


def check_attack(threat: str, *, channels: int = 3, size: int = 8, classes: int = 4, samples: int = 19) -> None:
    """Check that an attack keeps the contract, on a small random network.

    Checked are: shape, range and budget of the images; verdicts that agree with a second look; inputs, model and global
    generators untouched; the same result again; and the same result for every image alone.

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
    images, network = _images(samples, channels, size), _network(channels, size, classes)
    with torch.no_grad():
        labels = network(images).argmax(1)
    labels[::5] = (labels[::5] + 1) % classes  # some are misclassified from the start
    ids = [f"sample {index}" for index in range(samples)]
    before = images.clone()
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    result = attack(network, images, labels, one, sample_ids=ids)
    _hold(torch.equal(images, before), f"{threat} changes its input")
    _hold(torch.equal(torch.get_rng_state(), state), f"{threat} draws from the global generator")
    _hold(
        all(torch.equal(value, weights[name]) for name, value in network.state_dict().items()),
        f"{threat} changes the model",
    )
    _hold(network.training, f"{threat} leaves the model in another mode")
    failed = [detail for detail in result.details if detail]
    _hold(not failed, f"{threat} cannot be judged: {failed[:1]}")
    _hold(result.images.shape == images.shape, f"{threat} proposes {tuple(result.images.shape)}")
    if one.budget is not None and one.budget.bounded:
        _hold(bool(one.budget.allows(result.images, images).all()), f"{threat} leaves its budget or [0, 1]")
        with torch.no_grad():
            changed = network.eval()(result.images).argmax(1) != labels
            network.train()
        broken = torch.tensor([verdict in (Verdict.BROKEN, Verdict.MISTAKEN) for verdict in result.verdicts])
        _hold(torch.equal(changed, broken), f"{threat}: a second look at the images gives other verdicts")
    again = attack(network, images, labels, one, sample_ids=ids)
    _hold(torch.equal(result.images, again.images), f"{threat} is not repeatable")
    for index in range(0, samples, 6):
        alone = attack(network, images[index : index + 1], labels[index : index + 1], one, sample_ids=[ids[index]])
        _hold(alone.verdicts[0] is result.verdicts[index], f"{threat}: image {index} alone gets another verdict")
        _hold(
            torch.allclose(alone.images[0], result.images[index], atol=1e-6),
            f"{threat}: image {index} alone is changed differently",
        )


def check_corruption(name: str, *, size: int = 32, samples: int = 5) -> None:
    """Check that a corruption keeps the contract at every severity.

    Checked are: shape and type kept, input and global generator untouched, repeatable, independent of the batch.

    Args:
        name: Name with options, without severity.
        size: Side of the images in pixels.
        samples: Number of images.

    Raises:
        AssertionError: Naming what does not hold.
    """
    images = (_images(samples, 3, size) * 255).round().to(torch.uint8)
    ids = [f"sample {index}" for index in range(samples)]
    for severity in range(1, 6):
        threat = ThreatModel.parse(f"{name}:{severity}")
        before, state = images.clone(), torch.get_rng_state()
        made = _corrupted(threat, images, ids)
        _hold(
            made.shape == images.shape and made.dtype == torch.uint8, f"{threat} gives {tuple(made.shape)} {made.dtype}"
        )
        _hold(torch.equal(images, before), f"{threat} changes its input")
        _hold(torch.equal(torch.get_rng_state(), state), f"{threat} draws from the global generator")
        _hold(torch.equal(_corrupted(threat, images, ids), made), f"{threat} is not repeatable")
        _hold(torch.equal(_corrupted(threat, images[2:3], ids[2:3]), made[2:3]), f"{threat} depends on the batch")


def check_model(name: str | nn.Module, images: Tensor, *, classes: int | None = None) -> None:
    """Check that a model can be evaluated, and leaves no trace of it.

    Args:
        name: As for `robustkpca.load_model`, or a network.
        images: ``(N, C, H, W)``, float32, in [0, 1], at least 3 of them.
        classes: Classes of the data.

    Raises:
        UserError: If it cannot be evaluated at all, see `robustkpca.audit.check_model`.
        AssertionError: Naming what else does not hold.
    """
    model = load_model(name) if isinstance(name, str) else wrap(name)
    label = model.spec.label
    state, modes = torch.get_rng_state(), [module.training for module in model.network.modules()]
    flags = check_outputs(model, images, classes)
    _hold(not flags, f"{label}: {flags}")
    with model.evaluating():
        whole, alone = model.logits(images), model.logits(images[1:2])
    _hold(torch.allclose(whole[1:2], alone, atol=1e-5), f"{label}: the logits of an image depend on its batch")
    _hold(torch.equal(torch.get_rng_state(), state), f"{label} draws from the global generator")
    _hold([module.training for module in model.network.modules()] == modes, f"{label}: modes are not restored")


def _corrupted(threat: ThreatModel, images: Tensor, ids: Sequence[str]) -> Tensor:
    draws = Draws.of(ids, seed=0, threat=str(threat))
    made = threat.function()(images, severity=threat.severity, draws=draws, **threat.call.arguments)
    _hold(isinstance(made, Tensor), f"{threat} returns {type(made).__name__} instead of a tensor")
    return cast(Tensor, made)


def _images(samples: int, channels: int, size: int) -> Tensor:
    ids = [str(index) for index in range(samples)]
    return Draws.of(ids, seed=0, threat="images").uniform((channels, size, size), torch.zeros(samples))


def _network(channels: int, size: int, classes: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(channels, 6, 3, stride=2, padding=1),
            nn.BatchNorm2d(6),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(6 * (size // 2) ** 2, classes),
        ).train()


def _hold(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)


__all__ = ["RecordedDraws", "check_attack", "check_corruption", "check_model"]
