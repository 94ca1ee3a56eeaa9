"""A language model as its task sees it: lines in, numbers of tokens and losses out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from robustkpca.errors import Unusable
from robustkpca.models.classifier import ROWS, TorchClassifier
from robustkpca.specs import ModelSpec

LARGEST = 2048
"""Most places of one pass that are scored; each needs a row of logits as wide as the vocabulary."""


class Encoder(Protocol):
    """How a line becomes tokens."""

    def encode(self, line: str) -> list[int]:
        """Return the tokens of a line, with what ends it."""
        ...


class LanguageModel:
    """A network that knows its words.

    Args:
        loaded: The network with its specification; its ``forward`` takes tokens and targets ``(B, N)`` and how many of the last
            places are wanted, and returns losses in nats. Its attribute ``vocabulary`` encodes lines.

    Attributes:
        network: The network.
        spec: What it is.
        batch_size: Most windows of one pass.
        device: Where it runs.
        reading: What a line of progress says of the input.

    Raises:
        Unusable: If the network has no words.
    """

    def __init__(self, loaded: TorchClassifier) -> None:
        self._loaded = loaded
        self.network: nn.Module = loaded.network
        self.spec: ModelSpec = loaded.spec
        self.batch_size, self.device, self.reading = loaded.batch_size, loaded.device, "lines of text"
        words: Any = getattr(loaded.network, "vocabulary", None)
        if not hasattr(words, "encode"):
            raise Unusable(
                f"model {self.spec.label} has no vocabulary, so it cannot read text; give it one, such as "
                f"'{self.spec.label.partition('(')[0]}(vocabulary=wiki.train.tokens)', or choose a language model"
            )
        self.words: Encoder = words

    def evaluating(self) -> AbstractContextManager[Any]:
        """Hold the network in eval mode, and afterwards leave it as it was."""
        return self._loaded.evaluating()

    def losses(self, windows: Tensor, last: int) -> Tensor:
        """Return the negative log-probabilities in nats of the last tokens of some windows.

        Args:
            windows: ``(B, N + 1)``, int64, on the CPU; every token but the first is a target, every one but the last is read.
            last: How many of the last targets are wanted.

        Returns:
            ``(B, last)``, float64, on the CPU.
        """
        size = max(ROWS, min(self.batch_size, LARGEST // last) // ROWS * ROWS)
        parts = []
        with torch.no_grad():
            for part in torch.split(windows, size):
                rows = torch.arange(-(-len(part) // ROWS) * ROWS).clamp_max(len(part) - 1)
                padded = part[rows].to(self.device)
                parts.append(self.network(padded[:, :-1], padded[:, 1:], last)[: len(part)].double().cpu())
        return torch.cat(parts)


def sliding_losses(
    model: LanguageModel, tokens: Sequence[int] | Tensor, wanted: Sequence[int] | Tensor, *, context: int, stride: int
) -> tuple[Tensor, Tensor]:
    """Score some tokens of a text by a window that slides over it.

    The first window scores all its targets. Every later one has moved on by ``stride`` tokens, and scores those that are new.
    Only windows that score something wanted are computed, many in one pass, and of the last layer and the vocabulary only what
    the scored places need.

    Args:
        model: In eval mode.
        tokens: ``(T,)``, int64, the whole text.
        wanted: ``(M,)``, places of tokens to be scored, from 1; the first token of a text has nothing before it.
        context: Tokens that a window reads; fewer where the text is shorter.
        stride: At most ``context``.

    Returns:
        ``(M,)``, float64, losses in nats, and ``(M,)``, int64, which window scored each.

    Source:
        KPCA-S, lm/src_attack (eval_sliding_window), for stride 1.
    """
    text, places = torch.as_tensor(tokens), torch.as_tensor(wanted, dtype=torch.int64)
    length = min(context, len(text) - 1)
    if not len(places):
        return torch.zeros(0, dtype=torch.float64), places
    number = ((places - length + stride - 1) // stride).clamp_min(0)
    ends = (length + number * stride).clamp_max(len(text) - 1)
    losses = torch.zeros(len(places), dtype=torch.float64)
    for first in (True, False):
        mine = ((number == 0) == first).nonzero().squeeze(1)
        if not len(mine):
            continue
        used, row = torch.unique(ends[mine], return_inverse=True)
        last = length if first else stride
        scored = model.losses(torch.stack([text[end - length : end + 1] for end in used.tolist()]), last)
        losses[mine] = scored[row, last - 1 - (ends[mine] - places[mine])]
    return losses, number
