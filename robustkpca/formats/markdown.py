"""A table as markdown, as GitHub shows it."""

from __future__ import annotations

from collections.abc import Sequence

from robustkpca.boards import Table
from robustkpca.errors import plain
from robustkpca.formats.texts import caption, cells, header


def markdown(tables: Sequence[Table], costs: bool = False) -> str:
    """Write each table as a headline, an aligned grid and its notes; with ``costs`` what each column cost beside it."""
    blocks = []
    for table in tables:
        titles, lines = header(table, costs=costs), cells(table, costs=costs)
        grid = [[_escape(text) for text in line] for line in [titles, *lines]]
        widths = [max(len(line[index]) for line in grid) for index in range(len(titles))]
        left = {1}
        rule = [
            ("-" * width) if index in left else "-" * (width - 1) + ":"
            for index, width in enumerate(map(lambda w: max(w, 3), widths))
        ]
        widths = [max(width, 3) for width in widths]
        aligned = [
            [
                text.ljust(width) if index in left else text.rjust(width)
                for index, (text, width) in enumerate(zip(line, widths, strict=True))
            ]
            for line in grid
        ]
        rows = ["| " + " | ".join(line) + " |" for line in [aligned[0], rule, *aligned[1:]]]
        notes = "\n".join(f"{line}  " for line in map(_escape, caption(table, costs=costs)))
        headline = _escape(f"{table.board.title}: {table.data_name}")
        blocks.append(f"### {headline}\n\n" + "\n".join(rows) + f"\n\n{notes.rstrip()}\n")
    return "\n".join(blocks)


def _escape(text: str) -> str:
    return plain(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
