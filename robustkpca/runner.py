"""Plans what is missing as shards, and runs one shard."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import torch
from PIL import features
from torch import OutOfMemoryError

from robustkpca.data.dataset import Dataset
from robustkpca.data.subsets import subset_mask
from robustkpca.few_classes import few_classes
from robustkpca.installed import installed
from robustkpca.models.classifier import ROWS, TorchClassifier
from robustkpca.records import RunHeader
from robustkpca.specs import fingerprint
from robustkpca.store import Cell, ResultStore
from robustkpca.tasks.task import Model, Task
from robustkpca.threats import ThreatModel

log = logging.getLogger(__name__)

SHARD_SIZE = 256
"""Samples of one shard: what a crash can cost, and what an attack holds in memory at once."""

_VERSIONED = ("robustkpca", "torch", "torchvision", "timm", "numpy", "scipy", "pillow", "opencv-python-headless")
Progress = Callable[[ThreatModel, int], None]
"""Called with a threat and the number of samples that were just finished."""


class Writer(Protocol):
    """What takes the records of finished shards."""

    def write(self, cell: Cell, header: RunHeader, samples: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> Any:
        """Take the records of one shard; see `ResultStore.write`."""
        ...


@dataclass(frozen=True)
class Shard:
    """Samples, by their position in the data set, that one threat has still to meet."""

    cell: Cell
    threat: ThreatModel
    positions: tuple[int, ...]


def plan(
    store: ResultStore,
    model_id: str,
    threats: Sequence[ThreatModel],
    data: Dataset,
    positions: Sequence[int],
    *,
    seed: int,
    shard_size: int = SHARD_SIZE,
) -> list[list[Shard]]:
    """Return the missing work, grouped so that the shards of one group share their samples.

    Args:
        store: Says what is there already.
        model_id: The model's id.
        threats: What the samples meet.
        data: Where the samples come from.
        positions: Which samples are wanted.
        seed: The seed of the run.
        shard_size: Most samples of a shard.
    """
    cells = {t: Cell(model_id, str(t), t.version, data.spec.id, seed) for t in dict.fromkeys(threats)}
    done = {threat: store.done(cell) for threat, cell in cells.items()}
    groups = []
    for start in range(0, len(positions), shard_size):
        chunk = positions[start : start + shard_size]
        shards = []
        for threat, cell in cells.items():
            missing = tuple(position for position in chunk if data.ids[position] not in done[threat])
            if missing:
                shards.append(Shard(cell, threat, missing))
        if shards:
            groups.append(shards)
    return groups


def run(
    task: Task,
    model: Model,
    data: Dataset,
    groups: Sequence[Sequence[Shard]],
    store: Writer,
    *,
    planned: int,
    flags: Sequence[str] = (),
    damaged: Mapping[int, str] | None = None,
    progress: Progress | None = None,
) -> None:
    """Run the shards of one model and write each as soon as it is finished.

    The samples of the next group are read while the current one is measured.

    Args:
        task: What is measured of a sample.
        model: Its modes, buffers and the global generators are the same afterwards.
        data: Where the samples come from.
        groups: From `plan`.
        store: Where the records go.
        planned: How many samples the run was asked for, for the header.
        flags: Remarks about the model, for the header.
        damaged: Positions that cannot be read, with the reason; their records are ``FAILED``.
        progress: Told about every finished shard.
    """
    if isinstance(model, TorchClassifier):
        model.only = subset_mask(data.spec.layout)
    with model.evaluating():
        lost = damaged or {}
        for shards, positions, samples in _ahead(data, groups, model, lost):
            where = {position: row for row, position in enumerate(positions)}
            for shard in shards:
                sound = replace(shard, positions=tuple(p for p in shard.positions if p in where))
                unread = [position for position in shard.positions if position in lost]
                header = _header_of(task, model, data, shard, planned, flags)
                if sound.positions:
                    rows = torch.tensor([where[position] for position in sound.positions])
                    _run_fitting(task, model, data, sound, samples[rows], store, header)
                if unread:
                    labels, reasons = [data.labels[p] for p in unread], [lost[p] for p in unread]
                    columns = task.unread(labels, reasons)
                    store.write(shard.cell, header, [data.ids[p] for p in unread], columns)
                if progress is not None:
                    progress(shard.threat, len(shard.positions))


def _ahead(
    data: Dataset, groups: Sequence[Sequence[Shard]], model: Model, lost: Container[int]
) -> Iterator[tuple[Sequence[Shard], list[int], Any]]:
    """Yield each group with its samples, those that can be read, reading one group ahead."""
    needed = [sorted({p for shard in shards for p in shard.positions if p not in lost}) for shards in groups]

    def read(positions: list[int]) -> Any:
        return data.read(positions, model.spec.preprocessing) if positions else torch.empty(0)

    with ThreadPoolExecutor(1) as pool:
        reading = [pool.submit(read, positions) for positions in needed[:1]]
        for index, shards in enumerate(groups):
            samples = reading.pop().result()
            if index + 1 < len(groups):
                reading.append(pool.submit(read, needed[index + 1]))
            yield shards, needed[index], samples


def _run_fitting(
    task: Task, model: Model, data: Dataset, shard: Shard, samples: Any, store: Writer, header: RunHeader
) -> None:
    """Run a shard in passes that fit into memory: as long as they do not, they are halved."""
    while True:
        try:
            return _run_shard(task, model, data, shard, samples, store, replace(header, batch_size=model.batch_size))
        except OutOfMemoryError:
            before = model.batch_size
            if before <= ROWS:
                raise
            model.batch_size = -(-before // (2 * ROWS)) * ROWS
            if model.device.type == "cuda":
                torch.cuda.empty_cache()
            log.warning(
                "%s: too little memory for passes of %d %s; going on with %d, which changes no verdict",
                model.spec.label,
                before,
                task.inputs,
                model.batch_size,
            )


def _run_shard(
    task: Task, model: Model, data: Dataset, shard: Shard, samples: Any, store: Writer, header: RunHeader
) -> None:
    cell, ids = shard.cell, [data.ids[position] for position in shard.positions]
    labels = torch.tensor([data.labels[position] for position in shard.positions])
    clock = time.perf_counter()
    torch.manual_seed(int(fingerprint([cell.threat, cell.seed, ids])[:8], 16))  # for models that draw by themselves
    columns = task.measure(model, samples, labels, shard.threat, seed=cell.seed, ids=ids)
    store.write(cell, replace(header, seconds=time.perf_counter() - clock), ids, columns)


def _header_of(task: Task, model: Model, data: Dataset, shard: Shard, planned: int, flags: Sequence[str]) -> RunHeader:
    """Return what is known of a shard when it starts."""
    return RunHeader(
        model=model.spec.to_dict(),
        threat=shard.cell.threat,
        threat_version=shard.cell.threat_version,
        data=data.spec.to_dict(),
        task=task.name,
        seed=shard.cell.seed,
        device=str(model.device),
        dtype=model.spec.dtype,
        batch_size=model.batch_size,
        seconds=0.0,
        started=datetime.now(timezone.utc).isoformat(),
        versions=_versions() | _announcer(shard.threat),
        code=str(Path(__file__).parent),
        planned=planned,
        threat_label=shard.threat.label,
        flags=(*flags, *_remarks(shard.threat), *few_classes(shard.threat, data.spec.classes)),
    )


@cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    jpeg = features.version_feature("libjpeg_turbo") or features.version_codec("jpg")
    return found | ({"libjpeg": jpeg} if jpeg else {})


def _announcer(threat: ThreatModel) -> dict[str, str]:
    """Return the packages that announced a threat or its members, and those that run them, with their versions."""
    origins = [part.entry.origin.partition("==")[::2] for part in (threat, *threat.parts) if part.entry]
    engines = [(part.engine, installed(part.engine)) for part in threat.parts if part.engine]
    return {name: number for name, number in [*origins, *engines] if number}


def _remarks(threat: ThreatModel) -> list[str]:
    """Return what a reader must know of a threat."""
    engines = sorted({part.engine for part in threat.parts if part.engine})
    return [
        f"seed per shard: {engine} draws for a whole shard, so its verdicts depend on how samples are cut"
        for engine in engines
    ]
