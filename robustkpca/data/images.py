"""Image files as a data set: decoded when asked for, by a few threads."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from robustkpca.data.digest import Stamp, files_digest, refuse_changed, stamps
from robustkpca.data.folder import short_name
from robustkpca.errors import BadValue
from robustkpca.preprocessing import Preprocessing
from robustkpca.specs import DataSpec

DECODERS = min(8, os.cpu_count() or 1)
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)
_DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")  # Pillow clips these to 255 instead of scaling them


@dataclass(frozen=True)
class ImageFiles:
    """Labelled image files below one folder; a `Dataset`.

    Args:
        spec: What was found.
        root: The folder that the ids are relative to.
        ids: Paths of the samples, with ``/``.
        labels: One class per sample, from 0.
        class_names: One name per class.
        notices: Choices made while the layout was recognised.
        stamps: Of every file, when the fingerprint was taken; empty leaves changes unnoticed.
    """

    spec: DataSpec
    root: Path
    ids: tuple[str, ...]
    labels: tuple[int, ...]
    class_names: tuple[str, ...]
    notices: tuple[str, ...] = ()
    stamps: tuple[Stamp, ...] = ()

    def check(self, positions: Sequence[int], preprocessing: Preprocessing) -> dict[int, str]:
        """Decode some of the images coarsely, and compare their sizes; see `Dataset.check`."""
        paths = [self.root / self.ids[position] for position in positions]
        with ThreadPoolExecutor(DECODERS) as pool:
            found = list(pool.map(_size_or_damage, paths))
        sizes = [(path, size) for path, size in zip(paths, found, strict=True) if not isinstance(size, str)]
        if preprocessing.crop is None and preprocessing.resize is None:
            for path, size in sizes:
                if size != sizes[0][1]:
                    raise _other_sizes(*sizes[0], path, size)
        return {position: one for position, one in zip(positions, found, strict=True) if isinstance(one, str)}

    def read(self, positions: Sequence[int], preprocessing: Preprocessing) -> Tensor:
        """Decode some of the images; see `Dataset.read`."""
        if not len(positions):
            raise BadValue(f"data {self.spec.name!r}: no positions to read; expected at least one")
        paths = [self.root / self.ids[position] for position in positions]
        with ThreadPoolExecutor(min(len(paths), DECODERS)) as pool:
            pixels = list(pool.map(lambda path: decoded(path, preprocessing), paths))
        if self.stamps:
            for path, position in zip(paths, positions, strict=True):
                refuse_changed(path, self.stamps[position])
        if preprocessing.crop is None:
            first = self.root / self.ids[0]
            _refuse_other_sizes(first, _shape(first, preprocessing), paths, pixels)
        return torch.stack(pixels).float().div_(255)


def _intact(path: Path) -> tuple[int, int]:
    """Decode a file as coarsely as its format allows, to find damage; return width and height."""
    with _opened(path) as image:
        size: tuple[int, int] = image.size
        image.draft("RGB", (1, 1))  # JPEG alone: an eighth of the size, but every block is read
        _load(image, path)
    return size


def _size_or_damage(path: Path) -> tuple[int, int] | str:
    try:
        return _intact(path)
    except BadValue as error:
        return str(error)


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    try:
        image = Image.open(path)
    except UnidentifiedImageError:
        raise BadValue(f"image {str(path)!r} is not an image ({_sign(path)}); replace or remove the file") from None
    except _DAMAGE as error:
        raise _damaged(path, error) from None
    with image:
        if image.mode in _DEEP_MODES or _is_deep(image):
            kind = f"{image.format} of more than 8 bits" if image.mode not in _DEEP_MODES else f"mode {image.mode}"
            raise BadValue(f"image {str(path)!r} has {kind}; expected 8 bits per channel: convert the file")
        yield image


def _is_deep(image: Image.Image) -> bool:
    """Tell pictures whose channels Pillow cuts down to 8 bits while it decodes them."""
    arguments = [part for tile in getattr(image, "tile", []) for part in _parts(tile[3])]
    return any(";16" in part if isinstance(part, str) else image.format == "PPM" and part > 255 for part in arguments)


def _parts(arguments: object) -> list[str | int]:
    """Return the texts and numbers among the arguments of a decoder."""
    listed = arguments if isinstance(arguments, tuple | list) else [arguments]
    return [part for part in listed if isinstance(part, str | int)]


def _load(image: Image.Image, path: Path) -> None:
    try:
        image.load()
    except _DAMAGE as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> BadValue:
    return BadValue(f"image {str(path)!r} cannot be decoded: {error}; replace or remove the file")


def image_files(
    root: Path,
    layout: str,
    samples: Sequence[tuple[str, int]],
    class_names: Sequence[str],
    notices: Sequence[str] = (),
) -> ImageFiles:
    """Make a data set of files and their labels, and take its fingerprint.

    Args:
        root: The folder that the ids are relative to.
        layout: How the folder was recognised.
        samples: Id and class of every sample.
        class_names: One name per class.
        notices: Choices made while the layout was recognised.

    Raises:
        BadValue: If a file cannot be read, or its name cannot be written down.
    """
    ids = tuple(sample_id for sample_id, _ in samples)
    labels = tuple(label for _, label in samples)
    for sample_id in ids:
        if sample_id.splitlines() != [sample_id] or _undecodable(sample_id):
            raise BadValue(f"file name {sample_id!r} below {str(root)!r} is not one line of UTF-8; rename the file")
    taken = stamps([root / sample_id for sample_id in ids])
    digest, digest_of = files_digest(root, ids, labels)
    spec = DataSpec(short_name(root), layout, len(ids), len(class_names), digest, digest_of, str(root))
    return ImageFiles(spec, root, ids, labels, tuple(class_names), tuple(notices), taken)


def decoded(path: Path, preprocessing: Preprocessing) -> Tensor:
    """Decode one file.

    Args:
        path: An image file of any format that Pillow knows.
        preprocessing: Resize, crop and channels are applied.

    Returns:
        ``(C, H, W)``, uint8.

    Raises:
        BadValue: If the file is damaged, has more than 8 bits per channel, or is smaller than the crop.
    """
    with _opened(path) as image:
        _load(image, path)
    try:
        return preprocessing.apply(image)
    except BadValue as error:
        raise BadValue(f"{str(path)!r}: {error}; mend it with --preprocessing, such as 'resize=256,crop=224'") from None
    except ValueError as error:  # colours that Pillow cannot turn into RGB
        raise BadValue(f"image {str(path)!r} has mode {image.mode} ({error}); convert the file to RGB") from None


def _undecodable(name: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in name)


def _sign(path: Path) -> str:
    """Say what a file that is no image seems to be."""
    with path.open("rb") as file:
        start = file.read(64).lstrip().lower()
    if not start:
        return "it is empty"
    if start.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer"
    if start.startswith((b"<!doctype", b"<html")):
        return "it is an HTML page"
    return "no known format"


@lru_cache(maxsize=256)
def _shape(path: Path, preprocessing: Preprocessing) -> torch.Size:
    return decoded(path, preprocessing).shape


def _refuse_other_sizes(first: Path, shape: torch.Size, paths: Sequence[Path], pixels: Sequence[Tensor]) -> None:
    for path, image in zip(paths, pixels, strict=True):
        if image.shape != shape:
            raise _other_sizes(first, (shape[2], shape[1]), path, (image.shape[2], image.shape[1]))


def _other_sizes(first: Path, one: tuple[int, int], path: Path, other: tuple[int, int]) -> BadValue:
    return BadValue(
        f"images differ in size: {str(first)!r} is {one[0]}x{one[1]}, {str(path)!r} is {other[0]}x{other[1]}; "
        "set a crop with --preprocessing, such as 'resize=256,crop=224'"
    )
