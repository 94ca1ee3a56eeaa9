"""ImageNet-A and -R: 200 of the 1000 classes each, judged by the logits of these alone."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from robustkpca.data.folder import shown
from robustkpca.data.imagenet import imagenet_mask
from robustkpca.errors import BadValue

SUBSETS = {"imagenet-a": "A", "imagenet-r": "R"}
"""Layout, and its letter in the list of classes."""
_NEARLY = 190
"""So many folders of one list, and no others, are that set with classes missing."""


@lru_cache(maxsize=2)
def subset_wnids(layout: str) -> tuple[str, ...]:
    """Return the 200 sorted ids of ``imagenet-a`` or ``imagenet-r``.

    Source:
        Hendrycks et al. 2021, arXiv:1907.07174 (A) and arXiv:2006.16241 (R).
    """
    lines = files("robustkpca.data").joinpath("imagenet_subsets.txt").read_text("ascii").splitlines()
    return tuple(line.split()[0] for line in lines if SUBSETS[layout] in line.split()[1])


def subset_mask(layout: str) -> tuple[int, ...]:
    """Return the places of a layout's classes among the 1000, ascending; empty for every other layout."""
    return imagenet_mask(subset_wnids(layout)) if layout in SUBSETS else ()


def subset_of(folder: Path, names: Collection[str]) -> str | None:
    """Recognise one of the sets by its class folders that hold images; ``None`` for another set.

    Args:
        folder: Holds the class folders; its own name tells too what it is meant to be.
        names: The class folders with images.

    Raises:
        BadValue: Naming the classes that are missing or too many.
    """
    found = set(names)
    if folder.name.lower().replace("_", "-") == "imagenet-o":
        raise BadValue(
            f"data {str(folder)!r}: the pictures of ImageNet-O show none of the 1000 classes, so there is no accuracy on them; "
            "its detection scores are in robustkpca.metrics, for confidences of your own"
        )
    for layout in SUBSETS:
        wanted = set(subset_wnids(layout))
        if found == wanted:
            return layout
        if folder.name.lower().replace("_", "-") == layout or (len(found) >= _NEARLY and found < wanted):
            missing, strange = sorted(wanted - found), sorted(found - wanted)
            said = [f"classes {shown(missing, 3)} are missing"] * bool(missing)
            said += [f"{shown(strange, 3)} are none of its classes"] * bool(strange)
            raise BadValue(
                f"data {str(folder)!r}: {len(found & wanted)} of the 200 classes of {layout} have images: "
                f"{'; '.join(said)}; unpack the set again, or rename a folder that is another set"
            )
    return None
