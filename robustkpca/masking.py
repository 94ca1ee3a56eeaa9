"""Gradients that told an attack nothing: what a reader has to know of a model that survived them."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import ArrayLike

SHARE = 0.01
"""Up to this share of the survivors nothing is said."""
KINDS = {"zero_gradients": "zero gradients", "nonfinite_gradients": "gradients that are not finite"}
"""What is counted for every sample, and what it is called."""


def masked(survived: ArrayLike, counts: dict[str, Any]) -> list[str]:
    """Return a remark for each kind of useless gradient that more than `SHARE` of the survivors met.

    Args:
        survived: ``(N,)``, bool.
        counts: For some of `KINDS`, ``(N,)``, how many such gradients each sample met.
    """
    standing = numpy.asarray(survived, dtype=bool)
    remarks = []
    for kind, words in KINDS.items():
        met = numpy.asarray(counts.get(kind, []), dtype=float)
        share = float((met[standing] > 0).mean()) if len(met) and standing.any() else 0.0
        if share > SHARE:
            remarks.append(f"{words} on {100 * share:.0f} % of the surviving samples: masked?")
    return remarks
