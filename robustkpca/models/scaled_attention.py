"""Scaled Attention: softmax attention over values from which a mixture of the other values is taken."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from robustkpca.errors import BadValue
from robustkpca.models.attention import SelfAttention
from robustkpca.models.pursuit import symmetric_attention

FORMS = ("S", "alpha")


class ScaledAttention(SelfAttention):
    """Attention ``A (V - M V)`` with ``A = softmax(Q K^T / sqrt(d))`` and a learned ``M``, at first zero.

    Both attentions run fused. ``S`` itself is a weight of one number for each head and pair of tokens.

    Args:
        dim: Width of a token, ``C``.
        num_heads: Number of heads; divides ``dim``.
        form: ``S``: ``M`` is a matrix of weights for each head, so that the number of tokens is fixed. ``alpha``: ``M`` is
            one learned number times ``softmax(K K^T / sqrt(d))``.
        tokens: Number of tokens, ``N``; for the form ``S``.
        qkv_bias: Whether the first projection has a bias.

    Raises:
        BadValue: If ``form`` is another one, or ``num_heads`` does not divide ``dim``.

    Source:
        Teo and Nguyen 2024, arXiv:2406.13762; rachtsy/KPCA_code, Scaled_Attention/softmax.py, where ``alpha`` is called
        ``s_scalar`` and both weights ``s``. Attention dropout, set to 0 there, is left out.
    """

    def __init__(self, dim: int, num_heads: int, *, form: str = "S", tokens: int = 197, qkv_bias: bool = True) -> None:
        super().__init__(dim, num_heads, qkv_bias=qkv_bias)
        if form not in FORMS:
            raise BadValue(f"form is {form!r}; expected one of {', '.join(FORMS)}")
        self.form = form
        self.s = nn.Parameter(torch.zeros(1) if form == "alpha" else torch.zeros(num_heads, tokens, tokens))

    def attend(self, parts: tuple[Tensor, ...], before: Tensor | None = None) -> Tensor:
        """Return ``(B, H, N, d)``."""
        queries, keys, values = parts
        mixture = self.s * symmetric_attention(keys, values) if self.form == "alpha" else self.s @ values
        return scaled_dot_product_attention(queries, keys, values - mixture)
