"""Attention of a language model, where no token sees a later one: softmax, symmetric and RPC, under the published key names."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from robustkpca.errors import BadValue
from robustkpca.models.pursuit import Pursuit, shares_of, soft_threshold

NORMS = ("causal", "window")
"""Which keys the penalty ``mu`` of a token is made of: those up to it, or all of the window, later ones included."""
_SMALLEST_NORM = 1e-30


def causal_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Let the last tokens of a window look back at themselves and at what stands before them.

    Args:
        queries: ``(B, H, M, d)``, those of the last ``M`` of ``N`` tokens.
        keys: ``(B, H, N, d)``.
        values: ``(B, H, N, d)``.

    Returns:
        ``(B, H, M, d)``.
    """
    asked, tokens = queries.shape[-2], keys.shape[-2]
    if asked == tokens:
        return scaled_dot_product_attention(queries, keys, values, is_causal=True)
    seen = torch.ones(asked, tokens, dtype=torch.bool, device=keys.device).tril(tokens - asked)
    return scaled_dot_product_attention(queries, keys, values, attn_mask=seen)


def causal_pursuit_attention(
    keys: Tensor, values: Tensor, pursuit: Pursuit, *, norm: str = "causal", last: int | None = None
) -> Tensor:
    """Attend by principal component pursuit with the causal mask in every pass.

    Args:
        keys: ``(B, H, N, d)``.
        values: ``(B, H, N, d)``.
        pursuit: Number of passes, threshold and variant.
        norm: One of `NORMS`. With ``causal`` the penalty of token ``t`` is ``(t + 1) * width / (4 * sum|K|)`` over the keys
            up to ``t``; with ``window`` all tokens have that of the whole window, which tells each of what is to come.
        last: How many of the last tokens are wanted; ``None`` for all.

    Returns:
        ``(B, H, last, d)`` in the dtype of ``keys``.

    Raises:
        BadValue: If there is no such norm.

    Source:
        `robustkpca.models.pursuit.passes`, token by token. Nobody has published how RPC-Symlm treats the mask and ``mu``; both
        readings are ours.
    """
    heads, tokens, width = keys.shape[-3:]
    original = keys.to(torch.promote_types(keys.dtype, torch.float32))
    sums = original.abs().sum(-1, keepdim=True)
    if norm == "causal":
        counts = torch.arange(1, tokens + 1, device=keys.device, dtype=original.dtype).unsqueeze(-1)
        sums = sums.cumsum(-2)
    elif norm == "window":
        counts = original.new_full((1, 1), tokens)
        sums = sums.sum(-2, keepdim=True)
    else:
        raise BadValue(f"norm is {norm!r}; expected one of {', '.join(NORMS)}")
    mu = counts * (heads * width if pursuit.mu_dim == "C" else width) / 4 / sums.clamp_min(_SMALLEST_NORM)
    level = pursuit.lambda_ * mu if pursuit.threshold == "lambda*mu" else pursuit.lambda_ / mu
    low_rank = dual = original.new_zeros(())
    wanted = tokens if last is None else last
    for iteration, share in enumerate(shares_of(pursuit), start=1):
        unexplained = original - low_rank + dual
        sparse = soft_threshold(unexplained, level) if share is None else share * unexplained
        cleaned = (original - sparse - dual).to(keys.dtype)
        if iteration == pursuit.iterations:
            return causal_attention(cleaned[..., -wanted:, :], cleaned, values)
        low_rank = causal_attention(cleaned, cleaned, values).to(original.dtype)
        dual = dual + original - low_rank - sparse
    raise AssertionError("a pursuit has at least one pass")


class DecoderAttention(nn.Module):
    """Multi-head attention with its residual connection and normalisation.

    Args:
        width: Of a token.
        heads: Which divide the width.
        dropout: Share of the output that is dropped in training.
        kind: ``softmax``, ``symmetric`` or ``rpc``.
        before: Whether to normalise before attention, in place of after the sum.
        pursuit: Of ``rpc``.
        norm: Of ``rpc``, see `NORMS`.

    Attributes:
        q_net: Queries; there also where keys are the queries, as in the published checkpoints, and then unused.
        kv_net: Keys, then values.
        o_net: From the heads back to a token.
        layer_norm: Of the sum.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        dropout: float = 0.0,
        kind: str = "symmetric",
        before: bool = False,
        pursuit: Pursuit | None = None,
        norm: str = "causal",
    ) -> None:
        super().__init__()
        self.heads, self.kind, self.before, self.pursuit, self.norm = heads, kind, before, pursuit or Pursuit(), norm
        self.q_net = nn.Linear(width, width, bias=False)
        self.kv_net = nn.Linear(width, 2 * width, bias=False)
        self.o_net = nn.Linear(width, width, bias=False)
        self.layer_norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, last: int | None = None) -> Tensor:
        """Return ``(B, last, C)`` for ``hidden`` ``(B, N, C)``; all tokens where ``last`` is ``None``."""
        wanted = hidden.shape[1] if last is None else last
        inside = self.layer_norm(hidden) if self.before else hidden
        keys, values = (self._split(part) for part in self.kv_net(inside).chunk(2, dim=-1))
        if self.kind == "rpc":
            out = causal_pursuit_attention(keys, values, self.pursuit, norm=self.norm, last=wanted)
        elif self.kind == "softmax":
            out = causal_attention(self._split(self.q_net(inside[:, -wanted:])), keys, values)
        else:
            out = causal_attention(keys[..., -wanted:, :], keys, values)
        made: Tensor = hidden[:, -wanted:] + self.drop(self.o_net(out.transpose(1, 2).flatten(2)))
        normal: Tensor = made if self.before else self.layer_norm(made)
        return normal

    def _split(self, tensor: Tensor) -> Tensor:
        return tensor.view(*tensor.shape[:2], self.heads, -1).transpose(1, 2)
