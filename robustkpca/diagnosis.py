"""Kernel-PCA diagnostics of a network: what its heads compute, layer by layer, and which claims that supports."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from robustkpca.errors import BadValue
from robustkpca.kernel_pca import (
    alignment,
    axes_of_values,
    centred_gram,
    eigenvectors,
    gamma_differences,
    pursuit_passes,
    reconstruction_error,
    standardised,
    values_of_axes,
)
from robustkpca.models.attention import RPCAttention, SelfAttention
from robustkpca.models.classifier import TorchClassifier

MEASURES = {
    "phi": "mean |phi(q)|^2",
    "h": "mean |h|^2",
    "error": "mean ||phi(q)|^2 - |h|^2|, the corrected J",
    "log_published": "log J as published",
    "gamma_absolute": "mean |gamma_i - gamma_j|, axes from the values",
    "gamma_relative": "the same, relative",
    "gamma_absolute_random": "absolute, for random axes",
    "gamma_relative_random": "relative, for random axes",
    "gamma_relative_eigen": "relative, for true eigenvectors",
    "cosine": "cosine of values and kernel-PCA values",
    "optimal_cosine": "the same after the best matching of tokens",
    "linear_cka": "linear CKA",
    "kernel_cka": "kernel CKA",
}
"""Name of a measure and what it says; means over images."""

TRACE = {"residual": "|K - L - S| / |K|", "sparsity": "share of S that is zero", "rank": "rank of L"}
"""Name of a measure of one pass of a pursuit, and what it says."""

_SMALL = 0.01


@dataclass(frozen=True)
class Head:
    """The measures of one head.

    Args:
        layer: From 0.
        head: From 0.
        measures: See `MEASURES`.
        passes: Of an RPC head, for each pass: residual, sparsity and rank.
    """

    layer: int
    head: int
    measures: dict[str, float]
    passes: tuple[dict[str, float], ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    Args:
        model: Its label.
        images: How many were looked at.
        standardised: Whether queries and keys were standardised, as in the published measurement.
        heads: All heads, layer by layer.
    """

    model: str
    images: int
    standardised: bool
    heads: tuple[Head, ...]

    def layers(self) -> list[dict[str, float]]:
        """Return the measures of each layer, means over its heads."""
        found = sorted({head.layer for head in self.heads})
        rows = []
        for layer in found:
            heads = [head for head in self.heads if head.layer == layer]
            rows.append({name: sum(head.measures[name] for head in heads) / len(heads) for name in MEASURES})
        return rows

    def claims(self) -> list[dict[str, str]]:
        """Return each claim of the paper, what the reproduction study says, and what these numbers say."""
        rows = self.layers()
        mean = {name: sum(row[name] for row in rows) / len(rows) for name in MEASURES}
        ratio = mean["h"] / mean["phi"] if mean["phi"] else math.inf
        longer = ratio > 1
        apart = mean["gamma_relative"] < _SMALL < mean["gamma_relative_random"]
        aligned = min(mean["optimal_cosine"], mean["linear_cka"], mean["kernel_cka"]) > 0.9
        return [
            {
                "claim": "a head's output is the projection of phi(q) onto principal axes",
                "study": "contested: |h|^2 is about 1000 times |phi(q)|^2, and a projection is never longer",
                "here": "contested" if longer else "not contradicted",
                "numbers": f"|h|^2 / |phi(q)|^2 = {ratio:.3g}; mean error relative to |h|^2 = {_share(mean):.3g}",
            },
            {
                "claim": "gamma is constant, so the values hold eigenvectors of the centred Gram matrix",
                "study": "contested: the absolute difference is near zero for any vector",
                "here": "supported" if apart else "contested",
                "numbers": (
                    f"relative difference {mean['gamma_relative']:.3g}; random axes {mean['gamma_relative_random']:.3g},"
                    f" eigenvectors {mean['gamma_relative_eigen']:.1g}; absolute {mean['gamma_absolute']:.1g} and"
                    f" {mean['gamma_absolute_random']:.1g}"
                ),
            },
            {
                "claim": "the learned values are those of kernel PCA",
                "study": "contested: optimal cosine at most 0.32, linear CKA 0.11, kernel CKA 0.32",
                "here": "supported" if aligned else "contested",
                "numbers": (
                    f"optimal cosine {mean['optimal_cosine']:.2f}, linear CKA {mean['linear_cka']:.2f},"
                    f" kernel CKA {mean['kernel_cka']:.2f}"
                ),
            },
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; what is no finite number is ``None``."""
        plain: dict[str, Any] = _finite({**asdict(self), "layers": self.layers(), "claims": self.claims()})
        return plain


def diagnose(model: TorchClassifier, images: Tensor, *, standardise: bool = False, seed: int = 0) -> Diagnosis:
    """Measure every head of a transformer on some images.

    Args:
        model: A loaded classifier, whose network has attention with a projection to queries, keys and values in it.
        images: ``(N, C, H, W)``, in [0, 1].
        standardise: Whether queries and keys are standardised over their features, as in the published measurement.
        seed: Of the random axes of the control.

    Raises:
        BadValue: If the network has no such attention, or there are no images.

    Source:
        See `kernel_pca`. For RPC attention queries and keys are the cleaned keys of the last pass.
    """
    if not len(images):
        raise BadValue("diagnose: got no images; expected at least one")
    with model.evaluating(), _recorded(model.network) as parts:
        model.logits(images)
    if not parts:
        raise BadValue(f"{model.spec.label} has no attention that can be looked into; expected a vision transformer")
    generator = torch.Generator().manual_seed(seed)
    heads = []
    for layer, (attention, batches) in enumerate(parts.items()):
        joined = tuple(torch.cat(part)[: len(images)].double().cpu() for part in zip(*batches, strict=True))
        heads += list(_heads(layer, attention, joined, standardise, generator))
    return Diagnosis(model.spec.label, len(images), standardise, tuple(heads))


@contextmanager
def _recorded(network: nn.Module) -> Iterator[dict[nn.Module, list[tuple[Tensor, ...]]]]:
    """Record queries, keys and values of every attention in the order in which they run."""
    parts: dict[nn.Module, list[tuple[Tensor, ...]]] = {}

    def record(attention: nn.Module, arguments: tuple[Any, ...]) -> None:
        parts.setdefault(attention, []).append(_parts(attention, arguments[0].detach()))

    handles = [
        module.register_forward_pre_hook(record)
        for module in network.modules()
        if isinstance(module, SelfAttention) or (hasattr(module, "qkv") and hasattr(module, "num_heads"))
    ]
    try:
        yield parts
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def _parts(attention: Any, tokens: Tensor) -> tuple[Tensor, ...]:
    if isinstance(attention, SelfAttention):
        return attention.split(tokens)
    batch, count, _ = tokens.shape
    projected = attention.qkv(tokens).reshape(batch, count, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
    return tuple(projected.unbind(0))


def _heads(
    layer: int, attention: nn.Module, parts: tuple[Tensor, ...], standardise: bool, generator: torch.Generator
) -> Iterator[Head]:
    keys, values = parts[-2:]
    queries = parts[0] if len(parts) == 3 else keys
    trace: list[dict[str, Tensor]] = []
    if isinstance(attention, RPCAttention):
        trace = list(pursuit_passes(keys, values, attention.pursuit))
        queries = keys = attention.cleaned(keys, values)
    if standardise:
        queries, keys = standardised(queries), standardised(keys)
    errors = reconstruction_error(queries, keys, values)
    gram = centred_gram(keys)
    _, vectors = eigenvectors(gram, keys.shape[-1])
    noise = torch.randn(keys.shape[-2], keys.shape[-1], generator=generator, dtype=torch.float64)
    random = torch.linalg.qr(noise - noise.mean(0)).Q.expand_as(vectors)
    gammas = {
        "": gamma_differences(gram, axes_of_values(keys, values)),
        "_random": gamma_differences(gram, random),
        "_eigen": gamma_differences(gram, vectors),
    }
    wanted = values_of_axes(keys, vectors)
    for head in range(keys.shape[1]):
        measures = {name: errors[name][:, head].mean().item() for name in ("phi", "h", "error")}
        published = errors["published"][:, head].mean().item()
        measures["log_published"] = math.log(published) if published > 0 else math.nan
        for kind, (absolute, relative) in gammas.items():
            measures[f"gamma_absolute{kind}"] = absolute[:, head].mean().item()
            measures[f"gamma_relative{kind}"] = relative[:, head].mean().item()
        found = [alignment(values[image, head], wanted[image, head]) for image in range(len(values))]
        measures |= {name: sum(one[name] for one in found) / len(found) for name in found[0]}
        steps = tuple({name: value[:, head].mean().item() for name, value in one.items()} for one in trace)
        yield Head(layer, head, {name: measures[name] for name in MEASURES}, steps)


def _share(mean: dict[str, float]) -> float:
    return mean["error"] / mean["h"] if mean["h"] else math.inf


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
