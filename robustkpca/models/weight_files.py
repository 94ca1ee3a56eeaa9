"""A file in, the plain containers and tensors it holds out; whatever would run code is refused, and named."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.torch
from safetensors import SafetensorError

from robustkpca.errors import BadValue, Unusable
from robustkpca.models import pickles

CONVERT = "where you trust it, convert it by torch.save(model.state_dict(), FILE)"
LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
LEGACY_PICKLES = 5  # magic number, version, system, object, storage keys
LONGEST_HEADER = 100_000_000  # of safetensors, in bytes; its own limit

SIGNATURES = (
    (0, b"version https://git-lfs", "is a git-lfs pointer, not the file itself: run 'git lfs pull'"),
    (257, b"ustar", "is a tar archive: unpack it, or save the weights again with torch.save"),
    (0, b"\x1f\x8b", "is gzip-compressed: unpack it"),
    (0, b"BZh", "is bzip2-compressed: unpack it"),
    (0, b"\xfd7zXZ", "is xz-compressed: unpack it"),
    (0, b"\x93NUMPY", "is a numpy array, not a checkpoint of torch"),
    (0, b"\x89HDF", "is an HDF5 file (Keras?), not a checkpoint of torch"),
    (0, b"PK\x05\x06", "is an empty zip archive"),
)
"""Offset, bytes and description of what is recognised only to be named in the refusal."""


def printable(text: object) -> str:
    """Return a text without line breaks or control characters, cut at 200 characters."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))
    return shown if len(shown) <= 200 else f"{shown[:197]}..."


def listed(names: Iterable[str], limit: int = 5) -> str:
    """Return the first few names and how many more there are, on one line."""
    known = list(names)
    more = f" and {len(known) - limit} more" if len(known) > limit else ""
    return ", ".join(printable(name) for name in known[:limit]) + more


def require_file(path: Path) -> None:
    """Check that there is a file with something in it.

    Raises:
        BadValue: If there is not.
    """
    if not os.path.exists(path):
        raise BadValue(f"checkpoint {printable(path)}: there is no such file")
    if path.is_dir():
        raise BadValue(f"checkpoint {printable(path)}: is a folder; expected a .pth, .pt or .safetensors file in it")
    if not path.is_file():
        raise BadValue(f"checkpoint {printable(path)}: is not a regular file")
    if path.stat().st_size == 0:
        raise Unusable(f"checkpoint {printable(path)}: is empty (0 bytes): download or save it again")


def read_weight_file(path: Path, sha256: str) -> Any:
    """Return the containers, plain values and tensors of a file, on the CPU.

    The content decides about the format, never the suffix.

    Args:
        path: An existing file.
        sha256: Its digest, for messages about damage.

    Raises:
        Unusable: If the file is of no known format, damaged, or needs more than weights to be opened.
    """
    with path.open("rb") as file:
        head = file.read(1024)
        file.seek(0)
        if head.startswith(b"PK\x03\x04"):
            return _read_zip(file, path, sha256)
        if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= LONGEST_HEADER:
            return _read_safetensors(path, sha256)
        if head.startswith(LEGACY_MAGIC):
            return _read_pickle(file, file, LEGACY_PICKLES, path, sha256)
        raise Unusable(f"checkpoint {printable(path)}: {_description(file, head, path)}")


def _description(file: BinaryIO, head: bytes, path: Path) -> str:
    """Say what a file looks like that is of none of the known formats."""
    for offset, signature, description in SIGNATURES:
        if head[offset:].startswith(signature):
            return description
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith(b"<!doctype") or b"<html" in text:
        return "is an HTML page, probably a failed download"
    if text.startswith(b"<?xml"):
        return "is an XML page, probably a failed download"
    names = _pickled_names(file)
    if names is not None:
        strange = pickles.foreign(names)
        return _refusal(strange) if strange else f"is a pickle, but not in the form that torch.save writes; {CONVERT}"
    if path.suffix == ".safetensors":
        return "is not a safetensors file: its header is missing or longer than 100 MB"
    return f"is of no known format (begins with {head[:12]!r}): expected safetensors or a file of torch.save"


def _pickled_names(file: BinaryIO) -> set[str] | None:
    """Return what the pickles at the start of a file would import, ``None`` if it does not start with one."""
    names: set[str] | None = None
    try:
        for _ in range(LEGACY_PICKLES):
            names = (names or set()) | pickles.imported(file)
    except pickles.MALFORMED:
        pass
    return names


def _refusal(strange: list[str]) -> str:
    what = "would run code when opened"
    if any(name.startswith("torch.nn.modules.") for name in strange):
        what = "holds a whole pickled module, not weights alone"
    return f"{what} (names {listed(strange)}); it was refused and not executed; {CONVERT}"


def _damage(path: Path, sha256: str, what: str) -> Unusable:
    size = path.stat().st_size
    return Unusable(f"checkpoint {printable(path)}: {what} ({size} bytes, sha256 {sha256}): download or save it again")


def _read_zip(file: BinaryIO, path: Path, sha256: str) -> Any:
    if not zipfile.is_zipfile(file):
        raise _damage(path, sha256, "is truncated, the end of its zip archive is missing")
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            pickled = [name for name in names if name.count("/") == 1 and name.endswith("/data.pkl")]
            content = archive.read(pickled[0]) if pickled else b""
    except (zipfile.BadZipFile, zlib.error, *pickles.MALFORMED) as error:
        raise _damage(path, sha256, f"is a damaged zip archive: {printable(error)}") from None
    if any(name.endswith("/constants.pkl") for name in names):
        raise Unusable(f"checkpoint {printable(path)}: is a TorchScript archive, which holds code; {CONVERT}")
    if not pickled:
        raise Unusable(
            f"checkpoint {printable(path)}: is a zip archive, but not one of torch.save (it holds {listed(names)}): "
            "unpack it, or save the weights again with torch.save"
        )
    if len(pickled) > 1 or len(set(names)) < len(names):
        raise _damage(path, sha256, "is a damaged zip archive: an entry occurs twice")
    return _read_pickle(file, io.BytesIO(content), 1, path, sha256)


def _read_pickle(file: BinaryIO, stream: BinaryIO, count: int, path: Path, sha256: str) -> Any:
    """Read a file of torch.save after looking at the ``count`` pickles in ``stream``."""
    try:
        strange = pickles.foreign(pickles.imported(stream, count))
    except pickles.MALFORMED as error:
        raise _damage(path, sha256, f"is truncated or damaged, its pickle is incomplete: {printable(error)}") from None
    if strange:
        raise Unusable(f"checkpoint {printable(path)}: {_refusal(strange)}")
    file.seek(0)
    try:
        return pickles.load(file)
    except pickles.MALFORMED as error:
        text = str(error).rpartition("WeightsUnpickler error: ")[2].strip()
        reason = printable(text.splitlines()[0] if text else type(error).__name__)
        if "Unsupported operand" in reason:
            raise Unusable(
                f"checkpoint {printable(path)}: its pickle uses what cannot be read safely ({reason}): "
                "save it again with torch.save and its default pickle_protocol"
            ) from None
        what = "is truncated" if isinstance(error, EOFError) or "EOF" in reason else "is damaged"
        raise _damage(path, sha256, f"{what}, {reason}") from None


def _read_safetensors(path: Path, sha256: str) -> dict[str, Any]:
    try:
        return dict(safetensors.torch.load_file(path, device="cpu"))
    except (SafetensorError, *pickles.MALFORMED) as error:
        what = "is truncated" if _cut_short(path) else "is a damaged safetensors file"
        raise _damage(path, sha256, f"{what}, {printable(error)}") from None


def _cut_short(path: Path) -> bool:
    """Say whether a safetensors file ends before the tensors that its header lists."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(length)
    if len(header) < length:
        return True
    try:
        ends = [entry["data_offsets"][1] for name, entry in json.loads(header).items() if name != "__metadata__"]
        return bool(size < 8 + length + max(ends, default=0))
    except pickles.MALFORMED:
        return False
