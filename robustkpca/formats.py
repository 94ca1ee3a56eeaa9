"""A table as text: markdown, csv, json."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from robustkpca.boards import Cell, Table
from robustkpca.errors import unknown


def render(tables: Sequence[Table], form: str, *, costs: bool = False) -> str:
    """Write tables in one of `FORMATS`, ending in a newline.

    Args:
        tables: From `robustkpca.boards.leaderboard`.
        form: One of `FORMATS`.
        costs: Whether to show what each column cost. Without it csv and json hold passes, but no seconds, so that the same
            records give the same bytes.

    Raises:
        UnknownName: If there is no such format.
    """
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    return FORMATS[form](tables, costs)


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


def cost_text(cell: Cell) -> str:
    """Return forward passes, backward passes and seconds per sample; empty where they were not counted."""
    if cell.forwards is None or cell.backwards is None or cell.seconds is None:
        return ""
    return f"{cell.forwards:.1f} + {cell.backwards:.1f}, {cell.seconds:.2g} s"


def header(table: Table, *, costs: bool = False) -> list[str]:
    """Return the titles above a table's columns; with ``costs`` each has a second one."""
    seeds = ["seed"] if _several_seeds(table) else []
    titles = [[column.title, f"{column.title}: passes"][: 1 + costs] for column in table.board.columns]
    return ["rank", "model", *seeds, *(title for pair in titles for title in pair)]


def cells(table: Table, *, costs: bool = False) -> list[list[str]]:
    """Return the texts of a table, row by row, as markdown shows them; with ``costs`` each column has a second one."""
    lines = []
    for row in table.rows:
        rank = ("!" if row.flags else "") if row.rank is None else f"{row.rank}{' =' if row.tied else ''}"
        seeds = [str(row.seed)] if _several_seeds(table) else []
        pairs = [[cell_text(cell), cost_text(cell)][: 1 + costs] for cell in row.cells]
        lines.append([rank, row.name, *seeds, *(text for pair in pairs for text in pair)])
    return lines


def caption(table: Table, *, costs: bool = False) -> list[str]:
    """Return the lines that say how a table's numbers were obtained, with ``costs`` those of the passes too."""
    counts = sorted({cell.expected for row in table.rows for cell in row.cells})
    protocols = sorted({column.protocol for column in table.board.columns})
    seeds = sorted({row.seed for row in table.rows})
    lines = [
        f"Accuracy in % with 95 % Wilson interval; {table.data_name} ({table.data}), "
        f"n = {', '.join(map(str, counts))}; protocol {', '.join(protocols)}; seed {', '.join(map(str, seeds))}.",
        "= marks ranks shared because an exact McNemar test (p >= 0.05) cannot tell the models apart.",
    ]
    if costs:
        lines.append(
            "passes: forward + backward passes and seconds per sample; seconds belong to the machine and its load."
        )
    return lines + [f"! {note}" for note in table.notes]


def _several_seeds(table: Table) -> bool:
    return len({row.seed for row in table.rows}) > 1


def _markdown(tables: Sequence[Table], costs: bool) -> str:
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
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _csv(tables: Sequence[Table], costs: bool) -> str:
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
            "forwards",
            "backwards",
            *(["seconds"] if costs else []),
        ]
    )
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.board.columns, row.cells, strict=True):
                numbers = ["" if number is None else repr(number) for number in (cell.value, cell.low, cell.high)]
                spent = (cell.forwards, cell.backwards, cell.seconds)
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
                        *("" if cost is None else repr(cost) for cost in spent[: 2 + costs]),
                    ]
                )
    return out.getvalue()


def _json(tables: Sequence[Table], costs: bool) -> str:
    values = [asdict(table) for table in tables]
    for cell in [] if costs else [cell for value in values for row in value["rows"] for cell in row["cells"]]:
        del cell["seconds"]
    return json.dumps(values, indent=2) + "\n"


FORMATS: dict[str, Callable[[Sequence[Table], bool], str]] = {"markdown": _markdown, "csv": _csv, "json": _json}
"""Every format by name."""
