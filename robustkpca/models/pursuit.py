"""Principal component pursuit with an attention in place of the singular-value threshold.

A key matrix ``K`` (tokens by head width) is split into ``L + S``: ``S`` is sparse, and ``L``, the output of the head,
is one symmetric attention over the cleaned keys. These are pure functions of keys and values. They work per image and
head, in any floating dtype, and are differentiable through all passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from robustkpca.errors import BadValue
from robustkpca.models.clipping import Clip, Step, cleaned_keys, rebuilding

THRESHOLDS = ("lambda*mu", "lambda/mu")
MU_DIMS = ("C", "d")
VARIANTS = {
    "released": None,
    "rebuttal-all-layer": ("lambda*mu", "C"),
    "rebuttal-layer": ("lambda/mu", "d"),
    "rebuttal-layer-half": ("lambda/mu", "d"),
    "rebuttal-clip": ("lambda/mu", "d"),
}
"""Name of a variant, and the threshold and ``mu_dim`` it was run with; ``None`` where both are free."""

_SHARE = {"rebuttal-all-layer": 1.0, "rebuttal-layer": 1.0, "rebuttal-layer-half": 0.5}
_SMALLEST_NORM = 1e-30


@dataclass(frozen=True)
class Pursuit:
    """The options of one pursuit; the defaults are those of the released code.

    Args:
        iterations: Number of passes, each with one attention; at least 1.
        lambda_: Weight of the sparse part; at least 0.
        threshold: Entries of ``S`` are shrunk by ``lambda*mu`` (the released code) or ``lambda/mu`` (textbook pursuit).
        mu_dim: Width in ``mu = N * width / (4 * sum|K|)``: ``C``, all heads together (released), or ``d``, one head.
        variant: ``released`` shrinks in every pass. ``rebuttal-all-layer`` and ``rebuttal-layer`` shrink in the last
            pass only; before it ``S`` is all of what is left over, in ``rebuttal-layer-half`` half of that.
            ``rebuttal-clip`` is a single pass, which clips the keys. The rebuttal forms had their own threshold and
            ``mu_dim``, which must be written out, so that the text of a model says what it computes.

    Raises:
        BadValue: If a value is out of range, or does not go with the variant.

    Source:
        rachtsy/KPCA_code, Robust/softmax.py (``released``) and commit c4022c7 (the rebuttal forms); Candes et al. 2011,
        arXiv:0912.3599 (``lambda/mu`` with ``d``).
    """

    iterations: int = 4
    lambda_: float = 4.0
    threshold: str = "lambda*mu"
    mu_dim: str = "C"
    variant: str = "released"

    def __post_init__(self) -> None:
        if isinstance(self.iterations, bool) or not isinstance(self.iterations, int) or self.iterations < 1:
            raise BadValue(f"iterations is {self.iterations!r}; expected a whole number of at least 1")
        if not (math.isfinite(self.lambda_) and self.lambda_ >= 0):
            raise BadValue(f"lambda_ is {self.lambda_!r}; expected a number of at least 0")
        for name, known in (("threshold", THRESHOLDS), ("mu_dim", MU_DIMS), ("variant", tuple(VARIANTS))):
            if getattr(self, name) not in known:
                raise BadValue(f"{name} is {getattr(self, name)!r}; expected one of {', '.join(known)}")
        published = VARIANTS[self.variant]
        if published and published != (self.threshold, self.mu_dim):
            raise BadValue(
                f"variant {self.variant} was run with other settings than threshold={self.threshold},"
                f"mu_dim={self.mu_dim}; write threshold={published[0]},mu_dim={published[1]} beside it"
            )
        if self.variant == "rebuttal-clip" and self.iterations != 1:
            raise BadValue(f"variant rebuttal-clip is a single pass; write iterations=1, not {self.iterations}")


@dataclass(frozen=True)
class Pass:
    """The state after one pass; every tensor but ``mu`` has the shape ``(B, H, N, d)``, in float32 or wider.

    Args:
        keys: ``K``.
        mu: Penalty, one for each image and head, ``(B, H, 1, 1)``.
        sparse: ``S``, what was taken out of the keys.
        cleaned: ``K - S - Y/mu``, the keys that attended to each other in this pass.
        low_rank: ``L``, the result of that attention; after the last pass, the output of the heads.
        dual: ``Y/mu`` before this pass (broadcastable).
    """

    keys: Tensor
    mu: Tensor
    sparse: Tensor
    cleaned: Tensor
    low_rank: Tensor
    dual: Tensor

    def next_dual(self) -> Tensor:
        """Return ``Y/mu`` after this pass; it grows by what ``L`` and ``S`` leave unexplained."""
        return self.dual + self.keys - self.low_rank - self.sparse

    def multiplier(self) -> Tensor:
        """Return ``Y`` after this pass."""
        return self.mu * self.next_dual()


def symmetric_attention(keys: Tensor, values: Tensor) -> Tensor:
    """Let the keys attend to each other: ``softmax(K K^T / sqrt(d)) V``.

    Args:
        keys: ``(B, H, N, d)``.
        values: ``(B, H, N, d)``.

    Returns:
        ``(B, H, N, d)``, from a fused kernel where torch has one for the device, so that no ``N x N`` matrix is kept.

    Source:
        Teo and Nguyen 2024, arXiv:2406.13762; rachtsy/KPCA_code, Robust/softmax.py.
    """
    return scaled_dot_product_attention(keys, keys, values)


def principal_component_pursuit_attention(keys: Tensor, values: Tensor, pursuit: Pursuit) -> Tensor:
    """Attend by unrolled principal component pursuit (RPC attention).

    Args:
        keys: ``(B, H, N, d)``.
        values: ``(B, H, N, d)``.
        pursuit: Number of passes, threshold and variant.

    Returns:
        ``(B, H, N, d)`` in the dtype of ``keys``: ``L`` after the last pass.

    Source:
        As `passes`, which writes the algorithm out and gives the same up to rounding. Here the state is the recurrence of
        `clipping`, for speed and memory: two tensors of the size of the keys are kept for each pass until the backward pass
        has gone through it, and no matrix of all pairs of tokens. Gradients are of first order only.
    """
    original, _, level = _prepared(keys, pursuit)
    shares = shares_of(pursuit)
    kept = _left(original, level, shares[0])
    low_rank, before = symmetric_attention(kept.to(keys.dtype), values).to(original.dtype), original.new_zeros(())
    for share in shares[1:]:
        if share is None:
            following, cleaned = Step.apply(original, low_rank, before, kept, level)
        else:
            following = (1 - share) * (original - 2 * low_rank + (before + kept))
            cleaned = cleaned_keys(following, low_rank, before, kept)
        parts = tuple(part.detach() for part in (following, low_rank, before, kept))
        cleaned = cleaned.to(keys.dtype)
        with rebuilding(cleaned, lambda parts=parts: cleaned_keys(*parts).to(keys.dtype)):  # type: ignore[misc]
            latest = symmetric_attention(cleaned, values).to(original.dtype)
        before, kept, low_rank = low_rank, following, latest
    return low_rank.to(keys.dtype)


def last_pass(keys: Tensor, values: Tensor, pursuit: Pursuit) -> Pass:
    """Run a pursuit and keep only its last state. Arguments as `passes`."""
    states = passes(keys, values, pursuit)
    state = next(states)
    for following in states:
        state = following
    return state


def passes(keys: Tensor, values: Tensor, pursuit: Pursuit) -> Iterator[Pass]:
    """Run a pursuit pass by pass.

    Args:
        keys: ``(B, H, N, d)``; in half precision all but the attention itself is computed in float32.
        values: ``(B, H, N, d)``.
        pursuit: Number of passes, threshold and variant.

    Yields:
        The state after each of ``pursuit.iterations`` passes.

    Source:
        Teo and Nguyen 2024, arXiv:2406.13762, with the arithmetic of rachtsy/KPCA_code, Robust/softmax.py. Deliberate
        differences: the multiplier is kept as ``Y/mu``, which is the same in exact arithmetic, and is not updated after
        the last pass; where all keys of a head are zero the released code divides by zero and yields NaN, here the norm
        is held above 1e-30, which gives the limit for small keys; the 1e-8 which the rebuttal forms add to ``mu`` is
        left out, and so is attention dropout, which every published recipe sets to 0.
    """
    original, mu, level = _prepared(keys, pursuit)
    shares = shares_of(pursuit)

    low_rank = dual = original.new_zeros(())
    for iteration, share in enumerate(shares, start=1):
        unexplained = original - low_rank + dual
        sparse = soft_threshold(unexplained, level) if share is None else share * unexplained
        cleaned = original - sparse - dual
        low_rank = symmetric_attention(cleaned.to(keys.dtype), values).to(original.dtype)
        state = Pass(original, mu, sparse, cleaned, low_rank, dual)
        yield state
        if iteration < pursuit.iterations:
            dual = state.next_dual()


def soft_threshold(tensor: Tensor, level: Tensor) -> Tensor:
    """Move every entry towards zero by ``level`` (broadcastable, not negative), and stop at zero."""
    return (tensor - level).relu() - (-tensor - level).relu()


def _prepared(keys: Tensor, pursuit: Pursuit) -> tuple[Tensor, Tensor, Tensor]:
    """Return the keys in the precision of the state, ``mu``, and the level of the shrinkage."""
    heads, tokens, width = keys.shape[-3:]
    original = keys.to(torch.promote_types(keys.dtype, torch.float32))
    norm = original.abs().sum(dim=(-2, -1), keepdim=True).clamp_min(_SMALLEST_NORM)
    mu = tokens * (heads * width if pursuit.mu_dim == "C" else width) / 4 / norm
    return original, mu, pursuit.lambda_ * mu if pursuit.threshold == "lambda*mu" else pursuit.lambda_ / mu


def shares_of(pursuit: Pursuit) -> list[float | None]:
    """Return, for each pass, which share of what is left over becomes ``S``; ``None`` where it is shrunk instead."""
    return [_SHARE.get(pursuit.variant)] * (pursuit.iterations - 1) + [None]


def _left(unexplained: Tensor, level: Tensor, share: float | None) -> Tensor:
    """Return what is left of a tensor once ``S`` is taken out of it."""
    if share is not None:
        return (1 - share) * unexplained
    left: Tensor = Clip.apply(unexplained, level)
    return left
