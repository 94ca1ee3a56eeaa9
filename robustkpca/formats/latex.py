"""A table as LaTeX, for the packages booktabs and (for wide tables) graphicx."""

from __future__ import annotations

from collections.abc import Sequence

from robustkpca.boards import Cell, Row, Table
from robustkpca.formats.texts import caption, cell_text, rank_text, several_seeds

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",
    "]": "{]}",
    "\n": " ",
}


def latex(tables: Sequence[Table], costs: bool = False) -> str:
    """Write each table as a ``table`` with booktabs rules; the best number of a column is bold, ``=`` marks shared ranks.

    Intervals stand behind their numbers in a smaller size. A cell with a remark carries an exclamation mark, and is never
    bold. What columns cost is left out.
    """
    return "\n".join(_table(table) for table in tables)


def _table(table: Table) -> str:
    seeds = several_seeds(table)
    titles = ["", "model", *(["seed"] if seeds else []), *(column.title for column in table.board.columns)]
    best = [_best(table.rows, i, higher=c.higher_is_better) for i, c in enumerate(table.board.columns)]
    lines = [" & ".join(map(escaped, titles)) + r" \\"]
    for row in table.rows:
        numbers = [_cell(cell, bold=cell in best[index]) for index, cell in enumerate(row.cells)]
        lines.append(
            " & ".join([rank_text(row), escaped(row.name), *([str(row.seed)] if seeds else []), *numbers]) + r" \\"
        )
    notes = " ".join(escaped(line) for line in caption(table))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(f'{table.board.title}: {table.data_name}')}. {notes}}}",
            rf"\begin{{tabular}}{{rl{'r' * (len(titles) - 2)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _best(rows: Sequence[Row], index: int, *, higher: bool) -> list[Cell]:
    """Return the cells of a column that hold its best number, as it is printed, without a remark."""
    cells = [row.cells[index] for row in rows if row.cells[index].value is not None and not row.cells[index].flags]
    shown = [float(cell_text(cell).partition(" ")[0]) for cell in cells]
    best = (max if higher else min)(shown, default=0.0)
    return [cell for cell, number in zip(cells, shown, strict=True) if number == best]


def _cell(cell: Cell, *, bold: bool) -> str:
    if cell.value is None:
        return rf"{{\footnotesize {escaped(cell_text(cell))}}}"
    number, _, rest = cell_text(cell).partition(" ")
    strong = rf"\textbf{{{number}}}" if bold else number
    return rf"{strong} {{\scriptsize {escaped(rest)}}}"


def escaped(text: str) -> str:
    """Return a text in which LaTeX sees nothing but characters."""
    return "".join(_SPECIAL.get(character, character) for character in text)
