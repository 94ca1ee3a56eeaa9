"""Class folders: which folder is which class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from robustkpca.data.folder import images_below, images_in, shown, subfolders
from robustkpca.data.imagenet import imagenet_wnids, is_imagenet_class, is_wnid
from robustkpca.data.images import ImageFiles, image_files
from robustkpca.data.subsets import subset_of
from robustkpca.errors import BadValue


def class_folders(folder: Path, classes: int | None) -> ImageFiles | None:
    """Read one folder per class, as torchvision's ``ImageFolder`` numbers them: sorted as text.

    Folders named by ImageNet ids keep their place among the 1000 classes, also when only some are present, unless
    ``classes`` says that the folders are all there is. Images may lie in deeper folders.

    Args:
        folder: Holds the class folders.
        classes: The number of classes wanted; ``None`` takes what is found.

    Returns:
        The data set, or ``None`` where no sub-folder holds an image.

    Raises:
        BadValue: If names do not give an order of classes, or their number is not the one wanted.
    """
    names = subfolders(folder)
    owners: dict[str, Path] = {}
    files = {name: images_below(folder / name, owners) for name in names}
    if not any(files.values()):
        return None
    _refuse_nested(folder, files)
    layout, class_names, notices = _numbering(folder, names, classes)
    if layout == "imagenet-folder":
        layout = subset_of(folder, [name for name in names if files[name]]) or layout
    place = {name: index for index, name in enumerate(class_names)}
    empty = [name for name in names if not files[name]]
    if empty:
        notices.append(f"{folder}: no images in {shown(empty)}; they count as classes all the same")
    loose = images_in(folder)
    if loose:
        notices.append(f"{folder}: {len(loose)} images outside the class folders are left out, such as {loose[0]!r}")
    samples = [(f"{name}/{file}", place[name]) for name in names for file in files[name]]
    return image_files(folder, layout, samples, class_names, notices)


def wnid_list(folder: Path) -> list[str] | None:
    """Return the sorted ids of ``wnids.txt`` in or beside a folder, as Tiny-ImageNet has it; ``None`` without."""
    for path in (folder / "wnids.txt", folder.parent / "wnids.txt"):
        if path.is_file():
            try:
                return sorted(set(path.read_text("utf-8-sig").split()))
            except (OSError, UnicodeDecodeError) as error:
                raise BadValue(f"class list {str(path)!r} cannot be read: {error}; expected one id per line") from None
    return None


def refuse_other_count(where: Path, found: int, classes: int | None, of: str) -> None:
    """Refuse data whose number of classes is not the one wanted.

    Args:
        where: The data.
        found: The number of their classes.
        classes: The number wanted, or ``None``.
        of: What the classes were counted by, such as ``class folders``.

    Raises:
        BadValue: If the numbers differ.
    """
    if classes not in (None, found):
        raise BadValue(
            f"data {str(where)!r} have {found} classes ({of}), but {classes} are wanted; is this the model for these "
            "data? An empty folder keeps the place of a missing class"
        )


def _refuse_nested(folder: Path, files: Mapping[str, Sequence[str]]) -> None:
    """Refuse a folder of data sets, or of pictures and their maps, that only looks like a folder of classes."""
    deep = [name for name, below in files.items() if below and all(file.count("/") for file in below)]
    nested = [name for name in deep if not all(file.startswith("images/") for file in files[name])]
    if nested:
        raise BadValue(
            f"data {str(folder)!r}: images lie deeper than one folder per class, in {shown(nested, 3)}; "
            f"name the folder whose sub-folders are the classes, perhaps {str(folder / nested[0])!r}"
        )
    if "images" in files:
        raise BadValue(
            f"data {str(folder)!r}: sub-folders are {shown(files)}, and 'images' is no class; "
            "sort the images into one folder per class, or put labels.csv with rows file,label beside them"
        )


def _numbering(folder: Path, names: Sequence[str], classes: int | None) -> tuple[str, Sequence[str], list[str]]:
    """Return the layout, the names of all classes in the order of their labels, and what should be said about it."""
    listed = wnid_list(folder)
    if listed is not None and set(names) <= set(listed):
        refuse_other_count(folder, len(listed), classes, "wnids.txt")
        return "class-folders", listed, []
    known = [name for name in names if is_imagenet_class(name)]
    if known and classes in (None, 1000):
        return "imagenet-folder", imagenet_wnids(), _imagenet_notices(folder, names, known)
    if not known:
        _refuse_numbers(folder, names)
    refuse_other_count(folder, len(names), classes, f"class folders {shown(names, 3)}")
    said = f"{folder}: labels count the {len(names)} folders present, not the 1000 ImageNet classes"
    return "class-folders", names, [said] if known else []


def _imagenet_notices(folder: Path, names: Sequence[str], known: Sequence[str]) -> list[str]:
    strange = [name for name in names if not is_imagenet_class(name)]
    if strange:
        kind = "ids outside the 1000 classes" if all(map(is_wnid, strange)) else "no ImageNet ids"
        raise BadValue(
            f"data {str(folder)!r}: {len(known)} folders are ImageNet classes, but {shown(strange, 3)} are {kind}; "
            f"move them away, or ask for {len(names)} classes to number the folders as they are"
        )
    if len(known) < 1000:
        return [f"{folder}: {len(known)} of the 1000 ImageNet classes are present; labels keep their place among 1000"]
    return []


def _refuse_numbers(folder: Path, names: Sequence[str]) -> None:
    """Refuse folder names that are numbers whose order as text is not their order as numbers, or that leave gaps."""
    numbers = [name for name in names if name.isascii() and name.isdecimal()]
    if numbers != sorted(numbers, key=int):
        bad = next(pair for pair in pairwise(numbers) if int(pair[0]) > int(pair[1]))
        width = max(map(len, numbers))
        padded = min(numbers, key=int).zfill(width)
        raise BadValue(
            f"data {str(folder)!r}: class folders are numbers whose order is unclear ({bad[0]!r} sorts before "
            f"{bad[1]!r}); rename them by class name or ImageNet id, or with leading zeros such as {padded!r}"
        )
    values = [int(name) for name in numbers]
    if len(numbers) == len(names) and values != list(range(values[0], values[0] + len(values))):
        raise BadValue(
            f"data {str(folder)!r}: numbered class folders have gaps or repeats ({shown(numbers)}), so a number is "
            "not its label; make empty folders for the missing classes, or rename the folders by class name"
        )
