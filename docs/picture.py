"""Draw the leaderboard of a first run as ``docs/leaderboard.svg``, and write the same table into the README.

    python docs/picture.py [RESULTS]

RESULTS is a folder that ``robustkpca score`` has filled; without it the bundled models are scored, about a minute.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid
from rich.terminal_theme import MONOKAI
from rich.text import Text

import robustkpca as rk
from robustkpca.boards import Table, leaderboard
from robustkpca.formats import render
from robustkpca.formats.texts import caption, cells, header

DOCS = Path(__file__).parent
README = DOCS.parent / "README.md"
WIDTH = 120  # characters; wider pictures are scaled down until nobody can read them
MARKS = "<!-- leaderboard -->", "<!-- /leaderboard -->"
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>Leaderboard of a first run of robustkpca score</title>
<style>
.{unique_id}-matrix {{
    font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
    font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g>
</svg>
"""
"""Rich's own frame without the web fonts that it would fetch."""


def drawing(table: Table) -> str:
    """Return a table as SVG, as a terminal shows it, each interval below its number.

    Args:
        table: One of those that `robustkpca.boards.leaderboard` returns.
    """
    console = Console(record=True, width=WIDTH, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    grid = Grid(
        title=f"{table.board.title}: {table.data_name}", title_justify="left", title_style="bold", show_lines=True
    )
    for index, title in enumerate(header(table)):
        grid.add_column(Text(title), justify="left" if index == 1 else "right", no_wrap=index == 1)
    for texts in cells(table):
        grid.add_row(*(Text(text.replace(" [", "\n[")) for text in texts))
    console.print(grid)
    for line in caption(table):
        console.print(Text(line))
    return console.export_svg(title="robustkpca score", theme=MONOKAI, code_format=SVG)


def main() -> None:
    """Score or read, draw, and write both files."""
    frame = rk.read(sys.argv[1]) if len(sys.argv) > 1 else rk.score()
    (table,) = leaderboard(frame, "quick")
    (DOCS / "leaderboard.svg").write_text(drawing(table), encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    shown = render([table], "markdown").partition("\n\n")[2]
    filled = re.sub("(?s)(?<={}).*(?={})".format(*MARKS), lambda _: f"\n{shown}", text)
    README.write_text(filled, encoding="utf-8")


if __name__ == "__main__":
    main()
