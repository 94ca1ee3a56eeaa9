"""The plain vision transformer, with a choice of attention for every block and the published key names."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustkpca.errors import BadValue
from robustkpca.models.attention import Carried, SelfAttention
from robustkpca.models.mechanisms import AttentionFactory
from robustkpca.preprocessing import Preprocessing

INITS = ("published", "timm")
_EPS = 1e-6  # DeiT; torch's own default is 1e-5


class VisionTransformer(nn.Module):
    """A vision transformer with a class token, learned positions and pre-norm blocks.

    Args:
        attention: One factory per block; their number is the depth.
        img_size: Side of the images in pixels, or ``(height, width)``.
        patch_size: Side of a patch in pixels, or ``(height, width)``; divides ``img_size``.
        in_chans: Number of image channels.
        num_classes: Number of logits; 0 returns the normalised class token instead.
        embed_dim: Width of a token, ``C``.
        num_heads: Number of heads; divides ``embed_dim``.
        mlp_ratio: Width of the hidden layer of a block's perceptron, in units of ``embed_dim``.
        qkv_bias: Whether the projection to queries, keys and values has a bias.
        drop_path: Probability in [0, 1) that a sample skips the last block's branches while training; it grows linearly
            from 0 in the first block.
        init: ``published`` keeps torch's default weights for linear layers, as KPCA_code does; ``timm`` draws them from
            a truncated normal of deviation 0.02 with zero bias.

    Raises:
        BadValue: If a size does not fit the others.

    Source:
        Dosovitskiy et al. 2021, arXiv:2010.11929, as in DeiT (Touvron et al. 2021, arXiv:2012.12877), timm, and
        rachtsy/KPCA_code, which names timm's initialisation but never calls it. Dropout is left out; all of these set it to 0.
    """

    preprocessing: Preprocessing
    bundled_checkpoint: str

    def __init__(
        self,
        attention: list[AttentionFactory],
        *,
        img_size: int | tuple[int, int] = 224,
        patch_size: int | tuple[int, int] = 16,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dim: int = 192,
        num_heads: int = 3,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        drop_path: float = 0.0,
        init: str = "published",
    ) -> None:
        super().__init__()
        self.img_size, self.patch_size = pair("img_size", img_size), pair("patch_size", patch_size)
        for side, patch in zip(self.img_size, self.patch_size, strict=True):
            if side % patch:
                raise BadValue(f"img_size {img_size} is not a multiple of patch_size {patch_size}")
        at_least(1, in_chans=in_chans, embed_dim=embed_dim, num_heads=num_heads, depth=len(attention))
        at_least(0, num_classes=num_classes)
        if not 0 <= drop_path < 1:
            raise BadValue(f"drop_path is {drop_path}; expected a probability in [0, 1)")
        if int(embed_dim * mlp_ratio) < 1:
            raise BadValue(f"mlp_ratio is {mlp_ratio}; expected a positive number")
        if init not in INITS:
            raise BadValue(f"init is {init!r}; expected one of {', '.join(INITS)}")
        self.in_chans, self.num_classes, self.embed_dim = in_chans, num_classes, embed_dim

        tokens = 1 + (self.img_size[0] // self.patch_size[0]) * (self.img_size[1] // self.patch_size[1])
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, embed_dim))
        self.patch_embed = PatchEmbedding(in_chans, embed_dim, self.patch_size)
        last = max(len(attention) - 1, 1)
        self.blocks = nn.ModuleList(
            Block(
                make(embed_dim, num_heads, qkv_bias, tokens),
                embed_dim,
                int(embed_dim * mlp_ratio),
                drop_path * index / last,
            )
            for index, make in enumerate(attention)
        )
        self.norm = nn.LayerNorm(embed_dim, eps=_EPS)
        self.head = nn.Linear(embed_dim, num_classes) if num_classes else nn.Identity()
        self._initialise(init)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits ``(B, num_classes)`` for images ``(B, in_chans, H, W)``, normalised as `preprocessing` says.

        Raises:
            BadValue: If the images have another size than the model was built for.
        """
        logits: Tensor = self.head(self.forward_features(images)[:, 0])
        return logits

    def forward_features(self, images: Tensor) -> Tensor:
        """Return the normalised tokens ``(B, N, C)``, the class token first."""
        expected = (self.in_chans, *self.img_size)
        if images.ndim != 4 or images.shape[1:] != expected:
            raise BadValue(f"images are {tuple(images.shape)}; this model was built for (B, *{expected})")
        patches = self.patch_embed(images)
        tokens = torch.cat([self.cls_token.expand(len(images), -1, -1), patches], dim=1) + self.pos_embed
        carried = Carried()
        for block in self.blocks:
            tokens = block(tokens, carried)
        normalised: Tensor = self.norm(tokens)
        return normalised

    def no_weight_decay(self) -> set[str]:
        """Return the names of weights that optimisers leave undecayed, beside vectors, as timm asks for them."""
        return {"cls_token", "pos_embed"}

    def _initialise(self, init: str) -> None:
        for parameter in (self.cls_token, self.pos_embed):
            nn.init.trunc_normal_(parameter, std=0.02)
        for module in self.modules():
            if init == "timm" and isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


class PatchEmbedding(nn.Module):
    """Cut images ``(B, C, H, W)`` into patches and map each to a token; row by row, ``(B, N, embed_dim)``."""

    def __init__(self, in_chans: int, embed_dim: int, patch_size: tuple[int, int]) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """Return the tokens."""
        patches: Tensor = self.proj(images)
        return patches.flatten(2).transpose(1, 2)


class Block(nn.Module):
    """One pre-norm block: attention, then a perceptron, each added to the tokens ``(B, N, dim)``.

    Args:
        attention: What its heads do.
        dim: Width of a token.
        hidden: Width of the perceptron's hidden layer.
        drop_path: Probability that a sample skips a branch while training.
    """

    def __init__(self, attention: SelfAttention, dim: int, hidden: int, drop_path: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=_EPS)
        self.attn = attention
        self.norm2 = nn.LayerNorm(dim, eps=_EPS)
        self.mlp = Perceptron(dim, hidden)
        self.drop_path = drop_path

    def forward(self, tokens: Tensor, carried: Carried | None = None) -> Tensor:
        """Return the tokens after both branches; ``carried`` is what the block before left for its attention."""
        tokens = tokens + self._dropped(self.attn(self.norm1(tokens), carried))
        return tokens + self._dropped(self.mlp(self.norm2(tokens)))

    def _dropped(self, branch: Tensor) -> Tensor:
        """Zero the branch of some samples and scale the others, so that its mean stays (Huang et al. 2016)."""
        if not self.training or self.drop_path == 0:
            return branch
        kept = 1 - self.drop_path
        return branch * branch.new_empty(len(branch), 1, 1).bernoulli_(kept) / kept


class Perceptron(nn.Module):
    """Two linear layers with an exact GELU between them."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return ``(..., dim)`` for tokens ``(..., dim)``."""
        output: Tensor = self.fc2(nn.functional.gelu(self.fc1(tokens)))
        return output


def pair(name: str, size: int | tuple[int, int]) -> tuple[int, int]:
    """Read a size given as one number or as height and width.

    Raises:
        BadValue: If ``size`` is something else; it is called ``name``.
    """
    sides = tuple(size) if isinstance(size, tuple | list) else (size, size)
    if len(sides) != 2 or any(isinstance(side, bool) or not isinstance(side, int) or side < 1 for side in sides):
        raise BadValue(f"{name} is {size!r}; expected a number of pixels, or [height,width]")
    return sides[0], sides[1]


def at_least(least: int, **values: int) -> None:
    """Require whole numbers of at least ``least``; each of the ``values`` is named in its error.

    Raises:
        BadValue: If one is not.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise BadValue(f"{name} is {value!r}; expected a whole number of at least {least}")
