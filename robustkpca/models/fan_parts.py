"""The parts of a fully attentional network: stem, positions, token mixing, channel processing, class attention."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from robustkpca.errors import BadValue
from robustkpca.models.attention import Carried, SelfAttention
from robustkpca.models.vision_transformer import Perceptron, pair

EPS = 1e-6
_HIDDEN, _TEMPERATURE = 32, 10_000.0  # of the position encoding
STEMS = {16: (8, 4, 2, 1), 8: (4, 2, 1), 4: (4, 1), 2: (1,)}
"""Divisors of the width after each convolution of stride 2, by patch size; 2 is not in the reference."""


def token_mixing(kind: type[SelfAttention]) -> type[SelfAttention]:
    """Return an attention with the key names of FAN: ``q`` where there are queries, and ``kv``."""

    class TokenMixing(kind):  # type: ignore[valid-type, misc]
        """What the heads do is the attention's own; only the projections have other names."""

        def make_projections(self, dim: int, bias: bool) -> None:
            """Make ``q`` and ``kv``."""
            if self.projections == 3:
                self.q = nn.Linear(dim, dim, bias=bias)
            self.kv = nn.Linear(dim, 2 * dim, bias=bias)

        def split(self, tokens: Tensor) -> tuple[Tensor, ...]:
            """Return queries, where there are some, keys and values, each ``(B, H, N, d)``."""
            both = self.by_head(self.kv(tokens), 2)
            return (*self.by_head(self.q(tokens), 1), *both) if self.projections == 3 else both

    return TokenMixing


class FANBlock(nn.Module):
    """Token mixing, then channel processing, each scaled per feature and added to the tokens ``(B, N, dim)``."""

    def __init__(self, attention: SelfAttention, dim: int, num_heads: int, hidden: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=EPS)
        self.attn = attention
        self.norm2 = nn.LayerNorm(dim, eps=EPS)
        self.mlp = ChannelProcessing(dim, num_heads, hidden)
        self.gamma1 = nn.Parameter(torch.ones(dim))
        self.gamma2 = nn.Parameter(torch.ones(dim))
        self.drop_path = drop_path

    def forward(self, tokens: Tensor, size: tuple[int, int], carried: Carried | None = None) -> Tensor:
        """Return the tokens after both branches; ``size`` is the grid that they form row by row."""
        tokens = tokens + _dropped(self.gamma1 * self.attn(self.norm1(tokens), carried), self.drop_path, self.training)
        return tokens + _dropped(self.gamma2 * self.mlp(self.norm2(tokens), size), self.drop_path, self.training)


class ChannelProcessing(nn.Module):
    """A convolutional perceptron whose channels are weighed by an attention of channels to the tokens' mean."""

    def __init__(self, dim: int, num_heads: int, hidden: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.temperature = nn.Parameter(torch.ones(num_heads, 1, 1))
        self.mlp_v = ConvolutionalPerceptron(dim, hidden)
        self.norm_v = nn.LayerNorm(dim, eps=EPS)
        self.q = nn.Linear(dim, dim)

    def forward(self, tokens: Tensor, size: tuple[int, int]) -> Tensor:
        """Return ``(B, N, C)`` for tokens ``(B, N, C)`` on a grid of that size."""
        batch, count, dim = tokens.shape
        heads = batch, count, self.num_heads, dim // self.num_heads
        queries = self.q(tokens).reshape(heads).transpose(1, 2).softmax(dim=-2)
        keys = tokens.reshape(heads).transpose(1, 2).softmax(dim=-2).mean(dim=-1, keepdim=True)
        weights = (queries.mT @ keys).sigmoid() * self.temperature  # (B, H, d, 1)
        weighed: Tensor = self.norm_v(self.mlp_v(tokens, size)) * weights.reshape(batch, 1, dim)
        return weighed


class ConvolutionalPerceptron(nn.Module):
    """Two linear layers with a residual pair of depthwise convolutions over the grid between them."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.dwconv = DepthwisePair(hidden)
        self.gamma = nn.Parameter(torch.ones(hidden))
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, tokens: Tensor, size: tuple[int, int]) -> Tensor:
        """Return ``(B, N, dim)`` for tokens ``(B, N, dim)``."""
        tokens = self.fc1(tokens)
        local = self.dwconv(tokens.mT.reshape(len(tokens), -1, *size)).flatten(2).mT
        output: Tensor = self.fc2(self.gamma * local + tokens)
        return output


class DepthwisePair(nn.Module):
    """Two depthwise 3 x 3 convolutions with GELU and batch normalisation between them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.bn = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, features: Tensor) -> Tensor:
        """Return ``(B, channels, H, W)`` for the same."""
        output: Tensor = self.conv2(self.bn(gelu(self.conv1(features))))
        return output


class ClassAttention(nn.Module):
    """The class token attends to all tokens; without queries of its own its key takes their place."""

    def __init__(self, dim: int, num_heads: int, bias: bool, own_queries: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        if own_queries:
            self.q = nn.Linear(dim, dim, bias=bias)
        self.k = nn.Linear(dim, dim, bias=bias)
        self.v = nn.Linear(dim, dim, bias=bias)
        self.proj = nn.Linear(dim, dim)
        self.own_queries = own_queries

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the class token ``(B, 1, C)`` for tokens ``(B, 1 + N, C)``."""
        query = self.q if self.own_queries else self.k
        queries, keys, values = (
            projected.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for projected in (query(tokens[:, :1]), self.k(tokens), self.v(tokens))
        )
        attended = scaled_dot_product_attention(queries, keys, values)
        output: Tensor = self.proj(attended.transpose(1, 2).flatten(2))
        return output


class ClassAttentionBlock(nn.Module):
    """Class attention and a perceptron for the class token; the patch tokens are normalised, and so doubled, beside it."""

    def __init__(self, dim: int, num_heads: int, hidden: int, bias: bool, own_queries: bool, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=EPS)
        self.attn = ClassAttention(dim, num_heads, bias, own_queries)
        self.norm2 = nn.LayerNorm(dim, eps=EPS)
        self.mlp = Perceptron(dim, hidden)
        self.gamma1 = nn.Parameter(torch.ones(dim))
        self.gamma2 = nn.Parameter(torch.ones(dim))
        self.drop_path = drop_path

    def forward(self, tokens: Tensor) -> Tensor:
        """Return ``(B, 1 + N, C)`` for tokens ``(B, 1 + N, C)``."""
        normalised = self.norm1(tokens)
        attended = torch.cat([self.attn(normalised), normalised[:, 1:]], dim=1)
        tokens = self.norm2(tokens + _dropped(self.gamma1 * attended, self.drop_path, self.training))
        changed = torch.cat([self.gamma2 * self.mlp(tokens[:, :1]), tokens[:, 1:]], dim=1)
        return tokens + _dropped(changed, self.drop_path, self.training)


class ConvolutionalStem(nn.Module):
    """Convolutions of stride 2 with batch normalisation, from images ``(B, C, H, W)`` to a grid of tokens."""

    def __init__(self, in_chans: int, embed_dim: int, patch_size: int) -> None:
        super().__init__()
        widths = [in_chans, *(embed_dim // divisor for divisor in STEMS[patch_size])]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            convolution = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
            layers += [nn.GELU(), nn.Sequential(convolution, nn.BatchNorm2d(after))]
        self.proj = nn.Sequential(*layers[1:])

    def forward(self, images: Tensor) -> Tensor:
        """Return ``(B, embed_dim, rows, columns)``."""
        features: Tensor = self.proj(images)
        return features


class FourierPositions(nn.Module):
    """Sines and cosines of both coordinates, mapped to the width of a token."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.token_projection = nn.Conv2d(2 * _HIDDEN, dim, kernel_size=1)

    def forward(self, rows: int, columns: int) -> Tensor:
        """Return ``(1, dim, rows, columns)``."""
        weight = self.token_projection.weight
        exponents = 2 * torch.arange(_HIDDEN // 2, dtype=torch.float32, device=weight.device) / _HIDDEN
        frequencies = _TEMPERATURE**-exponents
        waves = []
        for count in (rows, columns):
            places = torch.arange(1, count + 1, dtype=torch.float32, device=weight.device)
            angles = (2 * math.pi * places / (count + EPS))[:, None] * frequencies
            waves.append(torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1))
        vertical = waves[0][:, None].expand(rows, columns, -1)
        horizontal = waves[1][None].expand(rows, columns, -1)
        encoding = torch.cat([vertical, horizontal], dim=-1).permute(2, 0, 1)[None]
        projected: Tensor = self.token_projection(encoding.to(weight.dtype))
        return projected


def grid(img_size: int | tuple[int, int], patch_size: int) -> tuple[int, int]:
    """Return rows and columns of tokens.

    Raises:
        BadValue: If the patch size has no stem, or does not divide the size of the images.
    """
    if patch_size not in STEMS:
        raise BadValue(f"patch_size is {patch_size!r}; expected one of {', '.join(map(str, STEMS))}")
    height, width = pair("img_size", img_size)
    if height % patch_size or width % patch_size:
        raise BadValue(f"img_size {img_size} is not a multiple of patch_size {patch_size}")
    return height // patch_size, width // patch_size


def _dropped(branch: Tensor, probability: float, training: bool) -> Tensor:
    """Zero the branch of some samples while training and scale the others, so that its mean stays."""
    if not training or probability == 0:
        return branch
    kept = 1 - probability
    return branch * branch.new_empty(len(branch), 1, 1).bernoulli_(kept) / kept
