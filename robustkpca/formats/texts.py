"""The texts of a table: what stands in its cells, above its columns and below it."""

from __future__ import annotations

from robustkpca.boards import Cell, Table


def cell_text(cell: Cell) -> str:
    """Return percent with its interval, or why there is no number."""
    if cell.value is not None and cell.low is not None and cell.high is not None:
        mark = " !" if cell.flags else ""
        return f"{100 * cell.value:.1f} [{100 * cell.low:.1f}, {100 * cell.high:.1f}]{mark}"
    reasons = []
    if cell.count < cell.expected:
        reasons.append(f"{cell.expected - cell.count} of {cell.expected} missing")
    if cell.invalid:
        reasons.append(f"{cell.invalid} invalid")
    if cell.failed:
        reasons.append(f"{cell.failed} failed")
    return ", ".join(reasons) or "not run"


def header(table: Table) -> list[str]:
    """Return the titles above a table's columns."""
    seeds = ["seed"] if several_seeds(table) else []
    return ["rank", "model", *seeds, *(column.title for column in table.board.columns)]


def cells(table: Table) -> list[list[str]]:
    """Return the texts of a table, row by row, as markdown shows them."""
    lines = []
    for row in table.rows:
        rank = "" if row.rank is None else f"{row.rank}{' =' if row.tied else ''}"
        seeds = [str(row.seed)] if several_seeds(table) else []
        lines.append([rank, row.name, *seeds, *(cell_text(cell) for cell in row.cells)])
    return lines


def caption(table: Table) -> list[str]:
    """Return the lines that say how a table's numbers were obtained."""
    counts = sorted({cell.expected for row in table.rows for cell in row.cells})
    protocols = sorted({column.protocol for column in table.board.columns})
    seeds = sorted({row.seed for row in table.rows})
    lines = [
        f"Accuracy in % with 95 % Wilson interval; {table.data_name} ({table.data}), "
        f"n = {', '.join(map(str, counts))}; protocol {', '.join(protocols)}; seed {', '.join(map(str, seeds))}.",
        "= marks ranks shared because an exact McNemar test (p >= 0.05) cannot tell the models apart.",
    ]
    return lines + [f"! {note}" for note in table.notes]


def several_seeds(table: Table) -> bool:
    """Tell whether the rows need their seed."""
    return len({row.seed for row in table.rows}) > 1
