"""A network as attacks and judges see it: [0, 1] images in, logits out, nothing else changed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy
import torch
from torch import Tensor, nn

from robustkpca.adversary import Loss
from robustkpca.errors import BadValue
from robustkpca.preprocessing import Preprocessing
from robustkpca.specs import ModelSpec

ROWS = 8
"""Every pass holds a multiple of this many images, the last one repeated as padding.

Matrix kernels choose their order of summation by the number of rows. In multiples of eight the CPU kernels of torch give
each image the same bits whatever its company (``benchmarks/batch_invariance.py`` measures it), which is what makes
verdicts independent of the batch size.
"""


class TorchClassifier:
    """A `torch.nn.Module` behind the protocol of attacks.

    Normalisation happens inside. Large batches are split into micro-batches, so that a caller may hold many images while
    memory stays bounded. Inputs are cast to the dtype of the network, logits and gradients come back in float32, or in
    float64 where the network or the images are.

    Args:
        network: Maps images ``(N, C, H, W)``, normalised as in ``spec``, to logits ``(N, K)``.
        spec: What it is.
        batch_size: Most images of one pass; rounded up to a multiple of `ROWS`.
        device: Where it runs.

    Attributes:
        outputs: Number of logits, known from the first pass on.
        only: Classes that a prediction may name, for data of some classes alone; finite logits of the others become the
            lowest float32. Empty for all.
    """

    def __init__(
        self, network: nn.Module, spec: ModelSpec, *, batch_size: int = 32, device: str | torch.device = "cpu"
    ) -> None:
        if batch_size < 1:
            raise BadValue(f"batch size is {batch_size}; expected at least 1")
        self.network = network
        self.spec = spec
        self.batch_size = -(-batch_size // ROWS) * ROWS
        self.device = torch.device(device)
        self.dtype = _dtype(network)
        self.outputs: int | None = None
        self.only: tuple[int, ...] = ()
        self._affine = _affine(spec.preprocessing, self.device)

    def normalised(self) -> TorchClassifier:
        """Return the same network for images that are normalised already, as the ``published`` protocol attacks it."""
        preprocessing = replace(self.spec.preprocessing, mean=(), std=())
        bare = TorchClassifier(
            self.network,
            replace(self.spec, preprocessing=preprocessing),
            batch_size=self.batch_size,
            device=self.device,
        )
        bare.outputs, bare.only = self.outputs, self.only
        return bare

    def normalise(self, images: Tensor) -> Tensor:
        """Return ``(images - mean) / std``, as the network receives them."""
        if self._affine is None:
            return images
        mean, std = (value.to(images.device, images.dtype) for value in self._affine)
        return (images - mean) / std

    def logits(self, images: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return ``(N, K)`` for images ``(N, C, H, W)`` in [0, 1], without a graph; ``rows`` matters to who counts."""
        with torch.no_grad():
            parts = [self._forward(part)[:count] for part, count, _ in self._micro_batches(images)]
        return torch.cat(parts).to(images.device)

    def value_and_gradient(self, images: Tensor, loss: Loss, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the logits ``(N, K)`` and the gradient of each image's loss, shaped like ``images``; see `logits`."""
        values, gradients = [], []
        for part, count, index in self._micro_batches(images):
            part = part.detach().requires_grad_(True)
            with torch.enable_grad():
                logits = self._forward(part)
                total = loss.narrow(index)(logits).sum()
            (gradient,) = torch.autograd.grad(total, part)
            values.append(logits.detach()[:count])
            gradients.append(gradient[:count])
        return torch.cat(values).to(images.device), torch.cat(gradients).to(images.device)

    def _micro_batches(self, images: Tensor) -> Iterator[tuple[Tensor, int, Tensor]]:
        """Yield padded parts, how many of their rows are real, and the positions of all their rows."""
        for start in range(0, len(images), self.batch_size):
            count = min(self.batch_size, len(images) - start)
            padded = -(-count // ROWS) * ROWS
            index = torch.arange(start, start + padded).clamp_max(start + count - 1)
            part = images[start : start + count] if padded == count else images[index.to(images.device)]
            yield part.to(self.device), count, index

    def _forward(self, images: Tensor) -> Tensor:
        inputs = self.normalise(images).to(self.dtype)
        logits = self.network(images.clone() if inputs is images else inputs)  # a network may work in place
        if isinstance(logits, tuple | list):
            logits = logits[0]
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(images):
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise BadValue(
                f"model {self.spec.label}: the output is {shape} for {len(images)} images; expected logits (N, classes)"
            )
        if logits.is_complex() or self.outputs not in (None, logits.shape[1]) or not logits.shape[1]:
            wanted = "at least one" if self.outputs is None else f"{self.outputs}, as before"
            raise BadValue(
                f"model {self.spec.label}: the output is {tuple(logits.shape)} {logits.dtype}; expected real logits, {wanted}"
            )
        self.outputs = logits.shape[1]
        logits = logits.to(torch.promote_types(torch.float32, torch.promote_types(images.dtype, logits.dtype)))
        if not self.only:
            return logits
        out = torch.ones(logits.shape[1], dtype=torch.bool, device=logits.device)
        out[list(self.only)] = False
        return logits.masked_fill(out & logits.isfinite(), torch.finfo(torch.float32).min)

    @contextmanager
    def evaluating(self) -> Iterator[TorchClassifier]:
        """Hold the network in eval mode, and afterwards restore modes, buffers, gradient flags and the global generators."""
        modes = {module: module.training for module in self.network.modules()}
        flags = {p: p.requires_grad for p in self.network.parameters() if not p.is_inference()}
        buffers = [
            (module, name, buffer, buffer.detach().clone())
            for module in self.network.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        generators = random.getstate(), numpy.random.get_state()
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            try:
                self.network.eval()
                for parameter in flags:
                    parameter.requires_grad_(False)
                yield self
            finally:
                for module, mode in modes.items():
                    module.training = mode
                for parameter, flag in flags.items():
                    parameter.requires_grad_(flag)
                with torch.no_grad():
                    for module, name, buffer, before in buffers:
                        module._buffers[name] = buffer
                        if not buffer.is_inference() and not torch.equal(buffer, before):
                            buffer.copy_(before)
                random.setstate(generators[0])
                numpy.random.set_state(generators[1])


def _dtype(network: nn.Module) -> torch.dtype:
    for parameter in network.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    return torch.get_default_dtype()


def _affine(preprocessing: Preprocessing, device: torch.device) -> tuple[Tensor, Tensor] | None:
    if not preprocessing.mean:
        return None
    mean, std = (
        torch.tensor(v, dtype=torch.float64, device=device).view(1, -1, 1, 1)
        for v in (preprocessing.mean, preprocessing.std)
    )
    return mean, std
