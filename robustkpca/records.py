"""What is written down: one record per (model, threat, sample), one header per shard."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, ClassVar


class Verdict(Enum):
    """What became of one sample under one threat."""

    MISTAKEN = "mistaken"
    """Misclassified before anything was tried."""
    SURVIVED = "survived"
    """Classified correctly, and no candidate changed that."""
    BROKEN = "broken"
    """A candidate within the budget is misclassified."""
    MEASURED = "measured"
    """A number was measured and nothing was to be decided, as for the perplexity of a language model."""
    INVALID = "invalid"
    """The model's output or a candidate cannot be judged; never robust, and it blocks its cell."""
    FAILED = "failed"
    """An error ended the attempt; tried again by the next run."""


@dataclass(frozen=True)
class RunHeader:
    """The circumstances of one shard, kept inside its file.

    Args:
        model: `ModelSpec.to_dict`.
        threat: Canonical text.
        threat_version: Version of the threat's implementation.
        data: `DataSpec.to_dict`.
        task: Name of the task.
        seed: The seed of the run.
        device: Where the model ran.
        dtype: Precision of the passes.
        batch_size: Most images of one pass.
        seconds: Wall time of the shard.
        started: UTC, ISO 8601.
        versions: Of Python and the libraries that can move a number.
        code: Folder that robustkpca was imported from.
        planned: How many samples of the data set the run was asked for.
        threat_label: The threat's text without the options that have their default value.
        flags: Remarks that a reader must see, such as ``random output``.
        schema: Version of the record columns.
    """

    model: dict[str, Any]
    threat: str
    threat_version: int
    data: dict[str, Any]
    task: str
    seed: int
    device: str
    dtype: str
    batch_size: int
    seconds: float
    started: str
    versions: dict[str, str]
    code: str
    planned: int
    threat_label: str
    flags: tuple[str, ...] = ()
    schema: int = 1

    SCHEMA: ClassVar[int] = 1

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)
