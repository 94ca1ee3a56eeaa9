"""A table as one page for browsers, without network: sorted by a click, filtered, with curves and the facts of each cell."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from robustkpca.boards import Cell, Column, Row, Table
from robustkpca.curves import Curve, curves
from robustkpca.formats.texts import caption, cell_text, cost_text, rank_text, several_seeds

WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM = 460, 240, 44, 24, 46
"""Size of a chart and of its margins, in the units of its drawing."""


@dataclass(frozen=True)
class Chart:
    """A curve in the units of its drawing.

    Args:
        title: What is done.
        axis: What grows.
        ticks: Place and text of every tick below.
        lines: Name, points, and for every point its place and text.
    """

    title: str
    axis: str
    ticks: tuple[tuple[float, str], ...]
    lines: tuple[tuple[str, str, tuple[tuple[float, float, str], ...]], ...]


def page(tables: Sequence[Table], costs: bool = False) -> str:
    """Write the tables as one html document, with ``costs`` the seconds of each cell too.

    Every name is escaped; nothing is loaded from anywhere.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("robustkpca.formats", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    titles = ", ".join(dict.fromkeys(f"{table.board.title}: {table.data_name}" for table in tables))
    views = [_view(table, number, costs) for number, table in enumerate(tables)]
    protocols = sorted({column.protocol for table in tables for column in table.board.columns})
    return environment.get_template("page.html").render(
        title=titles,
        tables=views,
        protocols=protocols,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=RIGHT,
        bottom=BOTTOM,
    )


def _view(table: Table, number: int, costs: bool) -> dict[str, Any]:
    """Return what the template shows of a table."""
    columns = table.board.columns
    return {
        "number": number,
        "title": f"{table.board.title}: {table.data_name}",
        "columns": [
            {
                "title": c.title,
                "parts": _title_parts(c.title),
                "protocol": c.protocol,
                "unit": c.reduce if c.reduce in ("distance", "perplexity") else "%",
                "threats": " ".join(c.threats),
                "wide": " / ".join(c.threats),
            }
            for c in columns
        ],
        "seeds": several_seeds(table),
        "rows": [
            {
                "rank": rank_text(row),
                "order": row.rank if row.rank is not None else 10**6,
                "name": row.name,
                "parts": re.split(r"(?<=[_/(,.-])", row.name),
                "seed": row.seed,
                "cells": [
                    _cell(table, row, column, cell, costs) for column, cell in zip(columns, row.cells, strict=True)
                ],
            }
            for row in table.rows
        ],
        "notes": caption(table),
        "charts": [_chart(curve, [row.name for row in table.rows]) for curve in curves(table)],
    }


def _title_parts(title: str) -> list[str]:
    """Break a long title where an attack meets its budget, else at words."""
    if "@" in title:
        attack, _, budget = title.partition("@")
        return [attack, f"@{budget}"]
    return textwrap.wrap(title, 14, break_long_words=False) or [title]


def _cell(table: Table, row: Row, column: Column, cell: Cell, costs: bool) -> dict[str, Any]:
    text, _, rest = cell_text(cell).partition(" ") if cell.value is not None else (cell_text(cell), "", "")
    spent = cost_text(cell).replace(",", " (forward + backward),") if costs else cost_text(cell)
    facts = [
        ("model", row.name),
        ("model id", row.model),
        ("checkpoint", f"sha256 {row.checkpoint}" if row.checkpoint else "none: bundled, or weights as built"),
        ("column", column.title),
        ("threats", "  ".join(column.threats)),
        ("protocol", cell.protocol),
        *_numbers(column, cell),
        ("samples", f"{cell.count} of {cell.expected}"),
        ("invalid, failed", f"{cell.invalid}, {cell.failed}" if cell.invalid or cell.failed else ""),
        ("seed", str(row.seed)),
        ("data", f"{table.data_name} ({table.data})"),
        ("passes per sample", spent if costs else spent.partition(",")[0]),
        ("remarks", "; ".join(dict.fromkeys((*cell.flags, *row.flags)))),
        ("again", f"{row.command} --threats {' '.join(map(shlex.quote, column.threats))}" if row.command else ""),
    ]
    return {
        "text": text,
        "rest": rest.removesuffix(" !").strip("[]").replace(", ", "–"),
        "flagged": bool(cell.flags),
        "order": -1.0 if cell.value is None else cell.value,
        "facts": [[name, fact] for name, fact in facts if fact],
    }


def _numbers(column: Column, cell: Cell) -> list[tuple[str, str]]:
    """Return the number of a cell, and what stands between its ends."""
    if cell.value is None or cell.low is None or cell.high is None:
        return []
    if cell.kind == "perplexity":
        interval = f"{cell.low:.3f} to {cell.high:.3f} (bootstrap over samples)"
        return [("perplexity", f"{cell.value:.3f}"), ("95 % interval", interval)]
    if cell.kind == "distance":
        return [("median distance", f"{cell.value:.6g}"), ("quartiles", f"{cell.low:.6g} to {cell.high:.6g}")]
    method = "Wilson" if column.reduce == "worst" else "normal, over samples"
    return [
        ("value", f"{100 * cell.value:.2f} %"),
        ("95 % interval", f"{100 * cell.low:.2f} to {100 * cell.high:.2f} % ({method})"),
    ]


def _chart(curve: Curve, names: Sequence[str]) -> Chart:
    """Place a curve in its drawing: accuracy from 0 to 100 % upwards."""
    low, high = min(curve.at), max(curve.at)
    span = (high - low) or 1.0

    def across(at: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (at - low) / span, 1)

    def upwards(value: float) -> float:
        return round((HEIGHT - BOTTOM) - (HEIGHT - BOTTOM - 12) * value, 1)

    lines = []
    for name, cells in zip(names, curve.lines, strict=True):
        places = tuple(
            (across(at), upwards(cell.value), f"{name}: {cell_text(cell)} at {tick}")
            for at, tick, cell in zip(curve.at, curve.ticks, cells, strict=True)
            if cell.value is not None
        )
        lines.append((name, " ".join(f"{x},{y}" for x, y, _ in places), places))
    ticks = tuple((across(at), text) for at, text in zip(curve.at, curve.ticks, strict=True))
    return Chart(curve.title, curve.axis, ticks, tuple(lines))
