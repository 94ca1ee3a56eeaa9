"""The fully attentional network (FAN): blocks of token mixing and channel processing, then a class token that attends.

Where the token mixing has no queries of its own (symmetric and RPC attention), the class attention has none either, as in
the reference.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from robustkpca.errors import BadValue
from robustkpca.models.attention import Carried, SelfAttention
from robustkpca.models.fan_parts import EPS, ClassAttentionBlock, ConvolutionalStem, FANBlock, FourierPositions, grid
from robustkpca.models.vision_transformer import at_least, pair
from robustkpca.preprocessing import Preprocessing


class FAN(nn.Module):
    """A fully attentional network.

    Args:
        mixing: The token mixing of each block, made by `token_mixing`; their number is the depth.
        img_size: Side of the images in pixels, or ``(height, width)``.
        patch_size: 16, 8, 4 or 2, by as many halvings in a stem of convolutions; divides ``img_size``.
        in_chans: Number of image channels.
        num_classes: Number of logits; 0 returns the normalised class token instead.
        embed_dim: Width of a token, ``C``; a multiple of 8.
        num_heads: Number of heads, of token mixing, channel processing and class attention.
        mlp_ratio: Width of hidden layers, in units of ``embed_dim``.
        qkv_bias: Whether projections to queries, keys and values have a bias.
        class_depth: Number of class-attention blocks at the end.
        drop_path: Probability in [0, 1) that a sample skips a block's branches while training, the same in every block.

    Raises:
        BadValue: If a size does not fit the others.

    Source:
        Zhou et al. 2022, arXiv:2204.12451, as in NVlabs/FAN, models/fan.py, and rachtsy/FAN, models/fan_sym.py. The class
        attention is that of CaiT (Touvron et al. 2021, arXiv:2103.17239).
    """

    preprocessing: Preprocessing
    bundled_checkpoint: str

    def __init__(
        self,
        mixing: list[SelfAttention],
        *,
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 16,
        in_chans: int = 3,
        num_classes: int = 1000,
        embed_dim: int = 192,
        num_heads: int = 4,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        class_depth: int = 2,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.img_size = pair("img_size", img_size)
        self.in_chans, self.num_classes, self.embed_dim = in_chans, num_classes, embed_dim
        at_least(1, in_chans=in_chans, embed_dim=embed_dim, num_heads=num_heads, class_depth=class_depth)
        at_least(0, num_classes=num_classes)
        grid(img_size, patch_size)
        if embed_dim % 8:
            raise BadValue(f"embed_dim is {embed_dim}; expected a multiple of 8")
        if not 0 <= drop_path < 1:
            raise BadValue(f"drop_path is {drop_path}; expected a probability in [0, 1)")
        hidden = int(embed_dim * mlp_ratio)
        at_least(1, hidden=hidden)
        own_queries = mixing[-1].projections == 3
        self.patch_embed = ConvolutionalStem(in_chans, embed_dim, patch_size)
        self.pos_embed = FourierPositions(embed_dim)
        self.blocks = nn.ModuleList(FANBlock(one, embed_dim, num_heads, hidden, drop_path) for one in mixing)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.cls_attn_blocks = nn.ModuleList(
            ClassAttentionBlock(embed_dim, num_heads, hidden, qkv_bias, own_queries, drop_path)
            for _ in range(class_depth)
        )
        self.norm = nn.LayerNorm(embed_dim, eps=EPS)
        self.head = nn.Linear(embed_dim, num_classes) if num_classes else nn.Identity()
        self._initialise()

    def forward(self, images: Tensor) -> Tensor:
        """Return logits ``(B, num_classes)`` for images ``(B, in_chans, H, W)``, normalised as `preprocessing` says.

        Raises:
            BadValue: If the images have another size than the model was built for.
        """
        logits: Tensor = self.head(self.forward_features(images)[:, 0])
        return logits

    def forward_features(self, images: Tensor) -> Tensor:
        """Return the normalised tokens ``(B, 1 + N, C)``, the class token first."""
        expected = (self.in_chans, *self.img_size)
        if images.ndim != 4 or images.shape[1:] != expected:
            raise BadValue(f"images are {tuple(images.shape)}; this model was built for (B, *{expected})")
        features = self.patch_embed(images)
        size = features.shape[-2], features.shape[-1]
        tokens = (features + self.pos_embed(*size)).flatten(2).transpose(1, 2)
        carried = Carried()
        for block in self.blocks:
            tokens = block(tokens, size, carried)
        tokens = torch.cat([self.cls_token.expand(len(images), -1, -1), tokens], dim=1)
        for block in self.cls_attn_blocks:
            tokens = block(tokens)
        normalised: Tensor = self.norm(tokens)
        return normalised

    def no_weight_decay(self) -> set[str]:
        """Return the names of weights that optimisers leave undecayed, beside vectors, as timm asks for them."""
        return {"cls_token"}

    def _initialise(self) -> None:
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Conv2d) and module.groups > 1:
                nn.init.normal_(module.weight, std=math.sqrt(2 / math.prod(module.kernel_size)))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
