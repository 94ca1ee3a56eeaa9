"""What a task is: how its data are opened, how its models are loaded, and what is measured of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from robustkpca import registry
from robustkpca.data.dataset import Dataset
from robustkpca.errors import BadValue
from robustkpca.matrix import ModelChoice
from robustkpca.specs import ModelSpec
from robustkpca.threats import ThreatModel


class Model(Protocol):
    """What the runner needs of a model, whatever it is made for."""

    network: nn.Module
    spec: ModelSpec
    batch_size: int
    device: torch.device

    def evaluating(self) -> AbstractContextManager[Any]:
        """Hold the network in eval mode, and afterwards leave it as it was."""
        ...


@runtime_checkable
class Task(Protocol):
    """One kind of evaluation; the runner, the store and the tables know nothing else of it."""

    @property
    def name(self) -> str:
        """As in the registry."""
        ...

    @property
    def inputs(self) -> str:
        """What a sample is, ``images`` or ``text``; corruptions with this tag apply to it."""
        ...

    @property
    def reduction(self) -> str:
        """How the records of a threat become a number where no board says so, see `robustkpca.reductions.REDUCTIONS`."""
        ...

    def refuse(self, threat: ThreatModel) -> None:
        """Refuse a threat that such samples cannot meet.

        Raises:
            BadValue: If this is one.
        """
        ...

    def open(self, source: str, classes: int | None) -> Dataset:
        """Open a data set; ``read`` of it gives what ``measure`` takes, and what it gives can be indexed by a tensor."""
        ...

    def load(self, choice: ModelChoice, device: str, batch_size: int | str) -> Any:
        """Load a `Model` with its weights."""
        ...

    def look(self, model: Any, data: Dataset, positions: Sequence[int]) -> list[str]:
        """Check what a model makes of a few samples, before anything is measured.

        Args:
            model: From ``load``.
            data: From ``open``.
            positions: Of some samples that can be read.

        Returns:
            Remarks that belong in the header of every shard.

        Raises:
            UserError: If the model and the data do not go together.
        """
        ...

    def measure(
        self, model: Any, samples: Any, labels: torch.Tensor, threat: ThreatModel, *, seed: int, ids: Sequence[str]
    ) -> dict[str, list[Any]]:
        """Let one threat loose on some samples.

        Args:
            model: From ``load``, in eval mode.
            samples: What the data set read.
            labels: ``(N,)``, int64.
            threat: One that ``refuse`` lets pass.
            seed: Key of the random streams.
            ids: One per sample, the other part of the key; nothing may depend on which samples are measured together.

        Returns:
            Columns of records with one entry per sample; ``verdict`` and ``detail`` are among them.
        """
        ...

    def unread(self, labels: Sequence[int], reasons: Sequence[str]) -> dict[str, list[Any]]:
        """Return the columns of samples that could not be read, with the reasons."""
        ...


def find_task(name: str) -> Task:
    """Return a registered task.

    Raises:
        UnknownName: If there is none of that name.
    """
    task: Task = registry.find("tasks", name).value(Task)  # type: ignore[type-abstract]
    return task


def refuse_other_inputs(task: Task, threat: ThreatModel) -> None:
    """Refuse what is made for other samples: a budget is one of images, a corruption says by a tag what it changes.

    Raises:
        BadValue: If a part of the threat is of that kind.
    """
    for part in threat.parts:
        made_for = part.entry.tags if part.entry and part.budget is None else ("images",)
        others = {"images", "text"} & set(made_for) - {task.inputs}
        if part.entry is not None and others and task.inputs not in made_for:
            raise BadValue(
                f"threat {part.label!r} changes {' and '.join(sorted(others))}; expected one for {task.inputs}: "
                f"'robustkpca list corruptions --tag {task.inputs}' shows them"
            )
