"""Images in one folder whose labels stand in a file beside them."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from robustkpca.data.arrays import counting_notices
from robustkpca.data.classes import refuse_other_count, wnid_list
from robustkpca.data.folder import images_in, shown
from robustkpca.data.imagenet import imagenet_index, imagenet_wnids, is_imagenet_class
from robustkpca.data.images import ImageFiles, image_files
from robustkpca.data.inputs import checked_labels, class_count
from robustkpca.errors import BadValue

LABEL_FILES = ("labels.csv", "labels.txt")
DEVKIT_FILE = "ILSVRC2012_validation_ground_truth.txt"
_DEVKIT = (
    "the numbers 1 to 1000 of the ILSVRC development kit are not in the order of the sorted ImageNet ids, which models "
    "use; write labels.csv with rows file,id (such as n01440764), or sort the images into folders named by id"
)
_NUMBER = re.compile(r"[+-]?\d{1,18}")
_HEADERS = frozenset({"file", "filename", "file_name", "image", "image_id", "imageid", "id", "name", "path"})


def tiny_imagenet(folder: Path, classes: int | None) -> ImageFiles | None:
    """Read Tiny-ImageNet's validation folder: ``images/`` and ``val_annotations.txt``; ``None`` for other folders.

    The 200 classes are the sorted ids of ``wnids.txt``, which is the order of the training folders.

    Raises:
        BadValue: If a part is missing, or parts do not fit together.
    """
    annotations = folder / "val_annotations.txt"
    if not annotations.is_file():
        return None
    wnids = wnid_list(folder)
    if not wnids:
        raise BadValue(
            f"data {str(folder)!r}: wnids.txt is missing; put tiny-imagenet-200's into {str(folder.parent)!r}"
        )
    refuse_other_count(folder, len(wnids), classes, "wnids.txt")
    if not (folder / "images").is_dir():
        raise BadValue(
            f"data {str(folder)!r}: val_annotations.txt without a folder 'images'; unpack Tiny-ImageNet again"
        )
    rows = [line.split()[:2] for line in _lines(annotations)]
    named = _matched(annotations, rows, images_in(folder / "images"))
    strange = sorted(set(named.values()) - set(wnids))
    if strange:
        raise BadValue(
            f"labels {str(annotations)!r}: {shown(strange, 3)} not in wnids.txt; use the list of the same set"
        )
    place = {wnid: index for index, wnid in enumerate(wnids)}
    samples = [(f"images/{file}", place[named[file]]) for file in sorted(named)]
    return image_files(folder, "tiny-imagenet", samples, wnids)


def labelled_images(folder: Path, classes: int | None) -> ImageFiles | None:
    """Read images that lie flat in a folder, with ``labels.csv`` or ``labels.txt``; ``None`` for other folders.

    A row is ``file,label``, or the file has one label per line for the images sorted by name. Labels are whole
    numbers from 0, or ImageNet ids.

    Raises:
        BadValue: If images and labels do not fit together, or the numbering is another.
    """
    files = images_in(folder)
    present = [name for name in LABEL_FILES if (folder / name).is_file()]
    if not files or not present:
        return None
    if len(present) > 1:
        raise BadValue(f"data {str(folder)!r} hold {' and '.join(present)}; keep the one that counts")
    path = folder / present[0]
    named = _named_labels(path, files)
    if all(is_imagenet_class(label) for label in named.values()):
        refuse_other_count(folder, 1000, classes, f"ImageNet ids in {path.name}")
        samples = [(file, imagenet_index(named[file])) for file in sorted(named)]
        return image_files(folder, "labels-file", samples, imagenet_wnids())
    labels = _numbers(path, [named[file] for file in sorted(named)], classes)
    count = class_count(labels, classes)
    notices = counting_notices(str(path), labels, classes)
    return image_files(folder, "labels-file", list(zip(sorted(named), labels, strict=True)), _texts(count), notices)


def refuse_unlabelled(folder: Path) -> None:
    """Refuse images that lie flat in a folder without labels.

    Raises:
        BadValue: If there are such images.
    """
    files = images_in(folder)
    if not files:
        return
    if any((place / DEVKIT_FILE).is_file() for place in (folder, folder.parent)):
        raise BadValue(f"data {str(folder)!r}: {DEVKIT_FILE} cannot be used: {_DEVKIT}")
    raise BadValue(
        f"data {str(folder)!r}: images such as {files[0]!r} ({len(files)} in all), but no labels; add labels.csv with "
        "rows file,label, or sort the images into one folder per class and name the folder above"
    )


def _texts(count: int) -> list[str]:
    return [str(index) for index in range(count)]


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue(f"labels {str(path)!r} cannot be read: {error}; expected UTF-8 text") from None


def _named_labels(path: Path, files: Sequence[str]) -> dict[str, str]:
    """Return the label of every image as text."""
    lines = _lines(path)
    try:
        rows = [next(csv.reader([line])) if "," in line else line.rsplit(None, 1) for line in lines]
    except csv.Error as error:
        raise BadValue(f"labels {str(path)!r} cannot be read: {error}; expected rows file,label") from None
    rows = [[cell.strip() for cell in row] for row in rows]
    if rows and all(len(row) == 1 for row in rows):
        if len(rows) != len(files):
            raise BadValue(
                f"labels {str(path)!r}: {len(rows)} labels for {len(files)} images; expected one line per image"
            )
        return {file: row[0] for file, row in zip(files, rows, strict=True)}
    if rows and rows[0][0].lower() in _HEADERS:
        rows = rows[1:]
    return _matched(path, rows, files)


def _matched(path: Path, rows: Sequence[Sequence[str]], files: Sequence[str]) -> dict[str, str]:
    """Pair rows ``file, label`` with the files there are; every row has its file and every file its row."""
    named: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        if len(row) != 2:
            raise BadValue(f"labels {str(path)!r}, row {number}: {shown(row)}; expected file,label")
        if row[0] in named:
            raise BadValue(f"labels {str(path)!r}: {row[0]!r} stands there twice; keep one row")
        named[row[0]] = row[1]
    without_file = sorted(set(named) - set(files))
    without_row = sorted(set(files) - set(named))
    if without_file:
        raise BadValue(f"labels {str(path)!r}: no image {shown(without_file, 3)}; copy the files or remove the rows")
    if without_row:
        raise BadValue(f"labels {str(path)!r}: no row for {shown(without_row, 3)}; add rows or remove the images")
    return named


def _numbers(path: Path, texts: Sequence[str], classes: int | None) -> list[int]:
    bad = [text for text in texts if not _NUMBER.fullmatch(text)]
    if bad:
        raise BadValue(f"labels {str(path)!r}: {bad[0][:40]!r}; expected whole numbers from 0, or ImageNet ids")
    labels = list(map(int, texts))
    if min(labels) == 1 and max(labels) == 1000 and classes in (None, 1000):
        raise BadValue(f"labels {str(path)!r} run from 1 to 1000: {_DEVKIT}")
    try:
        checked_labels(labels, len(labels), classes)
    except BadValue as error:
        raise BadValue(f"labels {str(path)!r}: {error}") from None
    return labels
