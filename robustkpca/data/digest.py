"""The fingerprint of a data set: a changed picture, name or label is another data set."""

from __future__ import annotations

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
    with ThreadPoolExecutor(READERS) as pool:
        sizes = list(pool.map(_size, paths))
        if sum(sizes) > CONTENTS_LIMIT:
            return fingerprint([list(ids), list(labels), sizes]), "names and sizes"
        return fingerprint([list(ids), list(labels), list(pool.map(_file_digest, paths))]), "contents"


def array_digest(ids: Sequence[str], labels: Sequence[int], pixels: NDArray[numpy.generic]) -> str:
    """Return the sha256 over ids, labels, dtype, shape and values of an array, read piece by piece."""
    state = sha256()
    rows = max(1, _PIECE // max(1, pixels[:1].nbytes))
    for start in range(0, len(pixels), rows):
        state.update(numpy.ascontiguousarray(pixels[start : start + rows]).tobytes())
    return fingerprint([list(ids), list(labels), pixels.dtype.str, list(pixels.shape), state.hexdigest()])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise BadValue(f"image {str(path)!r} cannot be read: {_reason(path, error)}") from None


def _file_digest(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        raise BadValue(f"image {str(path)!r} cannot be read: {_reason(path, error)}") from None


def _reason(path: Path, error: OSError) -> str:
    if path.is_symlink() and not path.exists():
        return "it is a link to a file that does not exist; mend or remove the link"
    return f"{error.strerror or error}; make it readable or remove it"
