"""One file of records: written whole or not at all, and believed only after a look at what it holds."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robustkpca.errors import BadValue, Unusable
from robustkpca.records import RunHeader, Verdict

if TYPE_CHECKING:  # annotations only: pyarrow is imported when results are touched
    import pyarrow

_HEADER = b"robustkpca"
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "schema": int,
    "model": dict,
    "threat": str,
    "threat_version": int,
    "threat_label": str,
    "data": dict,
    "task": str,
    "seed": int,
    "dtype": str,
    "seconds": (int, float),
    "planned": int,
    "flags": list,
}
"""What has to stand in a header, for those who read it."""
_INSIDE: dict[str, dict[str, type]] = {
    "model": {"id": str, "label": str, "name": str, "checkpoint": str},
    "data": {"id": str, "name": str, "classes": int, "size": int, "path": str},
}
_KEYS = ("model", "threat", "data", "seed")
_TEXTS = ("model", "threat", "data", "sample", "verdict")


def write_shard(path: Path, table: pyarrow.Table, header: RunHeader) -> None:
    """Write the records of a shard with their header; after the return they survive a crash.

    Raises:
        OSError: If it cannot be written; nothing is left behind.
    """
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            _write(table, header, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _write(table: pyarrow.Table, header: RunHeader, file: Any) -> None:
    """Write as little as 256 records need: floats by bytes of equal weight, and no statistics, which nobody asks."""
    import pyarrow
    import pyarrow.parquet

    floats = [field.name for field in table.schema if pyarrow.types.is_floating(field.type)]
    table = table.replace_schema_metadata(None)
    with pyarrow.parquet.ParquetWriter(
        file,
        table.schema,
        compression="zstd",
        use_dictionary=[name for name in table.column_names if name not in floats],
        column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
        write_statistics=False,
        store_schema=False,
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_HEADER.decode(): json.dumps(header.to_dict(), sort_keys=True)})


def read_header(path: Path) -> dict[str, Any]:
    """Return the fields of a shard's `RunHeader`.

    Raises:
        Unusable: If the file or its header is damaged.
        BadValue: If it was written by something else, or by a newer version.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        _require_regular(path)
        return _header(pyarrow.parquet.read_schema(path), path)
    except (OSError, pyarrow.ArrowException) as error:
        raise _unreadable(path, error) from error


def read_shard(path: Path, columns: list[str] | None = None) -> tuple[pyarrow.Table, dict[str, Any]]:
    """Return the records of a shard, texts as categories except for the sample ids, and its header.

    Args:
        path: The file.
        columns: Which columns, ``sample`` and ``verdict`` among them; all where ``None``.

    Raises:
        Unusable: If the file is damaged, lacks a column, or its columns and header disagree.
        BadValue: If it was written by something else, or by a newer version.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        _require_regular(path)
        file = pyarrow.parquet.ParquetFile(path)
        header = _header(file.schema_arrow, path)
        lacking = [name for name in (*_TEXTS, "seed") if name not in file.schema_arrow.names]
        if lacking:
            raise _damaged(path, f"it has no column {', '.join(lacking)}")
        table = _plain(file.read(columns=columns).replace_schema_metadata(None))
    except (OSError, pyarrow.ArrowException) as error:
        raise _unreadable(path, error) from error
    _check_records(path, table, header)
    return table, header


def _check_records(path: Path, table: pyarrow.Table, header: dict[str, Any]) -> None:
    """Refuse records without a sample or a verdict, and records of something else than the header says."""
    for name in _TEXTS:
        if name in table.column_names and not _holds_text(table[name]):
            raise _damaged(path, f"its column {name} is not text throughout")
    verdicts = set(table["verdict"].unique().to_pylist())
    strange = verdicts - {verdict.value for verdict in Verdict}
    if strange:
        raise _damaged(path, f"it holds the verdict {min(strange)!r}")
    own = {"model": header["model"]["id"], "data": header["data"]["id"]}
    for name in _KEYS:
        wanted = own.get(name, header.get(name))
        if name in table.column_names and set(table[name].unique().to_pylist()) - {wanted}:
            raise _damaged(path, f"its column {name} and its header disagree")


def _holds_text(column: pyarrow.ChunkedArray) -> bool:
    import pyarrow

    kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
    return bool(pyarrow.types.is_string(kind)) and column.null_count == 0


def _plain(table: pyarrow.Table) -> pyarrow.Table:
    """Bring texts to one form, whoever wrote the file: 32-bit categories, and sample ids as they are."""
    import pyarrow

    category = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    for index, field in enumerate(table.schema):
        kind = field.type.value_type if pyarrow.types.is_dictionary(field.type) else field.type
        if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
            continue
        wanted = pyarrow.string() if field.name == "sample" else category
        if field.type != wanted:
            text = table[field.name].cast(pyarrow.string())
            table = table.set_column(index, field.name, text if field.name == "sample" else text.dictionary_encode())
    return table


def _header(schema: pyarrow.Schema, path: Path) -> dict[str, Any]:
    metadata = schema.metadata or {}
    if _HEADER not in metadata:
        raise BadValue(f"{path} was not written by robustkpca; move it out of the results folder")
    try:
        header = json.loads(metadata[_HEADER])
    except (ValueError, RecursionError):
        raise _damaged(path, "its header is no JSON") from None
    newer = header.get("schema") if isinstance(header, dict) else None
    if isinstance(newer, int) and newer > RunHeader.SCHEMA:
        raise BadValue(f"{path} was written by a newer robustkpca (schema {newer}); upgrade to read it")
    _require(header, _FIELDS, path, "header")
    for name, fields in _INSIDE.items():
        _require(header[name], fields, path, f"header, {name}")
    found: dict[str, Any] = header
    return found


def _require(found: Any, fields: dict[str, Any], path: Path, where: str) -> None:
    if not isinstance(found, dict):
        raise _damaged(path, f"its {where} is a {type(found).__name__}")
    for name, kind in fields.items():
        if not isinstance(found.get(name), kind):
            raise _damaged(path, f"its {where} has {name}={found.get(name)!r:.40}")


def _require_regular(path: Path) -> None:
    if not path.is_file():  # a pipe or a device would be read for ever
        raise _damaged(path, "it is no regular file")


def _damaged(path: Path, what: str) -> Unusable:
    return Unusable(f"{path} is damaged: {what}; delete it and run again")


def _unreadable(path: Path, error: Exception) -> Unusable:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return Unusable(f"{path} cannot be read ({reason}); delete it and run again")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
