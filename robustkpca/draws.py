"""One random stream per sample, so that a result does not depend on the company a sample keeps.

The numbers come from the counter-based generator Philox 4x32-10. A sample's key is a digest of (seed, threat, restart,
sample id); the counter is (position, call). Hence no state lies in the global generator, nothing depends on batch, order
or worker, and the integers are the same on every device.

Source:
    Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3; constants of Random123.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy
import torch
from torch import Tensor

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_BLOCKS_AT_ONCE = 1 << 16  # keeps the intermediate integers in the cache


def philox(counter: Sequence[Tensor], key: Sequence[Tensor]) -> list[Tensor]:
    """Encrypt four counter words under two key words; all are int64 tensors that hold 32-bit values.

    Ten rounds. Tensors are broadcast against each other.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return [c0, c1, c2, c3]


def _multiply(word: Tensor, constant: int) -> tuple[Tensor, Tensor]:
    product = word * constant  # wraps modulo 2**64, whose bits are those of the unsigned product
    return (product >> 32) & _WORD, product & _WORD


@dataclass
class Draws:
    """The random numbers of a batch of samples, one stream each.

    Every method returns ``(N, *shape)`` on the device and in the dtype of ``like``. Each call advances all streams alike.

    Args:
        keys: ``(N, 2)``, int64, two 32-bit words per sample.
        calls: How many calls were made so far.
    """

    keys: Tensor
    calls: int = 0

    @classmethod
    def of(cls, samples: Sequence[str], *, seed: int, threat: str, restart: int = 0) -> Draws:
        """Open the streams of some samples.

        Args:
            samples: One id per sample.
            seed: The seed of the run.
            threat: The threat's canonical text, so that two threats share no numbers.
            restart: Which independent repetition.
        """
        words = []
        for sample in samples:
            text = "\x1f".join((str(seed), threat, str(restart), str(sample)))
            digest = blake2b(text.encode(), digest_size=8).digest()
            words.append((int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")))
        return cls(torch.tensor(words, dtype=torch.int64).reshape(-1, 2))

    def __len__(self) -> int:
        return len(self.keys)

    def narrow(self, index: Tensor) -> Draws:
        """Keep the streams at these positions ``(M,)``; they go on where they are."""
        return Draws(self.keys[index.to(self.keys.device)], self.calls)

    def uniform(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Draw from [0, 1), in steps of 2**-24."""
        return (
            (self._words(shape, like) >> 8).to(like.dtype if like.dtype is torch.float64 else torch.float32) * 2**-24
        ).to(like.dtype)

    def normal(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Draw from the standard normal distribution (Box and Muller 1958), computed in float64."""
        size = math.prod(shape)
        words = self._words((2, size), like)
        radius = (-2 * (((words[:, 0] >> 8) + 1).double() * 2**-24).log()).sqrt()
        angle = 2 * math.pi * (words[:, 1] >> 8).double() * 2**-24
        return (radius * angle.cos()).to(like.dtype).view(len(self), *shape)

    def signs(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Draw -1 or +1 with equal chance."""
        size = math.prod(shape)
        words = self._words((-(-size // 32),), like)
        bits = (words.unsqueeze(-1) >> torch.arange(32, device=words.device)) & 1
        return (2 * bits.flatten(1)[:, :size] - 1).to(like.dtype).view(len(self), *shape)

    def integers(self, high: int | Tensor, shape: Sequence[int], like: Tensor) -> Tensor:
        """Draw whole numbers from 0 to ``high - 1``, int64.

        Args:
            high: At most 2**31, one number or a tensor that broadcasts against ``(N, *shape)``.
            shape: Shape of the draw of one sample.
            like: Says on which device.
        """
        return (self._words(shape, like) * high) >> 32

    def generators(self) -> list[numpy.random.Generator]:
        """Return one NumPy generator per sample, for what is drawn in arrays on the CPU.

        Each starts from a hash of the sample's key and the number of the call, so that none depends on the company a sample
        keeps. What a generator makes of its bits is NumPy's, whose version stands in every header.
        """
        self.calls += 1
        return [
            numpy.random.Generator(numpy.random.SFC64(numpy.random.SeedSequence((*key, self.calls - 1))))
            for key in self.keys.tolist()
        ]

    def _words(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return ``(N, *shape)`` words of 32 bits, int64."""
        size = math.prod(shape)
        blocks = -(-size // 4)
        keys = self.keys.to(like.device)
        call = torch.tensor(self.calls, device=like.device)
        zero = torch.zeros((), dtype=torch.int64, device=like.device)
        self.calls += 1
        parts = []
        columns = max(1, _BLOCKS_AT_ONCE // max(1, len(self)))
        for start in range(0, blocks, columns):
            position = torch.arange(start, min(start + columns, blocks), device=like.device)
            words = philox((position.expand(len(self), -1), call, zero, zero), (keys[:, :1], keys[:, 1:]))
            parts.append(torch.stack([word.expand(len(self), len(position)) for word in words], dim=-1).flatten(1))
        joined = torch.cat(parts, dim=1) if parts else keys.new_zeros(len(self), 0)
        return joined[:, :size].reshape(len(self), *shape)
