from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pytest

from robustkpca.data.selection import selection
from robustkpca.errors import BadValue

IDS = [f"{name}/{number:03d}.png" for name in ("cat", "dog", "fox", "owl") for number in range(50)]


def test_the_order_is_that_of_the_hash_of_the_id() -> None:
    expected = sorted(range(len(IDS)), key=lambda position: blake2b(IDS[position].encode(), digest_size=16).digest())
    assert selection(IDS) == expected


def test_the_first_choice_is_known() -> None:
    """Recorded once, so that results of one release can be compared with those of another."""
    assert [IDS[position] for position in selection(IDS, 3)] == ["fox/044.png", "owl/036.png", "cat/012.png"]


def test_a_smaller_selection_is_the_beginning_of_a_larger_one() -> None:
    assert selection(IDS, 20) == selection(IDS, 70)[:20] == selection(IDS)[:20]


def test_a_set_sorted_by_class_is_not_cut_to_one_class() -> None:
    assert {IDS[position].split("/")[0] for position in selection(IDS, 20)} == {"cat", "dog", "fox", "owl"}


def test_the_choice_depends_on_the_ids_and_not_on_their_positions() -> None:
    backwards = IDS[::-1]
    assert [backwards[p] for p in selection(backwards, 30)] == [IDS[p] for p in selection(IDS, 30)]


def test_every_sample_is_taken_once_without_a_limit_and_beyond_the_size() -> None:
    assert sorted(selection(IDS)) == sorted(selection(IDS, 10_000)) == list(range(len(IDS)))


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "10"])
def test_a_limit_that_is_no_count_is_refused(limit: Any) -> None:
    with pytest.raises(BadValue, match="at least 1"):
        selection(IDS, limit)
