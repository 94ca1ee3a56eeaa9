"""ImageNet-A, -R and -O: 200 of the 1000 classes each, judged by the logits of these alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from robustkpca.data.folder import shown
from robustkpca.data.imagenet import imagenet_mask
from robustkpca.errors import BadValue
from robustkpca.threats import ThreatModel

SUBSETS = {"imagenet-a": "A", "imagenet-r": "R", "imagenet-o": "O"}
"""Layout, and its letter in the list of classes."""
_NEARLY = 190
"""So many folders of one list, and no others, are that set with classes missing."""


@lru_cache(maxsize=3)
def subset_wnids(layout: str) -> tuple[str, ...]:
    """Return the 200 sorted ids of ``imagenet-a``, ``imagenet-r`` or ``imagenet-o``.

    Source:
        Hendrycks et al. 2021, arXiv:1907.07174 (A, O) and arXiv:2006.16241 (R).
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


def refuse_attacks(layout: str, threats: Sequence[ThreatModel]) -> None:
    """Refuse attacks on these sets: their losses are not defined for logits of which 800 are masked.

    Raises:
        BadValue: If a threat on one of the three layouts has a budget.
    """
    attacks = [threat.label for threat in threats if any(part.budget is not None for part in threat.parts)]
    if layout in SUBSETS and attacks:
        raise BadValue(
            f"threat {attacks[0]!r} on {layout}: predictions there are among 200 classes, which attacks do not know; "
            "expected 'clean' or corruptions"
        )
