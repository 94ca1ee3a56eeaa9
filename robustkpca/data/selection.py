"""In which order samples are taken, so that a part of a data set is a fair and repeatable part."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from robustkpca.errors import BadValue


def selection(ids: Sequence[str], limit: int | None = None) -> list[int]:
    """Return the positions of the first samples in an order that depends on nothing but the sample ids.

    The order is that of a hash of the id. Thus a smaller selection is contained in a larger one, a set sorted by
    class is not cut down to its first class, and adding samples elsewhere does not reshuffle the others.

    Args:
        ids: Sample ids.
        limit: How many samples; ``None``, or more than there are, takes all of them.

    Raises:
        BadValue: If ``limit`` is below 1 or no whole number.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise BadValue(f"limit {limit!r}: expected a whole number of samples, at least 1, or nothing for all of them")
    order = sorted(range(len(ids)), key=lambda position: (_hash(ids[position]), ids[position], position))
    return order[:limit]


def _hash(sample_id: str) -> bytes:
    return blake2b(sample_id.encode(), digest_size=16).digest()
