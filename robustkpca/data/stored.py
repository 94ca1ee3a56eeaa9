"""Stored sets of corrupted images, one corruption and severity at a time: ``ROOT:fog:3``.

ImageNet-C lies flat (``fog/3/<wnid>/``) or in groups (``weather/fog/3/<wnid>/``), CIFAR-10-C and CIFAR-100-C in one array
for each corruption, the five severities one after the other.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy

from robustkpca.data.arrayfiles import loaded
from robustkpca.data.arrays import ArrayImages, array_data
from robustkpca.data.classes import class_folders
from robustkpca.data.folder import existing, shown, subfolders, visible
from robustkpca.data.images import ImageFiles
from robustkpca.errors import BadValue

SEVERITIES = ("1", "2", "3", "4", "5")
_CELL = re.compile(r"(?P<root>.+):(?P<corruption>[a-z_]+):(?P<severity>[^:/]+)")


def stored_cell(source: str, classes: int | None) -> ImageFiles | ArrayImages | None:
    """Open one corruption and severity of a stored set; ``None`` for a source of another form.

    Args:
        source: Such as ``ImageNet-C:fog:3`` or ``CIFAR-10-C:fog:3``, the first part a folder.
        classes: The number of classes wanted; ``None`` takes what is found.

    Raises:
        BadValue: Naming the corruption, the severity or the classes that are missing.
    """
    cell = _CELL.fullmatch(source)
    if cell is None or Path(source).exists():
        return None
    root, corruption, severity = existing(cell["root"]), cell["corruption"], cell["severity"]
    if severity not in SEVERITIES:
        raise BadValue(
            f"data {source!r}: severity {severity!r}; expected 1 to 5, such as '{cell['root']}:{corruption}:3'"
        )
    name = f"{root.name}/{corruption}/{severity}"
    if (root / "labels.npy").is_file():
        return _array(root, corruption, int(severity), name, classes)
    folder = _folder(root, corruption)
    there = [one for one in SEVERITIES if (folder / one).is_dir()]
    if severity not in there:
        raise BadValue(f"data {source!r}: severity {severity} is missing, there are {shown(there)} in {str(folder)!r}")
    _refuse_missing_classes(folder, severity, there)
    dataset = class_folders(folder / severity, classes)
    if dataset is None:
        raise BadValue(f"data {source!r}: no images in the class folders of {str(folder / severity)!r}")
    return replace(dataset, spec=replace(dataset.spec, name=name))


def _folder(root: Path, corruption: str) -> Path:
    """Find a corruption directly in the root, or one group below it."""
    inside = subfolders(root)
    for place in (root, *(root / name for name in inside)):
        if (place / corruption).is_dir():
            return place / corruption
    deeper = [name for group in inside for name in subfolders(root / group) if name not in SEVERITIES]
    found = [name for name in inside if any((root / name / one).is_dir() for one in SEVERITIES)] or deeper or inside
    raise BadValue(f"data {str(root)!r}: corruption {corruption!r} is missing; there are {shown(found, 20)}")


def _refuse_missing_classes(folder: Path, severity: str, there: list[str]) -> None:
    """Refuse a severity that lacks classes which another severity of the corruption has."""
    classes = {one: set(subfolders(folder / one)) for one in there}
    missing = sorted(set().union(*classes.values()) - classes[severity])
    if missing:
        raise BadValue(
            f"data {str(folder / severity)!r}: classes {shown(missing, 3)} are missing, which other severities have; "
            "unpack the set again, or make empty folders for them"
        )


def _array(root: Path, corruption: str, severity: int, name: str, classes: int | None) -> ArrayImages:
    path = root / f"{corruption}.npy"
    if not path.is_file():
        found = [one[:-4] for one in visible(root) if one.endswith(".npy") and one != "labels.npy"]
        raise BadValue(f"data {str(root)!r}: corruption {corruption!r} is missing; there are {shown(found, 20)}")
    images, labels = loaded(path, "r"), loaded(root / "labels.npy")
    if len(images) % 5 or len(labels) not in (len(images), len(images) // 5):
        raise BadValue(
            f"data {str(path)!r}: {len(images)} images and {len(labels)} labels; expected five severities of one length, "
            "with a label for each image"
        )
    size = len(images) // 5
    part = slice((severity - 1) * size, severity * size)
    return array_data(
        numpy.array(images[part]), labels[part] if len(labels) == len(images) else labels, name=name, classes=classes
    )
