"""A classifier of sentences as its task sees it: texts in, logits out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from robustkpca.errors import Unusable
from robustkpca.models.classifier import ROWS, TorchClassifier
from robustkpca.specs import ModelSpec


class SentenceModel:
    """A network that maps the words of a sentence to logits.

    Args:
        loaded: The network with its specification; its attribute ``vocabulary`` encodes sentences.

    Attributes:
        network: The network.
        spec: What it is.
        batch_size: Most sentences of one pass.
        device: Where it runs.
        reading: What a line of progress says of the input.

    Raises:
        Unusable: If the network has no words.
    """

    def __init__(self, loaded: TorchClassifier) -> None:
        self._loaded = loaded
        self.network: nn.Module = loaded.network
        self.spec: ModelSpec = loaded.spec
        self.batch_size, self.device, self.reading = loaded.batch_size, loaded.device, "sentences"
        self.words: Any = getattr(loaded.network, "vocabulary", None)
        if not hasattr(self.words, "encode"):
            raise Unusable(
                f"model {self.spec.label} has no vocabulary, so it cannot read text; give it one, such as "
                "'sentence_transformer(vocabulary=words.txt)'"
            )

    def evaluating(self) -> AbstractContextManager[Any]:
        """Hold the network in eval mode, and afterwards leave it as it was."""
        return self._loaded.evaluating()

    def logits(self, texts: Sequence[str]) -> Tensor:
        """Return ``(N, K)``, float64, on the CPU; a pass holds sentences of one length, so that none is filled up."""
        encoded = [self.words.encode(text) for text in texts]
        groups: dict[int, list[int]] = {}
        for row, tokens in enumerate(encoded):
            groups.setdefault(len(tokens), []).append(row)
        made: dict[int, Tensor] = {}
        with torch.no_grad():
            for rows in groups.values():
                for start in range(0, len(rows), self.batch_size):
                    part = rows[start : start + self.batch_size]
                    padded = [*part, *[part[-1]] * (-len(part) % ROWS)]
                    batch = torch.tensor([encoded[row] for row in padded], device=self.device)
                    made |= dict(zip(part, self.network(batch).double().cpu(), strict=False))
        return torch.stack([made[row] for row in range(len(texts))])
