"""Array files: pairs of ``.npy`` and archives ``.npz``, never with pickled objects."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy
from numpy.typing import NDArray

from robustkpca.data.arrays import ArrayImages, array_data
from robustkpca.data.digest import stamp
from robustkpca.data.folder import shown, visible
from robustkpca.errors import BadValue

PAIRS = (("images", "labels"), ("x_test", "y_test"), ("x", "y"), ("data", "targets"))
_WANTED = ", ".join("/".join(pair) for pair in PAIRS)
_MAGIC = b"\x93NUMPY"
_DAMAGE = (
    ArithmeticError,
    AttributeError,
    BadZipFile,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TokenError,
    TypeError,
    ValueError,
    zlib.error,
)
"""What numpy and its zip reader raise on bytes that nobody should have written."""


def array_file(path: Path, classes: int | None) -> ArrayImages:
    """Open an ``.npz``, or an ``.npy`` whose other half lies beside it.

    Raises:
        BadValue: If it is another kind of file, or its partner is missing.
    """
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _archive(path, classes)
    if suffix == ".npy":
        files = _arrays(path.parent)
        for pair in PAIRS:
            if path.stem.lower() in pair:
                _refuse_half(path.parent, pair, files)
                return _pair(path.parent, pair, files, classes)
        raise BadValue(
            f"array file {str(path)!r}: expected a pair of files named {_WANTED}, such as images.npy and labels.npy"
        )
    if suffix in (".tar", ".gz", ".tgz", ".zip"):
        raise BadValue(f"data {str(path)!r} is an archive; unpack it and name the folder")
    raise BadValue(
        f"data {str(path)!r} is a file; expected a folder of images, an .npz, or an .npy with its labels beside it"
    )


def array_pair(folder: Path, classes: int | None) -> ArrayImages | None:
    """Open a folder with ``images.npy`` and ``labels.npy``, or another of the known pairs; ``None`` without one.

    Raises:
        BadValue: If one half of a pair is missing, or an array is unusable.
    """
    files = _arrays(folder)
    for pair in PAIRS:
        if all(half in files for half in pair):
            return _pair(folder, pair, files, classes)
    for pair in PAIRS:
        if any(half in files for half in pair):
            _refuse_half(folder, pair, files)
    return None


def array_archive(folder: Path, classes: int | None) -> ArrayImages | None:
    """Open a folder with one ``.npz``; ``None`` without one.

    Raises:
        BadValue: If there are several, or the one is unusable.
    """
    names = [name for name in visible(folder) if name.lower().endswith(".npz")]
    if len(names) > 1:
        raise BadValue(f"data {str(folder)!r} hold several archives ({shown(names)}); name one of them")
    return _archive(folder / names[0], classes) if names else None


def _arrays(folder: Path) -> dict[str, Path]:
    """Return the ``.npy`` files of a folder by their name in lower case without the suffix."""
    return {name[:-4].lower(): folder / name for name in visible(folder) if name.lower().endswith(".npy")}


def _refuse_half(folder: Path, pair: tuple[str, str], files: Collection[str]) -> None:
    missing = [half for half in pair if half not in files]
    if missing:
        there = next(half for half in pair if half in files)
        raise BadValue(f"data {str(folder)!r} have {there}.npy without {missing[0]}.npy; put both into the folder")


def _pair(folder: Path, pair: tuple[str, str], files: Mapping[str, Path], classes: int | None) -> ArrayImages:
    images, labels = files[pair[0]], files[pair[1]]
    try:
        return array_data(
            loaded(images, "r"), loaded(labels), name=folder.name or "arrays", classes=classes, path=folder
        )
    except BadValue as error:
        raise BadValue(_named(folder, error)) from None


def _archive(path: Path, classes: int | None) -> ArrayImages:
    stamp(path)
    try:
        with path.open("rb") as file, numpy.load(file, allow_pickle=False) as archive:
            keys = {key.lower(): key for key in archive.files}
            pair = next((pair for pair in PAIRS if set(pair) <= set(keys)), None)
            if pair is None:
                raise BadValue(f"keys are {shown(keys.values())}; expected one of the pairs {_WANTED}")
            images, labels = (archive[keys[half]] for half in pair)
        return array_data(images, labels, name=path.stem, classes=classes, path=path)
    except BadValue as error:
        raise BadValue(_named(path, error)) from None
    except _DAMAGE as error:  # a single array in a file named .npz has no keys
        raise BadValue(_unreadable(path, error)) from None


def loaded(path: Path, mode: Any = None) -> NDArray[Any]:
    """Load an ``.npy`` file without running anything in it.

    Args:
        path: The file.
        mode: ``r`` leaves the array on disk.

    Raises:
        BadValue: If it is no plain array.
    """
    stamp(path)
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ValueError("its beginning is not that of an .npy file")
        array: NDArray[Any] = numpy.load(path, mmap_mode=mode, allow_pickle=False)
        return array
    except _DAMAGE as error:
        raise BadValue(_unreadable(path, error)) from None


def _named(path: Path, error: BadValue) -> str:
    text = str(error)
    return text if str(path) in text else f"data {str(path)!r}: {text}"


def _unreadable(path: Path, error: Exception) -> str:
    if any(word in str(error).lower() for word in ("pickle", "python objects")):
        return (
            f"array file {str(path)!r} is no plain array; object arrays and pickles are refused, since they can run "
            "code: save it again as uint8 or float32"
        )
    return f"array file {str(path)!r} cannot be read: {' '.join(str(error).split())}; save it again with numpy.save"
