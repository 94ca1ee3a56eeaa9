"""How tables look on a terminal, and where the output is none. Importing this imports neither torch nor rich."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from robustkpca.errors import plain

if TYPE_CHECKING:  # annotations only
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    from robustkpca.boards import Table


def print_grid(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a plain table.

    Args:
        titles: One per column; the first column holds the names.
        rows: Texts, one per column.
    """
    from rich.table import Table as Grid

    _draw(Grid(box=None, pad_edge=False, header_style="bold"), titles, rows, named=0)


def print_tables(tables: Sequence[Table], form: str, *, costs: bool = False) -> None:
    """Print tables: drawn on a terminal, markdown elsewhere, or in the form asked for.

    Args:
        tables: From `robustkpca.boards.leaderboard`.
        form: One of `robustkpca.formats.FORMATS`, or empty.
        costs: Whether to show what each column cost.
    """
    from robustkpca.formats import render
    from robustkpca.formats.texts import caption, cells, header

    if form or not sys.stdout.isatty():
        click.echo(render(tables, form or "markdown", costs=costs), nl=False)
        return
    from rich.console import Console
    from rich.text import Text

    for table in tables:
        console = Console()
        titles, rows = header(table, costs=costs), cells(table, costs=costs)
        title = Text(plain(f"{table.board.title}: {table.data_name}"), style="bold")
        if not _side_by_side(console, title, titles, rows):
            _stacked(console, title, titles, rows)
        for line in caption(table, costs=costs):
            console.print(Text(plain(line), style="dim"))


def _side_by_side(console: Console, title: Text, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Draw a table with each interval below its number, if it fits the terminal; tell whether it did."""
    from rich.cells import cell_len
    from rich.table import Table as Grid
    from rich.text import Text

    titles, rows = _plain(titles, rows)
    titles = ["\n".join(textwrap.wrap(one, 12, break_long_words=False)) for one in titles]
    rows = [[text.replace(" [", "\n[") for text in row] for row in rows]
    grid, needed = Grid(title=title, title_justify="left"), 1
    for index, one in enumerate(titles):
        grid.add_column(Text(one), no_wrap=True, justify="left" if index == 1 else "right")
        needed += 3 + max(cell_len(line) for text in (one, *(row[index] for row in rows)) for line in text.split("\n"))
    if needed > console.width:
        return False
    for row in rows:
        grid.add_row(*map(Text, row))
    console.print(grid)
    return True


def _stacked(console: Console, title: Text, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Draw a block of lines for each model, for tables wider than the terminal."""
    from rich.text import Text

    titles, rows = _plain(titles, rows)
    console.print(title, soft_wrap=True)
    pad = max(map(len, titles[2:]), default=0)
    for row in rows:
        console.print(Text(f"{row[0] or '-'}  {row[1]}", style="bold"), soft_wrap=True)
        for name, text in zip(titles[2:], row[2:], strict=True):
            console.print(Text(f"   {name:<{pad}}  {text}"), soft_wrap=True)


def _plain(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    return list(map(plain, titles)), [list(map(plain, row)) for row in rows]


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
    titles, rows = _plain(titles, rows)
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
