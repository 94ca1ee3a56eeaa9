"""Gradients that told an attack nothing, and how many of the survivors met them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy
from numpy.typing import ArrayLike

SHARE = 0.01
"""Up to this share of the survivors nothing is said."""
KINDS = {"zero_gradients": "zero gradients", "nonfinite_gradients": "nonfinite gradients"}
"""What is counted for every sample, and what it is called."""


def useless(survived: ArrayLike, counts: Mapping[str, ArrayLike]) -> dict[str, str]:
    """Return the share of the survivors that met each kind of useless gradient, in percent, where it exceeds `SHARE`.

    Args:
        survived: ``(N,)``, bool.
        counts: For some of `KINDS`, ``(N,)``, how many such gradients each sample met.
    """
    standing = numpy.asarray(survived, dtype=bool)
    found = {}
    for kind, name in KINDS.items():
        met = numpy.asarray(counts.get(kind, []), dtype=float)
        share = float((met[standing] > 0).mean()) if len(met) and standing.any() else 0.0
        if share > SHARE:
            found[name] = f"{100 * share:.0f} %"
    return found
