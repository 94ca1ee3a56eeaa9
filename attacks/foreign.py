"""Attacks of other libraries: our model as a module they can call, their global state contained, one seed a shard."""

from __future__ import annotations

import io
import logging
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from robustkpca.adversary import Classifier, Loss
from robustkpca.draws import Draws

SEEDS = 2**31
"""Seeds lie below this; every library takes them."""


class ForeignModule(nn.Module):
    """A classifier as a differentiable module, for code that knows nothing else.

    The network itself is out of reach, so no foreign hand can change its mode or weights. A gradient is computed by the
    classifier in a pass of its own; that costs one more forward pass than a graph would, and memory for one micro-batch
    instead of all images. Passes are written to the account of the image that they belong to: by position where all images
    are asked for, otherwise to the nearest image.

    Args:
        model: What the judge handed to the attack.
        images: ``(N, C, H, W)``, float32, the images under attack.
    """

    def __init__(self, model: Classifier, images: Tensor) -> None:
        super().__init__()
        self._model = model
        self._images = images.flatten(1)
        # some libraries look at the first parameter to learn the device
        self.anchor = nn.Parameter(torch.zeros((), device=images.device), requires_grad=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits ``(M, K)``, float32, for images ``(M, C, H, W)`` in [0, 1]."""
        if torch.is_grad_enabled() and images.requires_grad:
            logits: Tensor = _Passes.apply(images, self)
            return logits
        return self.answer(images)

    def answer(self, images: Tensor) -> Tensor:
        """Return logits without a graph."""
        images = images.detach()
        logits: Tensor = self._model.logits(images, rows=self._rows(images))
        return logits.to(images.dtype)

    def gradient(self, images: Tensor, weights: Tensor) -> Tensor:
        """Return the gradient of the logits' sum under these weights ``(M, K)``, shaped like ``images``.

        Where all weights are zero no pass is made, so that the loss of a library is not taken for a masked gradient.
        """
        gradient = torch.zeros_like(images)
        asked = (weights != 0).any(1).nonzero().squeeze(1)  # a foreign loss may be flat by itself
        if not len(asked):
            return gradient
        points, rows = images.detach()[asked], self._rows(images)
        if len(asked) < len(images):
            rows = torch.arange(len(images), device=images.device) % len(self._images) if rows is None else rows
            rows = rows[asked]
        loss = Loss(lambda logits, share: (logits * share).sum(1), (weights.detach()[asked],))
        gradient[asked] = self._model.value_and_gradient(points, loss, rows=rows)[1].to(images.dtype)
        return gradient

    def _rows(self, images: Tensor) -> Tensor | None:
        """Say whose passes these are, where their number does not tell."""
        if len(images) % len(self._images) == 0:
            return None
        return torch.cdist(images.flatten(1).float(), self._images.float()).argmin(1)


class _Passes(torch.autograd.Function):
    """Logits forwards, the classifier's own gradient backwards."""

    @staticmethod
    def forward(context: Any, images: Tensor, module: ForeignModule) -> Tensor:
        context.save_for_backward(images)
        context.module = module
        return module.answer(images)

    @staticmethod
    @once_differentiable
    def backward(context: Any, weights: Tensor) -> tuple[Tensor, None]:
        (images,) = context.saved_tensors
        return context.module.gradient(images, weights), None


def shard_seed(draws: Draws, images: Tensor) -> int:
    """Return one seed for a whole batch, made of the streams of all its samples.

    A library that draws for the whole batch at once cannot be given a stream for each image. The same samples give the same
    seed in any order; other company gives another one.
    """
    return int(draws.integers(SEEDS, (), images).sum()) % SEEDS


@contextmanager
def contained(seed: int, device: torch.device, logger: str = "") -> Iterator[None]:
    """Let foreign code draw, print, log, warn and trace, and undo all of it afterwards.

    Args:
        seed: For the generators of torch, numpy and Python.
        device: Whose generator is restored too.
        logger: Name of the library's own logger, which is silenced; empty where it has none.
    """
    states, trace, log = (random.getstate(), numpy.random.get_state()), sys.gettrace(), logging.getLogger(logger)
    disabled = log.disabled
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed(seed)
        log.disabled = disabled or bool(logger)
        try:
            with redirect_stdout(io.StringIO()):
                yield
        finally:
            log.disabled = disabled
            sys.settrace(trace)
            random.setstate(states[0])
            numpy.random.set_state(states[1])
