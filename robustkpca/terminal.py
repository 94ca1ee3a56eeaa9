"""How tables look on a terminal, and where the output is none. Importing this imports neither torch nor rich."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # annotations only
    from rich.table import Table as Grid

    from robustkpca.boards import Table


def print_grid(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a plain table.

    Args:
        titles: One per column; the first column holds the names.
        rows: Texts, one per column.
    """
    from rich.table import Table as Grid

    _draw(Grid(box=None, pad_edge=False, header_style="bold"), titles, rows, named=0)


def print_tables(tables: Sequence[Table], form: str) -> None:
    """Print tables: drawn on a terminal, markdown elsewhere, or in the form asked for.

    Args:
        tables: From `robustkpca.boards.leaderboard`.
        form: One of `robustkpca.formats.FORMATS`, or empty.
    """
    from robustkpca.formats import caption, cells, header, render

    if form or not sys.stdout.isatty():
        click.echo(render(tables, form or "markdown"), nl=False)
        return
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    for table in tables:
        title = Text(f"{table.board.title}: {table.data_name}", style="bold")
        _draw(Grid(title=title, title_justify="left"), header(table), cells(table), named=1)
        for line in caption(table):
            Console().print(Text(line, style="dim"))


def _draw(grid: Grid, titles: Sequence[str], rows: Sequence[Sequence[str]], *, named: int) -> None:
    """Fill a grid and print it; only a terminal folds it, where no text is cut off and names stay in one piece.

    Args:
        grid: Without columns.
        titles: One per column.
        rows: Texts, one per column.
        named: Which column holds the names.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    terminal, needed = sys.stdout.isatty(), 1
    rows = [[" ".join(text.splitlines()) for text in row] for row in rows]
    for index, title in enumerate(titles):
        texts = [title, *(row[index] for row in rows)]
        whole = index == named
        pieces = texts if whole or not terminal else [word[:12] for text in texts for word in text.split()]
        needed += 3 + max(map(cell_len, pieces))
        left = whole or grid.box is None
        grid.add_column(Text(title), no_wrap=whole, overflow="fold", justify="left" if left else "right")
    for row in rows:
        grid.add_row(*map(Text, row))
    console = Console()
    console.width = max(console.width, needed) if terminal else needed
    console.print(grid)
