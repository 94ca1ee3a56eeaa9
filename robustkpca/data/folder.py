"""What lies in a folder: images, sub-folders, and the nearest thing that exists where something does not."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from robustkpca.errors import BadValue

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
SPLITS = ("val", "validation", "valid", "test", "train")  # the first of them that is there is read
_LITTER = frozenset({"__MACOSX", "__pycache__"})


def existing(source: str | Path) -> Path:
    """Return an absolute path to something that is there.

    Raises:
        BadValue: If nothing is there; the message offers the nearest path that exists.
    """
    if not str(source).strip():
        raise BadValue("data path is empty; expected a folder of images, an .npz file or a bundled set")
    try:
        path = Path(os.path.abspath(Path(source).expanduser()))
    except OSError:
        raise BadValue(f"data path {str(source)!r}: the current folder is gone; change to one that exists") from None
    if not str(path).isprintable():
        raise BadValue(f"data path {str(source)!r} is not one line of UTF-8 text; rename the folder or the file")
    if os.path.exists(path):
        return path
    parent = path.parent
    missing = path.name
    while not os.path.exists(parent):
        parent, missing = parent.parent, parent.name
    beside = visible(parent) if parent.is_dir() else []
    near = get_close_matches(missing, beside, n=1, cutoff=0.6)
    nearest = f"Did you mean {str(parent / near[0])!r}?" if near else f"The nearest that exists is {str(parent)!r}."
    raise BadValue(f"no data at {str(source)[:200]!r}. {nearest}")


def short_name(path: Path) -> str:
    """Return a name for tables: the folder's own, or ``imagenet/val`` for a split."""
    return f"{path.parent.name}/{path.name}" if path.name in SPLITS and path.parent.name else path.name or "data"


def visible(folder: Path) -> list[str]:
    """Return the names in a folder, sorted, without the hidden ones.

    Raises:
        BadValue: If the folder cannot be listed.
    """
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise BadValue(f"folder {str(folder)!r} cannot be listed: {error.strerror or error}") from None
    return sorted(name for name in names if not name.startswith(".") and name not in _LITTER)


def subfolders(folder: Path) -> list[str]:
    """Return the names of the folders in a folder, sorted as text, which is the order of class indices."""
    return [name for name in visible(folder) if (folder / name).is_dir()]


def images_in(folder: Path) -> list[str]:
    """Return the names of the images directly in a folder, sorted."""
    return [name for name in visible(folder) if _is_image(name) and not (folder / name).is_dir()]


def images_below(folder: Path, owners: dict[str, Path]) -> list[str]:
    """Return the images in a folder and its sub-folders as relative paths with ``/``, sorted.

    Links are followed, also out of the folder; a folder that is met twice is read once.

    Args:
        folder: Of one class.
        owners: Real paths of the folders that were met, each with the class folder it was met in; grows.

    Raises:
        BadValue: If a folder cannot be listed, belongs to two classes, or is a link to what holds all classes.
    """
    found: list[str] = []
    seen: set[str] = set()
    above = Path(os.path.realpath(folder.parent))
    for place, folders, files in os.walk(folder, onerror=_refuse, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        if Path(real) == above or Path(real) in above.parents:
            raise BadValue(f"folder {place!r} is a link to {real!r}, which holds the class folders; remove the link")
        if owners.setdefault(real, folder) != folder:
            raise BadValue(
                f"folders {str(owners[real])!r} and {str(folder)!r} both hold {real!r}, so its images would have two "
                "labels; remove a link"
            )
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _LITTER)
        inside = Path(place).relative_to(folder)
        found += [(inside / name).as_posix() for name in files if _is_image(name) and not name.startswith(".")]
    return sorted(found)


def shown(names: Iterable[str], most: int = 5) -> str:
    """Return a few names for a message, and how many there are more."""
    listed = list(names)
    rest = len(listed) - most
    return ", ".join(map(repr, listed[:most])) + (f" and {rest} more" if rest > 0 else "")


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES


def _refuse(error: OSError) -> None:
    raise BadValue(f"folder {error.filename!r} cannot be listed: {error.strerror or error}")
