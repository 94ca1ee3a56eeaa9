"""The models of a run, loaded and looked at, and the samples that cannot be read; all before anything is measured."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from robustkpca.audit import Misleading
from robustkpca.crews import devices_of
from robustkpca.data.dataset import Dataset
from robustkpca.data.digits import DIGITS
from robustkpca.errors import BadValue, Unusable, UserError
from robustkpca.matrix import Matrix, ModelChoice
from robustkpca.preprocessing import Preprocessing
from robustkpca.runner import Shard
from robustkpca.specs import ModelSpec
from robustkpca.tasks.task import Model, Task

log = logging.getLogger(__name__)

_HELD_BYTES = 2 << 30
"""Checked models stay loaded until they have this size together; further ones are loaded again when their turn comes."""
_NAMED = 10
"""How many damaged samples are named one by one; all of them stand in the records."""


@dataclass(frozen=True)
class Contestant:
    """A model that was loaded and checked.

    Args:
        choice: As the user named it.
        spec: What it is.
        flags: Remarks for the headers.
        reading: How it reads samples, in which precision, and where.
        model: The model itself; ``None`` where it has to be loaded again.
    """

    choice: ModelChoice
    spec: ModelSpec
    flags: tuple[str, ...]
    reading: str
    model: Model | None


def contestants(
    task: Task, choices: Sequence[ModelChoice], matrix: Matrix, data: Dataset, positions: Sequence[int]
) -> Iterator[Contestant]:
    """Load and check every model, and hold it while there is room.

    Args:
        task: What is measured.
        choices: The models.
        matrix: The run.
        data: What they meet.
        positions: Which samples of it.

    Raises:
        UserError: If one cannot be loaded, or does not go with the data.
    """
    held = 0
    for choice in choices:
        model: Model = task.load(choice, devices_of(matrix.device)[0], matrix.batch_size)
        try:
            flags = task.look(model, data, _first_sound(data, positions, model.spec.preprocessing))
        except UserError as error:
            if matrix.data is None or matrix.data in DIGITS:
                kind = Misleading if isinstance(error, Misleading) else Unusable
                raise kind(f"on the bundled digits, taken because --data names no others: {error}") from error
            raise
        for flag in flags:
            log.warning("%s: %s", choice.name, flag)
        log.info("%s: %s, weights %s", choice.name, model.spec.preprocessing, model.spec.weights[:12])
        held += sum(p.numel() * p.element_size() for p in model.network.parameters())
        reading = f"{getattr(model, 'reading', model.spec.preprocessing)}, {model.spec.dtype} on {matrix.device}"
        yield Contestant(choice, model.spec, tuple(flags), reading, model if held <= _HELD_BYTES else None)


def reloaded(task: Task, one: Contestant, matrix: Matrix) -> Model:
    """Load a checked model again, and see that it is still the same."""
    model: Model = task.load(one.choice, devices_of(matrix.device)[0], matrix.batch_size)
    if model.spec.id != one.spec.id:
        raise Unusable(
            f"model {one.choice.name}: its weights or its file were changed while the run was under way; "
            "the same command takes what is there now"
        )
    return model


def _first_sound(data: Dataset, positions: Sequence[int], preprocessing: Preprocessing) -> list[int]:
    """Return up to eight positions that can be read, to look at a model with."""
    sound: list[int] = []
    for start in range(0, len(positions), 8):
        part = list(positions[start : start + 8])
        damaged = data.check(part, preprocessing)
        sound += [position for position in part if position not in damaged]
        if len(sound) >= 8:
            break
    if not sound:
        raise BadValue(f"none of the {len(positions)} images can be read: {next(iter(damaged.values()))}")
    return sound[:8]


def damaged_samples(data: Dataset, groups: Mapping[Preprocessing, Sequence[Sequence[Shard]]]) -> dict[int, str]:
    """Find and name the damaged images among those that are still needed, before any of them is attacked."""
    damaged: dict[int, str] = {}
    for preprocessing, shards in groups.items():
        needed = {position for group in shards for shard in group for position in shard.positions}
        damaged |= data.check(sorted(needed), preprocessing)
    for position in sorted(damaged)[:_NAMED]:
        log.warning("%s; its records say failed", damaged[position])
    if len(damaged) > _NAMED:
        log.warning("%d further images cannot be read; 'robustkpca show' counts them", len(damaged) - _NAMED)
    return damaged
