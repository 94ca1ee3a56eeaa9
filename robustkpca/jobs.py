"""One shard as a parcel: what a worker needs to run it, and what it gives back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import robustkpca
from robustkpca.data.dataset import Dataset
from robustkpca.errors import Unusable
from robustkpca.matrix import ModelChoice
from robustkpca.records import RunHeader
from robustkpca.runner import Shard, run
from robustkpca.store import Cell
from robustkpca.tasks.task import Model, Task, find_task
from robustkpca.threats import ThreatModel

_ALIKE = ("torch", "torchvision", "timm", "numpy", "scipy", "pillow")


@dataclass(frozen=True)
class Job:
    """A shard and everything that a worker needs to run it; plain values, so that it can be sent.

    Args:
        task: Name of the task.
        cell: What the records belong to.
        positions: The samples, by their position in the data set.
        choice: The model.
        batch_size: Most images of one pass, or ``auto``.
        data: Folder or file; the same path for every worker.
        classes: Number of classes of the data set.
        planned: How many samples the run was asked for.
        flags: Remarks about the model.
        damaged: Those of the positions that cannot be read, with the reason.
        code: `code_fingerprint` of the driver.
    """

    task: str
    cell: Cell
    positions: tuple[int, ...]
    choice: ModelChoice
    batch_size: int | str
    data: str
    classes: int | None
    planned: int
    flags: tuple[str, ...]
    damaged: dict[int, str]
    code: str


@dataclass(frozen=True)
class Records:
    """What `ResultStore.write` takes: the records of a shard, or of a part of it."""

    cell: Cell
    header: RunHeader
    samples: list[str]
    columns: dict[str, Sequence[Any]]


class Desk:
    """What a worker holds between its jobs: models and data that it has loaded.

    Args:
        device: Where its models run.
    """

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._model: tuple[str, Model] | None = None
        self._data: tuple[str, Dataset] | None = None

    def do(self, job: Job) -> list[Records]:
        """Run a shard and return its records.

        Raises:
            UserError: If this worker has other code, another model or other data than the driver.
        """
        if job.code != code_fingerprint():
            raise Unusable(
                f"a worker has robustkpca {version('robustkpca')} at {Path(robustkpca.__file__).parent} with other code or "
                f"libraries than the driver ({code_fingerprint()} instead of {job.code}); install the same there"
            )
        task = find_task(job.task)
        data, model = self._open(task, job), self._load(task, job)
        shard = Shard(job.cell, ThreatModel.parse(job.cell.threat), job.positions)
        kept = _Kept()
        run(task, model, data, [[shard]], kept, planned=job.planned, flags=job.flags, damaged=job.damaged)
        return kept.records

    def _open(self, task: Task, job: Job) -> Dataset:
        if self._data is None or self._data[0] != job.cell.data:
            found = task.open(job.data, job.classes)
            if found.spec.id != job.cell.data:
                raise Unusable(
                    f"a worker finds {found.spec.id} at {job.data}; expected {job.cell.data}, as the driver does"
                )
            self._data = (job.cell.data, found)
        return self._data[1]

    def _load(self, task: Task, job: Job) -> Model:
        if self._model is None or self._model[0] != job.cell.model:
            self._model = None  # before the next one is loaded
            choice = job.choice
            model: Model = task.load(choice, self.device, job.batch_size)
            if model.spec.id != job.cell.model:
                raise Unusable(
                    f"model {choice.name}: a worker loads {model.spec.id}; expected {job.cell.model}, as the driver does. Are "
                    "its file and its weights the same there?"
                )
            self._model = (job.cell.model, model)
        return self._model[1]


@dataclass
class _Kept:
    """A store that keeps what it is given."""

    records: list[Records] = field(default_factory=list)

    def write(
        self, cell: Cell, header: RunHeader, samples: Sequence[str], columns: Mapping[str, Sequence[Any]]
    ) -> None:
        """Keep the records of one shard."""
        self.records.append(Records(cell, header, list(samples), dict(columns)))


@cache
def code_fingerprint() -> str:
    """Return 16 hex digits that are equal where the code of robustkpca and the libraries behind its numbers are."""
    parts = [robustkpca, *(import_module(f"robustkpca.{wing}") for wing in ("attacks", "corruptions"))]
    digest = hashlib.sha256(" ".join(f"{name} {version(name)}" for name in _ALIKE).encode())
    for root in (Path(str(part.__file__)).parent for part in parts):
        for path in sorted(root.rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]
