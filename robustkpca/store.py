"""A folder of results: append records, know which are missing, read them back as a frame.

One Parquet file per finished shard, written under a temporary name, synced and renamed, with its `RunHeader` inside. A shard
is done when its file exists; what is missing is found by sample id, so it does not matter how the work was cut. Model,
threat, data set and seed are the key: when one of them changes, so does the folder, and old results cannot be believed.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustkpca.errors import BadValue, Unusable
from robustkpca.records import RunHeader, Verdict
from robustkpca.reproduction import command
from robustkpca.shards import read_header, read_shard, write_shard
from robustkpca.specs import fingerprint, slug

if TYPE_CHECKING:  # annotations only: pandas and pyarrow are imported when results are touched
    import pandas
    import pyarrow

KEY = ("model", "threat", "threat_version", "data", "seed", "sample")
"""The columns of a frame that identify a record."""
_PERMANENT = [verdict.value for verdict in Verdict if verdict is not Verdict.FAILED]


@dataclass(frozen=True)
class Cell:
    """One model under one threat on one data set with one seed; the key of a group of records."""

    model: str
    threat: str
    threat_version: int
    data: str
    seed: int

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> Cell:
        """Return the cell that the fields of a `RunHeader` name."""
        return cls(
            header["model"]["id"], header["threat"], header["threat_version"], header["data"]["id"], header["seed"]
        )

    @property
    def folder(self) -> str:
        """Relative folder of the cell's shards."""
        key = fingerprint([self.threat, self.threat_version, self.data, self.seed])[:12]
        return f"records/{self.model}/{slug(re.sub(r'[(].*[)]', '', self.threat))}-{key}"


_SHARD = "shard"
"""Column that tells, while records are joined, which file each is from."""
_SAME_LOSS = 1e-3
"""How far, relative to one plus its size, two runs on different machines may differ in a loss."""


class ResultStore:
    """The records under one folder.

    Args:
        folder: Created when the first shard is written.

    Raises:
        BadValue: If the path is a file, or cannot be one of a folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            there = stat.S_ISDIR(self.folder.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError) as error:  # too long, or with what no file system allows
            reason = getattr(error, "strerror", None) or error
            raise BadValue(f"results folder {str(folder)[:100]!r}: {reason}; expected a folder") from None
        if not there:
            raise BadValue(f"results folder {self.folder} is a file; expected a folder")

    def done(self, cell: Cell) -> set[str]:
        """Return the ids of the samples whose verdict is known; failed attempts are not.

        Raises:
            UserError: If a shard cannot be read, or is that of another cell.
        """
        import pyarrow.compute

        known: set[str] = set()
        for path in sorted((self.folder / cell.folder).glob("shard-*.parquet")):
            table, header = read_shard(path, ["sample", "verdict"])
            if Cell.of(header) != cell:
                raise Unusable(
                    f"{path} holds records of {header['model']['label']} under {header['threat']}, which belong into "
                    f"{Cell.of(header).folder}; move it there"
                )
            permanent = pyarrow.compute.is_in(table["verdict"].cast("string"), pyarrow.array(_PERMANENT))
            known.update(table["sample"].filter(permanent).to_pylist())
        return known

    def write(
        self, cell: Cell, header: RunHeader, samples: Sequence[str], columns: Mapping[str, Sequence[Any]]
    ) -> Path:
        """Write the records of one shard; after the return they survive a crash.

        Args:
            cell: What the records belong to.
            header: The circumstances.
            samples: One id per record.
            columns: Measured columns, one value per record.

        Raises:
            Unusable: If the folder cannot be written.
        """
        import pyarrow

        count = len(samples)
        table = pyarrow.table(
            {
                "model": _constant(cell.model, count),
                "threat": _constant(cell.threat, count),
                "data": _constant(cell.data, count),
                "seed": pyarrow.array([cell.seed] * count, pyarrow.int64()),
                "sample": pyarrow.array(list(samples), pyarrow.string()),
                **{name: _column(values) for name, values in columns.items()},
            }
        )
        path = self.folder / cell.folder / f"shard-{fingerprint([list(samples), header.started])[:16]}.parquet"
        try:
            write_shard(path, table, header)
        except OSError as error:
            raise Unusable(f"results folder {self.folder} cannot be written: {error}") from error
        return path

    def headers(self) -> list[dict[str, Any]]:
        """Return the header of every shard, in the order of their paths."""
        return [read_header(path) for path in self._shards()]

    def frame(self) -> pandas.DataFrame:
        """Return all records, one per key, sorted by it.

        Beside the measured columns stand some that a shard's header gives all of its records: task, model_name,
        data_name, threat_label, threat_version, classes, planned, flags, checkpoint, command, and seconds, those of the
        shard divided equally.

        Equal records from two runs are one. A failed attempt gives way to a later verdict.

        Raises:
            BadValue: If the folder holds no records, or two runs disagree about one.
        """
        return _frame(self._shards(), str(self.folder))

    def _shards(self) -> list[Path]:
        return sorted((self.folder / "records").glob("*/*/shard-*.parquet"))


def read(*folders: str | Path) -> pandas.DataFrame:
    """Return every record of some results folders as one frame; see `ResultStore.frame`."""
    paths = []
    for folder in folders:
        shards = ResultStore(folder)._shards()
        if not shards:
            raise _nothing_in(str(folder))
        paths += shards
    return _frame(paths, ", ".join(map(str, folders)))


def _frame(paths: Sequence[Path], where: str) -> pandas.DataFrame:
    import pandas
    import pyarrow

    if not paths:
        raise _nothing_in(where)
    parts = []
    for number, path in enumerate(paths):
        table, header = read_shard(path)
        for name, value in _named(header).items():
            table = table.append_column(name, _constant(value, len(table)))
        each = header["seconds"] / max(1, len(table))
        table = table.append_column("seconds", pyarrow.array([each] * len(table), pyarrow.float64()))
        parts.append(table.append_column(_SHARD, pyarrow.array([number] * len(table), pyarrow.int32())))
    try:
        frame = pyarrow.concat_tables(parts, promote_options="permissive").to_pandas()
    except pyarrow.ArrowException as error:
        raise Unusable(f"shards in {where} do not fit together ({str(error).splitlines()[0]})") from error
    failed = frame["verdict"] == Verdict.FAILED.value
    if failed.any():
        frame = pandas.concat([frame[~failed], frame[failed]])
        given_up = frame.duplicated(list(KEY)) & (frame["verdict"] == Verdict.FAILED.value)
        frame = frame[~given_up]
    repeated = frame.duplicated(list(KEY), keep=False)
    if repeated.any():
        _refuse_disagreement(frame[repeated], paths)
        frame = frame.drop_duplicates(list(KEY))
    frame = frame.drop(columns=_SHARD)
    ordered: pandas.DataFrame = frame.sort_values(list(KEY), kind="stable", ignore_index=True, key=_plain)
    return ordered


def _refuse_disagreement(repeated: pandas.DataFrame, paths: Sequence[Path]) -> None:
    """Refuse records of one key with different verdicts, or with different losses where nothing else is measured."""
    by_key = repeated.groupby(list(KEY), observed=True, sort=False)
    differ = by_key["verdict"].transform("nunique") > 1
    if "loss" in repeated:
        measured = repeated["verdict"] == Verdict.MEASURED.value
        spread = by_key["loss"].transform("max") - by_key["loss"].transform("min")
        differ |= measured & (spread > _SAME_LOSS * (1 + repeated["loss"].abs()))
    if not differ.any():
        return
    first = repeated[differ].iloc[0]
    sides = repeated[differ & (repeated[list(KEY)] == first[list(KEY)]).all(axis=1)]
    said = sides["verdict"].astype(str)
    if first["verdict"] == Verdict.MEASURED.value:
        said = sides["loss"].map("loss {:.6g}".format)
    texts = [f"{text} in {paths[number]}" for text, number in zip(said, sides[_SHARD], strict=True)]
    raise BadValue(
        f"two runs disagree about sample {first['sample']} of {first['model']} under {first['threat']}: "
        f"{' and '.join(texts)}; delete one of the two files"
    )


def _nothing_in(where: str) -> BadValue:
    return BadValue(f"no results in {where}: expected records/*/*/shard-*.parquet, written by 'robustkpca score'")


def _plain(column: pandas.Series[Any]) -> pandas.Series[Any]:
    """Let categories sort by their text, not by the order in which they were met."""
    return column.astype(str) if column.dtype == "category" else column


def _named(header: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that every record of a shard takes from its header, all of them text."""
    return {
        "task": header["task"],
        "model_name": header["model"]["label"],
        "data_name": header["data"]["name"],
        "threat_label": header["threat_label"],
        "threat_version": str(header["threat_version"]),
        "classes": str(header["data"]["classes"]),
        "planned": str(header["planned"]),
        "flags": "; ".join(header["flags"]),
        "checkpoint": header["model"]["checkpoint"],
        "command": command(header),
    }


def _constant(text: str, count: int) -> pyarrow.Array:
    import pyarrow

    return pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * count, pyarrow.int32()), [text])


def _column(values: Sequence[Any]) -> pyarrow.Array:
    import pyarrow

    array = pyarrow.array(list(values))
    if pyarrow.types.is_string(array.type):
        return array.dictionary_encode()
    narrower = {pyarrow.int64(): pyarrow.int32(), pyarrow.float64(): pyarrow.float32()}
    return array.cast(narrower[array.type], safe=False) if array.type in narrower else array
