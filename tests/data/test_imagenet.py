from __future__ import annotations

import json
from pathlib import Path

import pytest

from robustkpca.data.imagenet import imagenet_index, imagenet_mask, imagenet_wnids
from robustkpca.errors import BadValue


def test_there_are_a_thousand_different_ids_in_order() -> None:
    wnids = imagenet_wnids()
    assert len(set(wnids)) == 1000
    assert list(wnids) == sorted(wnids)


@pytest.mark.parametrize(
    ("wnid", "index"),
    [("n01440764", 0), ("n02123045", 281), ("n02504458", 386), ("n04285008", 817), ("n15075141", 999)],
    ids=["tench", "tabby", "African elephant", "sports car", "toilet tissue"],
)
def test_well_known_classes_have_their_well_known_numbers(wnid: str, index: int) -> None:
    assert imagenet_index(wnid) == index


def test_the_list_is_the_one_that_timm_carries() -> None:
    timm_data = pytest.importorskip("timm.data")
    assert list(imagenet_wnids()) == timm_data.ImageNetInfo().label_names()


@pytest.mark.parametrize("subset", ["imagenet_a_wnids", "imagenet_o_wnids", "imagenet_r_wnids"])
def test_the_published_subsets_have_two_hundred_places_in_ascending_order(shared: Path, subset: str) -> None:
    wnids = json.loads((shared / "spec/reported.json").read_text())[subset]
    mask = imagenet_mask(wnids)
    assert len(mask) == 200
    assert [imagenet_wnids()[place] for place in mask] == sorted(wnids)


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(BadValue, match="none of the 1000"):
        imagenet_index("n00000000")
