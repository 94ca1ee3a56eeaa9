"""The 1000 classes of ILSVRC-2012 and the place of each among them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType

from robustkpca.errors import BadValue

_WNID = re.compile(r"n\d{8}")


@lru_cache(maxsize=1)
def imagenet_wnids() -> tuple[str, ...]:
    """Return the 1000 WordNet ids of ILSVRC-2012, sorted; a class index is a place in this order."""
    return tuple(files("robustkpca.data").joinpath("imagenet_wnids.txt").read_text("ascii").split())


@lru_cache(maxsize=1)
def _places() -> MappingProxyType[str, int]:
    return MappingProxyType({wnid: place for place, wnid in enumerate(imagenet_wnids())})


def is_wnid(name: str) -> bool:
    """Tell whether a name has the form of a WordNet id, such as ``n01440764``."""
    return _WNID.fullmatch(name) is not None


def is_imagenet_class(name: str) -> bool:
    """Tell whether a name is one of the 1000 ids."""
    return name in _places()


def imagenet_index(wnid: str) -> int:
    """Return the class index of an id, from 0 to 999.

    Raises:
        BadValue: If it is none of the 1000.
    """
    if wnid not in _places():
        raise BadValue(f"{wnid!r} is none of the 1000 ImageNet classes; expected an id such as 'n01440764'")
    return _places()[wnid]


def imagenet_mask(wnids: Iterable[str]) -> tuple[int, ...]:
    """Return the class indices of a subset such as ImageNet-A's 200 classes, in ascending order."""
    return tuple(sorted(imagenet_index(wnid) for wnid in wnids))
