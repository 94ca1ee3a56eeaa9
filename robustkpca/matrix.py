"""A whole run as a value: which models meet which threats on which data. The same fields stand in ``--config FILE``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import pydantic
import yaml
from pydantic_core import ErrorDetails

from robustkpca.configs import read_config
from robustkpca.errors import BadValue, unknown
from robustkpca.specs import fingerprint

LARGEST = 2**63 - 1
"""Of the whole numbers that a record can hold."""


class ModelChoice(pydantic.BaseModel):
    """One row of the matrix.

    Args:
        name: As for `robustkpca.load_model`.
        checkpoint: File with the weights.
        use_ema: Whether to take its averaged weights.
        preprocessing: Replaces parts of the model's own preprocessing.
        dtype: Precision of the passes; empty keeps the network's.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    name: str
    checkpoint: str | None = None
    use_ema: bool = False
    preprocessing: str | None = None
    dtype: str = ""


class Matrix(pydantic.BaseModel):
    """Models crossed with threats on one data set.

    Args:
        models: At least one; a plain text stands for its name, alone or in a list.
        threats: Texts of threats, or names of boards; one alone needs no list.
        benchmark: Name of a benchmark, for its data and defaults.
        data: Folder or file, instead of the benchmark's own data.
        classes: Number of classes, for data that lack samples of the last ones; ``None`` counts what is there.
        protocol: For attacks whose text does not say.
        engine: ``ours``, or ``official`` for the counterpart of every threat in the authors' package.
        limit: Most samples; ``None`` for all.
        seed: Key of the random streams.
        batch_size: Most images of one pass, or ``auto``.
        shard_size: Samples of one shard.
        device: Where the models run; several with commas, or ``all`` GPUs, give a process to each.
        workers: ``local``, ``local:N`` processes, ``ray``, or ``ray:ADDRESS``; no record depends on it.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    models: tuple[ModelChoice, ...] = ()
    threats: tuple[str, ...] = ()
    benchmark: str = "digits"
    data: str | None = None
    classes: int | None = pydantic.Field(default=None, ge=1, le=LARGEST, strict=True)
    protocol: Literal["pixel", "published"] | None = None
    engine: Literal["ours", "official"] = "ours"
    limit: int | None = pydantic.Field(default=None, ge=1, le=LARGEST, strict=True)
    seed: int = pydantic.Field(default=0, ge=0, le=LARGEST, strict=True)
    batch_size: int | str = "auto"
    shard_size: int = pydantic.Field(default=256, ge=1, le=LARGEST, strict=True)
    device: str = "cpu"
    workers: str = "local"

    @pydantic.field_validator("models", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = [value]
        if isinstance(value, list | tuple):
            return tuple({"name": item} if isinstance(item, str) else item for item in value)
        return value

    @pydantic.field_validator("threats", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @pydantic.field_validator("batch_size", mode="before")
    @classmethod
    def _size(cls, value: Any) -> Any:
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        if value != "auto" and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST):
            raise ValueError("expected a whole number from 1 up, or auto")
        return value

    @classmethod
    def of(cls, source: str = "options", /, **values: Any) -> Matrix:
        """Build a matrix, with a mistake told in one line.

        Args:
            source: Where the values come from, for the message; ``options`` for those of the command line.
            values: The fields.

        Raises:
            BadValue: If a field is unknown or has a wrong value.
        """
        try:
            return cls(**values)
        except pydantic.ValidationError as error:
            raise BadValue(_mistake(source, error.errors()[0])) from None

    @classmethod
    def read(cls, path: str | Path) -> dict[str, Any]:
        """Return the fields that a YAML file names, unchecked, so that options may replace some.

        Raises:
            BadValue: If the file is missing or holds no mapping.
        """
        values = read_config(path)
        for key in values:
            if not isinstance(key, str):
                raise BadValue(f"config {path}: {key!r} is no option; known: {', '.join(cls.model_fields)}")
        return values

    def write(self, folder: Path) -> Path:
        """Keep the resolved matrix in a results folder, under a name made of its contents."""
        text = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
        path = folder / "configs" / f"run-{fingerprint(text)[:12]}.yaml"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".{os.getpid()}.tmp")
            try:
                temporary.write_text(text, encoding="utf-8")
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
        return path


def _mistake(source: str, error: ErrorDetails) -> str:
    """Tell a mistake in one line: what it is about, what came, and what was expected."""
    place = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        owner = ModelChoice if error["loc"][0] == "models" else Matrix
        if owner is Matrix and place in ModelChoice.model_fields:
            return f"{source}: {place} belongs to a model; write {{'name': ..., {place!r}: ...}} in place of its name"
        return f"{source}: {place}: {unknown('option', str(error['loc'][-1]), owner.model_fields)}"
    where = f"--{place.replace('_', '-')}" if source == "options" else f"{source}: {place}"
    if error["type"] == "missing":
        return f"{where}: it is missing; expected a value"
    least = error.get("ctx", {}).get("ge")
    whole = error["type"] in ("int_type", "int_from_float")
    wanted = f"expected a whole number from {least} up" if least is not None else error["msg"]
    wanted = "expected a whole number" if whole else wanted
    return f"{where} {error['input']!r}: {wanted.removeprefix('Value error, ').replace('Input should be', 'expected')}"
