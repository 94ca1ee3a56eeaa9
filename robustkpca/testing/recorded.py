"""Random numbers that were recorded from another implementation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robustkpca.draws import Draws


@dataclass
class RecordedDraws(Draws):
    """Draws that answer with recorded numbers, to reproduce another implementation exactly.

    Args:
        keys: ``(N, 2)``, int64; which rows of the recordings belong to whom is told by the first column.
        calls: How many recordings were used.
        recordings: One tensor ``(N, *shape)`` for each call, in order.
    """

    recordings: Sequence[Tensor] = ()

    @classmethod
    def play(cls, *recordings: Tensor) -> RecordedDraws:
        """Answer the first call with the first recording, and so on."""
        rows = torch.arange(len(recordings[0]))
        return cls(torch.stack([rows, rows], dim=1), 0, recordings)

    def narrow(self, index: Tensor) -> RecordedDraws:
        """Keep the recordings of the samples at these positions ``(M,)``."""
        return RecordedDraws(self.keys[index.to(self.keys.device)], self.calls, self.recordings)

    def uniform(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return the next recording."""
        return self._next(shape, like)

    def normal(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return the next recording."""
        return self._next(shape, like)

    def signs(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return the next recording."""
        return self._next(shape, like)

    def _next(self, shape: Sequence[int], like: Tensor) -> Tensor:
        recording = self.recordings[self.calls][self.keys[:, 0]]
        self.calls += 1
        if tuple(recording.shape[1:]) != tuple(shape):
            raise AssertionError(
                f"draw {self.calls} asks for {tuple(shape)}, the recording holds {tuple(recording.shape[1:])}"
            )
        return recording.to(like.device, like.dtype)
