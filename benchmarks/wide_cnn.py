"""A larger network for 8 x 8 digits, to be trained adversarially for `attacks.py`.

Trained by ``robustkpca train benchmarks/wide_cnn.py:wide_cnn --data digits/train --recipe 'digits(epochs=30,rate=1e-3)'
--adversary 'pgd(steps=7)@linf:0.12' --out wide_cnn.pth``.
"""

from torch import nn

from robustkpca.preprocessing import Preprocessing


def wide_cnn() -> nn.Module:
    """Return an untrained network of 1 047 178 parameters for ``(N, 1, 8, 8)`` and ten classes."""
    network = nn.Sequential(
        nn.Conv2d(1, 64, 3, padding=1),
        nn.GELU(),
        nn.Conv2d(64, 128, 3, padding=1),
        nn.GELU(),
        nn.Conv2d(128, 128, 3, stride=2, padding=1),
        nn.GELU(),
        nn.Conv2d(128, 256, 3, padding=1),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 512),
        nn.GELU(),
        nn.Linear(512, 10),
    )
    network.preprocessing = Preprocessing(channels=1)
    return network
