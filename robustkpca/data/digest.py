"""The fingerprint of a data set: a changed picture, name or label is another data set."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import numpy
from numpy.typing import NDArray

from robustkpca.errors import BadValue
from robustkpca.specs import file_digest, fingerprint

CONTENTS_LIMIT = 1 << 30  # bytes; above it, reading every file would take longer than many evaluations
READERS = 8
_PIECE = 1 << 24  # bytes of an array that are hashed at once


def files_digest(root: Path, ids: Sequence[str], labels: Sequence[int]) -> tuple[str, str]:
    """Return the digest of files and what it covers.

    Args:
        root: The folder that the ids are relative to.
        ids: Paths of the samples, with ``/``.
        labels: One class per sample.

    Returns:
        A sha256 as 64 hexadecimal digits, and ``contents`` or ``names and sizes``.

    Raises:
        BadValue: If a file cannot be read.
    """
    paths = [root / sample_id for sample_id in ids]
    sizes = [size for size, _ in stamps(paths)]
    if sum(sizes) > CONTENTS_LIMIT:
        return fingerprint([list(ids), list(labels), sizes]), "names and sizes"
    with ThreadPoolExecutor(READERS) as pool:
        return fingerprint([list(ids), list(labels), list(pool.map(_file_digest, paths))]), "contents"


def array_digest(ids: Sequence[str], labels: Sequence[int], pixels: NDArray[numpy.generic]) -> str:
    """Return the sha256 over ids, labels, dtype, shape and values of an array, read piece by piece."""
    state = sha256()
    rows = max(1, _PIECE // max(1, pixels[:1].nbytes))
    for start in range(0, len(pixels), rows):
        state.update(numpy.ascontiguousarray(pixels[start : start + rows]).tobytes())
    return fingerprint([list(ids), list(labels), pixels.dtype.str, list(pixels.shape), state.hexdigest()])


Stamp = tuple[int, int]
"""Size in bytes and time of the last change in nanoseconds, of a file."""


def stamp(path: Path) -> Stamp:
    """Return what tells cheaply whether a file has been replaced.

    Raises:
        BadValue: If it cannot be read, or is no regular file, such as a pipe or a device.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise BadValue(f"{str(path)!r} cannot be read: {_reason(path, error)}") from None
    if not stat.S_ISREG(found.st_mode):
        raise BadValue(f"{str(path)!r} is no regular file; expected one that can be read twice: remove it")
    return found.st_size, found.st_mtime_ns


def stamps(paths: Sequence[Path]) -> tuple[Stamp, ...]:
    """Return the stamp of each file; see `stamp`."""
    with ThreadPoolExecutor(READERS) as pool:
        return tuple(pool.map(stamp, paths))


def refuse_changed(path: Path, before: Stamp) -> None:
    """Refuse a file that has been replaced since its fingerprint was taken.

    Raises:
        BadValue: If it has, or is gone.
    """
    if stamp(path) != before:
        raise BadValue(
            f"{str(path)!r} was changed during the run, so its records would be those of other data; run again"
        )


def _file_digest(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        raise BadValue(f"image {str(path)!r} cannot be read: {_reason(path, error)}") from None


def _reason(path: Path, error: OSError) -> str:
    if path.is_symlink() and not path.exists():
        return "it is a link to a file that does not exist; mend or remove the link"
    return f"{error.strerror or error}; make it readable or remove it"
