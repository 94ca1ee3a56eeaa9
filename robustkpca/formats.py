"""A table as text: markdown, csv, json."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from robustkpca.boards import Cell, Table
from robustkpca.errors import plain, unknown


def render(tables: Sequence[Table], form: str) -> str:
    """Write tables in one of `FORMATS`, ending in a newline.

    Raises:
        UnknownName: If there is no such format.
    """
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    return FORMATS[form](tables)


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
    seeds = ["seed"] if _several_seeds(table) else []
    return ["rank", "model", *seeds, *(column.title for column in table.board.columns)]


def cells(table: Table) -> list[list[str]]:
    """Return the texts of a table, row by row, as markdown shows them."""
    lines = []
    for row in table.rows:
        rank = "" if row.rank is None else f"{row.rank}{' =' if row.tied else ''}"
        seeds = [str(row.seed)] if _several_seeds(table) else []
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


def _several_seeds(table: Table) -> bool:
    return len({row.seed for row in table.rows}) > 1


def _markdown(tables: Sequence[Table]) -> str:
    blocks = []
    for table in tables:
        titles, lines = header(table), cells(table)
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
        notes = "\n".join(f"{line}  " for line in map(_escape, caption(table)))
        headline = _escape(f"{table.board.title}: {table.data_name}")
        blocks.append(f"### {headline}\n\n" + "\n".join(rows) + f"\n\n{notes.rstrip()}\n")
    return "\n".join(blocks)


def _escape(text: str) -> str:
    return plain(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _csv(tables: Sequence[Table]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "board",
            "data",
            "model",
            "model_name",
            "seed",
            "rank",
            "column",
            "protocol",
            "value",
            "low",
            "high",
            "count",
            "expected",
            "invalid",
            "failed",
            "flags",
        ]
    )
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.board.columns, row.cells, strict=True):
                numbers = ["" if number is None else repr(number) for number in (cell.value, cell.low, cell.high)]
                counts = [cell.count, cell.expected, cell.invalid, cell.failed]
                rank = "" if row.rank is None else row.rank
                writer.writerow(
                    [
                        table.board.name,
                        table.data,
                        row.model,
                        row.name,
                        row.seed,
                        rank,
                        column.title,
                        cell.protocol,
                        *numbers,
                        *counts,
                        "; ".join(cell.flags),
                    ]
                )
    return out.getvalue()


def _json(tables: Sequence[Table]) -> str:
    return json.dumps([asdict(table) for table in tables], indent=2) + "\n"


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {"markdown": _markdown, "csv": _csv, "json": _json}
"""Every format by name."""
