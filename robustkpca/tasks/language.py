"""Language modelling: of every line the loss of its tokens, from which a table makes a perplexity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from robustkpca.audit import untrained
from robustkpca.data.dataset import Dataset
from robustkpca.data.text import Excerpt, Lines, open_text
from robustkpca.draws import Draws
from robustkpca.errors import BadValue, Unusable
from robustkpca.matrix import ModelChoice
from robustkpca.models.language_model import LanguageModel, sliding_losses
from robustkpca.models.loading import load_model
from robustkpca.records import Verdict
from robustkpca.strangers import FAULTS, described
from robustkpca.tasks.task import refuse_other_inputs
from robustkpca.threats import WORST_OF, ThreatModel

STRANGE = 0.1
"""The share of unknown words from which on a reader is told; all are one token, which alone makes a perplexity low."""


@lru_cache(maxsize=8)
def changed_lines(text: Lines, threat: ThreatModel, seed: int) -> tuple[str, ...]:
    """Return all lines of a text under a threat.

    The tokens before a line are part of what its model reads, so they are changed as in their own record.

    Args:
        text: As opened.
        threat: ``clean``, or a corruption of text.
        seed: Key of the random streams, with the threat and the line.
    """
    if threat.call.name == "clean":
        return text.lines
    draws = Draws.of(text.ids, seed=seed, threat=str(threat))
    return tuple(threat.function()(text.lines, draws=draws, **threat.call.arguments))


@dataclass(frozen=True)
class LanguageModelling:
    """Scores lines in their text."""

    name: str = "language"
    inputs: str = "text"
    reduction: str = "perplexity"

    def refuse(self, threat: ThreatModel) -> None:
        """Refuse what does not change text, and the worst of several, which a mean loss does not have."""
        refuse_other_inputs(self, threat)
        if threat.call.name == WORST_OF:
            raise BadValue(
                f"threat {threat.label!r}: a perplexity has no worst case over lines; name the threats one by one"
            )

    def open(self, source: str, classes: int | None) -> Dataset:
        """Open a text, see `robustkpca.data.text.open_text`; there are no classes."""
        if classes not in (None, 1):
            raise BadValue(f"--classes {classes}: a text for a language model has none; leave the option out")
        return open_text(source)

    def load(self, choice: ModelChoice, device: str, batch_size: int | str) -> LanguageModel:
        """Load a language model."""
        if choice.preprocessing is not None:
            raise BadValue("--preprocessing changes images; a language model reads text: leave the option out")
        return LanguageModel(
            load_model(
                choice.name,
                choice.checkpoint,
                device,
                use_ema=choice.use_ema,
                dtype=choice.dtype,
                batch_size=batch_size,
            )
        )

    def look(self, model: LanguageModel, data: Dataset, positions: Sequence[int]) -> list[str]:
        """Let the model read one window, and see that its losses are finite and its words are known."""
        assert isinstance(data, Lines)
        tokens = [token for line in data.lines[:64] for token in model.words.encode(line)][: data.context + 1]
        if len(tokens) < 2:
            raise BadValue(f"data {data.spec.name}: fewer than two tokens to begin with; expected a text")
        with model.evaluating():
            try:
                losses = model.losses(torch.tensor([tokens]), len(tokens) - 1)
            except FAULTS as error:
                raise Unusable(
                    f"model {model.spec.label} cannot read {len(tokens) - 1} tokens: {described(error)}"
                ) from error
        if not bool(losses.isfinite().all()):
            raise Unusable(
                f"model {model.spec.label} gives NaN or infinite losses for clean text; are the weights whole?"
            )
        return untrained(model.spec) + _strange_words(model, data)

    def measure(
        self,
        model: LanguageModel,
        samples: Excerpt,
        labels: Tensor,
        threat: ThreatModel,
        *,
        seed: int,
        ids: Sequence[str],
    ) -> dict[str, list[Any]]:
        """Return the measured columns of one shard, one entry per line.

        Columns: label (0), loss (the sum over its tokens, nats), tokens (that were scored), unknown (of them, ``<unk>``),
        forwards (windows that scored one of them), backwards (0), verdict, detail.
        """
        lines = changed_lines(samples.text, threat, seed)
        encoded = [model.words.encode(line) for line in lines]
        starts = [0]
        for one in encoded:
            starts.append(starts[-1] + len(one))
        text = torch.tensor([token for one in encoded for token in one], dtype=torch.int64)
        spans = [(max(1, starts[row]), max(1, starts[row + 1])) for row in samples.positions]
        wanted = torch.tensor([place for start, end in spans for place in range(start, end)], dtype=torch.int64)
        losses, windows = sliding_losses(model, text, wanted, context=samples.text.context, stride=samples.text.stride)
        numbers = getattr(model.words, "numbers", {})
        unknown = text[wanted] == numbers.get("<unk>", -1)
        counts = [end - start for start, end in spans]
        sums = [float(part.sum()) for part in torch.split(losses, counts)]
        return {
            "label": labels.tolist(),
            "loss": sums,
            "tokens": counts,
            "unknown": [int(part.sum()) for part in torch.split(unknown, counts)],
            "forwards": [len(set(part.tolist())) for part in torch.split(windows, counts)],
            "backwards": [0] * len(counts),
            "verdict": [(Verdict.MEASURED if math.isfinite(one) else Verdict.INVALID).value for one in sums],
            "detail": ["" if math.isfinite(one) else "the loss is not finite" for one in sums],
        }

    def unread(self, labels: Sequence[int], reasons: Sequence[str]) -> dict[str, list[Any]]:
        """Return the columns of lines that could not be read."""
        count = len(labels)
        counted = {name: [0] * count for name in ("tokens", "unknown", "forwards", "backwards")}
        nothing: dict[str, list[Any]] = {"label": list(labels), "loss": [float("nan")] * count, **counted}
        return nothing | {"verdict": [Verdict.FAILED.value] * count, "detail": list(reasons)}


def _strange_words(model: LanguageModel, data: Lines) -> list[str]:
    """Return a remark if a good part of a text is unknown to the model, which then has little to foresee."""
    numbers = getattr(model.words, "numbers", None)
    if numbers is None:
        return []
    words = [word for line in data.lines for word in line.split()]
    share = sum(word not in numbers for word in words) / max(1, len(words))
    return (
        [f"{100 * share:.0f} % of the words are unknown to its vocabulary and count as <unk>"]
        if share > STRANGE
        else []
    )


LANGUAGE = LanguageModelling()
