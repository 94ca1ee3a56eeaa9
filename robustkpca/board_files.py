"""A board of one's own in a small TOML file.

title = "My table"
rank_by = "worst"

[[columns]]
title = "clean"
threats = ["clean"]

[[columns]]
title = "worst"
threats = ["pgd@linf:8/255", "square@linf:8/255"]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from robustkpca.boards import Board, Column, find_board, radius_of
from robustkpca.errors import BadValue, unknown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SUFFIX = ".toml"
_BOARD = ("title", "rank_by", "columns")
_COLUMN = ("title", "threats", "reduce", "within")
_LARGEST = 1 << 20
"""Bytes; a table of this size could not be read by anyone."""


def open_board(name: str) -> Board:
    """Return a registered board, or read one from a file that ends in ``.toml``.

    Raises:
        UserError: If there is none of that name, or the file holds anything but a board.
    """
    return read_board(Path(name)) if name.endswith(SUFFIX) else find_board(name)


def read_board(path: Path) -> Board:
    """Read a board; see above for what a file looks like.

    A column may also have ``reduce``, one of `robustkpca.reductions.REDUCTIONS`, and ``within``, the radius at which the
    robust accuracy of a threat without a radius is wanted.

    Args:
        path: Of the file; its name without the ending becomes the board's.

    Raises:
        BadValue: If the file cannot be read, or a field is missing, unknown or of the wrong kind.
    """
    try:
        if path.stat().st_size > _LARGEST or not path.is_file():
            raise BadValue(f"board {path}: expected a small TOML file")
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise BadValue(f"board {path}: {reason}; expected a TOML file with title and [[columns]]") from None
    _check(path, "the board", content, _BOARD, {"title": str, "columns": list})
    columns = []
    for number, one in enumerate(content["columns"], start=1):
        place = f"column {number}"
        if not isinstance(one, dict):
            raise BadValue(f"board {path}: {place} is {one!r}; expected [[columns]] with title and threats")
        _check(path, place, one, _COLUMN, {"title": str, "threats": list})
        if not one["threats"] or not all(isinstance(text, str) for text in one["threats"]):
            raise BadValue(f"board {path}: the threats of {place} are {one['threats']!r}; expected a list of texts")
        within = radius_of(str(one["within"])) if "within" in one else None
        columns.append(Column(one["title"], tuple(one["threats"]), str(one.get("reduce", "worst")), within))
    if not columns:
        raise BadValue(f"board {path}: it has no columns; expected at least one [[columns]]")
    return Board(path.stem, content["title"], tuple(columns), str(content.get("rank_by", "")))


def _check(path: Path, place: str, given: dict[str, Any], known: tuple[str, ...], needed: dict[str, type]) -> None:
    for name in given:
        if name not in known:
            raise unknown("field of a board", name, known)
    for name, kind in needed.items():
        if not isinstance(given.get(name), kind):
            word = "a list" if kind is list else "a text"
            raise BadValue(f"board {path}: {name} of {place} is {given.get(name)!r}; expected {word}")
