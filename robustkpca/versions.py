"""Records of several versions of one implementation: the newest counts, and the others are said to be left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # annotations only: pandas is imported by whoever made the frame
    import pandas


def newest(frame: pandas.DataFrame) -> pandas.Series[bool]:
    """Tell which records are of the newest version of their threat that occurs.

    Args:
        frame: Records as `robustkpca.store.read` returns them.
    """
    version = frame["threat_version"].astype(str).astype(int)
    return version == version.groupby(frame["threat_label"].astype(str)).transform("max")


def left_out(older: pandas.DataFrame) -> list[str]:
    """Return a remark for each threat whose older records are left out.

    Args:
        older: Those records.
    """
    counts = older["threat_label"].astype(str).value_counts().sort_index()
    return [f"{count} records of an earlier version of {label} are left out" for label, count in counts.items()]
