"""A table as text: markdown, csv, json, LaTeX, and a page for browsers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from robustkpca.boards import Table
from robustkpca.errors import unknown
from robustkpca.formats.latex import latex
from robustkpca.formats.markdown import markdown
from robustkpca.formats.page import page
from robustkpca.formats.plain import as_json, comma_separated

FORMATS: dict[str, Callable[[Sequence[Table], bool], str]] = {
    "markdown": markdown,
    "csv": comma_separated,
    "json": as_json,
    "latex": latex,
    "html": page,
}
"""Every format by name."""


def render(tables: Sequence[Table], form: str, *, costs: bool = False) -> str:
    """Write tables in one of `FORMATS`, ending in a newline.

    Args:
        tables: From `robustkpca.boards.leaderboard`.
        form: One of `FORMATS`.
        costs: Whether to show what each column cost. Without it csv, json and html hold passes, but no seconds, so that the
            same records give the same bytes.

    Raises:
        UnknownName: If there is no such format.
    """
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    return FORMATS[form](tables, costs)
