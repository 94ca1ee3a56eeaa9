"""From a path to a data set: the layout is recognised, and what is nearly a layout is refused with its mend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from robustkpca.data.annotated import labelled_images, refuse_unlabelled, tiny_imagenet
from robustkpca.data.arrayfiles import array_archive, array_file, array_pair
from robustkpca.data.arrays import ArrayImages
from robustkpca.data.classes import class_folders
from robustkpca.data.dataset import Dataset
from robustkpca.data.digits import DIGITS, digits
from robustkpca.data.folder import SPLITS, existing, images_in, shown, subfolders, visible
from robustkpca.data.images import ImageFiles
from robustkpca.data.stored import stored_cell
from robustkpca.errors import BadValue

WANTED = "class folders (val/<class>/*.jpg), images with a labels.csv, or images.npy with labels.npy"


def open_data(source: str | Path, *, classes: int | None = None) -> Dataset:
    """Open a data set, whatever its layout.

    Args:
        source: A folder, an ``.npz`` or ``.npy`` file, or the name of a bundled set: ``digits`` or ``digits/train``
            (a folder of that name is written ``./digits``), or a corruption and severity of a stored set, such as
            ``ImageNet-C:fog:3``.
        classes: The number of classes of the label space, usually the model's outputs; ``None`` takes what is found.

    Returns:
        The data set, with a fingerprint of its contents.

    Raises:
        BadValue: If nothing is there, no layout is recognised, or labels and classes do not fit together.
    """
    if classes is not None and (isinstance(classes, bool) or not isinstance(classes, int) or classes < 1):
        raise BadValue(f"classes {classes!r}: expected a whole number, at least 1, or nothing")
    if isinstance(source, str) and source in DIGITS:
        dataset = digits(DIGITS[source], classes=classes)
        notice = f"{source!r} is the bundled set; the folder of that name is written './{source}'"
        return replace(dataset, notices=(notice,)) if Path(source).exists() else dataset
    cell = stored_cell(str(source), classes)
    if cell is not None:
        return cell
    path = existing(source)
    return _opened(path, classes) if path.is_dir() else array_file(path, classes)


def _opened(folder: Path, classes: int | None) -> ImageFiles | ArrayImages:
    """Try the layouts one after the other, the most telling first."""
    for recognise in (tiny_imagenet, array_pair, labelled_images, _split, class_folders, array_archive):
        dataset = recognise(folder, classes)
        if dataset is not None:
            return dataset
    refuse_unlabelled(folder)
    raise BadValue(f"data {str(folder)!r}: {_instead(folder)}; expected {WANTED}")


def _split(folder: Path, classes: int | None) -> ImageFiles | ArrayImages | None:
    """Go into ``val``, ``test`` or ``train``, the first that is there, and say what else there was."""
    inside = subfolders(folder)
    splits = [name for name in SPLITS if name in inside and _is_split(folder / name, inside)]
    if not splits:
        return None
    chosen = splits[0]
    dataset = _opened(folder / chosen, classes)
    others = [name for name in inside if name != chosen]
    said = []
    if chosen == "train":
        said.append(f"{folder}: the only split there is 'train', so the model may have seen these images")
    if others:
        said.append(f"{folder}: reading {chosen!r}; also there: {shown(others)}. Name a folder to choose another")
    return replace(dataset, notices=(*said, *dataset.notices))


def _is_split(folder: Path, beside: Sequence[str]) -> bool:
    """Tell a split from a class of trains, which holds nothing but images and has other classes beside it."""
    return folder.name != "train" or bool(subfolders(folder)) or not images_in(folder) or set(beside) <= set(SPLITS)


def _instead(folder: Path) -> str:
    """Say what a folder without a known layout holds."""
    names = visible(folder)
    if not names:
        return "the folder is empty"
    if any(name.startswith(("data_batch", "test_batch")) for name in names):
        return "CIFAR's Python pickles are not read, since they can run code; save images.npy and labels.npy instead"
    if any(name.lower().endswith((".tar", ".tar.gz", ".tgz", ".zip")) for name in names):
        return f"it holds archives ({shown(names, 3)}); unpack them first"
    return f"no images and no arrays in {shown(names)}"
